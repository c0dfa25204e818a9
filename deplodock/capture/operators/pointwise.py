"""Pointwise operators, casts and copies."""
from __future__ import annotations

import math

from deplodock.capture.build import Call
from deplodock.capture.operators.rows import Constructor, each, of_integers, rows
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import Arg


def pointwise(op: str, *names: str) -> Constructor:
    """All operands converted to the dtype of the result."""
    return lambda c: c.pointwise(op, *(c[n] for n in names))


def compare(op: str, first: str = "self", second: str = "other") -> Constructor:
    """Operands converted to the dtype that PyTorch promotes them to."""
    return lambda c: c.pointwise(op, c[first], c[second], dtype=c.promoted(c[first], c[second]))


def predicate(op: str) -> Constructor:
    """A predicate of one floating value."""
    return lambda c: c(op, c["self"])


def logical(op: str, *names: str) -> Constructor:
    """A logical operator: operands converted to b8 (x != 0)."""
    return lambda c: c.pointwise(op, *(c[n] for n in names), dtype=Dtype.b8)


def scaled(op: str) -> Constructor:
    """self op alpha * other, rounded once."""
    def construct(c: Call) -> Arg:
        if c["alpha"] == 1:
            return c.pointwise(op, c["self"], c["other"])
        return c.cast(c.wide(op, c["self"], _times(c, c["other"], c["alpha"])), c.dtype)
    return construct


def _times(c: Call, x: Arg | float, number: float) -> Arg | float:
    return c.wide("mul", x, number) if isinstance(x, Arg) else x * number


def boolean(arithmetic: Constructor, op: str) -> Constructor:
    """What sums and products of b8 are; of other dtypes arithmetic."""
    return lambda c: c.pointwise(op, c["self"], c["other"]) if c.dtype == Dtype.b8 else arithmetic(c)


def rsub(c: Call) -> Arg:
    if c["alpha"] == 1:
        return c.pointwise("sub", c["other"], c["self"])
    return c.cast(c.wide("sub", c["other"], _times(c, c["self"], c["alpha"])), c.dtype)


def divide(c: Call) -> Arg:
    """Of integers, by divisors other than 0; the same goes for floor_divide, remainder and fmod (see ir/ops.py)."""
    op = {None: "div", "floor": "floor_divide", "trunc": "trunc_divide"}[c["rounding_mode"]]
    return c.pointwise(op, c["self"], c["other"])


def where(c: Call) -> Arg:
    return c.where(c["condition"], c["self"], c["other"])


def masked_fill(c: Call) -> Arg:
    return c.where(c["mask"], c["value"], c["self"])


def clamp(low: str, high: str) -> Constructor:
    """min(max(x, low), high): NaN stays NaN."""
    def construct(c: Call) -> Arg:
        x = c["self"]
        if (bound := c.get(low)) is not None:
            x = c.pointwise("maximum", x, bound)
        if (bound := c.get(high)) is not None:
            x = c.pointwise("minimum", x, bound)
        return x
    return construct


def isfinite(c: Call) -> Arg:
    return c("bitwise_not", c("bitwise_or", c("isnan", c["self"]), c("isinf", c["self"])))


def sign(c: Call) -> Arg:
    """Of b8: itself."""
    return c["self"] if c.dtype == Dtype.b8 else c.pointwise("sign", c["self"])


def passing_nan(op: str) -> Constructor:
    """The larger or the smaller one; a number where the other is NaN."""
    def construct(c: Call) -> Arg:
        a, b = c.cast(c["self"], c.dtype), c.cast(c["other"], c.dtype)
        if not c.dtype.is_float:
            return c.pointwise(op, a, b)
        a, b = c.where(c.test("isnan", a), b, a), c.where(c.test("isnan", b), a, b)
        return c.pointwise(op, a, b)
    return construct


def signbit(c: Call) -> Arg:
    x = c["self"]
    if not c.dtype_of(x).is_float:
        return c.test("lt", x, c.number(0, c.dtype_of(x)))
    return c.test("lt", c("copysign", 1.0, x, dtype=c.dtype_of(x)), 0.0)


def angle(c: Call) -> Arg:
    """Of a real: 0, pi where it is negative, NaN where it is that."""
    x = c.cast(c["self"], c.dtype)
    below = c.cast(c.test("lt", x, 0.0), c.dtype.compute)
    return c.where(c.test("isnan", x), x, c.wide("mul", below, math.pi))


def ldexp(c: Call) -> Arg:
    """x * 2^n"""
    return c.cast(c.wide("mul", c["self"], c.wide("exp2", c["other"])), c.dtype)


def round_decimals(c: Call) -> Arg:
    """The nearest multiple of a power of ten, a tie to the even multiple."""
    x, decimals = c["self"], c["decimals"]
    if decimals == 0 or not c.dtype.is_float:
        return c.pointwise("round", x)
    scale, (there, back) = 10.0 ** abs(decimals), ("mul", "div") if decimals > 0 else ("div", "mul")
    return c.cast(c.wide(back, c.wide("round", c.wide(there, x, scale)), scale), c.dtype)


