"""Views, and the operators that put tensors together."""
from __future__ import annotations

import math

import torch

from deplodock.capture.build import Call
from deplodock.capture.operators.rows import Constructor, rows
from deplodock.ir.torch import Arg


def reshape(c: Call) -> Arg:
    return c.reshape(c["self"], c.shape)


def permute(c: Call) -> Arg:
    """Any reordering of dimensions: the operator itself, run on a tensor of distinct sizes, says which."""
    rank = len(c.shape_of(c["self"]))
    probe = torch.empty(tuple(range(2, 2 + rank)), device="meta")
    dims = tuple(n - 2 for n in c.target(**{**c.args, "self": probe}).shape)
    return c["self"] if dims == tuple(range(rank)) else c("permute", c["self"], dims=dims)


def expand(c: Call) -> Arg:
    return c.expand(c["self"], c.shape)


def slice_(c: Call) -> Arg:
    dim, size = c.dim("dim"), None
    size = c.shape_of(c["self"])[dim]
    start, stop, step = slice(c["start"], c["end"], c["step"]).indices(size)
    return c.slice(c["self"], dim, start, max(start, stop), step)


def split(c: Call) -> tuple[Arg, ...]:
    """Consecutive slices, as many and as long as the results."""
    dim, start, parts = c.dim("dim"), 0, []
    for shape, _ in c.outs:
        parts.append(c.slice(c["self"], dim, start, start + shape[dim], 1))
        start += shape[dim]
    return tuple(parts)


def select(c: Call) -> Arg:
    dim = c.dim("dim")
    return c("select", c["self"], dim=dim, index=c["index"] % c.shape_of(c["self"])[dim])


def unbind(c: Call) -> tuple[Arg, ...]:
    dim = c.dim("dim")
    return tuple(c("select", c["self"], dim=dim, index=i) for i in range(len(c.outs)))


def cat(c: Call) -> Arg:
    """Operands that PyTorch skips (one dimension of size 0 beside others of more) are left out."""
    xs = tuple(c.cast(x, c.dtype) for x in c["tensors"] if len(c.shape_of(x)) == len(c.shape))
    return joined(c, xs, c["dim"] % len(c.shape))


def stack(c: Call) -> Arg:
    dim = c["dim"] % len(c.shape)
    one = (*c.shape[:dim], 1, *c.shape[dim + 1:])
    return joined(c, tuple(c.reshape(c.cast(x, c.dtype), one) for x in c["tensors"]), dim)


def joined(c: Call, xs: tuple[Arg, ...], dim: int) -> Arg:
    return xs[0] if len(xs) == 1 else c("cat", xs, dim=dim)


def flip(c: Call) -> Arg:
    dims = c.dims(c["dims"]) if c["dims"] else ()
    return c("flip", c["self"], dims=dims) if dims and c.shape_of(c["self"]) else c["self"]


def roll(c: Call) -> Arg:
    """Without dimensions, the flat tensor is rolled."""
    x, shape, dims = c["self"], c.shape, tuple(c["dims"])
    if 0 in shape or not shape:
        return x
    if not dims:
        x, shape, dims = c.reshape(x, (math.prod(shape),)), (math.prod(shape),), (0,)
    shifts: dict[int, int] = {}
    for s, d in zip(c["shifts"], dims):
        shifts[d % len(shape)] = (shifts.get(d % len(shape), 0) + s) % shape[d]
    made = c("roll", x, shifts=tuple(shifts.values()), dims=tuple(shifts), shape=shape)
    return c.reshape(made, c.shape)


def pad(c: Call) -> Arg:
    """PyTorch names the last dimension first."""
    return padded(c, c["self"], c["pad"], c.get("mode") or "constant", c.get("value"))


def padded(c: Call, x: Arg, pads: tuple[int, ...], mode: str, value: float | None) -> Arg:
    shape = c.shape_of(x)
    pairs = tuple(zip(pads[::2], pads[1::2]))[::-1]
    pairs = ((0, 0),) * (len(shape) - len(pairs)) + pairs
    if not any(map(any, pairs)):
        return x
    to = tuple(n + before + after for n, (before, after) in zip(shape, pairs))
    dtype = c.dtype_of(x)
    return c("pad", x, pads=pairs, mode=mode, value=c.number(value or 0, dtype), shape=to, dtype=dtype)


def unfold(c: Call) -> Arg:
    shape = c.shape_of(c["self"])
    x, dim = (c["self"], c["dimension"] % len(shape)) if shape else (c.reshape(c["self"], (1,)), 0)
    if not shape:                                        # one window of the one element
        return c.reshape(x, c.shape)
    return window(c, x, dim, c["size"], c["step"])


def window(c: Call, x: Arg, dim: int, size: int, step: int, dilation: int = 1) -> Arg:
    """Windows along a dimension, as many as fit whole; their elements are a new last dimension."""
    shape = c.shape_of(x)
    count = (shape[dim] - (size - 1) * dilation - 1) // step + 1
    return c("unfold", x, dim=dim, size=size, step=step, dilation=dilation,
             shape=(*shape[:dim], count, *shape[dim + 1:], size), dtype=c.dtype_of(x))


