"""The online fold: (m, sums) with m = max s and, for each value v, sum of exp(s - m) v, in one pass over the scores.

It is composed of what other folds are made of: a maximum, exponentials, sums and products. Where the scores have a
constant factor, that takes log2(e) along, and exponentials are of base 2. Where a value is a product, the threads of a
row agree on m in every round; else each keeps its own, and they are joined behind the loop.
"""
from __future__ import annotations

import math
import sys
from dataclasses import replace

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis
from deplodock.ir.layout import Layout
from deplodock.ir.loop import Cast, Const, Load, Op, const, dtype, op, where
from deplodock.ir.term import Term
from deplodock.ir.tile import Assign, Combine, Fill, Map, Promote, Reduce, Reg
from deplodock.lower.flatten import identity
from deplodock.lower.operators import LOG2E
from deplodock.lower.tile_body import lower
from deplodock.lower.tile_chunk import leaf, masked, promoted_inside, slices
from deplodock.lower.tile_scope import Item, Level, Roles, Scope

LOWEST = {Dtype.f32: -(2.0 - 2.0 ** -23) * 2.0 ** 127, Dtype.f64: -sys.float_info.max}


def scaled(score: Term) -> Term | None:
    """score * log2(e), as the base-2 exponential wants it, if there is a constant that takes the factor; else None.

    The lowest value, which finite masks have, stays what it is: a row that has no other must not become -inf.
    """
    d = dtype(score)
    match score:
        case Const(_, v): return const(d, v * LOG2E if math.isinf(v) else max(v * LOG2E, LOWEST[d]))
        case Op("where", (p, a, Const() as c)):
            a, c = scaled(a), scaled(c)
            return None if a is None else where(p, a, c)
        case Op("mul", (a, Const(_, v))): return op("mul", a, const(d, v * LOG2E))
        case Op("mul", (Const(_, v), a)): return op("mul", a, const(d, v * LOG2E))
    return None


def scores(item: Item) -> tuple[Term, bool]:
    """The scores as the loop takes them, and whether they are in base 2."""
    made = scaled(item.bodies[0])
    return made or item.bodies[0], made is not None


def start_online(s: Scope, item: Item, axis: Axis, roles: Roles | None, rest: Layout) -> None:
    """m, the greatest score so far, and for each value v the sum of e^(score - m) v."""
    d, accs = dtype(item.bodies[0]), []
    for n, v in enumerate(item.bodies[1:]):
        p = item.plans.get(v)
        free = [s.bind[a].axis for a in (*p.rows, *p.columns)] if p else (item.bodies[0].free | v.free) - {axis}
        behind = replace(roles, k=None) if roles else None
        layout = rest if isinstance(v, Const) or not p and v.free <= item.bodies[0].free else s.frame(free, behind)
        accs.append(s.reg("l" if isinstance(v, Const) else "o", dtype(v), layout))
    item.accs = (s.reg("m", d, rest), *accs)
    for acc, start in zip(item.accs, (identity("max", d), *(const(a.dtype, 0) for a in accs))):
        s.emit(Fill(acc, start))


def score_frame(s: Scope, score: Term, axis: Axis, roles: Roles | None) -> Layout:
    """The layout of a tile of scores: an accumulator of tensor cores is an operand as it is; one of fma is not."""
    return s.frame(score.free | {axis}, None if s.knobs.atom == "fma" else roles)


def online(s: Scope, item: Item, axis: Axis, roles: Roles | None) -> None:
    """(m, sums) joined with the chunk's: a maximum, exponentials, and for each value a sum or a product."""
    m, sums = item.accs[0], item.accs[1:]
    score, base2 = scores(item)
    exponential = "exp2sub" if base2 else "expsub"
    s.evaluate(item.bodies)
    layout, d = score_frame(s, score, axis, roles), dtype(score)
    tile = lower(s, masked(s, score, "online", axis), layout)
    top, m1, safe, alpha = (s.reg(h, d, m.layout) for h in ("top", "m_new", "m_safe", "alpha"))
    s.emit(Fill(top, identity("max", d)))
    s.emit(Reduce((top,), "fmax", (tile,)))
    if item.plan:                                        # the threads of a row agree on m: they share its products
        lanes = tuple(i for i, b in enumerate(layout.lane) if b and b[0] == axis.name)
        warps = tuple(i for i, b in enumerate(layout.warp) if b and b[0] == axis.name)
        if lanes or warps:
            s.emit(Combine((top,), "fmax", axis.name, lanes, warps))
    p = s.reg("p", d, tile.layout)
    s.emit(Map(m1, "fmax", (m, top)))
    s.emit(Map(safe, "finite", (m1,)))                   # a row that is masked whole has m = -inf
    s.emit(Map(alpha, exponential, (m, safe)))
    s.emit(Map(p, exponential, (tile, safe)))
    s.emit(Assign(m, "copy", (m1,)))
    weight = leaf(s.locals, p, d, [s.bind[a].axis for a in s.order if a in p.layout.axes])
    for acc, v in zip(sums, item.bodies[1:]):
        _weigh(s, item, axis, roles, acc, v, weight, alpha)


def _weigh(s: Scope, item: Item, axis: Axis, roles: Roles | None, acc: Reg, v: Term, weight: Load, alpha: Reg) -> None:
    """acc = acc * alpha + sum of weight * v over the chunk."""
    s.emit(Assign(acc, "mul", (acc, alpha)))
    if isinstance(v, Const):
        s.emit(Reduce((acc,), "sum", (s.locals[weight.tensor],)))
        return
    p = item.plans.get(v)
    if not p:
        one = Item({}, "sum", (op("mul", weight, v),), None, (acc,))
        slices(s, axis, [one], None if s.knobs.atom == "fma" else roles)
        return
    part, left = None, weight
    if s.knobs.atom == "fma":                            # a running sum of products over all keys would be a long one
        part = s.reg("part", acc.dtype, acc.layout)
        s.emit(Fill(part, const(acc.dtype, 0)))
    else:
        left = Cast(acc.dtype, Cast(p.dtype, weight))
    p = replace(p, left=left)
    one = Item({}, "sum", (op("mul", left, p.right),), p, (acc,), part)
    slices(s, axis, [one], roles)
    if part and not promoted_inside(one, s.bind[axis.name].tile):
        s.emit(Promote(acc, part))


def finish_online(s: Scope, item: Item, axis: Axis, lanes, warps, outer: Level) -> None:
    m, sums = item.accs[0], item.accs[1:]
    _, base2 = scores(item)
    if lanes or warps:
        if item.plan:
            for acc, v in zip(sums, item.bodies[1:]):
                if v not in item.plans:
                    s.emit(Combine((acc,), "sum", axis.name, lanes, warps))
        else:
            s.emit(Combine((m, *sums), "online2" if base2 else "online", axis.name, lanes, warps))
    for f, part in item.folds.items():
        if part == 0:
            outer.memo[f] = m
            if base2:
                outer.memo[f] = s.reg("greatest", m.dtype, m.layout)
                s.emit(Map(outer.memo[f], "mul", (m, const(m.dtype, 1 / LOG2E))))
            continue
        v = item.bodies[part]
        outer.memo[f] = sums[part - 1]
        if isinstance(v, Const) and v.value != 1:
            outer.memo[f] = s.reg("l", m.dtype, sums[part - 1].layout)
            s.emit(Map(outer.memo[f], "mul", (sums[part - 1], v)))
