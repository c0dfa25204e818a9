"""Views, selections and generated tensors as index maps.

Applied once, in Python, to ground terms while a program is entered (deplodock/enter.py), as the other definitions are.
After that a view is an index in a load; where the dimensions of the whole program factor, it is not even arithmetic.
"""
from __future__ import annotations

import math
from typing import Iterable

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, Gathered, Index, index
from deplodock.ir.loop import Body, Iota, cast, const, fold, inside, load, op, where
from deplodock.ir.tensor import Elements, Shape, Tensor, dtype, index_map, like, places, read, shape, torch_op
from deplodock.law import law, rewrite

Dims = tuple[int, ...]
Number = float


@law("exact")
def load_reshape(x: Tensor, shape: Shape):
    """reshape(x)[i ..] = x[linear(i ..) // stride mod extent ..], row-major"""
    return rewrite(torch_op.reshape(x, shape)).to(reshaped(x, shape))


@law("exact")
def load_expand(x: Tensor, shape: Shape):
    """expand(x)[i, j] = x[j], or x[0, j] where its extent is 1"""
    return rewrite(torch_op.expand(x, shape)).to(Elements(places(shape), read(x, places(shape))))


@law("exact")
def load_transpose(x: Tensor, dims: Dims):
    """permute(x)[i, j] = x[j, i]"""
    return rewrite(torch_op.permute(x, dims)).to(
        index_map(x, tuple(shape(x)[d] for d in dims), lambda *i: tuple(i[dims.index(d)] for d in range(len(i)))))


@law("exact")
def load_slice(x: Tensor, dim: int, start: int, stop: int, step: int, shape: Shape):
    """slice(x)[i] = x[start + step·i]"""
    return rewrite(torch_op.slice(x, dim, start, stop, step)).to(
        index_map(x, shape, lambda *i: (*i[:dim], i[dim] * step + start, *i[dim + 1:])))


@law("exact")
def load_select(x: Tensor, dim: int, index: int, shape: Shape):
    """select(x, c)[j] = x[c, j]"""
    return rewrite(torch_op.select(x, dim, index)).to(
        index_map(x, shape, lambda *i: (*i[:dim], index, *i[dim:])))


@law("exact")
def load_concat(xs: tuple, dim: int, shape: Shape):
    """cat(x, y)[i] = where(i < n, x[i], y[i − n]); if both have n elements, where(i // n = 0, x[i mod n], y[i mod n])"""
    return rewrite(torch_op.cat(xs, dim)).to(concatenated(xs, dim, shape))


@law("exact")
def load_flip_dims(x: Tensor, dims: Dims):
    """flip(x)[i] = x[n − 1 − i]"""
    return rewrite(torch_op.flip(x, dims)).to(
        index_map(x, shape(x), lambda *i: tuple(a.extent - 1 - index(a) if d in dims else a for d, a in enumerate(i))))


@law("exact")
def load_roll(x: Tensor, shifts: Dims, dims: Dims):
    """roll(x)[i] = x[(i − s) mod n]"""
    by = dict(zip(dims, shifts))
    return rewrite(torch_op.roll(x, shifts, dims)).to(
        index_map(x, shape(x), lambda *i: tuple((a - by.get(d, 0)) % a.extent for d, a in enumerate(i))))


@law("exact")
def load_unfold(x: Tensor, dim: int, size: int, step: int, dilation: int, shape: Shape):
    """unfold(x)[i, k] = x[step·i + dilation·k]"""
    return rewrite(torch_op.unfold(x, dim, size, step, dilation)).to(
        index_map(x, shape, lambda *i: (*i[:dim], i[dim] * step + i[-1] * dilation, *i[dim + 1:-1])))


@law("exact")
def load_diagonal(x: Tensor, offset: int, dim1: int, dim2: int, shape: Shape):
    """diagonal(x)[.., i] = x[i − min(o, 0), i + max(o, 0), ..]"""
    return rewrite(torch_op.diagonal(x, offset, dim1, dim2)).to(
        index_map(x, shape, lambda *i: on_diagonal(i[:-1], i[-1], offset, dim1, dim2)))


@law("exact")
def load_as_strided(x: Tensor, strides: Dims, offset: int, shape: Shape):
    """as_strided(x)[i ..] = x's element number offset + stride·i + .. in row-major order"""
    return rewrite(torch_op.as_strided(x, strides, offset)).to(
        at_number(x, shape, sum((a * s for a, s in zip(places(shape), strides)), index(offset))))


@law("exact")
def pad_def(x: Tensor, pads: tuple, mode: str, value: Number, shape: Shape):
    """pad(x)[i] = where(0 ≤ i − before < n, x[i − before], c); or x at i − before reflected, clamped or mod n"""
    return rewrite(torch_op.pad(x, pads, mode, value)).to(padded(x, pads, mode, value, shape))


