"""Runs the cases of many keys in processes: a batch at a time, and a process that hangs or dies costs one case."""
from __future__ import annotations

import functools
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from tests.generated.case import Case
from tests.generated.harness import Outcome, run

BATCH = 24
"""Cases whose kernels are built together: enough that the compiler's start is little, few enough that all workers end together."""
GRACE = 30.0
"""Seconds beyond its limit after which a case that no signal stops loses its process; building a batch lies between steps."""

Drawing = Callable[[str], Case | None]


def outcomes(draw: Drawing, keys: Sequence[str], jobs: int, limit: float, end: float = math.inf) -> Iterator[Outcome]:
    """The outcome of each key that draw() makes a case of, in any order. draw: a function at the top of a module. end: on
    time.monotonic(), after which no outcome is waited for."""
    todo = deque(tuple(keys[at:at + BATCH]) for at in range(0, len(keys), BATCH))
    workers = [_Worker(draw, limit) for _ in range(min(jobs, len(todo)))]
    while time.monotonic() < end and (busy := [w for w in workers if w.step(todo)]):
        ready = set(wait([w.pipe for w in busy], timeout=1.0))
        for w in busy:
            yield from w.hear(w.pipe in ready)
    for w in workers:
        w.stop()


def alone(function: Callable, *args, seconds: float):
    """What a function at the top of a module returns in a process of its own; None if it takes longer, fails or dies."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        future = pool.submit(function, *args)
        try:
            return future.result(timeout=seconds)
        except Exception:
            for process in list(pool._processes.values()):
                process.kill()
    return None


@dataclass
class _Worker:
    """A process, the keys it has not answered for yet, and the one it is at, since when; `drawing`: whether it draws that
    one, where all that runs is PyTorch."""
    draw: Drawing
    limit: float
    left: list[str] = field(default_factory=list)
    at: str = ""
    since: float = 0.0
    drawing: bool = True
    pipe: Connection | None = None
    process: BaseProcess | None = None

    def step(self, todo: deque) -> bool:
        """Gives the process something to do, if it has nothing; False if there is nothing left."""
        if not self.left and todo:
            self.left = list(todo.popleft())
        elif not self.left:
            return False
        else:
            if self.process is not None:
                return True
        if self.process is None:
            self._start()
        self.pipe.send(tuple(self.left))
        self.at, self.since, self.drawing = self.left[0], time.monotonic(), True
        return True

    def _start(self) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, self.draw, self.limit), daemon=True)
        self.process.start()
        theirs.close()

    def hear(self, ready: bool) -> Iterator[Outcome]:
        """What the process has to say, and the outcome of a case that it has died or hangs of."""
        try:
            while ready and self.pipe.poll():
                match self.pipe.recv():
                    case Outcome() as found:
                        if found.key in self.left:
                            self.left.remove(found.key)
                            yield found
                    case ("drawing" | "begun") as step, key:
                        self.at, self.since, self.drawing = key, time.monotonic(), step == "drawing"
                    case "done", keys:
                        self.left = [k for k in self.left if k not in keys]
        except (EOFError, OSError):
            yield self._lost("crash", "PyTorch died of the call that was drawn" if self.drawing else "the process died")
        if self.process and time.monotonic() - self.since > self.limit + GRACE:
            yield self._lost("timeout", f"nothing stopped it within {self.limit + GRACE:g} s")

    def _lost(self, what: str, detail: str) -> Outcome:
        self.stop()
        self.left = [k for k in self.left if k != self.at]
        return Outcome(self.at, what, detail, time.monotonic() - self.since)

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.join()
            self.pipe.close()
        self.process = self.pipe = None


def _work(pipe: Connection, draw: Drawing, limit: float) -> None:
    """The process: answers for batches of keys until the pipe is closed."""
    import torch
    from torch.export import exported_program
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    # Each export asks for PyTorch's list of composite operators, a third of a second; here nobody registers another.
    exported_program._collect_all_valid_cia_ops = functools.cache(exported_program._collect_all_valid_cia_ops)
    while True:
        try:
            keys = pipe.recv()
        except EOFError:
            return
        drawn = []
        for key in keys:
            pipe.send(("drawing", key))
            if case := draw(key):
                drawn.append((key, case))
        for found in run(drawn, limit, lambda key: pipe.send(("begun", key))):
            pipe.send(found)
        pipe.send(("done", keys))
