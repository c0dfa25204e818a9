"""What attention is made of (rules/definitions.py)."""
from __future__ import annotations

import math

from deplodock.facts import of_dtype, sixteen_bit
from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, index
from deplodock.ir.loop import Iota, op
from deplodock.ir.tensor import (Elements, Tensor, amax, dtype, elementwise, exp, index_map, like, matmul, part, shape, sum,
                                 torch_op, where, wide)
from deplodock.law import law, rewrite

Number = float


sdpa = torch_op.scaled_dot_product_attention


@law("exact")
def sdpa_gqa_def(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: Number):
    """sdpa(q, k, v, gqa) = sdpa(q, heads(k), heads(v)): the key head of query head h is h // r"""
    return rewrite(sdpa(q, k, v, mask, is_causal, scale, True)).to(
        sdpa(q, part.heads(k, q), part.heads(v, q), mask, is_causal, scale, False))


@law("reassociates")
def sdpa_def(q: Tensor, k: Tensor, v: Tensor, scale: Number):
    """sdpa(q, k, v) = attend(scores(q, k), v)"""
    return rewrite(sdpa(q, k, v, None, False, scale, False)).to(like(q, part.attend(part.scores(q, k, scale), v)))


@law("reassociates")
def sdpa_causal_def(q: Tensor, k: Tensor, v: Tensor, scale: Number):
    """sdpa(q, k, v, causal) = attend(where(t ≤ m, scores(q, k), −∞), v): every row keeps key 0"""
    return rewrite(sdpa(q, k, v, None, True, scale, False)).to(
        like(q, part.attend(where(part.causal(q, k), part.scores(q, k, scale), -math.inf), v)))


@law("reassociates")
def sdpa_mask_def(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: Number):
    """sdpa(q, k, v, mask) = attend(masked(scores(q, k), mask), v), and 0 on a row where no score is above −∞"""
    s = part.masked(part.scores(q, k, scale), mask)
    dead = elementwise("eq", amax(s, len(shape(q)) - 1), -math.inf)
    return rewrite(sdpa(q, k, v, mask, False, scale, False)).to(like(q, where(dead, 0.0, part.attend(s, v))))


@law("exact")
def heads_def(x: Tensor, q: Tensor):
    """heads(x)[.., h, t, d] = x[.., h // r, t, d], r = heads of q / heads of x"""
    *batch, n, t, d = shape(x)
    r = shape(q)[-3] // n
    return rewrite(part.heads(x, q)).to(
        index_map(x, (*batch, n * r, t, d), lambda *i: (*i[:-3], i[-3] // r, *i[-2:])))


@law("reassociates")
def scores_def(q: Tensor, k: Tensor, scale: Number):
    """scores(q, k)[.., m, t] = c·Σ_d q[.., m, d]·k[.., t, d], not rounded"""
    flipped = (*shape(k)[:-2], shape(k)[-1], shape(k)[-2])
    return rewrite(part.scores(q, k, scale)).to(
        matmul(q, index_map(k, flipped, lambda *i: (*i[:-2], i[-1], i[-2]))) * scale)


@law("exact")
def causal_def(q: Tensor, k: Tensor):
    """causal(q, k)[m, t] = t ≤ m, over query positions m and key positions t"""
    m, t = Axis("m", shape(q)[-2]), Axis("t", shape(k)[-2])
    return rewrite(part.causal(q, k)).to(Elements((m, t), op("le", Iota(index(t)), Iota(index(m)))))


@law("exact")
def masked_where_def(s: Tensor, mask: Tensor):
    """masked(s, mask) = where(mask, s, −∞) for a mask of b8: true keeps"""
    return rewrite(part.masked(s, mask)).to(where(mask, s, -math.inf), of_dtype(mask, Dtype.b8))


@law("exact")
def masked_add_def(s: Tensor, mask: Tensor):
    """masked(s, mask) = s + mask for a mask of floats"""
    return rewrite(part.masked(s, mask)).to(s + wide(mask))


@law("reassociates")
def attend_rounded_def(s: Tensor, v: Tensor):
    """attend(s, v) = (Σₜ e·v)/Σₜ e, v of 16 bits, e = exp(s − maxₜ s) rounded to v's dtype for the product only"""
    dim = len(shape(v)) - 1
    e = exp(s - amax(s, dim))
    return rewrite(part.attend(s, v)).to(matmul(like(v, e), v) / sum(e, dim), sixteen_bit(dtype(v)))


@law("reassociates")
def attend_def(s: Tensor, v: Tensor):
    """attend(s, v) = Σₜ softmaxₜ(s)·v"""
    dim = len(shape(v)) - 1
    e = exp(s - amax(s, dim))
    return rewrite(part.attend(s, v)).to(matmul(e / sum(e, dim), v))


DEFINITIONS = {
    "scaled_dot_product_attention": (sdpa_gqa_def, sdpa_def, sdpa_causal_def, sdpa_mask_def),
    "heads": (heads_def,), "scores": (scores_def,), "causal": (causal_def,),
    "masked": (masked_where_def, masked_add_def), "attend": (attend_rounded_def, attend_def),
}
"""The laws that have an operator as their left side, in the order in which they are tried."""
