"""Folds: which loops there are at a level, what runs in them, and what comes out.

    evaluate(bodies)     the folds that bodies need, group by group of siblings
    loop(group)          one loop over their common axis, or none where one tile holds it
    slices(items)        acc = acc (monoid) fold of the body over the chunk; products in steps along k

Sums of f32 that run long are taken in partial sums of PARTIAL terms, promoted into a second accumulator: one running sum
over thousands of terms is not as accurate as promised.
"""
from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from deplodock.ir.dtype import Dtype
from deplodock.ir.layout import Layout, Shared
from deplodock.ir.loop import (Axis, Buffer, Cast, Const, Fold, Index, Iota, Load, Op, Term, cast, const, dtype, index, loads,
                               op, subst, where)
from deplodock.ir.tile import (Assign, Combine, Fill, For, Map, Mma, MmaCommit, MmaFence, MmaWait, Operand, Promote, Reduce, Reg,
                               SharedTile, StoreShared, origin)
from deplodock.lower.flatten import identity
from deplodock.lower.layout import copy_layout
from deplodock.lower.structure import affine, limits, outer_folds, product, siblings, slack
from deplodock.lower.tile_body import guarded, is_padded, lower, offsets, staged
from deplodock.lower.tile_scope import K_STEP, Bound, Level, Roles, Scope, flipped

PARTIAL = 64
"""Terms of a partial sum; a sum of up to twice as many is not divided."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A product under the schedule at hand: its operands, and the tiled axes of its rows and columns."""
    left: Term | None
    right: Term
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    dtype: Dtype | None


@dataclass
class Item:
    """What a loop accumulates for one fold, or for all parts of one: `folds` are the results that it gives."""
    folds: dict[Fold, int]
    monoid: str
    bodies: tuple[Term, ...]
    plan: Plan | None
    accs: tuple[Reg, ...] = ()
    part: Reg | None = None
    layout: Layout | None = None
    """Of a tile of elements."""
    turns: int = 1
    """Slices of a chunk, which idle warps take in turns."""


def evaluate(s: Scope, bodies) -> None:
    """Emits the folds that bodies need at this level; their results are then in its memo."""
    for group in siblings(bodies, s.flat.classes, lambda f: s.find(f) is not None, partial(_same, s)):
        loop(s, group)


def roles_of(s: Scope, bodies) -> Roles | None:
    """Rows and columns of the first product in bodies: what tiles behind it are laid out for."""
    folds = [f for b in bodies for f in outer_folds(b)]
    for f in folds:
        if p := plan(s, f):
            return Roles(p.rows, p.columns, None)
    return roles_of(s, [b for f in folds for b in f.bodies]) if folds else None


def plan(s: Scope, f: Fold) -> Plan | None:
    """How a fold is a product of the schedule's atom over the tiles at hand, or None."""
    p = product(f) if s.knobs.atom != "none" else None
    if p is None:
        return None
    rows, columns = s.tiled(p.rows), s.tiled(p.columns)
    both = (f.bodies[0] if p.left is None else p.left).free & p.right.free - set(f.axes)
    if not rows or not columns or s.tiled(both):
        return None
    if (p.dtype is None) if s.knobs.atom != "fma" else dtype(f) not in (Dtype.f32, Dtype.f64):
        return None
    if p.left is not None and s.order.index(columns[0]) < s.order.index(rows[0]):
        return Plan(p.right, p.left, columns, rows, p.dtype)
    return Plan(p.left, p.right, rows, columns, p.dtype)


def _same(s: Scope, f: Fold) -> Fold:
    """The fold that is computed in place of f: f, or its mirror image along an axis that a tile holds whole."""
    if f not in s.mirrors:
        best = (len(_backwards(f)), f.key, f, None)
        for p in sorted(_backwards(f)):
            if p.extent == 2 and p.name in s.bind and s.bind[p.name].span == 2:
                g = flipped(f, p)
                best = min(best, (len(_backwards(g)), g.key, g, p), key=lambda b: b[:2])
        s.mirrors[f] = best[2:]
    return s.mirrors[f][0]


