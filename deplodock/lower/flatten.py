"""A kernel's loops without what is only notation: the last form that is still Loop IR.

    Flat = axes, outs, views        one nest of launch axes, and the outputs that it stores

Axes that lie one in the other in every access and every predicate become one axis: heads and features of a projection,
batch dimensions, (group, head, feature) of a contraction. Axes of extent 1 are gone, so are dimensions that memory does
not have (stride 0). A load reads a *view* of its buffer, whose dimensions are those that are left; strides come from
the facts about inputs, and are row-major for all else. A fold has one axis (folds over several are nested, the longest
innermost); argmax and argmin carry the index they select as a second body. Every axis has a name of its own that is
an identifier of C, and equal folds stay equal terms.
"""
from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Iterable, Mapping, Protocol

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, FloorDiv, Gathered, Index, Mod, index
from deplodock.ir.loop import (Buffer, Cast, Const, Fold, Iota, Load, Op, PARTS, cast, children, const, dtype, gathers,
                               loads, op, rebuilt, subst, where)
from deplodock.ir.plan import Kernel, Output
from deplodock.ir.term import Term
from deplodock.ir.tile import Param, dense_strides


class Storage(Protocol):
    """What is known of a tensor's memory: strides in elements, one for each dimension of `shape`; bytes of alignment of
    its first element. Hashable; ir.torch.Value is one."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int


Facts = Mapping[str, Storage]
"""Buffer name -> its storage. A buffer that is not here is row-major and aligned to 16 bytes."""


@dataclass(frozen=True, slots=True)
class View:
    """A buffer as loads see it: dimensions, slowest first, and elements from one value of each to the next."""
    param: Param
    dims: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Out:
    """buffer[indices] = body, for all launch axes that the indices name."""
    buffer: Buffer
    indices: tuple[Index, ...]
    body: Term

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(dict.fromkeys(a for i in self.indices for a, _ in i.terms))


@dataclass(frozen=True, slots=True)
class Flat:
    """views: the buffers of loads and outs -> what they view."""
    axes: tuple[Axis, ...]
    outs: tuple[Out, ...]
    views: Mapping[Buffer, View]


def flatten(kernel: Kernel, facts: Facts) -> tuple[Flat, ...]:
    """The parts of a kernel. Outputs over one set of axes share a part; so does one over some of them, if the others
    compute its folds anyway. Outputs without elements are in none."""
    names = {b.name for b in (*kernel.reads, *kernel.writes)}
    return _flattened(kernel.outs, tuple((n, facts[n]) for n in sorted(names) if n in facts))


@lru_cache(maxsize=16)
def _flattened(given: tuple[Output, ...], known: tuple[tuple[str, Storage], ...]) -> tuple[Flat, ...]:
    """The same for each of the schedules that a kernel is lowered with, one after the other."""
    outs, facts = [o for o in given if all(a.extent for a in o.axes)], dict(known)
    groups: list[list[Output]] = []
    for o in sorted(outs, key=lambda o: -len(_axes(o))):
        home = next((g for g in groups if _axes(o) == _axes(g[0])
                     or _axes(o) < _axes(g[0]) and _loops(o) <= _loops(*g)), None)
        if home is None:
            groups.append([o])
        else:
            home.append(o)
    written = {o.buffer.name for o in given}
    return tuple(_Flattening(sorted(g, key=outs.index), facts, written).flat() for g in groups)


def _axes(o: Output) -> frozenset[Axis]:
    return frozenset(a for a in o.axes if a.extent > 1)


def _loops(*outs: Output) -> set[tuple]:
    """What the folds of outputs run over: all parts of an online fold have its scores in common."""
    return {(f.monoid, f.axes, f.bodies[:1] if f.monoid == "online" else f.bodies)
            for f in all_folds(o.body for o in outs)}


def params(kernel: Kernel, facts: Facts) -> tuple[Param, ...]:
    """What the kernel reads, by name, then what it writes, in order."""
    written = {o.buffer.name for o in kernel.outs}
    buffers = [b for b in kernel.reads if b.name not in written] + [o.buffer for o in kernel.outs]
    return tuple(param(b, facts, written) for b in buffers)


def param(buffer: Buffer, facts: Facts, written: Iterable[str]) -> Param:
    storage, shape = facts.get(buffer.name), [a.extent for a in buffer.axes]
    if storage is None:
        return Param(buffer, dense_strides(shape), 16, buffer.name in written)
    return Param(buffer, factored(storage.shape, storage.strides, shape), storage.alignment, buffer.name in written)


def factored(shape: tuple[int, ...], strides: tuple[int, ...], extents: Iterable[int]) -> tuple[int, ...]:
    """Strides for `extents`, which factor the dimensions of `shape` in order. ValueError where they do not."""
    left = [n for n in extents]
    out: list[int] = []
    for n, stride in zip(shape, strides):
        mine: list[int] = []
        while math.prod(mine) < n or (n == 0 and not mine):
            if not left:
                raise ValueError(f"axes {extents} do not factor the dimensions {shape}")
            mine.append(left.pop(0))
        if math.prod(mine) != n:
            raise ValueError(f"axes {extents} do not factor the dimensions {shape}")
        out += [stride * s for s in dense_strides(mine)]
        while left and left[0] == 1:
            out.append(0)
            left.pop(0)
    if any(n != 1 for n in left):
        raise ValueError(f"axes {extents} do not factor the dimensions {shape}")
    return tuple(out + [0] * len(left))


# ---- one part --------------------------------------------------------------------------------------------------------

class _Refused(Exception):
    """Two axes do not lie one in the other everywhere."""


class _Flattening:
    def __init__(self, outs: list[Output], facts: Facts, written: set[str]):
        self.given, self.facts, self.written = outs, facts, written
        self.views: dict[Buffer, View] = {}
        self.memo: dict[Term, Term] = {}

    def flat(self) -> Flat:
        outs = []
        for o in self.given:
            buffer, indices = self.view(o.buffer, tuple(map(index, o.axes)))
            outs.append(Out(buffer, indices, self.body(o.body)))
        axes = tuple(dict.fromkeys(a for o in self.given for a in o.axes if a.extent > 1))
        axes, outs = self.merge_launch(axes, outs)
        self.memo = {}
        outs = [Out(o.buffer, o.indices, self.folds(o.body)) for o in outs]
        return self.named(axes, outs)

    # ---- views ---------------------------------------------------------------------------------------------------

    def view(self, buffer: Buffer, indices: tuple[Index, ...]) -> tuple[Buffer, tuple[Index, ...]]:
        """A buffer without dimensions of extent 1 or stride 0."""
        p = param(buffer, self.facts, self.written)
        kept = [(a.extent, s, i) for a, s, i in zip(buffer.axes, p.strides, indices) if a.extent != 1 and s]
        view = View(p, tuple(n for n, _, _ in kept), tuple(s for _, s, _ in kept))
        return self.viewed(view), tuple(i for _, _, i in kept)

    def viewed(self, v: View) -> Buffer:
        """The buffer that stands for a view. Its dimensions are named by their strides, so that it is one of a kind."""
        axes = tuple(Axis(f"stride{s}", n) for n, s in zip(v.dims, v.strides))
        b = Buffer(v.param.name, v.param.dtype, axes, v.param.buffer.kind)
        self.views[b] = v
        return b

    # ---- folds that are none, views for loads -----------------------------------------------------------------------

    def body(self, t: Term) -> Term:
        if t not in self.memo:
            self.memo[t] = self._body(t)
        return self.memo[t]

    def _body(self, t: Term) -> Term:
        match t:
            case Load(b, indices):
                view, kept = self.view(b, tuple(map(self.index, indices)))
                return Load(view, kept)
            case Iota(i):
                return Iota(self.index(i))
            case Fold(monoid, axes, bodies, part):
                return self.apart(plain_fold(monoid, axes, tuple(map(self.body, bodies)), part))
        return rebuilt(t, map(self.body, children(t)))

    def apart(self, t: Term) -> Term:
        """A new fold over axes with names of their own: in a term, one that is bound may have the name of another."""
        if not isinstance(t, Fold):
            return rebuilt(t, map(self.apart, children(t))) if isinstance(t, (Op, Cast)) else t
        inner = {a.name for f in all_folds(t.bodies) for a in f.axes}
        new = []
        for a in t.axes:
            n = next(n for n in itertools.count() if f"{a.name}#{n}" not in inner)
            new.append(Axis(f"{a.name}#{n}", a.extent))
            inner.add(new[-1].name)
        to = dict(zip(t.axes, map(index, new)))
        return Fold(t.monoid, tuple(new), tuple(subst(b, to) for b in t.bodies), t.part)

    def index(self, i: Index) -> Index:
        out = index(i.const)
        for atom, c in i.terms:
            match atom:
                case FloorDiv(inner, n): part = self.index(inner) // n
                case Mod(inner, n): part = self.index(inner) % n
                case Gathered(b, n): part = index(Gathered(self.body(b), n))
                case _: part = index(atom)
            out = out + part * c
        return out

    # ---- axes that lie one in the other ------------------------------------------------------------------------------

    def merge_launch(self, axes: tuple[Axis, ...], outs: list[Out]) -> tuple[tuple[Axis, ...], list[Out]]:
        for a, b in itertools.permutations(axes, 2):
            whole = Axis(f"{a.name},{b.name}", a.extent * b.extent)
            fuse = _Fuse(self, a, b, whole)
            try:
                merged = [Out(*fuse.access(o.buffer, o.indices), fuse.term(o.body)) for o in outs]
            except _Refused:
                continue
            at = min(axes.index(a), axes.index(b))
            rest = [x for x in axes if x not in (a, b)]
            return self.merge_launch(tuple(rest[:at] + [whole] + rest[at:]), merged)
        return axes, outs

    def folds(self, t: Term) -> Term:
        """Merges the axes of each fold, then nests those that are left."""
        if t not in self.memo:
            if isinstance(t, Fold):
                axes, bodies = self.merge_fold(t.monoid, t.axes, t.bodies)
                self.memo[t] = self.nested(t.monoid, axes, tuple(map(self.folds, bodies)), t.part)
            else:
                self.memo[t] = self.with_gathers(t)
        return self.memo[t]

    def with_gathers(self, t: Term) -> Term:
        """Children, and bodies inside indices, with their folds flattened."""
        match t:
            case Load(b, indices) if any(gathers(indices)):
                return Load(b, tuple(_map_gathered(i, self.folds) for i in indices))
            case Iota(i) if any(gathers((i,))):
                return Iota(_map_gathered(i, self.folds))
        return rebuilt(t, map(self.folds, children(t)))

    def merge_fold(self, monoid: str, axes: tuple[Axis, ...], bodies: tuple[Term, ...]):
        ordered = monoid in ("argmax", "argmin")             # their index counts row-major over the axes
        for a, b in zip(axes, axes[1:]) if ordered else itertools.permutations(axes, 2):
            whole = Axis(f"{a.name},{b.name}", a.extent * b.extent)
            fuse = _Fuse(self, a, b, whole)
            try:
                merged = tuple(map(fuse.term, bodies))
            except _Refused:
                continue
            at = min(axes.index(a), axes.index(b))
            rest = [x for x in axes if x not in (a, b)]
            return self.merge_fold(monoid, tuple(rest[:at] + [whole] + rest[at:]), merged)
        return axes, bodies

    def nested(self, monoid: str, axes: tuple[Axis, ...], bodies: tuple[Term, ...], part: int) -> Term:
        """A fold over several axes as folds over one each, the longest innermost."""
        if monoid in ("argmax", "argmin"):
            place = index(0)
            for a in axes:
                place = place * a.extent + a
            bodies = (bodies[0], Iota(place))
        inner = max(reversed(axes), key=lambda a: a.extent)
        parts = [Fold(monoid, (inner,), bodies, p) for p in range(PARTS[monoid])]
        for a in reversed([x for x in axes if x is not inner]):
            parts = [Fold(monoid, (a,), tuple(parts), p) for p in range(PARTS[monoid])]
        return parts[part]

    # ---- names --------------------------------------------------------------------------------------------------

    def named(self, axes: tuple[Axis, ...], outs: list[Out]) -> Flat:
        taken = {b.name.removesuffix("_0") for b in self.views}      # a tile's origin is called m_0

        def name(a: Axis, avoid: set[str]) -> Axis:
            base = identifier(a.name)
            count = base + "_" if base[-1].isdigit() else base
            free = (n for i in itertools.count() if (n := f"{count}{i}" if i else base) not in avoid)
            return Axis(next(free), a.extent)
        launch: dict[Axis, Index] = {}
        for a in axes:
            new = name(a, taken)
            taken.add(new.name)
            launch[a] = index(new)
        memo: dict[Term, tuple[Term, frozenset[str]]] = {}

        def rename(t: Term) -> tuple[Term, frozenset[str]]:
            """The term with its binders named, and the names of all axes that it binds."""
            if t not in memo:
                memo[t] = _rename(t)
            return memo[t]

        def _rename(t: Term) -> tuple[Term, frozenset[str]]:
            if isinstance(t, (Load, Iota)):
                held = [rename(b) for b in gathers(t.indices if isinstance(t, Load) else (t.index,))]
                change = lambda i: _map_gathered(i, lambda b: rename(b)[0])
                new = Load(t.tensor, tuple(map(change, t.indices))) if isinstance(t, Load) else Iota(change(t.index))
                return (new if held else t), frozenset().union(*(n for _, n in held))
            below = [rename(c) for c in children(t)]
            bound = frozenset().union(*(n for _, n in below))
            new = rebuilt(t, [b for b, _ in below])
            if not isinstance(t, Fold):
                return new, bound
            (old,) = t.axes
            others = {a.name for b, _ in below for a in b.free if a is not old}
            a = name(old, taken | bound | others)
            return Fold(t.monoid, (a,), tuple(subst(b, {old: index(a)}) for b in new.bodies), t.part), bound | {a.name}
        done = [Out(o.buffer, tuple(subst(i, launch) for i in o.indices), subst(rename(o.body)[0], launch))
                for o in outs]
        read = {l.tensor for o in done for l in loads(o.body)} | {o.buffer for o in done}
        return Flat(tuple(i.axis for i in launch.values()), tuple(done), {b: self.views[b] for b in read})


def outer_folds(b: Term) -> list[Fold]:
    """The folds of a body that no other fold of it contains, in order; those inside loaded indices among them."""
    found: dict[Fold, None] = {}
    seen: set[Term] = set()
    stack = [b]
    while stack:
        t = stack.pop()
        if t in seen:
            continue
        seen.add(t)
        match t:
            case Fold(): found[t] = None
            case Load(_, indices): stack += reversed(tuple(gathers(indices)))
            case Iota(i): stack += reversed(tuple(gathers((i,))))
            case _: stack += reversed(children(t))
    return list(found)


def all_folds(bodies: Iterable[Term]) -> list[Fold]:
    """Every fold of the bodies, outer ones first."""
    found: dict[Fold, None] = {}

    def visit(bodies: Iterable[Term]) -> None:
        for b in bodies:
            for f in outer_folds(b):
                if f not in found:
                    found[f] = None
                    visit(f.bodies)
    visit(bodies)
    return list(found)


def identifier(name: str) -> str:
    """The name of an axis, of a class or of several in one, as an identifier: without primes, joined by underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", "_".join(n.split("#")[0].rstrip("'") for n in name.split(",")))


