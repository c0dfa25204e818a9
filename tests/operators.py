"""Tests every row of the capture table by generated calls: `python -m tests.operators --seed 0 --count 4 --jobs 8`.

For each row and dtype, `count` calls over odd shapes, strides and special values, compiled, run on the CPU emulation, and
compared with eager PyTorch and with float64 (tests/generated/). `--only softmax` runs some rows; a case is found again
by its key: `--only "0 softmax.int f16 3"`.
"""
from __future__ import annotations

import sys

from tests.generated.command import main, options
from tests.generated.harness import Outcome
from tests.generated.operators import draw, keys


def dtype(outcome: Outcome) -> str:
    return outcome.key.split()[2]


def explain(outcome: Outcome) -> str:
    case = draw(outcome.key)
    text = f"{outcome.key}\n    {outcome.detail}"
    return text if case is None else "\n    ".join([text, *case.code.splitlines(), *filter(None, [case.layouts])])


if __name__ == "__main__":
    args = options("operators", 4, "calls for each row and dtype").parse_args()
    chosen = [k for k in keys(args.seed, args.count) if args.only in k]
    sys.exit(main("operators", args, draw, chosen, dtype, explain))
