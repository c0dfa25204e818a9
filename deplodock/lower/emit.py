"""The state of lowering a Tile IR kernel to Kernel IR: names, statements so far, shared memory, what a block agrees on.

What the statements of Tile IR become is in kernel.py and the files beside it.
"""
from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable, Iterable, Iterator

from deplodock.errors import IllegalSchedule
from deplodock.ir import tile
from deplodock.ir.cuda import Map
from deplodock.ir.expression import Binary, Element, Expr, Int, Name, both, call, choose, compare, expr
from deplodock.ir.index import Axis, FloorDiv, Index, Mod
from deplodock.ir.kernel import Array, Do, If, Loop, Note, Span, Stmt, Variable, register_type, registers
from deplodock.ir.layout import Layout, Source, log2
from deplodock.lower.operators import RESERVED

if TYPE_CHECKING:
    from deplodock.lower.rings import Ring

LANE = Name("lane", 32)
SHARED_ALIGNMENT = 1024
"""Bytes: a swizzle of 128-byte rows repeats after 8 of them, and the hardware applies it to address bits."""


class Emit:
    def __init__(self, kernel: tile.Kernel):
        self.kernel = kernel
        self.out: list[Stmt] = []
        self.names: dict[tuple[str, str], str] = {}
        self.taken: set[str] = set(RESERVED)
        self.spans: list[Span] = []
        self.shared = 0
        self.depth = 0
        """Loops around the statement at hand."""
        self.part = kernel.parts[0] if kernel.parts else tile.Part((), (), ())
        self.landed = True
        """Whether the tiles that cp.async fills once have been waited for on every way here."""
        self.scratch_floor = 0
        """Outside of loops, scratch memory may start here: the rings above it are not in use."""
        self.origins: dict[Axis, Expr] = {}
        self.multiples: dict[Axis, int] = {tile.origin(g.axis): g.tile for p in kernel.parts for g in p.grid}
        self.multiples |= {s.var: s.step for p in kernel.parts for s in tile.walk(p.body) if isinstance(s, tile.For)}
        """What the value of each origin is a multiple of."""
        self.maps: list[Map] = []
        self.rings: tuple[Ring, ...] = ()
        """The rings of the part at hand that bulk copies fill."""
        self.memory: dict[str, Expr] = {}
        """Where the first slot of each shared tile lies."""
        self.bases: dict[str, Expr] = {}
        """Where the slot that is in use lies."""
        self.has_stmatrix = kernel.copies_by_tma
        self.statements: Callable[[tuple[tile.Stmt, ...], tile.For | None], None]
        """Emits the statements of a loop's body, or of a part's; set by kernel.py, which knows them all."""
        self.loop: Callable[[tile.For], None]
        """Emits a loop, in the way of the kernel's rings; set by kernel.py."""
        self.rings_ahead = False
        """Whether a loop that fills rings is still to come: then scratch memory must not lie over them."""
        self.lagging: list[Ring] = []
        """Rings whose last slots go back when all products are done."""
        self.bars: Expr = Int(0)
        """The address of the first mbarrier."""
        self.late: list[Callable[[], None]] = []
        """What is to be emitted behind the next group of asynchronous products."""
        self.warp = Name("warp", kernel.threads // 32)
        self.thread = Name("thread", kernel.threads)
        self.sync = Do(call("dd_sync"))

    # ---- names and statements ----------------------------------------------------------------------------------------

    def name(self, kind: str, name: str) -> str:
        """The C name of a thing of Tile IR: the same for the same thing, and like no other."""
        key = (kind, name)
        if key not in self.names:
            base = re.sub(r"[^A-Za-z0-9_]", "_", name.replace("'", "p"))
            base = f"x{base}" if not base or not base[0].isalpha() or base.startswith("dd_") else base
            n, new = 1, base
            while new in self.taken:
                n, new = n + 1, f"{base}_{n}"
            self.taken.add(new)
            self.names[key] = new
        return self.names[key]

    def fresh(self, name: str) -> str:
        """A C name that nothing has yet."""
        n = len(self.names)
        return self.name(f"own {n}", name)

    def __call__(self, *stmts: Stmt) -> None:
        self.out.extend(stmts)

    def require(self, held: bool, reason: str) -> None:
        """IllegalSchedule for this reason unless it holds."""
        if not held:
            raise IllegalSchedule(kernel=self.kernel.name, reason=reason)

    def note(self, text: str) -> None:
        self(Note(text))

    def do(self, name: str, *args: Expr | int, template: tuple[str | int, ...] = ()) -> None:
        self(Do(call(name, *args, template=template)))

    @contextmanager
    def inside(self, loop: bool = False) -> Iterator[list[Stmt]]:
        """Statements emitted within go into the list that this gives."""
        outer, self.out = self.out, []
        self.depth += loop
        try:
            yield self.out
        finally:
            self.depth -= loop
            self.out = outer

    def when(self, test: Expr, stmts: Iterable[Stmt]) -> None:
        """If(test), or what is left of it where the test is decided."""
        stmts = tuple(stmts)
        if test == Int(1):
            self(*stmts)
        elif test != Int(0) and stmts:
            self(If(test, stmts))

    def each(self, n: int, body: Callable[[Expr], Iterable[Stmt]], name: str = "r") -> None:
        """body(0), body(1) .. body(n - 1)."""
        self(*unrolled(n, body, name))

    def declare(self, r: tile.Reg) -> str:
        """The array of a register tile."""
        name = self.name("reg", r.name)
        self(Array(name, register_type(r.dtype), registers(r.dtype, r.layout.size)))
        return name

    # ---- shared memory -----------------------------------------------------------------------------------------------

    def allocate(self, name: str, size: int, reuse: bool = False) -> Name:
        """The address of a new span; reuse: it may lie over the rings, which no loop uses now."""
        align = SHARED_ALIGNMENT if size >= SHARED_ALIGNMENT else 16
        over = reuse and not self.depth and not self.rings_ahead
        offset = -(-(self.scratch_floor if over else self.shared) // align) * align
        self.shared = max(self.shared, offset + size)
        span = Span(self.fresh(name), offset, size)
        self.spans.append(span)
        return Name(span.name)

    def place(self, t: tile.SharedTile, reuse: bool = False) -> None:
        """Memory for all slots of a shared tile."""
        self.memory[t.name] = self.bases[t.name] = self.allocate(t.name, t.shape.bytes * t.stages, reuse)

    def ready(self, t: tile.SharedTile) -> None:
        """Before a statement reads a shared tile."""
        if any(c.dst.name == t.name for c in self.part.copies if not c.box):
            self.land()

    def land(self) -> None:
        """Waits for the tiles that were filled once."""
        if self.landed:
            return
        self.do("dd_cp_async_wait", template=(0,))
        if self.read_by_proxy(c.dst.name for c in self.part.copies):
            self.do("dd_fence_async")
        self(self.sync)
        self.landed = True

    def read_by_proxy(self, names: Iterable[str]) -> bool:
        """Whether the tensor core itself reads one of these shared tiles."""
        names = set(names)
        return any(isinstance(o, tile.Operand) and o.tile.name in names
                   for s in tile.walk(self.part.body) if isinstance(s, tile.Mma) for o in (s.a, s.b))

    # ---- what a block agrees on --------------------------------------------------------------------------------------

    def uniform(self, i: Index) -> Expr:
        """An index over origins."""
        return index_expression(i, lambda a: self.origins[a])

    def least(self, indices: tuple[Index, ...]) -> Expr:
        return self._extreme("<", indices)

    def greatest(self, indices: tuple[Index, ...]) -> Expr:
        return self._extreme(">", indices)

    def _extreme(self, op: str, indices: tuple[Index, ...]) -> Expr:
        out, *rest = map(self.uniform, indices)
        for x in rest:
            out = choose(Binary(op, out, x), out, x)
        return out

    def holds(self, c: tile.Compare, value: Callable[[Axis], Expr]) -> Expr:
        """A comparison of indices, given the values of axes."""
        sign = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}[c.relation]
        return compare(sign, index_expression(c.left, value), index_expression(c.right, value))

    # ---- what a thread has -------------------------------------------------------------------------------------------

    def bits(self, sources: Iterable[Source], combine: Callable = lambda a, b: a + b) -> Expr:
        """What the bits of lane and warp bring: runs of neighbouring bits as one shift, mask and factor."""
        runs: list[tuple[str, int, int, int]] = []                   # name, first bit, bits, value of the first
        for name, i, value in sources:
            if runs and runs[-1][0] == name and runs[-1][1] + runs[-1][2] == i and value == runs[-1][3] << runs[-1][2]:
                runs[-1] = (name, runs[-1][1], runs[-1][2] + 1, runs[-1][3])
            else:
                runs.append((name, i, 1, value))
        out: Expr = Int(0)
        for name, first, n, value in runs:
            source = LANE if name == "lane" else self.warp
            out = combine(out, (source >> first & (1 << n) - 1) * value)
        return out

    def share(self, layout: Layout, axis: str, r: Expr) -> Expr:
        """What the layout adds to the coordinate of register r on an axis."""
        return self.bits(layout.thread(axis)) + digits(layout.digits(axis), r)

    def coordinate(self, c: tile.Coord, layout: Layout, r: Expr) -> Expr:
        """The value of an axis in register r."""
        if c.loaded:
            return Element(self.name("reg", c.loaded.name), register_in(layout, c.loaded.layout, r, {}))
        return self.uniform(c.base) + c.off + self.share(layout, c.axis.name, r)

    def coordinates(self, coords: tuple[tile.Coord, ...], layout: Layout, r: Expr) -> Callable[[Axis], Expr]:
        """The value of each axis in register r; of what is none of the coordinates, its origin's."""
        at = {c.axis: self.coordinate(c, layout, r) for c in coords}
        return lambda a: at[a] if a in at else self.origins[a]

    def only_one(self, layout: Layout) -> Expr:
        """Of the threads that hold copies of a value, the one that writes it."""
        out: Expr = Int(1)
        for name, source in (("lane", LANE), ("warp", self.warp)):
            mask = sum(1 << i for n, i in layout.copies if n == name)
            if mask:
                out = both(out, Binary("==", source & mask, Int(0)))
        return out

    @property
    def warp_bits(self) -> int:
        return log2(self.kernel.warps)


def unrolled(n: int, body: Callable[[Expr], Iterable[Stmt]], name: str = "r") -> tuple[Stmt, ...]:
    """body(0), body(1) .. body(n - 1), as an unrolled loop over `name`. What the body defines has a name of its own."""
    if n < 2:
        return tuple(body(Int(0))) if n else ()
    return (Loop(name, Int(0), Int(n), Int(1), tuple(body(Name(name, n))), True),)


def digits(of: Iterable[tuple[int, int, int]], r: Expr) -> Expr:
    """Sum of (r // stride % size) * scale, over (stride, size, scale). Digits that continue each other become one."""
    joined: list[tuple[int, int, int]] = []
    for stride, size, scale in sorted(of):
        if joined and joined[-1][0] * joined[-1][1] == stride and joined[-1][2] * joined[-1][1] == scale:
            joined[-1] = (joined[-1][0], joined[-1][1] * size, joined[-1][2])
        else:
            joined.append((stride, size, scale))
    out: Expr = Int(0)
    for stride, size, scale in joined:
        out = out + r // stride % size * scale
    return out


def register_in(mine: Layout, source: Layout, r: Expr, off: dict[str, int]) -> Expr:
    """The register of a tile laid out as `source` that holds register r of one laid out as `mine`."""
    const, of = mine.register_in(source, off)
    return digits(of, r) + const


def index_expression(i: Index, value: Callable[[Axis], Expr]) -> Expr:
    """An index, given the values of its axes. Divisions round down, as Index's do."""
    out: Expr = Int(0)
    for atom, c in i.terms:
        match atom:
            case Axis(): x = value(atom)
            case FloorDiv(inner, n):
                x = index_expression(inner, value)
                x = x // n if inner.range[0] >= 0 else call("dd_floordiv", x, n, template=("int",))
            case Mod(inner, n):
                x = index_expression(inner, value)
                x = x % n if inner.range[0] >= 0 else call("dd_remainder", x, n, template=("int",))
            case _: raise TypeError(f"{type(atom).__name__} in an index of Tile IR")
        out = out + x * c if c > 0 else out - x * -c
    return out + i.const


def counter(name: str, value: int | Expr = 0) -> Variable:
    return Variable(name, "int", expr(value))
