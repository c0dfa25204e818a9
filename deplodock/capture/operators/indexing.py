"""Selections at indices that are tensors."""
from __future__ import annotations

import math

from deplodock.capture.build import Call
from deplodock.capture.operators.rows import Constructor, rows
from deplodock.errors import DataDependentShape, IndexOutOfRange
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import Arg


def embedding(c: Call) -> Arg:
    require_rows(c, c.shape_of(c["weight"])[0])
    return c("embedding", c["weight"], c["indices"])


def gather(c: Call) -> Arg:
    """A tensor of no dimensions is gathered from, and is an index, as one of one element."""
    x, index = (c.reshape(t, c.shape_of(t) or (1,)) for t in (c["self"], c["index"]))
    dim = c["dim"] % len(c.shape_of(x))
    require_rows(c, c.shape_of(x)[dim])
    return c.reshape(c("gather", x, index, dim=dim, shape=c.shape_of(index)), c.shape)


def index_select(c: Call) -> Arg:
    """The same index for every element across the dimension."""
    x = c.reshape(c["self"], c.shape_of(c["self"]) or (1,))
    shape, n = c.shape_of(x), math.prod(c.shape_of(c["index"]))
    dim = c["dim"] % len(shape)
    require_rows(c, shape[dim])
    along = c.reshape(c["index"], tuple(n if d == dim else 1 for d in range(len(shape))))
    to = (*shape[:dim], n, *shape[dim + 1:])
    return c.reshape(c("gather", x, c.expand(along, to), dim=dim, shape=to), c.shape)


def index(c: Call) -> Arg:
    indices = tuple(c["indices"])
    for i, size in zip(indices, c.shape_of(c["self"])):
        if i is not None and c.dtype_of(i) in (Dtype.b8, Dtype.u8):
            raise DataDependentShape(c.source, found="a mask as an index: the shape of the result depends on its values")
        if i is not None:
            require_rows(c, size)
    return c("index", c["self"], indices)


def index_fill(c: Call) -> Arg:
    """value where any index is the place; negative ones count from the end."""
    shape = c.shape or (1,)
    dim, count = c["dim"] % len(shape), math.prod(c.shape_of(c["index"]))
    require_rows(c, shape[dim] or not count)
    places = numbers(c, shape[dim])
    at = c("index", places, (c.reshape(c["index"], (count,)),), shape=(count,), dtype=Dtype.i64)
    same = c("eq", c.reshape(at, (count, 1)), places, shape=(count, shape[dim]), dtype=Dtype.b8)
    hit = c("any", same, dims=(0,), keepdim=False, shape=(shape[dim],), dtype=Dtype.b8)
    along = tuple(n if d == dim else 1 for d, n in enumerate(shape)) if c.shape else ()
    return c.where(c.reshape(hit, along), c["value"], c["self"])


def one_hot(c: Call) -> Arg:
    """Whether the number of a class is the index, which has to be one of them."""
    if c["num_classes"] == -1:
        raise DataDependentShape(c.source, found="one_hot without num_classes: how many there are depends on the values")
    classes, count = c.shape[-1], math.prod(c.shape[:-1])
    places = numbers(c, classes)
    at = c("gather", places, c.reshape(c["self"], (count,)), dim=0, shape=(count,), dtype=Dtype.i64)
    return c.cast(c("eq", c.reshape(at, (*c.shape[:-1], 1)), places, dtype=Dtype.b8), c.dtype)


def numbers(c: Call, n: int) -> Arg:
    """0, 1 .. n - 1. Read at an index they are the index, which is checked."""
    return c("arange", start=0, step=1, shape=(n,), dtype=Dtype.i64)


def require_rows(c: Call, size: int) -> None:
    """An error if something is selected from nothing."""
    if not size and 0 not in c.shape:
        raise IndexOutOfRange(c.source, found=f"{c.op} selects from a dimension of 0")


ROWS: dict[str, Constructor] = {
    **rows(embedding, "embedding"),
    **rows(gather, "gather"),
    **rows(index_select, "index_select"),
    **rows(index, "index.Tensor"),
    **rows(index_fill, "index_fill.int_Scalar index_fill.int_Tensor"),
    **rows(one_hot, "one_hot"),
}
"""ATen overload -> constructor."""
