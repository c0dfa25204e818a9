"""Reductions, softmax and norms."""
from __future__ import annotations

import math
from typing import Callable

import torch

from deplodock.capture.build import Call
from deplodock.capture.operators.rows import Constructor, rows
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import Arg


def reduction(op: str, dims: str = "dim") -> Constructor:
    """A fold over some dimensions; operands converted to the dtype of the result first, as PyTorch does."""
    def construct(c: Call) -> Arg:
        return c(op, c.cast(c["self"], c.dtype), dims=c.dims(c.get(dims)), keepdim=bool(c.get("keepdim")))
    return construct


def arg_reduction(op: str) -> Constructor:
    def construct(c: Call) -> Arg:
        if not c.shape_of(c["self"]):
            return c("full", value=0)
        dim = c.get("dim")
        return c(op, c["self"], dims=c.dims(None if dim is None else [dim]), keepdim=bool(c.get("keepdim")))
    return construct


def with_index(value: str, index: str) -> Constructor:
    """max and min along one dimension: the values and where they are."""
    def construct(c: Call) -> tuple[Arg, Arg]:
        options = dict(dims=c.dims([c["dim"]]), keepdim=c["keepdim"])
        if c.shape_of(c["self"]):
            where = c(index, c["self"], **options, dtype=Dtype.i64)
        else:
            where = c("full", value=0, dtype=Dtype.i64)
        return c(value, c["self"], **options), where
    return construct


def variance(finish: Callable[[Call, Arg], Arg]) -> Constructor:
    """sum (x - mean)^2 / (n - correction), then `finish`; 16-bit floats in f32, rounded once."""
    def construct(c: Call) -> Arg:
        dims, wide = c.dims(c.get("dim")), c.dtype.compute
        x, sizes = c.cast(c["self"], wide), c.shape_of(c["self"])
        ones = tuple(1 if d in dims else n for d, n in enumerate(sizes))
        off = c("sub", x, c("mean", x, dims=dims, keepdim=True, shape=ones, dtype=wide), shape=sizes, dtype=wide)
        total = c("sum", c("mul", off, off, shape=sizes, dtype=wide), dims=dims, keepdim=bool(c["keepdim"]), dtype=wide)
        correction = 1 if c["correction"] is None else c["correction"]
        return c.cast(finish(c, c.wide("div", total, max(0, math.prod(sizes[d] for d in dims) - correction))), c.dtype)
    return construct


def vector_norm(c: Call) -> Arg:
    """The 1-, 2- and infinity-norm; 16-bit floats in f32, rounded once."""
    wide, order = c.dtype.compute, c["ord"]
    options = dict(dims=c.dims(c["dim"]), keepdim=bool(c["keepdim"]), dtype=wide)
    x = c.cast(c["self"], wide)
    size = c.shape_of(x)
    match order:
        case 2: y = c.wide("sqrt", c("sum", c("mul", x, x, shape=size, dtype=wide), **options))
        case 1: y = c("sum", c("abs", x, shape=size, dtype=wide), **options)
        case math.inf: y = c("amax", c("abs", x, shape=size, dtype=wide), **options)
        case _: raise c.unsupported(f"ord={order}")
    return c.cast(y, c.dtype)


def softmax(op: str) -> Constructor:
    def construct(c: Call) -> Arg:
        x = c.cast(c["self"], c.dtype)
        if not c.shape:
            return c.reshape(c(op, c.reshape(x, (1,)), dim=0, shape=(1,)), ())
        return c(op, x, dim=c["dim"] % len(c.shape))
    return construct


def norm(op: str, *parameters: str) -> Constructor:
    """A normalisation over the trailing dimensions, in the widest dtype of its operands, rounded once."""
    def construct(c: Call) -> Arg:
        operands = [c["input"], *(c[p] for p in parameters)]
        rank = len(c.shape)
        wide = c.promoted(*(o for o in operands if o is not None))
        eps = torch.finfo(getattr(torch, wide.compute.torch_name)).eps if c["eps"] is None else float(c["eps"])
        dims = tuple(range(rank - len(c["normalized_shape"]), rank))
        return c.cast(c(op, *(o and c.cast(o, wide) for o in operands), dims=dims, eps=eps, dtype=wide), c.dtype)
    return construct


ROWS: dict[str, Constructor] = {
    **rows(reduction("sum"), "sum sum.dim_IntList"),
    **rows(reduction("mean"), "mean mean.dim"),
    **rows(reduction("prod"), "prod prod.dim_int"),
    **rows(reduction("amax"), "amax max"),
    **rows(reduction("amin"), "amin min"),
    **rows(reduction("any"), "any any.dim any.dims"),
    **rows(reduction("all"), "all all.dim all.dims"),
    **rows(arg_reduction("argmax"), "argmax"),
    **rows(arg_reduction("argmin"), "argmin"),
    **rows(with_index("amax", "argmax"), "max.dim"),
    **rows(with_index("amin", "argmin"), "min.dim"),
    **rows(variance(lambda c, v: v), "var.correction"),
    **rows(variance(lambda c, v: c.wide("sqrt", v)), "std.correction"),
    **rows(vector_norm, "linalg_vector_norm"),
    **rows(softmax("softmax"), "softmax.int"),
    **rows(softmax("log_softmax"), "log_softmax.int"),
    **rows(norm("layer_norm", "weight", "bias"), "layer_norm"),
    **rows(norm("rms_norm", "weight"), "rms_norm"),
}
"""ATen overload -> constructor."""
