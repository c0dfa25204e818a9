"""How the three primitives of Tensor IR become launches (deplodock/enter.py)."""
from __future__ import annotations

from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Launch, load
from deplodock.ir.loop import cast as cast_body
from deplodock.ir.tensor import (Convert, Elementwise, IndexMap, Reduction, Shape, Tensor, convert_body, elementwise_body,
                                 places, reduction_body, shape)
from deplodock.law import law, rewrite

Dims = tuple[int, ...]


@law("exact")
def elementwise_launch(f: str, args: tuple):
    """elementwise(f, a, b ..) = launch([i ..], f(a[i ..], b[i ..] ..)), rounded once at its root"""
    term = Elementwise(f, args)
    at = places(term.shape)
    return rewrite(term).to(Launch(at, cast_body(term.dtype, elementwise_body(f, args, at))))


@law("exact")
def convert_launch(arg: Tensor, dtype: Dtype):
    """elementwise(cast, a) = launch([i ..], cast(d, a[i ..]))"""
    at = places(shape(arg))
    return rewrite(Convert(arg, dtype)).to(Launch(at, convert_body(arg, dtype, at)))


@law("reassociates")
def reduction_launch(monoid: str, dims: Dims, arg: Tensor, part: int):
    """reduction(op, dims, a) = launch([i ..], fold(op, [k ..], a[i .., k ..])), rounded once at its root"""
    term = Reduction(monoid, dims, arg, part)
    at = places(term.shape)
    return rewrite(term).to(Launch(at, cast_body(term.dtype, reduction_body(monoid, dims, arg, part, at))))


@law("exact")
def index_map_launch(arg: Tensor, shape: Shape, indices: tuple):
    """index_map([i ..], a, [ix ..]) = launch([i ..], load(a, [ix ..]))"""
    return rewrite(IndexMap(arg, shape, indices)).to(Launch(places(shape), load(arg, *indices)))
