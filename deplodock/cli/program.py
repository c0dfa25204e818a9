"""The program of a command line, in any of its forms, on its way through the pipeline.

    -c CODE          Python text; its last statement is an expression
    path.py:name     a function or a module of a file
    FOLDER           a Hugging Face model, by its config.json: all of it, a part, or one layer
    FILE             a saved Torch IR
    -                standard input: Torch IR if its last line returns, which Python at the top of a file cannot, else Python
"""
from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from deplodock.errors import UsageError

FORMS = "-c CODE, path.py:name, a folder with a config.json, a file of saved Torch IR, or - for standard input"


def read(source: str | None, code: str | None, out, model: dict, seed: int = 0):
    """The deplodock.capture.Captured of a program, and the seconds that importing (PyTorch, mostly) and capturing took.

    model: --part, --layer, --seq, --batch and --dtype, as capture_model names them. UsageError if there is no program, or two.
    """
    if (source is None) == (code is None):
        raise click.UsageError(f"a program is expected, once: {FORMS}", click.get_current_context(silent=True))
    start = time.perf_counter()
    with out.step("import"):
        from deplodock import capture, pipeline  # noqa: F401  (what a compilation will load, so that it is timed here)
    imported = time.perf_counter()
    with out.step("capture"):
        captured = _read(source, code, seed, capture, model)
    return captured, {"import": imported - start, "capture": time.perf_counter() - imported}


def _read(source: str | None, code: str | None, seed: int, capture, model: dict):
    if source and is_model(Path(source)):
        return capture.capture_model(source, **model, seed=seed)
    if given := [k for k in ("part", "layer", "dtype") if model[k] is not None]:
        raise UsageError(title=f"--{given[0]} is about models", expected="a folder with a config.json", found=source or "-c",
                         advice=f"leave --{given[0]} out")
    if code is not None:
        return capture.capture_code(code, seed=seed)
    if source == "-":
        text = sys.stdin.read()
        return capture.capture_torch_ir(text, "<stdin>", seed=seed) if _is_torch_ir(text) else capture.capture_code(text, seed=seed)
    path, colon, name = source.rpartition(":")
    if colon and path.endswith(".py"):
        _require_file(Path(path), source)
        return capture.capture_file(source, seed=seed)
    if source.endswith(".py"):
        raise UsageError(title=f"{source} is a file; which program of it?", expected=f"{source}:NAME, a function or an nn.Module",
                         found=source, advice="add a colon and the name")
    _require_file(Path(source), source)
    return capture.capture_torch_ir(_text(Path(source)), source, seed=seed)


def save(folder: Path, compilation, source: str | None) -> None:
    """Writes a compilation's program to a folder. Weights of a model's folder stay where they are."""
    from deplodock import saved
    from deplodock.stored import loadable
    captured = compilation.captured
    interface, signature = saved.for_inputs(compilation.torch, captured.tree, captured.absent)
    files = sorted(Path(source).glob("*.safetensors")) if source and Path(source).is_dir() else ()
    saved.save(folder, loadable(compilation), captured.parameters, interface, signature, compilation.numerics, files)


def is_model(path: Path) -> bool:
    """Whether a path means a model: a folder, or the config.json in one."""
    return path.is_dir() or path.name == "config.json"


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        found = error.strerror if isinstance(error, OSError) else "bytes that are no text"
        raise UsageError(title=f"cannot read {path}", expected=FORMS, found=found, advice="check the path") from error


def require_folder(path: Path) -> None:
    """UsageError unless a file can be made at a path: asked before the work, not after it."""
    if not path.parent.is_dir():
        raise UsageError(title=f"cannot write {path}", expected="a path in a folder that exists",
                         found=f"no folder {str(path.parent)!r}", advice="make the folder, or choose another path")


def _require_file(path: Path, source: str) -> None:
    if not path.is_file():
        raise UsageError(title=f"there is no file {str(path)!r}", expected=FORMS, found=source,
                         advice="check the path; Python text goes behind -c")


def _is_torch_ir(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and (lines[-1].split()[0] == "return")


def target_or_default(name: str | None):
    """The target of --target; without it this machine's GPU, or an H200 where there is none that is known."""
    from deplodock.target import at_hand, target
    return at_hand() if name is None else target(name)
