"""Options that several verbs share, and where their values come from.

A flag wins over the environment (DEPLODOCK_TARGET for --target), that over [tool.deplodock] of the nearest
pyproject.toml, that over the default. A table [tool.deplodock.run] holds for one verb only.
"""
from __future__ import annotations

import functools
from pathlib import Path

import click

NUMERICS = ("strict", "default", "fast")


def option(*names: str, **facts):
    """An option that can also be given as DEPLODOCK_NAME and in [tool.deplodock]."""
    name = max((n for n in names if n.startswith("--")), key=len).lstrip("-")
    return click.option(*names, envvar=f"DEPLODOCK_{name.upper().replace('-', '_')}", **facts)


def compose(*decorators):
    def apply(function):
        return functools.reduce(lambda f, d: d(f), reversed(decorators), function)
    return apply


def source_options(function):
    """The program: -c CODE, or SOURCE; and which part of a model's folder, in the argument `model`."""
    @compose(
        click.argument("source", required=False, metavar="[SOURCE]"),
        click.option("-c", "code", metavar="CODE",
                     help="Python; its last statement is an expression. torch, nn and F are in scope; what torch.randn and the "
                          "like make is an input."),
        click.option("--part", metavar="PATH", help="Of a model's folder, this module alone, as encoder."),
        click.option("--layer", type=int, metavar="N", help="Of a model's folder, this layer alone."),
        option("--seq", "sequence", type=click.IntRange(1), default=128, show_default=True, help="Of a model: tokens."),
        option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Of a model: sequences, or images."),
        option("--dtype", type=click.Choice(["f32", "bf16", "f16"]), help="Of a model's weights. [default: its configuration's]"),
    )
    @functools.wraps(function)
    def wrapped(*args, part, layer, sequence, batch, dtype, **kwargs):
        model = {"part": part, "layer": layer, "sequence": sequence, "batch": batch, "dtype": dtype}
        return function(*args, model=model, **kwargs)
    return wrapped


def numerics_option(function):
    return option("--numerics", type=click.Choice(NUMERICS), default="default", show_default=True,
                  help="What may change about roundings.")(function)


def target_option(function):
    return option("--target", metavar="GPU|ARCH",
                  help="A GPU (h200) or an architecture (sm_90a), which need not be here. "
                       "[default: this machine's GPU, or h200 where there is none]")(function)


def output_options(function):
    """-q, -v, --color: how much is said, and how. They become one `Output` in the argument `out`."""
    @compose(
        click.option("-q", "--quiet", is_flag=True, help="Say nothing but the result."),
        click.option("-v", "--verbose", count=True, help="-v: times and counts. -vv: every step."),
        option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
               help="NO_COLOR means never."),
    )
    @functools.wraps(function)
    def wrapped(*args, quiet, verbose, color, **kwargs):
        from deplodock.cli.output import Output
        with Output(quiet, verbose, color, wants_json=bool(kwargs.get("as_json"))) as out:
            return function(*args, out=out, **kwargs)
    return wrapped


def json_option(function):
    return click.option("--json", "as_json", is_flag=True,
                        help="Print one JSON object to standard output, and nothing else.")(function)


def settings() -> dict:
    """[tool.deplodock] of the nearest pyproject.toml, as click's default_map. UsageError for a key that no verb has."""
    import importlib

    from deplodock.cli import VERBS
    path = _nearest_pyproject()
    table = _table(path) if path else {}
    if not table:
        return {}
    known = {}
    for verb in VERBS:
        command = importlib.import_module(f"deplodock.cli.{verb}").command
        known[verb] = {p.name for p in command.params if getattr(p, "envvar", None)}
    everything = set().union(*known.values())
    result: dict[str, dict] = {verb: {} for verb in VERBS}
    for key, value in table.items():
        name = key.replace("-", "_")
        if key in VERBS and isinstance(value, dict):
            for inner, v in value.items():
                if inner.replace("-", "_") not in known[key]:
                    raise _unknown_key(path, f"{key}.{inner}", known[key])
                result[key][inner.replace("-", "_")] = v
        elif name in everything:
            for verb in VERBS:
                if name in known[verb]:
                    result[verb].setdefault(name, value)
        else:
            raise _unknown_key(path, key, everything)
    return result


def _nearest_pyproject() -> Path | None:
    here = Path.cwd()
    return next((p for d in (here, *here.parents) if (p := d / "pyproject.toml").is_file()), None)


def _table(path: Path) -> dict:
    text = path.read_text(errors="replace")
    if "tool.deplodock" not in text:
        return {}
    import tomllib
    try:
        return tomllib.loads(text).get("tool", {}).get("deplodock", {})
    except tomllib.TOMLDecodeError as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from error


def _unknown_key(path: Path, key: str, known: set[str]) -> click.UsageError:
    return click.UsageError(f"[tool.deplodock] of {path} has an unknown key {key!r}. Known: {', '.join(sorted(known))}.")
