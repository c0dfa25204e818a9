"""Whether TMA can copy a tile, and as which box: PTX ISA, "Tensors", and the CUDA driver's cuTensorMapEncodeTiled."""
from __future__ import annotations

from math import prod
from typing import Mapping

from deplodock.ir.index import Axis, index
from deplodock.ir.layout import Shared
from deplodock.ir.loop import subst
from deplodock.ir.tile import Access, Box, BoxDim, Compare

MOST_DIMENSIONS, MOST_COUNT = 5, 256


def box(at: Access, shape: Shared, bind: Mapping[str, object]) -> Box | None:
    """The box of a whole tile, or None where TMA has none for it.

    It must be zero exactly outside the tensor; have one tiled axis in a dimension, read forwards; lie in shared memory
    as a swizzle of TMA's has it (rows of 32, 64 or 128 bytes, or panels of these); and strides and base must be
    multiples of 16 bytes. bind: what each axis means here (tile_scope.Bound).
    """
    size, tiled = shape.size, {shape.col: shape.cols, **dict(zip(shape.row, shape.spans))}
    width = shape.cols * size
    if shape.pitch not in (32, 64, 128) or not (shape.panels or width == shape.pitch) or at.param.alignment % 16:
        return None
    if not 0 < len(at.dims) <= MOST_DIMENSIONS or at.strides[-1] != 1 or any(s * size % 16 for s in at.strides[:-1]):
        return None
    if any(c.loaded for c in at.coords) or not set(at.guards) <= set(_edges(at)):
        return None
    dims, rows, left = [], [], shape.rows
    for n, stride, i in reversed(tuple(zip(at.dims, at.strides, at.indices))):
        own = [a for a in tiled if any(x.name == a for x in i.free)]
        if len(own) > 1 or any((Axis(a, bind[a].axis.extent), 1) not in i.terms for a in own):
            return None
        axis, count = (own[0] if own else None), 1
        if axis and not _zero_outside(at, axis, n, i):
            return None
        if axis == shape.col:
            count = shape.pitch // size
            if dims:
                return None                                          # columns run along the innermost dimension
        elif axis:
            rows.append(axis)
            count = min(left, tiled[axis])
            if left % count or shape.stride(axis) != prod(tiled[a] for a in rows[:-1]):
                return None
            left //= count
        if count > MOST_COUNT:
            return None
        origin = subst(i, {b.axis: b.base for b in bind.values()})
        dims.append(BoxDim(n, stride, count, origin, axis))
    if rows != list(reversed(shape.row)) or left != 1 or dims[0].axis != shape.col:
        return None
    return Box(tuple(dims), width // shape.pitch)


def _edges(at: Access) -> list[Compare]:
    """The guards that say no more than that an index stays in its dimension."""
    return [g for n, i in zip(at.dims, at.indices) for g in (Compare("le", index(0), i), Compare("lt", i, index(n)))]


def _zero_outside(at: Access, axis: str, n: int, i) -> bool:
    """Whether what a tile has beyond the end of an axis lies outside the tensor."""
    limit = at.coord(axis).limit
    return limit is None or (limit == n and i.axis is not None)
