"""A tiny e-graph for tests of extraction: ground terms and equalities that a test states, closed under congruence.

It knows one law, load(launch(axes, b), indices) = b[axes := indices]; every other equality is the test's own, so that a
candidate's source is known without running the rules.
"""
from __future__ import annotations

from collections import defaultdict
from typing import Collection

from deplodock.ir.egraph import EGraph
from deplodock.ir.index import Axis
from deplodock.ir.loop import Buffer, Const, Fold, Iota, Launch, Load, Ref, children, dtype, rebuilt, subst
from deplodock.ir.term import Term


class Handmade:
    """add(term) enters it; equal(a, b) states an equality; freeze() gives the e-graph."""

    def __init__(self):
        self.up: list[int] = []
        self.ids: dict[Term, int] = {}
        self.nodes: dict[tuple, int] = {}
        self.terms: list[tuple[Term, tuple[int, ...], int]] = []

    def find(self, a: int) -> int:
        while self.up[a] != a:
            a = self.up[a]
        return a

    def add(self, t: Term) -> int:
        if t in self.ids:
            return self.find(self.ids[t])
        match t:
            case Load(x, _): below = (self.add(x),)
            case Launch(_, b): below = (self.add(b),)
            case _: below = tuple(map(self.add, children(t)))
        self.ids[t] = number = len(self.up)
        self.up.append(number)
        self.terms.append((t, below, number))
        if isinstance(t, Load) and isinstance(t.tensor, Launch):
            self.equal(t, subst(t.tensor.body, dict(zip(t.tensor.axes, t.indices))))
        return self.find(number)

    def equal(self, a: Term, b: Term) -> None:
        self._join(self.add(a), self.add(b))

    def _join(self, a: int, b: int) -> None:
        a, b = sorted((self.find(a), self.find(b)))
        self.up[b] = a

    def _shape(self, t: Term) -> tuple:
        match t:
            case Load(_, indices): return Load, indices
            case Launch(axes, _): return Launch, axes
            case Fold(): return Fold, t.monoid, t.axes, t.part
            case Buffer() | Const() | Iota(): return (t,)
        return type(t), getattr(t, "name", None), getattr(t, "dtype", None)

    def close(self) -> None:
        moved = True
        while moved:
            moved, table = False, {}
            for t, below, n in self.terms:
                key = (self._shape(t), tuple(map(self.find, below)))
                other = table.setdefault(key, n)
                if self.find(other) != self.find(n):
                    self._join(other, n)
                    moved = True

    def freeze(self, made: Collection[Term] = ()) -> EGraph:
        """made: launches that stand for what a law has made: no spelling of the program's."""
        self.close()
        free: dict[int, frozenset[Axis]] = {}
        for t, _, n in self.terms:
            c = self.find(n)
            free[c] = free.get(c, t.free) & t.free
        ref = lambda n: Ref(self.find(n), free[self.find(n)])
        bodies, tensors, spellings = defaultdict(dict), defaultdict(dict), defaultdict(list)
        for t, below, n in self.terms:
            c = self.find(n)
            match t:
                case Load(_, indices): bodies[c][Load(ref(below[0]), indices)] = None
                case Launch(axes, _): tensors[c][Launch(axes, ref(below[0]))] = None
                case Buffer(): tensors[c][t] = None
                case _: bodies[c][rebuilt(t, map(ref, below)) if below else t] = None
            if isinstance(t, (Launch, Buffer)) and t not in made:
                spellings[c].append(t)
        parameter: set[int] = set()
        moved = True
        while moved:
            size = len(parameter)
            for c, ns in bodies.items():
                for n in ns:
                    below = [x.number for x in children(n)]
                    if isinstance(n, Load):
                        known = any(x.kind == "parameter" if isinstance(x, Buffer) else x.body.number in parameter
                                    for x in tensors[n.tensor.number])
                    else:
                        known = all(b in parameter for b in below)
                    if known:
                        parameter.add(c)
            moved = len(parameter) > size
        return EGraph(
            bodies={c: tuple(ns) for c, ns in bodies.items()}, tensors={c: tuple(ns) for c, ns in tensors.items()},
            free={c: free[c] for c in bodies}, spellings={c: tuple(s) for c, s in spellings.items()},
            number={t: self.find(n) for t, n in self.ids.items()}, parameter=frozenset(parameter),
            dtypes={self.find(n): dtype(t) for t, _, n in self.terms})
