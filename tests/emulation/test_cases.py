"""Every case of lowering, as CUDA text on the emulation: nothing to report in two schedules, the promise kept.

The reference is ir/meaning.py in float64; in eager's place stands the same term with every operator rounded to its dtype,
and, as in attention's second product, the weights of an online fold to the dtype of its values.
"""
from __future__ import annotations

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest
import torch

from deplodock.ir.cuda import CudaKernel
from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Body, Buffer, Cast, Fold, RoundTo, children, dtype, exp, gathers, loads, op
from deplodock.ir.meaning import NUMPY, Meaning, Named
from deplodock.ir.plan import Kernel
from deplodock.lower.cuda import lower_cuda
from deplodock.lower.kernel import lower_kernel
from deplodock.lower.tile import lower_tile
from deplodock.reference import within_promise
from deplodock.runtime.emulation import run_program
from tests.lowering.cases import CASES, Case


class Eager(Meaning):
    """The rounded reading of a term, as eager PyTorch computes it."""

    def _fold(self, f: Fold) -> Named:
        if f.monoid == "online" and f.part and isinstance(f.bodies[1], Cast) and dtype(f.bodies[1].body).is_16bit:
            score, value = f.bodies
            weight = RoundTo(dtype(value.body), exp(op("sub", score, Fold("max", f.axes, (score,), 0))))
            return self.body(Fold("sum", f.axes, (op("mul", weight, value),), 0))
        return super()._fold(f)


def text_of(case: Case) -> CudaKernel:
    return lower_cuda(lower_kernel(lower_tile(case.kernel, case.facts)))


def longest_fold(b: Body) -> int:
    """Terms of the longest fold in a body."""
    own = math.prod(a.extent for a in b.axes) if isinstance(b, Fold) else 1
    return max([own, *map(longest_fold, children(b))])


def tensor(array: np.ndarray) -> torch.Tensor:
    """NumPy has no bf16 of its own, so torch does not know it."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array))


def drawn(b: Buffer, kernel: Kernel, rng: np.random.Generator, count: int) -> np.ndarray:
    """Values for the memory of a buffer."""
    d = NUMPY[b.dtype]
    if b.dtype.is_float:
        return rng.standard_normal(count).astype(d)
    if b.dtype is Dtype.b8:
        return rng.random(count) < 0.9
    limits = [l.tensor.axes[i].extent for o in kernel.outs for l in loads(o.body) for i, at in enumerate(l.indices)
              for body in gathers((at,)) if b in {x.tensor for x in loads(body)}]
    if limits:                               # indices at which another tensor is loaded
        return rng.integers(0, min(limits), count).astype(d)
    return (rng.integers(1, 90, count) * (1 if b.dtype is Dtype.u8 else rng.choice([-1, 1], count))).astype(d)


def memory(case: Case, b: Buffer, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The memory of an input, at an address that is aligned as its facts say and no better, and the tensor it holds."""
    shape, d = tuple(a.extent for a in b.axes), np.dtype(NUMPY[b.dtype])
    facts = case.facts.get(b.name)
    if facts is None:
        flat = drawn(b, case.kernel, rng, math.prod(shape))
        return flat, flat.reshape(shape)
    span = 1 + sum((n - 1) * s for n, s in zip(facts.shape, facts.strides))
    room = np.zeros(span * d.itemsize + 512, np.uint8)
    start = -room.ctypes.data % 256 + facts.alignment
    flat = room[start:start + span * d.itemsize].view(d)
    flat[...] = drawn(b, case.kernel, rng, span)
    strided = np.lib.stride_tricks.as_strided(flat, facts.shape, tuple(s * d.itemsize for s in facts.strides))
    return flat, strided


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    case = CASES[name]
    kernel, rng = case.kernel, np.random.default_rng(0)
    inputs = {b: memory(case, b, rng) for b in kernel.reads}
    values = {b: v for b, (_, v) in inputs.items()}
    exact, rounded = Meaning(values, exact=True), Eager(values, exact=False)
    made = text_of(case)
    for seed in range(2):
        outs = {o.buffer.name: np.empty([a.extent for a in o.axes], NUMPY[o.buffer.dtype]) for o in kernel.outs}
        run_program([made], {b.name: flat for b, (flat, _) in inputs.items()} | outs, seed=seed, timeout=120)
        for o in kernel.outs:
            y64, eager = (tensor(np.array(m.over(o.body, o.axes))) for m in (exact, rounded))
            y = tensor(outs[o.buffer.name])
            if not y.is_floating_point():
                y64 = y64.to(y.dtype)
            terms = longest_fold(o.body)
            verdict = within_promise(y, y64, eager.to(y.dtype), terms)
            if y.dtype == torch.float64:     # here eager is the reference, and no element may differ: let it by √terms
                verdict = dataclasses.replace(verdict, excess=verdict.excess / math.sqrt(terms))
            assert verdict.ok, (o.buffer.name, verdict)
