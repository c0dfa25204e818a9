"""Model families at toy sizes: a folder each, as transformers writes its configuration; and what becomes of one that is
compiled, directly or through torch.compile, and run on the emulation.
"""
from __future__ import annotations

import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from tests.generated.harness import OutOfTime, limited

HERE = Path(__file__).parent
FAMILIES = tuple(sorted(p.parent.name for p in HERE.glob("*/config.json")))
DIRECT = ("kernels", "distinct", "once", "regions")
TORCH = ("kernels", "graphs", "programs", "fallbacks")
"""What is counted."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a family is compiled, and how: see the options of `python -m tests.models`."""
    family: str
    layer: int | None = None
    sequence: int = 16
    dtype: str = "f32"
    numerics: str = "default"

    def example(self) -> tuple:
        """Module, arguments and keyword arguments."""
        from deplodock.capture.model import model_example
        return model_example(folder(self.family), self.layer, self.sequence, dtype=self.dtype, part=part(self.family))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row of the table. counts: by column. wrong: what is, in a line each. eager: why parts run in eager mode.
    seconds: of the processor, to compile."""
    family: str
    counts: dict[str, int | str]
    seconds: float
    wrong: tuple[str, ...] = ()
    eager: tuple[str, ...] = ()


def folder(family: str) -> Path:
    return HERE / family


def part(family: str) -> str | None:
    """What of the model is compiled: of one with an encoder and a decoder, the encoder."""
    config = json.loads((folder(family) / "config.json").read_text())
    return "encoder" if config.get("is_encoder_decoder") else None


def judged(choice: Choice, through_torch: bool, limit: float) -> Outcome:
    """The family compiled and run, whatever comes of it, within so many seconds."""
    try:
        with limited(limit):
            return _through_torch(choice) if through_torch else _directly(choice)
    except OutOfTime:
        problem = f"not done in {limit:.0f} s"
    except Exception as error:
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
    counts = dict.fromkeys(TORCH if through_torch else DIRECT, "-")
    return Outcome(choice.family, counts, time.process_time(), (problem,))


def _directly(choice: Choice) -> Outcome:
    """The family captured, compiled and judged."""
    from deplodock.capture import capture_module
    from deplodock.pipeline import compile
    from tests.programs.support import wrong
    start = time.process_time()
    x = compile(capture_module(*choice.example()), "h200", choice.numerics)
    plan, _ = x.plan, x.cuda
    seconds = time.process_time() - start
    counts = (len(plan.kernels), len({k.name for k in plan.kernels}), len(plan.once), len(x.parts))
    return Outcome(choice.family, dict(zip(DIRECT, counts)), seconds, tuple(wrong(x)))


def _through_torch(choice: Choice) -> Outcome:
    """The family under torch.compile: its outputs against the program in float64, and beside eager."""
    import torch
    from torch.utils._pytree import tree_leaves

    import deplodock
    from deplodock import dynamo
    from deplodock.capture import capture_module
    from deplodock.reference import longest_fold, reference, within_promise
    dynamo.REPORT = dynamo.Report()
    torch._dynamo.reset()
    module, args, named = choice.example()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", dynamo.EagerWarning)
        eager = module(*args, **named)
        captured = capture_module(module, args, named)
        start = time.process_time()
        run = torch.compile(module, backend=deplodock.backend, options={"numerics": choice.numerics, "target": "h200"})
        found = run(*args, **named)
        seconds = time.process_time() - start
        again = run(*args, **named)
    exact, terms = reference(captured.program, captured.inputs, captured.parameters), longest_fold(captured.program)
    wrong = []
    for i, (y, twice, e, y64) in enumerate(zip(*map(tree_leaves, (found, again, eager)), exact, strict=True)):
        verdict = within_promise(y, y64, e, terms)
        if not verdict.ok:
            wrong.append(f"output {i}: relative error {verdict.rel_err:.2e}, at most {verdict.bound:.2e} wanted")
        if not torch.equal(y, twice):
            wrong.append(f"output {i}: another call gives other bits")
    report = deplodock.explain()
    counts = report.counters
    return Outcome(choice.family, {k: counts[k] for k in TORCH}, seconds,
                   tuple(wrong), report.fallbacks)
