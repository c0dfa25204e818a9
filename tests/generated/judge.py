"""Whether what a compiled case computes is right: by the promise, and bit for bit where nothing is rounded.

Three results are compared: the compiled program's, eager PyTorch's, and the reference's in float64. That the reference means
what PyTorch means is checked as well, by the same lines on float64 tensors.
"""
from __future__ import annotations

from collections.abc import Sequence

import torch

from deplodock.capture import Captured
from deplodock.reference import error, longest_fold, reference, within_promise
from deplodock.runtime.program import CompiledProgram
from tests.generated.case import Case

MOVES = set("reshape permute expand slice select cat embedding triu tril full where".split())
"""Operators of Torch IR that round nothing: their results are eager's, bit for bit but for the sign of zero."""
FOLDS = set("""sum mean prod amax amin softmax log_softmax layer_norm rms_norm matmul addmm linear einsum
    scaled_dot_product_attention conv conv_transpose avg_pool adaptive_avg_pool upsample_linear""".split())
"""Operators of Torch IR that add up products: their infinities may become NaN, and the other way round."""
DRAWS = 7
"""Draws of the inputs that a result is judged on together, where one draw's misses the bound: of few elements, eager's own
error, which the bound is made of, is luck."""
FEW = 8
"""Elements of an output that are few: all draws together may be one that counts, in which terms cancel."""
AGREE = 1e-6
"""Relative difference between two float64 evaluations of the same program."""
NOISE = 64
"""Units of rounding that a float64 evaluation may be off in proportion to eager's in its own dtype, where nothing but rounding
is left: x - mean of one element."""


def complaints(case: Case, captured: Captured, compiled: CompiledProgram) -> list[str]:
    """What is wrong with a case's results; empty if they are right."""
    first = _results(case, captured, compiled, 0)
    found = [c for i in range(len(case.outputs)) if (c := _wrong(captured, [first], i))]
    if found and not any(c.exact for c in found):
        more = [first, *(_results(case, captured, compiled, n) for n in range(1, DRAWS + 1))]
        found = [c for i in range(len(case.outputs))
                 if (c := _wrong(captured, more, i)) and (c.exact or not _luck(captured, more, i))]
    return list(map(str, found)) or _misread(case, captured, first)


class Complaint(str):
    exact = False
    """Whether another draw would change nothing."""


def _exact(text: str) -> Complaint:
    c = Complaint(text)
    c.exact = True
    return c


def _results(case: Case, captured: Captured, compiled: CompiledProgram, draw: int):
    """(given, computed, eager, exact, how far eager may be off) of one draw of the inputs."""
    tensors = case.tensors(draw)
    given = [tensors[at] for at in captured.positions]
    with torch.no_grad():
        eager = case.function()(*case.tensors(draw))
        computed = compiled(*given)
        if not all(map(_same, given, (case.tensors(draw)[at] for at in captured.positions))):
            raise AssertionError("an input was written to")
        exact = reference(captured.program, given, captured.parameters)
        return tensors, computed, eager, exact, _in_float64(case, draw, eager, exact)


