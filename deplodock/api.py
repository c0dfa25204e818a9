"""The Python interface: a module with example arguments becomes a callable. `deplodock.compile` is its entry."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import torch
from torch.utils._pytree import tree_flatten

from deplodock.capture import capture_module
from deplodock.errors import BrokenFact, UsageError
from deplodock.pipeline import Compilation, compile
from deplodock.runtime.cache import Cache
from deplodock.runtime.program import CompiledProgram
from deplodock.stored import loadable
from deplodock.target import at_hand

NUMERICS = ("strict", "default", "fast")


class Compiled:
    """Called with arguments like those that the module was compiled for; returns what the module returns.

    compilation: every stage on the way (pipeline.Compilation), for those who want to look.

    BrokenFact for an argument that is not what it was compiled for, GradientWanted for an input that requires a gradient
    outside of torch.no_grad(), TypeError for arguments that the module does not take.
    """

    def __init__(self, module: Callable, args: tuple, kwargs: dict, numerics: str, target: str | None):
        self._signature = _signature(module)
        args, kwargs = self._bound(args, kwargs)
        captured = self._captured = capture_module(module, args, kwargs)
        self._leaves, self._tree = tree_flatten((args, kwargs))
        device = _device([*captured.inputs, *captured.parameters.values(), *self._leaves])
        self.compilation = x = compile(captured, at_hand(device) if target is None else target, numerics)
        made = loadable(x, Cache("program"))
        self._program = CompiledProgram(made, captured.parameters, device, Cache("cubin"))

    def __call__(self, *args, **kwargs):
        given, tree = tree_flatten(self._bound(args, kwargs))
        if tree != self._tree:
            raise BrokenFact(name="the list of arguments", fact="structure", wanted=str(self._tree), given=str(tree))
        for i, (was, now) in enumerate(zip(self._leaves, given)):
            if not _agree(was, now):
                raise BrokenFact(name=f"argument {i}", fact="value", wanted=_said(was), given=_said(now))
        return self._captured.returned(self._program(*(given[at] for at in self._captured.positions)))

    def _bound(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Arguments as the signature has them, however they were passed."""
        if self._signature is None:
            return args, kwargs
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args, bound.kwargs


def compile_module(module: Callable, example_inputs, example_kwargs: Mapping | None, numerics: str,
                   target: str | None) -> Compiled:
    """See deplodock.compile. UsageError for arguments that make no sense."""
    if not callable(module):
        raise UsageError(title=f"cannot compile {type(module).__name__}", expected="an nn.Module or a function of tensors",
                         found=repr(module), advice="pass the module itself, and its arguments as example_inputs")
    if numerics not in NUMERICS:
        raise UsageError(title=f"unknown numerics {numerics!r}", expected=", ".join(NUMERICS), found=repr(numerics))
    args = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    return Compiled(module, tuple(args), dict(example_kwargs or {}), numerics, target)


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
    """Whether an argument may stand for the one that was compiled for. What a tensor has to be, the program checks."""
    if isinstance(was, torch.Tensor):
        return isinstance(now, torch.Tensor)
    return type(was) is type(now) and (was == now or was != was and now != now)


def _said(value) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)
