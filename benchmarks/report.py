"""The suite's results as files: JSON with everything, and a table to read."""
from __future__ import annotations

import json
import math
import platform
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib import metadata
from pathlib import Path
from statistics import geometric_mean

from benchmarks.cases import Case

SLOW = 5.0
"""Times slower than eager from which on a case is counted as far too slow."""


@dataclass
class Result:
    """One case. error, eager_error: against float64; allowed: the promise's bound; excess: the worst element, over what is
    allowed to it. Times are microseconds a call. reads: which of the case's
    inputs the program reads. failure: what went wrong, if the case did not get to its end."""
    case: Case
    ok: bool = False
    error: float = math.nan
    eager_error: float = math.nan
    allowed: float = math.nan
    excess: float = math.nan
    reads: tuple[int, ...] = ()
    kernels: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    us: float = math.nan
    hot_us: float = math.nan
    host_us: float = math.nan
    eager_us: float = math.nan
    eager_hot_us: float = math.nan
    eager_host_us: float = math.nan
    failure: str = ""

    @property
    def ratio(self) -> float:
        """eager / deplodock, cold: above 1 is faster than PyTorch."""
        return self.eager_us / self.us

    @property
    def line(self) -> str:
        state = "ok" if self.ok else "failed" if self.failure else "WRONG"
        text = (f"{self.case.name:38s} {self.case.dtype:5s} {state:6s} {len(self.kernels)} kernels, error {self.error:.2e}, eager's "
                f"{self.eager_error:.2e}, {self.us:8.1f} us, eager {self.eager_us:8.1f} us, x{self.ratio:5.2f}")
        return text + (f"\n    {self.failure.splitlines()[0]}" if self.failure else "")


def about(gpu: str, numerics: str) -> dict[str, str]:
    """What the results depend on: date, GPU, versions."""
    versions = {}
    for package in ("deplodock", "torch", "egglog", "cuda-core", "nvidia-cuda-nvrtc"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "from a checkout"
    return {"date": date.today().isoformat(), "gpu": gpu, "numerics": numerics, "python": platform.python_version(), **versions}


def write(results: list[Result], facts: dict[str, str], folder: Path, kind: str = "") -> Path:
    """Writes <kind><gpu>-<date>-<numerics>.json and .md. Returns the path of the table."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{kind}{facts['gpu'].split()[-1].lower()}-{facts['date']}-{facts['numerics']}"
    rows = [{k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(r).items()} for r in results]
    stem.with_suffix(".json").write_text(json.dumps({"schema": 1, "about": facts, "results": rows}, indent=1) + "\n")
    stem.with_suffix(".md").write_text("\n".join(_table(results, facts)) + "\n")
    return stem.with_suffix(".md")


def write_lines(folder: Path, name: str, facts: dict[str, str], results: object, lines: list[str]) -> None:
    """Writes <name>.json, with everything, and <name>.md, these lines."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"about": facts, "results": results}, indent=1))
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n")


def _table(results: list[Result], facts: dict[str, str]) -> list[str]:
    lines = [f"# {facts['gpu']}, {facts['date']}, numerics {facts['numerics']}", "",
             ", ".join(f"{k} {v}" for k, v in facts.items() if k not in ("gpu", "date", "numerics")), "",
             "Errors are relative (Frobenius), against the program in float64. Times are microseconds of device time a call, cold: "
             "inputs rotated through three times the L2 cache, both candidates in one process, in turns, from CUDA graphs. "
             "`ratio` is eager / deplodock: above 1 is faster than PyTorch.", ""]
    for d in dict.fromkeys(r.case.dtype for r in results):
        lines.append(f"- {d}: {_summary([r for r in results if r.case.dtype == d])}")
    lines += ["", "| case | dtype | kernels | error | eager's | promise | us | eager us | ratio | hot us | eager hot us | host us |",
              "|---|---|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|"]
    for r in results:
        promise = "kept" if r.ok else f"failed: {r.failure.splitlines()[0][:80]}" if r.failure else "**BROKEN**"
        numbers = (r.us, r.eager_us, None, r.hot_us, r.eager_hot_us, r.host_us)
        cells = [f"{r.ratio:.2f}" if n is None else f"{n:.1f}" for n in numbers]
        lines.append(f"| {r.case.name} | {r.case.dtype} | {len(r.kernels)} | {r.error:.2e} | {r.eager_error:.2e} | {promise} | "
                     + " | ".join("-" if c == "nan" else c for c in cells) + " |")
    return lines


def _summary(rows: list[Result]) -> str:
    text = f"{sum(r.ok for r in rows)} of {len(rows)} keep the promise"
    ratios = [r.ratio for r in rows if math.isfinite(r.ratio)]
    if ratios:
        text += (f"; {sum(x > 1 for x in ratios)} of {len(ratios)} faster than eager, geometric mean {geometric_mean(ratios):.2f}, "
                 f"least {min(ratios):.2f}, {sum(x < 1 / SLOW for x in ratios)} more than {SLOW:.0f} times slower")
    return text
