"""The reference of convolutions, pooling and interpolation (deplodock/reference.py)."""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F


def padded(x: torch.Tensor, padding, fill: float = 0) -> torch.Tensor:
    """x with (before, after) elements of `fill` for each trailing dimension; less than 0 is cut off."""
    return F.pad(x, [p for pair in reversed(padding) for p in pair], value=fill)


def windows(x: torch.Tensor, kernel, stride, dilation) -> torch.Tensor:
    """x's windows: the dimensions of the result, then those of the kernel."""
    first = x.ndim - len(kernel)
    for d, (k, s, step) in enumerate(zip(kernel, stride, dilation)):
        x = x.unfold(first + d, step * (k - 1) + 1, s)[..., ::step]
    return x


def conv(x, weight, bias, stride, padding, dilation, groups):
    f = (F.conv1d, F.conv2d, F.conv3d)[len(stride) - 1]
    return f(padded(x, padding), weight, bias, stride, 0, dilation, groups)


def conv_transpose(x, weight, bias, stride, padding, dilation, groups):
    """A convolution with the weight turned round of x with zeros put in between and around it, which count as they do there: the
    product of 0 and infinity is NaN."""
    n = len(stride)
    spread = x.new_zeros(*x.shape[:2], *(max(0, (h - 1) * s + 1) for h, s in zip(x.shape[2:], stride)))
    spread[(..., *(slice(None, None, s) for s in stride))] = x
    turned = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1).flip([*range(2, n + 2)])
    around = [tuple((k - 1) * d - p for p in pair) for k, d, pair in zip(weight.shape[2:], dilation, padding)]
    return conv(spread, turned, bias, (1,) * n, around, dilation, groups)


def lowest(x: torch.Tensor) -> float:
    return -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min


def places(x: torch.Tensor, n: int) -> torch.Tensor:
    """The row-major index of each element among the trailing n dimensions."""
    return torch.arange(math.prod(x.shape[-n:]), device=x.device).reshape(x.shape[-n:]).expand(x.shape)


def chosen(w: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Where the greatest of the last dimension is: the first of equal ones, the last NaN. at: -1 before the first
    element; a window without elements has its place behind the last."""
    most, behind = w.amax(-1, keepdim=True), torch.iinfo(torch.int64).max
    first = torch.where((w == most) & (at >= 0), at, behind).amin(-1)
    return torch.where(most[..., 0].isnan(), torch.where(w.isnan(), at, -1).amax(-1), first)


def max_pool(x, kernel, stride, padding, dilation):
    return windows(padded(x, padding, lowest(x)), kernel, stride, dilation).flatten(-len(kernel)).amax(-1)


def max_pool_index(x, kernel, stride, padding, dilation):
    n = len(kernel)
    w = windows(padded(x, padding, lowest(x)), kernel, stride, dilation)
    at, before = torch.zeros((), dtype=torch.int64, device=x.device), torch.zeros((), dtype=torch.bool, device=x.device)
    for size, (lo, hi) in zip(x.shape[-n:], padding):
        i = torch.arange(-lo, size + hi, device=x.device)
        at, before = at[..., None] * size + i, before[..., None] | (i < 0)
    at = windows(torch.where(before, -1, at).expand(*x.shape[:-n], *at.shape), kernel, stride, dilation)
    return chosen(w.flatten(-n), at.flatten(-n))


def avg_pool(x, kernel, stride, padding, counted, divisor):
    ones = (1,) * len(kernel)
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    total = windows(padded(wide, padding), kernel, stride, ones).flatten(-len(kernel)).sum(-1)
    if divisor is not None:
        return total / divisor
    rest = [(lo - c, hi - d) for (lo, hi), (c, d) in zip(padding, counted)]
    counts = padded(padded(torch.ones(x.shape[-len(kernel):], device=x.device), counted, 1), rest)
    return total / windows(counts, kernel, stride, ones).flatten(-len(kernel)).sum(-1)


def adaptive(x: torch.Tensor, size, f: Callable) -> torch.Tensor:
    """f of each window of adaptive pooling, its dimensions as one."""
    n, parts = len(size), []
    for place in itertools.product(*map(range, size)):
        part = x
        for d, (p, m) in enumerate(zip(place, size), -n):
            start, stop = p * x.shape[d] // m, -(-(p + 1) * x.shape[d] // m)
            part = part.narrow(d, start, stop - start)
        parts.append(f(part.flatten(-n)))
    return torch.stack(parts, -1).unflatten(-1, size)


def adaptive_avg_pool(x, size):
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return adaptive(wide, size, lambda w: w.mean(-1))


def adaptive_max_pool(x, size):
    return adaptive(x, size, lambda w: w.amax(-1))


def adaptive_max_pool_index(x, size):
    both = torch.stack((x, places(x, len(size)).to(x.dtype)))        # places are small enough to be exact in float64
    return adaptive(both, size, lambda w: chosen(w[0], w[1].long()))


def upsample(x: torch.Tensor, maps, sizes, linear: bool) -> torch.Tensor:
    """Along one trailing dimension after the other, element p is x at (a * p + b) / c: linearly, between the elements before
    and behind that place, which are one where it is an element's."""
    for d, (a, b, c) in enumerate(maps, -len(maps)):
        top = a * torch.arange(sizes[d], device=x.device) + b
        low, high = torch.div(top, c, rounding_mode="floor"), -torch.div(-top, c, rounding_mode="floor")
        if not linear:
            x = x.index_select(d, low)
            continue
        share = ((top - low * c).to(x.dtype) / c).reshape(-1, *(1,) * (-d - 1))
        x = x.index_select(d, low.clamp(min=0)) * (1 - share) + x.index_select(d, high.clamp(max=x.shape[d] - 1)) * share
    return x


MEANING: dict[str, Callable] = {f.__name__: f for f in (
    conv, conv_transpose, max_pool, max_pool_index, avg_pool, adaptive_avg_pool, adaptive_max_pool,
    adaptive_max_pool_index)}
"""Torch IR operator -> its meaning on float64 tensors, arguments by name."""
