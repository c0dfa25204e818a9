"""Folds over named axes. Laws hold over the finite reals; what moves a value across a fold assumes that it is finite.

Factors are pulled out of sums, never pushed in: with both directions a decoder layer has six times the e-nodes and no
fact more.
"""
from __future__ import annotations

from deplodock.facts import (assumed_finite, depends, extent, few_inputs, float_literals, floating, given, lacks, live,
                             nonempty, of_dtype, parameter, positive)
from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Body, exp, op, recip, where
from deplodock.law import Axes, Int, Value, law, literal, online_sum, reduce, rewrite, shifted


@law("reassociates")
def sum_pull_out(a: Body, b: Body, k: Axes):
    """Σₖ a·b = a·Σₖ b   when a does not depend on k, and is finite or assumed so, and b does"""
    return rewrite(reduce("sum", k, a * b)).to(a * reduce("sum", k, b), lacks(k, a), assumed_finite(a), depends(k, b))


@law("reassociates")
def sum_neg(a: Body, k: Axes):
    """Σₖ -a = -Σₖ a"""
    return rewrite(reduce("sum", k, -a)).to(-reduce("sum", k, a))


@law("reassociates")
def sum_absent(a: Body, k: Axes, n: Int, d: Dtype):
    """Σₖ a = n·a, n the extent of k   when a does not depend on k"""
    return rewrite(reduce("sum", k, a)).to(literal(d, n) * a, lacks(k, a), extent(k, n), of_dtype(a, d),
                                                 float_literals(d))


@law("exact")
def max_absent(a: Body, k: Axes):
    """maxₖ a = a   when a does not depend on k, which is not empty"""
    return rewrite(reduce("max", k, a)).to(a, lacks(k, a), nonempty(k))


@law("exact")
def max_shift(a: Body, c: Body, k: Axes, d: Dtype):
    """maxₖ(a + c) = maxₖ a + c   when c does not depend on k, which is not empty, and sums do not wrap around"""
    return rewrite(reduce("max", k, a + c)).to(
        reduce("max", k, a) + c, lacks(k, c), nonempty(k), of_dtype(c, d), floating(d))


@law("exact")
def max_scale(a: Body, c: Value, k: Axes, d: Dtype):
    """maxₖ(a·c) = (maxₖ a)·c   when c > 0"""
    return rewrite(reduce("max", k, a * literal(d, c))).to(reduce("max", k, a) * literal(d, c), positive(c))


@law("reassociates")
def matmul_assoc(a: Body, b: Body, c: Body, j: Axes, k: Axes):
    """Σₖ (Σⱼ a·b)·c = Σⱼ a·(Σₖ b·c)   when k ∉ a, j ∉ c; of few inputs, as elsewhere it explodes"""
    return rewrite(reduce("sum", k, reduce("sum", j, a * b) * c)).to(
        reduce("sum", j, a * reduce("sum", k, b * c)), given(b), given(c), few_inputs(b, c), depends(j, b), depends(k, c),
        lacks(k, a), lacks(j, c))


@law("reassociates")
def sum_join(a: Body, b: Body, c: Body, k: Axes):
    """Σₖ a·b + Σₖ a·c = Σₖ a·(b + c)   when b and c depend on parameters only"""
    return rewrite(reduce("sum", k, a * b) + reduce("sum", k, a * c)).to(
        reduce("sum", k, a * (b + c)), parameter(b), parameter(c))


@law("reassociates")
def online_softmax(s: Body, v: Body, k: Axes):
    """Σₖ exp(s - maxₖ s)·v = online_sum(k, s, v)   when some s on every row is above −∞"""
    return rewrite(reduce("sum", k, shifted(k, s) * v)).to(online_sum(k, s, v), live(k, s))


@law("reassociates")
def online_one(s: Body, k: Axes, d: Dtype):
    """Σₖ exp(s - maxₖ s) = online_sum(k, s, 1)   when some s on every row is above −∞"""
    return rewrite(reduce("sum", k, shifted(k, s))).to(online_sum(k, s, literal(d, 1.0)), live(k, s), of_dtype(s, d))


@law("reassociates")
def online_normalised(s: Body, v: Body, k: Axes, d: Dtype):
    """Σₖ (e·recip(Σₖ e))·v = recip(online_sum(k, s, 1))·online_sum(k, s, v), e = exp(s - maxₖ s); a dead row is NaN on
    both sides"""
    e = shifted(k, s)
    return rewrite(reduce("sum", k, e * recip(reduce("sum", k, e)) * v)).to(
        recip(online_sum(k, s, literal(d, 1.0))) * online_sum(k, s, v), of_dtype(s, d))


@law("reassociates")
def online_quotient(s: Body, v: Body, k: Axes, d: Dtype):
    """recip(Σₖ e)·Σₖ e·v = recip(online_sum(k, s, 1))·online_sum(k, s, v), e = exp(s - maxₖ s); a dead row is NaN on
    both sides"""
    e = shifted(k, s)
    return rewrite(recip(reduce("sum", k, e)) * reduce("sum", k, e * v)).to(
        recip(online_sum(k, s, literal(d, 1.0))) * online_sum(k, s, v), of_dtype(s, d))


@law("reassociates")
def online_denominator(s: Body, k: Axes, d: Dtype):
    """e·recip(Σₖ e) = e·recip(online_sum(k, s, 1)), e = exp(s - maxₖ s); a dead row is NaN on both sides"""
    e = shifted(k, s)
    return rewrite(e * recip(reduce("sum", k, e))).to(e * recip(online_sum(k, s, literal(d, 1.0))), of_dtype(s, d))


@law("reassociates")
def logsumexp_online(s: Body, k: Axes, d: Dtype):
    """log Σₖ exp(s) = m + log online_sum(k, s, 1), m = maxₖ s; where m is infinite, m: nothing is one, or all of it"""
    m = reduce("max", k, s)
    return rewrite(op("log", reduce("sum", k, exp(s)))).to(
        where(op("isinf", m), m, m + op("log", online_sum(k, s, literal(d, 1.0)))), of_dtype(s, d))


@law("reassociates")
def online_pull_out(s: Body, a: Body, b: Body, k: Axes):
    """online_sum(k, s, a·b) = a·online_sum(k, s, b)   when a does not depend on k, and is finite or assumed so"""
    return rewrite(online_sum(k, s, a * b)).to(a * online_sum(k, s, b), lacks(k, a), assumed_finite(a))


@law("reassociates")
def online_shift(s: Body, c: Body, v: Body, k: Axes):
    """online_sum(k, s + c, v) = online_sum(k, s, v)   when c does not depend on k, and is finite or assumed so"""
    return rewrite(online_sum(k, s + c, v)).to(online_sum(k, s, v), lacks(k, c), assumed_finite(c))
