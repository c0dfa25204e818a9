"""Tile IR -> Kernel IR: loops and the rings they keep filled, where all threads do the same.

cp.async: every thread copies its share; a round waits for its slot, all threads meet, and the slot that the round
before used is filled. TMA: one thread copies; the meeting says that the slot is free, an mbarrier that it is full.
"""
from __future__ import annotations

from deplodock.ir import tile
from deplodock.ir.expression import Binary, Expr, Int, Name, choose, compare
from deplodock.ir.kernel import Let, Loop, Set, Variable
from deplodock.lower import rings
from deplodock.lower.emit import Emit
from deplodock.lower.memory import copy_async


def once(e: Emit) -> None:
    """Starts the copies of the tiles that are filled once."""
    plain = [c for c in e.part.copies if not c.box]
    for c in plain:
        copy_async(e, c, e.memory[c.dst.name])
    if plain:
        e.do("dd_cp_async_commit")
        e.landed = False
    mine = [r for r in e.rings if r.loop is None]
    if mine and e.depth:
        free(e, any(r.generic for r in mine))
    for r in mine:
        ahead(e, r, Int(0))


def free(e: Emit, fence: bool) -> None:
    """All threads meet: what they have read may be overwritten. fence: by the other proxy, or read by it."""
    if fence:
        e.do("dd_fence_async")
    e(e.sync)


def ahead(e: Emit, r: rings.Ring, slot: Expr) -> None:
    with e.inside() as stmts:
        rings.load(e, r, slot)
    e.when(Binary("==", e.thread, Int(0)), stmts)


def bounds_of(e: Emit, f: tile.For) -> tuple[Expr, Expr]:
    """Where a loop begins and ends."""
    low = e.least(f.lo) if len(f.lo) == 1 else e.greatest(f.lo)
    return low // f.step * f.step, e.least(f.hi)


def plain_loop(e: Emit, f: tile.For) -> None:
    """A loop that fills no ring."""
    low, high = bounds_of(e, f)
    name = e.name("axis", f.var.name)
    outer, outer_bases, e.origins = e.origins, dict(e.bases), {**e.origins, f.var: Name(name, f.var.extent)}
    with e.inside(loop=True) as stmts:
        e.statements(f.body, f)
    e.origins, e.bases = outer, outer_bases
    e(Loop(name, low, high, Int(f.step), tuple(stmts), False))


def loop(e: Emit, f: tile.For) -> None:
    if not f.copies:
        e.land()
        plain_loop(e, f)
        return
    plain = tuple(c for c in f.copies if not c.box)
    mine = [r for r in e.rings if r.loop is f]
    nested, fill_ahead = e.depth > 0, f.stages - 1 - f.lag
    e.require(fill_ahead >= 1, f"{f.stages} stages: a ring has a slot to use, one to fill, and one for each round that "
                               "products stay in flight")
    for c in plain:
        e.place(c.dst)
    low, high = bounds_of(e, f)
    rounds = Name(e.fresh(f"rounds_{f.var.name}"))
    e(Let(rounds.name, "int", (high - low + (f.step - 1)) // f.step))
    if mine and nested:
        free(e, any(r.generic for r in mine))

    def fill(round_: Expr, slot: Expr, copies: tuple[tile.Copy, ...], slots: list[Expr]) -> None:
        """Starts the copies of a round, if there is such a round."""
        outer = e.origins
        with e.inside() as stmts:
            at = e.fresh(f"{f.var.name}_ahead")
            e(Let(at, "int", low + round_ * f.step))
            e.origins = {**e.origins, f.var: Name(at, f.var.extent)}
            for r, s in zip(mine, slots):
                ahead(e, r, s)
            for c in copies:
                copy_async(e, c, e.memory[c.dst.name] + slot * c.dst.shape.bytes)
        e.origins = outer
        e.when(Binary("<", round_, rounds), stmts)

    s = Name("s", fill_ahead)
    with e.inside() as stmts:
        fill(s, s, plain, [wrapped(rings.slot_of(r) + s, r.stages) for r in mine])
        if plain:
            e.do("dd_cp_async_commit")
    e(Loop("s", Int(0), Int(fill_ahead), Int(1), tuple(stmts), False))
    slot = Name(e.fresh("slot"), f.stages)
    if plain:
        e(Variable(slot.name, "int", Int(0)))
    proxy = e.read_by_proxy(c.dst.name for c in (*plain, *(() if e.landed else e.part.copies)))
    it = Name(e.fresh("round"))
    was, outer, outer_bases = e.landed, e.origins, dict(e.bases)
    with e.inside(loop=True) as body:
        if plain:
            e.do("dd_cp_async_wait", template=(fill_ahead - 1,))
        free(e, proxy or any(r.generic for r in mine))
        ahead_of = lambda x: choose(Binary("<", x, Int(f.lag + 1)), x + fill_ahead, x - (f.lag + 1))

        def refill() -> None:
            fill(it + fill_ahead, ahead_of(slot), plain, [ahead_of(rings.slot_of(r)) for r in mine])
            if plain:
                e.do("dd_cp_async_commit")
        if plain and proxy and any(isinstance(x, tile.MmaCommit) for x in f.body):
            e.late.append(refill)                        # behind the first products, so that it runs beside them
        else:
            refill()
        name = e.name("axis", f.var.name)
        e(Let(name, "int", low + it * f.step))
        e.origins = {**e.origins, f.var: Name(name, f.var.extent)}
        for c in plain:
            base = e.fresh(c.dst.name)
            e(Let(base, "u32", e.memory[c.dst.name] + slot * c.dst.shape.bytes))
            e.bases[c.dst.name] = Name(base)
        e.landed = e.landed or bool(plain)
        e.statements(f.body, f)
        if plain:
            e(Set(slot, choose(Binary("==", slot, Int(f.stages - 1)), Int(0), slot + 1)))
    e.origins, e.bases = outer, outer_bases
    e.landed = was or bool(plain) and runs(f)
    e(Loop(it.name, Int(0), rounds, Int(1), tuple(body), False))
    if nested and plain:
        e.do("dd_cp_async_wait", template=(0,))
        e(e.sync)


def wrapped(x: Expr, n: int) -> Expr:
    """x, in 0 .. 2n - 1, modulo n."""
    return choose(compare("<", x, n), x, x - n)


def runs(f: tile.For) -> bool:
    """Whether a loop surely has a round."""
    return max(i.range[1] for i in f.lo) < min(i.range[0] for i in f.hi)
