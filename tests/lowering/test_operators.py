"""Every operator of ir/ops.py on every dtype that has it, and every cast: the emitted C against NumPy and torch."""
from __future__ import annotations

import numpy as np
import pytest
import torch

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis
from deplodock.ir.loop import Buffer, cast, load, op
from deplodock.ir.meaning import NUMPY
from deplodock.ir.ops import OPS
from deplodock.ir.plan import Kernel, Output
from deplodock.lower.cuda import lower_cuda
from deplodock.lower.kernel import lower_kernel
from deplodock.lower.tile import lower_tile
from deplodock.runtime.compile import compile_cuda
from deplodock.runtime.emulation import Launch, Pointer, emulate
from tests.lowering.running import torch_dtype

N = 96
BITWISE, SHIFTS = ("and", "or", "xor", "not"), ("shl", "shr")
COMPARISONS = ("eq", "ne", "lt", "le")
INTEGER = ("add", "sub", "mul", "floordiv", "truncdiv", "remainder", "fmod", "pow", "maximum", "minimum", "neg", "abs",
           "sign", *BITWISE, *SHIFTS, *COMPARISONS, "where")
FLOATING = tuple(n for n in OPS if n not in BITWISE + SHIFTS)
BOOLEAN = (*BITWISE, *COMPARISONS, "maximum", "minimum", "where")
ULPS = {"pow": 16, "floordiv": 1, "remainder": 1, "tan": 8, "sigmoid": 8, "expm1": 4, "erf": 4, "lgamma": 16}
"""Units in the last place that a function may be off, where it is not 4: CUDA's own bounds, more for sums of them and for
lgamma, whose twin in Python errs as much."""


def names_of(d: Dtype) -> tuple[str, ...]:
    return BOOLEAN if d == Dtype.b8 else FLOATING if d.is_float else INTEGER


def values(d: Dtype, which: int) -> np.ndarray:
    """Operands: ordinary ones first, then what is special about a dtype."""
    rng = np.random.default_rng(which)
    if d == Dtype.b8:
        return rng.random(N) < 0.5
    if d.is_float:
        x = rng.standard_normal(N) * 3
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.5, 1e-3, 88.0, -88.0]
        x[-len(special):] = rng.permutation(special)
        return x.astype(NUMPY[d]).astype(NUMPY[d.compute])
    info = np.iinfo(NUMPY[d])
    x = rng.integers(max(info.min, -1000), min(info.max, 1000), N, endpoint=True).astype(NUMPY[d])
    x[-8:] = rng.permutation([info.min, info.max, 0, 1, info.min, info.max, 2, info.max])
    return x


def operands(name: str, d: Dtype) -> list[np.ndarray]:
    a, b = values(d, 1), values(d, 2)
    if name == "lgamma":
        a = np.abs(a) + 3                                    # beyond its roots, near which Python's is off by more ulp
    if not d.is_float and d != Dtype.b8:
        if name in ("floordiv", "truncdiv", "remainder", "fmod"):
            b = np.where(b == 0, 3, b).astype(b.dtype)
        if name == "pow":
            b = (np.arange(N) % 6).astype(b.dtype)
        if name in SHIFTS:
            b = (np.arange(N) % (8 * d.bytes)).astype(b.dtype)
    return [values(Dtype.b8, 3), a, b] if name == "where" else [a, b][:OPS[name].arity]


def run(outs: dict[str, tuple], inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """outs: name -> (dtype, body over the axis n). What one kernel computes; it compiles for a GPU as well."""
    n = Axis("n", N)
    made = tuple(Output(Buffer(name, d, (n,), "output"), (n,), body) for name, (d, body) in outs.items())
    k = lower_cuda(lower_kernel(lower_tile(Kernel("points", made, (("lanes.n", 32), ("tile.n", 64), ("vec.n", 2))))))
    compile_cuda(k.name, k.source, "sm_80")
    results = {o.buffer.name: torch.empty(N, dtype=torch_dtype(o.buffer.dtype)) for o in made}
    arguments = tuple(Pointer(p.name) for p in k.params)
    launch = Launch(k.name, (k.grid, 1, 1), (k.threads, 1, 1), arguments, k.shared)
    emulate({k.name: k.text}, [launch], inputs | results, undefined=set(results))
    return results


@pytest.mark.parametrize("d", [d for d in Dtype if not d.is_16bit])
def test_operators(d):
    n = Axis("n", N)
    inputs, outs, wanted = {}, {}, {}
    for name in names_of(d):
        args = operands(name, d)
        bodies = []
        for i, x in enumerate(args):
            kind = Dtype.b8 if name == "where" and i == 0 else d
            same = next((known for known, y in inputs.items() if y.dtype == x.dtype and y.tobytes() == x.tobytes()),
                        f"{name}_{i}")
            inputs[same] = x
            bodies.append(load(Buffer(same, kind, (n,), "input"), n))
        result = Dtype.b8 if OPS[name].result == "b8" else d
        outs[f"y_{name}"] = (result, op(name, *bodies))
        with np.errstate(all="ignore"):
            wanted[f"y_{name}"] = np.asarray(OPS[name].numpy(*args)).astype(NUMPY[result])
    found = run(outs, {name: torch.from_numpy(x.copy()) for name, x in inputs.items()})
    wrong = {name: problem for name in outs
             if (problem := differs(found[name].numpy(), wanted[name], ULPS.get(name[2:], 4)))}
    assert wrong == {}


def differs(found: np.ndarray, wanted: np.ndarray, ulps: int) -> str:
    if not np.issubdtype(wanted.dtype, np.floating):
        at = np.flatnonzero(found != wanted)
        return f"{found[at[:3]]} for {wanted[at[:3]]} at {at[:3]}" if len(at) else ""
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    small = np.finfo(wanted.dtype).tiny * 2 ** 24
    with np.errstate(all="ignore"):
        near = np.abs(found - wanted) <= ulps * np.spacing(np.maximum(np.abs(wanted), small))
    at = np.flatnonzero(~(same | near))
    return f"{found[at[:3]]} for {wanted[at[:3]]} at {at[:3]}" if len(at) else ""


@pytest.mark.parametrize("source", Dtype)
def test_casts(source):
    """Floats outside of an integer's range have no meaning as one, so they stay inside."""
    n = Axis("n", N)
    x = values(source, 1)
    if source.is_float:
        x = np.clip(np.nan_to_num(x, nan=2.0), 0, 100).astype(x.dtype)
    stored = torch.from_numpy(x.copy()).to(torch_dtype(source))
    buffer = Buffer("x", source, (n,), "input")
    outs = {f"y_{d}": (d, cast(d, load(buffer, n))) for d in Dtype}
    found = run(outs, {"x": stored})
    for d in Dtype:
        assert torch.equal(found[f"y_{d}"], stored.to(torch_dtype(d))), d
