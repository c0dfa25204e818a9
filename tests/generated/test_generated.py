"""The part of the generated tests that is small enough to run always.

The whole: `python -m tests.operators`, `python -m tests.compositions`.
"""
from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest
import torch

from deplodock.reference import within_promise
from tests.generated import compositions, operators
from tests.generated.case import COMPUTED, Case, Given
from tests.generated.harness import run
from tests.generated.judge import _luck, alike
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


WRONG_ONCE = {
    "0 addmm.default bf16 3": "what counts 0 times was read, and is not finite",
    "0 addmm.default i32 3": "the reference had integers times numbers that are floats",
    "0 l1_loss.default u8 1": "differences of integers wrap around before they are added up in i64",
    "0 sin.default i32 3": "integers that float32 does not hold are rounded to it, in the reference too",
    "0 scaled_dot_product_attention.default f16 3": "a row of scores that are -inf, but by no mask, is not dead",
    "0 scaled_dot_product_attention.default bf16 3": "a dead row is 0 where values are infinite, too",
    "0 upsample_linear1d.default f16 3": "0 times an infinite neighbour is NaN: it is not read",
    "0 conv_transpose1d.default f32 3": "zeros between elements are factors",
    "0 group_norm.default f32 3": "of x - mean of one element nothing but rounding is left, in float64 as well",
}
"""Keys of cases of one operator that were wrong, and why."""


def test_what_was_wrong_once():
    assert failures([(key, operators.draw(key)) for key in WRONG_ONCE]) == []


def test_cancellation_in_few_draws_is_luck():
    program = SimpleNamespace(nodes=(SimpleNamespace(op="sum", args=(), name="y", shape=()),), outputs=("y",), inputs=(), parameters=())
    captured = SimpleNamespace(program=program)

    def luck(missed: int, off: float, count: int = 1) -> bool:
        exact = torch.linspace(1, 2, count, dtype=torch.float64)
        computed = [exact.float() * (1 + off * (n < missed)) for n in range(8)]
        return _luck(captured, [(None, [y], [exact.float()], [exact], [exact.float()]) for y in computed], 0)
    assert luck(4, 5e-6)
    assert not luck(5, 5e-6)                                  # an error that most draws have
    assert not luck(1, 1e-3)                                  # more than half of the digits
    assert not luck(1, 5e-6, 9)                               # of many elements eager's error is no luck


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
