"""Tile IR -> Kernel IR: a kernel, its blocks' tiles, and which statement becomes what.

Three ways to run one tree: every thread copies its share (cp.async); one thread copies (TMA); a producer warp copies,
the others compute (roles). They differ in loops.py and roles.py only.
"""
from __future__ import annotations

from dataclasses import replace
from functools import partial

from deplodock.errors import IllegalSchedule
from deplodock.ir import kernel as ir, tile
from deplodock.ir.cuda import Param
from deplodock.ir.expression import Binary, Expr, Int, Name, both, call, choose, compare, operands
from deplodock.ir.kernel import Do, If, Let, Loop, Roles, Stmt
from deplodock.ir.kernel_verify import verify_kernel
from deplodock.ir.layout import Layout, Shared
from deplodock.ir.plan import Kernel
from deplodock.ir.tile_show import show_stmt
from deplodock.lower import loops, memory, products, rings, roles, values
from deplodock.lower.emit import SHARED_ALIGNMENT, Emit
from deplodock.lower.flatten import Facts
from deplodock.lower.tile import lower_tile

BLOCK = "block"
WARPGROUP_WARPS, FIRST_GROUP_BARRIER = 4, 2
PREFIX = "k_"
"""Of every kernel's symbol: CUDA has functions of its own called norm, max, log .."""
MOST_SHARED = 227 * 1024 - SHARED_ALIGNMENT
"""Bytes that a block of any architecture may have, less what aligning their first one may cost."""
STRIPE = 64
"""Rows of a warpgroup's product."""


def lower_kernel(k: tile.Kernel) -> ir.Kernel:
    """The thread-level program of a kernel. IllegalSchedule where its schedule asks for what no machine has."""
    e = Emit(k)
    params = tuple(Param(p.name, e.name("param", p.name), p.dtype, p.written) for p in k.params)
    total = sum(p.blocks for p in k.parts)
    e.require(not k.roles or len(k.parts) < 2 and all(c.box for c in tile.all_copies(k)),
              "a kernel with roles has one part, and copies by TMA only")
    first, shared = 0, 0
    for part in k.parts:
        with e.inside() as stmts:
            start(e, part)
            (with_roles if k.roles else without_roles)(e, first)
        last = first + part.blocks
        e.when(both(compare("<=", first, Name(BLOCK, total)), compare("<", Name(BLOCK, total), last)), stmts)
        first, shared = last, max(shared, e.shared)
    e.require(shared <= MOST_SHARED, f"{shared} bytes of shared memory; a block has {MOST_SHARED} at most")
    grid = min(total, k.persistent or total)
    symbol = e.name("kernel", k.name if k.name.startswith(PREFIX) else PREFIX + k.name)
    made = ir.Kernel(symbol, params, tuple(e.maps), grid, k.threads, k.min_blocks, shared, tuple(e.spans),
                     without_unused(tuple(e.out)), k.source)
    verify_kernel(made)
    return made


def legal(kernel: Kernel, facts: Facts = {}) -> str | None:
    """Why a kernel has no code under its schedule, or None if it has."""
    try:
        lower_kernel(lower_tile(kernel, facts))
    except IllegalSchedule as e:
        return e.facts["reason"]
    return None


