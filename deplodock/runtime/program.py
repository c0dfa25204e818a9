"""A compiled program: called with tensors, returns tensors.

    facts      every input has the shape, dtype, strides, alignment and device that the program was compiled for, or the
               call is a named error: kernels read what they were told is there
    constants  what depends on parameters only is computed when the program is loaded, and again when a parameter is not
               what it was (its storage or its version counter changed)
    memory     intermediates share one slab per stream; outputs are allocated anew for each call, so results stay valid

The kernels run on a GPU (`launch.py`) or on the emulation of one (`emulation/`).
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Protocol

import torch

from deplodock.errors import BrokenFact, GradientWanted, UsageError
from deplodock.ir import torch as torch_ir
from deplodock.ir.loop import Buffer
from deplodock.ir.plan import Kernel, Plan
from deplodock.lower.cuda import CudaKernel
from deplodock.runtime.cache import Cache
from deplodock.runtime.compile import Cubin, compile_all
from deplodock.runtime.memory import Slab, plan_slab, size_of


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


def torch_dtype(d) -> torch.dtype:
    return getattr(torch, d.torch_name)


class CompiledProgram:
    """Called with the program's inputs, in order; returns its outputs as a tuple.

    parameters: tensors for plan.parameters, by name. They are read where they are, without copies, at each call: it is
    the tensors' own business what they hold by then.
    device: "cpu" runs the emulation. Raises BrokenFact for a tensor the program was not compiled for, NoGpu or
    LaunchFailed if the GPU is missing or refuses, KernelRejected if a kernel does not compile.
    """

    def __init__(self, made: Loadable, parameters: dict[str, torch.Tensor], device: torch.device | str,
                 store: Cache | None = None):
        plan = self.plan = made.plan
        self.device, self.values = torch.device(device), made.program.inputs
        self.parameters = tuple(parameters[b.name] for b in plan.parameters)
        facts = {v.name: v for v in made.program.parameters}
        self._held_to = tuple(facts[b.name] for b in plan.parameters)
        names = {b.name for b in plan.outputs}
        used = names | {b.name for k in plan.kernels for b in k.reads}
        self._constants = tuple(b for b in _written(plan.once) if b.name in used)
        held = {b.name for b in (*plan.inputs, *plan.parameters, *self._constants)}
        self._outputs = tuple(dict.fromkeys(b for b in plan.outputs if b.name not in held))
        self._returns = _returns(made.program, plan, self._constants, self._outputs)
        self._once_slab = plan_slab(plan.once, frozenset(b.name for b in self._constants))
        self._slab = plan_slab(plan.kernels, frozenset(names))
        self._slabs: dict[int, tuple[torch.Tensor, ...]] = {}
        self._held: tuple[torch.Tensor, ...] = ()
        self._seen: tuple | None = None

        runner, self.cubins = self._loader(made, store)
        split = len(plan.once)
        self._once = runner(_live(made.kernels[:split]), _table((*plan.parameters, *self._constants), self._once_slab))
        self._calls = runner(_live(made.kernels[split:]), _table(
            (*plan.inputs, *plan.parameters, *self._constants, *self._outputs), self._slab))
        self._refresh()

    def _loader(self, made: Loadable, store: Cache | None) -> tuple[Callable[..., Runner], tuple[Cubin, ...]]:
        """What makes a Runner of kernels for a table of buffers, and the machine code it uses."""
        if self.device.type == "cpu":
            return Emulated, ()
        from deplodock.runtime.launch import Gpu, Sequence
        gpu, live = Gpu(self.device.index or 0), _live(made.kernels)
        cubins = tuple(compile_all([(k.name, k.source) for k in live], made.arch, store))
        code = {k.name: c for k, c in zip(live, cubins)}
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
        self.check(inputs)
        self._refresh()
        outputs, slab = tuple(map(self._empty, self._outputs)), self._slab_of_stream()
        if poison:
            for t in (*outputs, *slab):
                t.view(-1).view(torch.uint8).fill_(0xFF)
        tensors = (*inputs, *self.parameters, *self._held, *outputs)
        self._calls.run(tensors + slab)
        return tuple(make(tensors) for make in self._returns)

    def check(self, inputs: tuple[torch.Tensor, ...]) -> None:
        """BrokenFact for the first input that is not what the program was compiled for."""
        if len(inputs) != len(self.values):
            raise UsageError(title="wrong number of inputs", found=str(len(inputs)),
                             expected=f"{len(self.values)}: {' '.join(v.name for v in self.values)}",
                             advice="pass the tensors that the program was captured with, in order")
        for value, t in zip(self.values, inputs):
            self._require(value, t)
            if t.requires_grad and torch.is_grad_enabled():
                raise GradientWanted(name=value.name)

    def _require(self, value: torch_ir.Value, t: torch.Tensor) -> None:
        if (t.shape != value.shape or t.dtype is not torch_dtype(value.dtype) or t.stride() != value.strides
                or t.device.type != self.device.type or t.data_ptr() % value.alignment):
            self._refuse(value, t)

    def _refuse(self, value: torch_ir.Value, t: torch.Tensor) -> None:
        for fact, wanted, given in (("shape", value.shape, tuple(t.shape)), ("dtype", torch_dtype(value.dtype), t.dtype),
                                    ("device", self.device.type, t.device.type), ("strides", value.strides, t.stride())):
            if wanted != given and not (fact == "strides" and _same_layout(value.shape, wanted, given)):
                raise BrokenFact(name=value.name, fact=fact, wanted=str(wanted), given=str(given))
        if t.data_ptr() % value.alignment:
            raise BrokenFact(name=value.name, fact="alignment", given=hex(t.data_ptr()),
                             wanted=f"an address that is a multiple of {value.alignment} bytes")

    def _refresh(self) -> None:
        """Computes the constants if a parameter is not what it was when they were last computed."""
        now = tuple((p.data_ptr(), 0 if p.is_inference() else p._version) for p in self.parameters)
        if now == self._seen:
            return
        for value, p in zip(self._held_to, self.parameters):
            self._require(value, p)
        self._held = tuple(map(self._empty, self._constants))
        self._once.run((*self.parameters, *self._held, *self._room(self._once_slab)))
        self._seen = now

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


def _live(kernels: tuple[CudaKernel, ...]) -> tuple[CudaKernel, ...]:
    """Those that have something to do: a launch over nothing is none."""
    return tuple(k for k in kernels if k.grid > 0)


def _written(kernels: tuple[Kernel, ...]) -> tuple[Buffer, ...]:
    return tuple(b for k in kernels for b in k.writes)


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


def _same_layout(shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether strides differ only where it does not matter: along dimensions of one element, or in an empty tensor."""
    return 0 in shape or all(x == y for n, x, y in zip(shape, a, b) if n != 1)
