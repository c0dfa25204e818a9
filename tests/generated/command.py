"""The command line of generated tests, and the summary of a run."""
from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from tests.generated.harness import LIMIT, OUTCOMES, Outcome
from tests.generated.pool import Drawing, alone, outcomes

EXPLAINING = 240.0
"""Seconds that a case which failed may be explained in."""


def options(name: str, count: int, what: str) -> argparse.ArgumentParser:
    """What both commands take. count: the default; what: what it counts."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.{name}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=count, help=f"{what} (default: {count})")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--only", default="", help="cases with this text in their keys")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a case may take")
    parser.add_argument("--seconds", type=float, default=math.inf, help="wall clock, after which no case is waited for")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every outcome but right ones, and the counts")
    parser.add_argument("--out", type=Path, metavar="OUT", help="write the summary, as Markdown")
    return parser


def main(name: str, args: argparse.Namespace, draw: Drawing, keys: Sequence[str], group: Callable[[Outcome], str],
         explain: Callable[[Outcome], str]) -> int:
    """Runs all keys and reports. group: what the summary counts by; explain: what is printed of one that is not right, made
    in a process of its own, as all that draws or runs a case is.

    Exit code 1 if a case is neither right nor a named error.
    """
    start, found = time.monotonic(), []
    for outcome in outcomes(draw, keys, args.jobs, args.limit, start + args.seconds):
        found.append(outcome)
        if outcome.what != "right":
            print(f"{outcome.what}: {outcome.key}: {outcome.detail}", flush=True)
        if len(found) % 100 == 0:
            print(f"{len(found)} of at most {len(keys)}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    found.sort(key=lambda o: o.key)
    command = f"python -m tests.{name} --seed {args.seed} --count {args.count}" + (f" --only {args.only!r}" if args.only else "")
    text = summary(command, found, time.monotonic() - start, args.jobs, group)
    print(text)
    if args.out:
        args.out.write_text(text)
    if args.json:
        args.json.write_text(json.dumps(dict(command=command, counts=counts(found), versions=versions(),
                                             outcomes=[asdict(o) for o in found if o.what != "right"]), indent=1) + "\n")
    for outcome in found:
        if outcome.what not in ("right", "named") and time.monotonic() < start + args.seconds:
            text = alone(explain, outcome, seconds=EXPLAINING) or f"{outcome.key}\n    {outcome.detail}"
            print(f"{outcome.what}: {text}", flush=True)
    return int(any(o.what not in ("right", "named") for o in found))


def counts(found: Sequence[Outcome]) -> dict[str, int]:
    return {what: sum(o.what == what for o in found) for what in OUTCOMES}


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{p: metadata.version(p) for p in ("torch", "egglog")}}


def summary(command: str, found: Sequence[Outcome], seconds: float, jobs: int, group: Callable[[Outcome], str]) -> str:
    """Counts by outcome, for the whole and by group, the slowest cases, and each that is not right."""
    run = ", ".join(f"{k} {v}" for k, v in versions().items())
    lines = [f"`{command}`", "", f"{len(found)} cases in {seconds:.0f} s, {jobs} processes; {run}", ""]
    lines += [f"| | cases | {' | '.join(OUTCOMES)} |", f"|---|{'---|' * (len(OUTCOMES) + 1)}"]
    groups = Counter(map(group, found))
    for name in (None, *groups):
        some = [o for o in found if name is None or group(o) == name]
        lines.append(f"| {name or 'all'} | {len(some)} | {' | '.join(str(n) for n in counts(some).values())} |")
    slow = sorted(found, key=lambda o: -o.seconds)[:5]
    lines += ["", "Slowest: " + ", ".join(f"{o.key} {o.seconds:.1f} s" for o in slow), ""]
    for o in found:
        if o.what != "right":
            first, *rest = [*filter(None, map(str.strip, o.detail.splitlines())), ""]
            more = next((r for r in rest if r.startswith("found:")), "")
            lines.append(f"- {o.what}: `{o.key}`: {first[:200]} {more[:160]}".rstrip())
    return "\n".join(lines).rstrip() + "\n"
