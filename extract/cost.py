"""What a kernel costs on a target, and whether its loop structure is one that lowering takes.

    time = launch + (sum over resources of (work / rate / share of the machine in use)^2)^(1/2)

A roofline: bytes to and from device memory, products on tensor cores or as multiply-adds, other pointwise operators,
special functions. Resources overlap, but not wholly: the exponent is fitted to 3,336 timed kernels. Work counts what
the loops run: a fold that lacks some of its consumer's axes runs again for each tile of those, unless one block sweeps
them and keeps it.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Iterable

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis
from deplodock.ir.loop import Buffer, Fold, Load, dtype
from deplodock.ir.term import Term
from deplodock.target import Target
from extract.structure import (COLUMNS, Product, folds, inside, before, leaves, live, loops, nest, operands, orbit,
                               points, product, reach, tops, volume)

ROWS = 64
"""Rows of a block's tile where it holds a product: what four warps of mma.sync, or one warpgroup of wgmma, take."""
ACCUMULATORS = 3
"""Products that one tile may hold at a time: three of 64 x 128 in f32 fill half of a block's registers."""
FOLDS = 8
"""Folds in one kernel. Larger bodies are never cheaper than two kernels, and the search is exponential in this."""
NEST = 2
"""Products inside each other: the inner one's result is the outer one's operand, in registers; a third has no room."""
SLACK = 2.0
"""A product may be recomputed if that takes at most this many times as long as storing and reading its result would."""
WITH_PROLOGUE = 0.85
"""Share of the tensor cores' rate that is left where an operand is computed on its way in (measured: 0.8)."""
CHAINED = 0.65
"""Share that is left to a product whose operand is another product's tile (measured: attention, 0.6 to 0.7)."""
STORING = 0.05
"""Share of a store's time that nothing hides: the stores of the last tiles."""
DRAW = 2.0
"""How many times its share of the memory bandwidth one SM can draw alone."""
WARP_COLUMNS = 32
"""Columns of a product for which a warp makes its fragments of a computed operand: the next warp makes its own."""
POINTS = 1024
"""Points of a pointwise kernel that one block computes."""
TILES = tuple((m, n) for m in (16, 32, 64, 128) for n in range(64, 257, 16))
"""(rows, columns) of a block's tile. Columns in steps of 16, as products have them: odd widths fill waves."""
REUSE = {"tensor cores": 80.0, "fma": 12.0}
"""Products for each operand element (the harmonic mean of a tile's sides, halved) with which a unit reaches its rate;
below, it goes with the root. Tensor cores: 128 x 256 reaches it, 64 x 64 does 0.6 (fitted to prototypes).
Multiply-adds: 16 x 64 does, whose warps read 0.4 bytes of shared memory for each, a third of what there is.
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """seconds, and the resource that bounds them. sweep: the axes of the grid where one block sweeps the others, else
    None: all output axes are in the grid. spent: seconds of each resource."""
    seconds: float
    bound: str
    sweep: frozenset[Axis] | None
    spent: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a body is no kernel."""
    reason: str


Out = tuple[frozenset[Axis], Term]
"""(axes, body) of one output."""


def size(b: Buffer) -> int:
    """Bytes of a tensor."""
    return volume(b.axes) * b.dtype.bytes


def read(reads: Iterable[Load]) -> int:
    """Bytes that loads bring from memory: each tensor once, and no more of it than the loads' points."""
    total, by = 0, {}
    for l in reads:
        by.setdefault(l.tensor, []).append(l)
    for tensor, ls in by.items():
        total += min(size(tensor), sum(tensor.dtype.bytes * volume(l.free) for l in ls))
    return total


