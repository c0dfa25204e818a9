"""Tile IR -> Kernel IR: addresses, and what moves tiles between global memory, shared memory and registers.

Widths are derived: as many neighbours as registers hold one after the other and strides, offsets, bounds and the
alignment of the tensor allow, up to 16 bytes. A thread moves 16-bit floats in pairs where it can, else half by half.
"""
from __future__ import annotations

from math import gcd

from deplodock.ir import tile
from deplodock.ir.expression import Address, Binary, Convert, Element, Expr, Int, Pointer, bit_xor, both, call, compare
from deplodock.ir.index import Axis, Index
from deplodock.ir.kernel import Do, If, Set, Stmt
from deplodock.ir.layout import Address as SharedAddress, Layout
from deplodock.lower.emit import Emit, digits, index_expression
from deplodock.lower.layout import conflicts, copy_layout, ldmatrix, run

WIDEST = 16
"""Bytes of the widest access."""
INT_ELEMENTS = 1 << 31
"""Tensors with this many elements or more are indexed with 64 bits."""


# ---- global memory ---------------------------------------------------------------------------------------------------

def aligned(e: Emit, a: tile.Access, along: str, most: int) -> int:
    """Elements, at most so many, that one access may take along an axis which is contiguous there: a power of two."""
    size = a.param.dtype.bytes
    v = gcd(most, max(1, a.param.alignment // size))
    if a.step(along) != 1 or any(x.name == along for g in a.guards for x in (*g.left.free, *g.right.free)):
        return 1
    if any(c.loaded and along in c.loaded.layout.axes for c in a.coords):      # neighbours lie where each says
        return 1
    v = gcd(v, a.element.const)
    for atom, c in a.element.terms:
        if not (isinstance(atom, Axis) and atom.name == along):
            v = gcd(v, c)
    for c in a.coords:
        if c.axis.name == along:
            v = gcd(v, c.off)
            v = gcd(v, c.limit or 0)
            v = gcd(v, c.base.const)
            for atom, factor in c.base.terms:
                v = gcd(v, factor * e.multiples.get(atom, 1))
    return v


def width(e: Emit, a: tile.Access, layout: Layout) -> int:
    """Elements of one access of a register tile."""
    if not layout.regs:
        return 1
    along = layout.regs[0][0]
    return aligned(e, a, along, run(layout, along, WIDEST // a.param.dtype.bytes))


def pointer(e: Emit, a: tile.Access, layout: Layout, r: Expr) -> Expr:
    """The address of the element of register r."""
    value = e.coordinates(a.coords, layout, r)
    if sum((n - 1) * abs(s) for n, s in zip(a.dims, a.strides)) >= INT_ELEMENTS:
        return Pointer(e.name("param", a.param.name), index_expression(a.element, lambda x: Convert("i64", value(x))))
    at = {c.axis: c for c in a.coords}
    block, thread, own = Int(0), Int(0), Int(0)
    for atom, factor in a.element.terms:
        c = at.get(atom) if isinstance(atom, Axis) else None
        if c is None or c.loaded:
            thread = thread + index_expression(Index(((atom, 1),), 0), value) * factor
            continue
        block = block + (e.uniform(c.base) + c.off) * factor
        thread = thread + e.bits(layout.thread(c.axis.name)) * factor
        own = own + digits(layout.digits(c.axis.name), r) * factor
    return Pointer(e.name("param", a.param.name), block + thread + own + a.element.const)


def inside(e: Emit, a: tile.Access, layout: Layout, r: Expr) -> Expr:
    """Whether register r is read or written at all."""
    value = e.coordinates(a.coords, layout, r)
    return both(*(compare("<", value(c.axis), c.limit) for c in a.coords if c.limit is not None),
                *(e.holds(g, value) for g in a.guards))


def registers_at(name: str, r: Expr, v: int, is_16bit: bool) -> Expr:
    """The address of the registers that the r-th access of v elements moves."""
    return Address(name, r * v // 2 if is_16bit else r * v)


def load_global(e: Emit, s: tile.LoadGlobal) -> None:
    d, a = s.dst, s.src
    name, v, n, half = e.declare(d), width(e, a, d.layout), d.layout.size, d.dtype.is_16bit

    def bits(r: Expr) -> Expr:
        test, at = inside(e, a, d.layout, r), pointer(e, a, d.layout, r)
        return call("dd_ldg_half", at) if test == Int(1) else call("dd_ldg_half_if", at, test)

    if half and v == 1:
        halves(e, name, n, bits)
        return

    def body(r: Expr) -> tuple[Stmt, ...]:
        test, at = inside(e, a, d.layout, r * v), pointer(e, a, d.layout, r * v)
        to, op = registers_at(name, r, v, half), f"dd_ldg{v * d.dtype.bytes}"
        return (Do(call(op, to, at)) if test == Int(1) else Do(call(op + "_if", to, at, test)),)
    e.each(n // v, body)


def halves(e: Emit, name: str, n: int, bits) -> None:
    """Fills registers with 16-bit values, each read on its own."""
    e.each(n // 2, lambda r: (Set(Element(name, r), call("dd_pack_bits", bits(r * 2), bits(r * 2 + 1))),))
    if n % 2:
        e(Set(Element(name, Int(n // 2)), bits(Int(n - 1))))


def half_of(name: str, r: Expr) -> Expr:
    """The bits of 16-bit value number r, in the lower half."""
    word, upper = Element(name, r // 2), r % 2
    return word if upper == Int(0) else Binary(">>", word, upper * 16)


def store_global(e: Emit, s: tile.Store) -> None:
    a, x = s.dst, s.src
    name, layout, half = e.name("reg", x.name), x.layout, x.dtype.is_16bit
    v = width(e, a, layout)
    alone = e.only_one(layout)

    def body(r: Expr) -> tuple[Stmt, ...]:
        at, test = pointer(e, a, layout, r * v), both(alone, inside(e, a, layout, r * v))
        if half and v == 1:
            do = Do(call("dd_stg_half", at, half_of(name, r)))
        else:
            do = Do(call(f"dd_stg{v * x.dtype.bytes}", at, registers_at(name, r, v, half)))
        return guarded(test, do)
    e.each(layout.size // v, body)


def guarded(test: Expr, *stmts: Stmt) -> tuple[Stmt, ...]:
    return stmts if test == Int(1) else () if test == Int(0) else (If(test, stmts),)


# ---- shared memory ---------------------------------------------------------------------------------------------------

def shared_address(e: Emit, base: Expr, address: SharedAddress, r: Expr) -> Expr:
    """A byte address in a shared tile: what the swizzle flips meets the thread's bits by xor, all else is added."""
    mask = address.touched
    added, met, free = [], [], []
    for stride, size, places in address.digits:
        j = r // stride % size
        for first, n, value in runs([p[0] for p in places]):
            added.append((j >> first & (1 << n) - 1) * value)
        for first, n, value in runs([p[1] for p in places], lambda v: bool(v & mask)):
            (met if value & mask else free).append((j >> first & (1 << n) - 1) * value)
    at = e.bits(address.thread_flip, bit_xor)
    for x in [*met, Int(address.flip & mask)]:
        at = bit_xor(at, x)
    rest: Expr = Int(0)
    for x in [*free, Int(address.flip & ~mask)]:
        rest = bit_xor(rest, x)
    out = base + e.bits(address.thread_add) + at + rest + address.add
    for x in added:
        out = out + x
    return out


def runs(values: list[int], kind=bool) -> list[tuple[int, int, int]]:
    """(first, length, value of the first) of each run of values that double and are of one kind; zeros are left out."""
    out: list[tuple[int, int, int]] = []
    for i, v in enumerate(values):
        if not v:
            continue
        if out and out[-1][0] + out[-1][1] == i and v == out[-1][2] << out[-1][1] and kind(v) == kind(out[-1][2]):
            out[-1] = (out[-1][0], out[-1][1] + 1, out[-1][2])
        else:
            out.append((i, 1, v))
    return out


def tile_base(e: Emit, t: tile.SharedTile) -> Expr:
    """The address of the slot of a shared tile that is in use."""
    return e.bases[t.name]


def load_shared(e: Emit, s: tile.LoadShared) -> None:
    d, t = s.dst, s.src
    e.ready(t)
    name, n, half, off = e.declare(d), d.layout.size, d.dtype.is_16bit, dict(s.off)
    base = tile_base(e, t)
    if half and (match := ldmatrix(d.layout, t.shape)):
        trans, rows = match
        e.require(conflicts(rows, t.shape) == 1, f"reading {t.name} as {d.layout}: the swizzle leaves a bank conflict")
        op, address = "dd_ldmatrix_x4" + ("_trans" if trans else ""), t.shape.address(rows, off)
        e.each(n // 8, lambda r: (Do(call(op, Address(name, r * 4), shared_address(e, base, address, r))),))
        return
    v, address = shared_width(t, d.layout, off), t.shape.address(d.layout, off)
    if half and v == 1:
        halves(e, name, n, lambda r: call("dd_lds_half", shared_address(e, base, address, r)))
        return
    op = f"dd_lds{v * d.dtype.bytes}"
    e.each(n // v, lambda r: (Do(call(op, registers_at(name, r, v, half), shared_address(e, base, address, r * v))),))


def shared_width(t: tile.SharedTile, layout: Layout, off: dict[str, int]) -> int:
    """Elements of one access: neighbours along the columns, which stay together in pieces of 16 bytes."""
    v = run(layout, t.shape.col, WIDEST // t.shape.size)
    return gcd(v, off.get(t.shape.col, 0)) if off.get(t.shape.col) else v


def store_shared(e: Emit, s: tile.StoreShared) -> None:
    """A register tile into a shared tile; by stmatrix where it fits and the machine has it (what leaves by TMA)."""
    d, x = s.dst, s.src
    name, half, base = e.name("reg", x.name), x.dtype.is_16bit, tile_base(e, d)
    if half and e.has_stmatrix and (match := ldmatrix(x.layout, d.shape)):
        trans, rows = match
        op, address = "dd_stmatrix_x4" + ("_trans" if trans else ""), d.shape.address(rows, {})
        e.each(x.layout.size // 8, lambda r: (Do(call(op, shared_address(e, base, address, r), Address(name, r * 4))),))
        return
    v, address, alone = shared_width(d, x.layout, {}), d.shape.address(x.layout, {}), e.only_one(x.layout)

    def body(r: Expr) -> tuple[Stmt, ...]:
        at = shared_address(e, base, address, r * v)
        if half and v == 1:
            return guarded(alone, Do(call("dd_sts_half", at, half_of(name, r))))
        return guarded(alone, Do(call(f"dd_sts{v * x.dtype.bytes}", at, registers_at(name, r, v, half))))
    e.each(x.layout.size // v, body)


def copy_async(e: Emit, c: tile.Copy, base: Expr) -> None:
    """Global to shared memory by all threads: cp.async of 16, 8 or 4 bytes; smaller pieces go through a register."""
    shape, a = c.dst.shape, c.src
    v = aligned(e, a, shape.col, WIDEST // shape.size)
    layout = copy_layout(shape, v, e.warp_bits)
    size, address = v * shape.size, shape.address(layout, {})
    sizes = dict(zip((*shape.row, shape.col), (*shape.spans, shape.cols)))
    covered = [(axis, n) for axis, n in sizes.items() if layout.extent(axis) > n]

    def body(r: Expr) -> tuple[Stmt, ...]:
        test, to, at = inside(e, a, layout, r), shared_address(e, base, address, r), pointer(e, a, layout, r)
        within = both(*(compare("<", e.share(layout, axis, r), n) for axis, n in covered))
        if size == WIDEST and test == Int(1):
            return guarded(within, Do(call("dd_cp_async16", to, at)))
        op = f"dd_cp_async{size}_if" if size >= 4 else f"dd_copy{size}_if"
        return guarded(within, Do(call(op, to, at, test)))
    e.each(layout.size, body)


# ---- another layout --------------------------------------------------------------------------------------------------

def convert_layout(e: Emit, s: tile.Convert) -> None:
    """Registers -> shared memory -> registers. All axes but the first are padded: neighbours lie in other banks."""
    d, x = s.dst, s.src
    size, half = x.dtype.bytes, x.dtype.is_16bit
    first = {a: min([step for b, step, _ in d.layout.regs if b == a], default=1 << 62) for a in x.layout.axes}
    axes = sorted(x.layout.axes, key=lambda a: (first[a], a))
    pitch, total = {}, 1
    for i, axis in enumerate(axes):
        pitch[axis] = total
        total *= x.layout.extent(axis)
        if i == 0 and len(axes) > 1:
            total += 32 // size
    base = e.allocate("convert", size * total, reuse=True)
    source, alone = e.name("reg", x.name), e.only_one(x.layout)

    def at(layout: Layout, r: Expr) -> Expr:
        out: Expr = Int(0)
        for axis in axes:
            out = out + e.share(layout, axis, r) * (pitch[axis] * size)
        return base + out

    def pieces(layout: Layout) -> int:
        v = run(layout, axes[0], WIDEST // size) if axes else 1
        return gcd(v, *(pitch[a] for a in axes[1:]))

    e(e.sync)
    v = pieces(x.layout)
    if half and v == 1:
        e.each(x.layout.size, lambda r: guarded(alone, Do(call("dd_sts_half", at(x.layout, r), half_of(source, r)))))
    else:
        e.each(x.layout.size // v, lambda r: guarded(alone, Do(call(
            f"dd_sts{v * size}", at(x.layout, r * v), registers_at(source, r, v, half)))))
    e(e.sync)
    name, w = e.declare(d), pieces(d.layout)
    if half and w == 1:
        halves(e, name, d.layout.size, lambda r: call("dd_lds_half", at(d.layout, r)))
    else:
        e.each(d.layout.size // w, lambda r: (Do(call(
            f"dd_lds{w * size}", registers_at(name, r, w, half), at(d.layout, r * w))),))