@law("exact")
def slice_scatter_def(x: Tensor, src: Tensor, dim: int, start: int, stop: int, step: int):
    """slice_scatter(x, y)[i] = where(start ≤ i < stop ∧ (i − start) mod step = 0, y[(i − start) // step], x[i])"""
    return rewrite(torch_op.slice_scatter(x, src, dim, start, stop, step)).to(
        scattered(x, src, dim, start, stop, step))


@law("exact")
def diagonal_scatter_def(x: Tensor, src: Tensor, offset: int, dim1: int, dim2: int):
    """diagonal_scatter(x, y)[i, j] = where(i + min(o, 0) = j − max(o, 0), y[i + min(o, 0)], x[i, j])"""
    return rewrite(torch_op.diagonal_scatter(x, src, offset, dim1, dim2)).to(
        on_diagonals(x, src, offset, dim1, dim2))


@law("reassociates")
def fold_def(x: Tensor, kernel_size: Dims, dilation: Dims, padding: Dims, stride: Dims, shape: Shape):
    """fold(x)[i] = Σₖ where(stride divides i + padding − dilation·k, x[k, (i + padding − dilation·k) / stride], 0)"""
    return rewrite(torch_op.fold(x, kernel_size, dilation, padding, stride)).to(
        like(x, summed_windows(x, kernel_size, dilation, padding, stride, shape)))


@law("exact")
def tril_def(x: Tensor, diagonal: int):
    """tril(x)[i, j] = where(j ≤ i + d, x[i, j], 0)"""
    return rewrite(torch_op.tril(x, diagonal)).to(triangle(x, diagonal, True))


@law("exact")
def triu_def(x: Tensor, diagonal: int):
    """triu(x)[i, j] = where(j ≤ i + d − 1, 0, x[i, j])"""
    return rewrite(torch_op.triu(x, diagonal)).to(triangle(x, diagonal - 1, False))


@law("exact")
def full_def(value: Number, shape: Shape, dtype: Dtype):
    """full(c)[i ..] = c"""
    return rewrite(torch_op.full(value, shape, dtype)).to(Elements(places(shape), const(dtype, value)))


@law("exact")
def arange_def(start: Number, step: Number, shape: Shape, dtype: Dtype):
    """arange[i] = start + step·i"""
    return rewrite(torch_op.arange(start, step, shape, dtype)).to(counted(start, step, shape, dtype))


# ---- the right sides that take more than an expression ---------------------------------------------------------------

def reshaped(x: Tensor, to: Shape) -> Elements:
    """x's elements in row-major order under another shape."""
    linear = index(0)
    for a in places(to):
        linear = linear * a.extent + a
    return at_number(x, to, linear)