def _in_float64(case: Case, draw: int, eager: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Results as far from the reference as arithmetic in float64 is, where that is eager's and the reference's both: what the
    same lines err in float32, in proportion."""
    if not any(e.dtype == torch.float64 for e in eager):
        return tuple(eager)
    try:
        narrow = case.function()(*(t.float() if t.dtype == torch.float64 else t for t in case.tensors(draw)))
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return tuple(eager)
    ratio = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps

    def off(e: torch.Tensor, n: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        if e.dtype != torch.float64 or n.dtype != torch.float32 or n.shape != e.shape:
            return e
        moved = e + (n.double() - x) * ratio
        return torch.where(torch.isfinite(moved) & torch.isfinite(e), moved, e)
    return tuple(map(off, eager, narrow, exact))


def _luck(captured: Captured, draws: Sequence[tuple], i: int) -> bool:
    """Whether output i has few elements, and misses the bound in a minority of draws, by less than half of its digits: where
    terms cancel, their roundings show, ours and eager's, and either may be the smaller. What is always lost shows in most."""
    if draws[0][1][i].numel() > FEW:
        return False
    missed = [d for d in draws if _wrong(captured, [d], i)]
    return 2 * len(missed) <= len(draws) and all(error(d[1][i], d[3][i]) ** 2 < torch.finfo(d[1][i].dtype).eps for d in missed)


def _wrong(captured: Captured, draws: Sequence[tuple], i: int) -> Complaint | None:
    """What is wrong with output i over some draws of the inputs."""
    y, e, exact, off = (torch.stack([d[part][i] for d in draws]) for part in (1, 2, 3, 4))
    ops, name = {n.op for n in captured.program.nodes}, captured.program.outputs[i]
    if y.dtype != e.dtype or y.shape != e.shape:
        return _exact(f"{name} is {y.dtype} {list(y.shape)}, eager's {e.dtype} {list(e.shape)}")
    if not y.is_floating_point() or ops <= MOVES:
        return None if _same(y, e) else _exact(f"{name}: {int((~_equal(y, e)).sum())} of {y.numel()} elements are not eager's")
    v = within_promise(y, exact, off, longest_fold(captured.program))
    if not (v.nan_match or ops & FOLDS and _finite_alike(y, e, exact)):
        return _exact(f"{name}: NaN or infinities where the reference and eager have none, or none where they have them")
    if len(draws) > 1:
        v = within_promise(*alike(y, exact, off), longest_fold(captured.program))
    if v.rel_err > v.bound:
        return Complaint(f"{name}: relative error {v.rel_err:.2e}, allowed {v.bound:.2e} (eager's {v.eager_rel_err:.2e})")
    return Complaint(f"{name}: an element {v.excess:.1f} times as far off as allowed") if v.excess > 1 else None


def _finite_alike(y: torch.Tensor, e: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether each element is finite where the reference's, in its dtype, or eager's is."""
    finite = torch.isfinite(y)
    return bool(((finite == torch.isfinite(exact.to(y.dtype))) | (finite == torch.isfinite(e))).all())


def alike(y: torch.Tensor, exact: torch.Tensor, off: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Draws (dimension 0) that count alike: each times the power of two that brings the largest element of its reference to
    between 1/2 and 1. Products differ by orders of magnitude from draw to draw, and the largest alone would be judged.
    Float16, whose exponents are few, stays."""
    if not y.numel() or y.dtype == torch.float16:
        return y, exact, off
    _, exponent = torch.frexp(torch.where(torch.isfinite(exact), exact.abs(), 0.0).reshape(len(y), -1).amax(1))
    scale = torch.exp2(-exponent.double()).reshape(-1, *(1,) * (y.ndim - 1))
    return tuple((t.double() * scale).to(t.dtype) for t in (y, exact, off))


def _misread(case: Case, captured: Captured, first: tuple) -> list[str]:
    """Outputs where the reference differs from the same lines on float64 tensors, and from what eager gives."""
    tensors, _, eager, exact, _ = first
    wide = [t.double() if t.is_floating_point() else t for t in tensors]
    try:
        with torch.no_grad():
            meant = case.function()(*wide)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        meant = eager
    found = []
    for name, r, m, e in zip(captured.program.outputs, exact, meant, eager):
        eps = torch.finfo(e.dtype).eps if e.is_floating_point() else 0.0
        if not r.is_floating_point():
            if not _equal(r.to(e.dtype), e).all():
                found.append(f"{name}: the reference is not what eager computes")
        elif m.dtype != torch.float64 or error(r, m) > max(AGREE, NOISE * error(e, m) * torch.finfo(torch.float64).eps / eps):
            coarse = 64 * eps * max(1, longest_fold(captured.program)) ** 0.5
            if error(e, r) > coarse:
                found.append(f"{name}: the reference is {error(e, r):.1e} from eager, {error(r, m):.1e} from float64")
    return found


def _equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Elements that are equal, NaN to NaN."""
    return (a == b) | (a != a) & (b != b)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(_equal(a, b).all())
