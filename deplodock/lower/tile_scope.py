"""What is known while a kernel is lowered: the schedule, what each axis stands for, the levels of loops, the names.

A level is a list of statements under construction: of the kernel, of a loop, or of a part of a loop's body in which an
axis has a narrower meaning (a slice). Its memo holds the tiles that it has made, keyed by what they hold and how they
are laid out; an expression is made at the outermost level that has all that it needs.
"""
from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Callable, Collection, Iterable

from deplodock.errors import IllegalSchedule
from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, Index, index
from deplodock.ir.layout import Layout, Shared, log2
from deplodock.ir.loop import Fold, subst
from deplodock.ir.term import Term
from deplodock.ir.tile import Compare, Coord, Copy, Reg, SharedTile, Stmt
from deplodock.lower.flatten import Flat, all_folds
from deplodock.lower.layout import Spread, blocked, fragment, outer_operand
from deplodock.lower.structure import product

ATOMS = ("mma", "wgmma", "fma", "none")
OF_AXIS = frozenset(("tile", "vec", "lanes", "warps", "sweep", "reverse", "group"))
OF_KERNEL = frozenset(("atom", "copy", "epilogue", "stages", "roles", "warps", "raster", "persistent", "min_blocks",
                       "regs"))
"""The knobs that there are; lower/tile.py says what they mean."""
K_STEP = 16
"""Elements along k of one product of a tensor core, for 16-bit operands."""


REGISTERS = 255
"""32-bit registers that a thread can have."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What an axis means here: `span` elements from base + off, of a tile of `tile` elements at base."""
    axis: Axis
    base: Index
    tile: int
    off: int
    span: int

    @property
    def ragged(self) -> bool:
        return self.axis.extent % self.tile != 0


@dataclass(frozen=True, slots=True)
class Roles:
    """What tiles are laid out for: a product's groups of rows and columns, and its k (None: behind the product).

    k_first: of the left and of the right operand, whether neighbours along k are neighbours in memory.
    """
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    k: str | None
    k_first: tuple[bool, bool] = (True, True)


@dataclass(frozen=True, slots=True)
class Plan:
    """A product under the schedule at hand: its operands, and the tiled axes of its rows and columns."""
    left: Term | None
    right: Term
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    dtype: Dtype | None


@dataclass(eq=False)
class Item:
    """What a loop accumulates for one fold, or for all parts of one: `folds` are the results that it gives.

    plan: of a sum that is a product; of an online fold, that of the first of its values (plans) that is in one.
    """
    folds: dict[Fold, int]
    monoid: str
    bodies: tuple[Term, ...]
    plan: Plan | None
    accs: tuple[Reg, ...] = ()
    part: Reg | None = None
    layout: Layout | None = None
    """Of a tile of elements."""
    plans: dict[Term, Plan] = field(default_factory=dict)
    turns: int = 1
    """Slices of a chunk, which idle warps take in turns."""
    fresh: bool = False
    """The first product overwrites the accumulators."""
    within: Item | None = None
    """The sum around this one, into whose accumulators it adds."""
    open: tuple[str, tuple[int, ...], tuple[int, ...]] | None = None
    """The axis of a sum within this one that adds into its accumulators, and the bits that hold its parts."""


@dataclass
class Level:
    """stmts: shared with the level around it where this is no loop. axis: of the loop. binds: the axis that has a
    meaning of its own here."""
    stmts: list[Stmt]
    axis: str | None = None
    binds: str | None = None
    memo: dict = field(default_factory=dict)
    shared: dict = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)


class Knobs:
    """A schedule, with the defaults that it may leave out. IllegalSchedule for a value that no knob has."""

    def __init__(self, kernel: str, schedule: Iterable[tuple[str, int | str]]):
        self.kernel, self.values = kernel, dict(schedule)
        self.atom = self.values.get("atom", "none")
        self.copy = self.values.get("copy", "async")
        self.epilogue = self.values.get("epilogue", "direct")
        self.stages = self.values.get("stages", 2)
        self.roles = self.values.get("roles", 0)
        self.require(self.atom in ATOMS, f"atom is one of {', '.join(ATOMS)}, not {self.atom}")
        self.require(self.copy in ("async", "tma"), f"copy is async or tma, not {self.copy}")
        self.require(self.epilogue in ("direct", "blocked", "tma"),
                     f"epilogue is direct, blocked or tma, not {self.epilogue}")
        self.require(self.stages >= 1, "a ring has at least one stage")
        self.require(not self.roles or self.copy == "tma", "roles need copy tma")
        self.require(self.epilogue != "tma" or self.copy == "tma", "epilogue tma needs copy tma")

    def require(self, held: bool, reason: str) -> None:
        """IllegalSchedule for this reason unless it holds."""
        if not held:
            raise IllegalSchedule(kernel=self.kernel, reason=reason)

    def require_axes(self, axes: Collection[str]) -> None:
        """IllegalSchedule for a knob that does not exist, or for an axis that the kernel does not have."""
        for name in self.values:
            kind, _, axis = name.partition(".")
            self.require(kind in OF_AXIS and axis in axes if axis else kind in OF_KERNEL,
                         f"{name} is no knob of a kernel with the axes {', '.join(sorted(axes))}")

    def of(self, kind: str, axis: str, default: int = 1) -> int:
        """A knob of an axis, such as tile.m."""
        return self.values.get(f"{kind}.{axis}", default)

    def get(self, name: str, default=None):
        return self.values.get(name, default)

    def spread(self, axis: str) -> Spread:
        vec, lanes, warps = (self.of(kind, axis) for kind in ("vec", "lanes", "warps"))
        self.require(all(n > 0 and n & (n - 1) == 0 for n in (vec, lanes, warps)),
                     f"vec, lanes and warps of {axis} are powers of two, not {vec}, {lanes}, {warps}")
        return Spread(vec, lanes, 0, warps, 0)