# ---- casts and copies ------------------------------------------------------------------------------------------------

def same(c: Call) -> Arg:
    """An operator that only copies: its result is its operand."""
    return c["self"]


def nothing(c: Call) -> None:
    """An assertion that PyTorch's own tracing has checked."""


def cast(c: Call) -> Arg:
    c.check_device(c.get("device"))
    return c.cast(c["self"], c.dtype)


def copy(c: Call) -> Arg:
    return c.expand(c.cast(c["src"], c.dtype), c.shape)


ROWS: dict[str, Constructor] = {
    # pointwise
    **each(lambda op: pointwise(op, "self"), """neg abs reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10
        log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc lgamma floor ceil
        trunc round"""),
    **rows(of_integers(pointwise("bitwise_not", "self")), "bitwise_not"),
    **rows(sign, "sign sgn"),
    **each(predicate, "isnan isinf"),
    **rows(signbit, "signbit"),
    **rows(angle, "angle"),
    **rows(ldexp, "ldexp.Tensor"),
    **rows(round_decimals, "round.decimals"),
    **rows(passing_nan("maximum"), "fmax"),
    **rows(passing_nan("minimum"), "fmin"),
    **rows(isfinite, "isfinite"),
    **rows(boolean(scaled("add"), "bitwise_or"), "add.Tensor add.Scalar"),
    **rows(scaled("sub"), "sub.Tensor sub.Scalar"),
    **rows(rsub, "rsub.Tensor rsub.Scalar"),
    **rows(boolean(pointwise("mul", "self", "other"), "bitwise_and"), "mul.Tensor mul.Scalar"),
    **rows(pointwise("div", "self", "other"), "div.Tensor div.Scalar"),
    **rows(divide, "div.Tensor_mode div.Scalar_mode"),
    **rows(pointwise("floor_divide", "self", "other"), "floor_divide floor_divide.Scalar"),
    **rows(pointwise("remainder", "self", "other"), "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor"),
    **rows(pointwise("fmod", "self", "other"), "fmod.Tensor fmod.Scalar"),
    **rows(pointwise("pow", "self", "exponent"), "pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar"),
    **rows(pointwise("atan2", "self", "other"), "atan2"),
    **rows(pointwise("hypot", "self", "other"), "hypot"),
    **rows(pointwise("copysign", "self", "other"), "copysign.Tensor copysign.Scalar"),
    **rows(pointwise("maximum", "self", "other"), "maximum"),
    **rows(pointwise("minimum", "self", "other"), "minimum"),
    **rows(compare("eq"), "eq.Tensor eq.Scalar"),
    **rows(compare("ne"), "ne.Tensor ne.Scalar"),
    **rows(compare("lt"), "lt.Tensor lt.Scalar"),
    **rows(compare("le"), "le.Tensor le.Scalar"),
    **rows(compare("lt", "other", "self"), "gt.Tensor gt.Scalar"),
    **rows(compare("le", "other", "self"), "ge.Tensor ge.Scalar"),
    **rows(logical("bitwise_and", "self", "other"), "logical_and"),
    **rows(logical("bitwise_or", "self", "other"), "logical_or"),
    **rows(logical("bitwise_xor", "self", "other"), "logical_xor"),
    **rows(logical("bitwise_not", "self"), "logical_not"),
    **rows(of_integers(pointwise("bitwise_and", "self", "other")),
            "bitwise_and.Tensor bitwise_and.Scalar __and__.Tensor __and__.Scalar"),
    **rows(of_integers(pointwise("bitwise_or", "self", "other")),
            "bitwise_or.Tensor bitwise_or.Scalar __or__.Tensor __or__.Scalar"),
    **rows(of_integers(pointwise("bitwise_xor", "self", "other")),
            "bitwise_xor.Tensor bitwise_xor.Scalar __xor__.Tensor __xor__.Scalar"),
    **rows(of_integers(pointwise("bitwise_left_shift", "self", "other")),
            "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar __lshift__.Tensor __lshift__.Scalar"),
    **rows(of_integers(pointwise("bitwise_right_shift", "self", "other")),
            "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar __rshift__.Tensor __rshift__.Scalar"),
    **rows(where, "where.self where.ScalarOther where.ScalarSelf where.Scalar"),
    **rows(masked_fill, "masked_fill.Scalar masked_fill.Tensor"),
    **rows(clamp("min", "max"), "clamp clamp.Tensor clamp_min clamp_min.Tensor clamp_max clamp_max.Tensor"),
    **rows(clamp("min_val", "max_val"), "hardtanh"),
    # casts and copies
    **rows(same, "clone detach alias lift_fresh_copy"),
    **rows(nothing, "_assert_tensor_metadata"),
    **rows(cast, "_to_copy"),
    **rows(copy, "copy"),
}
"""ATen overload -> constructor."""
