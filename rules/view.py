"""Views, selections and generated tensors as index maps.

Applied once, in Python, to ground terms while a program is entered (deplodock/enter.py), as the other definitions are.
After that a view is an index in a load; where the dimensions of the whole program factor, it is not even arithmetic.
"""
from __future__ import annotations

import math

from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Body, Index, Iota, cast, const, index, load, op, where
from deplodock.ir.tensor import Elements, Shape, Tensor, dtype, index_map, places, read, shape, torch_op
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
    axes = places(to)
    if 0 in to:
        return Elements(axes, const(dtype(x), 0))
    linear = index(0)
    for a in axes:
        linear = linear * a.extent + a
    indices, stride = [], math.prod(shape(x))
    for n in shape(x):
        stride //= n
        indices.append(linear // stride % n)
    return Elements(axes, load(x, *indices))


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
    "select": (load_select,), "cat": (load_concat,), "tril": (tril_def,), "triu": (triu_def,), "full": (full_def,),
    "arange": (arange_def,),
}
"""The laws that have an operator of Torch IR as their left side."""
