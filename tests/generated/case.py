"""A generated case: a few lines of PyTorch, and the tensors it is called with. Plain data, drawn by seed."""
from __future__ import annotations

import linecache
import math
import re
from dataclasses import dataclass, field
from functools import cache
from random import Random

import torch
import torch.nn.functional as F

from deplodock.ir.dtype import Dtype

DTYPES = {str(d): getattr(torch, d.torch_name) for d in Dtype}
"""Names of Torch IR, of the dtypes that it has operators for and of those it only stores."""
NAMES = {t: name for name, t in DTYPES.items()}
COMPUTED = tuple("f32 f16 bf16 f64 i8 i16 i32 i64 u8 b8".split())
LAYOUTS = "plain transposed sliced expanded offset".split()


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor that a case is called with.

    values: normal; special (some elements NaN, infinite, -0, the largest and smallest); nonfinite (those of them that are NaN,
    infinite, or -0); positive; unit (between 0 and 1);
    divisor (no zero); index N (from 0 to N - 1) or index -N (from -N); mask (0 and -inf).
    """
    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: str = "plain"
    values: str = "normal"
    seed: int = 0

    def tensor(self, draw: int = 0) -> torch.Tensor:
        """The tensor itself; draw: another one of its kind."""
        data = _values(self.values, DTYPES[self.dtype], math.prod(self.shape), Random(f"{self.seed} {draw}")).reshape(self.shape)
        rank = len(self.shape)
        match self.layout:
            case "transposed" if rank > 1:
                order = [*range(1, rank), 0]
                return data.permute(order).contiguous().permute([rank - 1, *range(rank - 1)])
            case "sliced" if rank:
                wide = torch.zeros(*self.shape[:-1], 2 * self.shape[-1] + 1, dtype=data.dtype)
                wide[..., 1::2] = data
                return wide[..., 1::2]
            case "expanded" if rank and self.shape[0] > 1:
                return data[:1].clone().expand(self.shape)
            case "offset":
                memory = torch.zeros(data.numel() + 3, dtype=data.dtype)
                memory[3:] = data.reshape(-1)
                return memory[3:].view(self.shape)
        return data

    @property
    def text(self) -> str:
        """An expression that makes a tensor of this shape, dtype and kind."""
        dtype, name = DTYPES[self.dtype], DTYPES[self.dtype]
        if self.values in ("special", "nonfinite", "mask") and math.prod(self.shape) <= 64:
            return f"torch.tensor({self.tensor().tolist()}, dtype={dtype})"
        if dtype == torch.bool:
            return f"torch.randint(0, 2, {self.shape}).bool()"
        if not dtype.is_floating_point:
            low, high = _bounds(self.values, dtype)
            return f"torch.randint({low}, {high}, {self.shape}, dtype={name})"
        made = f"torch.randn({self.shape}, dtype={name})"
        if self.values == "unit":
            return f"{made}.sigmoid()"
        return f"({made}.abs() + 0.1)" if self.values in ("positive", "divisor") else made


def _bounds(values: str, dtype: torch.dtype) -> tuple[int, int]:
    """From where to where integers are drawn, the upper end left out."""
    if values.startswith("index"):
        n = int(values.split()[1])
        return (0, n) if n > 0 else (n, max(-n, 1))
    return (1, 9) if values in ("positive", "divisor") else (0 if dtype in UNSIGNED else -9, 10)


UNSIGNED = {torch.uint8, *(getattr(torch, n) for n in ("uint16", "uint32", "uint64"))}


def _values(values: str, dtype: torch.dtype, count: int, random: Random) -> torch.Tensor:
    generator = torch.Generator().manual_seed(random.getrandbits(40))
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if not dtype.is_floating_point:
        low, high = _bounds(values, dtype)
        data = torch.randint(low, high, (count,), generator=generator).to(dtype)
        if values == "divisor" and dtype not in UNSIGNED:
            data *= (1 - 2 * torch.randint(0, 2, (count,), generator=generator)).to(dtype)
            data[data == -1] = -2                            # the lowest integer over -1 traps
    else:
        data = torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)
        if values in ("positive", "divisor"):
            data = data.abs() + 0.125
        if values == "unit":
            data = data.sigmoid()
    if values == "mask" and dtype.is_floating_point:
        data[torch.rand(count, generator=generator) < 0.3] = -math.inf
    if values in ("special", "nonfinite"):
        chosen = [s for s in specials(dtype) if values == "special" or not dtype.is_floating_point or s == 0 or not math.isfinite(s)]
        for at in random.sample(range(count), (count + 2) // 3):
            data[at] = random.choice(chosen)
    return data


def specials(dtype: torch.dtype) -> list[float]:
    if not dtype.is_floating_point:
        return [torch.iinfo(dtype).max, torch.iinfo(dtype).min, 0]
    info = torch.finfo(dtype)
    return [math.nan, math.inf, -math.inf, 0.0, -0.0, info.max, info.min, info.smallest_normal]


@dataclass(frozen=True, slots=True)
class Case:
    """label: how it is found again. lines: statements over the names of what is given; outputs: the names returned."""
    label: str
    givens: tuple[Given, ...]
    lines: tuple[str, ...]
    outputs: tuple[str, ...]
    numerics: str = "default"
    rows: tuple[str, ...] = field(default=())
    """The rows of the capture table that it calls."""

    def function(self):
        return _function(self.label, self.source)

    @property
    def source(self) -> str:
        head = f"def program({', '.join(g.name for g in self.givens)}):"
        return "\n".join([head, *(f"    {line}" for line in self.lines), f"    return ({', '.join(self.outputs)},)", ""])

    def tensors(self, draw: int = 0) -> list[torch.Tensor]:
        return [g.tensor(draw) for g in self.givens]

    @property
    def code(self) -> str:
        """The same as a program of `deplodock run -c`, with random data where they are not special."""
        made = [f"{g.name} = {g.text}" for g in self.givens]
        last = f"({', '.join(self.outputs)},)" if len(self.outputs) > 1 else self.outputs[0]
        return "\n".join([*made, *self.lines, last])

    @property
    def layouts(self) -> str:
        """What the program's text does not say of its inputs."""
        return ", ".join(f"{g.name} is {g.layout}" for g in self.givens if g.layout != "plain")


@cache
def _function(label: str, source: str):
    file = f"<{label}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    scope = {"torch": torch, "F": F, "inf": math.inf, "nan": math.nan}
    exec(compile(source, file, "exec"), scope)
    return scope["program"]


def names_in(line: str) -> set[str]:
    """The names of tensors that a statement mentions."""
    return set(re.findall(r"\b[xv]\d+\b", line))
