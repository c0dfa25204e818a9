"""Kernels run as their loop structure says, in float64: loop by loop, chunk by chunk, on a CPU.

The e-graph's own check compares spellings with each other; it sees neither how kernels are enumerated nor the cover.
Here each candidate is computed the way lowering will compute it, and compared with the source program. A fold that is
needed before its loop has ended is an error, as is one that is read outside the tile that was kept.
"""
from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Iterable, Mapping

import numpy as np

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, Index, index
from deplodock.ir.loop import Buffer, Fold
from deplodock.ir.meaning import Meaning, Named
from deplodock.ir.plan import Output, Plan
from deplodock.ir.term import Term
from extract.kernels import Candidate
from extract.program import Program
from extract.structure import before, inside, loops, mirror, mirrored, tops

PIECES = 2
"""Chunks that a loop is run in."""
TOLERANCE = 1e-7


class NotReady(Exception):
    """A kernel reads a fold whose loop has not ended, or outside the tile that was kept of it."""


Done = dict[Fold, tuple[Named, dict[Axis, np.ndarray]]]


class _InLoops(Meaning):
    """Bodies at some values of their axes, given what the loops before have folded."""

    @classmethod
    def at(cls, base: Meaning, ranges: Mapping[Axis, np.ndarray], done: Done) -> "_InLoops":
        made = cls.__new__(cls)
        made.exact, made.ranges, made.tensors, made.memo, made.done = base.exact, dict(ranges), base.tensors, {}, done
        return made

    def _values(self, a: Axis) -> np.ndarray:
        if a not in self.ranges:
            raise NotReady(f"no loop around runs over {a.name}, nor is it kept whole")
        return self.ranges[a]

    def _fold(self, f: Fold) -> Named:
        computed, turned = mirror(f)
        if computed not in self.done:
            raise NotReady(f"{computed} is read before it is computed")
        value, had = self.done[computed]
        x = value.array
        for i, a in enumerate(value.axes):
            wanted = a.extent - 1 - self._values(a) if a in turned else self._values(a)
            at = np.clip(np.searchsorted(had[a], wanted), 0, len(had[a]) - 1)
            if not np.array_equal(had[a][at], wanted):
                raise NotReady(f"{computed} is read outside the tile that is kept, along {a.name}")
            x = np.take(x, at, i)
        return Named(value.axes, x)


def run(outs: Iterable[Output], values: Mapping[Buffer, np.ndarray]) -> dict[Buffer, np.ndarray]:
    """What a kernel stores. KeyError if it reads a buffer that has no value; NotReady as said above."""
    base, stored = Meaning(values), {}
    for o in outs:
        ranges = {a: np.arange(a.extent) for a in o.axes}
        done: Done = {}
        _level(base, tops(o.body), ranges, done, frozenset())
        stored[o.buffer] = _InLoops.at(base, ranges, done).over(o.body, o.axes)
    return stored


def _level(base: Meaning, roots: tuple[Fold, ...], ranges: dict[Axis, np.ndarray], done: Done,
           known: frozenset[Fold]) -> None:
    for level in loops(roots, known):
        axes = level[0][0].axes
        longest = max(range(len(axes)), key=lambda i: axes[i].extent)
        whole = {a: np.arange(a.extent) for _, kept in level for a in kept}
        state: dict[Fold, "_State"] = {}
        for piece in np.array_split(np.arange(axes[longest].extent), PIECES):
            inner = ranges | whole | {a: piece if i == longest else np.arange(a.extent)
                                      for f, _ in level for i, a in enumerate(f.axes)}
            local = dict(done)
            _level(base, tuple(dict.fromkeys(g for f, _ in level for g in inside(f))), inner, local,
                   known.union(*(before(f) for f, _ in level)))
            for f, _ in level:
                chunk = _State(f, _InLoops.at(base, inner, local))
                state[f] = state[f].join(chunk) if f in state else chunk
        for f, kept in level:
            known_at = ranges | {a: np.arange(a.extent) for a in kept}
            value = state[f].result()
            done[f] = value, {a: known_at[a] for a in value.axes}


