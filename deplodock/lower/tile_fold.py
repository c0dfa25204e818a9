"""Folds: which loops there are at a level, what runs in them, and what comes out.

    evaluate(bodies)     the folds that bodies need, group by group of siblings
    loop(group)          one loop over their common axis, or none where one tile holds it
    plan(fold)           how a fold is a product of the schedule's atom

Sums of f32 that run long are taken in partial sums of PARTIAL terms, promoted into a second accumulator: one running
sum over thousands of terms is not as accurate as promised.
"""
from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, Index, index
from deplodock.ir.layout import Layout
from deplodock.ir.loop import Fold, Load, const, dtype, loads, subst
from deplodock.ir.term import Term
from deplodock.ir.tile import Combine, Fill, For, MmaWait, Promote, origin
from deplodock.lower.flatten import all_folds, identity, outer_folds
from deplodock.lower.structure import affine, backwards, common_axis, limits, product, siblings, slack
from deplodock.lower.tile_chunk import PARTIAL, in_memory, k_step, promoted_inside, slices, spare
from deplodock.lower.tile_online import finish_online, online, score_frame, start_online
from deplodock.lower.tile_scope import Bound, Item, Level, Plan, Roles, Scope, flipped


def evaluate(s: Scope, bodies) -> None:
    """Emits the folds that bodies need at this level; their results are then in its memo."""
    for group in siblings(bodies, lambda f: s.find(f) is not None, partial(_same, s)):
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
        best = (len(backwards(f)), f.key, f, None)
        for p in sorted(backwards(f)):
            if p.extent == 2 and p.name in s.bind and s.bind[p.name].span == 2:
                g = flipped(f, p)
                best = min(best, (len(backwards(g)), g.key, g, p), key=lambda b: b[:2])
        s.mirrors[f] = best[2:]
    return s.mirrors[f][0]


# ---- a loop ----------------------------------------------------------------------------------------------------------

