"""Programs all the way through the compiler: compiled, run on the emulation, judged by the promise."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import torch
import torch.nn.functional as F

from benchmarks.cases import DTYPES, FUNCTIONS, Case
from deplodock.capture import Captured, capture_code, capture_module
from deplodock.ir.plan import Plan
from deplodock.pipeline import Compilation, Region, compile
from deplodock.runtime.check import check
from deplodock.runtime.compile import compile_all
from deplodock.runtime.program import CompiledProgram, Loadable
from deplodock.target import target
from extract.naming import key
from extract.schedule import schedule

KINDS = tuple(FUNCTIONS)


def program(function: Callable, tensors: Sequence[torch.Tensor], numerics: str = "default") -> Compilation:
    """A function or module of tensors, ready to be compiled for these ones."""
    return compile(capture_module(function, tuple(tensors)), "h200", numerics)


def wrong(x: Compilation) -> list[str]:
    """What is wrong with what a program computes on its example inputs; EmulationFault for how it does."""
    c: Captured = x.captured
    compiled = CompiledProgram(Loadable(x.torch, x.plan, x.cuda, x.target.arch), c.parameters, "cpu")
    with torch.no_grad():
        reports = check(compiled, x.torch, c.inputs, c.parameters, c.eager(*c.inputs))
    return [str(r.error()) for r in reports if not r.ok]


def broken(function: Callable, tensors: Sequence[torch.Tensor], numerics: str = "default") -> list[str]:
    """What is wrong with a function of tensors, compiled and run."""
    return wrong(program(function, tensors, numerics))


def with_plan(x: Compilation, plan: Plan) -> Compilation:
    """The same program on its way down by another plan, not scheduled yet."""
    r = x.region
    return _with_region(x, replace(r), {"entered": r.entered, "saturation": r.saturation, "extraction": r.extraction,
                                        "plan": schedule(plan, r.facts, r.target)})


def for_target(x: Compilation, name: str) -> Compilation:
    """The same program for another target; the e-graph depends on none."""
    r, to = x.region, target(name)
    return _with_region(replace(x, target=to), replace(r, target=to), {"entered": r.entered, "saturation": r.saturation})


def _with_region(x: Compilation, region: Region, stages: dict[str, object]) -> Compilation:
    """A program of one region, that has been through some stages."""
    vars(region).update(stages)
    made = replace(x)
    vars(made)["regions"] = region,
    return made


def complaints(x: Compilation) -> dict[str, tuple[str, ...]]:
    """What the CUDA compiler has to say against a program's kernels: spills, serialised products."""
    made = compile_all([(k.name, k.source) for k in x.cuda], x.target.arch)
    return {code.name: code.complaints for code in made if code.complaints}


def keys(x: Compilation) -> list:
    """The kernels of the best plan, up to the names of axes."""
    return [key(k) for k in x.region.extraction.plans[0].kernels]


@lru_cache(maxsize=None)
def from_code(code: str, numerics: str = "default") -> Compilation:
    return compile(capture_code(code), "h200", numerics)


def normal(*shape: int, dtype: str = "f32", seed: int = 0) -> torch.Tensor:
    """Normal data."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DTYPES[dtype])


def arguments(kind: str, shapes: Sequence[tuple[int, ...]], dtype: str) -> tuple[torch.Tensor, ...]:
    """Inputs of a kind of the suite, as the suite draws them; the additive mask of attention comes with it."""
    return Case("", kind, tuple(shapes), dtype).inputs("cpu")


def causal(rows: int, low: float = -math.inf, dtype: str = "f32", dead: bool = False) -> torch.Tensor:
    """An additive mask. dead: one row in the middle is masked wholly."""
    mask = torch.full((rows, rows), low).triu(1)
    if dead:
        mask[rows // 2] = low
    return mask.to(DTYPES[dtype])


def attend(q, k, v, mask, scale=None):
    """Attention as it is spelled out."""
    return F.softmax(q @ k.transpose(-2, -1) * (scale or q.shape[-1] ** -0.5) + mask, -1) @ v
