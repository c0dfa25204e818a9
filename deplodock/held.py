"""What a module holds: its parameters, read where they are at each call, and what must not change between calls.

A program reads parameters, buffers and tensors that are plain attributes, so those are looked up anew for every call: a
parameter that was replaced counts. Which modules there are, whether they are in training mode, which parameters are
missing and which are one tensor is part of the program.
"""
from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from deplodock.ir.torch import Value

Place = tuple[dict, str]
"""A dictionary of a module, and the key in it."""


class Held:
    """The parameters of a program in the module that it was captured from.

    root: that module. values: the program's parameters; tensors: what they were, by name. One that is found nowhere in
    the module (a tensor of a closure) stays the tensor that it was.
    """

    def __init__(self, root: nn.Module, values: Iterable[Value], tensors: dict[str, torch.Tensor]):
        self._places: dict[str, Place] = {}
        self._fixed: dict[str, torch.Tensor] = {}
        for v in values:
            place = _place(root, v.path)
            if place and _same_memory(place[0][place[1]], tensors[v.name]):
                self._places[v.name] = place
            else:
                self._fixed[v.name] = tensors[v.name]
        self._modules = [(m._modules, key, child, f"{path}.{key}".lstrip("."))
                         for path, m in root.named_modules() for key, child in m._modules.items()]
        self._counts = [(d, len(d), path or "the module") for path, m in root.named_modules() for d in (m._modules, m._parameters)]
        self._training = [(m, m.training, path or "the module") for path, m in root.named_modules()]
        slots = [(d, key, f"{path}.{key}".lstrip("."))
                 for path, m in root.named_modules() for d in (m._parameters, m._buffers) for key in d]
        self._missing = [slot for slot in slots if slot[0][slot[1]] is None]
        groups: dict[int, list] = {}
        for slot in slots:
            groups.setdefault(id(slot[0][slot[1]]), []).append(slot)
        self._tied = [(g[0], other) for g in groups.values() for other in g[1:] if g[0][0][g[0][1]] is not None]

    def read(self) -> dict[str, torch.Tensor]:
        """The parameters by name, as they are now."""
        return {name: d[key] for name, (d, key) in self._places.items()} | self._fixed

    def changed(self) -> str:
        """What is not as it was when the program was captured, in words; empty if everything is."""
        for d, key, child, path in self._modules:
            if d.get(key) is not child:
                return f"{path} is another module"
        for d, count, path in self._counts:
            if len(d) != count:
                return f"{path} has modules or parameters that it had not, or lacks some"
        for module, training, path in self._training:
            if module.training is not training:
                return f"{path} is {'no longer' if training else 'now'} in training mode"
        for d, key, path in self._missing:
            if d.get(key) is not None:
                return f"{path} is no longer None"
        for (d, key, path), (other, name, also) in self._tied:
            if d.get(key) is not other.get(name):
                return f"{path} and {also} are no longer one tensor"
        for d, key in self._places.values():
            if not isinstance(d.get(key), torch.Tensor):
                return f"{key} is no longer a tensor"
        return ""


def _place(root: nn.Module, path: str) -> Place | None:
    """Where a module keeps the tensor of a path such as "layers.0.weight"."""
    *parents, key = path.split(".")
    module = root
    for name in parents:
        if name not in module._modules:
            return None
        module = module._modules[name]
    return next(((d, key) for d in (module._parameters, module._buffers, vars(module))
                 if isinstance(d.get(key), torch.Tensor)), None)


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.dtype == b.dtype
