"""An egglog engine with laws in it, and the program that is entered into it."""
from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from typing import Sequence

from egglog.bindings import EGraph as Engine
from egglog.bindings import EggSmolError

from deplodock import facts
from deplodock.encoding import BODIES, SORTS, TENSORS, Encoder, declarations
from deplodock.ir.loop import Tensor
from deplodock.ir.term import Term
from deplodock.law import Law
from deplodock.snapshot import Rows
from deplodock.stated import Stated
from deplodock.substitution import Worklist

MANY = 1000
"""Matches of a law in one step beyond which the size of the e-graph is looked up at once: one law can make it
explode."""


class Session:
    """`laws` must be admitted by the numerics mode, which decides what the analyses may assume.

    hits: matches of each law. seconds: time of each law, and of declaring, entering, closing and freezing.
    """

    def __init__(self, laws: Sequence[Law], numerics: str):
        self.engine, self.encoder = Engine(), Encoder()
        self.work = Worklist(self.encoder)
        self.stated = Stated(self.encoder)
        self.laws = tuple(laws)
        self.hits: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        with self.timed("declare"):
            self.run(SORTS, *facts.declarations(), *facts.analyses(numerics))
            for law in self.laws:
                self.run(*declarations(law))
            self._steps = {l.name: self.engine.parse_program(f"(run-schedule (run {l.name}))") for l in self.laws}
            self._analyse = self.engine.parse_program("(run-schedule (saturate (run analysis)))")
            self._size = self.engine.parse_program("(print-size)")

    @contextmanager
    def timed(self, phase: str):
        start = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - start

    def run(self, *commands: str) -> None:
        for text in commands:
            self.engine.run_program(*self.engine.parse_program(text))

    def enter(self, *terms: Term) -> None:
        """Enters ground tensors and bodies, and what their loads are equal to."""
        with self.timed("enter"):
            self.work.enter(*terms)
            self.flush()

    def declared(self, t: Term) -> str:
        """A ground tensor or body as egglog text, in the e-graph, without what its loads are equal to."""
        text = self.encoder.tensor(t) if isinstance(t, Tensor) else self.encoder.body(t)
        self.encoder.lines.append(text)
        self.flush()
        return text

    def flush(self) -> None:
        """Runs what waits to be declared, with the facts that Python knows of it."""
        self.stated.state()
        self.run(*self.encoder.drain())
        self.engine.run_program(*self._analyse)

    def close(self) -> int:
        """Enters the loads and binders that laws have made. Returns how many there were."""
        with self.timed("close"):
            found = self.work.close(Rows(self.engine, self.encoder))
            self.flush()
        return found

    def size(self) -> int:
        """The number of e-nodes."""
        sizes = dict(self.engine.run_program(*self._size)[0].sizes)
        return sum(sizes.get(name, 0) for name in BODIES + TENSORS)

    def step(self, law: Law) -> tuple[bool, bool]:
        """One step of one law. Returns whether the e-graph has changed, and whether there were many matches."""
        with self.timed(law.name):
            report = self.engine.run_program(*self._steps[law.name])[0].report
            matches = sum(report.num_matches_per_rule.values())
            self.hits[law.name] += matches
            if report.updated:
                self.engine.run_program(*self._analyse)
        return report.updated, matches > MANY

    def holds(self, *facts: str) -> bool:
        """Whether the e-graph has facts, given as egglog text."""
        try:
            self.run(f"(check {' '.join(facts)})")
            return True
        except EggSmolError as error:
            if "Check failed" not in str(error):
                raise
            return False
