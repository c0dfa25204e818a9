"""Where intermediates live: one slab, in which buffers that are never alive together share addresses. What several streams
read is handed from the one that wrote it to the others."""
from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from deplodock.ir.loop import Buffer
from deplodock.ir.plan import Kernel

ALIGNMENT = 256
"""Bytes. What a device allocation has; bulk copies ask for 128."""


@dataclass(frozen=True, slots=True)
class Slab:
    """places: buffer -> byte offset. size: bytes of the whole."""
    places: dict[Buffer, int]
    size: int


def size_of(buffer: Buffer) -> int:
    """Bytes of a buffer's storage."""
    return math.prod(a.extent for a in buffer.axes) * buffer.dtype.bytes


def plan_slab(kernels: tuple[Kernel, ...], kept: frozenset[str]) -> Slab:
    """Places for what kernels write and later ones read, less the buffers in `kept` (outputs and the like).

    A buffer is alive from the kernel that writes it to the last that reads it, both included: a kernel reads and writes
    in no known order, so its inputs and outputs never overlap. Two kernels may give a buffer other axes. Largest first,
    each at the lowest free address (greedy by size, Pisarchyk and Lee 2020).
    """
    made: dict[str, Buffer] = {}
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for at, kernel in enumerate(kernels):
        for b in kernel.writes:
            if b.name not in kept:
                made[b.name] = b
                first[b] = last[b] = at
        for b in kernel.reads:
            if b.name in made:
                last[made[b.name]] = at
    places: dict[Buffer, int] = {}
    for b in sorted(first, key=lambda b: (-size_of(b), first[b], b.name)):
        place = 0
        for other in sorted(places, key=places.get):
            if last[other] < first[b] or last[b] < first[other]:
                continue
            if place + size_of(b) <= places[other]:
                break
            place = max(place, _aligned(places[other] + size_of(other)))
        places[b] = place
    return Slab(places, max((_aligned(places[b] + size_of(b)) for b in places), default=0))


def _aligned(n: int) -> int:
    return (n + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


class Shared:
    """Tensors that the current stream has just written, for all streams to read.

    A stream that reads them for the first time waits until they are written, and their memory is not given away before it
    has done what it was asked to do by then. While a stream is captured in a graph it cannot wait: a call before the
    capture, which PyTorch asks for as well, has done that.
    """

    def __init__(self, tensors: tuple[torch.Tensor, ...], device: torch.device):
        self._tensors, self._device, self._streams = tensors, device, set()
        if tensors and device.type == "cuda":
            stream = torch.cuda.current_stream(device)
            self._written = stream.record_event()
            self._streams.add(stream.cuda_stream)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The tensors, for the current stream."""
        if self._tensors and self._device.type == "cuda":
            stream = torch.cuda.current_stream(self._device)
            if stream.cuda_stream not in self._streams and not torch.cuda.is_current_stream_capturing():
                stream.wait_event(self._written)
                for t in self._tensors:
                    t.record_stream(stream)
                self._streams.add(stream.cuda_stream)
        return self._tensors
