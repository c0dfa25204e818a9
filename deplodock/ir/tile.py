"""Tile IR: the block-level program. Tiles have named axes; a register tile has a Layout, a shared tile a Shared layout.

    Kernel = params, parts, warps, and how it is launched and printed (roles, persistent, ..)
    Part   = grid, once-copies, body                 outputs that share a grid; the parts' blocks follow one another
    stmt   = Fill(reg, value)                        value None: the first product overwrites it
           | LoadGlobal(reg, access) | LoadShared(reg, tile, offsets)
           | IndexTile(reg, index) | Predicate(reg, conditions)      the value of an index; whether comparisons hold
           | Copy(tile, access)                      asynchronous, global to shared: cp.async, or TMA where it has a box
           | Map(reg, op, sources)                   elementwise into a new tile; op of ir/ops.py, or one of OWN_OPS
           | Assign(reg, op, sources)                the same into a tile that exists
           | Mask(reg, source, conditions, other)    source where the conditions hold, other elsewhere
           | Slice(reg, source, offsets)             some registers of a tile
           | Convert(reg, source)                    another layout, through shared memory
           | Exchange(reg, source, axis)             source read backwards along an axis of two
           | Check(reg, extent, coords)              stop the program unless 0 <= every element < extent
           | Mma(acc, a, b, atom)                    acc += a b; a, b: registers, or, with wgmma, parts of shared tiles
           | MmaFence(accs) | MmaCommit() | MmaWait(n, accs)      wgmma: registers are ready; a group ends; all but n
             groups are done
           | Reduce(regs, monoid, sources)           within a thread, into partial results
           | Combine(regs, monoid, lanes, warps)     partial results over lanes, then over warps
           | Promote(acc, part, loop, every)         acc += part, part = 0, each so many rounds of the loop
           | StoreShared(tile, reg)                  all threads meet before and after it
           | Store(access, reg) | CopyOut(access, tile)           an output; CopyOut by TMA
           | For(var, lo, hi, step, stages, copies, body)         copies: a ring of shared tiles that is filled ahead

Integers that a block agrees on are ir.loop.Index terms over variables: the origin `m_0` of the tile at hand of axis m,
for a grid axis and for a loop alike. The value of an axis in a thread is its Coord: base + off + what the layout adds.

Roles are no statements: a kernel with roles is this tree, printed twice. The producer's text keeps the loops and their
copies, the consumers' text the loops and their bodies. The life of a slot of a ring is from its first reader to its
last, and a product of wgmma reads from its fence to the wait that ends it, `lag` rounds later: see tile_verify.py.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Iterator

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, Index
from deplodock.ir.layout import Layout, Shared
from deplodock.ir.loop import Buffer, Const

OWN_OPS = {
    "copy": "the source; converts between dtypes as loop.Cast does",
    "round": "the source rounded to the dtype `to` and back",
    "finite": "0 where the source is -inf, else the source",
    "exp2sub": "2^(a - b)",
    "expsub": "e^(a - b)",
    "fmax": "the greater; of a number and NaN, the number. Also a monoid, whose identity is -inf",
}
"""Operators of Map and Assign beyond those of ir/ops.py."""


def origin(a: Axis) -> Axis:
    """The variable that holds where the tile at hand of an axis begins."""
    return Axis(a.name + "_0", a.extent)


# ---- values and places -----------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Reg:
    """A tile in registers."""
    name: str
    dtype: Dtype
    layout: Layout


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A tile in shared memory, `stages` times."""
    name: str
    dtype: Dtype
    shape: Shared
    stages: int


