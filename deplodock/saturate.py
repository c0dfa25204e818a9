"""Saturation: all programs that the laws prove equal to the one that was entered.

Each law is an egglog ruleset of its own. A round runs them one after the other, with the analyses brought up to date in
between; rounds repeat to a fixpoint; then substitution closes over the loads and binders that laws have made, and rounds
begin again. It ends at a fixpoint of both, or at a limit; what it ends with is sound to extract from either way.
"""
from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Iterable, Sequence

from egglog.bindings import EGraph as Engine, EggSmolError

from deplodock.encoding import BODIES, SORTS, TENSORS, Encoder, Rules, _Query, number_text
from deplodock.facts import RELATIONS, TABLES, analyses, representable
from deplodock.ir.egraph import EGraph
from deplodock.ir.loop import Axis, Const, Fold, Index, Op, Tensor, Term
from deplodock.ir.dtype import Dtype
from deplodock.law import Law, admitted, laws_of
from deplodock.predicates import comparison, normal, proved, selection, some_key
from deplodock.snapshot import Rows, freeze
from deplodock.substitution import Worklist

if TYPE_CHECKING:
    from deplodock.enter import Entered


@dataclass(frozen=True, slots=True)
class Limits:
    """Where saturation stops short of a fixpoint: rounds, e-nodes, seconds."""
    rounds: int = 60
    nodes: int = 60_000
    seconds: float = 60.0


class Session:
    """An engine with the laws of one numerics mode, and a program in it."""

    def __init__(self, laws: Sequence[Law], numerics: str):
        self.engine, self.encoder = Engine(), Encoder()
        self.work = Worklist(self.encoder)
        self.facts = _Stated(self.encoder)
        self.laws = tuple(laws)
        self.hits: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.rounds = 0
        with self.timed("declare"):
            self.run(SORTS, RELATIONS, *TABLES, *analyses(numerics))
            for law in self.laws:
                self.run(*Rules(self.encoder).declare(law))
            self._steps = {l.name: self.engine.parse_program(f"(run-schedule (run {l.name}))") for l in self.laws}
            self._analyse = self.engine.parse_program("(run-schedule (saturate (run analysis)))")
            self._size = self.engine.parse_program("(print-size)")

    def timed(self, phase: str):
        return _Timer(self.seconds, phase)

    def run(self, *commands: str) -> None:
        for text in commands:
            self.engine.run_program(*self.engine.parse_program(text))

    def flush(self) -> None:
        """Runs what waits to be declared, with the facts that Python knows of it."""
        self.facts.state()
        self.run(*self.encoder.drain())
        self.engine.run_program(*self._analyse)

    def declared(self, t: Term) -> str:
        """A ground tensor or body as egglog text, entered if it was not."""
        text = self.encoder.tensor(t) if isinstance(t, Tensor) else self.encoder.body(t)
        self.encoder.lines.append(text)
        self.flush()
        return text

    def size(self) -> int:
        sizes = dict(self.engine.run_program(*self._size)[0].sizes)
        return sum(sizes.get(name, 0) for name in BODIES + TENSORS)

    def step(self, law: Law) -> bool:
        """One step of one law. Returns whether the e-graph has changed."""
        start = time.perf_counter()
        report = self.engine.run_program(*self._steps[law.name])[0].report
        self.hits[law.name] += sum(report.num_matches_per_rule.values())
        if report.updated:
            self.engine.run_program(*self._analyse)
        self.seconds[law.name] += time.perf_counter() - start
        return report.updated

    def holds(self, *facts: str) -> bool:
        """Whether the e-graph has facts, given as egglog text."""
        try:
            self.run(f"(check {' '.join(facts)})")
            return True
        except EggSmolError as error:
            if "Check failed" not in str(error):
                raise
            return False


class _Timer:
    def __init__(self, seconds: Counter[str], phase: str):
        self.seconds, self.phase = seconds, phase

    def __enter__(self):
        self.start = time.perf_counter()

    def __exit__(self, *_):
        self.seconds[self.phase] += time.perf_counter() - self.start


class _Stated:
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


@dataclass
class Saturation:
    """egraph: the frozen result. stopped: fixpoint, or the limit that it ran into. sizes: e-nodes after each round.

    hits: matches of each law. seconds: time of each law and of each phase (declare, enter, close, freeze).
    """
    session: Session
    egraph: EGraph
    stopped: str
    sizes: list[int]
    hits: Counter[str]
    seconds: Counter[str]
    pairs: int
    brought: dict[Term, str] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        return len(self.sizes)

    def equal(self, a: Term, b: Term) -> bool:
        """Whether the e-graph proves two ground terms equal: bodies, or tensors over axes of the same names."""
        s = self.session
        return s.holds(f"(= {s.declared(a)} {s.declared(b)})")

    def has(self, term: Term, pattern: Term, *conditions) -> bool:
        """Whether the class of a ground term has a member of the form of a pattern that meets conditions."""
        s = self.session
        x = s.declared(term)
        query = _Query(s.encoder)
        root = query.pattern(pattern)
        return s.holds(f"(= {x} {root})", *query.facts, *(c.fact.query(*map(query.argument, c.args)) for c in conditions))


GROUPS = ("fusion", "predicate", "algebra", "numerics", "reduction")
"""The groups of laws that saturation runs, in the order of a round; each is a file of rules/."""


def catalogue(groups: Sequence[str] = GROUPS) -> tuple[Law, ...]:
    """The laws of groups, in the order in which a round runs them. ModuleNotFoundError if there is no such group."""
    return laws_of(*(import_module(f"rules.{g}") for g in groups))


def saturate(program: Entered | Iterable[Term], numerics: str = "default", laws: Sequence[Law] | None = None,
             limits: Limits = Limits()) -> Saturation:
    """Saturates a program, or ground tensors and bodies.

    numerics: strict, default or fast; of the laws (all of `catalogue()` unless given) those that it admits take part.
    """
    terms = program.launches if hasattr(program, "launches") else tuple(program)
    session = Session(admitted(catalogue() if laws is None else laws, numerics), numerics)
    with session.timed("enter"):
        session.work.enter(*terms)
        session.flush()
    start, sizes, stopped = time.perf_counter(), [], ""
    while not stopped:
        stopped = _to_fixpoint(session, limits, start, sizes)
        if not stopped:
            with session.timed("close"):
                if not session.work.close(Rows(session.engine, session.encoder)):
                    stopped = "fixpoint"
                session.flush()
    with session.timed("freeze"):
        egraph = freeze(Rows(session.engine, session.encoder))
    return Saturation(session, egraph, stopped, sizes, session.hits, session.seconds, len(session.work.pairs))


def _to_fixpoint(session: Session, limits: Limits, start: float, sizes: list[int]) -> str:
    """Rounds until nothing changes. Returns the limit that was met, if any."""
    changed = True
    while changed:
        if len(sizes) >= limits.rounds:
            return "round limit"
        if time.perf_counter() - start > limits.seconds:
            return "time limit"
        changed = False
        for law in session.laws:
            changed |= session.step(law)
        sizes.append(session.size())
        if sizes[-1] > limits.nodes:
            return "node limit"
    return ""
