"""What pointwise operators of Torch IR are made of (rules/definitions.py)."""
from __future__ import annotations

import math

from deplodock.ir.dtype import Dtype
from deplodock.ir.tensor import Elementwise, Operator, Tensor, elementwise, exp, like, rsqrt, sigmoid, to, torch_op, where, wide
from deplodock.law import law, rewrite

Number = float


POINTWISE = {
    **{name: name for name in """neg abs sign sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos
       atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc lgamma floor ceil round trunc isnan isinf add sub mul div
       remainder fmod pow atan2 hypot copysign maximum minimum eq ne lt le
       where""".split()},
    "reciprocal": "recip", "bitwise_not": "not", "floor_divide": "floordiv", "trunc_divide": "truncdiv",
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "bitwise_left_shift": "shl",
    "bitwise_right_shift": "shr",
}
"""Torch operators that are one operator of ir/ops.py."""


@law("exact")
def pointwise_def(name: str, args: tuple):
    """f(a, b ..) = elementwise(f, a, b ..)"""
    return rewrite(Operator(name, args)).to(Elementwise(POINTWISE[name], args))


@law("exact")
def cast_def(x: Tensor, dtype: Dtype):
    """cast(x) = elementwise(cast, x)"""
    return rewrite(torch_op.cast(x, dtype)).to(to(x, dtype))


@law("exact")
def pow_square(a: Tensor):
    """a² = a·a"""
    return rewrite(torch_op.pow(a, 2.0)).to(a * a)


@law("reassociates")
def pow_cube(a: Tensor):
    """a³ = a·a·a"""
    return rewrite(torch_op.pow(a, 3.0)).to(like(a, wide(a) * wide(a) * wide(a)))


@law("reassociates")
def pow_root(a: Tensor):
    """a^½ = sqrt(a)"""
    return rewrite(torch_op.pow(a, 0.5)).to(elementwise("sqrt", a))


@law("reassociates")
def pow_rsqrt(a: Tensor):
    """a^−½ = rsqrt(a)"""
    return rewrite(torch_op.pow(a, -0.5)).to(rsqrt(a))


@law("exact")
def pow_recip(a: Tensor):
    """a⁻¹ = recip(a)"""
    return rewrite(torch_op.pow(a, -1.0)).to(elementwise("recip", a))


@law("exact")
def relu_def(x: Tensor):
    """relu(x) = max(x, 0)"""
    return rewrite(torch_op.relu(x)).to(elementwise("maximum", x, 0))


@law("exact")
def silu_def(x: Tensor):
    """silu(x) = x·sigmoid(x)"""
    return rewrite(torch_op.silu(x)).to(like(x, wide(x) * sigmoid(wide(x))))


@law("exact")
def gelu_erf_def(x: Tensor):
    """gelu(x) = ½·x·(1 + erf(x/√2))"""
    z = wide(x)
    return rewrite(torch_op.gelu(x, "none")).to(like(x, 0.5 * z * (1.0 + elementwise("erf", z / math.sqrt(2.0)))))


@law("exact")
def gelu_tanh_def(x: Tensor):
    """gelu(x) = ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))"""
    z = wide(x)
    inner = math.sqrt(2.0 / math.pi) * (z + 0.044715 * (z * z * z))
    return rewrite(torch_op.gelu(x, "tanh")).to(like(x, 0.5 * z * (1.0 + elementwise("tanh", inner))))


@law("exact")
def softplus_def(x: Tensor, beta: Number, threshold: Number):
    """softplus(x) = where(β·x > threshold, x, log1p(exp(β·x))/β)"""
    z = wide(x)
    soft = elementwise("log1p", exp(z * beta)) / beta
    return rewrite(torch_op.softplus(x, beta, threshold)).to(
        like(x, where(elementwise("lt", threshold, z * beta), z, soft)))


@law("exact")
def leaky_relu_def(x: Tensor, negative_slope: Number):
    """leaky_relu(x) = where(x > 0, x, slope·x)"""
    z = wide(x)
    return rewrite(torch_op.leaky_relu(x, negative_slope)).to(
        like(x, where(elementwise("lt", 0.0, z), z, z * negative_slope)))


@law("exact")
def elu_def(x: Tensor, alpha: Number, scale: Number, input_scale: Number):
    """elu(x) = where(x > 0, scale·x, scale·α·(exp(x·input_scale) − 1))"""
    z = wide(x)
    low = elementwise("expm1", z * input_scale) * (alpha * scale)
    return rewrite(torch_op.elu(x, alpha, scale, input_scale)).to(
        like(x, where(elementwise("lt", 0.0, z), z * scale, low)))


DEFINITIONS = {
    **{name: (pointwise_def,) for name in POINTWISE},
    "cast": (cast_def,), "relu": (relu_def,), "silu": (silu_def,), "gelu": (gelu_erf_def, gelu_tanh_def),
    "pow": (pow_square, pow_cube, pow_root, pow_rsqrt, pow_recip, pointwise_def),
    "softplus": (softplus_def,), "leaky_relu": (leaky_relu_def,), "elu": (elu_def,),
}
"""The laws that have an operator as their left side, in the order in which they are tried."""
