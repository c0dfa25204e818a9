"""Folds over named axes. Laws hold over the finite reals; what moves a value across a fold assumes that it is finite."""
from __future__ import annotations

from deplodock.facts import assumed_finite, lacks, live, of_dtype
from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Body, exp, recip
from deplodock.law import Axes, law, literal, online_sum, reduce, rewrite


def shifted(k: Axes, s: Body) -> Body:
    """exp(s - maxₖ s): what a softmax sums."""
    return exp(s + -reduce("max", k, s))


@law("reassociates")
def sum_pull_out(a: Body, b: Body, k: Axes):
    """Σₖ a·b = a·Σₖ b   when a does not depend on k, and a is finite or assumed so"""
    return rewrite(reduce("sum", k, a * b)).to(a * reduce("sum", k, b), lacks(k, a), assumed_finite(a))


@law("reassociates")
def online_softmax(s: Body, v: Body, k: Axes):
    """Σₖ exp(s - maxₖ s)·v = online_sum(k, s, v)   when some s on every row is above −∞"""
    return rewrite(reduce("sum", k, shifted(k, s) * v)).to(online_sum(k, s, v), live(k, s))


@law("reassociates")
def online_quotient(s: Body, v: Body, k: Axes, d: Dtype):
    """recip(Σₖ e)·Σₖ e·v = recip(online_sum(k, s, 1))·online_sum(k, s, v), e = exp(s - maxₖ s); NaN on both sides on a dead row"""
    e = shifted(k, s)
    return rewrite(recip(reduce("sum", k, e)) * reduce("sum", k, e * v)).to(
        recip(online_sum(k, s, literal(d, 1.0))) * online_sum(k, s, v), of_dtype(s, d))


@law("reassociates")
def online_normalised(s: Body, v: Body, k: Axes, d: Dtype):
    """Σₖ (e·recip(Σₖ e))·v = recip(online_sum(k, s, 1))·online_sum(k, s, v), e = exp(s - maxₖ s); NaN on both sides on a dead row"""
    e = shifted(k, s)
    return rewrite(reduce("sum", k, (e * recip(reduce("sum", k, e))) * v)).to(
        recip(online_sum(k, s, literal(d, 1.0))) * online_sum(k, s, v), of_dtype(s, d))