class Names:
    """Names of tiles that are unlike each other, and unlike those that are taken."""

    def __init__(self, taken: Iterable[str]):
        self.taken, self.last = set(taken), {}

    def new(self, hint: str) -> str:
        name = hint
        while name in self.taken:
            self.last[hint] = self.last.get(hint, 0) + 1
            name = f"{hint}_{self.last[hint]}"
        self.taken.add(name)
        return name


class Scope:
    """The state of the recursion, and the questions that all of it asks."""

    def __init__(self, flat: Flat, knobs: Knobs, warps: int, names: Names,
                 evaluate: Callable[[Scope, Iterable[Term]], None]):
        self.flat, self.knobs = flat, knobs
        self.bind: dict[str, Bound] = {}
        self.order: list[str] = []
        self.levels = [Level([])]
        self.evaluate = partial(evaluate, self)
        self.guards: tuple[Compare, ...] = ()
        self.locals: dict[Term, Reg] = {}
        self.stashed: dict[Term, SharedTile] = {}
        self.around: dict[Fold, Item] = {}
        self.mirrors: dict[Fold, tuple[Fold, Axis | None]] = {}
        self._names = names
        self.spreads, self.warp_bits = spreads(flat, knobs)[0], log2(warps)
        launch = {a.name for a in flat.axes}
        self.warp_axes = tuple(
            next((a for a, x in self.spreads.items()
                  if a in launch and x.warp_at <= i < x.warp_at + log2(x.warps)), None)
            for i in range(self.warp_bits))

    def require(self, held: bool, reason: str) -> None:
        self.knobs.require(held, reason)

    # ---- names and statements ------------------------------------------------------------------------------------

    def name(self, hint: str) -> str:
        return self._names.new(hint)

    def reg(self, hint: str, dtype: Dtype, layout: Layout) -> Reg:
        registers = -(-layout.size * dtype.bytes // 4) if dtype.bytes != 1 else layout.size
        self.require(registers <= REGISTERS, f"{hint} takes {registers} registers of a thread, which has {REGISTERS}")
        return Reg(self.name(hint), dtype, layout)

    def emit(self, s: Stmt) -> None:
        self.levels[-1].stmts.append(s)

    def find(self, key):
        """What the innermost level that knows it has under a key."""
        return next((lv.memo[key] for lv in reversed(self.levels) if key in lv.memo), None)

    # ---- axes ----------------------------------------------------------------------------------------------------

    def tiled(self, axes: Iterable[Axis]) -> tuple[str, ...]:
        """The axes that have more than one value here, outermost first."""
        names = {a.name for a in axes}
        return tuple(a for a in self.order if a in names and self.bind[a].span > 1)

    def span(self) -> dict[str, int]:
        return {a: self.bind[a].span for a in self.order}

    def coords(self, axes: Iterable[Axis]) -> tuple[Coord, ...]:
        names, out = {a.name for a in axes}, []
        for a in self.order:
            if a in names:
                b = self.bind[a]
                out.append(Coord(b.axis, b.base, b.off, b.axis.extent if b.ragged and b.tile > 1 else None))
        return tuple(out)

    def least(self, i: Index) -> Index | None:
        """The least value of an index over the tile at hand, as an index that the block agrees on; None if unknown."""
        out = index(i.const)
        for atom, c in i.terms:
            b = self.bind.get(atom.name) if isinstance(atom, Axis) else None
            if b is None:
                return None
            out = out + (b.base + b.off) * c + min(0, c * (b.span - 1))
        return out

    def greatest(self, i: Index) -> Index | None:
        least = self.least(-i)
        return None if least is None else -least

    def apart(self, names: Iterable[str]) -> bool:
        """Whether the knobs spread axes over lanes and warps of their own, so that a tile may have them all."""
        return not any(a.meets(b) for a, b in itertools.combinations([self.spreads[n] for n in names], 2))

    # ---- layouts -------------------------------------------------------------------------------------------------

    def matrix(self, rows: tuple[str, ...], column: str, size: int, panels: int = 0) -> Shared:
        """The tile at hand in shared memory. Outer products in registers read rows as the lanes have them, some of which
        may be as far apart as a lane has neighbouring rows."""
        shape = Shared(rows, tuple(self.bind[a].tile for a in rows), column, self.bind[column].tile, size, panels)
        spread = [(self.spreads[a], shape.stride(a)) for a in reversed(rows)] if self.knobs.atom == "fma" and self.knobs.copy == "async" else []
        return replace(shape, apart=next((log2(x.vec * stride) for x, stride in spread if x.lanes > 1), 0))

    def frame(self, axes: Iterable[Axis], roles: Roles | None) -> Layout:
        """The layout of a tile over `axes`: an operand or the result of the product at hand if it is one, else as the
        knobs say."""
        names, span = self.tiled(axes), self.span()
        if roles and names and self.knobs.atom in ("mma", "wgmma"):
            k = (roles.k,) if roles.k else ()
            for kind, r, c in (("A", roles.rows, k), ("B", roles.columns, k), ("C", roles.rows, roles.columns)):
                if c and set(names) <= {*r, *c}:
                    try:
                        return fragment(kind, r, c, span, self.warp_axes).project(names)
                    except ValueError as e:
                        self.require(False, str(e))
        if roles and roles.k in names and self.knobs.atom == "fma":
            for group, k_first in ((roles.rows, roles.k_first[0]), (roles.columns, roles.k_first[1])):
                if set(names) <= {*group, roles.k}:
                    tile = blocked([a for a in self.order if a in (*roles.rows, *roles.columns)], span, self.spreads,
                                   self.warp_bits)
                    return outer_operand(tile, group, roles.k, span[roles.k], k_first).project(names)
        for a in names:
            step = self.spreads[a].span
            self.require(span[a] % step == 0,
                         f"{span[a]} elements of {a} are no multiple of {step} = vec x lanes x warps of {a}")
        self.require(self.apart(names), f"lanes or warps of {', '.join(names)}, which share a tile, are the same")
        return blocked(names, span, self.spreads, self.warp_bits)


def spreads(flat: Flat, knobs: Knobs) -> tuple[dict[str, Spread], int]:
    """How each axis is spread, on bits that no axis it shares a tile with has; and the warps that a block needs."""
    together: dict[str, set[str]] = {}

    def meet(axes: Iterable[str]) -> None:
        axes = set(axes)
        for a in axes:
            together.setdefault(a, set()).update(axes - {a})
    meet(a.name for a in flat.axes)
    for f in all_folds(o.body for o in flat.outs):
        if knobs.atom == "none" or not product(f):
            meet(a.name for b in f.bodies for a in b.free)
        else:                                            # its operands lie as it takes them, whatever knobs say of k
            meet(a.name for a in f.free)
            if f.monoid == "online":
                meet(a.name for a in f.bodies[0].free)
        together.setdefault(f.axes[0].name, set())
    out: dict[str, Spread] = {}
    order = [a.name for a in reversed(flat.axes)] + [a for a in together if a not in {x.name for x in flat.axes}]
    for a in order:
        s = knobs.spread(a)
        others = [out[x] for x in together[a] if x in out]
        lane = _free(log2(s.lanes), [(o.lane_at, log2(o.lanes)) for o in others])
        warp = _free(log2(s.warps), [(o.warp_at, log2(o.warps)) for o in others])
        out[a] = replace(s, lane_at=lane, warp_at=warp)
        knobs.require(lane + log2(s.lanes) <= 5, f"more than 32 lanes for the axes that share a tile with {a}")
    needed = 1 << max((s.warp_at + log2(s.warps) for s in out.values()), default=0)
    warps = knobs.get("warps", needed)
    knobs.require(warps >= needed and warps & (warps - 1) == 0, f"{warps} warps: a power of two, {needed} at least")
    knobs.require(warps <= 32, f"{warps} warps: a block has 32 at most")
    return out, warps


def _free(n: int, taken: list[tuple[int, int]]) -> int:
    """The lowest bit from which n bits are free."""
    return next(at for at in itertools.count() if all(at + n <= t or t + m <= at for t, m in taken)) if n else 0


def flipped(f: Term, p: Axis) -> Term:
    """A body read backwards along an axis."""
    return subst(f, {p: (p.extent - 1) - index(p)})