class _State:
    """A fold over some of its points: the running components of its monoid, over its free axes."""

    def __init__(self, f: Fold, at: Meaning):
        self.fold = f
        values = [at.body(b) for b in f.bodies]
        axes = tuple(sorted(set().union(*(v.axes for v in values)) - set(f.axes), key=lambda a: a.name))
        sizes = [len(at._values(a)) for a in axes + f.axes]
        flat = [np.broadcast_to(v.spread(axes + f.axes), sizes).reshape(sizes[:len(axes)] + [-1]) for v in values]
        self.axes = axes
        x = flat[0]
        match f.monoid:
            case "sum": self.parts = (x.sum(-1),)
            case "prod": self.parts = (x.prod(-1),)
            case "max": self.parts = (x.max(-1, initial=_least(x)),)
            case "min": self.parts = (-(-x).max(-1, initial=_least(-x)),)
            case "any": self.parts = (x.any(-1),)
            case "all": self.parts = (x.all(-1),)
            case "argmax" | "argmin":
                sign = 1 if f.monoid == "argmax" else -1
                place = np.ravel_multi_index(np.meshgrid(*(at._values(a) for a in f.axes), indexing="ij"),
                                             [a.extent for a in f.axes]).reshape(-1)
                best = (sign * x).max(-1)
                first = np.where(sign * x == best[..., None], place, np.iinfo(np.int64).max).min(-1)
                self.parts = (sign * best, first)
            case "online":
                m = x.max(-1, initial=-np.inf)
                safe = np.where(np.isneginf(m), 0.0, m)[..., None]
                self.parts = (m, (np.exp(x - safe) * flat[1]).sum(-1))

    def join(self, other: "_State") -> "_State":
        """The state after both."""
        a, b = self.parts, other.parts
        match self.fold.monoid:
            case "sum": self.parts = (a[0] + b[0],)
            case "prod": self.parts = (a[0] * b[0],)
            case "max": self.parts = (np.maximum(a[0], b[0]),)
            case "min": self.parts = (np.minimum(a[0], b[0]),)
            case "any": self.parts = (a[0] | b[0],)
            case "all": self.parts = (a[0] & b[0],)
            case "argmax" | "argmin":
                better = b[0] > a[0] if self.fold.monoid == "argmax" else b[0] < a[0]
                better = better | ((b[0] == a[0]) & (b[1] < a[1]))
                self.parts = np.where(better, b[0], a[0]), np.where(better, b[1], a[1])
            case "online":
                m = np.maximum(a[0], b[0])
                safe = np.where(np.isneginf(m), 0.0, m)
                self.parts = m, a[1] * np.exp(a[0] - safe) + b[1] * np.exp(b[0] - safe)
        return self

    def result(self) -> Named:
        return Named(self.axes, np.asarray(self.parts[self.fold.part if len(self.parts) > 1 else 0]))


def _least(x: np.ndarray):
    return -np.inf if x.dtype.kind == "f" else False if x.dtype.kind == "b" else np.iinfo(x.dtype).min


# ---- a program's values ----------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Source:
    """What candidates are compared with: buffers that are given, the ground launch of each stored tensor, definitions
    of constants, the tensors that the program returns. `small` takes a candidate's outputs to the same extents.
    """
    given: dict[Buffer, Buffer]
    stored: dict[Buffer, Term]
    constants: dict[Buffer, Output]
    targets: tuple[Buffer, ...]
    small: "Resized"


def source(program: Program, extents: Mapping[int, int] | None = None) -> Source:
    """A program's own meaning, at its extents or at others: real extent -> small one."""
    to = Resized(extents or {})
    given = {to(b): to(real) for b, real in program.real.items()}
    stored = {to(b): to(t) for b, t in program.source.items()}
    constants = {to(b): to(o) for b, o in program.constants.items()}
    return Source(given, stored, constants, to(program.targets), to)


Values = Mapping[Buffer, np.ndarray]


