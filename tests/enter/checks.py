"""What an entered program computes, beside PyTorch."""
from __future__ import annotations

import numpy as np
import torch

from deplodock.capture import Captured, capture_code
from deplodock.enter import Entered, enter
from deplodock.ir.meaning import NUMPY, Meaning
from deplodock.reference import reference, within_promise


def evaluate(entered: Entered, captured: Captured, exact: bool) -> list[np.ndarray]:
    """The outputs of an entered program on the captured example inputs, in the user's shapes."""
    tensors = [*captured.inputs, *(captured.parameters[v.name] for v in captured.program.parameters)]
    meaning = Meaning({b: array(t).reshape([a.extent for a in b.axes])
                       for b, t in zip(entered.inputs + entered.parameters, tensors, strict=True)}, exact)
    return [meaning.tensor(r.tensor).reshape([int(np.prod([a.extent for a in d], initial=1)) for d in r.dims])
            for r in entered.outputs]


def array(t: torch.Tensor) -> np.ndarray:
    """A tensor as NumPy sees it, bfloat16 included."""
    t = t.detach()
    return t.float().numpy().astype(NUMPY["bf16"]) if t.dtype == torch.bfloat16 else t.numpy()


def check(text: str) -> Entered:
    """Enters a program of `-c` and checks it as check_captured does."""
    return check_captured(capture_code(text))


def check_captured(captured: Captured) -> Entered:
    """Enters a program: in exact arithmetic it must be the reference; with 16-bit floats, it must keep the promise.

    In fp32 the promise is about the order of sums, which entering does not choose.
    """
    entered = enter(captured.program)
    wide = reference(captured.program, captured.inputs, captured.parameters)
    for y, y64 in zip(evaluate(entered, captured, True), wide, strict=True):
        assert y.shape == tuple(y64.shape), (y.shape, tuple(y64.shape))
        np.testing.assert_allclose(y, y64.numpy(), rtol=1e-9, atol=1e-11)
    if not any(v.dtype.is_16bit for v in (*captured.program.inputs, *captured.program.nodes)):
        return entered
    for y, y64, eager in zip(evaluate(entered, captured, False), wide, captured.eager(*captured.inputs), strict=True):
        got = torch.from_numpy(np.array(y.astype(np.float64) if eager.is_floating_point() else y)).to(eager.dtype)
        verdict = within_promise(got, y64, eager)
        assert verdict.ok, verdict
    return entered
