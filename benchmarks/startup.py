"""What compiling, compiling again, and loading a whole model costs: seconds and memory, on this machine.

    python -m benchmarks.startup [--model tinyllama-1.1b] [--cores 2] [--out benchmarks/results]

Writes the model's weights (drawn, bf16) to a temporary folder, and then, each in a process of its own on so many cores:
compiles a forward pass of 128 tokens and saves it, with an empty cache; compiles it again, with the cache; does so and
saves it; loads what was saved and runs it once, where there is a GPU, in a process that cannot import egglog. Of each it
says what it takes from the process's first line to its last, and what of that is PyTorch's: its import, reading the model
(transformers), and torch.export.
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

METER = """
import json, resource, sys, time
began, told, inside = time.perf_counter(), {}, []

def counted(name, owner, function):
    called = getattr(owner, function)
    def wrapped(*args, **kwargs):
        inside.append(name)
        before = time.perf_counter()
        try:
            return called(*args, **kwargs)
        finally:
            inside.pop()
            if not inside:
                told[name] = told.get(name, 0) + time.perf_counter() - before
    setattr(owner, function, wrapped)

def tell():
    told.update({"in all": time.perf_counter() - began, "processor": time.process_time(),
                 "peak": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss})
    print(json.dumps(told), file=sys.stderr)

import torch
"""
"""The beginning of a process that says, in its last line to standard error, what it took and what of that functions took."""

COMPILE = METER + """
import runpy
import torch._dynamo
told["import"] = time.perf_counter() - began
from deplodock import capture
counted("model", capture, "model_example")
for owner, function in ((torch.export, "export"), (torch.export, "default_decompositions"),
                        (torch.export.ExportedProgram, "run_decompositions")):
    counted("export", owner, function)
try:
    runpy.run_module("deplodock", run_name="__main__")
finally:
    tell()
"""

LOAD = WITHOUT_SEARCH + METER + """
told["import"] = time.perf_counter() - began
import deplodock
program = deplodock.load(sys.argv[1])
told["load"] = time.perf_counter() - began - told["import"]
program(torch.arange(128).remainder(1000)[None].cuda())
torch.cuda.synchronize()
told["first call"] = time.perf_counter() - began - told["import"] - told["load"]
tell()
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


def compiled(model: Path, cores: int, cache: Path, *options: str) -> dict[str, float]:
    """What a compilation took, by METER's names, and deplodock's own stages."""
    done = run([sys.executable, "-c", COMPILE, "compile", str(model), "--seq", "128", "--target", "h200", *options,
                "-o", os.devnull, "--json", "-q"], cores, cache)
    stages = json.loads(done.stdout)["seconds"]
    return {**{k: s for k, s in stages.items() if k not in ("import", "capture")}, **_told(done)}


def loaded(saved: Path, cores: int, cache: Path) -> dict[str, float]:
    """What loading a saved program and running it once took, by METER's names, and the two by themselves."""
    return _told(run([sys.executable, "-c", LOAD, str(saved)], cores, cache))


def _told(done: subprocess.CompletedProcess) -> dict[str, float]:
    return json.loads(done.stderr.splitlines()[-1])


TORCHS = ("import", "model", "export")


def row(what: str, r: dict[str, float], size: int) -> str:
    """A line of the table. size: bytes of the weights."""
    own = r["in all"] - sum(r.get(k, 0.0) for k in TORCHS)
    stages = {k: s for k, s in r.items() if k not in (*TORCHS, "in all", "processor", "peak")}
    stages = {**stages, "the rest": own - sum(stages.values())}
    seconds = [r["in all"], r["processor"], *(r.get(k, 0.0) for k in TORCHS), own]
    return (f"| {what} | " + " | ".join(f"{s:.1f}" for s in seconds)
            + f" | {r['peak'] / 2**30:.2f} | {max(0.0, r['peak'] - size) / 2**30:.2f} | "
            + ", ".join(f"{k} {s:.1f}" for k, s in stages.items()) + " |")


HEAD = """
Seconds from the first line of a process to its last, and what of them is PyTorch's: its import, reading the model, its
export. Memory is the peak of what is resident, files that are mapped included, in GiB.

| | in all | processor | import | model | export | deplodock | memory | beyond the weights | deplodock, by stage |
|---|--:|--:|--:|--:|--:|--:|--:|--:|---|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tinyllama-1.1b", choices=sorted(p.name for p in FOLDER.iterdir()))
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    import torch
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        size = weights(args.model, top / "model")
        rows = {what: compiled(top / "model", args.cores, top / "cache", *options) for what, options in (
            ("cold, saved", ("--save", str(top / "saved"))), ("warm", ()), ("warm, saved", ("--save", str(top / "again"))))}
        if torch.cuda.is_available():
            rows["loaded and run"] = loaded(top / "saved", args.cores, top / "empty")
    facts = about(gpu, "default") | {"model": args.model, "cores": str(args.cores), "weights": f"{size / 2**30:.2f} GiB"}
    text = (f"# Compiling and loading {args.model}, 128 tokens in bf16\n\n" + ", ".join(f"{k} {v}" for k, v in facts.items())
            + "\n" + HEAD + "".join(row(what, r, size) + "\n" for what, r in rows.items()))
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"startup-{args.model}.md").write_text(text)


if __name__ == "__main__":
    main()
