"""The documents do what they say: each command in a fenced block is run, and what is shown of its output still appears.

    ```console   "$ COMMAND", then lines of its output in their order; ".." stands for lines left out
    ```sh        commands that set something up: what they would do is asked for (RUNS)
    ```python    is executed

Programs run on the emulation, for the target that the documents show. Measured numbers and widths of columns may differ.
"""
from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from textwrap import dedent

import pytest

from tests.conftest import ROOT

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "DESIGN.md")
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.M | re.S)
MEASURED = re.compile(r"\d\.\d\de[-+]\d\d|\d\.\d\d of allowed")
"""Errors: PyTorch's own kernels differ between processors."""


def blocks(kind: str) -> list[tuple[str, str]]:
    return [(name, dedent(text)) for name in DOCUMENTS for k, text in FENCE.findall((ROOT / name).read_text()) if k == kind]


def commands() -> list[tuple[str, list[str]]]:
    """(command, lines shown of its output) of all console blocks."""
    found = []
    for _, text in blocks("console"):
        for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
            command, *shown = part.splitlines()
            found.append((command, [line for line in shown if line.strip() not in ("", "..")]))
    return found


def plain(line: str) -> str:
    return " ".join(MEASURED.sub("N", line).split())


@pytest.mark.parametrize("command, shown", commands(), ids=lambda c: c if isinstance(c, str) else "")
def test_console(command, shown, capsys, monkeypatch):
    from deplodock.cli import execute
    monkeypatch.setenv("DEPLODOCK_TARGET", "h200")
    program, *arguments = shlex.split(command)
    assert program == "deplodock" and execute(arguments) == 0
    printed = iter(map(plain, capsys.readouterr().out.splitlines()))
    missing = [line for line in shown if plain(line) not in printed]      # `in` moves on: lines stand in their order
    assert not missing


RUNS = {
    "make": lambda words: ["make", "-n", f"PYTHON={sys.executable}", *words[1:]],
    "bash": lambda words: ["bash", "-n", *words[1:]],
}
"""What stands for a command that would take minutes: the same with nothing carried out."""


@pytest.mark.parametrize("line", [line for _, text in blocks("sh") for line in text.splitlines()])
def test_set_up(line):
    words = shlex.split(line, comments=True)
    if words[:2] == ["pip", "install"]:
        assert words[2:] == ["-e", "."] and "deplodock" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
        return
    files = [w for word in words for w in re.split(r"[ =]", word) if w.startswith("tests/")]
    assert all((ROOT / f).exists() for f in files)
    ran = subprocess.run(RUNS[words[0]](words), cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name, text", blocks("python"))
def test_python(name, text):
    """Laws that it shows are those of rules/."""
    from deplodock.law import Law
    from deplodock.saturate import catalogue
    from rules.definitions import DEFINITIONS
    scope = {"__name__": name}
    exec(compile(text, name, "exec"), scope)
    real = {law.name: law for law in (*catalogue(), *(law for laws in DEFINITIONS.values() for law in laws))}
    for shown in (x for x in scope.values() if isinstance(x, Law)):
        assert inspect.getsource(real[shown.name].function).strip() in text


@pytest.mark.parametrize("name", DOCUMENTS)
def test_names_in_the_text_exist(name):
    """Files, verbs and targets of make between backticks."""
    from deplodock.cli import VERBS
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    for word in re.findall(r"`([^`\n]+)`", FENCE.sub("", (ROOT / name).read_text())):
        first, *rest = word.split()
        if re.fullmatch(r"(deplodock|rules|extract|tests|benchmarks)/[\w./-]*", word):
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
