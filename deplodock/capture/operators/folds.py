"""Reductions, softmax and norms."""
from __future__ import annotations

import math
from typing import Callable

import torch

from deplodock.capture.build import Call
from deplodock.capture.operators.rows import Constructor, of_floats, rows
from deplodock.errors import ProgramFailed, TrainingMode
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import Arg


def reduction(op: str, dims: str = "dim") -> Constructor:
    """A fold over some dimensions; operands converted to the dtype of the result first, as PyTorch does."""
    def construct(c: Call) -> Arg:
        return c(op, c.cast(c["self"], c.dtype), dims=c.dims(c.get(dims)), keepdim=bool(c.get("keepdim")))
    return construct


def of_some(c: Call, dims: tuple[int, ...]) -> None:
    """ProgramFailed for the largest or the least of nothing, which PyTorch traces and does not run."""
    if any(c.shape_of(c["self"])[d] == 0 for d in dims):
        raise ProgramFailed(c.source, error=f"{c.op} over a dimension of size 0, which has no such element")


def extreme(op: str) -> Constructor:
    """max and min of all elements."""
    def construct(c: Call) -> Arg:
        of_some(c, c.dims(None))
        return reduction(op)(c)
    return construct


def logical(op: str) -> Constructor:
    """any and all: of whether an element is not 0. u8 stays u8. An empty list of dimensions folds none of them, where
    other reductions fold all."""
    def construct(c: Call) -> Arg:
        if c.get("dim") == ():
            return c.cast(c.cast(c["self"], Dtype.b8), c.dtype)
        options = dict(dims=c.dims(c.get("dim")), keepdim=bool(c.get("keepdim")))
        return c.cast(c(op, c.cast(c["self"], Dtype.b8), **options, dtype=Dtype.b8), c.dtype)
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
        of_some(c, options["dims"])
        if c.shape_of(c["self"]):
            where = c(index, c["self"], **options, dtype=Dtype.i64)
        else:
            where = c("full", value=0, dtype=Dtype.i64)
        return c(value, c["self"], **options), where
    return construct


def variance(finish: Callable[[Call, Arg], Arg], with_mean: bool = False) -> Constructor:
    """sum (x - mean)^2 / (n - correction), then `finish`, and the mean beside it; 16-bit floats in f32, rounded once."""
    def construct(c: Call) -> Arg | tuple[Arg, Arg]:
        x, dims = c["self"], c.dims(c.get("dim"))
        off = c.wide("sub", x, c.wide_fold("mean", x, dims, True))
        total = c.wide_fold("sum", c.wide("mul", off, off), dims, bool(c["keepdim"]))
        count = math.prod(c.shape_of(x)[d] for d in dims) - (1 if c["correction"] is None else c["correction"])
        y = c.cast(finish(c, c.wide("div", total, max(0, count))), c.dtype)
        return (y, c.cast(c.wide_fold("mean", x, dims, bool(c["keepdim"])), c.dtype)) if with_mean else y
    return construct


def root(c: Call, x: Arg) -> Arg:
    return c.wide("sqrt", x)


def vector_norm(c: Call) -> Arg:
    return c.cast(norm_of(c, c["self"], c["ord"], c.dims(c["dim"]), bool(c["keepdim"])), c.dtype)


def norm_of(c: Call, x: Arg, order: float, dims: tuple[int, ...], keepdim: bool) -> Arg:
    """The norm of an order: the number of elements other than 0, or of the largest, or (sum |x|^p)^(1/p). Not rounded."""
    def total(y: Arg) -> Arg:
        return c.wide_fold("sum", y, dims, keepdim)
    match order:
        case 0: return total(c.wide("ne", x, 0))
        case 1: return total(c.wide("abs", x))
        case 2: return c.wide("sqrt", total(c.wide("mul", x, x)))
        case math.inf: return c.wide_fold("amax", c.wide("abs", x), dims, keepdim)
        case _ if order == -math.inf: return c.wide_fold("amin", c.wide("abs", x), dims, keepdim)
    return c.wide("pow", total(c.wide("pow", c.wide("abs", x), float(order))), 1 / order)


def distance(c: Call) -> Arg:
    """The norm of a difference, of all its elements."""
    off = c.wide("sub", c["self"], c["other"])
    return c.cast(norm_of(c, off, c["p"], tuple(range(len(c.shape_of(off)))), False), c.dtype)


def distances(c: Call) -> Arg:
    """The norm of each difference of two rows."""
    (*first, n, k), (*second, m, _) = c.shape_of(c["x1"]), c.shape_of(c["x2"])
    off = c.wide("sub", c.reshape(c["x1"], (*first, n, 1, k)), c.reshape(c["x2"], (*second, 1, m, k)))
    return c.cast(norm_of(c, off, c["p"], (len(c.shape_of(off)) - 1,), False), c.dtype)


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


