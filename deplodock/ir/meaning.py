"""What a term means, in NumPy: the oracle that laws, e-graphs, kernels and plans are checked against.

Two readings of one term. Exact: every floating dtype is float64 and casts between floating dtypes are dropped; this is
the reference that error promises are made against. Rounded: every operator rounds its result to its own dtype.
"""
from __future__ import annotations

from typing import Mapping

import ml_dtypes
import numpy as np

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, FloorDiv, Gathered, Index, Mod
from deplodock.ir.loop import Buffer, Cast, Const, Fold, Iota, Launch, Load, Op, RoundTo, Tensor, dtype
from deplodock.ir.ops import OPS
from deplodock.ir.term import Term

NUMPY = {Dtype.f64: np.float64, Dtype.f32: np.float32, Dtype.f16: np.float16, Dtype.bf16: ml_dtypes.bfloat16,
         Dtype.i64: np.int64, Dtype.i32: np.int32, Dtype.i16: np.int16, Dtype.i8: np.int8,
         Dtype.u64: np.uint64, Dtype.u32: np.uint32, Dtype.u16: np.uint16, Dtype.u8: np.uint8, Dtype.b8: np.bool_}


class Named:
    """An array whose dimensions are named: axes in name order."""
    __slots__ = ("axes", "array")

    def __init__(self, axes: tuple[Axis, ...], array: np.ndarray):
        order = sorted(range(len(axes)), key=lambda i: axes[i].name)
        self.axes = tuple(axes[i] for i in order)
        self.array = np.transpose(array, order) if order else np.asarray(array)

    def spread(self, axes: tuple[Axis, ...]) -> np.ndarray:
        """The array with a dimension for each of `axes`, of size 1 where it has no such axis."""
        mine = [a for a in axes if a in self.axes]
        x = np.transpose(self.array, [self.axes.index(a) for a in mine]) if mine else self.array
        size = dict(zip(mine, x.shape))
        return x.reshape([size.get(a, 1) for a in axes])


