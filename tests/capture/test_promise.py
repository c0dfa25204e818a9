"""The reference where PyTorch has no one answer, and what the promise accepts and refuses."""
from __future__ import annotations

import math

import pytest
import torch

from deplodock.capture import capture_code
from deplodock.reference import error, longest_fold, reference, within_promise


def y64(text: str) -> list[torch.Tensor]:
    c = capture_code(text)
    return reference(c.program, c.inputs, c.parameters)


DEAD = "q = torch.randn(1, 1, 2, 4); k = torch.randn(1, 1, 3, 4); v = torch.ones(1, 1, 3, 4); "


def test_fully_masked_rows():
    mask = "torch.tensor([[True, True, True], [False, False, False]])"
    live, dead = y64(DEAD + f"F.scaled_dot_product_attention(q, k, v, {mask})")[0][0, 0]
    assert torch.allclose(live, torch.ones(4, dtype=torch.float64)) and dead.tolist() == [0.0] * 4
    additive = "torch.tensor([[0.0, 0.0, 0.0], [float('-inf')] * 3])"
    assert y64(DEAD + f"F.scaled_dot_product_attention(q, k, v, {additive})")[0][0, 0, 1].tolist() == [0.0] * 4
    assert y64(f"F.softmax({additive}, -1)")[0][1].isnan().all()
    lowest = "torch.tensor([[0.0, 0.0, 0.0], [torch.finfo(torch.float32).min] * 3])"
    rows = y64(DEAD + f"F.scaled_dot_product_attention(q, k, v, {lowest})")[0]
    assert torch.allclose(rows, torch.ones(4, dtype=torch.float64))


def test_casts_between_floats_are_dropped():
    x = "x = torch.tensor([1.0, 1e-4]); "
    assert y64(x + "(x.half() * x.half()).float().sum()")[0].item() == pytest.approx(1 + 1e-8, rel=1e-9)


def test_integers_keep_their_dtype():
    out, = y64("torch.tensor([200, 100], dtype=torch.uint8) + 100")
    assert out.dtype == torch.uint8 and out.tolist() == [44, 200]


def test_longest_fold():
    c = capture_code("x = torch.randn(2, 64, 5); (x.sum((0, 1)) @ torch.randn(5, 3)).softmax(-1)")
    assert longest_fold(c.program) == 128
    assert longest_fold(capture_code("torch.randn(3) * 2").program) == 1
    c = capture_code("torch.einsum('bij,bjk->ik', torch.randn(2, 3, 4), torch.randn(2, 4, 5))")
    assert longest_fold(c.program) == 8


# ---- the promise -----------------------------------------------------------------------------------------------------

BOUNDS = [(torch.float32, 3e-7), (torch.bfloat16, 2 ** -8), (torch.float16, 2 ** -11)]
EXACT = torch.linspace(1, 2, 4096, dtype=torch.float64).reshape(64, 64)


def test_error_is_relative_to_the_norm():
    assert error(EXACT * (1 + 1e-3), EXACT) == pytest.approx(1e-3)
    assert error(torch.full((4,), 0.5), torch.zeros(4)) == 1.0
    assert error(torch.tensor([math.nan, 1.0]), torch.tensor([1.0, 1.0])) == 0.0


@pytest.mark.parametrize(("dtype", "bound"), BOUNDS)
def test_bound_where_eager_is_better(dtype, bound):
    exact = EXACT.to(dtype).to(torch.float64)
    verdict = within_promise(exact.to(dtype), exact, exact.to(dtype))
    assert verdict.ok and verdict.bound == bound and verdict.rel_err == 0


def test_bound_is_twice_the_error_of_eager():
    eager = (EXACT * (1 + 1e-5)).float()
    assert within_promise((EXACT * (1 + 1.9e-5)).float(), EXACT, eager).ok
    assert not within_promise((EXACT * (1 + 2.1e-5)).float(), EXACT, eager).ok


