"""Substitution: what a load of a launch at other indices than its own axes is equal to.

It is a function of ground terms, computed in Python and entered as equalities, never a node of the e-graph. A worklist
over (launch, indices) pairs builds each renamed body once: where the indices are axes of the same extents, the launch
equals the launch under those names; anywhere else the load equals the body at the indices, and 0 where they leave the
launch: bodies that are equal inside of it may differ there. A substitution crosses at
most DEPTH reductions on its way up the program: without that limit, each layer is spelled again at the axes of the
next.

Binders stay canonical: `close` enters again, under its right name, each fold that a law left under another, and under a
second name one whose binder is free in a factor beside it, so that laws which move factors find no capture in their
way.
"""
from __future__ import annotations

import heapq
from functools import cache

from deplodock.encoding import Encoder
from deplodock.ir.index import Axis, Index, index
from deplodock.ir.loop import Buffer, Fold, Launch, Load, children, const, dtype, inside, loads, op, pick, subst, where
from deplodock.ir.term import Term
from deplodock.snapshot import Node, Rows, Smallest

DEPTH = 1


class Worklist:
    """Enters terms and closes them under substitution. What there is to declare waits in the encoder's lines."""

    def __init__(self, encoder: Encoder, depth: int = DEPTH):
        self.encoder, self.depth = encoder, depth
        self.pairs: dict[tuple[Term, tuple[Index, ...]], Term] = {}
        self.deeper: set[tuple[Term, tuple[Index, ...]]] = set()
        self._queue: list[tuple[int, int, Term]] = []
        self._scanned: set[Term] = set()
        self._launches: set[Term] = set()
        self._rebound: set = set()

    def enter(self, *terms: Term) -> None:
        """Enters tensors and bodies, and all that their loads are equal to."""
        for t in terms:
            self.encoder.lines.append(self._add(t, 0))
        self._run()

    def equal(self, a: Term, b: Term, depth: int = 0) -> None:
        """Enters two terms, tensors or bodies, as equal."""
        x, y = (self._add(t, depth) for t in (a, b))
        self.encoder.lines.append(f"(union {x} {y})")

    def _add(self, t: Term, depth: int) -> str:
        if _is_body(t):
            self._push(depth, t)
            return self.encoder.body(t)
        if isinstance(t, Launch):
            self._launch(t, depth)
        return self.encoder.tensor(t)

    def _launch(self, t: Launch, depth: int) -> None:
        if t not in self._launches:
            self._launches.add(t)
            self._push(depth, t.body)

    def _push(self, depth: int, b: Term) -> None:
        heapq.heappush(self._queue, (depth, len(self._scanned) + len(self._queue), b))

    def _run(self) -> None:
        while self._queue:
            depth, _, b = heapq.heappop(self._queue)
            if b in self._scanned:
                continue
            self._scanned.add(b)
            for l in sorted(loads(b), key=lambda l: l.key):
                if isinstance(l.tensor, Launch):
                    self._launch(l.tensor, depth)
                    self.pair(l.tensor, l.indices, depth + _reduces(l.tensor.body))

    def pair(self, launch: Launch, indices: tuple[Index, ...], depth: int) -> None:
        """Enters what launch[indices] is equal to."""
        if indices == in_order(launch.axes) or (launch, indices) in self.pairs:
            return
        if depth > self.depth:
            self.deeper.add((launch, indices))
            return
        body = subst(launch.body, dict(zip(launch.axes, indices)))
        self.pairs[launch, indices] = body
        names = _renaming(launch, indices)
        if names:
            self.equal(launch, Launch(names, body), depth)
        else:
            self.equal(Load(launch, indices), _inside(launch, indices, body), depth)

    def close(self, rows: Rows) -> int:
        """After a fixpoint: enters the pairs and the binders that laws have made. Returns how many there were."""
        rebinds = []
        found = 0
        for nodes in rows.bodies.values():
            for n in nodes:
                if n.kind == "Load":
                    found += self._close_load(rows, n)
                elif n.kind in ("Fold1", "Fold2"):
                    rebinds += self._misnamed(rows, n)
                elif n.kind == "Op2" and n.data == ("mul",):
                    a, b = n.children
                    rebinds += self._captured(rows, a, b) + self._captured(rows, b, a)
        if rebinds:
            smallest = Smallest(rows)
            for f, avoid in rebinds:
                monoid, binders, part = f.data
                bodies = tuple(smallest.ground(c) for c in f.children)
                axes = pick(binders, avoid | frozenset().union(*(b.free for b in bodies)) - frozenset(binders))
                renamed = tuple(subst(b, dict(zip(binders, map(index, axes)))) for b in bodies)
                self.equal(Fold(monoid, binders, bodies, part), Fold(monoid, axes, renamed, part))
        self._run()
        return found + len(rebinds)

    def _close_load(self, rows: Rows, load: Node) -> int:
        (indices,), (tensor, *gathered) = load.data, load.children
        launches = [t for t in rows.entered[tensor] if isinstance(t, Launch)]
        known = any((t, indices) in self.pairs or (t, indices) in self.deeper or indices == in_order(t.axes)
                    for t in launches)
        if not launches or known or gathered:
            return 0
        self.enter(Load(launches[0], indices))
        return 1

    def _misnamed(self, rows: Rows, f: Node) -> list[tuple[Node, frozenset[Axis]]]:
        """A fold whose binders are not the first free ones of their classes."""
        binders = f.data[1]
        rest = frozenset().union(*map(rows.free_of, f.children)) - frozenset(binders)
        return self._once(rows, f, pick(binders, rest), frozenset())

    def _captured(self, rows: Rows, a: int, b: int) -> list[tuple[Node, frozenset[Axis]]]:
        """Sums in the class a whose binder is free in the factor b beside it."""
        free, out = rows.free_of(b), []
        for f in rows.bodies[a] if free else ():
            if f.kind == "Fold1" and f.data[0] == "sum" and not free.isdisjoint(f.data[1]):
                rest = rows.free_of(f.children[0]) - frozenset(f.data[1]) | free
                out += self._once(rows, f, pick(f.data[1], rest), free)
        return out

    def _once(self, rows: Rows, f: Node, axes: tuple[Axis, ...], avoid: frozenset[Axis]) -> list:
        key = (f.data, axes, tuple(rows.value[c] for c in f.children))
        if axes == f.data[1] or key in self._rebound:
            return []
        self._rebound.add(key)
        return [(f, avoid)]


