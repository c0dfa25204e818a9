"""Tile IR -> Kernel IR with roles: the same tree printed twice.

The producer keeps each loop and its copies, the consumers each loop and its body; a ring of mbarriers ties them where
block barriers did: full, a slot has landed; empty, it was given back. Loop bounds are the block's, so both count alike.
"""
from __future__ import annotations

from deplodock.ir import tile
from deplodock.ir.expression import Binary, Expr, Int, Name, call
from deplodock.ir.kernel import Do, If, Loop, Set, Stmt, Variable
from deplodock.lower import rings
from deplodock.lower.emit import LANE, Emit
from deplodock.lower.loops import bounds_of, plain_loop

WARPGROUP = 128
REGISTERS = 65536
"""Of a multiprocessor; setmaxnreg deals them out in units of 8 a thread."""


def produce(e: Emit, stmts: tuple[tile.Stmt, ...], owner: tile.For | None) -> None:
    """One thread: each loop, and at the first reader of a ring its next copies."""
    for i, s in enumerate(stmts):
        for r in e.rings:
            if r.loop is owner and r.first == i:
                slot = rings.slot_of(r)
                e.do("dd_mbar_wait", rings.empty(e, r, slot), Binary("^", r.phase, Int(1)))
                rings.load(e, r, slot)
                rings.advance(e, r)
        if isinstance(s, tile.For) and has_copies(s):
            low, high = bounds_of(e, s)
            name = e.name("axis", s.var.name)
            outer, e.origins = e.origins, {**e.origins, s.var: Name(name, s.var.extent)}
            with e.inside(loop=True) as body:
                produce(e, s.body, s)
            e.origins = outer
            e(Loop(name, low, high, Int(s.step), tuple(body), False))


def has_copies(f: tile.For) -> bool:
    return bool(f.copies) or any(isinstance(s, tile.For) and has_copies(s) for s in f.body)


def release(e: Emit, r: rings.Ring, slot: Expr) -> tuple[Stmt, ...]:
    """A slot goes back: an arrival per warp where threads read it themselves, else per warpgroup."""
    arrive = Do(call("dd_mbar_arrive", rings.empty(e, r, slot)))
    if r.generic:                                        # every reader's reads come before the next copy's writes
        return (Do(call("dd_fence_async")), Do(call("dd_syncwarp")), If(Binary("==", LANE, Int(0)), (arrive,)))
    return (If(Binary("==", e.thread % WARPGROUP, Int(0)), (arrive,)),)


def arrivals(k: tile.Kernel, r: rings.Ring) -> int:
    return k.warps if r.generic else max(1, k.warps // 4)


def done(e: Emit, r: rings.Ring) -> None:
    """Behind the last reader of a slot."""
    f = r.loop
    if f is None and not e.kernel.persistent:            # nobody fills it again
        return
    slot = rings.slot_of(r)
    if f is not None and f.lag:                          # its products still run: the slot before goes back
        test = Binary("!=", e.origins[f.var], bounds_of(e, f)[0])
        e(If(test, release(e, r, r.previous)), Set(r.previous, slot))
    else:
        e(*release(e, r, slot))
    rings.advance(e, r)


def loop(e: Emit, f: tile.For) -> None:
    """The consumers' loop."""
    e.require(not f.lag or not any(isinstance(s, tile.For) for s in f.body),
              "a ring whose products stay in flight holds no other loop")
    lagging = [r for r in e.rings if r.loop is f and f.lag]
    for r in lagging:
        e(Variable(r.previous.name, "int", Int(0)))
    plain_loop(e, f)
    e.lagging += lagging


def drained(e: Emit) -> None:
    """Behind the wait for all products: the last slots go back."""
    for r in e.lagging:
        e(*release(e, r, r.previous))
    e.lagging = []


def budgets(e: Emit) -> tuple[int, int] | None:
    """setmaxnreg of producer and consumers, or None where the roles are no warpgroups.

    Their sum is bounded by what the block got at launch: a larger one compiles and never starts (measured on an H200).
    """
    k = e.kernel
    if k.warps % 4:
        return None
    groups = k.threads // WARPGROUP
    entry = REGISTERS // (k.threads * k.min_blocks) // 8 * 8
    least = 40 if groups < 4 else 32                     # fewer spill in the producer
    low, high = k.regs or (least, min(240, (entry * groups - least) // (groups - 1) // 8 * 8))
    e.require(low + high * (groups - 1) <= entry * groups and low <= entry,
              f"register budgets {low} + {groups - 1} x {high} exceed the {entry} x {groups} that the block has")
    return low, high
