"""Tests random compositions of operators: `python -m tests.compositions --seed 0 --count 1000 --jobs 8`.

Each is a program of 3 to 12 operators of the capture table, compiled, run on the CPU emulation, and compared with eager
PyTorch and with float64 (tests/generated/). One that fails is made smaller, and printed as a program of `deplodock run -c`;
it is found again by its key: `--only "0 17"`.
"""
from __future__ import annotations

import sys
import time

from tests.generated.case import Case
from tests.generated.command import main, options
from tests.generated.compositions import draw, keys, smaller
from tests.generated.harness import Outcome, run

SHRINKING = 60.0
"""Seconds that a failing case is made smaller for."""


def size(outcome: Outcome) -> str:
    """What the summary counts by."""
    return f"{outcome.calls} calls"


def explain(outcome: Outcome) -> str:
    case = draw(outcome.key)
    if outcome.what in ("wrong", "crash") and outcome.calls:
        case = _shrunk(outcome, case)
    return "\n    ".join([outcome.key, *outcome.detail.splitlines(), "", *case.code.splitlines(), f"# numerics: {case.numerics}"])


def _shrunk(outcome: Outcome, case: Case) -> Case:
    """A smaller case with the same kind of failure."""
    end, kind = time.monotonic() + SHRINKING, outcome.detail.split(":")[0]

    def fails(candidate: Case) -> bool:
        if time.monotonic() > end:
            return False
        found = next(iter(run([(outcome.key, candidate)], 20.0)))
        return found.what == outcome.what and (found.what == "wrong" or found.detail.split(":")[0] == kind)
    return smaller(case, fails)


if __name__ == "__main__":
    args = options("compositions", 1000, "compositions").parse_args()
    chosen = [k for k in keys(args.seed, args.count) if not args.only or k == args.only]
    sys.exit(main("compositions", args, draw, chosen, size, explain))