@cache
def in_order(axes: tuple[Axis, ...]) -> tuple[Index, ...]:
    """The indices that read a launch over `axes` point by point."""
    return tuple(map(index, axes))


def _inside(launch: Launch, indices: tuple[Index, ...], body: Term) -> Term:
    """The body, 0 where the indices leave the launch."""
    test = None
    for a, i in zip(launch.axes, indices):
        for t in inside(i, a.extent):
            test = t if test is None else op("and", test, t)
    return body if test is None else where(test, body, const(dtype(body), 0))


def _is_body(t: Term) -> bool:
    return not isinstance(t, (Launch, Buffer))


def _renaming(launch: Launch, indices: tuple[Index, ...]) -> tuple[Axis, ...] | None:
    """The axes of the launch under the names that the indices give them, if they are axes of the same extents."""
    names = tuple(a if a.extent == 1 else i.axis for a, i in zip(launch.axes, indices))
    same = all(n is not None and n.extent == a.extent and (a.extent > 1 or i.is_const and i.const == 0)
               for n, a, i in zip(names, launch.axes, indices))
    return names if same and len(set(names)) == len(names) else None


def _reduces(b: Term) -> bool:
    """Whether a body folds, not looking into the launches that it loads."""
    return isinstance(b, Fold) or any(map(_reduces, children(b)))
