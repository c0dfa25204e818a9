"""The documents do what they say: each command in a fenced block is run, and what is shown of its output still appears.

    ```console   "$ COMMAND", then lines of what it prints, in their order; ".." stands for lines left out. A command
                 that fails is followed by "$ echo $?" and its exit code
    ```sh        commands that take long or set something up: what they would do is asked for (RUNS)
    ```python    is executed
    ```grammar   is at the head of the file that is named before it
    ```excerpt   lines of the files that its comments name

Programs run on the emulation, for the target that the documents show. Measured numbers and widths of columns may differ.
"""
from __future__ import annotations

import ast
import inspect
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
import warnings
from textwrap import dedent

import pytest

from tests.conftest import ROOT

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "DESIGN.md", "LIMITS.md")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.M | re.S)
MEASURED = re.compile(r"\d\.\d\de[-+]\d\d|\d\.\d\d of allowed")
"""Errors: PyTorch's own kernels differ between processors."""


def blocks(kind: str) -> list[tuple[str, str]]:
    return [(name, dedent(text)) for name in DOCUMENTS for k, text in FENCE.findall((ROOT / name).read_text()) if k == kind]


def named(kind: str) -> dict:
    """Parameters of a test: the blocks of a kind, each with the document's name and a number as its id."""
    found = blocks(kind)
    return dict(argvalues=found, ids=[f"{name}-{n}" for n, (name, _) in enumerate(found)])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory: empty but for what the documents take from a checkout."""
    for name in ("tests", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)


def plain(line: str) -> str:
    return " ".join(MEASURED.sub("N", line).split())


@pytest.mark.parametrize("name, text", **named("console"))
def test_console(name, text, folder, capsys, monkeypatch):
    from deplodock.cli import execute
    monkeypatch.setenv("DEPLODOCK_TARGET", "h200")
    code = 0
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, *shown = part.splitlines()
        program, *arguments = shlex.split(command)
        if program == "echo":
            printed, code = f"{code}\n", 0
        else:
            assert code == 0, f"the command before {command} failed"
            if program == "python":
                ran = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240)
                code, printed = ran.returncode, ran.stdout + ran.stderr
            else:
                assert program == "deplodock"
                code = execute(arguments)
                captured = capsys.readouterr()
                printed = captured.out + captured.err
        lines = iter(map(plain, printed.splitlines()))                    # `in` moves on: lines stand in their order
        missing = [line for line in shown if line.strip() not in ("", "..") and plain(line) not in lines]
        assert not missing, f"{command}\n{printed}"
    assert code == 0


def usage(module: str, capsys, monkeypatch) -> str:
    """What a module says of itself as a command."""
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    with pytest.raises(SystemExit):
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    return capsys.readouterr().out


@pytest.mark.parametrize("line", [line for _, text in blocks("sh") for line in text.splitlines()])
def test_set_up(line, capsys, monkeypatch):
    """What stands for a command that would take minutes: the same with nothing carried out."""
    words = shlex.split(line, comments=True)
    match words:
        case ["pip", "install", "-e", what]:
            extras = re.fullmatch(r"\.(?:\[(.*)\])?", what)[1]
            assert "deplodock" in PROJECT["scripts"] and (not extras or extras in PROJECT["optional-dependencies"])
        case ["python", "-m", module, *options]:
            known = usage(module, capsys, monkeypatch)
            assert [o for o in options if o.startswith("--") and o not in known] == []
        case ["make" | "bash", *rest]:
            files = [w for word in words for w in re.split(r"[ =]", word) if w.startswith("tests/")]
            assert all((ROOT / f).exists() for f in files)
            dry = ["make", "-n", f"PYTHON={sys.executable}", *rest] if words[0] == "make" else ["bash", "-n", *rest]
            ran = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, timeout=60)
            assert ran.returncode == 0, ran.stdout + ran.stderr
        case _:
            pytest.fail(f"nothing stands for {line}")


@pytest.mark.parametrize("name, text", **named("python"))
def test_python(name, text, folder):
    """Laws that it shows are those of rules/. torch knows the backend's name, as it does after installation."""
    import torch
    import deplodock
    from deplodock.dynamo import EagerWarning
    from deplodock.law import Law
    from deplodock.saturate import catalogue
    from rules.definitions import DEFINITIONS
    if "deplodock" not in torch._dynamo.list_backends(exclude_tags=()):
        torch._dynamo.register_backend(deplodock.backend, name="deplodock")
    scope = {"__name__": name}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerWarning)
        exec(compile(text, f"<{name}>", "exec"), scope)
    real = {law.name: law for law in (*catalogue(), *(law for laws in DEFINITIONS.values() for law in laws))}
    for shown in (x for x in scope.values() if isinstance(x, Law)):
        assert inspect.getsource(real[shown.name].function).strip() in text


