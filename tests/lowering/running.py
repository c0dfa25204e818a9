"""Runs a case down to CUDA text and on the emulation of a GPU, beside the meaning of its bodies in float64."""
from __future__ import annotations

from typing import Mapping

import numpy as np
import torch

from deplodock.ir.cuda import CudaKernel
from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Gathered
from deplodock.ir.kernel import Kernel
from deplodock.ir.loop import Buffer, Load, loads
from deplodock.ir.meaning import Meaning
from deplodock.lower.cuda import lower_cuda
from deplodock.lower.kernel import lower_kernel
from deplodock.lower.tile import lower_tile
from deplodock.runtime.emulation import Launch, Pointer, emulate
from tests.lowering.cases import Case

HALF_ULP = {Dtype.bf16: 2.0 ** -8, Dtype.f16: 2.0 ** -11, Dtype.f32: 3e-7, Dtype.f64: 1e-14}
"""Relative error (Frobenius) that a tensor of a dtype may have anyway; else twice that of rounding each operator."""


def torch_dtype(d: Dtype) -> torch.dtype:
    return getattr(torch, d.torch_name)


def lowered(case: Case) -> Kernel:
    """Kernel IR; lowering ends with its verifier."""
    return lower_kernel(lower_tile(case.kernel, case.facts))


def cuda(case: Case) -> CudaKernel:
    return lower_cuda(lowered(case))


def run(case: Case, made: CudaKernel, seed: int = 0, text: str | None = None,
        given: Mapping[str, torch.Tensor] | None = None) -> list[str]:
    """What is wrong with the outputs; EmulationFault for how they were computed. text: in place of the kernel's own;
    given: values of inputs, in place of those drawn."""
    generator = torch.Generator().manual_seed(0)
    limits = {g.body.tensor: g.extent for g in _gathered(case)}
    inputs = {b: drawn(b, case, generator, limits.get(b)) for b in case.kernel.reads}
    inputs |= {b: given[b.name] for b in inputs if given and b.name in given}
    written = [o.buffer for o in case.kernel.outs]
    outputs = {b.name: torch.empty([a.extent for a in b.axes], dtype=torch_dtype(b.dtype)) for b in written}
    if made.grid:
        arguments = (*(Pointer(p.name) for p in made.params), *made.maps)
        launch = Launch(made.name, (made.grid, 1, 1), (made.threads, 1, 1), arguments, made.shared)
        emulate({made.name: text or made.text}, [launch], {b.name: t for b, t in inputs.items()} | outputs,
                undefined=set(outputs), seed=seed, timeout=60)
    shapes = {b: [a.extent for a in b.axes] for b in inputs}
    values = {b: numpy(t).reshape(shapes[b]) for b, t in inputs.items()}
    meaning, eager = Meaning(values), Meaning(values, exact=False)
    coarsest = max((HALF_ULP[b.dtype] for b in (*inputs, *written) if b.dtype.is_float), default=0.0)
    wrong = []
    for o in case.kernel.outs:
        found, wanted = numpy(outputs[o.buffer.name]), meaning.over(o.body, o.axes)
        rounded = eager.over(o.body, o.axes).astype(wanted.dtype)
        wrong += compared(o.buffer, found, wanted, max(coarsest, 2 * relative_error(rounded, wanted)))
    return wrong


def _gathered(case: Case) -> list[Gathered]:
    """The loaded integers among the indices of a kernel, each a single load."""
    found = [atom for o in case.kernel.outs for l in loads(o.body) for i in l.indices for atom, _ in i.terms]
    return [g for g in found if isinstance(g, Gathered) and isinstance(g.body, Load)]


def numpy(t: torch.Tensor) -> np.ndarray:
    return t.double().numpy() if t.dtype.is_floating_point else t.numpy()


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    """Of floats, over what is finite; of other values 0."""
    if not np.issubdtype(wanted.dtype, np.floating):
        return 0.0
    finite = np.isfinite(wanted)
    return float(np.linalg.norm((found - wanted)[finite]) / max(np.linalg.norm(wanted[finite]), 1e-30))


def compared(b: Buffer, found: np.ndarray, wanted: np.ndarray, bound: float) -> list[str]:
    if not b.dtype.is_float:
        differ = int((found != wanted).sum())
        return [f"{b.name}: {differ} of {wanted.size} elements differ"] if differ else []
    if not np.array_equal(np.isnan(found), np.isnan(wanted)):
        return [f"{b.name}: NaN at other places"]
    error = relative_error(found, wanted)
    return [f"{b.name}: relative error {error:.2e}, {bound:.2e} is allowed"] if error > bound else []


def drawn(b: Buffer, case: Case, generator: torch.Generator, limit: int | None) -> torch.Tensor:
    """Values of a buffer, in its storage: normal around 1/4, so that long sums do not cancel; integers without 0;
    loaded indices inside their extent."""
    shape = [a.extent for a in b.axes]
    if b.dtype.is_float:
        x = torch.randn(shape, generator=generator, dtype=torch.float64) + 0.25
    elif b.dtype == Dtype.b8:
        x = torch.rand(shape, generator=generator) < 0.5
    elif limit:
        x = torch.randint(0, limit, shape, generator=generator)
    else:
        x = torch.randint(1, 50, shape, generator=generator) * (1 if b.dtype == Dtype.u8 else
                                                               torch.randint(0, 2, shape, generator=generator) * 2 - 1)
    x, storage = x.to(torch_dtype(b.dtype)), case.facts.get(b.name)
    if storage is None:
        return x
    offset = 0 if storage.alignment >= 16 else storage.alignment // b.dtype.bytes
    memory = torch.zeros(1 + offset + sum((n - 1) * s for n, s in zip(storage.shape, storage.strides)), dtype=x.dtype)
    own = [n if s else 1 for n, s in zip(storage.shape, storage.strides)]
    memory.as_strided(own, storage.strides, offset).copy_(x.reshape(storage.shape)[tuple(slice(0, n) for n in own)])
    return memory.as_strided(storage.shape, storage.strides, offset)
