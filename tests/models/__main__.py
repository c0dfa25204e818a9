"""Model families at toy sizes, through the whole compiler and on the emulation: a table of kernels, seconds, agreement.

    python -m tests.models                            # all of them
    python -m tests.models gpt2 --layer 0 --dtype bf16
"""
from __future__ import annotations

import argparse
import sys
import time

from tests.models.families import FAMILIES, folder
from tests.programs.support import wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models", description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", choices=[[], *FAMILIES], default=[], metavar="FAMILY")
    parser.add_argument("--layer", type=int)
    parser.add_argument("--seq", type=int, default=16)
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--numerics", default="default")
    options = parser.parse_args()
    from deplodock.capture import capture_model
    from deplodock.errors import DeplodockError
    from deplodock.pipeline import compile
    failed = 0
    print(f"{'family':12} {'kernels':>7} {'once':>5} {'seconds':>8}  agreement", flush=True)
    for name in options.families or FAMILIES:
        start = time.perf_counter()
        try:
            x = compile(capture_model(folder(name), options.layer, options.seq, dtype=options.dtype), "h200", options.numerics)
            x.cuda
            counts, seconds = (len(x.plan.kernels), len(x.plan.once)), time.perf_counter() - start
            problems = wrong(x)
        except DeplodockError as error:
            counts, seconds, problems = ("-", "-"), time.perf_counter() - start, [str(error).splitlines()[0]]
        failed += bool(problems)
        print(f"{name:12} {counts[0]:>7} {counts[1]:>5} {seconds:8.1f}  {problems[0] if problems else 'yes'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
