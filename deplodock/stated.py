"""What Python states to the e-graph: facts about axes, index lists, predicates and literals that rules cannot
compute."""
from __future__ import annotations

from deplodock.encoding import Encoder, number_text
from deplodock.facts import atomic, representable
from deplodock.ir.index import Axis, Index
from deplodock.ir.loop import Const, Fold, Op
from deplodock.ir.term import Term
from deplodock.predicates import comparison, normal, proved, selection, some_key


class Stated:
    """Facts about axes, index lists and predicates that Python decides, stated once for what has been entered."""

    def __init__(self, encoder: Encoder):
        self.encoder = encoder
        self.read = 0
        self.binders: list[tuple[Axis, ...]] = []
        self.predicates: list[Term] = []
        self.halves: list[Axis] = []
        self.lists: dict[tuple, list[tuple[Index, ...]]] = {}
        self.done: set = set()

    def state(self) -> None:
        """States what is new. Entering the terms of a fact may bring new terms, so it repeats until there are none."""
        while self.read < len(self.encoder.seen):
            t = self.encoder.seen[self.read]
            self.read += 1
            match t:
                case tuple() if t and isinstance(t[0], Index): self._index_list(t)
                case tuple(): pass
                case Fold(): self._binder(t.axes)
                case Const(d, float() as v) if representable.holds(d, v):
                    self._say(f'(representable "{d}" {number_text(v)})')
                case Op("eq" | "ne" | "lt" | "le" | "and" | "not"): self._predicate(t)

    def _say(self, text: str) -> None:
        self.encoder.lines.append(text)

    def _binder(self, axes: tuple[Axis, ...]) -> None:
        if axes not in self.binders:
            self.binders.append(axes)
            for p in self.predicates:
                self._key(axes, p)

    def _predicate(self, p: Term) -> None:
        if p in self.done:
            return
        self.done.add(p)
        e = self.encoder
        known, q = proved(p), normal(p)
        if known is not None:
            self._say(f"(proved {e.body(p)} {int(known)})")
        elif q is not None and q is not p:
            self._say(f"(equivalent {e.body(p)} {e.body(q)})")
        if atomic.holds(p):
            self._say(f"(atomic {e.body(p)})")
        self.predicates.append(p)
        for axes in self.binders:
            self._key(axes, p)
        found = comparison(p)
        if found and found[0] == "eq" and (a := found[1].axis) and a.extent == 2 and a not in self.halves:
            self.halves.append(a)
            for group in list(self.lists.values()):
                for i in group:
                    for j in group:
                        self._select(a, i, j)

    def _key(self, axes: tuple[Axis, ...], p: Term) -> None:
        if some_key(axes, p):
            self._say(f"(some_key {self.encoder.axis_list(axes)} {self.encoder.body(p)})")

    def _index_list(self, indices: tuple[Index, ...]) -> None:
        group = self.lists.setdefault(tuple(i - i.const for i in indices), [])
        for other in group:
            for a in self.halves:
                self._select(a, indices, other)
                self._select(a, other, indices)
        group.append(indices)

    def _select(self, p: Axis, at0: tuple[Index, ...], at1: tuple[Index, ...]) -> None:
        found = selection(p, at0, at1)
        if found:
            e = self.encoder
            lists = [e.index_list(i) for i in ((Index(((p, 1),), 0),), at0, at1, found)]
            self._say(f"(selects {' '.join(lists)})")
