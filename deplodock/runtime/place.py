"""Tensors and graphs on another device, otherwise as they are."""
from __future__ import annotations

import copy
from collections.abc import Callable

import torch


def place(t: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """A tensor on a device, with its strides and storage offset, which are facts a program is compiled for."""
    if t.device.type == torch.device(device).type:
        return t.detach()
    if t.is_contiguous() and not t.storage_offset():
        return t.detach().to(device)
    reach = t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) + 1 if t.numel() else 0
    flat = t.detach().as_strided((reach,), (1,), 0).to(device)
    return flat.as_strided(t.shape, t.stride(), t.storage_offset())


def eager_on(captured, device: torch.device | str) -> Callable[..., tuple[torch.Tensor, ...]]:
    """PyTorch's own graph of a captured program on a device: (*parameters, *inputs) -> outputs.

    What the graph makes itself (arange, full, masks) it makes on the device it was captured on: those arguments change.
    """
    graph = copy.deepcopy(captured.graph).to(device)
    for node in graph.graph.nodes:
        if isinstance(node.kwargs.get("device"), (torch.device, str)):
            node.kwargs = {**node.kwargs, "device": torch.device(device)}
    graph.recompile()
    return lambda *tensors: tuple(graph(*tensors))
