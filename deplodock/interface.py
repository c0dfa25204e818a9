"""How a program is called and what it returns, in terms of the module that it was captured from.

Arguments may be nested tuples, lists and dicts; their leaves are tensors, of which facts have to hold, and values that are
part of the program.
"""
from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils._pytree import TreeSpec, tree_unflatten

from deplodock.errors import BrokenFact
from deplodock.runtime.program import same_layout


@dataclass(frozen=True, slots=True)
class Fact:
    """What a program was compiled for in the place of a tensor. Alignment is the program's own business."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    strides: tuple[int, ...]
    device: torch.device

    def broken(self, name: str, t) -> BrokenFact | None:
        """What is wrong with an argument in this place."""
        if not isinstance(t, torch.Tensor):
            return BrokenFact(name=name, fact="value", wanted="a tensor", given=repr(t))
        for fact, wanted, given in (("shape", self.shape, tuple(t.shape)), ("dtype", self.dtype, t.dtype),
                                    ("device", self.device, t.device), ("strides", self.strides, t.stride())):
            if wanted != given and not (fact == "strides" and same_layout(self.shape, wanted, given)):
                return BrokenFact(name=name, fact=fact, wanted=str(wanted), given=str(given))
        return None


def fact_of(t: torch.Tensor) -> Fact:
    return Fact(tuple(t.shape), t.dtype, t.stride(), t.device)


@dataclass(frozen=True, slots=True)
class Interface:
    """tree: torch's TreeSpec of (args, kwargs); leaves: for each argument a Fact, or the value that the program was compiled
    for; positions: of the program's inputs among them; result: TreeSpec of what is returned; absent: which of its leaves
    are None, and no outputs of the program."""
    tree: TreeSpec
    leaves: tuple
    positions: tuple[int, ...]
    result: TreeSpec
    absent: tuple[int, ...]

    def broken(self, tree: TreeSpec, given: Sequence) -> BrokenFact | None:
        """What is wrong with flat arguments; None if the program can take them."""
        if tree != self.tree:
            return BrokenFact(name="the list of arguments", fact="structure", wanted=str(self.tree), given=str(tree))
        for number, (was, now) in enumerate(zip(self.leaves, given)):
            if isinstance(was, Fact):
                if found := was.broken(f"argument {number}", now):
                    return found
            elif not _agree(was, now):
                return BrokenFact(name=f"argument {number}", fact="value", wanted=repr(was),
                                  given="a tensor" if isinstance(now, torch.Tensor) else repr(now))
        return None

    def inputs(self, given: Sequence) -> list[torch.Tensor]:
        """The program's inputs among flat arguments."""
        return [given[at] for at in self.positions]

    def returned(self, outputs: Sequence[torch.Tensor]):
        """The program's outputs as the tuples, lists and dicts that the module returns."""
        rest = iter(outputs)
        return tree_unflatten([None if i in self.absent else next(rest) for i in range(self.result.num_leaves)], self.result)


def signature_of(module) -> inspect.Signature | None:
    """What a module's or a function's arguments are called; None where Python does not know."""
    try:
        return inspect.signature(module.forward if isinstance(module, torch.nn.Module) else module)
    except ValueError:
        return None


def bound(signature: inspect.Signature | None, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Arguments as the signature has them, however they were passed, defaults filled in if they are such as torch.export
    takes. TypeError for arguments that the signature does not take."""
    if signature is None:
        return args, kwargs
    found = signature.bind(*args, **kwargs)
    for p in signature.parameters.values():
        if p.name not in found.arguments and (plain(p.default) or isinstance(p.default, torch.Tensor)):
            found.arguments[p.name] = p.default
    return found.args, found.kwargs


def plain(value) -> bool:
    """Whether a value is None, a number or a string: what files and graphs can hold."""
    return value is None or type(value) in (bool, int, float, str)


def _agree(was, now) -> bool:
    """Whether a value may stand for the one that was compiled for: the same one, NaN and the sign of zero included."""
    if type(was) is not type(now):
        return False
    return repr(was) == repr(now) if isinstance(was, (float, complex)) else was == now
