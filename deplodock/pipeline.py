"""The whole pipeline: PyTorch -> Torch IR -> Tensor IR -> Loop IR -> e-graph -> plan -> Tile IR -> Kernel IR -> CUDA.

Each stage is computed when it is first asked for, from the one before it, and can be printed. Search ends with `plan`;
everything below it is a function of the plan alone. From Tensor IR to CUDA these are the stages of a region: of the whole
program if it is small, else of each distinct one of the parts that it is cut into.
"""
from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from deplodock.assembled import Step, Unjoinable, assembled
from deplodock.capture import Captured
from deplodock.enter import Entered, enter
from deplodock.errors import NoKernel, NoSchedule
from deplodock.ir import kernel as kernel_ir, tile as tile_ir, torch as torch_ir
from deplodock.ir.cuda import CudaKernel
from deplodock.ir.plan import Kernel, Plan
from deplodock.lower.cuda import lower_cuda
from deplodock.lower.kernel import lower_kernel
from deplodock.lower.tile import lower_tile
from deplodock.regions import WHOLE, Part, cut
from deplodock.saturate import Saturation, catalogue, saturate
from deplodock.target import Target, target as find_target
from extract.extract import Extraction, extract
from extract.schedule import schedule

COVERS = 18
"""Plans that are tried before kernels without a schedule run a point a thread: each takes about 0.2 s."""
AS_SPELLED = 12
"""From this one on, what such a kernel computes is computed as the program itself does."""

