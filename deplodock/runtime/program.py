"""A compiled program: called with tensors, returns tensors.

    facts      every input has the shape, dtype, strides, alignment and device that the program was compiled for, or the
               call is a named error: kernels read what they were told is there
    constants  what depends on parameters only is computed when the program is loaded, and again when a parameter is not
               what it was (another tensor, another storage, or another version); beyond a limit of memory, at each call
    memory     intermediates share one slab per stream; outputs are allocated anew for each call, so results stay valid:
               they share memory with no input, not even where eager returns the input or a view of it
    writes     inputs and parameters that the program writes to are written when all outputs are there

The kernels run on a GPU (`launch.py`) or on the emulation of one (`emulation/`).
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Mapping, Protocol, Sequence

import torch

from deplodock.errors import BrokenFact, GradientWanted, UsageError
from deplodock.ir import torch as torch_ir
from deplodock.ir.cuda import CudaKernel
from deplodock.ir.loop import Buffer
from deplodock.ir.plan import Plan
from deplodock.overlap import check_written
from deplodock.runtime import constants
from deplodock.runtime.cache import Cache
from deplodock.runtime.compile import Cubin, compile_all
from deplodock.runtime.memory import Shared, Slab, plan_slab, size_of


class Runner(Protocol):
    """Runs a fixed sequence of kernels; `tensors` has one for each buffer of the table that it was made with."""

    def run(self, tensors: tuple[torch.Tensor, ...]) -> None: ...


@dataclass(frozen=True, slots=True)
class Loadable:
    """What running needs of a compilation: plain data.

    kernels: those of plan.once, then those of plan.kernels. arch: what they are compiled for.
    """
    program: torch_ir.Program
    plan: Plan
    kernels: tuple[CudaKernel, ...]
    arch: str


LEAST = 64 << 20
"""Bytes that constants may take in any case, where no limit is given; else as many as the parameters do."""


def torch_dtype(d) -> torch.dtype:
    return getattr(torch, d.torch_name)


class CompiledProgram:
    """Called with the program's inputs, in order; returns its outputs as a tuple.

    parameters: tensors for plan.parameters, by name. They are read where they are, without copies, at each call: it is
    the tensors' own business what they hold by then.
    device: "cpu" runs the emulation. store: the cache of machine code; cubins: machine code that there is. limit: bytes
    that constants may take; those that are beyond it are computed at each call. Raises BrokenFact for a tensor the program
    was not compiled for, NoGpu, OtherGpu or LaunchFailed if the GPU is missing, another one, or refuses, KernelRejected if
    a kernel does not compile.
    """

    def __init__(self, made: Loadable, parameters: Mapping[str, torch.Tensor], device: torch.device | str,
                 store: Cache | None = None, limit: int | None = None, cubins: Sequence[Cubin] = ()):
        plan = self.plan = made.plan
        self.device, self.values, self._writes = torch.device(device), made.program.inputs, made.program.writes
        facts = {v.name: v for v in made.program.parameters}
        self._held_to = tuple(facts[b.name] for b in plan.parameters)
        names = frozenset(b.name for b in plan.outputs)
        if limit is None:
            limit = max(LEAST, sum(map(size_of, plan.parameters)))
        once, again = constants.split(plan, limit)
        folded = {b.name for k in plan.once for b in k.reads}
        self._folded = tuple(b.name in folded for b in plan.parameters)
        calls = tuple(plan.once[at] for at in again) + plan.kernels
        used = (names | {b.name for k in calls for b in k.reads}) - {b.name for at in again for b in plan.once[at].writes}
        self._constants = tuple(b for at in once for b in plan.once[at].writes if b.name in used)
        held = {b.name for b in (*plan.inputs, *plan.parameters, *self._constants)}
        self._outputs = tuple(dict.fromkeys(b for b in plan.outputs if b.name not in held))
        self._returns = _returns(made.program, plan, self._constants, self._outputs)
        self._once_slab = plan_slab(tuple(plan.once[at] for at in once), frozenset(b.name for b in self._constants))
        self._slab = plan_slab(calls, names | {b.name for b in self._constants})
        self._slabs: dict[int, tuple[torch.Tensor, ...]] = {}
        self._held = Shared((), self.device)
        self._seen: tuple | None = None
        self._versions: tuple = ()
        self._storages: tuple[torch.UntypedStorage, ...] = ()
        self.recomputed = len(again)

        runner, self.cubins = self._loader(made, store, {c.name: c for c in cubins})
        kernels = made.kernels
        self._once = runner(_live([kernels[at] for at in once]), _table((*plan.parameters, *self._constants), self._once_slab))
        self._calls = runner(_live([*(kernels[at] for at in again), *kernels[len(plan.once):]]), _table(
            (*plan.inputs, *plan.parameters, *self._constants, *self._outputs), self._slab))
        self.parameters = parameters
        if broken := self.hold(parameters):
            raise broken

    def _loader(self, made: Loadable, store: Cache | None,
                code: dict[str, Cubin]) -> tuple[Callable[..., Runner], tuple[Cubin, ...]]:
        """What makes a Runner of kernels for a table of buffers, and the machine code it uses."""
        if self.device.type == "cpu":
            return Emulated, ()
        from deplodock.runtime.launch import Gpu, Sequence
        gpu = Gpu(self.device.index or 0, made.arch)
        missing = {k.name: k.source for k in _live(made.kernels) if k.name not in code}
        cubins = (*code.values(), *compile_all(list(missing.items()), made.arch, store))
        code = {c.name: c for c in cubins}
        return lambda kernels, table: Sequence(gpu, tuple(gpu.load(k, code[k.name], table) for k in kernels)), cubins

    @property
    def compilations(self) -> int:
        """How many kernels the CUDA compiler ran for, rather than the cache."""
        return sum(c.fresh for c in self.cubins)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that the program holds beside its parameters, and those of intermediates per stream."""
        return {"constants": sum(map(size_of, self._constants)), "slab": self._slab.size}

    def __call__(self, *inputs: torch.Tensor, poison: bool = False) -> tuple[torch.Tensor, ...]:
        """poison: fill outputs and intermediates with NaN bytes before, so that what is never written shows."""
        if broken := self.broken(inputs) or self.hold(self.parameters):
            raise broken
        return self.run(inputs, poison)

    def run(self, inputs: Sequence[torch.Tensor], poison: bool = False) -> tuple[torch.Tensor, ...]:
        """The outputs, for inputs and parameters that broken() and hold() have found nothing wrong with."""
        outputs, slab = tuple(map(self._empty, self._outputs)), self._slab_of_stream()
        if poison:
            for t in (*outputs, *slab):
                t.view(-1).view(torch.uint8).fill_(0xFF)
        tensors = (*inputs, *self._tensors, *self._held.tensors(), *outputs)
        self._calls.run(tensors + slab)
        results = tuple(make(tensors) for make in self._returns)
        with torch.no_grad():
            for target, value in zip(self.targets(inputs), results[len(results) - len(self._writes):]):
                target.copy_(value)
        return results

    def targets(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The tensors that the program writes to, in the order of its `writes`."""
        given = {v.name: t for v, t in zip(self.values, inputs)} if self._writes else {}
        return tuple(given[name] if name in given else self.parameters[name] for name in self._writes)

    def broken(self, inputs: Sequence[torch.Tensor]) -> BrokenFact | None:
        """What is wrong with the first input that is not what the program was compiled for; None if none is.

        UsageError for another number of inputs, GradientWanted for one that requires a gradient, OverlappingWrite where
        the program writes to one whose memory is another's as well.
        """
        if len(inputs) != len(self.values):
            raise UsageError(title="wrong number of inputs", found=str(len(inputs)),
                             expected=f"{len(self.values)}: {' '.join(v.name for v in self.values)}",
                             advice="pass the tensors that the program was captured with, in order")
        for value, t in zip(self.values, inputs):
            if found := self._difference(value, t):
                return found
            if t.requires_grad and torch.is_grad_enabled():
                raise GradientWanted(name=value.name)
        if self._writes:
            given = {**self.parameters, **{v.name: t for v, t in zip(self.values, inputs)}}
            for name in self._writes:
                check_written(name, given)
        return None

    def hold(self, parameters: Mapping[str, torch.Tensor]) -> BrokenFact | None:
        """Takes these parameters, and computes the constants if one is not what it was when they were last computed: if it
        is another tensor or has another storage, or another version and constants come from it.

        What is wrong with the first that the program was not compiled for, if one is; then nothing has changed. A tensor
        made under torch.inference_mode() does not count its versions: constants are then computed each time.
        """
        tensors = tuple(parameters[b.name] for b in self.plan.parameters)
        now = tuple((id(p), p.data_ptr()) for p in tensors)
        versions = tuple(object() if p.is_inference() else p._version for p, f in zip(tensors, self._folded) if f)
        if now != self._seen:
            for value, p in zip(self._held_to, tensors):
                if found := self._difference(value, p):
                    return found
        if (now, versions) != (self._seen, self._versions):
            self._seen, self._held = None, Shared((), self.device)      # the old ones make room first
            made = tuple(map(self._empty, self._constants))
            self._once.run((*tensors, *made, *self._room(self._once_slab)))
            self._seen, self._versions, self._held = now, versions, Shared(made, self.device)
            # Storages are kept, so that no later one can have the address of one that was seen.
            self._tensors, self._storages = tensors, tuple(p.untyped_storage() for p in tensors)
        self.parameters = parameters
        return None

    def forget(self) -> None:
        """Constants are computed anew at the next call, whatever the parameters' versions say."""
        self._seen = None

    def _difference(self, value: torch_ir.Value, t: torch.Tensor) -> BrokenFact | None:
        """The first fact that a tensor breaks."""
        if (t.shape == value.shape and t.dtype is torch_dtype(value.dtype) and t.stride() == value.strides
                and t.device.type == self.device.type and not t.is_neg() and not t.data_ptr() % value.alignment):
            return None
        for fact, wanted, given in (("shape", value.shape, tuple(t.shape)), ("dtype", torch_dtype(value.dtype), t.dtype),
                                    ("device", self.device.type, t.device.type), ("strides", value.strides, t.stride())):
            if wanted != given and not (fact == "strides" and same_layout(value.shape, wanted, given)):
                return BrokenFact(name=value.name, fact=fact, wanted=str(wanted), given=str(given))
        if t.is_neg():
            return BrokenFact(name=value.name, fact="sign", wanted="elements as memory holds them",
                              given="a negated view (see resolve_neg)")
        if t.data_ptr() % value.alignment:
            return BrokenFact(name=value.name, fact="alignment", given=hex(t.data_ptr()),
                              wanted=f"an address that is a multiple of {value.alignment} bytes")
        return None

    def _empty(self, b: Buffer) -> torch.Tensor:
        return torch.empty([a.extent for a in b.axes], dtype=torch_dtype(b.dtype), device=self.device)

    def _slab_of_stream(self) -> tuple[torch.Tensor, ...]:
        stream = torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else 0
        if stream not in self._slabs:
            self._slabs[stream] = self._room(self._slab)
        return self._slabs[stream]

    def _room(self, slab: Slab) -> tuple[torch.Tensor, ...]:
        """The buffers of a slab, in new memory."""
        memory = torch.empty(slab.size, dtype=torch.uint8, device=self.device)
        return tuple(memory[at:at + size_of(b)].view(torch_dtype(b.dtype)) for b, at in slab.places.items())


class Emulated:
    """Kernels on the emulation of a GPU. Their outputs hold nothing before: to read them first is a fault."""

    def __init__(self, kernels: tuple[CudaKernel, ...], table: dict[str, int]):
        self.kernels, self.table = kernels, table

    def run(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """EmulationFault for what the emulation reports."""
        from deplodock.runtime.emulation import run_program
        run_program(self.kernels, {name: tensors[at] for name, at in self.table.items()})


def _live(kernels: Sequence[CudaKernel]) -> tuple[CudaKernel, ...]:
    """Those that have something to do: a launch over nothing is none."""
    return tuple(k for k in kernels if k.grid > 0)


def _table(buffers: tuple[Buffer, ...], slab: Slab) -> dict[str, int]:
    """The place of each buffer among the tensors that a Runner is given."""
    return {b.name: i for i, b in enumerate((*buffers, *slab.places))}


def _returns(program: torch_ir.Program, plan: Plan, constants: tuple[Buffer, ...],
             outputs: tuple[Buffer, ...]) -> tuple[Callable, ...]:
    """For each result a function from a call's tensors to it. What the caller, or a later call, holds as well is copied:
    an input or a constant that is returned, and a buffer that two results of the program were found equal to."""
    shapes = {v.name: v.shape for v in (*program.inputs, *program.parameters, *program.nodes)}
    held = [b.name for b in (*plan.inputs, *plan.parameters, *constants)]
    places = {name: i for i, name in enumerate((*held, *(b.name for b in outputs)))}
    made, first = [], {}
    for buffer, result in zip(plan.outputs, program.outputs):
        copy = buffer.name in held or first.setdefault(buffer.name, result) != result
        made.append(_result(places[buffer.name], shapes[result], copy))
    return tuple(made)


def _result(at: int, shape: tuple[int, ...], copy: bool) -> Callable:
    if copy:
        return lambda tensors: tensors[at].detach().reshape(shape).clone()
    return lambda tensors: tensors[at].view(shape)


def same_layout(shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether strides differ only where it does not matter: along dimensions of one element, or in an empty tensor."""
    return 0 in shape or all(x == y for n, x, y in zip(shape, a, b) if n != 1)
