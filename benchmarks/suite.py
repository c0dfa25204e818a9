"""The suite against PyTorch, on this machine's GPU: 84 operator shapes and a decoder layer, in three dtypes.

    python -m benchmarks.suite [--dtype f32 bf16 f16] [--only TEXT] [--numerics default] [--seconds 500] [--out benchmarks/results]

Cases are compiled by a pool of processes that leave the GPU alone. One other process has the GPU to itself: it checks each
case against the promise and times it beside eager PyTorch. If a kernel takes that process down, or does not end, the case
has failed and a new process goes on with the next. Results are written after every case; past --seconds none is begun.
"""
from __future__ import annotations

import argparse
import math
import os
import pickle
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.cases import DTYPES, Case, cases
from benchmarks.report import Result, about, write

PATIENCE = 120.0
"""Seconds that one case may keep the GPU: the slowest right ones need some ten, most of it for the float64 reference."""
SPAWN = get_context("spawn")


# ---- compiling, without the GPU --------------------------------------------------------------------------------------

def build(case: Case, numerics: str, target: str) -> tuple[Result, bytes]:
    """Compiles one case, machine code included. The second value is the pickled Loadable; empty if it failed."""
    import torch
    torch.set_num_threads(1)
    from deplodock.capture import capture_module
    from deplodock.pipeline import compile
    from deplodock.runtime.cache import Cache
    from deplodock.runtime.compile import compile_all
    from deplodock.runtime.program import Loadable
    result, start = Result(case), time.perf_counter()
    try:
        captured = capture_module(*case.example())
        result.seconds["capture"] = time.perf_counter() - start
        result.reads = captured.positions
        compilation = compile(captured, target, numerics)
        made = Loadable(compilation.torch, compilation.plan, compilation.cuda, compilation.target.arch)
        start = time.perf_counter()
        compile_all(list({k.name: k.source for k in made.kernels}.items()), made.arch, Cache("cubin"))
        result.seconds |= {**compilation.seconds, "nvrtc": time.perf_counter() - start}
        result.kernels = [k.name for k in compilation.plan.kernels]
        return result, pickle.dumps(made)
    except Exception as error:
        result.failure = _described(error)
        return result, b""


# ---- checking and timing, alone on the GPU ---------------------------------------------------------------------------

def serve(pipe: Connection) -> None:
    """The process that has the GPU: (result, Loadable, whether to time) in, result out, until the pipe closes."""
    while True:
        try:
            result, made, timed = pipe.recv()
        except EOFError:
            return
        try:
            measure_case(result, pickle.loads(made), timed)
        except Exception as error:
            result.failure = _described(error)
        pipe.send(result)


def measure_case(result: Result, made, timed: bool) -> None:
    """Fills in what a case computes and how long it takes."""
    import torch

    from deplodock.runtime.cache import Cache
    from deplodock.runtime.check import check
    from deplodock.runtime.program import CompiledProgram
    from deplodock.runtime.timing import copies_for, measure
    case = result.case

    def load(module: torch.nn.Module) -> CompiledProgram:
        held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return CompiledProgram(made, {v.name: held[v.path] for v in made.program.parameters}, "cuda", Cache("cubin"))

    with torch.no_grad():
        module, inputs = case.module("cuda"), case.inputs("cuda")
        program = load(module)
        held = program.parameters
        report, = check(program, made.program, [inputs[i] for i in result.reads], held, (module(*inputs),))
        v = report.verdict
        result.ok, result.error, result.eager_error, result.allowed, result.excess = report.ok, v.rel_err, v.eager_rel_err, v.bound, v.excess
        if not timed:
            return
        if walls := case.walls(lambda: program(*(inputs[i] for i in result.reads)), lambda: module(*inputs)):
            result.us, result.eager_us = walls
            return
        size = sum(t.nbytes for t in (*inputs, *held.values()))
        sets = [inputs, *(tuple(t.clone() for t in inputs) for _ in range(copies_for(size) - 1))]
        modules = [module, *(case.module("cuda") for _ in sets[1:])] if held else [module] * len(sets)
        programs = [program, *map(load, modules[1:])] if held else [program] * len(sets)
        found = measure({"deplodock": [lambda p=p, s=[s[i] for i in result.reads]: p(*s) for p, s in zip(programs, sets)],
                         "eager": [lambda m=m, s=s: m(*s) for m, s in zip(modules, sets)]})
    ours, eager = found["deplodock"], found["eager"]
    result.us, result.hot_us, result.host_us = ours.cold, ours.hot, ours.host
    result.eager_us, result.eager_hot_us, result.eager_host_us = eager.cold, eager.hot, eager.host
    torch.cuda.empty_cache()


