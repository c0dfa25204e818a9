"""Tensors that a program is given: the facts that Torch IR keeps of them, and copies that keep these facts."""
from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from deplodock.capture.build import RESERVED, unique
from deplodock.errors import MismatchedDevices, WrongDtype
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import Source, Value, contiguous
from deplodock.overlap import overlap


def described(tensors: Mapping[str, torch.Tensor], names: Mapping[str, str],
              paths: Mapping[str, str]) -> dict[str, Value]:
    """What Torch IR says about tensors that a program is given. Raises WrongDtype for those it cannot hold."""
    values: dict[str, Value] = {}
    taken = set(RESERVED)
    for placeholder, t in tensors.items():
        name = unique(names.get(placeholder, placeholder), taken)
        taken.add(name)
        dtype = checked_dtype(name, t)
        earlier = (values[p].name for p in values if overlap(t, tensors[p]))
        values[placeholder] = Value(name, dtype, tuple(t.shape), strides_of(t), t.storage_offset(), alignment_of(t),
                                    paths.get(placeholder, ""), next(earlier, ""))
    return values


def checked_dtype(name: str, t: torch.Tensor, where: Source | None = None) -> Dtype:
    """The dtype of a dense tensor; WrongDtype for all that Torch IR cannot hold. where: the line that made it."""
    dtype = Dtype.of_torch(t.dtype)
    if dtype is None or not is_dense(t):
        kind = ", nested" if t.is_nested else f", {t.layout}" if t.layout != torch.strided else \
            ", a negated view (see resolve_neg)" if t.is_neg() else ""
        raise WrongDtype(where, name=name, dtype=f"{t.dtype}{kind}")
    return dtype


def is_dense(t: torch.Tensor) -> bool:
    """Whether a tensor's elements are where its strides say, and are what its memory holds."""
    return t.layout == torch.strided and not (t.is_nested or t.is_quantized or t.is_neg())


def strides_of(t: torch.Tensor) -> tuple[int, ...]:
    """Strides in elements; row-major ones where there is only one way to walk the elements."""
    return contiguous(tuple(t.shape)) if t.is_contiguous() else tuple(t.stride())


def alignment_of(t: torch.Tensor) -> int:
    """Alignment of the first element in bytes, at most 16: no instruction asks for more."""
    return 16 if t.is_meta else math.gcd(t.data_ptr(), 16)


def moved_to(device: torch.device | str, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copies on a device, storage by storage: strides, offsets and what shares memory stay as they are."""
    storages: dict[int, torch.UntypedStorage] = {}
    moved = []
    for t in tensors:
        whole = t.untyped_storage()
        if whole.data_ptr() not in storages:
            bytes_ = torch.empty(0, dtype=torch.uint8, device=t.device).set_(whole).to(device, copy=True)
            storages[whole.data_ptr()] = bytes_.untyped_storage()
        empty = torch.empty(0, dtype=t.dtype, device=device)
        moved.append(empty.set_(storages[whole.data_ptr()], t.storage_offset(), t.shape, t.stride()))
    return moved


def copied(t: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor and of all its storage."""
    return moved_to(t.device, [t])[0]


def check_devices(tensors: Mapping[str, torch.Tensor], names: Mapping[str, str]) -> torch.device:
    """The one device that all tensors are on (the CPU where there are none), or MismatchedDevices."""
    where: dict[torch.device, str] = {}
    for placeholder, t in tensors.items():
        where.setdefault(t.device, names.get(placeholder, placeholder))
    if len(where) > 1:
        raise MismatchedDevices(found=", ".join(f"{name} on {device}" for device, name in where.items()))
    return next(iter(where), torch.device("cpu"))
