"""Rings of shared tiles that bulk tensor copies (TMA) fill: who waits for whom, on which mbarrier, from where to where.

The copies of one loop whose first readers stand at one place form a ring: a slot is full when its bytes have landed,
and with roles a second mbarrier says when it was given back. A tile that is filled once for each tile of the block is a
ring of one slot. The position in a ring and its phase go on over outer loops and over the tiles of a persistent block.
"""
from __future__ import annotations

from dataclasses import dataclass
from math import prod

from deplodock.ir import tile
from deplodock.ir.cuda import Map
from deplodock.ir.expression import Binary, Expr, Int, MapAddress, Name, call
from deplodock.ir.kernel import Do, If, Let, Set, Variable
from deplodock.lower.emit import Emit

MBARRIER = 8
"""Bytes of an mbarrier."""


@dataclass(frozen=True, slots=True)
class Ring:
    """first, last: where its readers stand among the statements of the loop (of the part, if loop is None)."""
    number: int
    stages: int
    copies: tuple[tile.Copy, ...]
    loop: tile.For | None
    first: int
    last: int
    generic: bool
    """Threads read the slots themselves, by ld.shared or ldmatrix, not only the tensor core."""
    bars: int
    """Bytes from the kernel's first mbarrier to `full` of the first slot; behind all `full` are those of `empty`."""

    @property
    def slot(self) -> Name:
        return Name(f"slot_{self.number}", self.stages)

    @property
    def phase(self) -> Name:
        return Name(f"phase_{self.number}", 2)

    @property
    def previous(self) -> Name:
        return Name(f"previous_{self.number}", self.stages)

    @property
    def bytes(self) -> int:
        """What one slot waits for: a box counts whole, also where it lies outside of the tensor."""
        return sum(c.box.panels * prod(d.count for d in c.box.dims) * c.dst.dtype.bytes for c in self.copies)



def rings_of(part: tile.Part) -> tuple[Ring, ...]:
    """The rings of a part: of its tiles that are filled once, then those of its loops, in the order of the text."""
    rings: list[Ring] = []

    def allot(copies: tuple[tile.Copy, ...], stages: int, body: tuple[tile.Stmt, ...], loop: tile.For | None) -> None:
        groups: dict[int, list[tuple[tile.Copy, int]]] = {}
        for c in copies:
            if c.box:
                spans = [span(body, i) for i, s in enumerate(body) if c.dst.name in reads((s,))]
                groups.setdefault(min(a for a, _ in spans), []).append((c, max(b for _, b in spans)))
        for first, found in sorted(groups.items()):
            mine = tuple(c for c, _ in found)
            generic = any(c.dst.name in reads(body, generic=True) for c in mine)
            bars = sum(2 * MBARRIER * r.stages for r in rings)
            rings.append(Ring(len(rings), stages, mine, loop, first, max(b for _, b in found), generic, bars))

    def inner(stmts: tuple[tile.Stmt, ...]) -> None:
        for s in stmts:
            if isinstance(s, tile.For):
                allot(s.copies, s.stages, s.body, s)
                inner(s.body)

    allot(part.copies, 1, part.body, None)
    inner(part.body)
    return tuple(rings)


def reads(stmts: tuple[tile.Stmt, ...], generic: bool = False) -> set[str]:
    """Names of the shared tiles read here; generic: only those that threads read themselves."""
    out: set[str] = set()
    for s in stmts:
        match s:
            case tile.LoadShared(_, t): out.add(t.name)
            case tile.Mma(_, a, b) if not generic: out |= {o.tile.name for o in (a, b) if isinstance(o, tile.Operand)}
            case tile.For(): out |= reads(s.body, generic)
    return out


def span(body: tuple[tile.Stmt, ...], i: int) -> tuple[int, int]:
    """From where to where statement i reads its tiles: an asynchronous product from its fence to the wait for it."""
    s = body[i]
    waits = [j for j in range(i, len(body)) if isinstance(body[j], tile.MmaWait)]
    if isinstance(s, tile.Mma) and s.atom == "wgmma":
        return max(j for j in range(i) if isinstance(body[j], tile.MmaFence)), waits[0]
    if isinstance(s, tile.For) and s.lag:
        return i, waits[0] if waits else i
    return i, i


