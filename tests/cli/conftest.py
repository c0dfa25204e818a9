"""Runs command lines in this process: torch is imported once for all tests."""
from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def deplodock(capsys, monkeypatch):
    """deplodock("compile", "-c", ..) -> exit code, standard output, standard error."""
    from deplodock.cli import execute, output
    monkeypatch.setattr(output, "PATIENCE", 1e9)        # how long a step takes is no part of what is tested

    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        code = execute(list(map(str, arguments)))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)
    return call