class GpuProcess:
    """The process behind `serve`, made anew when it has died or does not answer."""

    def __init__(self):
        self.process, self.pipe = None, None

    def measure(self, result: Result, made: bytes, timed: bool) -> Result:
        if self.process is None:
            self.pipe, other = SPAWN.Pipe()
            self.process = SPAWN.Process(target=serve, args=(other,), daemon=True)
            self.process.start()
            other.close()
        try:
            self.pipe.send((result, made, timed))
            if not self.pipe.poll(PATIENCE):
                result.failure = f"it did not end within {PATIENCE:.0f} s"
                self.stop()
                return result
            answer = self.pipe.recv()
        except (EOFError, OSError):
            result.failure = "it took down the process that ran it"
            self.stop()
            return result
        if any(word in answer.failure for word in ("CUDA", "illegal", "LaunchFailed")):    # the context may be lost
            self.stop()
        return answer

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None


def _described(error: Exception) -> str:
    text = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {text[0][:300]}\n{traceback.format_exc()[-1500:]}"


def outcomes(todo: list[Case], numerics: str, target: str, workers: int, end: float, timed: bool = True) -> Iterator[Result]:
    """The results of cases, in order: compiled by a pool, measured one by one. Past `end` (time.monotonic) none is begun."""
    gpu, pool = GpuProcess(), ProcessPoolExecutor(workers, mp_context=SPAWN)
    jobs = [pool.submit(build, case, numerics, target) for case in todo]
    for case, job in zip(todo, jobs):
        if time.monotonic() > end:
            print(f"out of time before {case.name} in {case.dtype}")
            break
        result, made = _finished(job, case, end)
        yield gpu.measure(result, made, timed) if made else result
    gpu.stop()
    for process in list(pool._processes.values()):
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)


def options(what: str) -> argparse.ArgumentParser:
    """What the commands take that measure cases. what: their description."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of the cases' names")
    parser.add_argument("--numerics", default="default", choices=("strict", "default", "fast"))
    parser.add_argument("--seconds", type=float, default=math.inf, help="wall clock, after which no case is begun")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--no-times", action="store_true", help="check only")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    return parser


def report(todo: list[Case], args: argparse.Namespace, kind: str = "") -> None:
    """Measures cases on this machine's GPU and writes their table, anew after every case."""
    end = time.monotonic() + args.seconds
    from deplodock.cli.program import target_or_default
    from deplodock.runtime.launch import require_gpu
    require_gpu()
    import torch
    facts, target = about(torch.cuda.get_device_name(), args.numerics), target_or_default(None).name
    results, table = [], "nothing"
    for result in outcomes(todo, args.numerics, target, args.workers, end, not args.no_times):
        results.append(result)
        print(result.line, flush=True)
        table = write(results, facts, args.out, kind)
    print(f"wrote {table}")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--dtype", nargs="+", default=list(DTYPES), choices=DTYPES)
    args = parser.parse_args()
    report(cases(args.dtype, args.only), args)


def _finished(job: Future, case: Case, end: float) -> tuple[Result, bytes]:
    """What a worker has made of a case; a failure if it died or is not done in time."""
    try:
        return job.result(None if math.isinf(end) else max(1.0, end - time.monotonic()))
    except TimeoutError:
        return Result(case, failure="it was not compiled in time"), b""
    except Exception as error:                # a worker that died takes the whole pool with it
        return Result(case, failure=_described(error)), b""


if __name__ == "__main__":
    main()
