"""Selections at loaded indices: a load at an index that is itself loaded, which is checked where it runs."""
from __future__ import annotations

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, Gathered, Index, index
from deplodock.ir.loop import Body, cast, const, load, op, where
from deplodock.ir.tensor import Elements, Tensor, broadcast, places, read, shape, torch_op
from deplodock.law import law, rewrite


@law("exact")
def embedding_def(weight: Tensor, indices: Tensor):
    """embedding(w, ids)[i .., d] = w[ids[i ..], d]"""
    return rewrite(torch_op.embedding(weight, indices)).to(rows(weight, indices))


@law("exact")
def gather_def(x: Tensor, index: Tensor, dim: int):
    """gather(x, ids)[.., i, ..] = x[.., ids[.., i, ..], ..]"""
    return rewrite(torch_op.gather(x, index, dim)).to(along(x, index, dim))


@law("exact")
def index_def(x: Tensor, indices: tuple):
    """x[:, a, b][j, i ..] = x[j, a[i ..], b[i ..]]; negative ones count from the end"""
    return rewrite(torch_op.index(x, indices)).to(selected(x, indices))


# ---- the right sides -------------------------------------------------------------------------------------------------

def rows(table: Tensor, ids: Tensor) -> Elements:
    """Rows of a table, by an index loaded for each element of ids."""
    at, column = places(shape(ids)), Axis("d", shape(table)[1])
    return Elements((*at, column), load(table, Gathered(read(ids, at), shape(table)[0]), column))


def along(x: Tensor, ids: Tensor, dim: int) -> Elements:
    """x at an index along one dimension that is loaded for each element."""
    axes = places(shape(ids))
    return Elements(axes, load(x, *axes[:dim], Gathered(read(ids, axes), shape(x)[dim]), *axes[dim + 1:]))


def selected(x: Tensor, indices: tuple[Tensor | None, ...]) -> Elements:
    """x[indices], whose dimensions stand where the first index stood, or first if a dimension is between the indices."""
    given = [d for d, i in enumerate(indices) if i is not None]
    loaded = tuple(Axis(f"g{d}", n) for d, n in enumerate(broadcast(*(shape(indices[d]) for d in given))))
    rest = {d: Axis(f"i{d}", n) for d, n in enumerate(shape(x)) if d not in given}
    first = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    axes = (*(a for d, a in rest.items() if d < first), *loaded, *(a for d, a in rest.items() if d >= first))
    return Elements(axes, load(x, *(rest[d] if d in rest else wrapped(read(indices[d], loaded), n)
                                    for d, n in enumerate(shape(x)))))


def wrapped(i: Body, n: int) -> Index:
    """A loaded index into n elements; negative ones count from the end."""
    i = cast(Dtype.i64, i)
    return index(Gathered(where(op("lt", i, const(Dtype.i64, 0)), i + const(Dtype.i64, n), i), n))


DEFINITIONS = {"embedding": (embedding_def,), "gather": (gather_def,), "index": (index_def,)}
"""The laws that have an operator of Torch IR as their left side."""
