"""Imports point down, and `rules` and `extract`, generic names, are the packages of this checkout."""
from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [p for package in ("deplodock", "rules", "extract") for p in sorted((ROOT / package).rglob("*.py"))]


def imports(path: Path) -> set[str]:
    """The modules of this project that a file imports, those inside of functions and for types included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names): found |= {n.name for n in names}
            case ast.ImportFrom(module=str(module), names=names):
                found |= {f"{module}.{n.name}" for n in names}
    return {m for m in found if m.split(".")[0] in ("deplodock", "rules", "extract", "tests", "benchmarks")}


def layer(name: str) -> str:
    """ir, law, rules, lower, runtime, extract, saturate .. of a module."""
    first, *rest = name.split(".")
    return rest[0] if first == "deplodock" and rest else first


def offences(who: str, forbidden: set[str]) -> list[str]:
    found = []
    for path in FILES:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if layer(name) == who:
            found += [f"{name} imports {m}" for m in sorted(imports(path)) if layer(m) in forbidden]
    return found


ABOVE = {"pipeline", "api", "stored", "cli"}
DOWN = {
    "ir": {*ABOVE, "law", "rules", "lower", "runtime", "extract", "saturate", "enter", "capture", "target"},
    "law": {*ABOVE, "rules", "lower", "runtime", "extract", "saturate", "enter", "capture"},
    "rules": {*ABOVE, "lower", "runtime", "extract", "saturate", "enter", "capture"},
    "lower": {*ABOVE, "law", "rules", "runtime", "extract", "saturate", "enter", "capture"},
    "runtime": {*ABOVE, "law", "rules", "extract", "saturate", "enter", "capture"},
    "extract": {*ABOVE, "runtime", "saturate", "enter", "capture"},
    "saturate": {*ABOVE, "lower", "runtime", "extract", "capture"},
    "enter": {*ABOVE, "lower", "runtime", "extract", "saturate", "capture"},
    "capture": {*ABOVE, "law", "rules", "lower", "runtime", "extract", "saturate", "enter"},
    "errors": {*ABOVE, "law", "rules", "lower", "runtime", "extract", "saturate", "enter", "capture", "ir"},
    "pipeline": {"api", "stored", "cli"},
}
"""What a layer must not import, which is what lies above it or beside it."""


@pytest.mark.parametrize("who", DOWN)
def test_imports_point_down(who):
    assert offences(who, DOWN[who]) == []


def test_nothing_imports_tests_or_benchmarks():
    assert [f"{p}: {m}" for p in FILES for m in imports(p) if m.split(".")[0] in ("tests", "benchmarks")] == []


def test_nothing_but_the_command_line_imports_it():
    others = [p for p in FILES if "cli" not in p.parts and p.name != "__main__.py"]
    assert [f"{p}: {m}" for p in others for m in imports(p) if layer(m) == "cli"] == []


@pytest.mark.parametrize("package", ["deplodock", "rules", "extract"])
def test_packages_come_from_this_checkout(package):
    module = __import__(package)
    assert {Path(p).resolve() for p in module.__path__} == {ROOT / package}