def cost(outs: tuple[Out, ...], written: int, target: Target, late: frozenset[Axis] = frozenset()) -> Cost | Refused:
    """The cost of computing bodies in one kernel, or why that is refused.

    written: bytes of what it stores. late: axes of a partial body that a fold around it may yet bind, which are not in
    the grid then.
    """
    bodies = [b for _, b in outs]
    for b in bodies:
        if len(folds(b)) > FOLDS:
            return Refused("more folds than one kernel may have")
        if nest(b) > NEST:
            return Refused("products nested too deep")
        if sum(product(f) is not None for f in {orbit(f) for f in tops(b)}) > ACCUMULATORS:
            return Refused("more accumulators than a tile has room for")
    reads = frozenset().union(*map(leaves, bodies))
    moved = written + read(reads)
    grid = tuple((axes - late, tops(b)) for axes, b in outs)
    best: Cost | Refused = Refused("nothing to compute")
    more: dict[str, float] = {}
    for _, free, special in dict.fromkeys(w for b in bodies for w in points(b)):
        resource = "special" if special else "vector"
        more[resource] = more.get(resource, 0.0) + volume(free)
    for tally in _tally(grid, target):
        if tally.refused:
            best = best if tally.sweeping else Refused(tally.refused)
            continue
        # a partial body under a fold that is still to come may yet get more blocks
        share = 1.0 if late else min(1.0, tally.blocks / target.sms)
        c = _price(tally, more, share, moved, written, target)
        if isinstance(best, Refused) or c.seconds < best.seconds:
            best = c
    return best


def _price(tally: "_Tally", more: dict[str, float], share: float, moved: int, written: int, target: Target) -> Cost:
    """more: pointwise work behind the folds."""
    spent = {"memory": moved / target.bandwidth / min(1.0, DRAW * share)}
    quantum = tally.quantum if tally.products else 1.0
    for resource, rate in (("tensor cores", target.mma), ("fma64", target.fma64)):
        spent[resource] = tally.work.get(resource, 0.0) / rate * quantum
    # multiply-adds and other operators take turns in the same lanes
    lanes = "fma" if "fma" in tally.work else "vector"
    spent[lanes] = (tally.work.get("fma", 0.0) / target.fma32 * quantum
                    + (tally.work.get("vector", 0.0) + more.get("vector", 0.0)) / target.vector / share)
    spent["special"] = (tally.work.get("special", 0.0) + more.get("special", 0.0)) / target.special / share
    bound = max(spent, key=spent.get)
    seconds = target.launch + math.hypot(*spent.values()) + STORING * written / target.bandwidth
    return Cost(seconds, bound if spent[bound] > target.launch else "launch",
                tally.grid if tally.sweeping else None, tuple(sorted(spent.items())))


Grid = tuple[tuple[frozenset[Axis], tuple[Fold, ...]], ...]
"""(axes of the grid, folds at the top) of each output."""


@lru_cache(maxsize=1 << 14)
def _tally(outs: Grid, target: Target) -> tuple[_Tally, ...]:
    """The work of a kernel's folds: all output axes in the grid and, where there is something to sweep, sweeping.
    Bodies that differ only in what they make of their folds share it."""
    made = _Tally(outs, target, None)
    swept = made.swept()
    if swept is None:
        return made,
    return made, _Tally(outs, target, swept)


@dataclass(slots=True)
class _Seen:
    """A fold as the loops of a kernel run it: in which loops, how often for its consumers' tiles, the pointwise work of
    one pass, the share of points that masks leave, its axes in the grid, and the axes that loops around it bind."""
    at: set
    times: int
    work: dict[bool, float]
    share: float
    free: frozenset[Axis]
    bound: frozenset[Axis]