@dataclass
class Region:
    """One region of a program on its way down. `seconds` holds the time of each stage that has run.

    number: its place among the distinct regions of its program, from 1, which the names of its kernels then bear; None
    for a program that is one region.
    """
    torch: torch_ir.Program
    target: Target
    numerics: str = "default"
    groups: tuple[str, ...] | None = None
    provenance: bool = False
    number: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def _timed(self, stage: str):
        start = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start

    @cached_property
    def entered(self) -> Entered:
        """Tensor IR and the Loop IR terms of the region as written."""
        with self._timed("enter"):
            return enter(self.torch)

    @cached_property
    def saturation(self) -> Saturation:
        """The e-graph of all programs that the laws prove equal."""
        self.entered
        with self._timed("saturate"):
            return saturate(self.entered, self.numerics, None if self.groups is None else catalogue(self.groups),
                            provenance=self.provenance)

    def release(self) -> None:
        """Lets go of the e-graph."""
        vars(self).pop("saturation", None)

    @cached_property
    def extraction(self) -> Extraction:
        """The cheapest plans among the candidates, best first; kernels not scheduled yet."""
        self.saturation
        with self._timed("extract"):
            return extract(self.saturation, self.entered, self.target, self.numerics)

    @cached_property
    def plan(self) -> Plan:
        """The chosen plan, every kernel with its schedule. A kernel that no schedule law can serve is no candidate."""
        found = self.extraction
        with self._timed("schedule"):
            known: dict[Kernel, Kernel] = {}
            for n in range(COVERS):
                try:
                    return self._chosen(found, schedule(found.plans[0], self.facts, self.target, known))
                except NoSchedule as error:
                    try:
                        found = found.without(*error.facts["kernels"], spelled=n >= AS_SPELLED)
                    except (KeyError, NoKernel):  # only constants' kernels, or the only ones of their kind
                        break
            return self._chosen(found, schedule(found.plans[0], self.facts, self.target, known, plain=True))

    def _chosen(self, found: Extraction, plan: Plan) -> Plan:
        self.extraction = found
        return self._numbered(plan)

    def _numbered(self, plan: Plan) -> Plan:
        """The plan with names of kernels that no other region has."""
        if self.number is None:
            return plan

        def numbered(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
            return tuple(replace(k, name=f"k{self.number}{k.name.removeprefix('k')}") for k in kernels)
        return replace(plan, once=numbered(plan.once), kernels=numbered(plan.kernels))

    @property
    def facts(self) -> dict[str, torch_ir.Value]:
        """What is known of the memory of inputs and parameters, by buffer name."""
        return {v.name: v for v in (*self.torch.inputs, *self.torch.parameters)}

    @property
    def all_kernels(self) -> tuple[Kernel, ...]:
        """Kernels that run once, when constants are computed, then those of every call."""
        return self.plan.once + self.plan.kernels

    @cached_property
    def tiles(self) -> tuple[tile_ir.Kernel, ...]:
        kernels = self.all_kernels
        with self._timed("tile"):
            return tuple(lower_tile(k, self.facts) for k in kernels)

    @cached_property
    def kernels(self) -> tuple[kernel_ir.Kernel, ...]:
        tiles = self.tiles
        with self._timed("kernel"):
            return tuple(map(lower_kernel, tiles))

    @cached_property
    def cuda(self) -> tuple[CudaKernel, ...]:
        """CUDA text and launch metadata of each kernel, in the order of all_kernels."""
        kernels = self.kernels
        with self._timed("cuda"):
            return tuple(map(lower_cuda, kernels))


@dataclass
class Compilation:
    """One program on its way down: cut into regions, each distinct one compiled, their plans put together.

    `seconds` holds the time of each stage that has run, over all regions. whole: steps of a region at most.
    """
    captured: Captured
    target: Target
    numerics: str = "default"
    groups: tuple[str, ...] | None = None
    """The groups of laws to saturate with; None for all."""
    provenance: bool = False
    """Whether saturation notes which law made each e-node."""
    whole: int = WHOLE
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def torch(self) -> torch_ir.Program:
        """Torch IR: the captured program."""
        return self.captured.program

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The regions that the program runs, in order."""
        start = time.perf_counter()
        made = cut(self.torch, self.whole)
        self.seconds["cut"] = time.perf_counter() - start
        return made

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The distinct ones, by kind of part."""
        first = {p.kind: p.program for p in reversed(self.parts)}
        return tuple(Region(first[kind], self.target, self.numerics, self.groups, self.provenance,
                            kind + 1 if len(self.parts) > 1 else None, self.seconds) for kind in sorted(first))

    @property
    def saturations(self) -> int:
        """How many regions were saturated, rather than taken from the cache."""
        return sum("saturation" in vars(r) for r in vars(self).get("regions", ()))

    def release(self) -> None:
        """Lets go of the e-graphs, which only search needs. One is made again if it is asked for."""
        for region in vars(self).get("regions", ()):
            region.release()

    @property
    def times(self) -> tuple[int, ...]:
        """How often each distinct region occurs."""
        found = Counter(p.kind for p in self.parts)
        return tuple(found[kind] for kind in range(len(self.regions)))

    @property
    def region(self) -> Region:
        """The only region, of a program that is not cut."""
        one, = self.regions
        return one

    @cached_property
    def _assembled(self) -> tuple[Plan, tuple[Step, ...]]:
        plans = [r.plan for r in self.regions]
        start = time.perf_counter()
        made = assembled(self.torch, self.parts, plans)
        self.seconds["assemble"] = time.perf_counter() - start
        return made

    @cached_property
    def plan(self) -> Plan:
        """The plan of the whole program. Equal regions have kernels of the same names."""
        if len(self.parts) > 1:
            try:
                return self._assembled[0]
            except Unjoinable:
                del self.regions
                self.parts = Part(0, self.torch),
        return self.region.plan

    @cached_property
    def cuda(self) -> tuple[CudaKernel, ...]:
        """CUDA text and launch metadata of each kernel, those of plan.once first. Kernels of one name have one text."""
        self.plan
        if len(self.parts) == 1:
            return self.region.cuda
        return tuple(s.placed(self.regions[s.kind].cuda[s.number]) for s in self._assembled[1])


def compile(captured: Captured, target: str | Target = "h200", numerics: str = "default",
            groups: tuple[str, ...] | None = None, provenance: bool = False, whole: int = WHOLE) -> Compilation:
    """A program ready to be lowered as far as it is asked for.

    target: a GPU's name or an architecture (deplodock/target.py). numerics: strict, default or fast, as NUMERICS in
    README says. whole: steps of a region at most. UnknownTarget if there is no such target.
    """
    return Compilation(captured, target if isinstance(target, Target) else find_target(target), numerics, groups,
                       provenance, whole)