def im2col(c: Call) -> Arg:
    """Windows along both dimensions: their elements go to the channels, their places to one dimension."""
    x, (top, left) = c["self"], c["padding"]
    x = padded(c, x, (left, left, top, top), "constant", 0)
    rank = len(c.shape_of(x))
    for dim, size, step, dilation in zip((rank - 2, rank - 1), c["kernel_size"], c["stride"], c["dilation"]):
        x = window(c, x, dim, size, step, dilation)
    shape, batch = c.shape_of(x), tuple(range(rank - 3))
    dims = (*batch, rank - 3, rank, rank + 1, rank - 2, rank - 1)
    return c.reshape(c("permute", x, dims=dims, shape=tuple(shape[d] for d in dims)), c.shape)


def col2im(c: Call) -> Arg:
    shape = c.shape if len(c.shape) == 4 else (1, *c.shape)
    x = c.reshape(c["self"], (shape[0], *c.shape_of(c["self"])[-2:]))
    options = {n: tuple(c[n]) for n in ("kernel_size", "dilation", "padding", "stride")}
    return c.reshape(c("fold", x, **options, shape=shape), c.shape)


def diagonal(c: Call) -> Arg:
    rank = len(c.shape_of(c["self"]))
    return c("diagonal", c["self"], offset=c["offset"], dim1=c["dim1"] % rank, dim2=c["dim2"] % rank)


def as_strided(c: Call) -> Arg:
    """Of a tensor that is all of its storage, in row-major order: what else lies in memory is unknown here."""
    fake = c.example
    if fake is None or not fake.is_contiguous() or fake.untyped_storage().nbytes() != fake.numel() * fake.itemsize:
        raise c.unsupported("a tensor that is not all of its memory in row-major order")
    return c("as_strided", c["self"], strides=tuple(c["stride"]), offset=c["storage_offset"] or 0)


def slice_scatter(c: Call) -> Arg:
    dim = c.dim("dim")
    start, stop, step = slice(c["start"], c["end"], c["step"]).indices(c.shape[dim])
    src = c.cast(c.expand(c["src"], (*c.shape[:dim], len(range(start, stop, step)), *c.shape[dim + 1:])), c.dtype)
    return put(c, src, dim, start, max(start, stop), step)


def select_scatter(c: Call) -> Arg:
    dim = c.dim("dim")
    at, src = c["index"] % c.shape[dim], c.cast(c["src"], c.dtype)
    return put(c, c.reshape(src, (*c.shape[:dim], 1, *c.shape[dim + 1:])), dim, at, at + 1, 1)


def put(c: Call, src: Arg, dim: int, start: int, stop: int, step: int) -> Arg:
    """self with src in place of a slice of it."""
    if (start, stop, step) == (0, c.shape[dim], 1):
        return src
    return c("slice_scatter", c["self"], src, dim=dim, start=start, stop=stop, step=step)


def diagonal_scatter(c: Call) -> Arg:
    rank = len(c.shape)
    return c("diagonal_scatter", c["self"], c.cast(c["src"], c.dtype), offset=c["offset"], dim1=c["dim1"] % rank,
             dim2=c["dim2"] % rank)


def repeat(c: Call) -> Arg:
    """A tensor several times along each dimension: a new dimension before each, expanded and merged."""
    times = c["repeats"]
    shape = (1,) * (len(times) - len(c.shape_of(c["self"]))) + c.shape_of(c["self"])
    apart = c.reshape(c["self"], tuple(n for size in shape for n in (1, size)))
    return c.reshape(c.expand(apart, tuple(n for pair in zip(times, shape) for n in pair)), c.shape)


def repeat_interleave(c: Call) -> Arg:
    """Each element several times: a new dimension after `dim`, expanded and merged."""
    x, times = c["self"], c["repeats"]
    if c["dim"] is None:
        x, dim = c.reshape(x, (math.prod(c.shape_of(x)),)), 0
    else:
        dim = c.dim("dim")
    head, tail = c.shape_of(x)[:dim + 1], c.shape_of(x)[dim + 1:]
    return c.reshape(c.expand(c.reshape(x, (*head, 1, *tail)), (*head, times, *tail)), c.shape)


ROWS: dict[str, Constructor] = {
    **rows(reshape, "view _unsafe_view unsqueeze squeeze squeeze.dim squeeze.dims"),
    **rows(permute, "permute transpose.int t"),
    **rows(expand, "expand"),
    **rows(slice_, "slice.Tensor"),
    **rows(split, "split.Tensor split_with_sizes"),
    **rows(select, "select.int"),
    **rows(unbind, "unbind.int"),
    **rows(cat, "cat"),
    **rows(stack, "stack"),
    **rows(repeat, "repeat"),
    **rows(flip, "flip"),
    **rows(roll, "roll"),
    **rows(pad, "pad constant_pad_nd"),
    **rows(unfold, "unfold"),
    **rows(im2col, "im2col"),
    **rows(col2im, "col2im"),
    **rows(diagonal, "diagonal"),
    **rows(as_strided, "as_strided"),
    **rows(slice_scatter, "slice_scatter"),
    **rows(select_scatter, "select_scatter"),
    **rows(diagonal_scatter, "diagonal_scatter"),
    **rows(repeat_interleave, "repeat_interleave.self_int"),
}
"""ATen overload -> constructor."""
