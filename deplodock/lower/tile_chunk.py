"""What runs in a round of a loop: the bodies of its folds over one chunk of its axis, products in steps along k.

    slices(items)    acc = acc (monoid) fold of the body over the chunk
    stash(factor)    a factor that is computed, through a shared tile
    masked(body)     the monoid's identity past the end of a ragged axis
"""
from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, index
from deplodock.ir.layout import Layout, log2
from deplodock.ir.loop import Buffer, Cast, Const, Iota, Load, Op, const, dtype, op, where
from deplodock.ir.term import Term
from deplodock.ir.tile import Mma, MmaCommit, MmaFence, MmaWait, Operand, Promote, Reduce, Reg, SharedTile, StoreShared
from deplodock.lower.flatten import identity
from deplodock.lower.layout import copy_layout, dealt
from deplodock.lower.structure import affine
from deplodock.lower.tile_body import guarded, is_padded, lower, offsets, staged
from deplodock.lower.tile_scope import K_STEP, Item, Level, Plan, Roles, Scope

PARTIAL = 64
"""Terms of a partial sum; a sum of up to twice as many is not divided."""


@contextmanager
def narrowed(s: Scope, axis: Axis, off: int, step: int):
    """Within it, the axis means a slice of the chunk."""
    chunk, level = s.bind[axis.name], s.levels[-1]
    s.bind[axis.name] = replace(chunk, off=off, span=step)
    whole = step == chunk.tile
    s.levels.append(Level(level.stmts, None, None, level.memo) if whole else Level(level.stmts, None, axis.name))
    yield
    s.levels.pop()
    s.bind[axis.name] = chunk


