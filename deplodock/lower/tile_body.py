"""Expressions: a body becomes a register tile in the layout that its reader wants, at the outermost level that can.

Reads stay inside tensors by themselves: an access is guarded along every dimension that its index is not known to stay
in, and by the condition of a `where` that makes zeros of what is not read.
"""
from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import Iterable

import numpy as np

from deplodock.errors import IndexOutOfRange
from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, FloorDiv, Gathered, Index, Mod, index
from deplodock.ir.layout import Layout
from deplodock.ir.loop import Cast, Const, Fold, Iota, Load, Op, RoundTo, children, const, dtype, gathers
from deplodock.ir.meaning import NUMPY, convert
from deplodock.ir.ops import OPS
from deplodock.ir.term import Term
from deplodock.ir.tile import (Access, Check, Compare, Convert, Coord, Copy, Exchange, IndexTile, LoadGlobal,
                               LoadShared, Map, Mask, Predicate, Reg, SharedTile, Slice)
from deplodock.lower.box import box
from deplodock.lower.flatten import outer_folds
from deplodock.lower.layout import widened
from deplodock.lower.ranges import int_range
from deplodock.lower.structure import affine, negated, slack
from deplodock.lower.tile_scope import Scope


def lower(s: Scope, b: Term, layout: Layout, stage: bool = False) -> Reg | Const:
    """The value of a body, laid out as `layout` without the axes that it lacks. stage: through shared memory."""
    if isinstance(b, Const):
        return b
    layout = layout.project(s.tiled(b.free))
    key = (b, layout, s.guards)
    known = s.find(key)
    if known is not None:
        return known
    used, folds = {a.name for a in needs(s, b)}, [result(s, f) for f in outer_folds(b)]
    home = max(n for n, lv in enumerate(s.levels)
               if n == 0 or lv.binds in used or any(f in lv.memo for f, _ in folds))
    inner, s.levels = s.levels, s.levels[:home + 1]
    value = _made(s, b, layout, stage)
    s.levels[-1].memo[key] = value
    s.levels = inner
    return value


def needs(s: Scope, b: Term) -> frozenset[Axis]:
    """The axes that a body depends on, those of the guards of its reads among them."""
    return b.free.union(*(i.free for g in s.guards for i in (g.left, g.right)))


def result(s: Scope, f: Fold) -> tuple[Fold, Axis | None]:
    """The fold whose result serves for this one, and the axis along which it is this one's mirror image."""
    return s.mirrors.get(f, (f, None))


def _made(s: Scope, b: Term, layout: Layout, stage: bool) -> Reg | Const:
    match b:
        case Load() if b.tensor in s.locals:
            return fit(s, s.locals[b.tensor], layout)
        case Load():
            return load(s, b, layout, stage)
        case Fold():
            f, axis = result(s, b)
            value = s.find(f)
            if axis is not None:
                made = s.reg("mirror", value.dtype, value.layout)
                s.emit(Exchange(made, value, axis.name))
                value = made
            return fit(s, value, layout)
        case Iota(i):
            made = s.reg("at", Dtype.i64, layout)
            i, loaded = gathered(s, i, layout)
            s.emit(IndexTile(made, i, s.coords(i.free) + loaded))
            return made
        case Op("where", (p, a, other)):
            return _where(s, b, affine(p), p, a, other, layout, stage)
        case Op() if conditions := affine(b):
            if not any(gathers(i for c in conditions for i in (c.left, c.right))):
                made = s.reg(b.name, Dtype.b8, layout)
                s.emit(Predicate(made, conditions, s.coords(b.free)))
                return made
    args = tuple(lower(s, x, layout, stage) for x in children(b))
    if all(isinstance(x, Const) for x in args):
        return folded(b, args)
    match b:
        case Op(name):
            made = s.reg(name, dtype(b), layout)
            s.emit(Map(made, name, args))
        case Cast(d):
            made = s.reg("c", d, layout)
            s.emit(Map(made, "copy", args))
        case RoundTo(d):
            made = s.reg("rounded", dtype(b), layout)
            s.emit(Map(made, "round", args, d))
        case _:
            raise TypeError(f"{type(b).__name__} is no body of a kernel")
    return made


def folded(b: Term, args: tuple[Const, ...]) -> Const:
    """The value of an operator on literals, rounded to its dtype."""
    with np.errstate(all="ignore"):
        values = [np.array(a.value, dtype=NUMPY[a.dtype]) for a in args]
        match b:
            case Op(name): value = OPS[name].numpy(*values)
            case Cast(d): value = convert(values[0], args[0].dtype, d, NUMPY[d])
            case RoundTo(d): value = values[0].astype(NUMPY[d])
    return const(dtype(b), np.asarray(value).astype(NUMPY[dtype(b)]).item())


