"""Where intermediates live: one slab, in which buffers that are never alive together share addresses."""
from __future__ import annotations

import math
from dataclasses import dataclass

from deplodock.ir.loop import Buffer
from deplodock.ir.plan import Kernel

ALIGNMENT = 256
"""Bytes. What a device allocation has; bulk copies ask for 128."""


@dataclass(frozen=True, slots=True)
class Slab:
    """offsets: buffer name -> byte offset. size: bytes of the whole."""
    offsets: dict[str, int]
    size: int


def size_of(buffer: Buffer) -> int:
    """Bytes of a buffer's storage."""
    return math.prod(a.extent for a in buffer.axes) * buffer.dtype.bytes


def plan_slab(kernels: tuple[Kernel, ...], kept: frozenset[str]) -> Slab:
    """Places for what kernels write and later ones read, less the buffers in `kept` (outputs and the like).

    A buffer is alive from the kernel that writes it to the last that reads it, both included: a kernel reads and writes
    in no known order, so its inputs and outputs never overlap. Largest first, each at the lowest free address (greedy
    by size, Pisarchyk and Lee 2020).
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for at, kernel in enumerate(kernels):
        for b in kernel.writes:
            if b.name not in kept:
                first.setdefault(b.name, at)
                last[b.name], sizes[b.name] = at, size_of(b)
        for b in kernel.reads:
            if b.name in first:
                last[b.name] = at
    offsets: dict[str, int] = {}
    for name in sorted(first, key=lambda n: (-sizes[n], first[n], n)):
        place = 0
        for other in sorted(offsets, key=offsets.get):
            if last[other] < first[name] or last[name] < first[other]:
                continue
            if place + sizes[name] <= offsets[other]:
                break
            place = max(place, _aligned(offsets[other] + sizes[other]))
        offsets[name] = place
    return Slab(offsets, max((_aligned(offsets[n] + sizes[n]) for n in offsets), default=0))


def _aligned(n: int) -> int:
    return (n + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
