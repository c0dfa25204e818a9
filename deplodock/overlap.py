"""Which tensors have memory in common: what a program writes to must be seen through one tensor only."""
from __future__ import annotations

from collections.abc import Mapping

import torch

from deplodock.errors import OverlappingWrite


def check_written(name: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """OverlappingWrite if the tensor of that name has memory in common with another one, or with itself."""
    t = tensors[name]
    if any(n > 1 and not s for n, s in zip(t.shape, t.stride())):
        raise OverlappingWrite(name=name, found=f"strides {tuple(t.stride())}: several of its elements are one")
    for other, x in tensors.items():
        if other != name and overlap(t, x):
            raise OverlappingWrite(name=name, found=f"{other} lies in the same memory")


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have memory in common, as ranges of bytes of one storage."""
    if a.is_meta or not a.numel() or not b.numel() or a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return False
    (a0, a1), (b0, b1) = _bytes(a), _bytes(b)
    return a0 < b1 and b0 < a1


def _bytes(t: torch.Tensor) -> tuple[int, int]:
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
    return t.data_ptr(), t.data_ptr() + (last + 1) * t.element_size()
