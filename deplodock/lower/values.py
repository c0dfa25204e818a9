"""Tile IR -> Kernel IR: register tiles, their values, and the statements that work on values alone."""
from __future__ import annotations

from typing import Callable

from deplodock.ir import tile
from deplodock.ir.dtype import Dtype
from deplodock.ir.expression import Address, Binary, Element, Expr, Int, Name, Not, both, call, choose, compare
from deplodock.ir.kernel import CTYPE, Array, Do, If, Let, Set, Stmt, registers
from deplodock.ir.layout import Layout
from deplodock.ir.loop import Const
from deplodock.lower import operators
from deplodock.lower.emit import LANE, Emit, digits, index_expression, register_in, unrolled

Value = Callable[[Expr], Expr]
"""The value of a register, as a function of its number."""
TUPLES = ("argmax", "argmin")
"""Monoids whose result is a value and where it stands."""


def read(e: Emit, source: tile.Reg | Const, layout: Layout, off: dict[str, int] | None = None) -> Value:
    """The values of a tile (or a number) as the registers of `layout` see them."""
    if isinstance(source, Const):
        return lambda r: operators.constant(source)
    name = e.name("reg", source.name)
    return lambda r: operators.element(name, register_in(layout, source.layout, r, off or {}), source.dtype)


def write(e: Emit, d: tile.Reg, value: Value) -> None:
    """Sets every register of a tile to value(r), which is in the type that its dtype computes in."""
    name, n = e.name("reg", d.name), d.layout.size
    if not d.dtype.is_16bit:
        e.each(n, lambda r: (Set(Element(name, r), value(r)),))
        return
    pack = f"dd_pack_{d.dtype}"
    e.each(n // 2, lambda r: (Set(Element(name, r), call(pack, value(r * 2), value(r * 2 + 1))),))
    if n % 2:
        e(Set(Element(name, Int(n // 2)), call(pack, value(Int(n - 1)), operators.real(0, Dtype.f32))))


def converted(e: Emit, source: tile.Reg | Const, d: tile.Reg) -> Value:
    value = read(e, source, d.layout)
    return lambda r: operators.convert(value(r), source.dtype, d.dtype)


def fill(e: Emit, s: tile.Fill) -> None:
    e.declare(s.dst)
    if s.value is not None:
        write(e, s.dst, converted(e, s.value, s.dst))


def compute(e: Emit, d: tile.Reg, op: str, srcs: tuple[tile.Reg | Const, ...], to: Dtype | None) -> None:
    """d = op(sources), into registers that are declared."""
    if op == "copy":
        write(e, d, converted(e, srcs[0], d))
        return
    values = [read(e, x, d.layout) for x in srcs]
    if op == "round" and to is not None:                 # without a dtype it is the operator: to the nearest integer
        write(e, d, lambda r: operators.rounded(values[0](r), to))
        return
    write(e, d, lambda r: operators.apply(op, srcs[-1].dtype, [v(r) for v in values]))


def index_tile(e: Emit, s: tile.IndexTile) -> None:
    e.declare(s.dst)
    write(e, s.dst, lambda r: index_expression(s.index, e.coordinates(s.coords, s.dst.layout, r)))


def mask(e: Emit, s: tile.Mask) -> None:
    e.declare(s.dst)
    write(e, s.dst, converted(e, s.src, s.dst))
    kept = read(e, s.dst, s.dst.layout)
    other = operators.convert(operators.constant(s.other), s.other.dtype, s.dst.dtype)

    def value(r: Expr) -> Expr:
        at = e.coordinates(s.coords, s.dst.layout, r)
        return choose(both(*(e.holds(c, at) for c in s.where)), kept(r), other)

    whole = both(*(e.holds(c, lambda a: e.origins[a]) for c in s.whole)) if s.whole else Int(0)
    with e.inside() as stmts:
        write(e, s.dst, value)
    e.when(Int(1) if whole == Int(0) else Int(0) if whole == Int(1) else Not(whole), stmts)


def predicate(e: Emit, s: tile.Predicate) -> None:
    e.declare(s.dst)

    def value(r: Expr) -> Expr:
        at = e.coordinates(s.coords, s.dst.layout, r)
        return both(*(e.holds(c, at) for c in s.where))
    write(e, s.dst, value)


def slice_tile(e: Emit, s: tile.Slice) -> None:
    name, source, off = e.declare(s.dst), e.name("reg", s.src.name), dict(s.off)
    if s.dst.dtype.is_16bit and pairs_stay(s.dst.layout, s.src.layout, off):
        e.each(s.dst.layout.size // 2, lambda r: (Set(Element(name, r), Element(
            source, register_in(s.dst.layout, s.src.layout, r * 2, off) // 2)),))
    else:
        write(e, s.dst, read(e, s.src, s.dst.layout, off))


def pairs_stay(mine: Layout, source: Layout, off: dict[str, int]) -> bool:
    """Whether registers 2i and 2i + 1 of a tile are registers 2j and 2j + 1 of the other."""
    const, of = mine.register_in(source, off)
    first = [d for d in of if d[0] == 1]
    return (mine.size % 2 == 0 and const % 2 == 0 and len(first) == 1 and first[0][1] % 2 == 0 and first[0][2] == 1
            and all(d[2] % 2 == 0 for d in of if d not in first))


def check(e: Emit, s: tile.Check) -> None:
    value, layout = read(e, s.src, s.src.layout), s.src.layout

    def body(r: Expr) -> tuple[Stmt, ...]:
        at = e.coordinates(s.coords, layout, r)
        exists = both(*(compare("<", at(c.axis), c.limit) for c in s.coords if c.limit is not None))
        do = Do(call("dd_check", value(r), s.extent))
        return (do,) if exists == Int(1) else (If(exists, (do,)),)
    e.each(layout.size, body)


# ---- reductions ------------------------------------------------------------------------------------------------------

def merge_into(e: Emit, monoid: str, d: Dtype, mine: tuple[Element, ...], theirs: tuple[Expr, ...]) -> tuple[Stmt, ...]:
    """mine = mine (monoid) theirs, an expression for each component; d is the dtype of the first."""
    if monoid in TUPLES:
        better = Name(e.fresh("better"))
        return (Let(better.name, "bool", operators.takes(monoid, d, *theirs, *mine)),
                *(Set(m, choose(better, t, m)) for m, t in zip(mine, theirs)))
    return (Set(mine[0], operators.merge(monoid, d, mine[0], theirs[0])),)


def reduce_tile(e: Emit, s: tile.Reduce) -> None:
    """Within a thread: a tree over the registers that go to one, or one after the other where a result is a tuple."""
    with e.inside() as stmts:
        if len(s.dst) == 1 and s.src[0].layout.size >= 4 * s.dst[0].layout.size:
            reduce_as_tree(e, s)
        else:
            reduce_in_turn(e, s)
    turn = both(*(compare("==", e.warp >> bit & 1, value) for bit, value in s.turn))
    e.when(turn, stmts)


def reduce_in_turn(e: Emit, s: tile.Reduce) -> None:
    layout = s.src[0].layout
    values = [read(e, x, layout) for x in s.src]

    def body(r: Expr) -> tuple[Stmt, ...]:
        at = register_in(layout, s.dst[0].layout, r, {})
        return merge_into(e, s.monoid, s.dst[0].dtype, tuple(Element(e.name("reg", d.name), at) for d in s.dst),
                          tuple(v(r) for v in values))
    e.each(layout.size, body)


def reduce_as_tree(e: Emit, s: tile.Reduce) -> None:
    (d,), (x,) = s.dst, s.src
    kept = {(axis, step) for axis, step, _ in d.layout.regs}
    inner = [g for g in digits_of(x.layout) if g[:2] not in kept]
    name, n, value, tree = e.name("reg", d.name), x.layout.size // d.layout.size, read(e, x, x.layout), e.fresh("tree")

    def source(i: Expr, j: Expr) -> Expr:
        """The register that is number j of those that go to register i."""
        own = {(a, step): (stride, size) for a, step, size, stride in digits_of(d.layout)}
        to_i = [(*own[a, step], stride) for a, step, _, stride in digits_of(x.layout) if (a, step) in own]
        to_j, at = [], 1
        for _, _, size, stride in inner:
            to_j.append((at, size, stride))
            at *= size
        return digits(to_i, i) + digits(to_j, j)

    def merged(target: Element, a: Expr, b: Expr) -> tuple[Stmt, ...]:
        return (Set(target, operators.merge(s.monoid, d.dtype, a, b)),)

    def body(i: Expr) -> tuple[Stmt, ...]:
        half = n // 2 if n % 2 == 0 else n

        def leaf(j: Expr) -> Expr:
            return value(source(i, j))

        def node(j: Expr) -> Element:
            return Element(tree, j)

        def first(j: Expr) -> tuple[Stmt, ...]:
            return merged(node(j), leaf(j), leaf(j + half)) if half < n else (Set(node(j), leaf(j)),)
        out: list[Stmt] = [Array(tree, CTYPE[d.dtype], half), *unrolled(half, first, "j")]
        while half % 2 == 0:
            half //= 2
            out += unrolled(half, lambda j: merged(node(j), node(j), node(j + half)), "j")
        return (*out, *unrolled(half, lambda j: merged(Element(name, i), Element(name, i), node(j)), "j"))
    e.each(d.layout.size, body)


def digits_of(layout: Layout) -> list[tuple[str, int, int, int]]:
    """(axis, step, size, stride) of each digit of the registers."""
    out, stride = [], 1
    for axis, step, size in layout.regs:
        out.append((axis, step, size, stride))
        stride *= size
    return out


def combine(e: Emit, s: tile.Combine) -> None:
    """Over lanes by shuffles, then over warps through shared memory."""
    if s.monoid in ONLINE:
        combine_online(e, s)
        return
    layout = s.dst[0].layout
    names = [e.name("reg", d.name) for d in s.dst]

    def shuffled(r: Expr, bit: int) -> tuple[Stmt, ...]:
        mine = tuple(Element(x, r) for x in names)
        theirs = tuple(call("dd_shfl_xor", m, 1 << bit) for m in mine)
        if len(names) == 1:
            return merge_into(e, s.monoid, s.dst[0].dtype, mine, theirs)
        lets = tuple(Let(e.fresh("other"), CTYPE[d.dtype], t) for d, t in zip(s.dst, theirs))
        return (*lets, *merge_into(e, s.monoid, s.dst[0].dtype, mine, tuple(Name(l.name) for l in lets)))

    for bit in s.lanes:
        e.each(layout.size, lambda r: shuffled(r, bit))
    if s.warps:
        across_warps(e, s, names)


def across_warps(e: Emit, s: tile.Combine, names: list[str]) -> None:
    """Each warp writes what it has; then each reads what those wrote that differ in the named bits, in their order."""
    n, warps = s.dst[0].layout.size, e.kernel.warps
    mask = sum(1 << w for w in s.warps)
    spans = [e.allocate("partial", n * 32 * warps * d.dtype.bytes) for d in s.dst]

    def place(i: int, warp: Expr, r: Expr) -> Expr:
        return spans[i] + ((warp * n + r) * 32 + LANE) * s.dst[i].dtype.bytes

    if e.depth:
        e(e.sync)
    e.each(n, lambda r: tuple(Do(call(f"dd_sts{d.dtype.bytes}", place(i, e.warp, r), Address(x, r)))
                              for i, (d, x) in enumerate(zip(s.dst, names))))
    e(e.sync)
    mates = [w for w in range(warps) if w & ~mask == 0]
    kept = ~mask & warps - 1

    def mate(w: int, r: Expr) -> tuple[Stmt, ...]:
        warp = (e.warp & kept) + w if kept else Int(w)
        mine = tuple(Element(x, r) for x in names)
        parts = [] if w == 0 else [Array(e.fresh("part"), CTYPE[d.dtype], 1) for d in s.dst]
        into = [Address(p.name, Int(0)) for p in parts] or [Address(x, r) for x in names]
        loads = [Do(call(f"dd_lds{d.dtype.bytes}", to, place(i, warp, r)))
                 for i, (d, to) in enumerate(zip(s.dst, into))]
        if w == 0:
            return tuple(loads)
        theirs = tuple(Element(p.name, Int(0)) for p in parts)
        return (*parts, *loads, *merge_into(e, s.monoid, s.dst[0].dtype, mine, theirs))

    for w in mates:
        e.each(n, lambda r: mate(w, r))


ONLINE = {"online": "expsub", "online2": "exp2sub"}
"""Monoids of online folds, and how they weigh a sum when its maximum rises."""


def combine_online(e: Emit, s: tile.Combine) -> None:
    """The greatest m of all, then everything rescaled to it, then sums."""
    m, *sums = s.dst
    name, before = e.name("reg", m.name), e.fresh("before")
    e(Array(before, CTYPE[m.dtype], m.layout.size))
    e.each(m.layout.size, lambda r: (Set(Element(before, r), Element(name, r)),))
    combine(e, tile.Combine((m,), "fmax", s.axis, s.lanes, s.warps))

    def factor(r: Expr) -> tuple[Stmt, ...]:
        safe = operators.apply("finite", m.dtype, (Element(name, r),))
        return (Set(Element(before, r), operators.apply(ONLINE[s.monoid], m.dtype, (Element(before, r), safe))),)
    e.each(m.layout.size, factor)
    for o in sums:
        at = e.name("reg", o.name)
        e.each(o.layout.size, lambda r: (
            Set(Element(at, r), Element(before, register_in(o.layout, m.layout, r, {})), "*"),))
        combine(e, tile.Combine((o,), "sum", s.axis, s.lanes, s.warps))


def promote(e: Emit, s: tile.Promote) -> None:
    """acc += part, part = 0, in the rounds that end a partial sum."""
    acc, part = e.name("reg", s.acc.name), e.name("reg", s.part.name)
    zero = operators.real(0, s.part.dtype) if s.part.dtype.is_float else Int(0)
    with e.inside() as stmts:
        e.each(s.acc.layout.size, lambda r: (
            Set(Element(acc, r), operators.merge("sum", s.acc.dtype, Element(acc, r), Element(part, r))),
            Set(Element(part, r), zero)))
    test: Expr = Int(1)
    if s.loop is not None and s.every > 1:
        test = compare("==", e.origins[s.loop] // s.step % s.every, s.every - 1)
    e.when(test, stmts)


def exchange(e: Emit, s: tile.Exchange) -> None:
    """Registers change places, or lanes, or warps: wherever the one bit of the axis is."""
    layout, name, source = s.src.layout, e.declare(s.dst), e.name("reg", s.src.name)
    found = layout.thread(s.axis)
    if not found:
        flipped = [(stride, size) for a, _, size, stride in digits_of(layout) if a == s.axis]
        e.require(len(flipped) == 1 and flipped[0][1] == 2, f"an exchange over {s.axis} needs one bit of it: {layout}")
        stride = flipped[0][0]
        value = read(e, s.src, layout)
        write(e, s.dst, lambda r: value(r // (2 * stride) * (2 * stride) + (1 - r // stride % 2) * stride + r % stride))
        return
    (kind, bit, _), = found
    words = registers(s.src.dtype, layout.size)
    if kind == "lane":
        e.each(words, lambda r: (Set(Element(name, r), call("dd_shfl_xor", Element(source, r), 1 << bit)),))
        return
    size = 4 if s.src.dtype.is_16bit else s.src.dtype.bytes
    span = e.allocate("exchange", words * 32 * e.kernel.warps * size)
    mate = Binary("^", e.warp, Int(1 << bit))

    def place(warp: Expr, r: Expr) -> Expr:
        return span + ((warp * words + r) * 32 + LANE) * size
    if e.depth:
        e(e.sync)
    e.each(words, lambda r: (Do(call(f"dd_sts{size}", place(e.warp, r), Address(source, r))),))
    e(e.sync)
    e.each(words, lambda r: (Do(call(f"dd_lds{size}", Address(name, r), place(mate, r))),))
