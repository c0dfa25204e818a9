"""What compiling, compiling again, and loading a whole model costs: seconds and memory, on this machine.

    python -m benchmarks.startup [--model tinyllama-1.1b] [--cores 2] [--out benchmarks/results]

Writes the model's weights (drawn, bf16) to a temporary folder, and then, each in a process of its own on so many cores:
compiles a forward pass of 128 tokens and saves it, with an empty cache; does so again, with the cache; loads what was
saved and runs it once, where there is a GPU, in a process that cannot import egglog.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.models import FOLDER
from benchmarks.report import about

OUTSIDE = ("import", "capture")
"""Stages that are PyTorch's for the most part: its import, its export, and reading the model."""

WITHOUT_SEARCH = """
import sys, time
start = time.perf_counter()
class Blocker:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("egglog", "rules", "extract"):
            raise ImportError(f"{name} is not installed")
sys.meta_path.insert(0, Blocker())
"""
"""The beginning of a process that cannot import what only compiling needs."""

LOAD = WITHOUT_SEARCH + """
import torch, deplodock
imported = time.perf_counter()
program = deplodock.load(sys.argv[1])
loaded = time.perf_counter()
program(torch.arange(128).remainder(1000)[None].cuda())
torch.cuda.synchronize()
print(imported - start, loaded - imported, time.perf_counter() - loaded)
"""

PEAK = """
import resource, runpy, sys
try:
    runpy.run_module("deplodock", run_name="__main__")
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def weights(name: str, folder: Path) -> int:
    """Writes a model with drawn weights; their bytes."""
    from deplodock.capture.model import model_example
    model, _, _ = model_example(FOLDER / name, sequence=128)
    del model.forward                               # transformers looks at the class's own
    model.save_pretrained(folder)
    return sum(p.nbytes for p in model.parameters())


def run(command: list[str], cores: int, cache: Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "DEPLODOCK_CACHE": str(cache), "OMP_NUM_THREADS": str(cores)}
    allowed = sorted(os.sched_getaffinity(0))[-cores:]
    done = subprocess.run(command, env=environment, capture_output=True, text=True,
                          preexec_fn=lambda: os.sched_setaffinity(0, allowed))
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return done


def compiled(model: Path, saved: Path, cores: int, cache: Path) -> dict[str, float]:
    """Seconds by stage, and the peak of resident memory in bytes."""
    done = run([sys.executable, "-c", PEAK, "compile", str(model), "--seq", "128", "--target", "h200", "--save", str(saved),
                "-o", os.devnull, "--json", "-q"], cores, cache)
    return {**json.loads(done.stdout)["seconds"], "peak": 1024.0 * int(done.stderr.split()[-1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tinyllama-1.1b", choices=sorted(p.name for p in FOLDER.iterdir()))
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    import torch
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        size = weights(args.model, top / "model")
        for what in ("cold", "warm"):
            rows[what] = compiled(top / "model", top / f"saved-{what}", args.cores, top / "cache")
        if torch.cuda.is_available():
            done = run([sys.executable, "-c", LOAD, str(top / "saved-cold")], args.cores, top / "empty")
            rows["load"] = dict(zip(("import", "load", "first call"), map(float, done.stdout.split())))
    facts = about(gpu, "default") | {"model": args.model, "cores": str(args.cores), "weights": f"{size / 2**30:.2f} GiB"}
    lines = [f"# Compiling and loading {args.model}, 128 tokens in bf16", "", ", ".join(f"{k} {v}" for k, v in facts.items()), "",
             "| | seconds beyond import and export | import | export and reading | peak memory, GiB | stages |", "|---|--:|--:|--:|--:|---|"]
    for what, r in rows.items():
        inside = {k: s for k, s in r.items() if k not in (*OUTSIDE, "peak")}
        peak = f"{r['peak'] / 2**30:.2f}" if "peak" in r else "-"
        lines.append(f"| {what} | {sum(inside.values()):.1f} | {r['import']:.1f} | {r.get('capture', 0):.1f} | {peak} | "
                     + ", ".join(f"{k} {s:.1f}" for k, s in inside.items()) + " |")
    text = "\n".join(lines) + "\n"
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"startup-{args.model}.md").write_text(text)


if __name__ == "__main__":
    main()