def _where(s: Scope, b: Term, conditions, p: Term, a: Term, other: Term, layout: Layout, stage: bool) -> Reg | Const:
    if is_padded(b) and set(s.tiled(p.free)) <= set(s.tiled(a.free)):
        with guarded(s, conditions):
            return lower(s, a, layout, stage)                    # what is not read is zero
    if conditions and any(gathers(i for c in conditions for i in (c.left, c.right))):
        conditions = None
    if conditions and not isinstance(other, Const) and isinstance(a, Const) and len(conditions) == 1:
        conditions, a, other = (negated(conditions[0]),), other, a
    if conditions and isinstance(other, Const):
        conditions = tuple(c for c in conditions if not _certain(s, c, a))
        if not conditions:
            return lower(s, a, layout, stage)
        made = s.reg("masked", dtype(b), layout)
        s.emit(Mask(made, lower(s, a, layout, stage), conditions, other, s.coords(p.free), whole(s, conditions)))
        return made
    args = tuple(lower(s, x, layout, stage) for x in (p, a, other))
    if isinstance(args[0], Const):
        return args[1] if args[0].value else args[2]
    made = s.reg("where", dtype(b), layout)
    s.emit(Map(made, "where", args))
    return made


def whole(s: Scope, conditions: tuple[Compare, ...]) -> tuple[Compare, ...]:
    """What a block can test to know that the conditions hold everywhere in its tile; nothing if it cannot."""
    least = [s.least(i) if (i := slack(c)) is not None else None for c in conditions]
    if any(i is None or i.range[1] < 0 for i in least):
        return ()
    return tuple(Compare("le", index(0), i) for i in least)


def _certain(s: Scope, c: Compare, value: Term) -> bool:
    """Whether a condition holds in every tile, and the value is laid out along its axes without it."""
    room = slack(c)
    least = s.least(room) if room is not None else None
    return least is not None and least.range[0] >= 0 and set(s.tiled(room.free)) <= set(s.tiled(value.free))


# ---- masks of reads --------------------------------------------------------------------------------------------------

def is_padded(b: Term) -> bool:
    """A load that is zero outside of affine bounds, over axes of its own: the guard of the read says it all."""
    return _padded(b) is not None


def _padded(b: Term) -> Load | None:
    """The load that is padded, if b is one."""
    match b:
        case Op("where", (p, a, Const(_, 0))):
            conditions, read = affine(p), a if isinstance(a, Load) else _padded(a)
            if conditions and read is not None and p.free <= read.free and not any(
                    gathers(i for c in conditions for i in (c.left, c.right))):
                return read
    return None


@contextmanager
def guarded(s: Scope, conditions: tuple[Compare, ...]):
    """Within it, nothing is read where the conditions fail."""
    before = s.guards
    s.guards = (*before, *(c for c in conditions if c not in before))
    yield
    s.guards = before


@contextmanager
def unguarded(s: Scope):
    """Within it, all is read that is there."""
    before, s.guards = s.guards, ()
    yield
    s.guards = before


def bounds(s: Scope, dims: Iterable[int], indices: Iterable[Index]) -> tuple[Compare, ...]:
    """Guards for the dimensions that an index may leave, beside those that hold already."""
    out = []
    for n, i in zip(dims, indices):
        lo, hi = i.range
        out += [Compare("le", index(0), i)] if lo < 0 else []
        out += [Compare("lt", i, index(n))] if hi >= n else []
    return tuple(c for c in out if c not in s.guards)


# ---- tiles that exist, loads -----------------------------------------------------------------------------------------

def fit(s: Scope, a: Reg | Const, layout: Layout) -> Reg | Const:
    """A tile that exists, in the layout wanted: itself, some of its registers, or a trip through shared memory."""
    if isinstance(a, Const) or a.layout == layout:
        return a
    if not a.layout.holds(layout):
        a = _converted(s, a, widened(layout, a.layout))
    if a.layout == layout:
        return a
    made = s.reg("slice", a.dtype, layout)
    s.emit(Slice(made, a, tuple((x, s.bind[x].off) for x in s.order if x in a.layout.axes)))
    return made


def _converted(s: Scope, a: Reg, layout: Layout) -> Reg:
    """A tile in another layout, for all slices of a chunk at once: they are made by the same statements, one by one."""
    home = next(lv for lv in s.levels if lv.stmts is s.levels[-1].stmts)
    if (a, layout) not in home.memo:
        home.memo[a, layout] = s.reg("t", a.dtype, layout)
        s.emit(Convert(home.memo[a, layout], a))
    return home.memo[a, layout]