# ---- folds over nothing, and over what does not depend on their axes -------------------------------------------------

def identity(monoid: str, d: Dtype) -> Const:
    """The value of a fold over nothing."""
    low, high = d.extremes
    return const(d, {"sum": 0, "prod": 1, "any": False, "all": True, "max": low, "min": high, "argmax": low,
                     "argmin": high, "online": low}[monoid])


def plain_fold(monoid: str, axes: tuple[Axis, ...], bodies: tuple[Term, ...], part: int) -> Term:
    """A fold in which every axis has more than one value and every body but a constant one depends on it."""
    narrow = dtype(bodies[0])
    if narrow.is_16bit:                                      # maxima and minima: 16-bit values have no arithmetic
        wide = plain_fold(monoid, axes, tuple(cast(Dtype.f32, b) for b in bodies), part)
        return wide if dtype(wide) == Dtype.i64 else cast(narrow, wide)
    if any(a.extent == 0 for a in axes):
        d = dtype(bodies[-1])
        return const(Dtype.i64, 0) if part and monoid != "online" else const(d, 0) if part else identity(monoid, d)
    axes = tuple(a for a in axes if a.extent > 1)
    if not axes:
        return _single(monoid, bodies, part)
    idle = [a for a in axes if a not in bodies[0].free]
    if monoid == "online" and part == 1 and not isinstance(bodies[1], Const) and bodies[1].free.isdisjoint(axes):
        return op("mul", bodies[1], plain_fold(monoid, axes, (bodies[0], const(dtype(bodies[1]), 1)), 1))
    if not idle:
        return Fold(monoid, axes, bodies, part)
    if PARTS[monoid] > 1 or monoid == "prod":
        inside = [op("lt", Iota(index(a)), const(Dtype.i64, a.extent)) for a in idle]
        first = bodies[0]
        for test in inside:
            first = where(test, first, identity(monoid, dtype(first)))
        return Fold(monoid, axes, (first, *bodies[1:]), part)
    rest = tuple(a for a in axes if a not in idle)
    body = Fold(monoid, rest, bodies, part) if rest else bodies[0]
    return op("mul", body, const(dtype(body), math.prod(a.extent for a in idle))) if monoid == "sum" else body


