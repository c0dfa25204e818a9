"""Closed forms: what the elements of a tensor are equal to, as a formula of their positions.

    Form   = Affine(start, steps)                start + Σ step·i over the dimensions; 0 steps: one value everywhere
           | Choice(where, then, otherwise)      one of two values
    where  = conjunction of Bound: low <= i_a <= high or low <= i_a − i_b <= high, over dimensions a and b

A causal mask is one Bound, j − i <= 0; a sliding window two on one difference; padding and prefixes bound one dimension.
"""
from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import torch

from deplodock.capture.build import Call
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import Arg

Number = bool | int | float


@dataclass(frozen=True, slots=True)
class Affine:
    start: Number
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """low <= i_a − i_b <= high; b is None for i_a alone; a None low or high binds nothing."""
    a: int
    b: int | None
    low: int | None
    high: int | None

    def difference(self, shape: tuple[int, ...]) -> torch.Tensor:
        return _counted(shape, self.a) - (0 if self.b is None else _counted(shape, self.b))

    def holds(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Where it holds, over dimensions that it does not name broadcast."""
        d = self.difference(shape)
        low = torch.ones_like(d, dtype=torch.bool) if self.low is None else d >= self.low
        return low if self.high is None else low & (d <= self.high)


@dataclass(frozen=True, slots=True)
class Choice:
    where: tuple[Bound, ...]
    then: Number
    otherwise: Number


Form = Affine | Choice


def closed_form(t: torch.Tensor) -> Form | None:
    """The form of a tensor on the CPU, exactly; None if it has none of these, or a dtype that Torch IR lacks."""
    if Dtype.of_torch(t.dtype) is None:
        return None
    if not t.numel():
        return Affine(0, (0,) * t.ndim)
    core = t
    for d in range(t.ndim):
        if core.stride(d) == 0 or bool((core == core.narrow(d, 0, 1)).all()):
            core = core.narrow(d, 0, 1)
    first = core.reshape(-1)[0]
    if core.numel() == 1:
        return Affine(first.item(), (0,) * t.ndim) if bool(first == first) else None
    return _affine(core) or _choice(core)


def is_mask(t: torch.Tensor) -> bool:
    """Whether a tensor holds truth values, or one of two values by bounds on positions."""
    return t.dtype == torch.bool or isinstance(closed_form(t.cpu()), Choice)


def emit(c: Call, form: Form) -> Arg:
    """The nodes that compute a form, of the Call's shape and dtype."""
    match form:
        case Affine(start, steps) if not any(steps):
            return c("full", value=c.number(start, c.dtype))
        case Affine(start, steps):
            varied = [d for d, step in enumerate(steps) if step]
            dtype = Dtype.i64 if c.dtype.is_float else c.dtype
            total, *terms = [_arange(c, d, start if d == varied[0] else 0, steps[d], dtype) for d in varied]
            for term in terms:
                total = _combined(c, "add", dtype, total, term)
            return c.expand(c.cast(total, c.dtype), c.shape)
        case Choice(where, then, otherwise):
            chosen = None
            for comparison in (x for bound in where for x in _comparisons(c, bound)):
                chosen = comparison if chosen is None else _combined(c, "bitwise_and", Dtype.b8, chosen, comparison)
            if c.dtype == Dtype.b8:
                chosen = chosen if then else _combined(c, "bitwise_not", Dtype.b8, chosen)
            else:
                chosen = c.where(chosen, c("full", value=c.number(then, c.dtype), shape=()), otherwise)
            return c.expand(chosen, c.shape)


def _comparisons(c: Call, bound: Bound) -> list[Arg]:
    """A bound as comparisons of positions."""
    def position(d: int, start: int = 0) -> Arg:
        return _arange(c, d, start, 1, Dtype.i64)

    found = []
    if bound.low is not None:
        low = bound.low if bound.b is None else position(bound.b, bound.low)
        found.append(_combined(c, "le", Dtype.b8, low, position(bound.a)))
    if bound.high is not None:
        high = bound.high if bound.b is None else position(bound.b, bound.high)
        found.append(_combined(c, "le", Dtype.b8, position(bound.a), high))
    return found


def _combined(c: Call, op: str, dtype: Dtype, *operands: Arg | int) -> Arg:
    return c(op, *operands, shape=tuple(torch.broadcast_shapes(*map(c.shape_of, operands))), dtype=dtype)


def _arange(c: Call, d: int, start: int, step: int, dtype: Dtype) -> Arg:
    """start + step·i along dimension d of the Call's shape, all other dimensions 1."""
    made = c("arange", start=start, step=step, shape=(c.shape[d],), dtype=dtype)
    return c.reshape(made, tuple(n if i == d else 1 for i, n in enumerate(c.shape)))


def _counted(shape: tuple[int, ...], d: int) -> torch.Tensor:
    return torch.arange(shape[d]).reshape(tuple(n if i == d else 1 for i, n in enumerate(shape)))


def _affine(core: torch.Tensor) -> Affine | None:
    """Integers, or floats that are integers."""
    if core.dtype == torch.bool or core.is_floating_point() and not bool((core.abs() < 2 ** 53).all()):
        return None
    flat, shape = core.to(torch.int64), tuple(core.shape)
    start = int(flat.reshape(-1)[0])
    steps = tuple(int(flat.narrow(d, 1, 1).reshape(-1)[0]) - start if n > 1 else 0 for d, n in enumerate(shape))
    total = start + sum(step * _counted(shape, d) for d, step in enumerate(steps))
    return Affine(start, steps) if bool((core == total).all()) else None


def _choice(core: torch.Tensor) -> Choice | None:
    """Of two values the greater one is bounded, or the other if that takes fewer bounds."""
    then, otherwise = core.max(), core.min()
    greater = core == then
    if not bool((greater | (core == otherwise)).all()):
        return None
    found = [Choice(bounds, a.item(), b.item()) for mask, a, b in ((greater, then, otherwise), (~greater, otherwise, then))
             if (bounds := _bounds(mask)) is not None]
    return min(found, key=lambda choice: len(choice.where), default=None)


def _bounds(mask: torch.Tensor) -> tuple[Bound, ...] | None:
    """The fewest bounds, one side each, that hold exactly where the mask does; None if no bounds do."""
    shape = tuple(mask.shape)
    varied = [d for d, n in enumerate(shape) if n > 1]
    tight = []
    for a, b in [*((d, None) for d in varied), *((b, a) for a, b in combinations(varied, 2))]:
        difference = Bound(a, b, None, None).difference(shape)
        inside = difference.expand(shape)[mask]
        low, high = int(inside.min()), int(inside.max())
        tight += [Bound(a, b, low, None)] if low > int(difference.min()) else []
        tight += [Bound(a, b, None, high)] if high < int(difference.max()) else []

    def all_hold(bounds: list[Bound]) -> bool:
        holds = torch.ones(shape, dtype=torch.bool)
        for bound in bounds:
            holds &= bound.holds(shape)
        return bool((holds == mask).all())

    if not all_hold(tight):
        return None
    for bound in list(tight):
        fewer = [x for x in tight if x is not bound]
        if all_hold(fewer):
            tight = fewer
    return tuple(tight)
