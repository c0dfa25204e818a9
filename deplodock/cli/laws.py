"""deplodock laws: the catalogue."""
from __future__ import annotations

import click

from deplodock.cli.options import json_option, output_options


@click.command(name="laws")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@json_option
@output_options
def command(words, as_json, out):
    """List the laws: name, equation, conditions, numerics tag, file.

    WORDs narrow the list: a group (reduction), a tag (contracts), or a part of a name.
    """
    found = [law for law in catalogue() if all(_fits(law, w) for w in words)]
    if not found:
        raise click.UsageError(f"no law fits {' '.join(words)!r}; `deplodock laws` lists all", click.get_current_context())
    group = None
    for law in found:
        if law.module != group:
            group = law.module
            out.result(("" if law is found[0] else "\n") + click.style(f"rules/{group}.py", bold=True))
        conditions = f"   if {', '.join(law.conditions)}" if law.conditions else ""
        out.result(f"  {law.name:26} {law.tag:13} {law.equation}{conditions if out.verbose else ''}")
    out.object("laws", laws=[{"name": law.name, "equation": law.equation, "conditions": list(law.conditions), "tag": law.tag,
                              "group": law.module, "file": f"rules/{law.module}.py", "line": law.where[1]} for law in found])


def catalogue():
    """Every law, group by group in the order of the groups' names, those of a group in the order of its text."""
    import importlib
    import pkgutil

    import rules
    from deplodock.law import laws_of
    modules = [importlib.import_module(f"rules.{m.name}") for m in pkgutil.iter_modules(rules.__path__)]
    return laws_of(*modules)


def _fits(law, word: str) -> bool:
    return word in (law.module, law.tag) or word in law.name