@dataclass(frozen=True, slots=True)
class Operand:
    """A part of a shared tile, as an operand that the tensor core reads itself."""
    tile: SharedTile
    off: tuple[tuple[str, int], ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class Coord:
    """The value of an axis in a thread: base + off + what the layout adds, or, for an axis that stands for a loaded
    integer, the value of a register tile. limit: the value may reach it, and is masked there; None: it cannot."""
    axis: Axis
    base: Index
    off: int
    limit: int | None
    loaded: Reg | None = None


@dataclass(frozen=True, slots=True)
class Compare:
    """left relation right: "lt", "le", "eq" or "ne", of integers."""
    relation: str
    left: Index
    right: Index


@dataclass(frozen=True, slots=True)
class Param:
    """A tensor in global memory: a pointer to element 0 that the kernel takes."""
    buffer: Buffer
    strides: tuple[int, ...]
    """Elements from one value of each axis of the buffer to the next."""
    alignment: int
    """Bytes that the pointer is a multiple of."""
    written: bool

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def dtype(self) -> Dtype:
        return self.buffer.dtype


@dataclass(frozen=True, slots=True)
class Access:
    """Elements of a tensor: `element` counts them from element 0. Nothing is read or written where a coordinate reaches
    its limit or a guard fails; such a read gives 0.

    dims, strides, indices: the same per dimension, slowest first, dimensions that lie together being one. Without
    loaded integers or divisions, element = sum of stride * index.
    """
    param: Param
    element: Index
    coords: tuple[Coord, ...]
    guards: tuple[Compare, ...]
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    indices: tuple[Index, ...]

    def coord(self, name: str) -> Coord | None:
        return next((c for c in self.coords if c.axis.name == name), None)

    def step(self, name: str) -> int | None:
        """Elements from one value of an axis to the next; None: not constant."""
        return coefficient(self.element, name)


@dataclass(frozen=True, slots=True)
class BoxDim:
    """A dimension of a bulk copy. count: elements of it in the box; origin: where the box begins; axis: what runs along
    it."""
    dim: int
    stride: int
    count: int
    origin: Index
    axis: str | None


@dataclass(frozen=True, slots=True)
class Box:
    """What TMA copies at once: dimensions, innermost first. The first holds one panel of the shared tile; there are
    `panels` of them, `count` of the first dimension apart."""
    dims: tuple[BoxDim, ...]
    panels: int


# ---- statements ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Fill:
    dst: Reg
    value: Const | None


@dataclass(frozen=True, slots=True)
class LoadGlobal:
    dst: Reg
    src: Access


@dataclass(frozen=True, slots=True)
class LoadShared:
    dst: Reg
    src: SharedTile
    off: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """box: what TMA copies; None: cp.async copies it."""
    dst: SharedTile
    src: Access
    box: Box | None


@dataclass(frozen=True, slots=True)
class IndexTile:
    dst: Reg
    index: Index
    coords: tuple[Coord, ...]


@dataclass(frozen=True, slots=True)
class Predicate:
    """dst (b8): whether all of the comparisons hold."""
    dst: Reg
    where: tuple[Compare, ...]
    coords: tuple[Coord, ...]


@dataclass(frozen=True, slots=True)
class Map:
    """dst = op(sources); a source is a tile that dst's layout projects to, or a number. `to`: of "round", the dtype."""
    dst: Reg
    op: str
    srcs: tuple[Reg | Const, ...]
    to: Dtype | None = None


@dataclass(frozen=True, slots=True)
class Assign:
    dst: Reg
    op: str
    srcs: tuple[Reg | Const, ...]


@dataclass(frozen=True, slots=True)
class Mask:
    """dst = src where all of `where` hold, else other. Where all of `whole` hold, a block masks nothing."""
    dst: Reg
    src: Reg | Const
    where: tuple[Compare, ...]
    other: Const
    coords: tuple[Coord, ...]
    whole: tuple[Compare, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    dst: Reg
    src: Reg
    off: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Convert:
    dst: Reg
    src: Reg


@dataclass(frozen=True, slots=True)
class Exchange:
    """dst[.., p, ..] = src[.., 1 - p, ..], both in one layout: other registers, other lanes, or other warps."""
    dst: Reg
    src: Reg
    axis: str


@dataclass(frozen=True, slots=True)
class Check:
    """coords: where one of them reaches its limit there is no element, and nothing is checked."""
    src: Reg
    extent: int
    coords: tuple[Coord, ...]


@dataclass(frozen=True, slots=True)
class Mma:
    """acc (rows, columns) += a (rows, k) * b (columns, k). fresh: acc is overwritten.

    atom "mma": m16n8k16, a and b in registers as its fragments. "wgmma": m64nNk16, asynchronous; b in shared memory, a
    there or in registers. "fma": every thread multiplies what its registers hold, along all of k.
    """
    acc: Reg
    a: Reg | Operand
    b: Reg | Operand
    atom: str
    k: str
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class MmaFence:
    accs: tuple[Reg, ...]


@dataclass(frozen=True, slots=True)
class MmaCommit:
    pass


@dataclass(frozen=True, slots=True)
class MmaWait:
    pending: int
    accs: tuple[Reg, ...]


@dataclass(frozen=True, slots=True)
class Reduce:
    """dst = dst (monoid) src over all registers of src that project to one of dst's, as a tree. Several dst for argmax
    and argmin: (value, index); of equal values the least index wins, and NaN is greater (for argmin, less) than all.
    turn: ((warp bit, value), ..): only the warps with these bits do it."""
    dst: tuple[Reg, ...]
    monoid: str
    src: tuple[Reg, ...]
    turn: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Combine:
    """dst = dst (monoid) the other threads' dst, over the lane bits and then the warp bits that are named.

    "online2": dst is (m, o, ..), where o may have axes that m lacks; with M the greatest of all m, each o becomes the
    sum of 2^(m - M) o, and 0 where M is -inf; m becomes M. "online": the same of e^(m - M).
    """
    dst: tuple[Reg, ...]
    monoid: str
    axis: str
    lanes: tuple[int, ...]
    warps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Promote:
    """acc = acc + part; part = 0. loop: the variable of the loop around it, which begins at a multiple of `step`: only
    in the rounds where variable // step mod every is every - 1. None: always."""
    acc: Reg
    part: Reg
    loop: Axis | None = None
    step: int = 1
    every: int = 1


@dataclass(frozen=True, slots=True)
class StoreShared:
    dst: SharedTile
    src: Reg


@dataclass(frozen=True, slots=True)
class Store:
    dst: Access
    src: Reg


@dataclass(frozen=True, slots=True)
class CopyOut:
    dst: Access
    src: SharedTile
    layout: Layout
    """Of the registers that the tile came from: it says which warps wrote which rows."""
    box: Box


@dataclass(frozen=True, slots=True)
class For:
    """var from the greatest of `lo`, rounded down to a multiple of step, to below the least of `hi`.

    lag: rounds that a slot of the ring stays in use after its own, because products of it are in flight.
    """
    var: Axis
    lo: tuple[Index, ...]
    hi: tuple[Index, ...]
    step: int
    stages: int
    copies: tuple[Copy, ...]
    body: tuple[Stmt, ...]
    lag: int = 0


Stmt = (Fill | LoadGlobal | LoadShared | Copy | IndexTile | Predicate | Map | Assign | Mask | Slice | Convert | Exchange
        | Check | Mma | MmaFence | MmaCommit | MmaWait | Reduce | Combine | Promote | StoreShared | Store | CopyOut
        | For)


@dataclass(frozen=True, slots=True)
class GridAxis:
    axis: Axis
    tile: int
    blocks: int
    reverse: bool
    """The last tile is the first block's."""


@dataclass(frozen=True, slots=True)
class Part:
    """A grid of tiles (axes slowest first), and what a block does for one. copies: shared tiles filled once a tile."""
    grid: tuple[GridAxis, ...]
    copies: tuple[Copy, ...]
    body: tuple[Stmt, ...]

    @property
    def blocks(self) -> int:
        return prod(g.blocks for g in self.grid)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Block b works for the first part if b < parts[0].blocks, for the next if b - parts[0].blocks < parts[1].blocks ..

    roles: 0, or 1 for a producer warp beside `warps` consumers. persistent: at most so many blocks, which walk the
    grid; 0: a block for each tile. group: raster in groups of so many tiles of one axis. regs: of a producer's thread
    and of a consumer's.
    """
    name: str
    params: tuple[Param, ...]
    parts: tuple[Part, ...]
    warps: int
    min_blocks: int = 1
    roles: int = 0
    persistent: int = 0
    group: tuple[str, int] | None = None
    regs: tuple[int, int] | None = None
    source: tuple[str, ...] = field(default=())

    @property
    def threads(self) -> int:
        """Of a block. With roles the producer is a warp, or a warpgroup where the consumers are warpgroups."""
        return 32 * (self.warps + (0 if not self.roles else 1 if self.warps % 4 else 4))

    @property
    def copies_by_tma(self) -> bool:
        return any(c.box for c in all_copies(self))


def dense_strides(shape) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    out, n = [], 1
    for extent in reversed(tuple(shape)):
        out.append(n)
        n *= max(extent, 1)
    return tuple(reversed(out))


def coefficient(i: Index, name: str) -> int | None:
    """What one step of an axis adds to an index; None where that is not constant (inside a division)."""
    total = 0
    for atom, c in i.terms:
        if isinstance(atom, Axis):
            total += c if atom.name == name else 0
        elif any(a.name == name for a in atom.free):
            return None
    return total


def walk(stmts: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, those inside loops after their loop."""
    for s in stmts:
        yield s
        if isinstance(s, For):
            yield from walk(s.body)


def all_copies(k: Kernel) -> tuple[Copy, ...]:
    """Every copy into shared memory: those made once, then those of each loop."""
    return tuple(c for p in k.parts
                 for c in (*p.copies, *(c for s in walk(p.body) if isinstance(s, For) for c in s.copies)))


def defined(s: Stmt) -> tuple[Reg, ...]:
    """The register tiles that a statement declares."""
    match s:
        case (Fill(d) | LoadGlobal(d) | LoadShared(d) | IndexTile(d) | Predicate(d) | Map(d) | Mask(d) | Slice(d)
              | Convert(d) | Exchange(d)):
            return (d,)
    return ()


def used(s: Stmt) -> tuple[Reg, ...]:
    """The register tiles that a statement reads, those of accesses among them."""
    def regs(xs):
        return tuple(x for x in xs if isinstance(x, Reg))

    def loaded(coords):
        return tuple(c.loaded for c in coords if c.loaded)
    match s:
        case LoadGlobal(_, a) | Copy(_, a): return loaded(a.coords)
        case IndexTile(_, _, coords) | Predicate(_, _, coords): return loaded(coords)
        case Map(_, _, srcs) | Assign(_, _, srcs): return regs(srcs)
        case Mask(_, x, _, _, coords): return regs((x,)) + loaded(coords)
        case Slice(_, x) | Convert(_, x) | Exchange(_, x) | Check(x) | StoreShared(_, x): return (x,)
        case Mma(c, a, b): return regs((c, a, b))
        case MmaFence(accs) | MmaWait(_, accs): return accs
        case Reduce(d, _, x): return d + x
        case Combine(d): return d
        case Promote(a, p): return (a, p)
        case Store(a, x): return (x,) + loaded(a.coords)
        case CopyOut(a): return loaded(a.coords)
    return ()