def group_norm(c: Call) -> Arg:
    """layer_norm of each group of channels, then a factor and a summand for each channel."""
    return normalised_groups(c, c["input"], c["num_groups"])


def normalised_groups(c: Call, x: Arg, groups: int) -> Arg:
    n, channels, *_ = sizes = c.shape_of(x)
    rest = math.prod(sizes[2:]) * (channels // groups)
    apart = c.reshape(c.cast(x, c.dtype.compute), (n, groups, rest))
    y = c("layer_norm", apart, None, None, dims=(2,), eps=float(c["eps"]), shape=(n, groups, rest), dtype=c.dtype.compute)
    return affine(c, c.reshape(y, sizes))


def affine(c: Call, y: Arg) -> Arg:
    """y * weight + bias, one of each for each channel (dimension 1), rounded once; None leaves one out."""
    for op, name in (("mul", "weight"), ("add", "bias")):
        if c[name] is not None:
            y = c.wide(op, y, by_channel(c, c[name], y))
    return c.cast(y, c.dtype)


def by_channel(c: Call, x: Arg, y: Arg) -> Arg:
    """x with a dimension of 1 for each that y has beside its channels."""
    return c.reshape(x, (*c.shape_of(x), *(1,) * (len(c.shape_of(y)) - 2)))


def instance_norm(c: Call) -> Arg:
    if not c["use_input_stats"]:
        return with_statistics(c)
    if c["running_mean"] is not None:
        raise TrainingMode(c.source, found="instance_norm that updates running statistics")
    return normalised_groups(c, c["input"], c.shape_of(c["input"])[1])


def with_statistics(c: Call) -> Arg:
    """(x - mean) * rsqrt(variance + eps) of given statistics, then a factor and a summand for each channel."""
    off = c.wide("sub", c["input"], by_channel(c, c["running_mean"], c["input"]))
    scale = c.wide("rsqrt", c.wide("add", c["running_var"], float(c["eps"])))
    return affine(c, c.wide("mul", off, by_channel(c, scale, off)))


def batch_norm(c: Call) -> tuple[Arg, Arg, Arg]:
    """In evaluation; what PyTorch keeps for the backward is empty."""
    (_, kept), *_ = c.outs[1:]
    return with_statistics(c), *(c("full", value=0.0, shape=(0,), dtype=kept) for _ in c.outs[1:])


def batch_norm_of_input(c: Call) -> tuple[Arg, Arg, Arg]:
    """By the mean and variance of the input itself, which has no running ones."""
    x = c["input"]
    dims = tuple(d for d in range(len(c.shape_of(x))) if d != 1)
    mean = c.wide_fold("mean", x, dims, True)
    off = c.wide("sub", x, mean)
    variance = c.wide_fold("mean", c.wide("mul", off, off), dims, True)
    scale = c.wide("rsqrt", c.wide("add", variance, float(c["eps"])))
    return affine(c, c.wide("mul", off, scale)), *(c.reshape(t, shape) for t, (shape, _) in zip((mean, scale), c.outs[1:]))


ROWS: dict[str, Constructor] = {
    **rows(reduction("sum"), "sum sum.dim_IntList"),
    **rows(reduction("mean"), "mean mean.dim"),
    **rows(reduction("prod"), "prod prod.dim_int"),
    **rows(reduction("amax"), "amax"),
    **rows(reduction("amin"), "amin"),
    **rows(extreme("amax"), "max"),
    **rows(extreme("amin"), "min"),
    **rows(logical("any"), "any any.dim any.dims"),
    **rows(logical("all"), "all all.dim all.dims"),
    **rows(arg_reduction("argmax"), "argmax"),
    **rows(arg_reduction("argmin"), "argmin"),
    **rows(with_index("amax", "argmax"), "max.dim"),
    **rows(with_index("amin", "argmin"), "min.dim"),
    **rows(of_floats(variance(lambda c, v: v)), "var.correction"),
    **rows(of_floats(variance(root)), "std.correction"),
    **rows(of_floats(variance(lambda c, v: v, True)), "var_mean.correction"),
    **rows(of_floats(variance(root, True)), "std_mean.correction"),
    **rows(vector_norm, "linalg_vector_norm"),
    **rows(distance, "dist"),
    **rows(distances, "cdist"),
    **rows(of_floats(softmax("softmax")), "softmax.int"),
    **rows(of_floats(softmax("log_softmax")), "log_softmax.int"),
    **rows(norm("layer_norm", "weight", "bias"), "layer_norm"),
    **rows(norm("rms_norm", "weight"), "rms_norm"),
    **rows(group_norm, "group_norm"),
    **rows(instance_norm, "instance_norm"),
    **rows(of_floats(batch_norm), "_native_batch_norm_legit_no_training"),
    **rows(of_floats(batch_norm_of_input), "_native_batch_norm_legit.no_stats"),
}
"""ATen overload -> constructor."""
