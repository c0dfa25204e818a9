"""What convolutions, pooling and interpolation are made of (rules/definitions.py): folds over windows.

A window is an index expression: element p of a result reads x at start(p) + step·k. What lies outside of x is a
predicate on that index, and is never read.
"""
from __future__ import annotations

import math
from typing import Callable

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, Index, index
from deplodock.ir.loop import Body, Const, Iota, cast, const, fold, load, op, where
from deplodock.ir.tensor import (Elements, Shape, Tensor, amax, dtype, elementwise, index_map, like, places, reduce,
                                 shape, sum, torch_op, wide)
from deplodock.ir.tensor import where as choose
from deplodock.law import law, rewrite

Dims = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
Maps = tuple[tuple[int, int, int], ...]
Number = float

BEHIND = 1 << 62
"""A place in a tensor that is behind all others."""


# ---- convolutions ----------------------------------------------------------------------------------------------------

@law("reassociates")
def conv_def(x: Tensor, weight: Tensor, stride: Dims, padding: Pairs, dilation: Dims, groups: int, shape: Shape):
    """conv(x, w)[n, o, p ..] = Σ_(c, k ..) x[n, c, p·s + k·d − l ..]·w[o, c, k ..], x = 0 outside"""
    return rewrite(torch_op.conv(x, weight, None, stride, padding, dilation, groups)).to(
        like(x, convolved(x, weight, stride, padding, dilation, groups, shape)))


@law("reassociates")
def conv_bias_def(x: Tensor, weight: Tensor, bias: Tensor, stride: Dims, padding: Pairs, dilation: Dims, groups: int,
                  shape: Shape):
    """conv(x, w, b) = conv(x, w) + b[o]"""
    return rewrite(torch_op.conv(x, weight, bias, stride, padding, dilation, groups)).to(
        like(x, convolved(x, weight, stride, padding, dilation, groups, shape) + channels(bias, shape)))


@law("reassociates")
def conv_transpose_def(x: Tensor, weight: Tensor, stride: Dims, padding: Pairs, dilation: Dims, groups: int,
                       shape: Shape):
    """conv_transpose(x, w)[n, o, p ..] = Σ_(c, k ..) x[n, c, (p + l − k·d)/s ..]·w[c, o, k ..], x = 0 where s does not divide
    it, and outside"""
    return rewrite(torch_op.conv_transpose(x, weight, None, stride, padding, dilation, groups)).to(
        like(x, transposed(x, weight, stride, padding, dilation, groups, shape)))


@law("reassociates")
def conv_transpose_bias_def(x: Tensor, weight: Tensor, bias: Tensor, stride: Dims, padding: Pairs, dilation: Dims,
                            groups: int, shape: Shape):
    """conv_transpose(x, w, b) = conv_transpose(x, w) + b[o]"""
    return rewrite(torch_op.conv_transpose(x, weight, bias, stride, padding, dilation, groups)).to(
        like(x, transposed(x, weight, stride, padding, dilation, groups, shape) + channels(bias, shape)))


# ---- pooling ---------------------------------------------------------------------------------------------------------

@law("exact")
def max_pool_def(x: Tensor, kernel: Dims, stride: Dims, padding: Pairs, dilation: Dims, shape: Shape):
    """max_pool(x)[.., p ..] = maxₖ x[.., p·s + k·d − l ..], x = −∞ outside"""
    w = windows(x, shape, kernel, strided(stride, padding, dilation), lowest(x))
    return rewrite(torch_op.max_pool(x, kernel, stride, padding, dilation)).to(
        torch_op.reshape(amax(w, last(w, kernel)), shape))


@law("exact")
def max_pool_index_def(x: Tensor, kernel: Dims, stride: Dims, padding: Pairs, dilation: Dims, shape: Shape):
    """max_pool_index(x)[.., p ..] = where its greatest element is among the pooled dimensions, row-major"""
    return rewrite(torch_op.max_pool_index(x, kernel, stride, padding, dilation)).to(
        torch_op.reshape(greatest(x, shape, kernel, strided(stride, padding, dilation)), shape))


@law("reassociates")
def avg_pool_def(x: Tensor, kernel: Dims, stride: Dims, padding: Pairs, counted: Pairs, divisor: int | None,
                 shape: Shape):
    """avg_pool(x)[.., p ..] = (Σₖ x[.., p·s + k − l ..])/n, n the points of the window that count, x = 0 outside"""
    w = windows(x, shape, kernel, strided(stride, padding, (1,) * len(kernel)), const(dtype(x), 0))
    total = torch_op.reshape(sum(wide(w), last(w, kernel)), shape)
    return rewrite(torch_op.avg_pool(x, kernel, stride, padding, counted, divisor)).to(
        like(x, total / (float(divisor) if divisor else points(x, shape, kernel, stride, padding, counted))))


