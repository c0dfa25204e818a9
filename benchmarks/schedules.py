"""How well the estimate ranks schedules: kernels of products under many of the schedules that the laws offer, timed.

    python -m benchmarks.schedules [--only TEXT] [--best 14] [--others 14] [--out benchmarks/results]

For each product, the schedules that are cheapest by the estimate of extract/shape.py, and others drawn from the rest, by
seed. All are checked against float64 and timed in turns, beside PyTorch. `chosen` is what the compiler takes, `found` the
fastest of the sample; `rank` is Spearman's correlation of estimates and times.
"""
from __future__ import annotations

import argparse
import random
from dataclasses import replace
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F

from benchmarks.report import about, write_lines
from deplodock.ir.dtype import bf16, f32
from deplodock.ir.plan import Kernel, Plan
from deplodock.lower.cuda import CudaKernel, lower_cuda
from deplodock.lower.kernel import legal, lower_kernel
from deplodock.lower.tile import lower_tile
from deplodock.runtime.cache import Cache
from deplodock.runtime.compile import Cubin, compile_all
from deplodock.runtime.launch import Gpu, Sequence
from deplodock.runtime.timing import copies_for, measure
from deplodock.target import target
from extract.schedule import Offer, offers
from tests.lowering import terms

SIZES = {"32x2048x2048": (32, 2048, 2048), "128x2048x5632": (128, 2048, 5632), "512x2048x2048": (512, 2048, 2048),
         "32x18944x3584": (32, 18944, 3584)}
"""Rows, columns and depth."""
TARGET = target("h200")
FAR = 4
"""Times the least estimate beyond which a schedule is not worth a measurement."""


def linear(x, w):
    return x @ w.T


def gated(x, wg, wu):
    return F.silu(x @ wg.T) * (x @ wu.T)


def normed(x, wg, wu):
    return gated(F.rms_norm(x, x.shape[-1:], None, 1e-6), wg, wu)


CASES: dict[str, tuple[Kernel, Callable]] = {
    **{f"{d} linear {size}": (terms.matmul(*mnk, d=d), linear) for d in (f32, bf16) for size, mnk in SIZES.items()},
    **{f"{d} gate/up {size}": (terms.gate_up(*SIZES[size], d=d), gated) for d in (f32, bf16) for size in ("128x2048x5632",)},
    "bf16 gate/up with the norm 512x2048x2048": (terms.gate_up(*SIZES["512x2048x2048"], norm=True), normed),
}


def sampled(kernel: Kernel, best: int, others: int) -> list[Offer]:
    """The first legal offers, and some of the rest that are not far from them."""
    found = next(iter(offers(Plan((), (), (), (kernel,), ()), {}, TARGET).values()))
    rest = [o for o in found[best:] if o.cost < FAR * found[0].cost]
    random.Random(1).shuffle(rest)
    out: list[Offer] = []
    for some, count in ((found[:best], best), (rest, best + others)):
        for o in some:
            if len(out) < count and legal(replace(kernel, schedule=o.knobs)) is None:
                out.append(o)
    return out


def built(kernel: Kernel, offer: Offer) -> CudaKernel:
    return lower_cuda(lower_kernel(lower_tile(replace(kernel, schedule=offer.knobs))))


def timed(kernel: Kernel, eager: Callable, made: list[tuple[Offer, CudaKernel, Cubin]], gpu: Gpu) -> tuple[list[dict], float]:
    """Of each schedule, what was expected and what is; PyTorch's microseconds."""
    generator = torch.Generator("cuda").manual_seed(0)
    inputs = [b.name for b in sorted(kernel.reads, key=lambda b: b.name != "x")]
    dtype = torch.float32 if kernel.reads[0].dtype is f32 else torch.bfloat16

    def tensors() -> dict[str, torch.Tensor]:
        drawn = {b.name: torch.randn([a.extent for a in b.axes], generator=generator, device="cuda")
                 for b in (*kernel.reads, *kernel.writes)}
        return {n: (t * t.shape[-1] ** -0.5 if n.startswith("w") else t).to(dtype) for n, t in drawn.items()}
    sets = [tensors() for _ in range(copies_for(sum(t.numel() * t.element_size() for t in tensors().values())))]
    exact = eager(*(sets[0][n].double() for n in inputs))
    def error(y):
        return float((y.double() - exact).norm() / exact.norm())
    allowed = 2 * error(eager(*(sets[0][n] for n in inputs))) + 3e-7
    rows, calls = [], {"eager": [lambda s=s: eager(*(s[n] for n in inputs)) for s in sets]}
    for i, (offer, cuda, cubin) in enumerate(made):
        names = [p.name for p in cuda.params]
        loaded = Sequence(gpu, (gpu.load(cuda, cubin, {n: j for j, n in enumerate(names)}),))
        calls[str(i)] = [lambda s=s, k=loaded, n=tuple(names): k.run(tuple(s[x] for x in n)) for s in sets]
        sets[0]["y"].fill_(float("nan"))
        calls[str(i)][0]()
        wrong = error(sets[0]["y"])
        rows.append({"row": offer.row, "family": offer.family, "estimate": offer.cost * 1e6, "registers": cubin.registers,
                     "spills": cubin.spills, "error": wrong, "right": wrong <= allowed})
    found = measure(calls, rounds=7)
    for i, r in enumerate(rows):
        r["us"] = found[str(i)].cold
    return rows, found["eager"].cold


def correlation(a: list[float], b: list[float]) -> float:
    """Spearman's."""
    ranks = torch.stack([torch.tensor(x).argsort().argsort().double() for x in (a, b)])
    return float(torch.corrcoef(ranks)[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--best", type=int, default=14)
    parser.add_argument("--others", type=int, default=14)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    gpu, head, results = Gpu(0, TARGET.arch), about(torch.cuda.get_device_name(), "-"), {}
    lines = ["# Schedules", "", ", ".join(f"{k} {v}" for k, v in head.items()), "",
             "Microseconds of device time, cold.", "",
             "| kernel | schedules | wrong | rank | chosen us | expected us | found us | PyTorch us |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    with torch.no_grad():
        for name, (kernel, eager) in CASES.items():
            if args.only not in name:
                continue
            found = sampled(kernel, args.best, args.others)
            cuda = [built(kernel, o) for o in found]
            cubins = compile_all([(k.name, k.source) for k in cuda], TARGET.arch, Cache("cubin"))
            rows, theirs = timed(kernel, eager, list(zip(found, cuda, cubins)), gpu)
            results[name] = {"eager": theirs, "schedules": rows}
            rank = correlation([r["estimate"] for r in rows], [r["us"] for r in rows])
            lines.append(f"| {name} | {len(rows)} | {sum(not r['right'] for r in rows)} | {rank:.2f} | {rows[0]['us']:.1f} | "
                         f"{rows[0]['estimate']:.1f} | {min(r['us'] for r in rows):.1f} | {theirs:.1f} |")
            print(lines[-1], flush=True)
    write_lines(args.out, "schedules", head, results, lines)


if __name__ == "__main__":
    main()
