"""The Python interface: a module with example arguments becomes a callable. `deplodock.compile` is its entry.

A compiled module has *variants*: programs for arguments of other shapes, dtypes, strides, alignments or values than the
example's. The first call with such arguments compiles one, and says why.
"""
from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.utils._pytree import TreeSpec, tree_flatten

from deplodock.capture import Captured, as_module, capture_module
from deplodock.errors import BrokenFact, TooManyVariants, UsageError
from deplodock.held import Held
from deplodock.interface import Interface, bound, fact_of, signature_of
from deplodock.pipeline import Compilation, compile
from deplodock.runtime.cache import Cache
from deplodock.runtime.program import CompiledProgram, Loadable
from deplodock.stored import loadable
from deplodock.target import at_hand, target

log = logging.getLogger("deplodock")

NUMERICS = ("strict", "default", "fast")

TRACING = threading.RLock()
"""Held while a module is traced, which puts other tensors into it, and while a call reads what modules hold."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a module is compiled: see deplodock.compile."""
    numerics: str = "default"
    target: str | None = None
    variants: int = 8
    constants: int | None = None


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
    interface: Interface = field(repr=False)
    calls: int = 0

    def broken(self, tree: TreeSpec, given: list) -> BrokenFact | None:
        """Why this is not the program for these arguments and the module as it is; None if it is, and then it has taken
        the module's parameters."""
        if found := self.interface.broken(tree, given) or self.program.broken(self.interface.inputs(given)):
            return found
        if changed := self.held.changed():
            return BrokenFact(name="the module", fact="structure", wanted="the modules that it was compiled with",
                              given=changed)
        return self.program.hold(self.held.read())


class Compiled:
    """Called with arguments like those that the module was compiled for; returns what the module returns.

    variants: the programs there are, in the order in which they were compiled. Arguments that none was compiled for, or
    a module whose parts were replaced, are a new variant's. Parameters are read from the module at each call; what else
    it holds (numbers, lists, hooks) is as it was when the variant was compiled. Threads may call it at the same time; the
    module itself must not run in another thread while a variant is compiled, as torch.export changes it meanwhile.

    GradientWanted for an input that requires a gradient outside of torch.no_grad(), TypeError for arguments that the
    module does not take, TooManyVariants (BrokenFact if there may be only one) beyond the limit.
    """

    def __init__(self, module: Callable, args: tuple, kwargs: dict, options: Options,
                 capture: Callable[..., Captured] = capture_module):
        self._capture = capture
        self._signature, self._module, self._options = signature_of(module), as_module(module), options
        self._lock = threading.Lock()
        self.variants: tuple[Variant, ...] = ()
        args, kwargs = bound(self._signature, args, kwargs)
        self._add(args, kwargs, "the example arguments")

    def save(self, folder, weights: Sequence = ()) -> None:
        """Writes the first variant to a folder, for deplodock.load and `deplodock run`: see deplodock.saved."""
        from deplodock.saved import save
        v = self.variants[0]
        parameters = {**v.captured.parameters, **v.held.read()}
        save(folder, v.made, parameters, v.interface, self._signature, self._options.numerics, weights)

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
        args, kwargs = bound(self._signature, args, kwargs)
        given, tree = tree_flatten((args, kwargs))
        variant = self._variant(tree, given) or self._another(args, kwargs, tree, given)
        variant.calls += 1
        return variant.interface.returned(variant.program.run(variant.interface.inputs(given)))

    def refresh(self) -> None:
        """Computes constants anew at the next call: for what was written to parameters behind PyTorch's back, through
        `.data` or the memory of an array that they share."""
        for v in self.variants:
            v.program.forget()

    def _variant(self, tree: TreeSpec, given: list) -> Variant | None:
        with TRACING:
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
            nearest = min(broken, key=_distance)
            self._add(args, kwargs, _because(nearest))
            log.info("compiled variant %d: %s", len(self.variants), self.variants[-1].reason)
            return self.variants[-1]

    def _add(self, args: tuple, kwargs: dict, reason: str) -> None:
        """Compiles the module for these arguments."""
        with TRACING:
            captured = self._capture(self._module, args, kwargs)
        leaves, tree = tree_flatten((args, kwargs))
        device = _device([*captured.inputs, *captured.parameters.values(), *leaves])
        target = self._options.target
        compilation = compile(captured, at_hand(device) if target is None else target, self._options.numerics)
        made = loadable(compilation, Cache("program"))
        compilation.release()
        held = Held(self._module, captured.program.parameters, captured.parameters)
        program = CompiledProgram(made, held.read(), device, Cache("cubin"), self._options.constants)
        facts = tuple(fact_of(t) if isinstance(t, torch.Tensor) else t for t in leaves)
        interface = Interface(tree, facts, captured.positions, captured.tree, captured.absent)
        self.variants += (Variant(reason, captured, compilation, made, program, held, interface),)


def compile_module(module: Callable, example_inputs, example_kwargs: Mapping | None, options: Options) -> Compiled:
    """See deplodock.compile. UsageError for arguments that make no sense."""
    if not callable(module):
        raise UsageError(title=f"cannot compile {type(module).__name__}", expected="an nn.Module or a function of tensors",
                         found=repr(module), advice="pass the module itself, and its arguments as example_inputs")
    check_options(options)
    args = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    return Compiled(module, tuple(args), dict(example_kwargs or {}), options)


def check_options(options: Options) -> None:
    """UsageError for a value that an option cannot have, UnknownTarget for one that is no target's name."""
    if options.target is not None:
        target(options.target)
    if options.numerics not in NUMERICS:
        raise UsageError(title=f"unknown numerics {options.numerics!r}", expected=", ".join(NUMERICS),
                         found=repr(options.numerics))
    for name, value, least in (("variants", options.variants, 1), ("constants", options.constants, 0)):
        if value is not None and not (isinstance(value, int) and value >= least):
            raise UsageError(title=f"{name} is {value!r}", expected=f"a number, at least {least}", found=repr(value))


def _device(values) -> torch.device:
    """Where a program runs: where its inputs are, else its parameters, else its other arguments, else the CPU."""
    return next((t.device for t in values if isinstance(t, torch.Tensor)), torch.device("cpu"))


def _distance(broken: BrokenFact) -> int:
    """How far a variant is from what it was asked for: the module is looked at last, after all facts of arguments."""
    name, fact = broken.facts["name"], broken.facts["fact"]
    return 0 if name == "the module" else 2 if fact in ("structure", "value") else 1


def _because(broken: BrokenFact) -> str:
    """A broken fact in one line."""
    facts = broken.facts
    return f"{facts['name']} has another {facts['fact']}: {facts['given']}, and not {facts['wanted']}"
