"""The Python interface: a module with example arguments becomes a callable. `deplodock.compile` is its entry.

A compiled module has *variants*: programs for arguments of other shapes, dtypes, strides, alignments or values than the
example's. The first call with such arguments compiles one, and says why.
"""
from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch.utils._pytree import TreeSpec, tree_flatten

from deplodock.capture import Captured, as_module, capture_module
from deplodock.errors import BrokenFact, TooManyVariants, UsageError
from deplodock.held import Held
from deplodock.pipeline import Compilation, compile
from deplodock.runtime.cache import Cache
from deplodock.runtime.program import CompiledProgram, Loadable, same_layout
from deplodock.stored import loadable
from deplodock.target import at_hand

log = logging.getLogger("deplodock")

NUMERICS = ("strict", "default", "fast")


@dataclass(frozen=True, slots=True)
class Options:
    """How a module is compiled: see deplodock.compile."""
    numerics: str = "default"
    target: str | None = None
    variants: int = 8
    constants: int | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """What a program was compiled for in the place of a tensor. Alignment is the program's own business."""
    shape: torch.Size
    dtype: torch.dtype
    strides: tuple[int, ...]
    device: torch.device

    def broken(self, name: str, t) -> BrokenFact | None:
        """What is wrong with an argument in this place."""
        if not isinstance(t, torch.Tensor):
            return BrokenFact(name=name, fact="value", wanted="a tensor", given=repr(t))
        for fact, wanted, given in (("shape", tuple(self.shape), tuple(t.shape)), ("dtype", self.dtype, t.dtype),
                                    ("device", self.device, t.device), ("strides", self.strides, t.stride())):
            if wanted != given and not (fact == "strides" and same_layout(self.shape, wanted, given)):
                return BrokenFact(name=name, fact=fact, wanted=str(wanted), given=str(given))
        return None


@dataclass(slots=True)
class Variant:
    """A program for arguments of one kind.

    reason: why it was compiled, in words. calls: how often it has run. compilation: every stage on the way
    (pipeline.Compilation), for those who want to look. made: what running it needs, as data.
    """
    reason: str
    captured: Captured = field(repr=False)
    compilation: Compilation = field(repr=False)
    made: Loadable = field(repr=False)
    program: CompiledProgram = field(repr=False)
    held: Held = field(repr=False)
    tree: TreeSpec = field(repr=False)
    leaves: tuple = field(repr=False)
    """Of each argument a Fact, or the value that the program was compiled for."""
    calls: int = 0

    def broken(self, tree: TreeSpec, given: list) -> BrokenFact | None:
        """Why this is not the program for these arguments and the module as it is; None if it is, and then it has taken
        the module's parameters."""
        if tree != self.tree:
            return BrokenFact(name="the list of arguments", fact="structure", wanted=str(self.tree), given=str(tree))
        for number, (was, now) in enumerate(zip(self.leaves, given)):
            if isinstance(was, Fact):
                if found := was.broken(f"argument {number}", now):
                    return found
            elif not _agree(was, now):
                return BrokenFact(name=f"argument {number}", fact="value", wanted=repr(was), given=_said(now))
        if found := self.program.broken([given[at] for at in self.captured.positions]):
            return found
        if changed := self.held.changed():
            return BrokenFact(name="the module", fact="structure", wanted="the modules that it was compiled with",
                              given=changed)
        return self.program.hold(self.held.read())


