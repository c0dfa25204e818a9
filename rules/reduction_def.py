"""What reductions, softmax and norms of Torch IR are made of (rules/definitions.py)."""
from __future__ import annotations

from deplodock.ir.tensor import (Operator, Shape, Tensor, amax, exp, like, log, mean, reduce, rsqrt, sum, torch_op,
                                 wide)
from deplodock.law import law, rewrite

Dims = tuple[int, ...]
Number = float


MONOIDS = {"sum": "sum", "prod": "prod", "amax": "max", "amin": "min", "any": "any", "all": "all"}
"""Torch operators that are one fold."""


@law("reassociates")
def fold_def(name: str, x: Tensor, dims: Dims, keepdim: bool, shape: Shape):
    """sum(x, dims) = reduction(sum, dims, x), and likewise for prod, amax, amin, any, all"""
    return rewrite(Operator(name, (x, dims, keepdim))).to(torch_op.reshape(reduce(MONOIDS[name], x, dims), shape))


@law("reassociates")
def mean_def(x: Tensor, dims: Dims, keepdim: bool, shape: Shape):
    """mean(x) = (Σₖ x)/n"""
    return rewrite(torch_op.mean(x, dims, keepdim)).to(torch_op.reshape(like(x, mean(wide(x), dims)), shape))


@law("exact")
def argmax_def(x: Tensor, dims: Dims, keepdim: bool, shape: Shape):
    """argmax(x) = the index part of the fold argmax"""
    return rewrite(torch_op.argmax(x, dims, keepdim)).to(torch_op.reshape(reduce("argmax", x, dims, 1), shape))


@law("exact")
def argmin_def(x: Tensor, dims: Dims, keepdim: bool, shape: Shape):
    """argmin(x) = the index part of the fold argmin"""
    return rewrite(torch_op.argmin(x, dims, keepdim)).to(torch_op.reshape(reduce("argmin", x, dims, 1), shape))


@law("reassociates")
def softmax_def(x: Tensor, dim: int):
    """softmax(x) = exp(x − maxₖ x) / Σₖ exp(x − maxₖ x)"""
    e = exp(wide(x) - amax(wide(x), dim))
    return rewrite(torch_op.softmax(x, dim)).to(like(x, e / sum(e, dim)))


@law("reassociates")
def log_softmax_def(x: Tensor, dim: int):
    """log_softmax(x) = x − maxₖ x − log Σₖ exp(x − maxₖ x)"""
    s = wide(x) - amax(wide(x), dim)
    return rewrite(torch_op.log_softmax(x, dim)).to(like(x, s - log(sum(exp(s), dim))))


@law("reassociates")
def layer_norm_def(x: Tensor, dims: Dims, eps: Number):
    """layer_norm(x) = (x − μ)·rsqrt(Σₖ (x − μ)²/n + ε), μ = (Σₖ x)/n"""
    d = wide(x) - mean(wide(x), dims)
    return rewrite(torch_op.layer_norm(x, None, None, dims, eps)).to(like(x, d * rsqrt(mean(d * d, dims) + eps)))


@law("reassociates")
def layer_norm_weight_def(x: Tensor, weight: Tensor, dims: Dims, eps: Number):
    """layer_norm(x, γ) = layer_norm(x)·γ"""
    return rewrite(torch_op.layer_norm(x, weight, None, dims, eps)).to(
        like(x, torch_op.layer_norm(wide(x), None, None, dims, eps) * wide(weight)))


@law("reassociates")
def layer_norm_bias_def(x: Tensor, bias: Tensor, dims: Dims, eps: Number):
    """layer_norm(x, β) = layer_norm(x) + β"""
    return rewrite(torch_op.layer_norm(x, None, bias, dims, eps)).to(
        like(x, torch_op.layer_norm(wide(x), None, None, dims, eps) + wide(bias)))


@law("reassociates")
def layer_norm_affine_def(x: Tensor, weight: Tensor, bias: Tensor, dims: Dims, eps: Number):
    """layer_norm(x, γ, β) = layer_norm(x)·γ + β"""
    return rewrite(torch_op.layer_norm(x, weight, bias, dims, eps)).to(
        like(x, torch_op.layer_norm(wide(x), None, None, dims, eps) * wide(weight) + wide(bias)))


@law("reassociates")
def rms_norm_def(x: Tensor, dims: Dims, eps: Number):
    """rms_norm(x) = x·rsqrt(Σₖ x²/n + ε)"""
    z = wide(x)
    return rewrite(torch_op.rms_norm(x, None, dims, eps)).to(like(x, z * rsqrt(mean(z * z, dims) + eps)))


@law("reassociates")
def rms_norm_weight_def(x: Tensor, weight: Tensor, dims: Dims, eps: Number):
    """rms_norm(x, w) = rms_norm(x)·w"""
    return rewrite(torch_op.rms_norm(x, weight, dims, eps)).to(
        like(x, torch_op.rms_norm(wide(x), None, dims, eps) * wide(weight)))


DEFINITIONS = {
    **{name: (fold_def,) for name in MONOIDS},
    "mean": (mean_def,), "argmax": (argmax_def,), "argmin": (argmin_def,),
    "softmax": (softmax_def,), "log_softmax": (log_softmax_def,),
    "layer_norm": (layer_norm_def, layer_norm_weight_def, layer_norm_bias_def, layer_norm_affine_def),
    "rms_norm": (rms_norm_def, rms_norm_weight_def),
}
"""The laws that have an operator as their left side, in the order in which they are tried."""
