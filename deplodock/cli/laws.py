"""deplodock laws: the catalogue."""
from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from deplodock.cli.options import json_option, output_options


@click.command(name="laws")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@json_option
@output_options
def command(words, as_json, out):
    """List the laws of each file: name, numerics tag and equation; -v adds the conditions.

    WORDs narrow the list: a group (reduction), a tag (contracts), or a part of a name.
    """
    found = [law for law in catalogue() if all(_fits(law, w) for w in words)]
    if not found:
        raise click.UsageError(f"no law fits {' '.join(words)!r}; `deplodock laws` lists all", click.get_current_context())
    group = None
    for law in found:
        if law.group != group:
            group = law.group
            out.result(("" if law is found[0] else "\n") + click.style(f"rules/{group}.py", bold=True))
        conditions = f"   if {', '.join(law.conditions)}" if law.conditions else ""
        out.result(f"  {law.name:26} {law.tag:13} {law.equation}{conditions if out.verbose else ''}")
    out.object("laws", laws=[asdict(law) for law in found])


@dataclass(frozen=True, slots=True)
class Entry:
    """One law of the catalogue; file and line are where it is written."""
    name: str
    equation: str
    conditions: tuple[str, ...]
    tag: str
    group: str
    file: str
    line: int


def catalogue() -> tuple[Entry, ...]:
    """Every law, group by group in the order of the groups' names, those of a group in the order of its text."""
    import importlib
    import pkgutil

    import rules
    from deplodock.join import Step
    from deplodock.law import Law
    found = []
    for name in sorted(m.name for m in pkgutil.iter_modules(rules.__path__)):
        module = importlib.import_module(f"rules.{name}")
        for law in vars(module).values():
            if isinstance(law, (Law, Step)) and law.function.__module__ == module.__name__:
                guards = law.conditions if isinstance(law, Law) else tuple(map(str, law.join().guards))
                found.append(Entry(law.name, law.equation, guards, law.tag, name, f"rules/{name}.py",
                                   law.function.__code__.co_firstlineno))
    return tuple(found)


def _fits(law: Entry, word: str) -> bool:
    return word in (law.group, law.tag) or word in law.name