def without_unused(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements without values that none of them uses."""
    used: set[str] = set()

    def mentioned(x: Expr) -> None:
        if isinstance(x, Name):
            used.add(x.name)
        for y in operands(x):
            mentioned(y)

    def swept(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """From the last statement to the first: a value is used, if at all, behind it."""
        out: list[Stmt] = []
        for s in reversed(stmts):
            if isinstance(s, Let) and s.name not in used:
                continue
            match s:
                case Loop(): s = replace(s, body=swept(s.body))
                case If(): s = replace(s, body=swept(s.body))
                case Roles(): s = replace(s, body=swept(s.body), producer=swept(s.producer))
            for x in ir.expressions(s):
                mentioned(x)
            out.append(s)
        return tuple(reversed(out))
    return swept(stmts)


def start(e: Emit, part: tile.Part) -> None:
    """Memory for one part; another part's blocks are other blocks, so it may lie over theirs."""
    e.part, e.landed, e.shared, e.scratch_floor, e.late, e.lagging = part, True, 0, 0, [], []
    e.rings = rings.rings_of(part)
    if e.rings:
        e.bars = e.allocate("bars", sum(2 * rings.MBARRIER * r.stages for r in e.rings))
    for r in e.rings:
        if r.loop is None:
            place_all(e, r)
    for c in part.copies:
        if not c.box:
            e.place(c.dst)
    e.scratch_floor = e.shared
    for r in e.rings:
        if r.loop is not None:
            place_all(e, r)


def place_all(e: Emit, r: rings.Ring) -> None:
    for c in r.copies:
        e.place(c.dst)


# ---- a block's tiles -------------------------------------------------------------------------------------------------

def origins(e: Emit, number: Expr) -> None:
    """Number of the tile -> where it begins on each axis. The last axis of the grid is fastest, or groups of tiles."""
    k, grid = e.kernel, e.part.grid
    e.origins = {tile.origin(g.axis): Int(0) for g in grid}
    many = [g for g in grid if g.blocks > 1]
    grouped = k.group is not None and len(many) == 2 and k.group[0] in [g.axis.name for g in many]
    at: dict[str, Expr] = {}
    if grouped:
        a, b = sorted(many, key=lambda g: g.axis.name != k.group[0])
        size = k.group[1]
        strip, within = number // (size * b.blocks), number % (size * b.blocks)
        rows = Name(e.fresh("rows"))
        left = a.blocks - strip * size
        e(Let(rows.name, "int", choose(compare("<", left, size), left, size)))
        at[a.axis.name] = strip * size + Binary("%", within, rows)
        at[b.axis.name] = Binary("/", within, rows)
    else:
        stride = 1
        for g in reversed(many):
            at[g.axis.name] = number // stride % g.blocks
            stride *= g.blocks
    for g in many:
        name = e.name("axis", tile.origin(g.axis).name)
        index = (g.blocks - 1) - at[g.axis.name] if g.reverse else at[g.axis.name]
        e(Let(name, "int", index * g.tile))
        e.origins[tile.origin(g.axis)] = Name(name, g.axis.extent)


def each_tile(e: Emit, first: int, body) -> None:
    """body(), once for each tile of this block."""
    k, blocks = e.kernel, e.part.blocks
    number = Name(BLOCK, sum(p.blocks for p in k.parts)) - first
    if k.persistent and k.persistent < blocks:
        counter = Name(e.fresh("number"), blocks)
        with e.inside(loop=True) as stmts:
            origins(e, counter)
            body()
        e(Loop(counter.name, number, Int(blocks), Int(k.persistent), tuple(stmts), False))
    else:
        origins(e, number)
        body()


def statements(e: Emit, stmts: tuple[tile.Stmt, ...], owner: tile.For | None, done) -> None:
    """The statements of a loop's body (of the part's, if owner is None), with the waits for the rings they read."""
    fills = [i for i, s in enumerate(stmts) if isinstance(s, tile.For) and roles.has_copies(s)]
    for i, s in enumerate(stmts):
        if owner is None:
            e.rings_ahead = bool(e.kernel.persistent) or any(j >= i for j in fills)
        for r in e.rings:
            if r.loop is owner and r.first == i:
                rings.wait_full(e, r)
        e.note(show_stmt(s))
        statement(e, s)
        for r in e.rings:
            if r.loop is owner and r.last == i:
                done(e, r)


def statement(e: Emit, s: tile.Stmt) -> None:
    match s:
        case tile.Fill(): values.fill(e, s)
        case tile.LoadGlobal(): memory.load_global(e, s)
        case tile.LoadShared(): memory.load_shared(e, s)
        case tile.IndexTile(): values.index_tile(e, s)
        case tile.Predicate(): values.predicate(e, s)
        case tile.Map(d, op, srcs, to):
            e.declare(d)
            values.compute(e, d, op, srcs, to)
        case tile.Assign(d, op, srcs): values.compute(e, d, op, srcs, None)
        case tile.Mask(): values.mask(e, s)
        case tile.Slice(): values.slice_tile(e, s)
        case tile.Convert(): memory.convert_layout(e, s)
        case tile.Exchange(): values.exchange(e, s)
        case tile.Check(): values.check(e, s)
        case tile.Mma(): products.mma(e, s)
        case tile.MmaFence(): products.fence(e, s)
        case tile.MmaCommit(): products.commit(e)
        case tile.MmaWait():
            products.wait(e, s)
            if not s.pending:
                roles.drained(e)
        case tile.Reduce(): values.reduce_tile(e, s)
        case tile.Combine(): values.combine(e, s)
        case tile.Promote(): values.promote(e, s)
        case tile.StoreShared(): stage(e, s)
        case tile.Store(): memory.store_global(e, s)
        case tile.CopyOut(): copy_out(e, s)
        case tile.For(): e.loop(s)
        case _: raise TypeError(f"{type(s).__name__} is no statement of a body")


# ---- outputs by TMA --------------------------------------------------------------------------------------------------

def leaving(e: Emit, t: tile.SharedTile) -> tile.CopyOut | None:
    """The statement by which TMA takes a shared tile away, if one does."""
    return next((s for s in tile.walk(e.part.body) if isinstance(s, tile.CopyOut) and s.src.name == t.name), None)


def by_warpgroup(e: Emit, layout: Layout, shape: Shared) -> bool:
    """Whether each warpgroup has stripes of 64 rows of its own, which it can store without the others."""
    row = shape.row[-1]
    return (len(shape.row) == 1 and e.kernel.warps % WARPGROUP_WARPS == 0 and e.kernel.warps > WARPGROUP_WARPS
            and layout.warp == tuple((row, 16 << i) for i in range(len(layout.warp))))


def meet(e: Emit, layout: Layout, shape: Shared) -> tuple[Stmt, Expr]:
    """What those who fill a tile together wait at, and which one of them stores it."""
    if not by_warpgroup(e, layout, shape):
        return e.sync, Binary("==", e.thread, Int(0))
    barrier = call("dd_bar", e.warp // WARPGROUP_WARPS + FIRST_GROUP_BARRIER, roles.WARPGROUP)
    return Do(barrier), Binary("==", e.thread % roles.WARPGROUP, Int(0))


def stage(e: Emit, s: tile.StoreShared) -> None:
    """Registers -> a shared tile that others read: threads, the tensor core, or TMA."""
    out = leaving(e, s.dst)
    if s.dst.name not in e.memory:
        e.place(s.dst, reuse=True)
        e.scratch_floor = e.shared
    wait, one = meet(e, s.src.layout, s.dst.shape) if out else (e.sync, Int(0))
    if out and e.depth:                                  # the tile before may still be on its way out
        e(If(one, (Do(call("dd_tma_store_wait_read")),)))
        e(wait)
    else:
        e(e.sync)
    memory.store_shared(e, s)
    if out or e.read_by_proxy([s.dst.name]):
        e.do("dd_fence_async")
    e(wait)


def copy_out(e: Emit, s: tile.CopyOut) -> None:
    _, one = meet(e, s.layout, s.src.shape)
    split = by_warpgroup(e, s.layout, s.src.shape)
    shape, base, box = s.src.shape, e.bases[s.src.name], s.box
    if split:
        box = replace(box, dims=tuple(replace(d, count=STRIPE) if d.axis == shape.row[-1] else d for d in box.dims))
    stripe = e.warp // WARPGROUP_WARPS * STRIPE
    starts = [stripe + j for j in range(0, shape.rows, 16 * e.kernel.warps)] if split else [Int(0)]
    with e.inside() as stmts:
        for rows in starts:
            rings.transfer(e, box, s.dst.param, s.src, lambda map_, offset, at: call(
                f"dd_tma_store_{len(at)}d", map_, base + offset, *at), rows)
        e.do("dd_tma_store_commit")
    e(If(one, tuple(stmts)))


def drain_stores(e: Emit) -> None:
    """A block must not end while TMA reads its shared memory."""
    who = {meet(e, s.layout, s.src.shape)[1]: None for s in tile.walk(e.part.body) if isinstance(s, tile.CopyOut)}
    for one in who:
        e(If(one, (Do(call("dd_tma_store_wait_read")),)))


# ---- the ways to run a part ------------------------------------------------------------------------------------------

def barriers(e: Emit) -> None:
    """One thread makes the mbarriers, and all wait for it."""
    if not e.rings:
        return
    with e.inside() as stmts:
        for r in e.rings:
            slot = Name("s", r.stages)
            inits = [Do(call("dd_mbar_init", rings.full(e, r, slot), 1))]
            if e.kernel.roles:
                inits.append(Do(call("dd_mbar_init", rings.empty(e, r, slot), roles.arrivals(e.kernel, r))))
            e(Loop("s", Int(0), Int(r.stages), Int(1), tuple(inits), False))
        e.do("dd_mbar_init_fence")
    e(If(Binary("==", e.thread, Int(0)), tuple(stmts)))
    e.do("dd_sync")


def without_roles(e: Emit, first: int) -> None:
    e.statements = partial(statements, e, done=rings.advance)
    e.loop = partial(loops.loop, e)
    barriers(e)
    rings.positions(e)

    def body() -> None:
        loops.once(e)
        e.statements(e.part.body, None)
    each_tile(e, first, body)
    drain_stores(e)


def with_roles(e: Emit, first: int) -> None:
    k = e.kernel
    barriers(e)
    with e.inside() as producer:
        rings.positions(e)
        each_tile(e, first, lambda: roles.produce(e, e.part.body, None))
    budget = roles.budgets(e)
    one = (If(Binary("==", e.thread, Int(32 * k.warps)), tuple(producer)),)
    e.sync = Do(call("dd_bar", 1, 32 * k.warps))
    e.statements = partial(statements, e, done=roles.done)
    e.loop = partial(roles.loop, e)
    with e.inside() as consumers:
        rings.positions(e)
        each_tile(e, first, lambda: e.statements(e.part.body, None))
        drain_stores(e)
    if budget:
        one = (Do(call("dd_regs_dec", template=(budget[0],))), *one)
        consumers.insert(0, Do(call("dd_regs_inc", template=(budget[1],))))
    e(Roles(32 * k.warps, tuple(consumers), one))
