"""Hand-written kernels (kernels/*.cu) with their launches, inputs and what they should compute.

Sizes are chosen so that rings wrap and blocks take several tiles: what does not happen is not tested.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import ml_dtypes
import numpy as np

from deplodock.ir.cuda import Map
from deplodock.ir.dtype import Dtype
from deplodock.runtime.emulation import Launch, Pointer, emulate

KERNELS = Path(__file__).parent / "kernels"
BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Case:
    """want: the value of `out` in float64, computed from the inputs. tolerance: relative, in the Frobenius norm."""
    launch: Launch
    inputs: dict[str, np.ndarray]
    out: str
    shape: tuple[int, ...]
    dtype: np.dtype
    want: Callable[..., np.ndarray]
    tolerance: float
    scratch: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return (KERNELS / f"{self.launch.kernel}.cu").read_text()

    def run(self, text: str = "", launch: Launch | None = None, **options) -> float:
        """Runs the kernel, or another text of its; returns the relative error."""
        arrays = {n: a.copy() for n, a in (self.inputs | self.scratch).items()} | {self.out: np.empty(self.shape, self.dtype)}
        undefined = {self.out} | {n for n, a in self.scratch.items() if not a.size or np.issubdtype(a.dtype, np.floating)}
        launch = launch or self.launch
        emulate({launch.kernel: text or self.text}, [launch], arrays, undefined=undefined, timeout=60, **options)
        for name, before in self.inputs.items():
            assert arrays[name].tobytes() == before.tobytes(), f"{name} was written"
        want = self.want(*(a.astype(np.float64) for a in self.inputs.values()))
        return float(np.linalg.norm(arrays[self.out].astype(np.float64) - want) / np.linalg.norm(want))


def _draw(*shape: int, dtype=np.float32, scale: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return (rng.standard_normal(shape) * scale).astype(dtype)


def _map(name: str, shape: tuple[int, int], box: tuple[int, int]) -> Map:
    return Map(name, name, Dtype.bf16, shape, (2 * shape[1],), box, 128)


def _pointers(*names: str) -> tuple[Pointer, ...]:
    return tuple(map(Pointer, names))


def _attend(q, k, v):
    p = (q @ k.T).astype(BF16).astype(np.float64)
    return p @ v


CASES = {
    "add": Case(
        Launch("add", (40, 1, 1), (256, 1, 1), (*_pointers("x", "y", "z"), 10000)),
        {"x": _draw(10000), "y": _draw(10000)}, "z", (10000,), np.float32, lambda x, y: x + y, 1e-6),
    "rmsnorm": Case(
        Launch("rmsnorm", (4, 1, 1), (256, 1, 1), _pointers("x", "w", "y")),
        {"x": _draw(4, 2048), "w": _draw(2048)}, "y", (4, 2048), np.float32,
        lambda x, w: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w, 1e-6),
    "reverse": Case(
        Launch("reverse", (1, 1, 1), (128, 1, 1), _pointers("x", "y")),
        {"x": _draw(4, 32)}, "y", (4, 32), np.float32, lambda x: x[:, ::-1], 0.0),
    "matmul": Case(
        Launch("matmul", (2, 2, 1), (256, 1, 1), (*_pointers("a", "b", "c"), 64, 128, 96)),
        {"a": _draw(64, 96), "b": _draw(96, 128)}, "c", (64, 128), np.float32, lambda a, b: a @ b, 1e-6),
    "mma": Case(
        Launch("mma", (2, 1, 1), (128, 1, 1), (*_pointers("a", "b", "c"), 64, 104, 192), 3 * 8192 + 1024),
        {"a": _draw(64, 192, dtype=BF16), "b": _draw(104, 192, dtype=BF16)}, "c", (64, 104), BF16,
        lambda a, b: a @ b.T, 2 ** -8),
    "attend": Case(
        Launch("attend", (1, 1, 1), (128, 1, 1),
               (_map("q", (64, 64), (64, 64)), Pointer("k"), _map("v", (64, 64), (64, 64)), Pointer("out")), 3 * 8192 + 8 + 1024),
        {n: _draw(64, 64, dtype=BF16, scale=s) for n, s in (("q", 0.2), ("k", 0.25), ("v", 0.3))}, "out", (64, 64), np.float32,
        _attend, 2 ** -8),
    "gemm": Case(
        Launch("gemm", (2, 1, 1), (384, 1, 1),
               (_map("a", (200, 320), (128, 64)), _map("b", (136, 320), (64, 64)), _map("c", (200, 136), (64, 64)),
                200, 136, 320), 3 * 24576 + 2 * 8192 + 48 + 1024),
        {"a": _draw(200, 320, dtype=BF16), "b": _draw(136, 320, dtype=BF16)}, "c", (200, 136), BF16,
        lambda a, b: a @ b.T, 2 ** -8),
    "splitk": Case(
        Launch("splitk", (12, 1, 1), (64, 1, 1), (*_pointers("x", "partial", "count", "y"), 384)),
        {"x": _draw(4, 384)}, "y", (4,), np.float32, lambda x: x.sum(1), 1e-5,
        {"partial": np.zeros(12, np.float32), "count": np.zeros(4, np.int32)}),
    "cluster": Case(
        Launch("cluster", (4, 1, 1), (64, 1, 1), (_map("x", (384, 64), (64, 64)), Pointer("y"), 3), 8192 + 16 + 1024, 2),
        {"x": _draw(384, 64, dtype=BF16)}, "y", (384, 64), np.float32, lambda x: 2 * x, 0.0),
}
