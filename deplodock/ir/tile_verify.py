"""What Tile IR must satisfy, whatever it computes; verify_tile() raises MalformedTile for the first breach.

    names      a tile is defined once, before it is used, in its block or one around it; a loop's tiles end with it
    layouts    what meets in a statement lies in the same threads: operands of maps are projections of the result, rows
               of an accumulator are the rows of its left operand, a slice is some of the registers of its source
    dtypes     operands of tensor cores are 16 bits wide and equal, their accumulators f32
    rings      what a loop copies is read in that loop, its stages are enough, and wgmma has finished with a slot, with
               registers and with accumulators before anything else touches them
"""
from __future__ import annotations

from typing import Iterable

from deplodock.ir.dtype import Dtype
from deplodock.ir.layout import Layout
from deplodock.ir.loop import Const
from deplodock.ir.tile import (Assign, Combine, Convert, CopyOut, Exchange, For, Kernel, LoadShared, Map, Mask, Mma,
                               MmaCommit, MmaFence, MmaWait, Operand, Part, Promote, Reduce, Reg, SharedTile, Slice,
                               Stmt, Store, StoreShared, defined, used)


class MalformedTile(ValueError):
    """The Tile IR breaks a rule of the head of tile_verify.py."""


def verify_tile(k: Kernel) -> None:
    """MalformedTile if a kernel breaks a rule of the head of this file."""
    names: set[str] = set()
    for part in k.parts:
        _Verifier(k, names).part(part)


def _fits(part: Layout, whole: Layout) -> bool:
    """Whether a tile is what is left of another without some axes."""
    return part == whole.project(part.axes)