def loop(s: Scope, group: list[Fold]) -> None:
    """One loop over the common axis of sibling folds, or no loop, where one tile holds the axis."""
    axis = common_axis(group)
    s.require(axis.name not in s.bind, f"a loop over {axis.name} lies within another")
    folds = {f: _under(f, axis) for f in group}
    spread = s.spreads[axis.name].span
    unit = max(spread, *(k_step(s, dtype(f)) for f in group if product(f)), 1)
    tile = s.knobs.of("tile", axis.name, -(-axis.extent // unit) * unit)
    s.require(tile > 0 and tile % spread == 0,
              f"tile.{axis.name} = {tile} is no multiple of {spread} = vec x lanes x warps of {axis.name}")
    whole = tile >= axis.extent
    s.order.append(axis.name)
    s.bind[axis.name] = Bound(axis, index(0) if whole else index(origin(axis)), tile, 0, tile)
    items = _items(s, folds)
    twin = _twin(s, group, axis) if whole and not any(i.plan for i in items) else None
    if twin:                                             # the launch tile's axis: same coordinates, so loads are shared
        s.order.remove(axis.name)
        del s.bind[axis.name]
        axis = twin
        items = _items(s, {f: _under(f, axis) for f in group})
    planned = next((i.plan for i in items if i.plan), None)
    roles = _roles(s, planned, axis) if planned else roles_of(s, [b for f in folds.values() for b in f.bodies])
    outer, atom = s.levels[-1], s.knobs.atom
    if planned and atom == "wgmma":
        _require_warpgroups(s, planned)
    inner = Level(outer.stmts if whole else [], None if whole else axis.name, None if twin else axis.name,
                  outer.memo if twin else {})
    fresh = whole and atom == "wgmma"
    for item in items:
        _start(s, item, axis, roles, fresh)
        _offer(s, item, axis, [i for i in items if i is not item])
    s.levels.append(inner)
    sums, onlines = [i for i in items if i.monoid != "online"], [i for i in items if i.monoid == "online"]
    # An operand that is computed into registers is overwritten by the next chunk: its products end with their chunk.
    held = any(i.plan and not (in_memory(i.plan.left) and in_memory(i.plan.right)) for i in sums)
    lag = int(atom == "wgmma" and not whole and not held and not onlines and planned is not None)
    if sums:
        slices(s, axis, sums, roles, lag)
    for item in onlines:
        online(s, item, axis, roles)
    _promote(s, sums, axis, tile)
    s.levels.pop()
    s.around = {f: i for f, i in s.around.items() if i not in items}
    if not whole:
        lo, hi = _range(s, group[0], axis)
        stages = s.knobs.stages if inner.copies else 1
        s.require(not inner.copies or stages >= 2 + lag,
                  f"a ring of {stages} stages: it has one to use, one to fill, and one while products are in flight")
        s.emit(For(origin(axis), lo, hi, tile, stages, tuple(inner.copies), tuple(inner.stmts), lag))
        if lag:
            s.emit(MmaWait(0, tuple(i.accs[0] for i in items if i.plan)))
    for item in items:
        _finish(s, item, axis, outer)
    if not twin:
        s.order.remove(axis.name)
        del s.bind[axis.name]


def _require_warpgroups(s: Scope, p: Plan) -> None:
    """A warpgroup multiplies 64 rows by all columns."""
    columns = prod(s.bind[a].span for a in p.columns)
    s.require(columns <= 256, f"wgmma has at most 256 columns, not {columns}")
    s.require(len(s.warp_axes) >= 2 and set(s.warp_axes) <= set(p.rows),
              f"wgmma has its warps, four or more, along its rows {', '.join(p.rows)}")


def _under(f: Fold, axis: Axis) -> Fold:
    """A fold over another axis of the same extent."""
    (old,) = f.axes
    if old is axis:
        return f
    return Fold(f.monoid, (axis,), tuple(subst(b, {old: index(axis)}) for b in f.bodies), f.part)


def _twin(s: Scope, group: list[Fold], axis: Axis) -> Axis | None:
    """A launch axis whose tile is whole and over which the outputs read what the folds read: one tile serves both."""
    reads = {l for o in s.flat.outs for l in loads(o.body)}
    for a in s.flat.axes:
        b = s.bind[a.name]
        if a.extent == axis.extent and b.base.is_const and b.tile >= a.extent and not any(a in f.free for f in group):
            if any(a in l.free and l in reads for f in group for l in loads(_under(f, a))):
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
                    if p := plan(s, f):
                        item.plans[f.bodies[1]] = p
                        item.plan = item.plan or p
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


def _range(s: Scope, f: Fold, axis: Axis) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
    """A tile may know that the body is the identity before some value of the axis, or from some value on."""
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
    behind = replace(roles, k=None) if roles else None
    if item.monoid == "online":
        item.layout = score_frame(s, item.bodies[0], axis, roles)
    elif item.plan:
        item.layout = s.frame([s.bind[a].axis for a in (*item.plan.rows, *item.plan.columns)], behind)
    else:
        item.layout = s.frame(free | {axis}, roles)
    rest = item.layout.project(s.tiled(free - {axis}))
    if item.monoid == "online":
        start_online(s, item, axis, roles, rest)
    elif item.monoid in ("argmax", "argmin"):
        value = dtype(item.bodies[0])
        item.accs = (s.reg("best", value, rest), s.reg("place", Dtype.i64, rest))
        s.emit(Fill(item.accs[0], identity(item.monoid, value)))
        s.emit(Fill(item.accs[1], const(Dtype.i64, 0)))
    else:
        d = dtype(item.bodies[0])
        layout = item.layout if item.plan else rest
        if _accepted(s, item, layout, d):
            return
        item.accs, item.fresh = (s.reg("acc", d, layout),), fresh and item.plan is not None
        s.emit(Fill(item.accs[0], None if item.fresh else identity(item.monoid, d)))
        if _divided(s, item, axis):
            item.part = s.reg("part", d, layout)
            s.emit(Fill(item.part, identity("sum", d)))


def _offer(s: Scope, item: Item, axis: Axis, others: list[Item]) -> None:
    """A sum whose body is a sum: the one inside may add into the accumulators of the one around it."""
    body = item.bodies[0]
    if (item.monoid == "sum" and item.plan is None and item.part is None and s.bind[axis.name].tile == 1
            and isinstance(body, Fold) and body.monoid == "sum"
            and not any(body in all_folds(i.bodies) for i in others)):
        s.around[_same(s, body)] = item


def _accepted(s: Scope, item: Item, layout: Layout, d: Dtype) -> bool:
    """Whether a sum adds into the accumulators of the one around it: both lie alike, no partial sum gets too long."""
    (f,) = item.folds
    around = s.around.get(f)
    if around is None or item.monoid != "sum" or around.accs[0].layout != layout or around.accs[0].dtype != d:
        return False
    if d == Dtype.f32 and (item.plan is None or s.knobs.atom == "fma"):
        return False
    item.accs, item.within, around.open = around.accs, around, (f.axes[0].name, (), ())
    return True


def _divided(s: Scope, item: Item, axis: Axis) -> bool:
    """Whether a sum is taken in partial sums: an outer product over all of k, another over the rounds of its loop."""
    if item.monoid != "sum" or dtype(item.bodies[0]) != Dtype.f32 or (item.plan and s.knobs.atom != "fma"):
        return False
    return (axis.extent if item.plan else -(-axis.extent // s.bind[axis.name].tile)) > 2 * PARTIAL


def _promote(s: Scope, items: list[Item], axis: Axis, tile: int) -> None:
    """At the end of a round: partial sums of so many rounds are complete."""
    for item in items:
        if item.part and not promoted_inside(item, tile):
            every = PARTIAL // tile if item.plan else PARTIAL
            s.emit(Promote(item.accs[0], item.part, origin(axis), tile, every))


def _finish(s: Scope, item: Item, axis: Axis, outer: Level) -> None:
    """Behind the loop: what threads hold of a result is joined."""
    if item.part and not promoted_inside(item, s.bind[axis.name].tile):
        s.emit(Promote(item.accs[0], item.part))
    lanes = tuple(i for i, b in enumerate(item.layout.lane) if b and b[0] == axis.name)
    warps = tuple(i for i, b in enumerate(item.layout.warp) if b and b[0] == axis.name) + spare(item.layout, item.turns)
    if item.monoid == "online":
        finish_online(s, item, axis, lanes, warps, outer)
        return
    if item.within:
        item.within.open = (axis.name, *((lanes, warps) if not item.plan else ((), ())))
    elif item.open:
        if item.open[1] or item.open[2]:
            s.emit(Combine(item.accs, item.monoid, *item.open))
    elif not item.plan and (lanes or warps):
        s.emit(Combine(item.accs, item.monoid, axis.name, lanes, warps))
    for f, part in item.folds.items():
        outer.memo[f] = item.accs[part]