class _Tally:
    """Counts the work of a kernel's loops.

    Either all output axes are in the grid, and a fold that lacks some of them is computed again for each tile of those;
    or (sweeping) the grid has only the axes that all kept folds have, one block sweeps the rest, and what it needs
    again it keeps.
    """

    def __init__(self, outs: Grid, target: Target, grid: frozenset[Axis] | None):
        """grid: the axes of the grid where one block sweeps the others, None where all are in the grid."""
        self.outs, self.target, self.sweeping = outs, target, grid is not None
        self.every = frozenset().union(*(axes for axes, _ in outs))
        self.kept: dict[Fold, tuple[frozenset[Axis], int]] = {}
        self.lacking: dict[Fold, frozenset[Axis]] = {}
        self.seen: dict[Fold, _Seen] = {}
        self.chained: set[Fold] = set()
        self.nested: set[Fold] = set()
        self.work: dict[str, float] = {}
        self.products: list[tuple[Fold, Product]] = []
        self.grid = self.every if grid is None else grid
        self.refused = self._run()
        """Why there is no such kernel."""

    def swept(self) -> frozenset[Axis] | None:
        """The axes of the grid if one block sweeps the others; None where there is nothing to sweep, or too few blocks
        are left."""
        if all(free == self.every for free in self.lacking.values()):
            return None
        grid = self.every.intersection(*self.lacking.values())
        if any(product(f) for f in self.seen) and volume(grid) < ROWS * self.target.sms:
            return None
        return grid

    def _run(self) -> str | None:
        """Fills `work`; the reason where the kernel is refused."""
        roots = tuple(dict.fromkeys(f for _, tops in self.outs for f in tops))
        self._level(roots, None, None, frozenset(), False, frozenset(), None, 1.0)
        rows = min(ROWS, volume(self.grid)) if any(product(f) for f in self.seen) else 1
        held = sum(self._bytes(f, *k, rows) for f, k in self.kept.items())
        if held > self.target.shared:
            return "the kept tile is too large"
        for f, s in self.seen.items():
            again = len(s.at)
            if again > 1:  # needed in several sweeps: kept if there is room, else computed again
                more = self._bytes(f, s.free, volume(f.free & s.bound), rows)
                if held + more <= self.target.shared:
                    held, again = held + more, 1
            if refused := self._count(f, s, s.times * again):
                return refused
            for special, n in s.work.items():
                self._add("special" if special else "vector", n * again * s.share)
        return None

    def _level(self, roots, users, parents, bound, held, done, where, share) -> None:
        """One level of loops. users: the axes of the outputs that need it; parents: the free axes of the folds around;
        held: whether a fold around is kept; where: the loop that this level is in."""
        for i, level in enumerate(loops(roots, done)):
            counted: set[Term] = set()
            for f, whole in level:
                consumers = users or [axes for axes, tops in self.outs if f in reach(tops)]
                around = bound | whole
                free = f.free - around
                lacks = not held and any(volume(c - free) > COLUMNS for c in parents or consumers)
                if whole or lacks:
                    self.lacking[f] = free
                if whole or self.sweeping and lacks:
                    self.kept[f] = free, volume(f.free & around)
                part = share * live(f)
                times = 1 if self.sweeping else sum(_tiles(c - free) for c in consumers)
                work: dict[bool, float] = {}
                within = around.union(f.axes)
                width = WARP_COLUMNS if f.monoid == "sum" and product(f) else COLUMNS
                passes: dict[frozenset[Axis], int] = {}
                for made, axes, special in operands(f):
                    if made not in counted:
                        counted.add(made)
                        if axes not in passes:
                            own = axes - within
                            passes[axes] = 1 if self.sweeping else sum(_tiles(c - own, width) for c in consumers)
                        work[special] = work.get(special, 0.0) + volume(axes) * passes[axes]
                s = self.seen.setdefault(f, _Seen(set(), times, work, part, free, around))
                s.at.add((where, i))
                s.times = max(s.times, times)
                if product(f):
                    self.chained.update(map(orbit, inside(f)))
                    if where is not None:
                        self.nested.add(f)
                self._level(inside(f), consumers, [free], within, held or lacks,
                            done.union(before(f)), (where or 0, i), part)

    def _bytes(self, f: Fold, free: frozenset[Axis], columns: int, rows: int) -> int:
        return dtype(f).bytes * rows * columns * volume(free - self.grid)

    def _count(self, f: Fold, s: _Seen, times: int) -> str | None:
        n = volume(f.free | set(f.axes)) * s.share
        p = product(f)
        if p is None:
            self._add("vector", n * times)
            return None
        target = self.target
        match p.mma, dtype(f):
            case True, Dtype.f32: resource, rate = "tensor cores", target.mma
            case False, Dtype.f32: resource, rate = "fma", target.fma32
            case False, Dtype.f64: resource, rate = "fma64", target.fma64
            case _: resource, rate = "vector", target.vector
        chained = f in self.chained or any(product(g) for g in inside(f))
        kept = 1.0 if not p.mma else CHAINED if chained else WITH_PROLOGUE if p.prologue else 1.0
        if 2 * n * (times - 1) / kept / rate > SLACK * (target.launch + 4 * volume(f.free) / target.bandwidth):
            return "recomputation costs more than storing"
        self.products.append((f, p))
        self._add(resource, 2 * n * times / kept)
        return None

    def _add(self, resource: str, n: float) -> None:
        self.work[resource] = self.work.get(resource, 0.0) + n

    @cached_property
    def blocks(self) -> float:
        """How many blocks can work at once."""
        if self.sweeping:
            return max(1.0, volume(self.grid) / (ROWS if self.products else 1))
        if self.products:
            return max(1.0, sum(many * _least_tiles(m, n, *TILES[0])[0] for m, n, many, _ in self._results()))
        if self.seen:
            return max(1.0, min(volume(s.free & self.every) * s.times for s in self.seen.values()))
        return max(1.0, volume(self.every) / POINTS)

    def _results(self) -> list[tuple[int, int, int, bool]]:
        """(rows, columns, how many such matrices, must a block hold all columns) of each distinct product not inside
        another: where a product inside its loop lacks these columns, a block holds them or computes it again."""
        out = {}
        for f, p in self.products:
            if f not in self.nested and f.free not in out:
                m, n = volume(p.rows), volume(p.columns)
                wide = any(product(g) for g in inside(f))
                out[f.free] = m, n, volume(f.free) // max(m * n, 1), wide
        return list(out.values())

    @cached_property
    def quantum(self) -> float:
        """How many times as long as at the full rate the products take: see quantum()."""
        reuse = REUSE["tensor cores" if self.work.get("tensor cores") else "fma"]
        return quantum(tuple(sorted(self._results())), reuse, self.target.sms)