def gathered(s: Scope, i: Index, layout: Layout | None) -> tuple[Index, tuple[Coord, ...]]:
    """An index with an axis in place of each loaded integer, and the coordinates of these axes.

    The integers are checked against their extents, unless they cannot leave them, and nothing is read where they are
    outside. layout: None where no
    registers may be needed.
    """
    out, coords = index(i.const), []
    for atom, c in i.terms:
        match atom:
            case Gathered(body, n):
                s.require(layout is not None, "a tile that is read at a loaded index is not staged in shared memory")
                with unguarded(s):                   # an index counts where what it selects is masked as well
                    value = lower(s, body, layout)
                known = int_range(body)
                if isinstance(value, Const) or known[0] == known[1]:
                    part = index(int(value.value if isinstance(value, Const) else known[0]))
                    if not 0 <= part.const < n:
                        raise IndexOutOfRange(found=f"index {part.const} is out of range for a dimension of {n}")
                else:
                    axis = Axis(f"{value.name}[]", n + 1)            # never of extent 1, which would be index 0
                    if not (0 <= known[0] and known[1] < n or s.find(("checked", value, n))):
                        s.emit(Check(value, n, s.coords(body.free)))
                        s.levels[-1].memo["checked", value, n] = True
                    coords.append(Coord(axis, index(0), 0, None, value))
                    part = index(axis)
            case FloorDiv(x, n):
                x, more = gathered(s, x, layout)
                part, coords = x // n, coords + list(more)
            case Mod(x, n):
                x, more = gathered(s, x, layout)
                part, coords = x % n, coords + list(more)
            case _:
                part = index(atom)
        out = out + part * c
    return out, tuple(dict.fromkeys(coords))


def access(s: Scope, buffer: Term, indices: tuple[Index, ...], layout: Layout | None) -> Access:
    """Where a tile of a buffer lies. layout: of the registers it is read into; None for a copy to shared memory."""
    view = s.flat.views[buffer]
    plain, loaded = [], ()
    for i in indices:
        i, coords = gathered(s, i, layout)
        plain.append(i)
        loaded += coords
    element = index(0)
    for i, stride in zip(plain, view.strides):
        element = element + i * stride
    inside = [g for c in loaded for g in (Compare("le", index(0), index(c.axis)),
                                          Compare("lt", index(c.axis), index(c.axis.extent - 1)))]
    guards = tuple(dict.fromkeys((*s.guards, *inside, *bounds(s, view.dims, plain))))
    # Axes that only a loaded index depends on are among them: past their end there is no element either.
    own = element.free.union(*(i.free for i in (*plain, *indices)), *(i.free for g in guards for i in (g.left, g.right)))
    coords = s.coords(own) + tuple(dict.fromkeys(loaded))
    return Access(view.param, element, coords, guards, view.dims, view.strides, tuple(plain))


def load(s: Scope, b: Load, layout: Layout, stage: bool) -> Reg:
    tile = s.stashed.get(b.tensor) or (staged(s, b) if stage else None)
    if tile:
        made = s.reg(f"{b.tensor.name}_r", b.tensor.dtype, layout)
        s.emit(LoadShared(made, tile, offsets(s, b)))
    else:
        at = access(s, b.tensor, b.indices, layout)
        made = s.reg(f"{b.tensor.name}_r", b.tensor.dtype, layout)
        s.emit(LoadGlobal(made, at))
    return made


def offsets(s: Scope, b: Term) -> tuple[tuple[str, int], ...]:
    """Where the tile at hand lies in the tile that is staged."""
    return tuple((a, s.bind[a].off) for a in s.tiled(b.free))


def staged(s: Scope, b: Load, columns: str | None = None) -> SharedTile | None:
    """The shared tile that the innermost loop over one of b's axes keeps filled; None if b is no matrix here.

    columns: the axis that is contiguous in shared memory where memory has none that is.
    """
    names = s.tiled(b.free)
    if len(names) < 2 or any(gathers(b.indices)):
        return None
    at = access(s, b.tensor, b.indices, None)
    near = [a for a in names if at.step(a) == 1]
    if len(near) != 1 and columns is None:
        return None
    column = near[0] if len(near) == 1 else columns
    used = {a.name for a in needs(s, b)}
    home = next(lv for lv in reversed(s.levels) if lv is s.levels[0] or lv.axis and lv.axis in used)
    tiles = tuple(s.bind[a].tile for a in names)
    key = (b, s.guards, tiles)
    if key not in home.shared:
        size, d = b.tensor.dtype.bytes, b.tensor.dtype
        rows, width = tuple(a for a in names if a != column), s.bind[column].tile * size
        wide = s.knobs.atom == "wgmma" and d.is_16bit or s.knobs.copy == "tma" and width >= 128
        panels = 128 if wide and width % 128 == 0 else 0
        shape = s.matrix(rows, column, size, panels)
        tile = SharedTile(s.name(f"{b.tensor.name}_s"), d, shape, s.knobs.stages if home.axis else 1)
        at = replace(at, coords=tuple(replace(c, off=0) for c in at.coords))
        home.copies.append(Copy(tile, at, box(at, shape, s.bind) if s.knobs.copy == "tma" else None))
        home.shared[key] = tile
    return home.shared[key]
