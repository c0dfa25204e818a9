"""Pointwise algebra over the finite reals; what holds for every machine number is tagged exact."""
from __future__ import annotations

from deplodock.facts import equivalent, finite, of_dtype, proved
from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Body, Const, Op, const, op, recip, rsqrt, where
from deplodock.law import Pred, Value, law, literal, rewrite, same


@law("exact")
def mul_comm(a: Body, b: Body):
    """a·b = b·a"""
    return rewrite(a * b).to(b * a)


@law("reassociates")
def mul_assoc(a: Body, b: Body, c: Body):
    """a·(b·c) = (a·b)·c"""
    return same(a * (b * c), (a * b) * c)


@law("exact")
def sub_as_add(a: Body, b: Body):
    """a - b = a + (-b)"""
    return rewrite(a - b).to(a + -b)


@law("reassociates")
def div_as_mul(a: Body, b: Body):
    """a/b = a·recip(b)"""
    return rewrite(a / b).to(a * recip(b))
