"""Attention under masks: additive ones of −∞ and of the dtype's lowest value, boolean ones, rows that see nothing.

A row that is masked wholly gives 0 from scaled_dot_product_attention and NaN from softmax; under a finite mask it gives the
softmax of the sums.
"""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.programs.support import DTYPES, attend, broken, causal, normal, program, wrong

N = 13
SDPA = F.scaled_dot_product_attention
ADDITIVE = {
    "sdpa": lambda q, k, v, m: SDPA(q, k, v, m),
    "spelled": attend,
    "softmax": lambda q, k, v, m: F.softmax(v @ k.transpose(-2, -1) + m, -1),
}
LOW = {"infinite": lambda d: -math.inf, "lowest": lambda d: torch.finfo(DTYPES[d]).min}


def qkv(dtype: str, rows: int = N, keys: int = N, heads: tuple[int, int] = (2, 2), size: int = 8, width: int = 8):
    shapes = (heads[0], rows, size), (heads[1], keys, size), (heads[1], keys, width)
    return [normal(1, *s, dtype=dtype, seed=i) for i, s in enumerate(shapes)]


@pytest.mark.parametrize("dead", [False, True], ids=["live", "dead"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("form", ["sdpa", "spelled"])
def test_additive(form, low, dtype, dead):
    assert broken(ADDITIVE[form], [*qkv(dtype), causal(N, LOW[low](dtype), dtype, dead)]) == []


@pytest.mark.parametrize("dead", [False, True], ids=["live", "dead"])
@pytest.mark.parametrize("form", ["sdpa", "spelled", "softmax"])
def test_additive_under_strict(form, dead):
    assert broken(ADDITIVE[form], [*qkv("bf16"), causal(N, -math.inf, "bf16", dead)], "strict") == []


@pytest.mark.parametrize("form, value", [("sdpa", 0.0), ("spelled", math.nan)])
def test_what_a_dead_row_gives(form, value):
    from deplodock.runtime.program import CompiledProgram, Loadable
    x = program(ADDITIVE[form], [*qkv("f32"), causal(N, dead=True)])
    compiled = CompiledProgram(Loadable(x.torch, x.plan, x.cuda, x.target.arch), {}, "cpu")
    result = compiled(*x.captured.inputs)[0][:, :, N // 2]
    assert torch.equal(result.nan_to_num(7), torch.full_like(result, value).nan_to_num(7))


@pytest.mark.parametrize("dead", [False, True], ids=["live", "dead"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_boolean(dtype, dead):
    mask = torch.ones(N, N, dtype=torch.bool).tril()
    mask[N // 2] &= not dead
    assert broken(ADDITIVE["sdpa"], [*qkv(dtype), mask]) == []


def _where(q, k, v, m):
    return F.softmax(torch.where(m, q @ k.transpose(-1, -2) * 0.3, -math.inf), -1) @ v


def _filled(q, k, v, m):
    return F.softmax((q @ k.transpose(-1, -2) * 0.3).masked_fill(~m, torch.finfo(q.dtype).min), -1) @ v


@pytest.mark.parametrize("form", [_where, _filled])
def test_boolean_spelled_out(form):
    mask = torch.ones(N, N, dtype=torch.bool).tril()
    mask[5] = False
    assert broken(form, [*qkv("bf16"), mask]) == []


def _made(low: str, diagonal: int):
    """Attention under a mask that the program makes itself."""
    def attention(q, k, v):
        value = -math.inf if low == "infinite" else torch.finfo(q.dtype).min
        return attend(q, k, v, torch.full((N, N), value, dtype=q.dtype).triu(diagonal))
    return attention


@pytest.mark.parametrize("diagonal", [1, 0], ids=["live", "dead"])
@pytest.mark.parametrize("low, dtype", [("infinite", "f32"), ("lowest", "f32"), ("infinite", "bf16"), ("lowest", "f16")])
def test_masks_of_the_program(low, dtype, diagonal):
    assert broken(_made(low, diagonal), qkv(dtype)) == []


OPTIONS = {
    "plain": (dict(), dict()),
    "scale": (dict(scale=0.3), dict(rows=5, keys=11, width=12)),
    "causal, more keys": (dict(is_causal=True), dict(rows=5, keys=11)),
    "causal, more rows": (dict(is_causal=True), dict(rows=11, keys=5)),
    "grouped": (dict(scale=1.5, enable_gqa=True), dict(rows=5, keys=11, heads=(6, 3))),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", OPTIONS)
def test_options(name, dtype):
    options, sizes = OPTIONS[name]
    assert broken(lambda q, k, v: SDPA(q, k, v, **options), qkv(dtype, **sizes)) == []


def test_a_mask_of_keys_for_all_heads_and_rows():
    mask = normal(1, 1, 1, 11, dtype="f16", seed=3)
    assert wrong(program(ADDITIVE["sdpa"], [*qkv("f16", rows=5, keys=11), mask])) == []