@law("reassociates")
def adaptive_avg_pool_def(x: Tensor, size: Dims, shape: Shape):
    """adaptive_avg_pool(x)[.., p ..] = the mean of x from ⌊p·H/P⌋ to ⌈(p + 1)·H/P⌉"""
    at, kernel = adaptive(x, size)
    w = windows(x, shape, kernel, at, const(dtype(x), 0))
    total = torch_op.reshape(sum(wide(w), last(w, kernel)), shape)
    return rewrite(torch_op.adaptive_avg_pool(x, size)).to(like(x, total / adaptive_points(x, size, shape)))


@law("exact")
def adaptive_max_pool_def(x: Tensor, size: Dims, shape: Shape):
    """adaptive_max_pool(x)[.., p ..] = the maximum of x from ⌊p·H/P⌋ to ⌈(p + 1)·H/P⌉"""
    at, kernel = adaptive(x, size)
    w = windows(x, shape, kernel, at, lowest(x))
    return rewrite(torch_op.adaptive_max_pool(x, size)).to(torch_op.reshape(amax(w, last(w, kernel)), shape))


@law("exact")
def adaptive_max_pool_index_def(x: Tensor, size: Dims, shape: Shape):
    """adaptive_max_pool_index(x) = where the maximum is, as of max_pool_index"""
    at, kernel = adaptive(x, size)
    return rewrite(torch_op.adaptive_max_pool_index(x, size)).to(
        torch_op.reshape(greatest(x, shape, kernel, at), shape))


# ---- interpolation ---------------------------------------------------------------------------------------------------

