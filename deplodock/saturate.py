"""Saturation: all programs that the laws prove equal to the one that was entered.

Each law is an egglog ruleset of its own. A round runs them one after the other, with the analyses brought up to date in
between; rounds repeat to a fixpoint; then substitution closes over the loads and binders that laws have made, and
rounds begin again. It ends at a fixpoint of both, or at a limit; what it ends with is sound to extract from either way.

One step of egglog cannot be interrupted: laws that explode must not be among the groups (rules/algebra.py says which).
"""
from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Iterable, Sequence

from deplodock.encoding import Query
from deplodock.ir.egraph import EGraph
from deplodock.ir.loop import Launch, Load, Tensor
from deplodock.ir.term import Term
from deplodock.law import Condition, Law, admitted, laws_of
from deplodock.provenance import Provenance
from deplodock.session import Session
from deplodock.snapshot import Rows, freeze
from deplodock.substitution import in_order

if TYPE_CHECKING:
    from deplodock.enter import Entered

GROUPS = ("fusion", "predicate", "algebra", "numerics", "reduction")
"""The groups of laws that saturation runs, in the order of a round; each is a file of rules/."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where saturation stops short of a fixpoint: rounds, e-nodes, seconds. A decoder layer takes 14 rounds, 1,900
    e-nodes and half a second."""
    rounds: int = 80
    nodes: int = 10_000
    seconds: float = 60.0


@dataclass
class Saturation:
    """egraph: the frozen result. stopped: "fixpoint", or the limit that it ran into and the law with most matches.
    sizes: e-nodes after each round.
    """
    session: Session
    limits: Limits
    provenance: Provenance | None
    stopped: str = ""
    sizes: list[int] = field(default_factory=list)
    egraph: EGraph = field(default=None)

    @property
    def rounds(self) -> int:
        return len(self.sizes)

    @property
    def hits(self) -> Counter[str]:
        """Matches of each law."""
        return self.session.hits

    @property
    def seconds(self) -> Counter[str]:
        """Time of each law, and of declaring, entering, closing and freezing."""
        return self.session.seconds

    @property
    def pairs(self) -> int:
        """How many loads of a launch at other indices than its axes were entered."""
        return len(self.session.work.pairs)

    def equal(self, a: Term, b: Term) -> bool:
        """Whether the laws prove two ground bodies equal, or two tensors of the same extents, whatever their axes are
        called."""
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            if [x.extent for x in a.axes] != [x.extent for x in b.axes]:
                return False
            at = in_order(a.axes)
            a, b = Load(a, at), Load(b, at)
        self.session.enter(a, b)
        self._run()
        return self.session.holds(f"(= {self.session.declared(a)} {self.session.declared(b)})")

    def has(self, term: Term, pattern: Term, *conditions: Condition) -> bool:
        """Whether the class of a ground term has a member of the form of a pattern that meets conditions.

        Of a tensor, its body is meant: the value at its own axes.
        """
        s = self.session
        x = s.declared(term.body if isinstance(term, Launch) else term)
        query = Query(s.encoder)
        root = query.pattern(pattern)
        asked = [c.fact.query(*map(query.argument, c.args)) for c in conditions]
        return s.holds(f"(= {x} {root})", *query.facts, *asked)

    def _run(self) -> None:
        """To a fixpoint of the laws and of substitution, or to a limit."""
        s, start, first, self.stopped = self.session, time.perf_counter(), len(self.sizes), ""
        while not self.stopped:
            changed = False
            for law in s.laws:
                updated, many = s.step(law)
                changed |= updated
                if updated and self.provenance:
                    self.provenance.observe(law.name)
                if many and s.size() > self.limits.nodes:
                    break
            self.sizes.append(s.size())
            if self.sizes[-1] > self.limits.nodes:
                self.stopped = self._limit("node")
            elif len(self.sizes) - first >= self.limits.rounds:
                self.stopped = self._limit("round")
            elif time.perf_counter() - start > self.limits.seconds:
                self.stopped = self._limit("time")
            elif not changed:
                if not s.close():
                    self.stopped = "fixpoint"
                elif self.provenance:
                    self.provenance.observe("substitution")

    def _limit(self, kind: str) -> str:
        law, hits = max(self.hits.items(), key=lambda h: h[1])
        return f"{kind} limit (most matches: {law}, {hits})"

    def _freeze(self) -> None:
        with self.session.timed("freeze"):
            rows = Rows(self.session.engine, self.session.encoder)
            self.egraph = freeze(rows, self.provenance.laws(rows) if self.provenance else {})


def catalogue(groups: Sequence[str] = GROUPS) -> tuple[Law, ...]:
    """The laws of groups, in the order in which a round runs them. ModuleNotFoundError if there is no such group."""
    return laws_of(*(import_module(f"rules.{g}") for g in groups))


def saturate(program: Entered | Iterable[Term], numerics: str = "default", laws: Sequence[Law] | None = None,
             limits: Limits = Limits(), provenance: bool = False) -> Saturation:
    """Saturates a program, or ground tensors and bodies.

    numerics: strict, default or fast; of the laws (all of `catalogue()` unless given) those that it admits take part.
    provenance: also note which law made each e-node (EGraph.brought); takes about twice as long.
    """
    terms = program.launches if hasattr(program, "launches") else tuple(program)
    session = Session(admitted(catalogue() if laws is None else laws, numerics), numerics)
    session.enter(*terms)
    saturation = Saturation(session, limits, Provenance(session.engine) if provenance else None)
    saturation._run()
    saturation._freeze()
    return saturation