def full(e: Emit, r: Ring, slot: Expr) -> Expr:
    """The mbarrier that says that a slot has landed."""
    return e.bars + r.bars + slot * MBARRIER


def empty(e: Emit, r: Ring, slot: Expr) -> Expr:
    """The mbarrier that says that a slot was given back."""
    return e.bars + (r.bars + MBARRIER * r.stages) + slot * MBARRIER


# ---- text that both ways to run a ring share -------------------------------------------------------------------------

def positions(e: Emit) -> None:
    """The variables that say where in each ring a role stands."""
    for r in e.rings:
        if r.stages > 1:
            e(Variable(r.slot.name, "int", Int(0)))
        e(Variable(r.phase.name, "int", Int(0)))


def slot_of(r: Ring) -> Expr:
    return r.slot if r.stages > 1 else Int(0)


def advance(e: Emit, r: Ring) -> None:
    flip = Set(r.phase, Int(1), "^")
    if r.stages == 1:
        e(flip)
        return
    e(Set(r.slot, r.slot + 1), If(Binary("==", r.slot, Int(r.stages)), (Set(r.slot, Int(0)), flip)))


def bases(e: Emit, r: Ring, slot: Expr) -> None:
    """The addresses of the tiles in the slot at hand."""
    for c in r.copies:
        name = e.fresh(c.dst.name)
        e(Let(name, "u32", e.memory[c.dst.name] + slot * c.dst.shape.bytes))
        e.bases[c.dst.name] = Name(name)


def wait_full(e: Emit, r: Ring) -> None:
    bases(e, r, slot_of(r))
    e.do("dd_mbar_wait", full(e, r, slot_of(r)), r.phase)


def load(e: Emit, r: Ring, slot: Expr) -> None:
    """One thread starts the copies into a slot."""
    e.do("dd_mbar_expect_tx", full(e, r, slot), r.bytes)
    for c in r.copies:
        to = e.memory[c.dst.name] + slot * c.dst.shape.bytes
        transfer(e, c.box, c.src.param, c.dst, lambda map_, offset, at: call(
            f"dd_tma_load_{len(at)}d", to + offset, map_, full(e, r, slot), *at))


def transfer(e: Emit, box: tile.Box, param: tile.Param, t: tile.SharedTile, copy, rows: Expr = Int(0)) -> None:
    """Emits copy(map, byte offset in the tile, coordinates innermost first) for each panel. rows: where in the tile's
    rows the box begins, along the innermost of their axes."""
    dims = list(box.dims)
    map_ = tensor_map(e, box, param, t)
    for p in range(box.panels):
        at = [e.uniform(d.origin) for d in dims]
        at[0] = at[0] + p * dims[0].count
        if rows != Int(0):
            along = next(i for i, d in enumerate(dims) if d.axis == t.shape.row[-1])
            at[along] = at[along] + rows
        at += [Int(0)] * (2 - len(at))
        e(Do(copy(map_, rows * t.shape.pitch + p * t.shape.panel_bytes, at)))


def tensor_map(e: Emit, box: tile.Box, param: tile.Param, t: tile.SharedTile) -> Expr:
    """The address of the map for a box; equal boxes of one tensor share it."""
    dims = list(reversed(box.dims))
    counts, extents = tuple(d.count for d in dims), tuple(d.dim for d in dims)
    strides = tuple(d.stride * param.dtype.bytes for d in dims[:-1])
    if len(dims) == 1:
        counts, extents, strides = (1, *counts), (1, *extents), (-(-extents[0] * param.dtype.bytes // 16) * 16,)
    swizzle = t.shape.pitch
    e.require(swizzle in (32, 64, 128), f"{t.name}: rows of {swizzle} bytes have no swizzle of TMA's")
    key = (param.name, extents, strides, counts, swizzle)
    found = next((m for m in e.maps if (m.buffer, m.dims, m.strides, m.box, m.swizzle) == key), None)
    if not found:
        found = Map(e.fresh(f"map_{param.name}"), *key[:1], param.dtype, *key[1:])
        e.maps.append(found)
    return MapAddress(found.name)
