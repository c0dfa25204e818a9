"""Models against PyTorch, on this machine's GPU: decoder layers as transformers has them, and whole models.

    python -m benchmarks.models [--only TEXT] [--numerics default] [--seconds 500] [--out benchmarks/results]

The models are the configurations in benchmarks/models, with drawn weights. Layers are checked and timed as the suite does
it (benchmarks/suite.py). Whole models run a forward pass of 128 tokens in bf16; their logits are checked, and calls of
both sides take turns, timed one by one with what the host adds.
"""
from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from benchmarks.suite import options, report

FOLDER = Path(__file__).parent / "models"
LENGTHS = (32, 128, 512)
WHOLE = 128
"""Tokens of a whole model's forward pass."""
CALLS = 21


class Called(nn.Module):
    """A module as a function of the tensors among its arguments."""

    def __init__(self, module: nn.Module, args: tuple, named: dict):
        super().__init__()
        self.module = module
        self.leaves, self.tree = tree_flatten((args, named))

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return tuple(t for t in self.leaves if isinstance(t, torch.Tensor))

    def forward(self, *tensors: torch.Tensor):
        given = iter(tensors)
        args, named = tree_unflatten([next(given) if isinstance(t, torch.Tensor) else t for t in self.leaves], self.tree)
        return self.module(*args, **named)


@dataclass(frozen=True)
class ModelCase:
    """A model, or its layer of that number, at a length, in one dtype. Plain data: it travels between processes."""
    name: str
    model: str
    layer: int | None
    tokens: int
    dtype: str

    def module(self, device: str, seed: int | None = 1) -> Called:
        from deplodock.capture.model import model_example
        return Called(*model_example(FOLDER / self.model, self.layer, self.tokens, dtype=self.dtype, device=device, seed=seed))

    def example(self) -> tuple[Called, tuple[torch.Tensor, ...]]:
        """The module, whose weights hold nothing, and what it is called with, on the CPU."""
        module = self.module("cpu", None)
        return module, module.tensors

    def inputs(self, device: str) -> tuple[torch.Tensor, ...]:
        return self.module(device).tensors

    def walls(self, ours, eager) -> tuple[float, float] | None:
        """Microseconds of a call of a whole model, ours and eager's, host included: eager's mask code cannot be captured
        in a CUDA graph. None for a layer."""
        return None if self.layer is not None else walls(ours, eager)


def cases(only: str = "") -> list[ModelCase]:
    found = []
    for folder in sorted(p.name for p in FOLDER.iterdir()):
        found += [ModelCase(f"{folder}.layer.s{n}", folder, 0, n, d) for d in ("f32", "bf16") for n in LENGTHS]
        found.append(ModelCase(f"{folder}.whole.s{WHOLE}", folder, None, WHOLE, "bf16"))
    return [c for c in found if only in c.name]


def walls(ours, eager) -> tuple[float, float]:
    """Microseconds of a call from one synchronisation to the next, the two in turns: medians."""
    samples: tuple[list[float], list[float]] = [], []
    for _ in range(CALLS):
        for call, times in zip((ours, eager), samples):
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) * 1e6)
    ours, eager = (median(s[1:]) for s in samples)
    return ours, eager


if __name__ == "__main__":
    args = options(__doc__).parse_args()
    report(cases(args.only), args, "models-")
