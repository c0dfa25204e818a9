"""Casts and roundings. Arithmetic on 16-bit floats does not exist, so a rounding is a cast down followed by a cast
up."""
from __future__ import annotations

from deplodock.facts import nonzero, of_dtype, representable, sixteen_bit
from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Body, Cast, RoundTo, where
from deplodock.law import Pred, Value, law, literal, rewrite

f32 = Dtype.f32


@law("contracts")
def cast_roundtrip(b: Body, d: Dtype):
    """cast(f32, cast(d, b)) = b   when b is f32 and d has 16 bits"""
    return rewrite(Cast(f32, Cast(d, b))).to(b, sixteen_bit(d), of_dtype(b, f32))


@law("exact")
def cast_twice(b: Body, d: Dtype):
    """cast(d, cast(f32, b)) = b   when b is d, which has 16 bits"""
    return rewrite(Cast(d, Cast(f32, b))).to(b, sixteen_bit(d), of_dtype(b, d))


@law("exact")
def cast_where(p: Pred, a: Body, b: Body, d: Dtype):
    """cast(d, where(p, a, b)) = where(p, cast(d, a), cast(d, b))"""
    return rewrite(Cast(d, where(p, a, b))).to(where(p, Cast(d, a), Cast(d, b)))


@law("exact")
def cast_negated(b: Body, d: Dtype):
    """cast(f32, cast(d, -cast(f32, b))) = -cast(f32, b)   when b is d"""
    return rewrite(Cast(f32, Cast(d, -Cast(f32, b)))).to(-Cast(f32, b), of_dtype(b, d))


@law("exact")
def cast_literal(c: Value, d: Dtype):
    """cast(f32, c) of a literal is a literal   when its dtype holds c exactly"""
    return rewrite(Cast(f32, literal(d, c))).to(literal(f32, c), representable(d, c))


@law("exact")
def cast_true(c: Value, d: Dtype):
    """cast(b8, c) of a literal other than 0 is true"""
    return rewrite(Cast(Dtype.b8, literal(d, c))).to(literal(Dtype.b8, True), nonzero(c))


@law("exact")
def cast_false(d: Dtype):
    """cast(b8, 0) is false"""
    return rewrite(Cast(Dtype.b8, literal(d, 0.0))).to(literal(Dtype.b8, False))


@law("exact")
def round_idempotent(b: Body, d: Dtype):
    """round_to(d, cast(f32, b)) = cast(f32, b)   when b is d"""
    return rewrite(RoundTo(d, Cast(f32, b))).to(Cast(f32, b), of_dtype(b, d))