def slices(s: Scope, axis: Axis, items: list[Item], roles: Roles | None, lag: int = 0) -> None:
    """acc = acc (monoid) fold of the body over the chunk, for all items, slice by slice where one is a product."""
    if s.knobs.atom == "wgmma" and any(i.plan for i in items):
        _async_slices(s, axis, items, roles, lag)
        return
    s.evaluate([b for i in items for b in i.bodies])    # folds inside: once a chunk, whatever the slices
    tile, step = s.bind[axis.name].tile, _step_of(s, axis, items)
    operands = {id(i): _operands(s, i, axis) for i in items if i.plan}
    for off in range(0, tile, step):
        with narrowed(s, axis, off, step):
            for i in items:
                if i.plan:
                    _multiply(s, i, axis, roles, *operands[id(i)])
                elif i.open is None:
                    _reduce(s, i, axis, roles, off // step, tile // step)
        if (off + step) % PARTIAL == 0 or off + step == tile:
            for i in items:
                if i.part and promoted_inside(i, tile):
                    s.emit(Promote(i.accs[0], i.part))


def k_step(s: Scope, d: Dtype) -> int:
    """Elements along k of one step of a product that accumulates in a dtype; of one in registers, 16 bytes."""
    return {"mma": K_STEP, "wgmma": K_STEP, "fma": 16 // d.bytes, "none": 1}[s.knobs.atom]


def _step_of(s: Scope, axis: Axis, items: list[Item]) -> int:
    """Elements of the axis that are taken at once: one step of a product, or the whole chunk."""
    tile = s.bind[axis.name].tile
    products = [i for i in items if i.plan]
    if not products:
        return tile
    step = k_step(s, dtype(products[0].bodies[-1]))
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
    """The factors of a product as it takes them: 16 bits wide; for fma, those that are computed in a shared tile."""
    left, right = item.plan.left, item.plan.right
    if s.knobs.atom != "fma":
        return masked(s, left.body, "sum", axis), masked(s, right.body, "sum", axis)
    return stash(s, left, item.plan.rows, axis), stash(s, right, item.plan.columns, axis)


def _multiply(s: Scope, item: Item, axis: Axis, roles: Roles, left: Term, right: Term) -> None:
    rows, columns = _axes(s, item.plan, axis)
    a = lower(s, left, s.frame(rows, roles), stage=True)
    b = lower(s, right, s.frame(columns, roles), stage=True)
    s.emit(Mma(item.part or item.accs[0], a, b, s.knobs.atom, axis.name))


def _axes(s: Scope, p: Plan, k: Axis) -> tuple[list[Axis], list[Axis]]:
    """The axes of a product's two operands."""
    return [s.bind[a].axis for a in (*p.rows, k.name)], [s.bind[a].axis for a in (*p.columns, k.name)]


def _async_slices(s: Scope, axis: Axis, items: list[Item], roles: Roles, lag: int) -> None:
    """With wgmma: register operands first, then all products of the chunk in flight, then what runs beside them."""
    products, beside = [i for i in items if i.plan], [i for i in items if not i.plan]
    s.evaluate([b for i in products for b in i.bodies])
    tile, step, mmas = s.bind[axis.name].tile, _step_of(s, axis, items), []
    operands = [_operands(s, i, axis) for i in products]
    for off in range(0, tile, step):
        with narrowed(s, axis, off, step):
            for i, (left, right) in zip(products, operands):
                rows, columns = _axes(s, i.plan, axis)
                a, b = _source(s, left, rows, roles), _source(s, right, columns, roles)
                s.require(isinstance(b, Operand),
                          "the right factor of a wgmma is computed, or not contiguous: it is read from shared memory")
                mmas.append(Mma(i.accs[0], a, b, "wgmma", axis.name, i.fresh and off == 0))
    accs = tuple(dict.fromkeys(m.acc for m in mmas))
    kept = tuple(dict.fromkeys(i.accs[0] for i in products if not i.fresh))
    for stmt in (MmaFence(kept), *mmas, MmaCommit()):
        s.emit(stmt)
    if beside:
        s.evaluate([b for i in beside for b in i.bodies])
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
            s.require(tile.shape.panels == 128,
                      f"a row of {b.tensor.name}'s tile is no multiple of 128 bytes, as wgmma reads it")
            return Operand(tile, offsets(s, b), layout)
    return lower(s, b, layout)


def stash(s: Scope, b: Term, group: tuple[str, ...], axis: Axis) -> Term:
    """A factor that is computed goes through a shared tile, once a chunk, so that threads need not compute it each."""
    if in_memory(b) and not (isinstance(b, Load) and b.tensor in s.locals):
        return b
    bounds = [s.bind[a] for a in (*group, axis.name)]
    shape = s.matrix(group, axis.name, dtype(b).bytes)
    vec = min(16 // shape.size, shape.cols & -shape.cols)
    layout = copy_layout(shape, vec, s.warp_bits)
    layout = replace(layout, regs=tuple((axis.name, 1 << i, 2) for i in range(log2(vec))) + layout.regs)
    if any(layout.extent(x.axis.name) != x.tile for x in bounds):
        names = s.tiled(x.axis for x in bounds)
        layout = s.frame([x.axis for x in bounds], None) if s.apart(names) else dealt(shape, vec, s.warp_bits)
    if isinstance(b, Load):
        layout = s.locals[b.tensor].layout
    value = lower(s, masked(s, b, "sum", axis), layout, stage=True)
    tile = SharedTile(s.name("computed"), dtype(b), shape, 1)
    s.emit(StoreShared(tile, value))
    return leaf(s.stashed, tile, dtype(b), [x.axis for x in bounds])


def leaf(known: dict, value: Reg | SharedTile, d: Dtype, axes: list[Axis]) -> Load:
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
            return all(isinstance(z, Const) or _vanishes(z, axis) for z in (x, y)) and axis in b.free
        case Op("add" | "sub", (x, y)): return _vanishes(x, axis) and _vanishes(y, axis)
        case Op("neg", (x,)): return _vanishes(x, axis)
    return is_padded(b) and axis in b.args[1].free


def promoted_inside(item: Item, tile: int) -> bool:
    """Whether a chunk holds whole partial sums of a product."""
    return item.plan is not None and tile >= PARTIAL


def in_memory(b: Term | None) -> bool:
    """Whether an operand can be read from shared memory as it is."""
    if b is None:
        return False
    x = b.body if isinstance(b, Cast) else b
    return isinstance(x, Load) or is_padded(x)


def spare(layout: Layout, slices_: int) -> tuple[int, ...]:
    """Warp bits that would only hold copies of a folded tile: slices of the axis are dealt out over them instead."""
    return tuple(i for i, b in enumerate(layout.warp) if b is None)[:slices_.bit_length() - 1]
