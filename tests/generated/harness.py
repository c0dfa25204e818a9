"""Runs generated cases: compiled one by one, their kernels built together, each run and judged by itself.

    outcome   right; wrong: the numbers; named: an error that says what the user's program does which is not supported;
              crash: any other error, errors that name a gap of the compiler too; timeout: one step took longer than LIMIT
"""
from __future__ import annotations

import re
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from deplodock import errors
from deplodock.capture import Captured, capture_module
from deplodock.pipeline import Compilation, compile
from deplodock.runtime.emulation import run_program
from deplodock.runtime.emulation.build import Program, build_together
from deplodock.runtime.program import CompiledProgram, Loadable
from tests.generated.case import Case
from tests.generated.judge import complaints

OUTCOMES = "right wrong named crash timeout".split()
LIMIT = 60.0
"""Seconds that a case may take to compile, or to run."""
GAPS = (errors.NoKernel, errors.NoSchedule, errors.IllegalSchedule, errors.KernelRejected, errors.EmulationFault,
        errors.LaunchFailed, errors.WrongNumbers, errors.IndexOutOfRange, errors.BrokenFact)
"""Errors of ours that a valid program must not meet."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """key: what the case is drawn from again. what: one of OUTCOMES. seconds: of compiling and running it. calls: the
    lines of the case; 0 where its process died."""
    key: str
    what: str
    detail: str = ""
    seconds: float = 0.0
    calls: int = 0


class OutOfTime(BaseException):
    """No Exception, which a step may well catch."""


@contextmanager
def limited(seconds: float):
    """OutOfTime if the body takes longer, wherever it is in Python."""
    def stop(*_):
        raise OutOfTime
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 5.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True, slots=True)
class Made:
    key: str
    case: Case
    captured: Captured
    loadable: Loadable
    seconds: float


def run(cases: Sequence[tuple[str, Case]], limit: float = LIMIT, begun: Callable[[str], None] = lambda key: None) -> Iterator[Outcome]:
    """The outcome of each case, by its key. begun: told the key of a case before each of its steps."""
    made = []
    for number, (key, case) in enumerate(cases):
        begun(key)
        result = _attempt(key, case, limit, lambda: _compiled(key, case, number))
        if isinstance(result, Outcome):
            yield result
        else:
            made.append(result)
    program = _built(made)
    for m in made:
        begun(m.key)
        start = time.perf_counter()
        found = _attempt(m.key, m.case, limit, lambda: _judged(m, program))
        seconds = m.seconds + time.perf_counter() - start
        if isinstance(found, Outcome):
            yield replace(found, seconds=seconds)
        else:
            yield Outcome(m.key, "wrong" if found else "right", "; ".join(found), seconds, len(m.case.lines))


def _attempt(key: str, case: Case, limit: float, step: Callable):
    """What a step gives, or the outcome that it ends the case with."""
    start = time.perf_counter()
    try:
        with limited(limit), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return step()
    except OutOfTime:
        what, detail = "timeout", f"over {limit:g} s"
    except errors.DeplodockError as e:
        what = "crash" if isinstance(e, GAPS) else "named"
        detail = f"{type(e).__name__}: {e}"
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        what, detail = "crash", f"{type(e).__name__}: {e} ({last.filename.rsplit('/', 1)[-1]}:{last.lineno})"
    return Outcome(key, what, detail, time.perf_counter() - start, len(case.lines))


def _compiled(key: str, case: Case, number: int) -> Made:
    start = time.perf_counter()
    captured = capture_module(case.function(), tuple(case.tensors()))
    x: Compilation = compile(captured, "h200", case.numerics)
    kernels = tuple(_renamed(k, f"{k.name}_{number}") for k in x.cuda)
    made = Loadable(x.torch, x.plan, kernels, x.target.arch)
    return Made(key, case, captured, made, time.perf_counter() - start)


def _renamed(k, name: str):
    return replace(k, name=name, text=re.sub(rf"\b{k.name}\b(?=\()", name, k.text))


def _built(made: Sequence[Made]) -> Program | None:
    """All kernels in one program; None where the compiler refuses one of them, which then shows alone."""
    texts = {k.name: k.text for m in made for k in m.loadable.kernels if k.grid}
    try:
        return build_together(texts) if texts else None
    except errors.KernelRejected:
        return None


class Together:
    """Runs kernels on the emulation from a program that holds those of other cases, too."""

    def __init__(self, kernels, table, program: Program | None):
        self.kernels, self.table, self.program = kernels, table, program

    def run(self, tensors) -> None:
        run_program(self.kernels, {name: tensors[at] for name, at in self.table.items()}, program=self.program, workers=1)


class Batched(CompiledProgram):
    """A compiled program whose kernels are built already."""

    def __init__(self, m: Made, program: Program | None):
        self._program = program
        super().__init__(m.loadable, m.captured.parameters, "cpu")

    def _loader(self, *_):
        return partial(Together, program=self._program), ()


def _judged(m: Made, program: Program | None) -> list[str]:
    return complaints(m.case, m.captured, Batched(m, program))
