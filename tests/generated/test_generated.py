"""The part of the generated tests that is small enough to run always.

The whole: `python -m tests.operators`, `python -m tests.compositions`.
"""
from __future__ import annotations

import os
import signal

import pytest
import torch

from deplodock.reference import within_promise
from tests.generated import compositions, operators
from tests.generated.case import COMPUTED, Case, Given
from tests.generated.harness import run
from tests.generated.judge import alike
from tests.generated.pool import alone, outcomes


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


def test_a_small_draw_counts_as_much_as_a_large_one():
    exact = torch.tensor([1e-6, 3e4, 2.0, 0.0], dtype=torch.float64)
    y, eager = exact.float(), exact.float()
    assert within_promise(*alike(y, exact, eager)).ok
    y[0] *= 1.001
    assert within_promise(y, exact, eager).ok                # the largest draw alone is judged
    assert not within_promise(*alike(y, exact, eager)).ok


def test_long_products_are_judged_over_draws():
    """Of 34 factors in f32: in any order about one draw in twenty errs by more than the least that is allowed."""
    cases = [Case(f"{n}", (Given("x0", "f32", (34,), seed=n),), ("v0 = torch.ops.aten.prod(x0)",), ("v0",)) for n in (9, 10)]
    assert failures([(case.label, case) for case in cases]) == []


def test_statistics_of_16_bit_batches_are_ours_to_widen():
    """Eager on the CPU gives them in 16 bits, PyTorch's trace in f32."""
    drawn = [operators.draw(f"{n} _native_batch_norm_legit.no_stats {dtype} 0") for n in range(3) for dtype in ("bf16", "f32")]
    assert [len(case.outputs) for case in drawn] == [1, 3] * 3


def deadly(key: str) -> Case | None:
    """No case, or the end of the process: what a call that PyTorch dies of does."""
    if key == "deadly":
        os.kill(os.getpid(), signal.SIGFPE)
    return None


def test_a_process_that_dies_costs_one_case():
    found = list(outcomes(deadly, ["deadly", "another"], 1, 60.0))
    assert [(o.key, o.what, o.detail) for o in found] == [("deadly", "crash", "PyTorch died of the call that was drawn")]
    assert alone(os._exit, 1, seconds=60.0) is None
