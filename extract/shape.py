"""A kernel's loops as the facts that schedule laws are about, and a law's row as the knobs of that kernel.

Which family a kernel belongs to is read off its loops: a product inside the loop of another fold is `chained`, a product
elsewhere is `product`, folds without products are `rows`, none `points`. The rows of laws are about tiles of rows and
columns; which named axes these are is said here.
"""
from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Iterable

from deplodock.ir.index import Axis
from deplodock.ir.loop import Cast, Fold, Load, children, loads
from deplodock.ir.plan import Schedule
from deplodock.ir.term import Term
from deplodock.join import Relation, Row
from deplodock.lower.structure import Loop, Product, Structure, limits, product
from deplodock.target import Target
from rules import schedule as laws

ROUND = 0.66e-6
"""Seconds from the request of a slab to its arrival."""
L2 = 5e12
"""Bytes per second that blocks together read from the second-level cache."""
MEETING = 0.08e-6
"""Seconds of a round in which a block waits for its own warps."""
OPERATOR = 4
"""Instructions of a pointwise operator, on average."""
CHAINED = 0.35
"""Share of the multiply-adds that a register tile inside another fold issues beside its loads."""

# Of products, fitted to benchmarks/results/schedules.json; cycles are of an SM.
START = 2.5e-6
"""Seconds of a launch beside its rounds."""
ALONE = 8
"""Cycles of a round that a warp waits for its own operands, where no other has its scheduler."""
KEPT = 50e6
"""Bytes of an operand that the second-level cache keeps from one row of tiles to the next."""
SLAB = 40
"""Bytes per cycle that the slabs of an SM's blocks arrive at."""
ISSUE = 0.85
"""Share of the sustained rate of instructions that a register tile's multiply-adds and reads reach."""
READS = (2, 4.4)
"""Cycles in which shared memory delivers 16 bytes of each of a warp's four rows, and of each of its eight columns."""
FETCHED = 2000
"""Instructions of a round that the SM keeps; a longer round is fetched anew each time."""
FETCH = 2.8
"""Cycles to fetch an instruction."""
FRAGMENT = 6.2
"""Cycles of shared memory for one ldmatrix of 16 x 16 operands."""
MMA = 6.5
"""Cycles of a warp for one instruction of a tensor core."""
TENSOR = 0.5
"""Share of the tensor cores' rate that mma.sync reaches."""


