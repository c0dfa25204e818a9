"""The suite against PyTorch: 84 operator shapes of TinyLlama-1.1B and Qwen2.5-7B, and a TinyLlama decoder layer.

    python -m benchmarks.suite [--dtype f32 bf16 f16] [--only TEXT] [--numerics default] [--seconds 500] [--out benchmarks/results]

Every case is compiled in a pool of processes, checked there against the promise of DESIGN.md on the GPU, and then timed
beside eager PyTorch in one process, interleaved, replayed from CUDA graphs, cold (inputs rotated through more than the L2
cache) and hot. Past --seconds no further case is started. Results are written after each dtype: a JSON file and a table.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
LENGTHS = (32, 128, 512)


@dataclass(frozen=True)
class Case:
    name: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str

    def inputs(self, device: str, seed: int = 0) -> tuple[torch.Tensor, ...]:
        """Normal data; second matrices are scaled by K^-1/2, norm weights are drawn around 1."""
        generator = torch.Generator().manual_seed(seed)
        made = [torch.randn(s, generator=generator) for s in self.shapes]
        match self.op:
            case "matmul" | "matmul_add": made[1] *= self.shapes[1][0] ** -0.5
            case "silu_mul_matmul": made[2] *= self.shapes[2][0] ** -0.5
            case "rmsnorm": made[1] = 1 + 0.1 * made[1]
            case "naive_attn":
                n = self.shapes[0][-2]
                made.append(torch.full((n, n), -math.inf).triu(1))
        return tuple(t.to(device, DTYPES[self.dtype]) for t in made)

    def module(self) -> torch.nn.Module:
        if self.op == "layer":
            return _layer(self)
        return _Function(FUNCTIONS[self.op])

    def arguments(self, device: str, seed: int = 0) -> tuple[torch.Tensor, ...]:
        return _layer_inputs(self, device, seed) if self.op == "layer" else self.inputs(device, seed)


FUNCTIONS = {
    "matmul": lambda x, w: x @ w,
    "matmul_add": lambda x, w, r: x @ w + r,
    "rmsnorm": lambda x, w: F.rms_norm(x, w.shape, w, 1e-6),
    "softmax": lambda x: F.softmax(x, -1),
    "silu_mul": lambda g, u: F.silu(g) * u,
    "silu_mul_matmul": lambda g, u, w: (F.silu(g) * u) @ w,
    "sdpa": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
    "naive_attn": lambda q, k, v, m: F.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + m, -1) @ v,
}


class _Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


def _layer(case: Case) -> torch.nn.Module:
    from tests.examples.decoder import DecoderLayer, Sizes
    torch.manual_seed(1)
    module = DecoderLayer(Sizes()).eval()
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.copy_(1 + 0.1 * torch.randn_like(p) if "norm" in name else torch.randn_like(p) * p.shape[-1] ** -0.5)
    return module.to(DTYPES[case.dtype]).requires_grad_(False)


def _layer_inputs(case: Case, device: str, seed: int) -> tuple[torch.Tensor, ...]:
    from tests.examples.decoder import Sizes
    (length, hidden), half = case.shapes[0][-2:], Sizes().head // 2
    generator = torch.Generator().manual_seed(seed)
    angle = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    angle = torch.cat((angle, angle), -1)[None]
    tensors = torch.randn(1, length, hidden, generator=generator), angle.cos(), angle.sin()
    return tuple(t.to(device, DTYPES[case.dtype]) for t in tensors)


def cases(dtypes: list[str], only: str = "") -> list[Case]:
    """Every case in every dtype, in the order of the file, the decoder layer last."""
    rows = json.loads((Path(__file__).parent / "cases.json").read_text())
    found = [(r["name"], r["op"], tuple(map(tuple, r["shapes"]))) for r in rows]
    found += [(f"layer.tinyllama.s{n}", "layer", ((1, n, 2048),)) for n in LENGTHS]
    return [Case(*row, d) for d in dtypes for row in found if only in row[0]]


# ---- in a pool: compile and check ------------------------------------------------------------------------------------

@dataclass
class Result:
    case: Case
    ok: bool = False
    error: float = math.nan
    eager_error: float = math.nan
    allowed: float = math.nan
    excess: float = math.nan
    kernels: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    us: float = math.nan
    eager_us: float = math.nan
    hot_us: float = math.nan
    eager_hot_us: float = math.nan
    failure: str = ""


def build(case: Case, numerics: str) -> tuple[Result, bytes]:
    """Compiles and checks one case. The second value is the pickled Loadable with the names of its parameters."""
    from deplodock.capture import capture_module
    from deplodock.pipeline import compile
    from deplodock.runtime.cache import Cache
    from deplodock.runtime.check import check
    from deplodock.runtime.program import CompiledProgram, Loadable
    result = Result(case)
    try:
        start = time.perf_counter()
        captured = capture_module(case.module(), case.arguments("cpu"))
        result.seconds["capture"] = time.perf_counter() - start
        compilation = compile(captured, "h200", numerics)
        made = Loadable(compilation.torch, compilation.plan, compilation.cuda, compilation.target.arch)
        result.seconds |= compilation.seconds
        start = time.perf_counter()
        on_gpu = captured.to("cuda")
        program = CompiledProgram(made, on_gpu.parameters, "cuda", Cache("cubin"))
        result.seconds["nvrtc"] = time.perf_counter() - start
        result.kernels = [k.name for k in compilation.plan.kernels]
        with torch.no_grad():
            report, = check(program, made.program, on_gpu.inputs, on_gpu.parameters, on_gpu.eager(*on_gpu.inputs))
        v = report.verdict
        result.ok, result.error, result.eager_error = report.ok, v.rel_err, v.eager_rel_err
        result.allowed, result.excess = v.bound, v.excess
        return result, pickle.dumps((made, list(on_gpu.parameters)))
    except Exception as e:
        result.failure = f"{type(e).__name__}: {e}"[:600] + "\n" + traceback.format_exc()[-1200:]
        return result, b""


# ---- in one process: time --------------------------------------------------------------------------------------------

def time_case(result: Result, made: bytes) -> None:
    from deplodock.runtime.cache import Cache
    from deplodock.runtime.program import CompiledProgram
    from deplodock.runtime.timing import copies_for, measure
    loadable, names = pickle.loads(made)
    module, case = result.case.module().to("cuda"), result.case
    bytes_ = sum(t.numel() * t.element_size() for t in (*case.arguments("cpu"), *module.state_dict().values()))
    modules = [module] + [case.module().to("cuda") for _ in range(min(8, copies_for(bytes_)) - 1)] if names else [module] * copies_for(bytes_)
    sets = [case.arguments("cuda", seed) for seed in range(min(8, len(modules)))]
    sets = [tuple(t.clone() for t in sets[i % len(sets)]) for i in range(len(modules))]
    state = [dict(zip(names, parameters_in_order(loadable, m))) for m in modules]
    programs = [CompiledProgram(loadable, s, "cuda", Cache("cubin")) for s in (state if names else state[:1])]
    programs = programs if names else programs * len(modules)
    with torch.no_grad():
        found = measure({"deplodock": [lambda p=p, a=a: p(*a) for p, a in zip(programs, sets)],
                         "eager": [lambda m=m, a=a: m(*a) for m, a in zip(modules, sets)]}, rounds=7)
    result.us, result.hot_us = found["deplodock"].cold, found["deplodock"].hot
    result.eager_us, result.eager_hot_us = found["eager"].cold, found["eager"].hot


def parameters_in_order(loadable, module: torch.nn.Module) -> list[torch.Tensor]:
    paths = dict(module.named_parameters()) | dict(module.named_buffers())
    return [paths[v.path] for v in loadable.program.parameters]


# ---- results ---------------------------------------------------------------------------------------------------------

def write(results: list[Result], numerics: str, folder: Path) -> None:
    """JSON and a table, with date, GPU and versions."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"date": date.today().isoformat(), "gpu": torch.cuda.get_device_name(), "numerics": numerics,
             "torch": torch.__version__, "cuda": torch.version.cuda, "python": sys.version.split()[0]}
    stem = folder / f"{about['gpu'].split()[-1].lower()}-{about['date']}-{numerics}"
    rows = [asdict(r) for r in results]
    stem.with_suffix(".json").write_text(json.dumps({"about": about, "results": rows}, indent=1))
    lines = ["# " + ", ".join(f"{k} {v}" for k, v in about.items()), "",
             "Microseconds of device time a call; error is relative (Frobenius) against the program in float64. "
             "`ratio` is eager / deplodock, cold: above 1 is faster than PyTorch.", "",
             "| case | dtype | kernels | error | eager's | ok | us | eager us | ratio | hot us | eager hot us |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    for r in results:
        lines.append(f"| {r.case.name} | {r.case.dtype} | {len(r.kernels)} | {r.error:.2e} | {r.eager_error:.2e} | "
                     f"{'yes' if r.ok else 'NO ' + r.failure.splitlines()[0][:80] if r.failure else 'NO'} | {r.us:.1f} | {r.eager_us:.1f} | "
                     f"{r.eager_us / r.us:.2f} | {r.hot_us:.1f} | {r.eager_hot_us:.1f} |")
    for d in dict.fromkeys(r.case.dtype for r in results):
        ratios = [r.eager_us / r.us for r in results if r.case.dtype == d and r.us > 0]
        if ratios:
            lines += ["", f"{d}: {sum(r.ok for r in results if r.case.dtype == d)} of {sum(r.case.dtype == d for r in results)} keep the "
                      f"promise; geometric mean of ratios {geometric_mean(ratios):.2f}, least {min(ratios):.2f}, "
                      f"{sum(x > 1 for x in ratios)} of {len(ratios)} faster than eager"]
    stem.with_suffix(".md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", nargs="+", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--only", default="")
    parser.add_argument("--numerics", default="default", choices=("strict", "default", "fast"))
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--workers", type=int, default=min(8, max(1, (os.cpu_count() or 2) - 2)))
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    end, results = time.monotonic() + args.seconds, []
    todo = cases(args.dtype, args.only)
    pool = ProcessPoolExecutor(args.workers, mp_context=get_context("spawn"))
    jobs = [pool.submit(build, c, args.numerics) for c in todo]
    for i, job in enumerate(jobs):
        if time.monotonic() > end:
            break
        result, made = job.result()
        results.append(result)
        if made and not args.no_times:
            try:
                time_case(result, made)
            except Exception as e:
                result.failure = f"timing: {type(e).__name__}: {e}"[:600] + traceback.format_exc()[-1200:]
        torch.cuda.empty_cache()
        print(f"{result.case.name:38s} {result.case.dtype:5s} {'ok' if result.ok else 'WRONG':5s} error {result.error:.2e} eager {result.eager_error:.2e} "
              f"{len(result.kernels)} kernels {result.us:8.1f} us, eager {result.eager_us:8.1f}  x{result.eager_us / result.us:5.2f}", flush=True)
        if result.failure:
            print(result.failure, flush=True)
        if i + 1 == len(jobs) or jobs[i + 1] and todo[i + 1].dtype != todo[i].dtype or i % 20 == 19:
            write(results, args.numerics, args.out)
    write(results, args.numerics, args.out)
    pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    main()