def arguments(source: Source, seed: int = 0, values: Mapping[str, np.ndarray] | None = None) -> Values:
    """Inputs and parameters: normal numbers and small integers; `values` by the program's names where that does not do.
    """
    rng, made = np.random.default_rng(seed), {}
    for b, real in source.given.items():
        shape = [a.extent for a in b.axes]
        if values and real.name in values:
            made[b] = np.asarray(values[real.name]).reshape(shape)
        elif b.dtype.is_float:
            made[b] = rng.standard_normal(shape)
        else:
            made[b] = rng.integers(0, 2 if b.dtype == Dtype.b8 else 4, shape)
    return made


def truth(source: Source, values: Values) -> dict[Buffer, np.ndarray]:
    """The value of every buffer: of stored ones by the source program's own terms, of constants by their definitions.
    """
    meaning = Meaning({**values, **{source.given[b]: x for b, x in values.items()}})
    known = dict(values)
    for b, t in source.stored.items():
        known[b] = meaning.tensors[b] = meaning.tensor(t)
    definitions = Meaning(known)
    for b, o in source.constants.items():
        known[b] = definitions.tensors[b] = definitions.over(o.body, o.axes)
    return known


def disagree(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether two results differ by more than rounding in float64, or in where they are not finite."""
    return not np.allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def wrong_candidates(source: Source, kernels: Iterable[Candidate], values: Values) -> list[Candidate]:
    """The candidates that do not store what the source program does, each run by itself on the source's own values."""
    known, wrong = truth(source, values), []
    for k in kernels:
        try:
            if any(disagree(x, known[b]) for b, x in run(source.small(k.outs), known).items()):
                wrong.append(k)
        except (NotReady, KeyError):
            wrong.append(k)
    return wrong


def wrong_outputs(source: Source, kernels: Iterable[Candidate], values: Values) -> list[str]:
    """What a plan gets wrong, its kernels run one after the other on what they have stored themselves."""
    known = truth(source, values)
    mine = {b: x for b, x in known.items() if b not in source.stored}
    for k in kernels:
        try:
            mine.update(run(source.small(k.outs), mine))
        except (NotReady, KeyError) as error:
            return [f"{type(error).__name__}: {error}"]
    return [b.name for b in source.targets if known[b].size and disagree(mine[b], known[b])]


def results(plan: Plan, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What a plan returns, by the meaning of its terms: constants first, then kernel by kernel. values: by name."""
    known = {b: np.asarray(values[b.name]).reshape([a.extent for a in b.axes]) for b in plan.inputs + plan.parameters}
    for k in plan.once + plan.kernels:
        meaning = Meaning(known)
        known.update({o.buffer: meaning.over(o.body, o.axes) for o in k.outs})
    shape = {b: [a.extent for a in b.axes] for b in plan.outputs}
    return [known[b] if 0 not in shape[b] else np.empty(shape[b]) for b in plan.outputs]


# ---- smaller extents -------------------------------------------------------------------------------------------------

class Resized:
    """Terms with other extents: what was searched at real sizes, evaluated at small ones.

    extents: real extent -> small one; those it does not name stay. ValueError where an index computes with an extent.
    """

    def __init__(self, extents: Mapping[int, int]):
        self.extents, self.memo = dict(extents), {}

    def axis(self, a: Axis) -> Axis:
        return Axis(a.name, self.extents.get(a.extent, a.extent))

    def __call__(self, x):
        match x:
            case tuple(): return tuple(map(self, x))
            case Output(): return Output(self(x.buffer), self(x.axes), self(x.body))
            case Axis(): return self.axis(x)
            case Index(): return self._index(x)
            case Term():
                if x not in self.memo:
                    self.memo[x] = type(x)(*(self(getattr(x, f.name)) for f in fields(x)))
                return self.memo[x]
        return x

    def _index(self, i: Index) -> Index:
        if (a := mirrored(i)) is not None:
            b = self.axis(a)
            return b.extent - 1 - index(b)
        if i.axis is not None:
            return index(self.axis(i.axis))
        if any(self.axis(a) is not a for a in i.free):
            raise ValueError(f"the index {i} computes with an extent that is to change")
        return i
