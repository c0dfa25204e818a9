"""Mistakes planted in the enumeration of kernels, each of which the check must see."""
from __future__ import annotations

import gc

import pytest

import extract.check
import extract.cost
import extract.kernels
import extract.program
import extract.structure as structure
from deplodock.ir.loop import Const
from extract import check
from tests.extract.support import extracted, saturated
from tests.extract.test_suite import PROGRAMS

MODULES = (structure, extract.cost, extract.kernels, extract.check, extract.program)


def replace(monkeypatch, name, value):
    """Replaces a function wherever the extractor has imported it."""
    for m in MODULES:
        if hasattr(m, name):
            monkeypatch.setattr(m, name, value)
    structure.loops.cache_clear()


def forget():
    """Facts are memoised on terms: lets go of all that earlier extractions hold."""
    extracted.cache_clear()
    structure.loops.cache_clear()
    gc.collect()


def same_sweep(monkeypatch):
    """A fold that must come before is put into the same sweep."""
    replace(monkeypatch, "before", lambda f: {})


def forgotten_inside(monkeypatch):
    """A product inside a loop is forgotten."""
    right = structure.inside
    replace(monkeypatch, "inside", lambda f: tuple(g for g in right(f) if structure.product(g) is None))


def unkept(monkeypatch):
    """What a hoisted fold needs is not hoisted with it, whole."""
    right = structure.before
    replace(monkeypatch, "before", lambda f: {g: frozenset() for g in right(f)})


def taken_for_itself(monkeypatch):
    """A mirrored fold is taken for the fold itself."""
    right = structure.mirror
    replace(monkeypatch, "mirror", lambda f: (right(f)[0], ()))


def unturned_constant(monkeypatch):
    """A folded constant is read unmirrored."""
    right = extract.program._mirror
    monkeypatch.setattr(extract.program, "_mirror", lambda t: (right(t)[0], frozenset()))


def same_streams(monkeypatch):
    """Folds that read the same are taken for one."""
    right, first = structure.orbit, {}
    same = lambda f: (f.monoid, f.axes, f.free, structure.streams(f))
    replace(monkeypatch, "orbit", lambda f: first.setdefault(same(f), right(f)))


def wrong_scale(monkeypatch):
    """A literal of a candidate is not the program's."""
    right = structure.assemble
    replace(monkeypatch, "assemble", lambda node, parts: right(
        node, tuple(Const(p.dtype, 2.0) if isinstance(p, Const) and p.value == 1.0 else p for p in parts)))


def wrong(name: str) -> int:
    """Candidates and plans of a program of the suite that the check finds wrong, with whatever is planted."""
    x = saturated(PROGRAMS[name]).extract()
    source = check.source(x.program)
    values = check.arguments(source)
    return len(check.wrong_candidates(source, x.candidates, values)) + sum(
        bool(check.wrong_outputs(source, c.kernels, values)) for c in x.covers)


@pytest.mark.parametrize("mistake, program", [
    (same_sweep, "layer_norm"), (forgotten_inside, "two_products"), (unkept, "column_scale"),
    (taken_for_itself, "rotary"), (unturned_constant, "rotary"), (same_streams, "layer_norm"),
    (wrong_scale, "pointwise"),
], ids=lambda v: getattr(v, "__name__", v))
def test_a_planted_mistake_is_seen(monkeypatch, mistake, program):
    forget()
    assert wrong(program) == 0
    forget()
    mistake(monkeypatch)
    try:
        assert wrong(program) > 0
    finally:
        monkeypatch.undo()
        forget()
