"""Tile IR -> Kernel IR: products, by mma.sync, by wgmma, or by multiplying what each thread holds."""
from __future__ import annotations

from itertools import product
from math import prod

from deplodock.ir import tile
from deplodock.ir.expression import Address, Binary, Element, Expr, Int, call
from deplodock.ir.kernel import Do, Set, Stmt
from deplodock.ir.layout import Layout
from deplodock.lower import operators
from deplodock.lower.emit import Emit, digits, unrolled

SWIZZLE_ROWS = 8
"""Rows after which a 128-byte swizzle repeats: the unit that a descriptor steps by."""
WARPGROUP_WARP_BITS = 2


def mma(e: Emit, s: tile.Mma) -> None:
    match s.atom:
        case "mma": warp_product(e, s)
        case "wgmma": warpgroup_product(e, s)
        case "fma": thread_product(e, s)
        case _: e.require(False, f"no product is called {s.atom!r}")


def warp_product(e: Emit, s: tile.Mma) -> None:
    """m16n8k16, block by block: eight accumulators for each 16 rows and 16 columns."""
    acc, a, b = (e.name("reg", x.name) for x in (s.acc, s.a, s.b))
    rows, columns = s.a.layout.size // 8, s.b.layout.size // 8
    held = s.acc.layout.size
    e.require(held == 8 * rows * columns, f"{s.acc.name} holds {held} values, not 8 x {rows} x {columns}")
    op = f"dd_mma_m16n8k16_{s.a.dtype}"

    def body(i: Expr, j: Expr) -> tuple[Stmt, ...]:
        return (Do(call(op, Address(acc, i * (8 * columns) + j * 4), Address(a, i * 4), Address(b, j * 2))),)
    e.each(rows, lambda i: unrolled(2 * columns, lambda j: body(i, j), "j"), "i")


def thread_product(e: Emit, s: tile.Mma) -> None:
    """An outer product of registers for each step along k."""
    acc, k = s.acc, s.k
    steps = Layout(tuple(d for d in s.a.layout.regs if d[0] == k), s.a.layout.lane, s.a.layout.warp)
    name = e.name("reg", acc.name)

    def factor(x: tile.Reg, r: Expr, i: Expr) -> Expr:
        own, along = acc.layout.register_in(x.layout, {}), steps.register_in(x.layout, {})
        at = digits(own[1], r) + digits(along[1], i)
        return operators.convert(operators.element(e.name("reg", x.name), at, x.dtype), x.dtype, acc.dtype)

    def body(i: Expr, r: Expr) -> tuple[Stmt, ...]:
        term = operators.apply("mul", acc.dtype, (factor(s.a, r, i), factor(s.b, r, i)))
        target = Element(name, r)
        return (Set(target, operators.apply("add", acc.dtype, (target, term))),)
    if s.fresh:
        zero = operators.real(0, acc.dtype) if acc.dtype.is_float else Int(0)
        e.each(acc.layout.size, lambda r: (Set(Element(name, r), zero),))
    e.each(steps.size, lambda i: unrolled(acc.layout.size, lambda r: body(i, r)), "i")


def warpgroup_product(e: Emit, s: tile.Mma) -> None:
    """m64nNk16: 64 rows for each warpgroup and repeat; b, and a unless it is in registers, by descriptor."""
    acc, n = e.name("reg", s.acc.name), columns_of(e, s)
    repeats = [[(axis, step * j) for j in range(size)] for axis, step, size in s.a.layout.regs[3:]]
    b, b_trans = descriptor(e, s.b, s.k, 0)
    add = int(not s.fresh)
    for i, at in enumerate(product(*reversed(repeats))):
        into = Address(acc, Int(i * n // 2))
        if isinstance(s.a, tile.Reg):
            op = f"dd_wgmma_m64n{n}k16_{s.a.dtype}_r{'kt'[b_trans]}"
            e.do(op, into, Address(e.name("reg", s.a.name), Int(i * 4)), b, template=(add,))
        else:
            shape = s.a.tile.shape
            a, a_trans = descriptor(e, s.a, s.k, sum(sum(shape.place(*x)) for x in at))
            e.do(f"dd_wgmma_m64n{n}k16_{s.a.tile.dtype}_{'kt'[a_trans]}{'kt'[b_trans]}", into, a, b, template=(add,))


def columns_of(e: Emit, s: tile.Mma) -> int:
    """Columns of one instruction."""
    n = 8 * prod(size for axis, _, size in s.b.layout.regs if axis != s.k)
    e.require(8 <= n <= 256, f"wgmma has 8 to 256 columns, not {n}")
    e.require(None not in s.a.layout.warp[:WARPGROUP_WARP_BITS] and not any(s.b.layout.warp),
              "a warpgroup has 64 rows and all columns of a wgmma")
    return n


def descriptor(e: Emit, o: tile.Operand, k: str, at: int) -> tuple[Expr, int]:
    """The descriptor of a part of a shared tile (PTX ISA, "Matrix descriptor"); whether its rows are contiguous, not k.

    The constant part is added to the descriptor: addresses have 18 bits, so nothing carries out of the address field.
    """
    e.ready(o.tile)
    shape = o.tile.shape
    e.require(shape.panels == 128, f"{o.tile.name}: an operand of wgmma has rows of 128 bytes")
    group = [("warp", i, sum(shape.place(*bit))) for i, bit in enumerate(o.layout.warp)
             if bit and i >= WARPGROUP_WARP_BITS]
    trans = int(k in shape.row)
    leading = sum(shape.place(shape.col, 128 // shape.size)) if trans else 16
    first = call("dd_descriptor", e.bases[o.tile.name] + e.bits(group), leading, SWIZZLE_ROWS * shape.pitch)
    constant = sum(sum(shape.place(axis, v)) for axis, v in o.off) + at
    return (Binary("+", first, Int(constant // 16)) if constant else first), trans


def fence(e: Emit, s: tile.MmaFence) -> None:
    pin(e, s.accs)
    e.do("dd_wgmma_fence")


def commit(e: Emit) -> None:
    e.do("dd_wgmma_commit")
    for emit in e.late:
        emit()
    e.late = []


def wait(e: Emit, s: tile.MmaWait) -> None:
    e.do("dd_wgmma_wait", template=(s.pending,))
    pin(e, s.accs)


def pin(e: Emit, accs: tuple[tile.Reg, ...]) -> None:
    for c in accs:
        e.do("dd_pin", Address(e.name("reg", c.name), Int(0)), template=(c.layout.size,))
