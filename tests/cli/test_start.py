"""What answers at once, and what the command line is made of: help, version, completion, usage, settings."""
from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from deplodock.cli import VERBS
from deplodock.version import __version__

LIMIT = 0.3
"""Seconds of processor time, which other tests that run beside this one do not change much."""


def processor_time(*arguments: str) -> float:
    """Of the fastest of three runs: the first may find no byte code."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "deplodock", *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], *([verb, "--help"] for verb in VERBS)], ids=" ".join)
def test_answers_at_once(arguments):
    assert processor_time(*arguments) < LIMIT


@pytest.mark.parametrize("arguments", [["--help"], *([verb, "--help"] for verb in VERBS)], ids=" ".join)
def test_help_loads_nothing_heavy(arguments):
    text = f"""
import sys
from deplodock.cli import execute
execute({arguments!r})
print(sorted(set(sys.modules) & {{"torch", "egglog", "numpy", "cuda"}}), file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ran.stderr.splitlines()[-1] == "[]"


def test_version(deplodock):
    assert deplodock("--version").out == f"deplodock {__version__}\n"


@pytest.mark.parametrize("shell, word", [("bash", "complete"), ("zsh", "#compdef"), ("fish", "complete")])
def test_completion_scripts(deplodock, shell, word):
    ran = deplodock("--completion", shell)
    assert ran.code == 0 and word in ran.out and "_DEPLODOCK_COMPLETE" in ran.out


def test_completion_completes():
    environment = {**os.environ, "_DEPLODOCK_COMPLETE": "bash_complete", "COMP_WORDS": "deplodock compile --nu", "COMP_CWORD": "2"}
    ran = subprocess.run([sys.executable, "-m", "deplodock"], env=environment, capture_output=True, text=True)
    assert "plain,--numerics" in ran.stdout.split()


@pytest.mark.parametrize("arguments, message", [
    (["comple"], "No such verb: 'comple'. Did you mean 'compile'?"),
    (["frobnicate"], "No such verb: 'frobnicate'. Verbs: compile, saturate, run, laws, doctor."),
    (["compile", "--ir", "foo", "-c", "1"], "Invalid value for '--ir'"),
    (["compile", "--frob"], "No such option"),
    (["compile"], "a program is expected, once: -c CODE, path.py:name, a folder with a config.json, a file of saved Torch IR, or - for standard input"),
    (["compile", "-c", "1", "x.py:f"], "a program is expected, once"),
    (["compile", "x.py"], "x.py is a file; which program of it?"),
    (["compile", "nowhere.py:f"], "there is no file 'nowhere.py'"),
    (["compile", "nowhere.txt"], "there is no file 'nowhere.txt'"),
    (["run", "-c", "torch.randn(2)", "--device", "cpu", "--bench"], "--bench needs a GPU"),
    (["laws", "nosuchlaw"], "no law fits 'nosuchlaw'"),
], ids=lambda a: " ".join(a) if isinstance(a, list) else "")
def test_usage_errors(deplodock, arguments, message):
    ran = deplodock(*arguments)
    assert ran.code == 2 and ran.out == "" and message in ran.err


class TestSettings:
    """Flag over environment over pyproject.toml over default, seen in which file `compile` says it would write."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        self.file = tmp_path / "pyproject.toml"

    def numerics(self, deplodock, *arguments) -> str:
        import json
        ran = deplodock("compile", "-c", "torch.randn(2)", "--ir", "torch", "--json", *arguments)
        assert ran.code == 0, ran.err
        return json.loads(ran.out)["numerics"]

    def test_the_nearest_wins(self, deplodock, monkeypatch):
        assert self.numerics(deplodock) == "default"
        self.file.write_text('[tool.deplodock]\nnumerics = "fast"\n')
        assert self.numerics(deplodock) == "fast"
        monkeypatch.setenv("DEPLODOCK_NUMERICS", "strict")
        assert self.numerics(deplodock) == "strict"
        assert self.numerics(deplodock, "--numerics", "default") == "default"

    def test_a_table_for_one_verb(self, deplodock):
        self.file.write_text('[tool.deplodock]\nnumerics = "fast"\n[tool.deplodock.run]\nnumerics = "strict"\n')
        assert self.numerics(deplodock) == "fast"
        self.file.write_text('[tool.deplodock.compile]\nnumerics = "strict"\n')
        assert self.numerics(deplodock) == "strict"

    @pytest.mark.parametrize("text, message", [
        ('[tool.deplodock]\nnumeric = "fast"\n', "has an unknown key 'numeric'"),
        ('[tool.deplodock.run]\nir = "loop"\n', "has an unknown key 'run.ir'"),
        ('[tool.deplodock]\nnumerics = "quick"\n', "'quick' is not one of 'strict', 'default', 'fast'"),
        ('[tool.deplodock\n', "cannot be read"),
    ])
    def test_mistakes_are_named(self, deplodock, text, message):
        self.file.write_text(text)
        ran = deplodock("compile", "-c", "torch.randn(2)", "--ir", "torch")
        assert ran.code == 2 and message in ran.err