def _single(monoid: str, bodies: tuple[Term, ...], part: int) -> Term:
    if monoid == "online" and part == 1:
        low = identity(monoid, dtype(bodies[0]))
        return where(op("eq", bodies[0], low), const(dtype(bodies[1]), 0), bodies[1])
    return const(Dtype.i64, 0) if part else bodies[0]


# ---- two axes as one -------------------------------------------------------------------------------------------------

class _Fuse:
    """Rewrites terms from axes a (outer) and b (inner) to whole = a * extent(b) + b. _Refused where they do not."""

    def __init__(self, owner: _Flattening, a: Axis, b: Axis, whole: Axis):
        self.owner, self.a, self.b, self.whole = owner, a, b, whole
        self.memo: dict[Term, Term] = {}

    def concerns(self, t: Term) -> bool:
        return self.a in t.free or self.b in t.free

    def term(self, t: Term) -> Term:
        if not self.concerns(t):
            return t
        if t not in self.memo:
            match t:
                case Load(b, indices): self.memo[t] = Load(*self.access(b, indices))
                case Iota(i): self.memo[t] = Iota(self.index(i))
                case _: self.memo[t] = rebuilt(t, map(self.term, children(t)))
        return self.memo[t]

    def access(self, buffer: Buffer, indices: tuple[Index, ...]) -> tuple[Buffer, tuple[Index, ...]]:
        concerned = [n for n, i in enumerate(indices) if self.concerns(i)]
        if not concerned:
            return buffer, indices
        lo, hi = concerned[0], concerned[-1]
        view = self.owner.views[buffer]
        dims, strides = view.dims, view.strides
        dense = all(strides[n] == dims[n + 1] * strides[n + 1] for n in range(lo, hi))
        if hi > lo:
            if not dense or not all(_inside(indices[n], dims[n]) for n in range(lo, hi + 1)):
                raise _Refused
            joined = index(0)
            for n in range(lo, hi + 1):
                joined = joined * dims[n] + indices[n]
            merged = View(view.param, (*dims[:lo], math.prod(dims[lo:hi + 1]), *dims[hi + 1:]),
                          (*strides[:lo], strides[hi], *strides[hi + 1:]))
            buffer, indices = self.owner.viewed(merged), (*indices[:lo], joined, *indices[hi + 1:])
        return buffer, tuple(map(self.index, indices))

    def index(self, i: Index) -> Index:
        if not self.concerns(i):
            return i
        out, outer, inner = index(i.const), 0, 0
        for atom, c in i.terms:
            match atom:
                case Axis():
                    outer, inner = outer + c * (atom is self.a), inner + c * (atom is self.b)
                    part = index(atom) if atom not in (self.a, self.b) else index(0)
                case FloorDiv(x, n): part = self.index(x) // n
                case Mod(x, n): part = self.index(x) % n
                case Gathered(b, n): part = index(Gathered(self.term(b), n))
            out = out + part * c
        if outer != inner * self.b.extent:
            raise _Refused
        return out + index(self.whole) * inner


def _inside(i: Index, extent: int) -> bool:
    lo, hi = i.range
    return lo >= 0 and hi < extent


def _map_gathered(i: Index, f) -> Index:
    """An index with the bodies of its loaded integers replaced."""
    out = index(i.const)
    for atom, c in i.terms:
        match atom:
            case FloorDiv(x, n): part = _map_gathered(x, f) // n
            case Mod(x, n): part = _map_gathered(x, f) % n
            case Gathered(b, n): part = index(Gathered(f(b), n))
            case _: part = index(atom)
        out = out + part * c
    return out