def round_up(n: int, to: int) -> int:
    return -(-n // to) * to


def power(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << max(n - 1, 0).bit_length()


@dataclass(frozen=True)
class Shape:
    """The dominant part of a kernel under one family's names. `fact` states it; axes are by role, slowest first."""
    name: str
    parts: tuple[Structure, ...]
    fact: Row
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    depth: tuple[Axis, ...]
    keys: Axis | None
    size: int
    batch: int
    bytes: int
    masked: bool
    computed: tuple[float, float] = (0, 0)
    """Operators that make an element of the rows' and of the columns' operand, where it is not only loaded; those of folds
    beside the product, as the statistic of a norm, are the rows'."""

    # ---- reading a kernel -----------------------------------------------------------------------------------------

    @staticmethod
    def of(parts: tuple[Structure, ...], name: str) -> "Shape | None":
        """None for a kernel that computes nothing, since its outputs are empty."""
        if not parts:
            return None
        main = max(parts, key=lambda p: (bool(p.loops), work(p), -parts.index(p)))
        found = [(l, p) for l in every(main.loops) for p in l.products]
        chained = [(l, p) for l, p in found if any(i.products for i in every(l.inside))]
        total = sum(b.dtype.bytes * math.prod(a.extent for a in b.axes) for p in parts for b in p.flat.views)
        common = dict(name=name, parts=parts, bytes=total)
        if chained:
            return _chained(main, *chained[0], common)
        if found:
            return _product(main, found, common)
        return _rows(main, common) if main.loops else _points(main, common)

    @property
    def length(self) -> int:
        """Points of the fold inside: of the depth of a product, of a row."""
        return math.prod(a.extent for a in self.depth)

    # ---- from a row to knobs ----------------------------------------------------------------------------------------

    def knobs(self, relation: Relation, row: tuple) -> Schedule:
        """The schedule that a law's row stands for."""
        r = dict(zip(relation.columns, row))
        made = {"tensor_core": self._mma, "register_tiles": self._fma, "attention": self._chain,
                "attention_fma": self._chain_fma, "row": self._row, "row_chunks": self._chunks,
                "point": self._point, "serial": self._serial}[relation.name](r)
        return tuple(sorted(made.items()))

    def _tiles(self, axes: tuple[Axis, ...], elements: int, least: int = 1) -> dict[str, int]:
        """A tile of so many elements over a group of axes: those that folds read backwards, whole inner axes, then a part
        of the next. least: what the innermost has, however short it is, since lanes and warps are spread over it."""
        knobs, mirrored = {}, frozenset().union(*(p.mirrored for p in self.parts))
        for a in sorted(reversed(axes), key=lambda a: a not in mirrored):
            tile = min(elements, power(a.extent)) if a is not axes[0] or a in mirrored else elements
            tile = max(tile, min(elements, least)) if a is axes[-1] else tile
            knobs[f"tile.{a.name}"] = tile
            elements = max(1, elements // tile)
        return knobs

    def _staged(self, r: dict, rows: int, columns: int) -> dict[str, int | str]:
        """What a product's tile, chunk and ring are, in every part and for every loop. rows, columns: of one piece of
        work of all warps, which is along the innermost axes."""
        knobs: dict[str, int | str] = {}
        for left, right in self._groups:
            knobs = self._tiles(left, r["bm"], rows) | self._tiles(right, r["bn"], columns) | knobs
        for part in self.parts:
            # A loop around the loop of a product takes one value at a time, since the accumulator has no room for more;
            # if its axis is one of the product's own, that axis's tile.
            loops = {f"tile.{l.axis.name}": 1 if around(l) else r["bk"] for l in every(part.loops)}
            knobs = loops | knobs
        again, swapped = self._again(r)
        if swapped < again:
            knobs["raster"] = ",".join(dict.fromkeys(a.name for rows, _ in self._groups for a in rows))
        return knobs | {"stages": r["stages"]}

    def _again(self, r: dict) -> tuple[int, int]:
        """Bytes that come from memory once more than they must: of the columns' operand, where neighbouring blocks have the
        same rows; of the rows', where they have the same columns. The second-level cache keeps what is not too large."""
        m, n = (math.prod(a.extent for a in g) for g in (self.rows, self.columns))
        _, lefts, rights = self.fact.args[4:7]
        left, right = (many * extent * self.length * self.size for many, extent in ((lefts, m), (rights, n)))
        down, across = -(-m // r["bm"]), -(-n // r["bn"])
        return (right * (down - 1) * self.batch if right > KEPT else 0,
                left * (across - 1) * self.batch if left > KEPT else 0)

    def _mma(self, r: dict) -> dict:
        knobs = self._staged(r, 16 * r["wm"], 16 * r["wn"]) | {"atom": "mma"}
        for rows, columns in self._groups:
            knobs |= {f"warps.{rows[-1].name}": r["wm"], f"warps.{columns[-1].name}": r["wn"]}
        # A fold beside no product, as the statistic that an operand needs first, deals its row over the lanes.
        alone = [l.axis.name for part in self.parts for l in every(part.loops)
                 if not any(i.products for i in (l, *every(l.inside)))]
        for name in alone:
            knobs |= {f"tile.{name}": 32, f"vec.{name}": 4, f"lanes.{name}": 8}
        if alone:
            knobs |= {f"lanes.{rows[-1].name}": 4 for rows, _ in self._groups}
        return knobs

    def _fma(self, r: dict) -> dict:
        vec = min(4, r["fn"])
        knobs = self._staged(r, 4 * r["wm"], 8 * r["wn"] * vec) | {"atom": "fma"}
        for rows, columns in self._groups:
            knobs |= {f"warps.{rows[-1].name}": r["wm"], f"lanes.{rows[-1].name}": 4,
                      f"warps.{columns[-1].name}": r["wn"], f"lanes.{columns[-1].name}": 8,
                      f"vec.{columns[-1].name}": vec}
        return knobs

    @cached_property
    def _groups(self) -> list[tuple[tuple[Axis, ...], tuple[Axis, ...]]]:
        """(rows, columns) of each part with products, the dominant one's last: axes of its products, in order; of products
        whose rows, or columns, have no axis in common, each for itself, since each has a tile of its own.

        What is a row in the dominant part is none of another's columns: an axis has one set of knobs.
        """
        found = []
        for part in sorted(self.parts, key=work):
            pairs = [sides(part, p) for l in every(part.loops) for p in l.products]
            order = [*part.axes, *(l.axis for l in every(part.loops))]
            if pairs:
                found += itertools.product(*([tuple(a for a in order if a in g) for g in together(pair[i] for pair in pairs)]
                                             for i in (0, 1)))
        rows, columns = ({a.name for a in g} for g in found[-1])
        crossed = [(c, r) if any(a.name in rows for a in c) or any(a.name in columns for a in r) else (r, c)
                   for r, c in found[:-1]]
        return [*crossed, found[-1]]

    def _chain(self, r: dict, least: int = 16) -> dict:
        """least: rows of one warp."""
        loops = [l for part in self.parts for l in every(part.loops)]
        knobs = {"stages": r["stages"], "atom": "mma"} | {f"tile.{l.axis.name}": round_up(l.axis.extent, 16) for l in loops}
        knobs |= {f"tile.{l.axis.name}": 1 for l in loops if around(l)}
        knobs |= {f"tile.{a.name}": r["keys"] for a in self._key_axes()}
        knobs |= {f"tile.{a.name}": 1 for a in self.depth[:-1]} | {f"tile.{self.depth[-1].name}": round_up(self.depth[-1].extent, 16)}
        knobs |= self._tiles(self.rows, r["bm"], least * r["wm"]) | {f"warps.{self.rows[-1].name}": r["wm"]}
        knobs |= {f"tile.{a.name}": round_up(a.extent, 16) for a in self.columns}
        knobs |= {f"tile.{a.name}": r["keys"] for a in self._apart()}
        return knobs | self._order()

    def _chain_fma(self, r: dict) -> dict:
        knobs = self._chain(r, 4) | {"atom": "fma", f"lanes.{self.rows[-1].name}": 4}
        loops = [i for part in self.parts for l in every(part.loops) for i in every(l.inside)]
        # keys lie with rows in the scores, and with columns where it is the values that are computed
        keys = 4 if any((p.rows | p.columns).intersection(self.columns) for i in loops for p in i.products) else 8
        knobs |= {f"lanes.{a.name}": keys for a in self._key_axes()}
        knobs[f"tile.{self.depth[-1].name}"] = power(self.depth[-1].extent)
        for a in self.columns:
            knobs |= {f"tile.{a.name}": max(8, power(a.extent)), f"lanes.{a.name}": 8}
        return knobs | {f"lanes.{a.name}": 8 for a in self._apart()}

    def _key_axes(self) -> list[Axis]:
        """The axes of loops around a product that are axes of its result: where the maximum of the scores comes first,
        keys are swept twice."""
        return [l.axis for part in self.parts for l in every(part.loops)
                if any(l.axis in p.rows | p.columns for i in every(l.inside) for p in i.products)]

    def _apart(self) -> list[Axis]:
        """The innermost columns of products that are neither rows, columns nor keys of the dominant one: of scores that are
        computed again where the result is. In tiles, as keys are, they are summed in the same order as for their maximum and
        their sum, so that roundings of exp(s - max s) / sum cancel; and they are summed once, not in a block for each."""
        known = {*self.rows, *self.columns, *self._key_axes()}
        found = [(part, sides(part, p)[1][-1]) for part in self.parts for l in every(part.loops) for p in l.products]
        return [a for part, a in found if a in part.axes and a not in known]

    def _order(self) -> dict:
        """Where a mask shortens the loop of late tiles' neighbours, the longest tiles of all batches come first."""
        return {f"reverse.{self.rows[-1].name}": 1} if self.masked else {}

    def _row(self, r: dict) -> dict:
        knobs: dict[str, int | str] = {}
        along = {a for part in self.parts for l in every(part.loops) for a in (l.axis,)}
        along |= {a for part in self.parts for a in part.axes if a.extent == self.length and a not in self.rows}
        for a in along:
            span = r["vec"] * r["lanes"] * r["warps"]
            knobs |= {f"tile.{a.name}": round_up(a.extent, span), f"vec.{a.name}": r["vec"],
                      f"lanes.{a.name}": r["lanes"], f"warps.{a.name}": r["warps"]}
        for a in (part.axes[-1] for part in self.parts if part.axes and not part.loops):
            if f"tile.{a.name}" not in knobs:
                knobs |= {f"tile.{a.name}": r["vec"] * r["lanes"] * r["warps"], f"vec.{a.name}": r["vec"],
                          f"lanes.{a.name}": r["lanes"], f"warps.{a.name}": r["warps"]}
        if self.rows and r["per_block"] > 1:
            a = self.rows[-1]
            knobs |= {f"tile.{a.name}": r["per_block"], f"lanes.{a.name}": r["per_block"]}
        return knobs

    def _chunks(self, r: dict) -> dict:
        """Every fold in chunks of one access of each thread."""
        span = r["vec"] * r["lanes"] * r["warps"]
        knobs = self._row(r | {"per_block": 1})
        return knobs | {f"tile.{l.axis.name}": span for part in self.parts for l in every(part.loops)}

    def _serial(self, r: dict) -> dict:
        """A point a thread, one step of a fold at a time."""
        knobs = {f"tile.{a.name}": 1 for part in self.parts for a in (*part.axes, *(l.axis for l in every(part.loops)))}
        for a in (part.axes[-1] for part in self.parts if part.axes):
            knobs |= {f"tile.{a.name}": r["lanes"], f"lanes.{a.name}": r["lanes"]}
        return knobs

    def nest(self) -> Row:
        """The fact that thread_loops is about."""
        return laws.nest(self.name, min((part.axes[-1].extent for part in self.parts if part.axes), default=1))

    def _point(self, r: dict) -> dict:
        knobs: dict[str, int | str] = {}
        for part in self.parts:
            if not part.axes:
                continue
            *outer, a = part.axes
            knobs |= {f"vec.{a.name}": r["vec"], f"lanes.{a.name}": r["lanes"], f"warps.{a.name}": r["warps"],
                      f"tile.{a.name}": r["vec"] * r["lanes"] * r["warps"]}
            if outer and r["outer"] > 1:
                knobs |= {f"tile.{outer[-1].name}": r["outer"], f"lanes.{outer[-1].name}": r["outer"]}
        return knobs

    # ---- what a row is expected to cost -----------------------------------------------------------------------------

    def cost(self, relation: Relation, row: tuple, target: Target) -> float:
        """Seconds that the schedule of this row is expected to take. For ranking: counts of work, waves and latency."""
        r = dict(zip(relation.columns, row))
        memory = self.bytes / target.bandwidth
        match relation.name:
            case "tensor_core" | "register_tiles":
                return self._product_cost(r, target)
            case "attention" | "attention_fma":
                return memory + self._chain_cost(r, target, relation.name == "attention")
            case "row":
                count = max(1, math.prod(a.extent for a in self.rows))
                blocks = -(-count // r["per_block"])
                each = round_up(self.length, r["vec"] * r["lanes"] * r["warps"]) / (r["lanes"] * r["warps"])
                waves = max(1.0, blocks * r["warps"] / (target.sms * 32))
                return memory + waves * (2e-7 * r["warps"] ** 0.5 + each * 12 / target.clock) + self._narrow(r, target)
            case "row_chunks":
                blocks = max(1, math.prod(a.extent for a in self.rows))
                each = -(-self.length // (r["vec"] * r["lanes"] * r["warps"]))
                waves = max(1.0, blocks * r["warps"] / (target.sms * 32))
                return memory + waves * each * (ROUND + r["vec"] * r["warps"] * 12 / target.clock) + self._narrow(r, target)
            case "serial":
                steps = sum(math.prod(l.axis.extent for l in every(part.loops)) for part in self.parts)
                return memory + steps * ROUND + self.batch * (32 / r["lanes"]) * 1e-7
            case "point":
                count = max(1, math.prod(a.extent for a in self.columns))
                per_block = r["vec"] * r["lanes"] * r["warps"] * r["outer"]
                blocks = math.prod(-(-a.extent // t) for a, t in zip(self.columns, self._point_tiles(r)))
                waste = blocks * per_block / count
                idle = max(1.0, target.sms * 2 / blocks) * 1e-7
                return memory * waste + idle + blocks / (target.sms * 16) * 2e-8 + self._narrow(r, target)
        raise KeyError(relation.name)

    def _point_tiles(self, r: dict) -> list[int]:
        tiles = [1] * len(self.columns)
        if tiles:
            tiles[-1] = r["vec"] * r["lanes"] * r["warps"]
        if len(tiles) > 1:
            tiles[-2] = r["outer"]
        return tiles

    def _narrow(self, r: dict, target: Target) -> float:
        """Accesses narrower than 16 bytes and rows of fewer than 32 lanes cost requests."""
        return self.bytes / target.bandwidth * (0.05 * math.log2(16 / (r["vec"] * self.size)) + 0.02 * (32 / r["lanes"] - 1))

    def _waves(self, blocks: int, shared: int, threads: int, target: Target) -> float:
        fit = max(1, min(target.shared // max(shared, 1), 2048 // threads, target.registers // (threads * 168)))
        return -(-blocks // (target.sms * min(fit, -(-blocks // target.sms))))

    def _product_cost(self, r: dict, target: Target) -> float:
        """Each round takes as long as the busiest of what an SM's blocks share, or as the slab is on its way."""
        m, n = (math.prod(a.extent for a in g) for g in (self.rows, self.columns))
        blocks = -(-m // r["bm"]) * -(-n // r["bn"]) * self.batch
        warps, (_, lefts, rights) = r["wm"] * r["wn"], self.fact.args[4:7]
        slab = r["bk"] * self.size * (lefts * r["bm"] + rights * r["bn"])
        waves = self._waves(blocks, slab * r["stages"], 32 * warps, target)
        resident = -(-blocks // (target.sms * waves))
        reads, issued, products, fetched = self._cycles(r, target)
        warps *= resident
        busy = max(warps * reads, -(-warps // 4) * issued, warps * products, issued + ALONE, fetched)
        # Each warp makes its own fragments of an operand that is computed.
        made = self.computed[0] * r["bm"] * r["bk"] * r["wn"] + self.computed[1] * r["bn"] * r["bk"] * r["wm"]
        busy += OPERATOR * resident * made / (128 * min(1.0, warps / 8))
        late = ROUND / (r["stages"] - 1)
        narrow = max(1.0, 128 / (r["bk"] * self.size)) ** 0.4          # the cache sends lines of 128 bytes
        each = max(busy / target.clock + MEETING, resident * slab * narrow / (SLAB * target.clock), late) + 0.1 * late
        work = waves * -(-self.length // r["bk"]) * each + START
        moved = (self.bytes + min(self._again(r))) / target.bandwidth
        return max(work, moved) + 0.1 * min(work, moved)

    def _cycles(self, r: dict, target: Target) -> tuple[float, float, float, float]:
        """Of a round: those that a warp has shared memory, its scheduler, and the tensor cores for itself; those that
        instructions take to come."""
        many, lefts, rights = self.fact.args[4:7]
        if "fm" in r:
            steps = r["bk"] * self.size / 16
            rate = ISSUE * target.fma32 / (2 * 32 * 4 * target.sms * target.clock)
            issued = steps * (4 * many * r["fm"] * r["fn"] + lefts * r["fm"] + rights * r["fn"])
            return (steps * (READS[0] * lefts * r["fm"] + READS[1] * rights * r["fn"]), issued / rate, 0.0,
                    issued * FETCH if issued > FETCHED else 0.0)
        rows, columns, steps = r["bm"] / r["wm"] / 16, r["bn"] / r["wn"] / 16, r["bk"] / 16
        operands = lefts * rows + rights * columns
        rate = TENSOR * target.mma / (2 * 16 ** 3 * target.sms * target.clock)
        return (steps * operands * FRAGMENT, steps * (2 * many * rows * columns + operands) * MMA,
                steps * many * rows * columns / rate, 0.0)

    def _chain_cost(self, r: dict, target: Target, mma: bool) -> float:
        m = math.prod(a.extent for a in self.rows)
        blocks = -(-m // r["bm"]) * self.batch
        width = math.prod(a.extent for a in self.columns)
        threads = 32 * r["wm"]
        slab = r["keys"] * self.size * (self.length + width)
        waves = self._waves(blocks, slab * r["stages"] + r["bm"] * self.length * self.size, threads, target)
        resident = min(blocks / target.sms / waves, 4) if blocks > target.sms else 1
        rate = target.mma * 0.5 if mma else target.fma32 * CHAINED
        flops = 2 * r["bm"] * r["keys"] * (self.length + width)
        fill = min(1.0, threads * max(1, resident) / 256)
        busy = flops / (rate / target.sms * fill) + r["bm"] * r["keys"] / (16 * target.clock) + MEETING
        busy += r["bm"] * width / (128 * target.clock * fill)        # the result is rescaled each round
        rounds = -(-self.keys.extent // r["keys"]) * (0.6 if self.masked else 1)
        cached = blocks * rounds * slab / L2
        return cached + waves * max(1, resident) * rounds * max(busy, ROUND / (r["stages"] - 1) / max(1, resident)) + waves * 2e-6


# ---- families ----------------------------------------------------------------------------------------------------------

def every(loops: tuple[Loop, ...]):
    """All loops, those inside others too, outer ones first."""
    for l in loops:
        yield l
        yield from every(l.inside)


def together(groups: Iterable[tuple[Axis, ...]]) -> list[set[Axis]]:
    """The axes of all groups; those of groups with an axis in common in one set."""
    found: list[set[Axis]] = []
    for g in groups:
        joined = set(g).union(*(f for f in found if f & set(g)))
        found = [*(f for f in found if not f & set(g)), joined]
    return found


def around(l: Loop) -> bool:
    """Whether a loop has no product of its own, but products inside."""
    return not l.products and any(i.products for i in every(l.inside))


def work(part: Structure) -> int:
    """Points of the widest loop of a part: which part of a kernel its schedule is made for."""
    grid = math.prod(a.extent for a in part.axes)
    return max([grid] + [math.prod(a.extent for a in f.free) * l.axis.extent for l in every(part.loops) for f in l.folds])


def sides(part: Structure, p: Product) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """The axes of a product's rows and columns, slowest first: launch axes in their order, then those of loops.

    Rows are the operand whose axes come first, as in the lowering.
    """
    order = [*part.axes, *(l.axis for l in every(part.loops))]
    place = lambda axes: tuple(sorted(axes, key=lambda a: order.index(a) if a in order else len(order)))
    rows, columns = sorted((place(p.rows), place(p.columns)), key=lambda axes: order.index(axes[0]))
    return rows, columns


def staged(part: Structure, loop: Loop) -> tuple[int, int, int]:
    """Of a loop with products: how many these are, and how many tensors the operands with rows and with columns load."""
    lefts, rights = set(), set()
    for p in loop.products:
        rows, _ = sides(part, p)
        left, right = (p.left, p.right) if set(rows) == p.rows else (p.right, p.left)
        lefts |= {l for l in loads(left or p.right) if len(l.free) > 1}
        rights |= {l for l in loads(right or p.left) if len(l.free) > 1}
    return len(loop.products), max(1, len(lefts)), max(1, len(rights))


def operators(t: Term) -> int:
    """Operators of a factor, not counting those inside folds, nor a cast of what is loaded."""
    if isinstance(t, Fold) or not children(t) or isinstance(t, Cast) and isinstance(t.body, Load):
        return 0
    return 1 + sum(map(operators, children(t)))


def element(part: Structure) -> int:
    """Bytes of the widest element that a part loads."""
    return max((b.dtype.bytes for b in part.flat.views), default=4)


def _product(part: Structure, found: list[tuple[Loop, Product]], common: dict) -> Shape:
    loop, p = max(found, key=lambda x: x[0].axis.extent)
    rows, columns = sides(part, p)
    m, n = (math.prod(a.extent for a in g) for g in (rows, columns))
    batch = math.prod(a.extent for a in part.axes if a not in rows and a not in columns)
    size = p.dtype.bytes if p.dtype else max(4, element(part))
    most = [max(n) for n in zip(*(staged(q, l) for q in common["parts"] for l in every(q.loops) if l.products))]
    fact = laws.product(common["name"], m, n, loop.axis.extent, *most, size)
    left, right = (p.left, p.right) if set(rows) == p.rows else (p.right, p.left)
    beside = sum(operators(b) for f in loop.folds if not product(f) for b in f.bodies) / 4      # with the sum, a multiply-add
    return Shape(fact=fact, rows=rows, columns=columns, depth=(loop.axis,), keys=None, size=size, batch=batch,
                 masked=False, computed=(operators(left) + beside, operators(right)), **common)


def _chained(part: Structure, loop: Loop, p: Product, common: dict) -> Shape:
    scores = next(i for i in every(loop.inside) if i.products)
    depth = tuple(i.axis for i in every(loop.inside) if i is scores or scores in every(i.inside))
    rows, columns = sides(part, p)
    m, width = (math.prod(a.extent for a in g) for g in (rows, columns))
    batch = math.prod(a.extent for a in part.axes if a not in rows and a not in columns)
    size = p.dtype.bytes if p.dtype else max(4, element(part))
    fact = laws.chained(common["name"], m, loop.axis.extent, math.prod(a.extent for a in depth), width, size)
    return Shape(fact=fact, rows=rows, columns=columns, depth=depth, keys=loop.axis, size=size, batch=batch,
                 masked=any(limits(f) for f in loop.folds), **common)


def _rows(part: Structure, common: dict) -> Shape:
    loop = max(every(part.loops), key=lambda l: l.axis.extent)
    rows = tuple(a for a in part.axes if a.extent != loop.axis.extent or a in frozenset().union(*(f.free for f in loop.folds)))
    count = math.prod(a.extent for a in rows)
    kept = any(a not in rows for p in common["parts"] for a in p.axes)
    fact = laws.rows(common["name"], count, loop.axis.extent, int(kept), element(part))
    return Shape(fact=fact, rows=rows, columns=(), depth=(loop.axis,), keys=None, size=element(part), batch=1,
                 masked=False, **common)


def _points(part: Structure, common: dict) -> Shape:
    *outer, last = part.axes or (Axis("one", 1),)
    fact = laws.points(common["name"], math.prod(a.extent for a in outer), last.extent, element(part))
    return Shape(fact=fact, rows=(), columns=part.axes, depth=(), keys=None, size=element(part), batch=1, masked=False,
                 **common)
