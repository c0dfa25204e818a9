"""The plans of regions put together: one plan of the whole program, in which equal regions share their kernels.

Each part of a program (deplodock/regions.py) runs the kernels of its region, over its own buffers: what an earlier part
made, its parameters, its own intermediates. A kernel that computes a constant from what an equal one has read before is
left out, so what regions have in common (rotary embeddings, folded masks) is computed once and held once.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Sequence

from deplodock.ir.cuda import CudaKernel
from deplodock.ir.index import Axis
from deplodock.ir.loop import Buffer
from deplodock.ir.plan import Kernel, Output, Plan
from deplodock.ir.torch import Program, Value
from deplodock.regions import Part
from extract.naming import renamed, unique


class Unjoinable(Exception):
    """A region was found to return what it was given, which does not lie in memory as the next region takes it to."""


@dataclass(frozen=True, slots=True)
class Step:
    """A kernel in its place in the program. kind, number: the region it comes from, and its place among the kernels of
    that one's plan. to: the region's names of buffers to those of the program."""
    kernel: Kernel
    kind: int
    number: int
    to: dict[str, str]

    def placed(self, cuda: CudaKernel) -> CudaKernel:
        """The text of the region's kernel, called with the buffers of this place."""
        return replace(cuda, params=tuple(replace(p, name=self.to[p.name]) for p in cuda.params),
                       maps=tuple(replace(m, buffer=self.to[m.buffer]) for m in cuda.maps))


def assembled(program: Program, parts: Sequence[Part], plans: Sequence[Plan]) -> tuple[Plan, tuple[Step, ...]]:
    """The plan of a program, and where its kernels come from: those of plan.once, then those of plan.kernels.

    plans: by kind of part, over the names of the first part of that kind. Unjoinable as that class says.
    """
    a, first = _Assembly(program), {}
    for part in parts:
        like = first.setdefault(part.kind, part)
        a.add(part.kind, dict(zip(like.names, part.names)), like.program, plans[part.kind])
    values = a.values
    plan = Plan(tuple(values[v.name] for v in program.inputs), tuple(values[v.name] for v in program.parameters),
                tuple(s.kernel for s in a.once), tuple(s.kernel for s in a.calls),
                tuple(values[o] for o in program.outputs), all(p.optimal for p in plans), notes(parts, plans),
                len(parts) - 1)
    return plan, (*a.once, *a.calls)


def notes(parts: Sequence[Part], plans: Sequence[Plan]) -> tuple[str, ...]:
    """What is known of the plans of all regions, and what the cuts between them rule out."""
    times = Counter(p.kind for p in parts)
    return (f"cut into {len(parts)} regions, {len(plans)} of them distinct: nothing is fused across the {len(parts) - 1} cuts",
            *(f"region {kind + 1}, {times[kind]} times: {note}" for kind, p in enumerate(plans) for note in p.notes))


class _Assembly:
    """values: the buffer of each tensor of the program that some part makes or is given. constants: what kernels of
    plan.once have made, by what they compute."""

    def __init__(self, program: Program):
        given = {"input": program.inputs, "parameter": program.parameters}
        self.given = {v.name: v for vs in given.values() for v in vs}
        self.values = {v.name: _buffer(v, kind) for kind, vs in given.items() for v in vs}
        self.reserved = {n.name for n in program.nodes}
        self.taken = set(self.given)
        self.outputs = set(program.outputs)
        self.once: list[Step] = []
        self.calls: list[Step] = []
        self.constants: dict[tuple | None, tuple[Buffer, ...]] = {}

    def add(self, kind: int, names: dict[str, str], first: Program, plan: Plan) -> None:
        """The kernels of a part. names: of the tensors of `first`, which the plan was made for, to those of this part."""
        to: dict[str, Buffer] = {}
        for v, b in zip((*first.inputs, *first.parameters), (*plan.inputs, *plan.parameters)):
            held = self.values[names[v.name]]
            if held.name in self.given and _place(self.given[held.name]) != _place(v):
                raise Unjoinable(held.name)
            to[b.name] = held
        for number, kernel in enumerate((*plan.once, *plan.kernels)):
            once = number < len(plan.once)
            computed = tuple((o.axes, o.body, o.buffer.dtype) for o in _over(kernel, to)) if once else None
            if computed in self.constants:
                to |= zip((b.name for b in kernel.writes), self.constants[computed])
                continue
            for b in kernel.writes:
                name = self._name(names.get(b.name, b.name))
                to[b.name] = Buffer(name, b.dtype, b.axes, "output" if name in self.outputs else "constant" if once else "stored")
            if once:
                self.constants[computed] = tuple(to[b.name] for b in kernel.writes)
            made = Step(replace(kernel, outs=_over(kernel, to)), kind, number,
                        {b.name: to[b.name].name for b in (*kernel.reads, *kernel.writes)})
            (self.once if once else self.calls).append(made)
        for name, b in zip(first.outputs, plan.outputs):
            self.values[names[name]] = to[b.name]

    def _name(self, wanted: str) -> str:
        """The name of a new buffer: that of the tensor of the program that it holds, or one that no tensor has."""
        if wanted in self.taken or wanted not in self.reserved:
            return unique(wanted, self.taken, self.reserved)
        self.taken.add(wanted)
        return wanted


def _over(kernel: Kernel, to: dict[str, Buffer]) -> tuple[Output, ...]:
    """The outputs of a kernel over other buffers, whose axes are as this kernel sees them: how it does is its own business."""
    buffers = {b: Buffer(to[b.name].name, b.dtype, b.axes, to[b.name].kind) for b in (*kernel.reads, *kernel.writes) if b.name in to}
    return renamed(kernel.outs, buffers)


def _place(v: Value) -> tuple:
    """What kernels may take for granted of the memory of a value."""
    return v.strides, v.offset, v.alignment


def _buffer(v: Value, kind: str) -> Buffer:
    return Buffer(v.name, v.dtype, tuple(Axis(f"i{d}", n) for d, n in enumerate(v.shape)), kind)
