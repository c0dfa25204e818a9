"""Tensors made inside a program."""
from __future__ import annotations

from deplodock.capture.build import Call
from deplodock.capture.operators.rows import Constructor, rows
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import Arg


def full(value) -> Constructor:
    """A tensor of one value: that of the argument so named, or the number itself."""
    def construct(c: Call) -> Arg:
        c.check_device(c.get("device"))
        return c("full", value=c.number(c[value] if isinstance(value, str) else value, c.dtype))
    return construct


def arange(c: Call) -> Arg:
    c.check_device(c.get("device"))
    start, step = c.get("start") or 0, c.get("step") or 1
    return c("arange", start=c.number(start, c.dtype), step=c.number(step, c.dtype))


def eye(c: Call) -> Arg:
    rows, columns = c.shape
    i = c("arange", start=0, step=1, shape=(rows,), dtype=Dtype.i64)
    j = c("arange", start=0, step=1, shape=(columns,), dtype=Dtype.i64)
    return c.cast(c("eq", c.reshape(i, (rows, 1)), j, dtype=Dtype.b8), c.dtype)


def one_hot(c: Call) -> Arg:
    """1 where a class is that of the place, else 0; a row of zeros for an index that is no class."""
    x, classes = c["self"], c.shape[-1]
    i = c("arange", start=0, step=1, shape=(classes,), dtype=Dtype.i64)
    return c.cast(c.test("eq", c.reshape(x, (*c.shape_of(x), 1)), i), c.dtype)


def triangle(op: str) -> Constructor:
    return lambda c: c(op, c["self"], diagonal=c["diagonal"])


ROWS: dict[str, Constructor] = {
    **rows(full("fill_value"), "full full_like new_full"),
    **rows(full("value"), "fill.Scalar"),
    **rows(full("s"), "scalar_tensor"),
    **rows(full(0), "zeros zeros_like new_zeros zero"),
    **rows(full(0), "new_empty new_empty_strided"),
    **rows(full(1), "ones ones_like new_ones"),
    **rows(arange, "arange arange.start arange.start_step"),
    **rows(eye, "eye eye.m"),
    **rows(one_hot, "one_hot"),
    **rows(triangle("triu"), "triu"),
    **rows(triangle("tril"), "tril"),
}
"""ATen overload -> constructor."""