IRS = ("deplodock/ir/torch.py", "deplodock/ir/tensor.py", "deplodock/ir/loop.py", "deplodock/ir/plan.py", "deplodock/ir/tile.py",
       "deplodock/ir/kernel.py", "deplodock/ir/expression.py", "deplodock/lower/cuda.py")


def test_grammars_are_those_at_the_heads_of_the_irs():
    shown = [text.strip("\n") for _, text in blocks("grammar")]
    assert len(shown) == len(IRS)
    for file, text in zip(IRS, shown):
        head = ast.get_docstring(ast.parse((ROOT / file).read_text()))
        first = next(p for p in head.split("\n\n") if p.startswith("    "))
        assert text in dedent("\n".join(line.removeprefix("    ") for line in head.splitlines())), file
        assert text.startswith(dedent(first)) and f"`{file}`" in (ROOT / "DESIGN.md").read_text(), file


@pytest.mark.parametrize("name, text", **named("excerpt"))
def test_excerpts(name, text):
    lines = iter(())
    for line in map(str.strip, text.splitlines()):
        if line.startswith("# "):
            lines = map(str.strip, (ROOT / line[2:]).read_text().splitlines())
        else:
            assert line in lines, line


def test_every_error_is_in_the_limits():
    from deplodock import errors
    classes = {n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, errors.DeplodockError)}
    told = {n: int(row[1]) for row in re.findall(r"^\|.*\| (.*) \| (\d) \|$", (ROOT / "LIMITS.md").read_text(), re.M)
            for n in re.findall(r"`(\w+)`", row[0])}
    assert told == {n: c.exit_code for n, c in classes.items() if c is not errors.DeplodockError}


def test_figures_are_committed_results():
    """Numbers in the tables of the README are in a file of benchmarks/results."""
    section = (ROOT / "README.md").read_text().partition("## Numbers")[2].partition("\n## ")[0]
    figures = [f for row in re.findall(r"^\|.*\|$", section, re.M) for f in re.findall(r"\d+\.\d+(?= )", row)]
    results = {f for p in (ROOT / "benchmarks" / "results").glob("*.md") for f in re.findall(r"\d+\.\d+", p.read_text())}
    assert figures and [f for f in figures if f not in results] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_names_in_the_text_exist(name):
    """Files, verbs and targets of make between backticks."""
    from deplodock.cli import VERBS
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    for word in re.findall(r"`([^`\n]+)`", FENCE.sub("", (ROOT / name).read_text())):
        first, *rest = word.split()
        if re.fullmatch(r"(deplodock|rules|extract|tests|benchmarks)/[\w./-]*|[A-Z]+\.md", word):
            assert (ROOT / word).exists(), word
        if first == "deplodock" and rest:
            assert rest[0] in (*VERBS, "VERB"), word
        if first == "make":
            assert rest[0] in targets, word


@pytest.mark.parametrize("name", DOCUMENTS)
def test_lines_are_short(name):
    text = FENCE.sub("", (ROOT / name).read_text())
    wide = [line for line in text.splitlines() if len(line) > 130 and not line.startswith("|")]
    assert not wide
