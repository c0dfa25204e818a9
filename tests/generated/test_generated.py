"""The part of the generated tests that is small enough to run always.

The whole: `python -m tests.operators`, `python -m tests.compositions`.
"""
from __future__ import annotations

import pytest

from tests.generated import compositions, operators
from tests.generated.case import COMPUTED
from tests.generated.harness import run


def case_of(row: str, seed: int = 0):
    """A call of a row in one of the dtypes that PyTorch takes, another one for the next row; None if there is none."""
    start = sum(map(ord, row)) + seed
    for n in range(len(COMPUTED)):
        key = f"{seed} {row} {COMPUTED[(start + n) % len(COMPUTED)]} {start % 4}"
        if case := operators.draw(key):
            return key, case
    return None


def test_no_row_is_without_a_generator():
    assert [row for row in operators.ROWS if case_of(row) is None] == []


def failures(cases) -> list[str]:
    return [f"{o.what}: {o.key}: {o.detail}" for o in run(cases) if o.what not in ("right", "named")]


@pytest.mark.parametrize("part", range(4))
def test_operators(part):
    """A third of the rows, in four parts that processes share."""
    assert failures([case_of(row) for row in operators.ROWS[1::3][part::4]]) == []


@pytest.mark.parametrize("part", range(2))
def test_compositions(part):
    assert failures([(key, compositions.draw(key)) for key in compositions.keys(2, 12)[part::2]]) == []
