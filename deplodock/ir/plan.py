"""A plan: the kernels that extraction chose, in the order they run. Plain data, and all that lowering needs to know.

    Plan   = inputs, parameters, constants, kernels, outputs          what is computed from what
    Kernel = name, outs, schedule                                     one loop nest: several outputs where loops agree
    Output = buffer, axes, body                                       buffer[axes] = body, for all axes

A kernel's bodies read Buffers only. Its launch axes are the union of its outputs' axes. `schedule` is a flat set of
knobs, as rules/schedule.py defines them.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from deplodock.ir.index import Axis
from deplodock.ir.loop import Buffer, loads
from deplodock.ir.term import Term


@dataclass(frozen=True, slots=True)
class Output:
    """buffer[axes] = body. `axes` are the buffer's dimensions under the names that the body uses."""
    buffer: Buffer
    axes: tuple[Axis, ...]
    body: Term


Schedule = tuple[tuple[str, int | str], ...]
"""Knobs and their values, sorted by name: (("atom", "mma"), ("stages", 3), ("tile.m", 128), ..)."""


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    outs: tuple[Output, ...]
    schedule: Schedule = ()
    cost: float = 0.0
    """Estimated or measured seconds."""
    source: tuple[str, ...] = ()
    """Where it came from in the user's program: one line for each operator it computes."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(dict.fromkeys(a for o in self.outs for a in o.axes))

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers it reads, in order of name."""
        return tuple(sorted({l.tensor for o in self.outs for l in loads(o.body)}, key=lambda b: b.name))

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return tuple(o.buffer for o in self.outs)


@dataclass(frozen=True, slots=True)
class Plan:
    """inputs: what a call brings, in order. parameters: what the module holds. once: kernels that compute constants from
    parameters, run when the program is loaded. kernels: what every call runs. outputs: what a call returns, in order; one
    of them may be an input."""
    inputs: tuple[Buffer, ...]
    parameters: tuple[Buffer, ...]
    once: tuple[Kernel, ...]
    kernels: tuple[Kernel, ...]
    outputs: tuple[Buffer, ...]
    optimal: bool = True
    """Whether the cover is the cheapest among its candidates, under the costs."""
    notes: tuple[str, ...] = field(default=())
    cuts: int = 0
    """Between regions of the program: nothing is fused across them."""
