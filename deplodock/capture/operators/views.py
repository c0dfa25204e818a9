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
    **rows(repeat_interleave, "repeat_interleave.self_int"),
}
"""ATen overload -> constructor."""