def _backwards(f: Fold) -> frozenset[Axis]:
    """The axes outside of a fold that it reads backwards."""
    return frozenset(a for l in loads(f) for i in l.indices for a, c in i.terms if isinstance(a, Axis) and c < 0) & f.free


# ---- a loop ----------------------------------------------------------------------------------------------------------

def loop(s: Scope, group: list[Fold]) -> None:
    """One loop over the common axis of sibling folds, or no loop, where one tile holds the axis."""
    axis = group[0].axes[0]
    folds = {f: _under(f, axis) for f in group}
    spread = s.spreads[axis.name].span
    unit = max(spread, K_STEP if s.knobs.atom in ("mma", "wgmma") and any(product(f) for f in group) else 1)
    tile = s.knobs.of("tile", axis.name, -(-axis.extent // unit) * unit)
    s.require(tile > 0 and tile % spread == 0,
              f"tile.{axis.name} = {tile} is no multiple of {spread} = vec x lanes x warps of {axis.name}")
    whole = tile >= axis.extent
    s.order.append(axis.name)
    s.bind[axis.name] = Bound(axis, index(0) if whole else index(origin(axis)), tile, 0, tile)
    items = _items(s, folds)
    twin = _twin(s, group, axis) if whole and not any(i.plan for i in items) else None
    if twin:                                             # the axis of the launch tile: same coordinates, so loads are shared
        s.order.remove(axis.name)
        del s.bind[axis.name]
        axis = twin
        items = _items(s, {f: _under(f, axis) for f in group})
    planned = next((i.plan for i in items if i.plan), None)
    roles = _roles(s, planned, axis) if planned else roles_of(s, [b for f in folds.values() for b in f.bodies])
    outer, atom = s.levels[-1], s.knobs.atom
    inner = Level(outer.stmts if whole else [], None if whole else axis.name, None if twin else axis.name,
                  outer.memo if twin else {})
    fresh = whole and atom == "wgmma"
    for item in items:
        _start(s, item, axis, roles, fresh)
    s.levels.append(inner)
    sums, onlines = [i for i in items if i.monoid != "online"], [i for i in items if i.monoid == "online"]
    # An operand that is computed into registers is overwritten by the next chunk: its products end with their own chunk.
    held = any(i.plan and not (_in_memory(i.plan.left) and _in_memory(i.plan.right)) for i in sums)
    lag = int(atom == "wgmma" and not whole and not held and not onlines and planned is not None)
    if sums:
        slices(s, axis, sums, roles, lag, fresh)
    for item in onlines:
        online(s, item, axis, roles)
    _promote(s, sums, axis, tile)
    s.levels.pop()
    if not whole:
        lo, hi = _range(s, group[0], axis)
        s.require(not inner.copies or s.knobs.stages >= 2 + lag,
                  f"a ring of {s.knobs.stages} stages: it has one to use, one to fill, and one while products are in flight")
        s.emit(For(origin(axis), lo, hi, tile, s.knobs.stages if inner.copies else 1, tuple(inner.copies), tuple(inner.stmts), lag))
        if lag:
            s.emit(MmaWait(0, tuple(i.accs[0] for i in items if i.plan)))
    for item in items:
        _finish(s, item, axis, outer)
    if not twin:
        s.order.remove(axis.name)
        del s.bind[axis.name]


def _under(f: Fold, axis: Axis) -> Fold:
    """A fold over another axis of the same class."""
    (old,) = f.axes
    if old is axis:
        return f
    return Fold(f.monoid, (axis,), tuple(subst(b, {old: index(axis)}) for b in f.bodies), f.part)


def _twin(s: Scope, group: list[Fold], axis: Axis) -> Axis | None:
    """A launch axis of the same class whose tile is whole, so that a tile over it serves for one over the fold's axis."""
    for a in s.flat.axes:
        b = s.bind[a.name]
        if (a.extent == axis.extent and s.flat.classes[a.name] == s.flat.classes[axis.name] and b.base.is_const
                and b.tile >= a.extent and not any(a in f.free for f in group)):
            return a
    return None


def _items(s: Scope, folds: dict[Fold, Fold]) -> list[Item]:
    """Siblings, the parts of one fold together: those of one online fold have its scores in common."""
    items: dict[tuple, Item] = {}
    for given, f in folds.items():
        match f.monoid:
            case "online":
                item = items.setdefault(("online", f.bodies[0]), Item({}, "online", (f.bodies[0],), None))
                if f.part == 0:
                    item.folds[given] = 0
                else:
                    if f.bodies[1] not in item.bodies[1:]:
                        item.bodies += (f.bodies[1],)
                    item.folds[given] = item.bodies.index(f.bodies[1], 1)
                    item.plan = item.plan or plan(s, f)
            case "argmax" | "argmin":
                items.setdefault((f.monoid, f.bodies), Item({}, f.monoid, f.bodies, None)).folds[given] = f.part
            case _:
                items[given,] = Item({given: 0}, f.monoid, f.bodies, plan(s, f))
    return list(items.values())


def _roles(s: Scope, p: Plan, k: Axis) -> Roles:
    def along(b: Term | None) -> bool:
        return b is None or any(_step(s, l, k) == 1 for l in loads(b) if l.tensor in s.flat.views)
    return Roles(p.rows, p.columns, k.name, (along(p.left), along(p.right)))


def _step(s: Scope, l: Load, k: Axis) -> int:
    """Elements from one value of k to the next, for an axis outside of divisions."""
    return sum(c * stride for i, stride in zip(l.indices, s.flat.views[l.tensor].strides) for a, c in i.terms if a is k)


def _in_memory(b: Term | None) -> bool:
    """Whether an operand can be read from shared memory as it is."""
    if b is None:
        return False
    x = b.body if isinstance(b, Cast) else b
    return isinstance(x, Load) or is_padded(x)


def _range(s: Scope, f: Fold, axis: Axis) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
    """The rows of a tile may agree that the body is the identity before some value of the axis, or from some value on."""
    lo, hi = [index(0)], [index(axis.extent)]
    for p in limits(_under(f, axis)):
        for c in affine(p):
            i = slack(c)
            coefficient = dict(i.terms).get(axis, 0) if i is not None else 0
            rest = s.greatest(i - index(axis) * coefficient) if coefficient else None
            if rest is None:
                continue
            if coefficient < 0:
                hi.append(rest // -coefficient + 1)
            else:
                lo.append(-(rest // coefficient))
    return tuple(dict.fromkeys(lo)), tuple(dict.fromkeys(hi))


# ---- accumulators ----------------------------------------------------------------------------------------------------

def _start(s: Scope, item: Item, axis: Axis, roles: Roles | None, fresh: bool) -> None:
    free = frozenset().union(*(b.free for b in (item.bodies[:1] if item.monoid == "online" else item.bodies)))
    item.layout = s.frame(free | {axis}, roles)
    rest = item.layout.project(s.tiled(free - {axis}))
    if item.monoid == "online":
        _start_online(s, item, axis, roles, rest)
    elif item.monoid in ("argmax", "argmin"):
        value = dtype(item.bodies[0])
        item.accs = (s.reg("best", value, rest), s.reg("place", Dtype.i64, rest))
        s.emit(Fill(item.accs[0], identity(item.monoid, value)))
        s.emit(Fill(item.accs[1], const(Dtype.i64, 0)))
    else:
        d = dtype(item.bodies[0])
        names = (*item.plan.rows, *item.plan.columns) if item.plan else ()
        behind = replace(roles, k=None) if roles else None
        layout = s.frame([s.bind[a].axis for a in names], behind) if item.plan else rest
        item.accs = (s.reg("acc", d, layout),)
        s.emit(Fill(item.accs[0], None if fresh and item.plan else identity(item.monoid, d)))
        if _divided(s, item, axis):
            item.part = s.reg("part", d, layout)
            s.emit(Fill(item.part, identity("sum", d)))


def _divided(s: Scope, item: Item, axis: Axis) -> bool:
    """Whether a sum is taken in partial sums: an outer product over all of k, any other sum over the rounds of its loop."""
    if item.monoid != "sum" or dtype(item.bodies[0]) != Dtype.f32 or (item.plan and s.knobs.atom != "fma"):
        return False
    return (axis.extent if item.plan else -(-axis.extent // s.bind[axis.name].tile)) > 2 * PARTIAL


def _promote(s: Scope, items: list[Item], axis: Axis, tile: int) -> None:
    """At the end of a round: partial sums of so many rounds are complete."""
    for item in items:
        if item.part and not _promoted_inside(item, tile):
            every = PARTIAL // tile if item.plan else PARTIAL
            s.emit(Promote(item.accs[0], item.part, origin(axis), tile, every))


def _promoted_inside(item: Item, tile: int) -> bool:
    """Whether a chunk holds whole partial sums of a product."""
    return item.plan is not None and tile >= PARTIAL


def _finish(s: Scope, item: Item, axis: Axis, outer: Level) -> None:
    """Behind the loop: what threads hold of a result is joined."""
    if item.part and not _promoted_inside(item, s.bind[axis.name].tile):
        s.emit(Promote(item.accs[0], item.part))
    lanes = tuple(i for i, b in enumerate(item.layout.lane) if b and b[0] == axis.name)
    warps = tuple(i for i, b in enumerate(item.layout.warp) if b and b[0] == axis.name) + spare(item.layout, item.turns)
    if item.monoid == "online":
        _finish_online(s, item, axis, lanes, warps, outer)
        return
    if not item.plan and (lanes or warps):
        s.emit(Combine(item.accs, item.monoid, axis.name, lanes, warps))
    for f, part in item.folds.items():
        outer.memo[f] = item.accs[part]


def spare(layout: Layout, slices_: int) -> tuple[int, ...]:
    """Warp bits that would only hold copies of a folded tile: the slices of the axis are dealt out over them instead."""
    return tuple(i for i, b in enumerate(layout.warp) if b is None)[:slices_.bit_length() - 1]


# ---- what runs in a loop ---------------------------------------------------------------------------------------------

@contextmanager
def narrowed(s: Scope, axis: Axis, off: int, step: int):
    """Within it, the axis means a slice of the chunk."""
    chunk, level = s.bind[axis.name], s.levels[-1]
    s.bind[axis.name] = replace(chunk, off=off, span=step)
    s.levels.append(Level(level.stmts, None, None, level.memo) if step == chunk.tile else Level(level.stmts, None, axis.name))
    yield
    s.levels.pop()
    s.bind[axis.name] = chunk


def slices(s: Scope, axis: Axis, items: list[Item], roles: Roles | None, lag: int = 0, fresh: bool = False) -> None:
    """acc = acc (monoid) fold of the body over the chunk, for all items, slice by slice where one is a product."""
    if s.knobs.atom == "wgmma" and any(i.plan for i in items):
        _async_slices(s, axis, items, roles, lag, fresh)
        return
    evaluate(s, [b for i in items for b in i.bodies])    # folds inside: once a chunk, whatever the slices
    tile, step = s.bind[axis.name].tile, _step_of(s, axis, items)
    operands = {id(i): _operands(s, i, axis) for i in items if i.plan}
    for off in range(0, tile, step):
        with narrowed(s, axis, off, step):
            for i in items:
                if i.plan:
                    _multiply(s, i, axis, roles, *operands[id(i)])
                else:
                    _reduce(s, i, axis, roles, off // step, tile // step)
        if (off + step) % PARTIAL == 0 or off + step == tile:
            for i in items:
                if i.part and _promoted_inside(i, tile):
                    s.emit(Promote(i.accs[0], i.part))


def _step_of(s: Scope, axis: Axis, items: list[Item]) -> int:
    """Elements of the axis that are taken at once: one step of a product, or the whole chunk."""
    tile = s.bind[axis.name].tile
    products = [i for i in items if i.plan]
    if not products:
        return tile
    step = K_STEP if s.knobs.atom != "fma" else 16 // dtype(products[0].bodies[-1]).bytes
    s.require(tile % step == 0, f"tile.{axis.name} = {tile} is no multiple of {step}, one step of {s.knobs.atom}")
    return step


def _reduce(s: Scope, item: Item, axis: Axis, roles: Roles | None, turn: int, turns: int) -> None:
    layout = s.frame(frozenset().union(*(b.free for b in item.bodies)) | {axis}, roles)
    first = lower(s, masked(s, item.bodies[0], item.monoid, axis), layout, stage=bool(roles))
    rest = tuple(lower(s, b, layout, stage=bool(roles)) for b in item.bodies[1:])
    item.turns = turns
    on = tuple((w, turn >> i & 1) for i, w in enumerate(spare(layout, turns)))
    s.emit(Reduce((item.part,) if item.part else item.accs, item.monoid, (first, *rest), on))


def _operands(s: Scope, item: Item, axis: Axis) -> tuple[Term, Term]:
    """The factors of a product as it takes them: 16 bits wide, or, in registers, through a shared tile where computed."""
    left, right = item.plan.left, item.plan.right
    if s.knobs.atom != "fma":
        return masked(s, left.body, "sum", axis), masked(s, right.body, "sum", axis)
    return stash(s, left, item.plan.rows, axis), stash(s, right, item.plan.columns, axis)


def _multiply(s: Scope, item: Item, axis: Axis, roles: Roles, left: Term, right: Term) -> None:
    rows, columns = ([s.bind[x].axis for x in (*group, axis.name)] for group in (item.plan.rows, item.plan.columns))
    a = lower(s, left, s.frame(rows, roles), stage=True)
    b = lower(s, right, s.frame(columns, roles), stage=True)
    s.emit(Mma(item.part or item.accs[0], a, b, s.knobs.atom, axis.name))


def _async_slices(s: Scope, axis: Axis, items: list[Item], roles: Roles, lag: int, fresh: bool) -> None:
    """With wgmma: register operands first, then all products of the chunk in flight, then what runs beside them."""
    products, beside = [i for i in items if i.plan], [i for i in items if not i.plan]
    evaluate(s, [b for i in products for b in i.bodies])
    tile, step, mmas = s.bind[axis.name].tile, _step_of(s, axis, items), []
    operands = [_operands(s, i, axis) for i in products]
    for off in range(0, tile, step):
        with narrowed(s, axis, off, step):
            for i, (left, right) in zip(products, operands):
                rows, columns = ([s.bind[x].axis for x in (*group, axis.name)] for group in (i.plan.rows, i.plan.columns))
                a, b = _source(s, left, rows, roles), _source(s, right, columns, roles)
                s.require(isinstance(b, Operand), "the right factor of a wgmma is computed, or not contiguous: it must be read "
                                                  "from shared memory")
                mmas.append(Mma(i.accs[0], a, b, "wgmma", axis.name, fresh and off == 0))
    accs = tuple(dict.fromkeys(m.acc for m in mmas))
    for stmt in (MmaFence(() if fresh else accs), *mmas, MmaCommit()):
        s.emit(stmt)
    if beside:
        evaluate(s, [b for i in beside for b in i.bodies])
        for off in range(0, tile, step):
            with narrowed(s, axis, off, step):
                for i in beside:
                    _reduce(s, i, axis, roles, off // step, tile // step)
    s.emit(MmaWait(lag, accs))


def _source(s: Scope, b: Term, axes: list[Axis], roles: Roles) -> Reg | Operand:
    """An operand of wgmma: part of a shared tile where it is in memory, else registers."""
    layout = s.frame(axes, roles)
    if is_padded(b):
        with guarded(s, affine(b.args[0])):
            return _source(s, b.args[1], axes, roles)
    if isinstance(b, Load) and b.tensor not in s.locals:
        tile = staged(s, b)
        if tile:
            s.require(tile.shape.panels == 128, f"a row of {b.tensor.name}'s tile is no multiple of 128 bytes, as wgmma reads it")
            return Operand(tile, offsets(s, b), layout)
    return lower(s, b, layout)


def stash(s: Scope, b: Term, group: tuple[str, ...], axis: Axis) -> Term:
    """A factor that is computed goes through a shared tile, once a chunk, so that threads need not compute it each."""
    if _in_memory(b) and not (isinstance(b, Load) and b.tensor in s.locals):
        return b
    bounds = [s.bind[a] for a in (*group, axis.name)]
    shape = Shared(group, tuple(x.tile for x in bounds[:-1]), axis.name, bounds[-1].tile, dtype(b).bytes)
    layout = copy_layout(shape, 16 // shape.size, s.warp_bits)
    if any(layout.extent(x.axis.name) != x.tile for x in bounds):
        layout = s.frame([x.axis for x in bounds], None)
    if isinstance(b, Load):
        layout = s.locals[b.tensor].layout
    value = lower(s, masked(s, b, "sum", axis), layout, stage=True)
    tile = SharedTile(s.name("computed"), dtype(b), shape, 1)
    s.emit(StoreShared(tile, value))
    return _leaf(s.stashed, tile, dtype(b), [x.axis for x in bounds])


def _leaf(known: dict, value: Reg | SharedTile, d: Dtype, axes: list[Axis]) -> Load:
    """A term that stands for a tile that exists."""
    buffer = Buffer(value.name, d, tuple(axes), "stored")
    known[buffer] = value
    return Load(buffer, tuple(map(index, axes)))


def masked(s: Scope, b: Term, monoid: str, axis: Axis) -> Term:
    """Elements past the end of a ragged axis are the monoid's identity; a load is zero there by itself."""
    x = s.bind[axis.name]
    if not x.ragged or (monoid == "sum" and _vanishes(b, axis)):
        return b
    none = const(dtype(b), 0) if monoid == "sum" else identity("max" if monoid == "online" else monoid, dtype(b))
    return where(op("lt", Iota(index(axis)), const(Dtype.i64, axis.extent)), b, none)


def _vanishes(b: Term, axis: Axis) -> bool:
    """Whether a body is zero where the reads beyond the end of an axis are."""
    match b:
        case Load(): return axis in b.free
        case Cast(_, x): return _vanishes(x, axis)
        case Op("mul", (x, y)):
            return _vanishes(x, axis) and (_vanishes(y, axis) or isinstance(y, Const)) or isinstance(x, Const) and _vanishes(y, axis)
        case Op("add" | "sub", (x, y)): return _vanishes(x, axis) and _vanishes(y, axis)
        case Op("neg", (x,)): return _vanishes(x, axis)
    return is_padded(b) and axis in b.args[1].free


# ---- the online fold -------------------------------------------------------------------------------------------------

LOG2E = 1.4426950408889634


def scaled(score: Term) -> Term:
    """score * log2(e): online folds run on the base-2 exponential. The factor goes into a constant that is there already."""
    d = dtype(score)
    match score:
        case Const(_, v): return const(d, v * LOG2E)
        case Op("where", (p, a, Const(_, v) as c)): return where(p, scaled(a), const(d, v * LOG2E))
        case Op("mul", (a, Const(_, v))): return op("mul", a, const(d, v * LOG2E))
        case Op("mul", (Const(_, v), a)): return op("mul", a, const(d, v * LOG2E))
    return op("mul", score, const(d, LOG2E))


def _start_online(s: Scope, item: Item, axis: Axis, roles: Roles | None, rest: Layout) -> None:
    """m, the greatest score so far, and for each value v the sum of 2^(score - m) v."""
    d, accs = dtype(item.bodies[0]), []
    for n, v in enumerate(item.bodies[1:]):
        product_ = item.plan is not None and not isinstance(v, Const)
        free = frozenset([s.bind[a].axis for a in (*item.plan.rows, *item.plan.columns)]) if product_ else (
            (item.bodies[0].free | v.free) - {axis})
        behind = replace(roles, k=None) if roles else None
        layout = s.frame(free, behind) if product_ or not isinstance(v, Const) else rest
        accs.append(s.reg("l" if isinstance(v, Const) else "o", dtype(v), layout))
    item.accs = (s.reg("m", d, rest), *accs)
    for acc, start in zip(item.accs, (identity("max", d), *(const(a.dtype, 0) for a in accs))):
        s.emit(Fill(acc, start))


def online(s: Scope, item: Item, axis: Axis, roles: Roles | None) -> None:
    """(m, sums) joined with the chunk's: a maximum, exponentials, and for each value a sum or a product."""
    m, sums = item.accs[0], item.accs[1:]
    score = scaled(item.bodies[0])
    evaluate(s, item.bodies)
    layout, d = s.frame(score.free | {axis}, roles), dtype(score)
    scores = lower(s, masked(s, score, "online", axis), layout)
    top, m1, safe, alpha = (s.reg(h, d, m.layout) for h in ("top", "m_new", "m_safe", "alpha"))
    s.emit(Fill(top, identity("max", d)))
    s.emit(Reduce((top,), "fmax", (scores,)))
    if item.plan:                                        # the threads of a row agree on m, since they share its products
        lanes = tuple(i for i, b in enumerate(layout.lane) if b and b[0] == axis.name)
        warps = tuple(i for i, b in enumerate(layout.warp) if b and b[0] == axis.name)
        if lanes or warps:
            s.emit(Combine((top,), "fmax", axis.name, lanes, warps))
    p = s.reg("p", d, scores.layout)
    s.emit(Map(m1, "fmax", (m, top)))
    s.emit(Map(safe, "finite", (m1,)))                   # a row that is masked whole has m = -inf
    s.emit(Map(alpha, "exp2sub", (m, safe)))
    s.emit(Map(p, "exp2sub", (scores, safe)))
    s.emit(Assign(m, "copy", (m1,)))
    weight = _leaf(s.locals, p, d, [s.bind[a].axis for a in s.order if a in p.layout.axes])
    for acc, v in zip(sums, item.bodies[1:]):
        _weigh(s, item, axis, roles, acc, v, weight, alpha)


def _weigh(s: Scope, item: Item, axis: Axis, roles: Roles | None, acc: Reg, v: Term, weight: Load, alpha: Reg) -> None:
    """acc = acc * alpha + sum of weight * v over the chunk."""
    s.emit(Assign(acc, "mul", (acc, alpha)))
    if isinstance(v, Const):
        s.emit(Reduce((acc,), "sum", (s.locals[weight.tensor],)))
        return
    if not item.plan:
        one = Item({}, "sum", (op("mul", weight, v),), None, (acc,))
        slices(s, axis, [one], roles)
        return
    part, narrow = None, item.plan.dtype
    left = weight
    if s.knobs.atom == "fma":                            # a running sum of products over all keys would be a long one
        part = s.reg("part", acc.dtype, acc.layout)
        s.emit(Fill(part, const(acc.dtype, 0)))
    else:
        left = Cast(acc.dtype, Cast(narrow, weight))
    p = Plan(left, item.plan.right, item.plan.rows, item.plan.columns, narrow)
    one = Item({}, "sum", (op("mul", left, item.plan.right),), p, (part or acc,))
    slices(s, axis, [one], roles)
    if part:
        s.emit(Assign(acc, "add", (acc, part)))


def _finish_online(s: Scope, item: Item, axis: Axis, lanes, warps, outer: Level) -> None:
    m, sums = item.accs[0], item.accs[1:]
    if lanes or warps:
        if item.plan:
            for acc, v in zip(sums, item.bodies[1:]):
                if isinstance(v, Const):
                    s.emit(Combine((acc,), "sum", axis.name, lanes, warps))
        else:
            s.emit(Combine((m, *sums), "online", axis.name, lanes, warps))
    for f, part in item.folds.items():
        if part == 0:
            outer.memo[f] = s.reg("greatest", m.dtype, m.layout)
            s.emit(Map(outer.memo[f], "mul", (m, const(m.dtype, 1 / LOG2E))))
            continue
        v = item.bodies[part]
        outer.memo[f] = sums[part - 1]
        if isinstance(v, Const) and v.value != 1:
            outer.memo[f] = s.reg("l", m.dtype, sums[part - 1].layout)
            s.emit(Map(outer.memo[f], "mul", (sums[part - 1], v)))
