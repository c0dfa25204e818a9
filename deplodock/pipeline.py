"""The whole pipeline: PyTorch -> Torch IR -> Tensor IR -> Loop IR -> e-graph -> plan -> Tile IR -> Kernel IR -> CUDA.

Each stage is computed when it is first asked for, from the one before it, and can be printed. Search ends with `plan`;
everything below it is a function of the plan alone.
"""
from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from deplodock.capture import Captured
from deplodock.enter import Entered, enter
from deplodock.errors import NoKernel, NoSchedule
from deplodock.ir import kernel as kernel_ir, tile as tile_ir
from deplodock.ir.plan import Kernel, Plan
from deplodock.lower.cuda import CudaKernel, lower_cuda
from deplodock.lower.kernel import lower_kernel
from deplodock.lower.tile import lower_tile
from deplodock.saturate import Saturation, catalogue, saturate
from deplodock.target import Target, target as find_target
from extract.extract import Extraction, extract
from extract.schedule import schedule


@dataclass
class Compilation:
    """One program on its way down. `seconds` holds the time of each stage that has run."""
    captured: Captured
    target: Target
    numerics: str = "default"
    groups: tuple[str, ...] | None = None
    """The groups of laws to saturate with; None for all."""
    provenance: bool = False
    """Whether saturation notes which law made each e-node."""
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def _timed(self, stage: str):
        start = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - start

    @property
    def torch(self):
        """Torch IR: the captured ir.torch.Program."""
        return self.captured.program

    @cached_property
    def entered(self) -> Entered:
        """Tensor IR and the Loop IR terms of the program as written."""
        with self._timed("enter"):
            return enter(self.torch)

    @cached_property
    def saturation(self) -> Saturation:
        """The e-graph of all programs that the laws prove equal."""
        self.entered
        with self._timed("saturate"):
            return saturate(self.entered, self.numerics, None if self.groups is None else catalogue(self.groups),
                            provenance=self.provenance)

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
            while True:
                try:
                    plan = schedule(found.plans[0], self.facts, self.target, known)
                    self.extraction = found
                    return plan
                except NoSchedule as error:
                    try:
                        found = found.without(error.facts["kernel"])
                    except (KeyError, NoKernel):  # a constant's kernel, or the only one of its kind
                        raise error from None

    @property
    def facts(self):
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


def compile(captured: Captured, target: str | Target = "h200", numerics: str = "default",
            groups: tuple[str, ...] | None = None, provenance: bool = False) -> Compilation:
    """A program ready to be lowered as far as it is asked for.

    target: a GPU's name or an architecture (deplodock/target.py). numerics: strict, default or fast, as NUMERICS in
    README says. UnknownTarget if there is no such target.
    """
    return Compilation(captured, target if isinstance(target, Target) else find_target(target), numerics, groups,
                       provenance)
