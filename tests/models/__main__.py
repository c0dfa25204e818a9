"""Model families at toy sizes, compiled and run on the emulation: a table of kernels, fallbacks, agreement.

    python -m tests.models                            # all of them
    python -m tests.models gpt2 --layer 0 --dtype bf16
    python -m tests.models --compile --jobs 8 --out families.md
"""
from __future__ import annotations

import argparse
import multiprocessing
import platform
import shlex
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from tests.models.families import FAMILIES, Choice, Outcome, judged


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models", description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", choices=[[], *FAMILIES], default=[], metavar="FAMILY")
    parser.add_argument("--compile", action="store_true", help="through torch.compile(model, backend='deplodock')")
    parser.add_argument("--layer", type=int, help="this layer alone")
    parser.add_argument("--seq", type=int, default=16)
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--numerics", default="default")
    parser.add_argument("--jobs", type=int, default=1, help="families at a time, a process each")
    parser.add_argument("--limit", type=float, default=500, help="seconds for a family")
    parser.add_argument("--out", type=Path, help="a markdown file for the table")
    options = parser.parse_args()
    names = options.families or FAMILIES
    judge = partial(judged, through_torch=options.compile, limit=options.limit)
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        running = [pool.submit(judge, Choice(name, options.layer, options.seq, options.dtype, options.numerics))
                   for name in names]
        for done in as_completed(running):
            made = done.result()
            if not outcomes:
                print(_line("family", (*made.counts, "seconds"), "agreement"), flush=True)
            outcomes.append(made)
            print(_line(made.family, _cells(made), made.wrong[0] if made.wrong else "yes"), flush=True)
            for reason in made.eager:
                print("\n".join(f"    eager: {line}" for line in reason.splitlines()), flush=True)
            if options.out:
                options.out.write_text(_markdown(sorted(outcomes, key=lambda o: o.family), options))
    failed, eager = sum(bool(o.wrong) for o in outcomes), sum(len(o.eager) for o in outcomes)
    print(f"{len(outcomes) - failed} of {len(outcomes)} agree; {eager} reasons for eager mode")
    return 1 if failed else 0


def _cells(o: Outcome) -> tuple[str, ...]:
    return (*(str(o.counts[k]) for k in o.counts), f"{o.seconds:.1f}")


def _line(family: str, cells: tuple[str, ...], agreement: str) -> str:
    return f"{family:12} " + " ".join(f"{c:>9}" for c in cells) + f"  {agreement}"


def _markdown(outcomes: list[Outcome], options: argparse.Namespace) -> str:
    """The table, the command that made it, and what it was made with."""
    import torch
    import transformers
    how = "torch.compile(model, backend=\"deplodock\")" if options.compile else "deplodock's own capture"
    words = [w for w in sys.argv[1:] if not w.startswith("--out") and w != str(options.out)]
    command = shlex.join(["python", "-m", "tests.models", *words])
    head = ("family", *outcomes[0].counts, "seconds", "agrees")
    rows = [head, tuple("---" for _ in head)]
    rows += [(o.family, *_cells(o), "; ".join(o.wrong) or "yes") for o in outcomes]
    table = "\n".join(f"| {' | '.join(r)} |" for r in rows)
    eager = "".join(f"\n{o.family} in eager mode:\n\n" + "".join(f"    {line}\n" for line in reason.splitlines())
                    for o in outcomes for reason in o.eager)
    return (f"# Model families at toy sizes\n\nWhole models (encoders of T5 and Whisper) through {how}, on the "
            f"emulation of a\nGPU, against the program in float64 and eager: `{command}`.\n"
            f"Seconds are the processor's, to compile. Python {platform.python_version()}, torch {torch.__version__}, "
            f"transformers {transformers.__version__}.\n\n{table}\n{eager}")


if __name__ == "__main__":
    sys.exit(main())