def at_number(x: Tensor, to: Shape, number: Index) -> Elements:
    """Elements of x, each by its number in row-major order."""
    axes = places(to)
    if 0 in to:
        return Elements(axes, const(dtype(x), 0))
    indices, stride = [], math.prod(shape(x))
    for n in shape(x):
        stride //= n
        indices.append(number // stride % n)
    return Elements(axes, load(x, *indices))


def on_diagonal(rest: tuple, i: Axis, offset: int, dim1: int, dim2: int) -> tuple[Index, ...]:
    """The indices of element i of a diagonal over dim1 and dim2, for indices of the other dimensions."""
    at = {dim1: i + max(-offset, 0), dim2: i + max(offset, 0)}
    others = iter(rest)
    return tuple(at[d] if d in at else next(others) for d in range(len(rest) + 2))


def chosen(conditions: Iterable[Body], x: Body, other: Body) -> Body:
    """x where all conditions hold."""
    test = None
    for c in conditions:
        test = c if test is None else op("and", test, c)
    return x if test is None else where(test, x, other)


def padded(x: Tensor, pads: tuple[tuple[int, int], ...], mode: str, value: Number, to: Shape) -> Elements:
    """x with `before` elements put in front of each dimension, and as many behind as its new extent asks for."""
    axes, d = places(to), dtype(x)
    if 0 in to or 0 in shape(x):
        return Elements(axes, const(d, value))
    at = [a - before for a, (before, _) in zip(axes, pads)]
    if mode == "constant":
        tests = (t for i, n in zip(at, shape(x)) for t in inside(i, n))
        return Elements(axes, chosen(tests, load(x, *at), const(d, value)))
    return Elements(axes, load(x, *(i if not inside(i, n) else back(i, n, mode) for i, n in zip(at, shape(x)))))


def back(i: Index, n: int, mode: str) -> Index:
    """An index that may leave n elements, led back into them."""
    if mode == "circular":
        return i % n
    at, last = Iota(i), const(Dtype.i64, n - 1)
    if mode == "reflect":
        return index(Gathered(last - op("abs", last - op("abs", at)), n))
    return index(Gathered(op("minimum", op("maximum", at, const(Dtype.i64, 0)), last), n))


def scattered(x: Tensor, src: Tensor, dim: int, start: int, stop: int, step: int) -> Elements:
    """x with src in place of a slice."""
    axes = places(shape(x))
    at = axes[dim] - start
    tests = inside(at, stop - start)
    if step > 1:
        tests += (op("eq", Iota(at % step), const(Dtype.i64, 0)),)
    if start == stop:
        return Elements(axes, load(x, *axes))
    return Elements(axes, chosen(tests, load(src, *axes[:dim], at // step, *axes[dim + 1:]), load(x, *axes)))


def on_diagonals(x: Tensor, src: Tensor, offset: int, dim1: int, dim2: int) -> Elements:
    """x with src in place of a diagonal."""
    axes = places(shape(x))
    rest = tuple(a for d, a in enumerate(axes) if d not in (dim1, dim2))
    i, j = axes[dim1] - max(-offset, 0), axes[dim2] - max(offset, 0)
    if not shape(src)[-1]:
        return Elements(axes, load(x, *axes))
    return Elements(axes, where(op("eq", Iota(i), Iota(j)), load(src, *rest, i), load(x, *axes)))


def summed_windows(x: Tensor, size: Dims, dilation: Dims, padding: Dims, stride: Dims, to: Shape) -> Elements:
    """Every element of an image as the sum of what the windows over it hold of it, not rounded yet."""
    n, c, *image = places(to)
    window = tuple(Axis(f"k{d}", k) for d, k in enumerate(size))
    counts = [(a.extent + 2 * p - l * (k.extent - 1) - 1) // s + 1
              for a, k, p, l, s in zip(image, window, padding, dilation, stride)]
    channel, place, tests = index(c), index(0), ()
    for a, k, p, l, s, count in zip(image, window, padding, dilation, stride, counts):
        at = a + p - k * l
        channel, place = channel * k.extent + k, place * count + at // s
        tests += inside(at, count * s) + ((op("eq", Iota(at % s), const(Dtype.i64, 0)),) if s > 1 else ())
    d = dtype(x).compute
    body = chosen(tests, cast(d, load(x, n, channel, place)), const(d, 0))
    return Elements((n, c, *image), fold("sum", window, (body,)))


def concatenated(xs: tuple[Tensor, ...], dim: int, to: Shape) -> Tensor:
    """Tensors one after another along a dimension; those of extent 0 there (or of rank 1 and empty) drop out."""
    xs = tuple(x for x in xs if 0 not in shape(x)) or xs[-1:]
    axes = places(to)
    at = index(axes[dim])

    def piece(x: Tensor, i: Index) -> Body:
        return load(x, *axes[:dim], i, *axes[dim + 1:])

    n = shape(xs[0])[dim]
    if all(shape(x)[dim] == n for x in xs) and n:
        body = piece(xs[-1], at % n)
        for j, x in reversed(list(enumerate(xs[:-1]))):
            body = where(op("eq", Iota(at // n), const(Dtype.i64, j)), piece(x, at % n), body)
        return Elements(axes, body)
    ends = [0]
    for x in xs:
        ends.append(ends[-1] + shape(x)[dim])
    body = piece(xs[-1], at - ends[-2])
    for x, start, end in reversed(list(zip(xs[:-1], ends, ends[1:]))):
        body = where(op("lt", Iota(at), const(Dtype.i64, end)), piece(x, at - start), body)
    return Elements(axes, body)


def triangle(x: Tensor, diagonal: int, keep: bool) -> Elements:
    """x where column ≤ row + diagonal and 0 elsewhere; with keep = False the other way round."""
    axes = places(shape(x))
    inside, zero = op("le", Iota(index(axes[-1])), Iota(axes[-2] + diagonal)), const(dtype(x), 0)
    return Elements(axes, where(inside, read(x, axes), zero) if keep else where(inside, zero, read(x, axes)))


def counted(start: Number, step: Number, to: Shape, d: Dtype) -> Elements:
    """start + step·i along one dimension. Integers are indices; others are computed in d's arithmetic."""
    axis, = places(to)
    if isinstance(start, int) and isinstance(step, int):
        return Elements((axis,), cast(d, Iota(axis * step + start)))
    c = d.compute
    return Elements((axis,), cast(d, cast(c, Iota(index(axis))) * const(c, step) + const(c, start)))


DEFINITIONS = {
    "reshape": (load_reshape,), "expand": (load_expand,), "permute": (load_transpose,), "slice": (load_slice,),
    "select": (load_select,), "flip": (load_flip_dims,), "roll": (load_roll,), "unfold": (load_unfold,),
    "diagonal": (load_diagonal,), "as_strided": (load_as_strided,), "pad": (pad_def,), "fold": (fold_def,),
    "slice_scatter": (slice_scatter_def,), "diagonal_scatter": (diagonal_scatter_def,),
    "cat": (load_concat,), "tril": (tril_def,), "triu": (triu_def,), "full": (full_def,),
    "arange": (arange_def,),
}
"""The laws that have an operator of Torch IR as their left side."""