def test_bound_of_fp64_grows_with_the_fold():
    assert within_promise(EXACT, EXACT, EXACT, terms=4096).bound == pytest.approx(2 ** -53 * 64)


def test_fp64_is_judged_to_the_precision_of_its_reference():
    """Eager is the reference itself: 2.5 ulp are allowed then, of an element too."""
    assert within_promise(EXACT, EXACT, EXACT).bound == 3e-7 * 2 ** -29
    assert within_promise(EXACT * (1 + 5e-16), EXACT, EXACT).ok
    assert not within_promise(EXACT * (1 + 7e-16), EXACT, EXACT).ok
    one = torch.tensor([1.0], dtype=torch.float64)
    assert within_promise(one * (1 + 5e-16), one, one).excess < 1 < within_promise(one * (1 + 7e-16), one, one).excess


def test_an_element_may_err_as_much_as_the_whole():
    """A mean is one element: where eager is lucky, the floor of fp32 is its bound, not one ulp."""
    exact = torch.tensor(1.9, dtype=torch.float64)
    eager = exact.float()
    verdict = within_promise(eager * (1 + 2.4e-7), exact, eager)
    assert verdict.rel_err < verdict.bound and verdict.ok
    assert not within_promise(eager * (1 + 4e-7), exact, eager).ok


def test_one_wrong_element_does_not_hide_in_the_norm():
    exact = torch.ones(1024, 1024, dtype=torch.float64)
    result = exact.float()
    result[5, 7] += 3e-7 * 3
    verdict = within_promise(result, exact, exact.float())
    assert verdict.rel_err < verdict.bound and verdict.excess > 1 and not verdict.ok


def test_an_element_may_be_wrong_by_an_ulp_of_its_row():
    exact = torch.tensor([[1024.0, 1e-3], [1.0, 1e-3]], dtype=torch.float64)
    result = exact.float()
    result[0, 1] = 0.0011
    assert within_promise(result, exact, exact.float()).excess <= 1
    result[1, 1] = 0.0011
    assert within_promise(result, exact, exact.float()).excess > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_nan_and_infinities_stand_where_the_reference_has_them(dtype):
    nan, inf = math.nan, math.inf
    exact = torch.tensor([1.0, nan, inf], dtype=torch.float64)
    good = exact.to(dtype)
    assert within_promise(good, exact, good).ok
    for wrong in ([nan, nan, inf], [1.0, 1.0, inf], [1.0, nan, 1.0], [1.0, nan, nan], [inf, nan, inf]):
        assert not within_promise(torch.tensor(wrong, dtype=dtype), exact, good).ok, wrong


def test_overflow_in_16_bits_may_be_eagers():
    exact = torch.tensor([6e4, 1.0], dtype=torch.float64)
    eager = torch.tensor([math.inf, 1.0], dtype=torch.float16)
    assert within_promise(eager, exact, eager).ok
    assert within_promise(exact.half(), exact, eager).ok
    assert not within_promise(eager, exact, exact.half()).ok
    infinite = torch.tensor([math.inf]).half()
    assert within_promise(infinite, torch.tensor([1e6], dtype=torch.float64), infinite).ok


def test_integers_are_the_references_or_eagers():
    exact, eager = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4])
    assert within_promise(torch.tensor([1, 2, 3]), exact, eager).ok
    assert within_promise(torch.tensor([1, 2, 4]), exact, eager).ok
    assert within_promise(torch.tensor([1, 0, 5]), exact, eager).mismatches == 2


def test_empty_and_scalar_results():
    empty = torch.zeros(0, 4)
    assert within_promise(empty, empty.double(), empty).ok
    one = torch.tensor(1.0)
    assert within_promise(one, one.double(), one).ok
    assert not within_promise(one + 1e-5, one.double(), one).ok


def test_shape_and_dtype_must_be_eagers():
    x = torch.zeros(3)
    with pytest.raises(ValueError, match="expected torch.float32"):
        within_promise(x.half(), x.double(), x)
    with pytest.raises(ValueError, match="expected torch.float32"):
        within_promise(x[:2], x.double(), x)
