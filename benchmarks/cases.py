"""The programs of the suite: operators at the shapes of TinyLlama-1.1B and Qwen2.5-7B, and a TinyLlama decoder layer."""
from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.examples.decoder import DecoderLayer, Sizes, rotary

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
LENGTHS = (32, 128, 512)
"""Sequence lengths of the decoder layer; the operators' are in cases.json."""

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


class Function(nn.Module):
    def __init__(self, op: str):
        super().__init__()
        self.function = FUNCTIONS[op]

    def forward(self, *tensors):
        return self.function(*tensors)


@dataclass(frozen=True)
class Case:
    """A program at given shapes, in one dtype. Plain data: it travels between processes."""
    name: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str

    def module(self, device: str, seed: int | None = 1) -> nn.Module:
        """The program; its parameters hold nothing where seed is None."""
        return _layer(device, DTYPES[self.dtype], seed) if self.op == "layer" else Function(self.op)

    def example(self) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        """The program and inputs that hold nothing, on the CPU: capture looks at their shapes alone."""
        made = self._extended([torch.empty(s, device="meta") for s in self.shapes], "meta")
        return self.module("cpu", None), tuple(torch.empty(t.shape, dtype=DTYPES[self.dtype]) for t in made)

    def inputs(self, device: str, seed: int = 0) -> tuple[torch.Tensor, ...]:
        """Normal data; second matrices are scaled by K^-1/2, norm weights are drawn around 1."""
        generator = torch.Generator(device).manual_seed(seed)
        made = self._extended([torch.randn(s, generator=generator, device=device) for s in self.shapes], device)
        return tuple(t.to(DTYPES[self.dtype]) for t in made)

    def walls(self, ours, eager) -> tuple[float, float] | None:
        """How long a call of either side takes where device time cannot be told from CUDA graphs: it can."""
        return None

    def _extended(self, made: list[torch.Tensor], device: str) -> list[torch.Tensor]:
        match self.op:
            case "matmul" | "matmul_add": made[1] *= self.shapes[1][0] ** -0.5
            case "silu_mul_matmul": made[2] *= self.shapes[2][0] ** -0.5
            case "rmsnorm": made[1] = 1 + 0.1 * made[1]
            case "naive_attn":
                n = self.shapes[0][-2]
                made.append(torch.full((n, n), -math.inf, device=device).triu(1))
            case "layer": made += (t.to(device) for t in rotary(self.shapes[0][1], Sizes().head, torch.float32))
        return made


def cases(dtypes: list[str], only: str = "") -> list[Case]:
    """Every case in every dtype, in the order of the file, the decoder layer last. only: a part of the name."""
    rows = json.loads((Path(__file__).parent / "cases.json").read_text())
    found = [(r["name"], r["op"], tuple(map(tuple, r["shapes"]))) for r in rows]
    found += [(f"layer.tinyllama.s{n}", "layer", ((1, n, 2048),)) for n in LENGTHS]
    return [Case(*row, d) for d in dtypes for row in found if only in row[0]]


def _layer(device: str, dtype: torch.dtype, seed: int | None) -> nn.Module:
    """The decoder layer, with norm weights drawn around 1 and matrices scaled by K^-1/2."""
    with torch.device("meta"):
        module = DecoderLayer(Sizes()).eval()
    module.to(dtype).to_empty(device=device).requires_grad_(False)
    if seed is not None:
        generator = torch.Generator(device).manual_seed(seed)
        for name, p in module.named_parameters():
            drawn = torch.randn(p.shape, generator=generator, device=device)
            p.copy_(1 + 0.1 * drawn if "norm" in name else drawn * p.shape[-1] ** -0.5)
    return module
