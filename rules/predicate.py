"""Predicates, masks and selections: what a `where` over loop indices is equal to.

A predicate over indices has one normal form (deplodock/predicates.py), so that a triangular mask is the same however it
was written, and its range is known to whoever walks its tiles. The mask laws assume that scores are finite.
"""
from __future__ import annotations

import math

from deplodock.facts import (assumed_finite, atomic, equivalent, finite, float_literals, live, of_dtype, proved, selects,
                             some_key, very_low)
from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Body, Cast, Iota, Load, Tensor, const, op, where
from deplodock.law import Axes, Index, Indices, Int, Pred, Value, law, literal, online_sum, reduce, rewrite, shifted


@law("exact")
def pred_proved(p: Pred, truth: Int):
    """p is true, or false, at all points   when the ranges of its sides say so"""
    return rewrite(p).to(literal(Dtype.b8, truth), proved(p, truth))


@law("exact")
def pred_normal(p: Pred, q: Pred):
    """p = q, its normal form"""
    return rewrite(p).to(q, equivalent(p, q))


@law("exact")
def where_true(a: Body, b: Body):
    """where(true, a, b) = a"""
    return rewrite(where(const(Dtype.b8, True), a, b)).to(a)


@law("exact")
def where_false(a: Body, b: Body):
    """where(false, a, b) = b"""
    return rewrite(where(const(Dtype.b8, False), a, b)).to(b)


@law("exact")
def where_not(p: Pred, a: Body, b: Body):
    """where(¬p, a, b) = where(p, b, a)"""
    return rewrite(where(op("not", p), a, b)).to(where(p, b, a))


@law("exact")
def where_same(p: Pred, a: Body):
    """where(p, a, a) = a"""
    return rewrite(where(p, a, a)).to(a)


@law("exact")
def where_again(p: Pred, a: Body, b: Body, c: Body):
    """where(p, where(p, a, b), c) = where(p, a, c)"""
    return rewrite(where(p, where(p, a, b), c)).to(where(p, a, c))


@law("exact")
def where_otherwise(p: Pred, a: Body, b: Body, c: Body):
    """where(p, a, where(p, b, c)) = where(p, a, c)"""
    return rewrite(where(p, a, where(p, b, c))).to(where(p, a, c))


@law("exact")
def where_within(p: Pred, q: Pred, a: Body, b: Body, c: Body):
    """where(p ∧ q, where(p, a, b), c) = where(p ∧ q, a, c)"""
    return rewrite(where(op("and", p, q), where(p, a, b), c)).to(where(op("and", p, q), a, c))


@law("exact")
def where_and(p: Pred, q: Pred, a: Body, b: Body):
    """where(p, where(q, a, b), b) = where(p ∧ q, a, b)   for single comparisons: conjunctions of conjunctions never
    end"""
    return rewrite(where(p, where(q, a, b), b)).to(where(op("and", p, q), a, b), atomic(p), atomic(q))


@law("exact")
def where_bool(p: Pred):
    """where(p, true, false) = p"""
    return rewrite(where(p, const(Dtype.b8, True), const(Dtype.b8, False))).to(p)


@law("exact")
def where_neg(p: Pred, a: Body, b: Body, d: Dtype):
    """where(p, -a, b) = where(p, -1, 1)·where(p, a, b)"""
    return rewrite(where(p, -a, b)).to(
        where(p, literal(d, -1.0), literal(d, 1.0)) * where(p, a, b), of_dtype(a, d), float_literals(d))


@law("exact")
def where_zero(p: Pred, a: Body, b: Body, d: Dtype):
    """where(p, a, 0)·b = where(p, a·b, 0)   when b is finite"""
    return rewrite(where(p, a, literal(d, 0.0)) * b).to(where(p, a * b, literal(d, 0.0)), finite(b))


@law("exact")
def row_is_live(s: Body, k: Axes, d: Dtype):
    """(maxₖ s = −∞) is false   when some s on every row is above −∞"""
    return rewrite(op("eq", reduce("max", k, s), literal(d, -math.inf))).to(const(Dtype.b8, False), live(k, s), of_dtype(s, d))


@law("exact")
def load_flip(t: Tensor, p: Index, at0: Indices, at1: Indices, i: Indices):
    """where(p = 0, t[.. a ..], t[.. b ..]) = t[.. a + p·(b - a) ..], p of extent 2; rotate-half is t[.. 1 - p ..]"""
    zero = op("eq", Iota(p), const(Dtype.i64, 0))
    return rewrite(where(zero, Load(t, at0), Load(t, at1))).to(Load(t, i), selects(p, at0, at1, i))


@law("exact")
def load_flip_cast(t: Tensor, p: Index, at0: Indices, at1: Indices, i: Indices, d: Dtype):
    """where(p = 0, cast(d, t[.. a ..]), cast(d, t[.. b ..])) = cast(d, t[.. a + p·(b - a) ..]), p of extent 2"""
    zero = op("eq", Iota(p), const(Dtype.i64, 0))
    return rewrite(where(zero, Cast(d, Load(t, at0)), Cast(d, Load(t, at1)))).to(
        Cast(d, Load(t, i)), selects(p, at0, at1, i))


@law("exact")
def mask_as_where(a: Body, p: Pred, d: Dtype):
    """a + where(p, 0, −∞) = where(p, a, −∞)   when a is finite or assumed so"""
    low = literal(d, -math.inf)
    return rewrite(a + where(p, literal(d, 0.0), low)).to(where(p, a, low), assumed_finite(a))


@law("exact")
def mask_absorb(a: Body, p: Pred, c: Value, d: Dtype):
    """a + where(p, 0, c) = where(p, a, c)   when c ≤ −1e30, so that the sum rounds to c, and a is finite or assumed
    so"""
    low = literal(d, c)
    return rewrite(a + where(p, literal(d, 0.0), low)).to(where(p, a, low), very_low(c), assumed_finite(a))


@law("exact")
def mask_to_infinite(s: Body, v: Body, p: Pred, c: Value, k: Axes, d: Dtype):
    """online_sum(k, where(p, s, c), v) = online_sum(k, where(p, s, −∞), v)   when c ≤ −1e30 and p holds for some k on
    every row"""
    return rewrite(online_sum(k, where(p, s, literal(d, c)), v)).to(
        online_sum(k, where(p, s, literal(d, -math.inf)), v), very_low(c), some_key(k, p), assumed_finite(s))


@law("exact")
def mask_to_infinite_exp(s: Body, p: Pred, c: Value, k: Axes, d: Dtype):
    """exp(x - maxₖ x) is the same for x = where(p, s, c) and where(p, s, −∞)   when c ≤ −1e30 and p holds for some k on
    every row"""
    return rewrite(shifted(k, where(p, s, literal(d, c)))).to(
        shifted(k, where(p, s, literal(d, -math.inf))), very_low(c), some_key(k, p), assumed_finite(s))