class Compiled:
    """Called with arguments like those that the module was compiled for; returns what the module returns.

    variants: the programs there are, in the order in which they were compiled. Arguments that none was compiled for, or
    a module whose parts were replaced, are a new variant's. Parameters are read from the module at each call; what else
    it holds (numbers, lists, hooks) is as it was when the variant was compiled.

    GradientWanted for an input that requires a gradient outside of torch.no_grad(), TypeError for arguments that the
    module does not take, TooManyVariants (BrokenFact if there may be only one) beyond the limit.
    """

    def __init__(self, module: Callable, args: tuple, kwargs: dict, options: Options,
                 capture: Callable[..., Captured] = capture_module):
        self._capture = capture
        self._signature, self._module, self._options = _signature(module), as_module(module), options
        self._lock = threading.Lock()
        self.variants: tuple[Variant, ...] = ()
        args, kwargs = self._bound(args, kwargs)
        self._add(args, kwargs, "the example arguments")

    @property
    def compilation(self) -> Compilation:
        """Every stage on the way to the first variant."""
        return self.variants[0].compilation

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that all variants hold beside the module's parameters, and those of intermediates per stream."""
        each = [v.program.memory for v in self.variants]
        return {kind: sum(m[kind] for m in each) for kind in each[0]}

    def __call__(self, *args, **kwargs):
        args, kwargs = self._bound(args, kwargs)
        given, tree = tree_flatten((args, kwargs))
        variant = self._variant(tree, given) or self._another(args, kwargs, tree, given)
        variant.calls += 1
        return variant.captured.returned(variant.program.run([given[at] for at in variant.captured.positions]))

    def refresh(self) -> None:
        """Computes constants anew at the next call: for what was written to parameters behind PyTorch's back, through
        `.data` or the memory of an array that they share."""
        for v in self.variants:
            v.program.forget()

    def _variant(self, tree: TreeSpec, given: list) -> Variant | None:
        return next((v for v in self.variants if v.broken(tree, given) is None), None)

    def _another(self, args: tuple, kwargs: dict, tree: TreeSpec, given: list) -> Variant:
        """A new variant for arguments that none there is can take, or the one that another thread has just made."""
        with self._lock:
            if found := self._variant(tree, given):
                return found
            broken = [v.broken(tree, given) for v in self.variants]
            if self._options.variants == 1:
                raise broken[0]
            if len(self.variants) >= self._options.variants:
                raise TooManyVariants(count=len(self.variants), found=_because(broken[-1]))
            nearest = next((b for b in broken if b.facts["fact"] not in ("structure", "value")), broken[-1])
            self._add(args, kwargs, _because(nearest))
            log.info("compiled variant %d: %s", len(self.variants), self.variants[-1].reason)
            return self.variants[-1]

    def _add(self, args: tuple, kwargs: dict, reason: str) -> None:
        """Compiles the module for these arguments."""
        captured = self._capture(self._module, args, kwargs)
        leaves, tree = tree_flatten((args, kwargs))
        device = _device([*captured.inputs, *captured.parameters.values(), *leaves])
        target = self._options.target
        compilation = compile(captured, at_hand(device) if target is None else target, self._options.numerics)
        made = loadable(compilation, Cache("program"))
        compilation.release()
        held = Held(self._module, captured.program.parameters, captured.parameters)
        program = CompiledProgram(made, held.read(), device, Cache("cubin"), self._options.constants)
        facts = (Fact(t.shape, t.dtype, t.stride(), t.device) if isinstance(t, torch.Tensor) else t for t in leaves)
        self.variants += (Variant(reason, captured, compilation, made, program, held, tree, tuple(facts)),)

    def _bound(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Arguments as the signature has them, however they were passed."""
        if self._signature is None:
            return args, kwargs
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args, bound.kwargs


def compile_module(module: Callable, example_inputs, example_kwargs: Mapping | None, options: Options) -> Compiled:
    """See deplodock.compile. UsageError for arguments that make no sense."""
    if not callable(module):
        raise UsageError(title=f"cannot compile {type(module).__name__}", expected="an nn.Module or a function of tensors",
                         found=repr(module), advice="pass the module itself, and its arguments as example_inputs")
    check_options(options)
    args = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    return Compiled(module, tuple(args), dict(example_kwargs or {}), options)


def check_options(options: Options) -> None:
    """UsageError for a value that an option cannot have."""
    if options.numerics not in NUMERICS:
        raise UsageError(title=f"unknown numerics {options.numerics!r}", expected=", ".join(NUMERICS),
                         found=repr(options.numerics))
    for name, value, least in (("variants", options.variants, 1), ("constants", options.constants, 0)):
        if value is not None and not (isinstance(value, int) and value >= least):
            raise UsageError(title=f"{name} is {value!r}", expected=f"a number, at least {least}", found=repr(value))


def _signature(module: Callable) -> inspect.Signature | None:
    """What a module's arguments are called; None where Python does not know."""
    try:
        return inspect.signature(module.forward if isinstance(module, torch.nn.Module) else module)
    except ValueError:
        return None


def _device(values) -> torch.device:
    """Where a program runs: where its inputs are, else its parameters, else its other arguments, else the CPU."""
    return next((t.device for t in values if isinstance(t, torch.Tensor)), torch.device("cpu"))


def _agree(was, now) -> bool:
    """Whether a value may stand for the one that was compiled for: the same one, NaN and the sign of zero included."""
    if type(was) is not type(now):
        return False
    return repr(was) == repr(now) if isinstance(was, (float, complex)) else was == now


def _said(value) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)


def _because(broken: BrokenFact) -> str:
    """A broken fact in one line."""
    facts = broken.facts
    return f"{facts['name']} has another {facts['fact']}: {facts['given']}, and not {facts['wanted']}"