class Meaning:
    """Evaluates terms over given values of buffers; a tensor is evaluated once.

    buffers: a value for each Buffer that is read, shaped by its axes. exact: see the head of the file. ranges: values of
    an axis where they are not all of 0 .. extent - 1.
    """

    def __init__(self, buffers: Mapping[Term, np.ndarray], exact: bool = True,
                 ranges: Mapping[Axis, np.ndarray] | None = None):
        self.exact, self.ranges = exact, dict(ranges or {})
        self.tensors: dict[Term, np.ndarray] = {t: self._store(dtype(t), v) for t, v in buffers.items()}
        self.memo: dict[Term, Named] = {}

    def numpy(self, d: Dtype):
        """The NumPy type that stands for a dtype in this reading."""
        return np.float64 if self.exact and d.is_float else NUMPY[d]

    def _store(self, d: Dtype, v: np.ndarray) -> np.ndarray:
        return np.asarray(v).astype(self.numpy(d))

    def tensor(self, t: Tensor) -> np.ndarray:
        """The value of a tensor, shaped by its axes. KeyError for a buffer that was given no value."""
        if t not in self.tensors:
            if isinstance(t, Buffer):
                raise KeyError(f"no value was given for buffer {t.name}")
            assert isinstance(t, Launch)
            v = Meaning.__new__(Meaning)
            v.exact, v.ranges, v.tensors, v.memo = self.exact, {}, self.tensors, {}
            value = v.body(t.body).spread(t.axes)
            self.tensors[t] = np.broadcast_to(value, [a.extent for a in t.axes])
        return self.tensors[t]

    def over(self, body: Term, axes: tuple[Axis, ...]) -> np.ndarray:
        """The value of a body, one dimension for each of `axes` (which hold its free axes), broadcast."""
        value = self.body(body)
        if not set(value.axes) <= set(axes):
            raise ValueError(f"{body} depends on axes other than {axes}")
        return np.broadcast_to(value.spread(axes), [len(self._values(a)) for a in axes])

    def _values(self, a: Axis) -> np.ndarray:
        return self.ranges.get(a, np.arange(a.extent))

    def index(self, i: Index) -> Named:
        total = Named((), np.array(i.const, dtype=np.int64))
        for atom, c in i.terms:
            total = _apply(lambda x, y: x + c * y, total, self._atom(atom))
        return total

    def _atom(self, a: Term) -> Named:
        match a:
            case Axis(): return Named((a,), self._values(a))
            case FloorDiv(i, n): v = self.index(i); return Named(v.axes, v.array // n)
            case Mod(i, n): v = self.index(i); return Named(v.axes, v.array % n)
            case Gathered(b, _): v = self.body(b); return Named(v.axes, v.array.astype(np.int64))
        raise TypeError(f"{type(a).__name__} is no index atom")

    def body(self, b: Term) -> Named:
        """The value of a body over its free axes."""
        if b not in self.memo:
            with np.errstate(all="ignore"):
                self.memo[b] = self._body(b)
        return self.memo[b]

    def _body(self, b: Term) -> Named:
        match b:
            case Const(d, v): return Named((), np.array(v, dtype=self.numpy(d)))
            case Iota(i): return self.index(i)
            case Load(t, indices):
                x = self.tensor(t)
                if not indices:
                    return Named((), x)
                ix = [self.index(i) for i in indices]
                axes = tuple(sorted({a for i in ix for a in i.axes}, key=lambda a: a.name))
                at = [i.spread(axes) for i in ix]
                value = x[tuple(np.clip(i, 0, max(n - 1, 0)) for i, n in zip(at, x.shape))]
                for i, n in zip(at, x.shape):
                    if not ((0 <= i) & (i < n)).all():
                        value = np.where((0 <= i) & (i < n), value, x.dtype.type(0))
                return Named(axes, value)
            case Op(name, args):
                v = _apply(OPS[name].numpy, *map(self.body, args))
                return Named(v.axes, v.array.astype(self.numpy(dtype(b))))
            case Cast(d, x):
                v = self.body(x)
                return Named(v.axes, convert(v.array, dtype(x), d, self.numpy(d)))
            case RoundTo(d, x):
                v = self.body(x)
                return v if self.exact else Named(v.axes, v.array.astype(NUMPY[d]).astype(v.array.dtype))
            case Fold(): return self._fold(b)
        raise TypeError(f"{type(b).__name__} has no meaning here")

    def _fold(self, f: Fold) -> Named:
        outer = {a: r for a, r in self.ranges.items() if a not in f.axes}
        inner = self if outer == self.ranges else self._with(outer)
        values = [inner.body(b) for b in f.bodies]
        axes = tuple(sorted({*f.axes}.union(*(v.axes for v in values)), key=lambda a: a.name))
        full = [np.broadcast_to(v.spread(axes), [len(inner._values(a)) for a in axes]) for v in values]
        keep = tuple(a for a in axes if a not in f.axes)
        full = [np.transpose(x, [axes.index(a) for a in keep + f.axes]).reshape(
            [len(inner._values(a)) for a in keep] + [-1]) for x in full]
        out = fold_values(f.monoid, full, f.part)
        return Named(keep, np.asarray(out).astype(self.numpy(dtype(f))))

    def _with(self, ranges) -> "Meaning":
        v = Meaning.__new__(Meaning)
        v.exact, v.ranges, v.tensors, v.memo = self.exact, ranges, self.tensors, {}
        return v


def fold_values(monoid: str, values: list[np.ndarray], part: int) -> np.ndarray:
    """A fold over the last dimension of each value; over nothing, the monoid's identity (max and min: -inf and inf)."""
    x = values[0]
    floating = np.issubdtype(x.dtype, np.floating) or x.dtype == ml_dtypes.bfloat16
    low = -np.inf if floating else False if x.dtype == np.bool_ else np.iinfo(x.dtype).min
    high = np.inf if floating else True if x.dtype == np.bool_ else np.iinfo(x.dtype).max
    match monoid:
        case "sum": return x.sum(-1, dtype=x.dtype)
        case "prod": return x.prod(-1, dtype=x.dtype)
        case "max": return x.max(-1, initial=low)
        case "min": return x.min(-1, initial=high)
        case "any": return x.any(-1)
        case "all": return x.all(-1)
        case "argmax" | "argmin":
            at = (np.argmax if monoid == "argmax" else np.argmin)(x, -1)
            return at if part == 1 else np.take_along_axis(x, at[..., None], -1)[..., 0]
        case "online":
            m = x.max(-1, initial=-np.inf)
            if part == 0:
                return m
            with np.errstate(all="ignore"):
                safe = np.where(np.isneginf(m), 0, m)[..., None]
                return (np.exp(x - safe) * values[1]).sum(-1, dtype=values[1].dtype)
    raise KeyError(f"no monoid is called {monoid!r}")


def convert(x: np.ndarray, source: Dtype, target: Dtype, as_type) -> np.ndarray:
    """x as another dtype: floats to integers round towards zero, anything to b8 compares with 0."""
    if target == Dtype.b8:
        return x != 0
    if source.is_float and not target.is_float:
        return np.trunc(x.astype(np.float64)).astype(as_type)
    return x.astype(as_type)


def _apply(f, *values: Named) -> Named:
    axes = tuple(sorted(set().union(*(v.axes for v in values)), key=lambda a: a.name))
    return Named(axes, np.asarray(f(*(v.spread(axes) for v in values))))