@law("exact")
def upsample_nearest_def(x: Tensor, maps: Maps, shape: Shape):
    """upsample_nearest(x)[.., p ..] = x[.., ⌊(a·p + b)/c⌋ ..]"""
    n = len(shape) - len(maps)
    return rewrite(torch_op.upsample_nearest(x, maps)).to(
        index_map(x, shape, lambda *p: (*p[:n], *((i * a + b) // c for i, (a, b, c) in zip(p[n:], maps)))))


@law("reassociates")
def upsample_linear_def(x: Tensor, maps: Maps, shape: Shape):
    """upsample_linear(x)[.., p ..] = (1 − λ)·x[.., ⌊t⌋ ..] + λ·x[.., ⌈t⌉ ..], t = ⌊t⌋ + λ = (a·p + b)/c, along each axis"""
    y, n = wide(x), len(shape) - len(maps)
    for d in reversed(range(len(maps))):
        y = between(y, n + d, shape[n + d], *maps[d])
    return rewrite(torch_op.upsample_linear(x, maps)).to(like(x, y))


# ---- windows ---------------------------------------------------------------------------------------------------------

At = Callable[[int, Axis, Axis], tuple[Index, tuple[Body, ...]]]
"""Of the d-th pooled dimension, a result's axis and a window's: the index there, and what must hold for it to count."""


def strided(stride: Dims, padding: Pairs, dilation: Dims) -> At:
    return lambda d, p, k: (p * stride[d] + k * dilation[d] - padding[d][0], ())


def windows(x: Tensor, out: Shape, kernel: Dims, at: At, fill: Const) -> Elements:
    """x's windows: dimensions of the result, then those of the kernel; `fill` where a window sticks out."""
    axes, kernels = places(out), tuple(Axis(f"k{d}", n) for d, n in enumerate(kernel))
    indices, inside = windowed(x, axes, kernels, at)
    return Elements((*axes, *kernels), guarded(x, indices, inside, load(x, *indices), fill))


def windowed(x: Tensor, axes: tuple[Axis, ...], kernels: tuple[Axis, ...], at: At):
    """The index of each dimension of x, and what must hold."""
    n = len(axes) - len(kernels)
    indices, inside = list(map(index, axes[:n])), []
    for d, (p, k) in enumerate(zip(axes[n:], kernels)):
        i, holds = at(d, p, k)
        indices.append(i)
        inside += holds
    return indices, inside


def guarded(x: Tensor, indices, inside, body: Body, fill: Const, ends: bool = True) -> Body:
    """A body where `inside` holds and indices are those of elements of x, `fill` elsewhere. ends: whether indices behind
    the last element are elsewhere, too."""
    conditions = list(inside)
    for n, i in zip(shape(x), indices):
        lo, hi = i.range
        conditions += [op("le", const(Dtype.i64, 0), Iota(i))] if lo < 0 else []
        conditions += [op("lt", Iota(i), const(Dtype.i64, n))] if ends and hi >= n else []
    if not conditions:
        return body
    first, *rest = conditions
    for c in rest:
        first = op("and", first, c)
    return where(first, body, fill)


def last(w: Tensor, kernel: Dims) -> Dims:
    """The trailing dimensions of windows, which a fold takes away."""
    rank = len(shape(w))
    return tuple(range(rank - len(kernel), rank))


def lowest(x: Tensor) -> Const:
    return const(dtype(x), dtype(x).extremes[0])


def greatest(x: Tensor, out: Shape, kernel: Dims, at: At) -> Tensor:
    """Where the greatest element of each window is: the first of equal ones, the last NaN, as PyTorch has it; of a window
    without elements where it begins, behind the padding."""
    axes, kernels = places(out), tuple(Axis(f"k{d}", n) for d, n in enumerate(kernel))
    indices, inside = windowed(x, axes, kernels, at)
    place, n = index(0), len(axes) - len(kernels)
    for size, i in zip(shape(x)[n:], indices[n:]):
        place = place * size + i
    spot = Elements((*axes, *kernels), guarded(x, indices, inside, Iota(place), const(Dtype.i64, BEHIND), ends=False))
    w = windows(x, out, kernel, at, lowest(x))
    dims, most = last(w, kernel), amax(w, last(w, kernel))
    first = reduce("min", choose(elementwise("eq", w, most), spot, BEHIND), dims)
    if not dtype(x).is_float:
        return first
    return choose(elementwise("isnan", most), reduce("max", choose(elementwise("isnan", w), spot, -1), dims), first)


def points(x: Tensor, out: Shape, kernel: Dims, stride: Dims, padding: Pairs, counted: Pairs) -> Tensor | float:
    """How many elements of each window count: those of x, and `counted` ones on either side of it."""
    n = len(out) - len(kernel)
    ends = [(size + hi, -lo) for size, (lo, hi) in zip(shape(x)[n:], counted)]

    def along(d: int, p: Axis) -> Body:
        start = p * stride[d] - padding[d][0]
        stop, first = (const(Dtype.i64, e) for e in ends[d])
        return op("sub", op("minimum", Iota(start + kernel[d]), stop), op("maximum", Iota(start), first))
    every = [{min(p * s - lo + k, stop) - max(p * s - lo, first) for p in range(size)}
             for size, k, s, (lo, _), (stop, first) in zip(out[n:], kernel, stride, padding, ends)]
    return product_of(x, out[n:], every, along)


def product_of(x: Tensor, out: Shape, every: list[set[int]], along: Callable[[int, Axis], Body]) -> Tensor | float:
    """The product of a count along each dimension: a number where it is the same everywhere. every: its values."""
    if all(len(counts) <= 1 for counts in every):
        return float(math.prod(max(counts, default=1) for counts in every))
    axes = places(out)
    first, *rest = (along(d, p) for d, p in enumerate(axes))
    for b in rest:
        first = op("mul", first, b)
    return Elements(axes, cast(dtype(x).compute, first))


def adaptive(x: Tensor, size: Dims) -> tuple[At, Dims]:
    """The windows of adaptive pooling, and the longest of them."""
    given = shape(x)[len(shape(x)) - len(size):]

    def at(d: int, p: Axis, k: Axis):
        start, stop = ends(given[d], size[d], index(p))
        room = stop - start - k - 1
        return start + k, () if room.range[0] >= 0 else (op("lt", Iota(start + k), Iota(stop)),)
    return at, tuple(max(lengths(n, m), default=1) for n, m in zip(given, size))


def ends(n: int, m: int, p):
    """Where window p of m over n elements starts and stops; p is an index, or a number."""
    return p * n // m, ((p + 1) * n + m - 1) // m


def lengths(n: int, m: int) -> set[int]:
    return {stop - start for start, stop in (ends(n, m, p) for p in range(m))}


def adaptive_points(x: Tensor, size: Dims, out: Shape) -> Tensor | float:
    """How many elements each window of adaptive pooling has."""
    given = shape(x)[len(shape(x)) - len(size):]

    def along(d: int, p: Axis) -> Body:
        start, stop = ends(given[d], size[d], index(p))
        return op("sub", Iota(stop), Iota(start))
    return product_of(x, out[len(out) - len(size):], [lengths(n, m) for n, m in zip(given, size)], along)


# ---- sums of products over windows -----------------------------------------------------------------------------------

def convolved(x: Tensor, weight: Tensor, stride: Dims, padding: Pairs, dilation: Dims, groups: int,
              out: Shape) -> Elements:
    """A convolution in the dtype that arithmetic runs in, not rounded yet."""
    return contracted(x, weight, groups, out, strided(stride, padding, dilation), False)


def transposed(x: Tensor, weight: Tensor, stride: Dims, padding: Pairs, dilation: Dims, groups: int,
               out: Shape) -> Elements:
    """A transposed convolution: element p comes from those that a convolution would spread over p."""
    def at(d: int, p: Axis, k: Axis):
        i = p + padding[d][0] - k * dilation[d]
        meets = () if stride[d] == 1 else (op("eq", Iota(i % stride[d]), const(Dtype.i64, 0)),)
        return i // stride[d], meets
    return contracted(x, weight, groups, out, at, True)


def contracted(x: Tensor, weight: Tensor, groups: int, out: Shape, at: At, turned: bool) -> Elements:
    """Σ over the channels of a group and the kernel. turned: the weight's first dimension is the input's channels."""
    letters = "pqr", "uvw"
    n, o = Axis("n", out[0]), Axis("o", out[1])
    rows = tuple(Axis(letters[0][d], m) for d, m in enumerate(out[2:]))
    kernels = tuple(Axis(letters[1][d], m) for d, m in enumerate(shape(weight)[2:]))
    c, each = Axis("c", shape(x)[1] // groups), max(1, out[1] // groups)
    channel = index(c) if groups == 1 else (o // each) * c.extent + c
    indices, inside = windowed(x, (n, o, *rows), kernels, at)
    indices[1] = channel
    source = guarded(x, indices, inside, load(x, *indices), const(dtype(x), 0))
    at_weight = (channel, o if groups == 1 else o % each) if turned else (o, c)
    factor = cast(dtype(weight).compute, load(weight, *at_weight, *kernels))
    return Elements((n, o, *rows), fold("sum", (c, *kernels), (cast(dtype(x).compute, source) * factor,)))


def channels(bias: Tensor, out: Shape) -> Tensor:
    """A vector along the channels."""
    return wide(index_map(bias, (out[1], *(1 for _ in out[2:])), lambda *i: i[:1]))


# ---- between two elements --------------------------------------------------------------------------------------------

def between(x: Tensor, dim: int, size: int, a: int, b: int, c: int) -> Elements:
    """x at (a·p + b)/c along one dimension, linearly between its neighbours, clamped at both ends. What would count 0 times,
    and might be infinite, is not read."""
    out = (*shape(x)[:dim], size, *shape(x)[dim + 1:])
    axes, n = places(out), shape(x)[dim]
    top = axes[dim] * a + b
    low, high, part = top // c, (top + c - 1) // c, top % c

    def at(i: Index) -> Body:
        def read(j) -> Body:
            return value_at(x, (*axes[:dim], j, *axes[dim + 1:]))
        lo, hi = i.range
        body = read(i)
        body = where(op("lt", Iota(i), const(Dtype.i64, n)), body, read(n - 1)) if hi >= n else body
        return where(op("lt", Iota(i), const(Dtype.i64, 0)), read(0), body) if lo < 0 else body
    if part.is_const and part.const == 0:
        return Elements(axes, at(low))
    d = dtype(x)
    share = op("div", cast(d, Iota(part)), const(d, c))
    rest = op("div", cast(d, Iota(c - part)), const(d, c))
    return Elements(axes, at(low) * rest + at(high) * share)


def value_at(x: Tensor, indices) -> Body:
    return cast(dtype(x).compute, load(x, *indices))


DEFINITIONS = {
    "conv": (conv_def, conv_bias_def), "conv_transpose": (conv_transpose_def, conv_transpose_bias_def),
    "max_pool": (max_pool_def,), "max_pool_index": (max_pool_index_def,), "avg_pool": (avg_pool_def,),
    "adaptive_avg_pool": (adaptive_avg_pool_def,), "adaptive_max_pool": (adaptive_max_pool_def,),
    "adaptive_max_pool_index": (adaptive_max_pool_index_def,), "upsample_nearest": (upsample_nearest_def,),
    "upsample_linear": (upsample_linear_def,),
}
"""The laws that have an operator as their left side, in the order in which they are tried."""
