"""Hopper's constructs as knobs of a schedule: kernels under schedules given by hand, against PyTorch on an H200.

    python -m benchmarks.hopper [--out benchmarks/results]

The laws choose none of these schedules yet. What is shown is that wgmma, bulk tensor copies on rings of mbarriers and warp
roles come out of the same lowering as everything else, and how fast. Each kernel is launched six times over outputs filled
with NaN, which must be bit-equal, compared with the same computation in float64, and timed beside PyTorch as the suite
does it.
"""
from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.report import about, write_lines
from deplodock.ir.plan import Kernel
from deplodock.lower.cuda import lower_cuda
from deplodock.lower.kernel import lower_kernel
from deplodock.lower.tile import lower_tile
from deplodock.runtime.cache import Cache
from deplodock.runtime.compile import compile_all
from deplodock.runtime.launch import Gpu, Sequence
from deplodock.runtime.timing import copies_for, measure
from tests.lowering import terms

ROLES = {"atom": "wgmma", "copy": "tma", "roles": 1, "epilogue": "tma"}


def tiles(m: int, n: int, warps: int, stages: int, **knobs) -> dict:
    return ROLES | {"tile.m": m, "tile.n": n, "tile.k": 64, "warps.m": warps, "stages": stages} | knobs


def flash(s: int, t: int, warps: int, stages: int, **knobs) -> dict:
    return ROLES | {"tile.s": s, "tile.e": 128, "tile.s1": t, "tile.e1": 128, "warps.s": warps, "stages": stages,
                    "reverse.s": 1, "raster": "s,kv,g"} | knobs


def rms(x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], None, 1e-6)


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def attend(q, k, v):
    """q: [kv, g, s, e]; k, v: [kv, s, e]."""
    return causal(q.flatten(0, 1)[None], k[None], v[None])[0].view_as(q)


CASES: dict[str, tuple[Kernel, dict, Callable]] = {
    "matmul 4096x4096x4096": (terms.matmul(4096, 4096, 4096), tiles(128, 256, 8, 3, persistent=132),
                              lambda x, w: x @ w.T),
    "matmul + residual 512x3584x3584": (terms.matmul(512, 3584, 3584, "kn", "add"), tiles(128, 128, 8, 5),
                                        lambda x, w, r: x @ w + r),
    "gate/up with the norm 512x2048x5632": (terms.gate_up(512, 5632, 2048, norm=True), tiles(128, 96, 8, 4, persistent=132),
                                            lambda x, wg, wu: F.silu(rms(x) @ wg.T) * (rms(x) @ wu.T)),
    "causal attention 28(4)x2048x128": (terms.attention(28, 4, 2048, 128), flash(128, 128, 8, 2), attend),
}


def run(name: str, gpu: Gpu) -> dict:
    kernel, knobs, eager = CASES[name]
    cuda = lower_cuda(lower_kernel(lower_tile(replace(kernel, schedule=tuple(sorted(knobs.items()))))))
    (cubin,) = compile_all([(cuda.name, cuda.source)], "sm_90a", Cache("cubin"))
    names = [p.name for p in cuda.params]
    loaded = Sequence(gpu, (gpu.load(cuda, cubin, {n: i for i, n in enumerate(names)}),))
    buffers = {b.name: b for b in (*kernel.reads, *kernel.writes)}
    generator = torch.Generator("cuda").manual_seed(0)

    def tensors() -> dict[str, torch.Tensor]:
        made = {n: torch.randn([a.extent for a in b.axes], generator=generator, device="cuda") for n, b in buffers.items()}
        for n in made:
            if n.startswith("w"):
                made[n] *= made["x"].shape[-1] ** -0.5
        return {n: t.bfloat16() for n, t in made.items()}
    size = sum(t.numel() * 2 for t in tensors().values())
    sets = [tensors() for _ in range(copies_for(size))]
    inputs = [n for n in ("x", "w", "wg", "wu", "r", "q", "k", "v") if n in buffers]

    def launch(s: dict[str, torch.Tensor]) -> torch.Tensor:
        loaded.run(tuple(s[n] for n in names))
        return s["y"]
    seen = []
    for _ in range(6):
        sets[0]["y"].fill_(float("nan"))
        seen.append(launch(sets[0]).clone())
    exact = eager(*(sets[0][n].double() for n in inputs))
    error = lambda y: float((y.double() - exact).norm() / exact.norm())
    others = {"eager": lambda s: eager(*(s[n] for n in inputs))}
    if "q" in buffers:
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            def with_backend(s, backend=backend):
                with sdpa_kernel(backend):
                    return eager(*(s[n] for n in inputs))
            others[backend.name.lower()] = with_backend
    found = measure({"deplodock": [lambda s=s: launch(s) for s in sets],
                     **{label: [lambda s=s, f=f: f(s) for s in sets] for label, f in others.items()}})
    return {"case": name, "error": error(seen[-1]), "eager_error": error(others["eager"](sets[0])),
            "repeats": all(torch.equal(seen[0], y) for y in seen), "registers": cubin.registers, "spills": cubin.spills,
            "schedule": knobs, "us": {label: t.cold for label, t in found.items()}, "hot_us": {label: t.hot for label, t in found.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    gpu, rows = Gpu(0, "sm_90a"), []
    head = about(torch.cuda.get_device_name(), "-")
    lines = ["# " + ", ".join(f"{k} {v}" for k, v in head.items()), "",
             "bf16, schedules given by hand. Microseconds of device time, cold; ratio is PyTorch's time over ours.", "",
             "| case | error | eager's | bit-equal | registers | us | PyTorch us | ratio |", "|---|---|---|---|---|---|---|---|"]
    with torch.no_grad():
        for name in CASES:
            if args.only not in name:
                continue
            r = run(name, gpu)
            rows.append(r)
            mine = r["us"]["deplodock"]
            rest = {k: v for k, v in r["us"].items() if k != "deplodock"}
            lines.append(f"| {name} | {r['error']:.2e} | {r['eager_error']:.2e} | {'yes' if r['repeats'] else 'NO'} | {r['registers']} | {mine:.1f} | "
                         + ", ".join(f"{k} {v:.1f}" for k, v in rest.items()) + " | " + ", ".join(f"{v / mine:.2f}" for v in rest.values()) + " |")
            print(lines[-1], flush=True)
    write_lines(args.out, "hopper", head, rows, lines)


if __name__ == "__main__":
    main()