class _Verifier:
    """One part. scopes: the register tiles of each block around the statement at hand; shared: the shared tiles."""

    def __init__(self, k: Kernel, names: set[str]):
        self.kernel, self.names = k, names
        self.scopes: list[dict[str, Reg]] = [{}]
        self.shared: dict[str, SharedTile] = {}
        self.flying: list[Mma] = []                              # products that were not waited for
        self.issued: list[Mma] = []                              # products of the group that is being made

    def require(self, held: bool, what: str) -> None:
        if not held:
            raise MalformedTile(f"{self.kernel.name}: {what}")

    def part(self, p: Part) -> None:
        for c in p.copies:
            self.share(c.dst)
        self.block(p.body)
        self.require(not self.flying, "products are in flight at the end")

    def share(self, t: SharedTile) -> None:
        self.require(t.name not in self.names, f"{t.name} is defined twice")
        self.names.add(t.name)
        self.shared[t.name] = t

    def block(self, stmts: tuple[Stmt, ...]) -> None:
        for s in stmts:
            self.loop(s) if isinstance(s, For) else self.stmt(s)

    def loop(self, s: For) -> None:
        self.require(s.step > 0 and s.stages >= 1 and s.lo and s.hi, f"loop {s.var.name} has no range")
        self.require(not s.copies or s.stages >= 2 + s.lag, f"ring of {s.var.name}: {s.stages} stages with lag {s.lag}")
        for c in s.copies:
            self.share(c.dst)
            self.require(c.dst.stages == s.stages, f"{c.dst.name} has {c.dst.stages} stages in a ring of {s.stages}")
            self.require(_reads(s.body, c.dst.name), f"nothing in loop {s.var.name} reads {c.dst.name}, its copy")
        self.require(not self.flying, f"products are in flight when loop {s.var.name} starts")
        self.scopes.append({})
        self.block(s.body)
        self.scopes.pop()
        self.require(bool(self.flying) <= bool(s.lag), f"products are in flight behind loop {s.var.name}, without lag")
        for c in s.copies:
            del self.shared[c.dst.name]

    def known(self, r: Reg) -> None:
        found = next((x[r.name] for x in reversed(self.scopes) if r.name in x), None)
        self.require(found is not None, f"{r.name} is used before it is defined")
        self.require(found == r, f"{r.name} is used as another tile than it was defined as")

    def stmt(self, s: Stmt) -> None:
        flying = {m.acc for m in (*self.flying, *self.issued)}
        for r in (*used(s), *_written(s)):
            self.known(r)
            self.require(isinstance(s, (Mma, MmaFence, MmaWait)) or r not in flying,
                         f"{r.name} is touched while products into it are in flight")
        self.check(s)
        for r in defined(s):
            self.require(r.name not in self.names, f"{r.name} is defined twice")
            self.require(r not in [x for m in self.flying for x in (m.a, m.b)], f"{r.name} is an operand in flight")
            self.names.add(r.name)
            self.scopes[-1][r.name] = r

    def check(self, s: Stmt) -> None:
        match s:
            case Map(d, _, srcs) | Assign(d, _, srcs):
                self.fits(d, srcs)
            case Mask(d, x):
                self.fits(d, (x,))
            case Slice(d, x):
                self.require(x.layout.holds(d.layout), f"{d.name} is no part of {x.name}")
            case Convert(d, x):
                self.require(all(d.layout.extent(a) == x.layout.extent(a) for a in x.layout.axes),
                             f"{d.name} is only a part of {x.name}")
            case Exchange(d, x, axis):
                self.require(d.layout == x.layout and x.layout.extent(axis) == 2,
                             f"{x.name} has no two halves along {axis}")
            case LoadShared(_, t):
                self.require(self.shared.get(t.name) == t, f"{t.name} is read where nothing has filled it")
            case StoreShared(t, _):
                self.share(t)
            case CopyOut(_, t):
                self.require(self.shared.get(t.name) == t, f"{t.name} is copied out before it is filled")
            case Reduce(d, _, x):
                self.fits(x[0], (*x, *d))
            case Promote(a, p):
                self.require(a.layout == p.layout, f"{a.name} and {p.name} are laid out differently")
            case Store(a, x):
                missing = x.layout.axes - {c.axis.name for c in a.coords}
                self.require(not missing, f"{x.name} is stored without coordinates of {missing}")
            case Mma(): self.product(s)
            case MmaFence(): self.require(not self.issued, "a fence among products of one group")
            case MmaCommit():
                self.flying, self.issued = self.flying + self.issued, []
            case MmaWait(pending):
                self.require(not self.issued, "a wait before the group is committed")
                if not pending:
                    self.flying = []
                self.require(not pending or not any(isinstance(m.a, Reg) for m in self.flying),
                             "products whose operands are registers stay in flight")

    def fits(self, whole: Reg, parts: Iterable[Reg | Const]) -> None:
        for x in parts:
            self.require(isinstance(x, Const) or _fits(x.layout, whole.layout),
                         f"{whole.name} and {x if isinstance(x, Const) else x.name} are laid out differently")

    def product(self, s: Mma) -> None:
        acc, a, b = s.acc, s.a, s.b
        rows = a.layout.axes - {s.k}
        self.require(s.k in a.layout.axes and s.k in b.layout.axes, f"{acc.name}: {s.k} is not in both operands")
        self.require(acc.layout.project(rows) == a.layout.project(rows),
                     f"{acc.name}: its rows are laid out unlike its left operand's")
        dtypes = {x.tile.dtype if isinstance(x, Operand) else x.dtype for x in (a, b)}
        self.require(len(dtypes) == 1, f"{acc.name}: operands of {' and '.join(sorted(dtypes))}")
        narrow = dtypes <= {Dtype.bf16, Dtype.f16} and acc.dtype == Dtype.f32
        self.require(acc.dtype in dtypes if s.atom == "fma" else narrow,
                     f"{acc.name}: {acc.dtype} from {dtypes.pop()} by {s.atom}")
        for x in (a, b):
            if isinstance(x, Operand):
                self.require(s.atom == "wgmma" and self.shared.get(x.tile.name) == x.tile,
                             f"{x.tile.name} is read where nothing has filled it")
        if s.atom == "wgmma":
            self.issued.append(s)


def _written(s: Stmt) -> tuple[Reg, ...]:
    """Tiles that a statement changes in place."""
    match s:
        case Assign(d): return (d,)
        case Reduce(d) | Combine(d): return d
        case Mma(acc): return (acc,)
        case Promote(acc, part): return (acc, part)
    return ()


def _reads(stmts: tuple[Stmt, ...], name: str) -> bool:
    """Whether a shared tile is read."""
    for s in stmts:
        match s:
            case LoadShared(_, t) if t.name == name: return True
            case Mma(_, a, b) if any(isinstance(x, Operand) and x.tile.name == name for x in (a, b)): return True
            case For() if _reads(s.body, name): return True
    return False