@lru_cache(maxsize=1 << 12)
def quantum(results: tuple[tuple[int, int, int, bool], ...], reuse: float, sms: int) -> float:
    """How many times as long as at the full rate products take with the best tile: waves that are not full, tiles that
    stick out, tiles too small to reach the rate. results: (rows, columns, how many, must a block hold all columns).
    """
    points, best = sum(m * n * many for m, n, many, _ in results), math.inf
    if not points:
        return 1.0
    for rows, columns in TILES:
        count = area = 0
        for m, n, many, wide in results:
            tiles, width = _least_tiles(m, n, rows, max(columns, min(n, COLUMNS)) if wide else columns)
            count += tiles * many
            area += tiles * many * rows * width
        waves = math.ceil(count / sms) * sms / count
        rate = min(1.0, rows * columns / (rows + columns) / reuse) ** 0.5
        best = min(best, waves * area / points / rate)
    return best


def _least_tiles(m: int, n: int, rows: int, columns: int) -> tuple[int, int]:
    """(tiles, their columns) of an m x n result, transposed if that takes fewer."""
    upright = -(-m // rows) * -(-n // columns)
    turned = -(-m // columns) * -(-n // rows)
    return min(upright, turned), columns


def _tiles(axes: frozenset[Axis], width: int = COLUMNS) -> int:
    return max(1, -(-volume(axes) // width))
