"""GPUs that kernels are compiled for and costed on.

A target is a GPU: its architecture says what code may be emitted, its figures what that code is expected to cost. An
architecture alone stands for the GPU that most people who compile for it own. Rates are what well-written kernels
reach, not the peaks of data sheets, so that an estimate is a time one can hope for.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from deplodock.errors import UnknownTarget


@dataclass(frozen=True, slots=True)
class Target:
    """One GPU model. Rates are per second for the whole GPU; a multiply-add counts as two operations."""
    name: str
    arch: str
    """The architecture to compile for, as nvcc spells it after "compute_": sm_80, sm_90a .."""
    sms: int
    bandwidth: float
    """Device memory, bytes/s."""
    mma: float
    """Products of 16-bit operands on tensor cores, accumulated in f32: operations/s."""
    fma32: float
    """f32 multiply-adds outside the tensor cores: operations/s."""
    fma64: float
    vector: float
    """Other pointwise operations in 32 bits (one lane each): operations/s."""
    special: float
    """Special-function units (exp2, log2, sin, rcp, rsqrt ..): operations/s."""
    shared: int
    """Shared memory that one block can have, bytes."""
    clock: float
    """SM clock under load, Hz."""
    registers: int = 65_536
    """32-bit registers of an SM; one thread can have at most 255."""
    launch: float = 2e-6
    """Seconds between the starts of two dependent, empty kernels in a CUDA graph."""


def _gpu(name: str, arch: str, sms: int, clock: float, bandwidth: float, mma: float, fma64: float, shared: int,
         lanes: int = 128, kept: float = 0.75) -> Target:
    """A target whose rates outside the tensor cores follow from lanes an SM and the clock; `kept` of them is sustained.
    """
    lane = sms * lanes * clock * kept
    return Target(name, arch, sms, bandwidth, mma, 2 * lane, fma64, lane, sms * 16 * clock * kept, shared, clock)


TARGETS = {t.name: t for t in (
    _gpu("h200", "sm_90a", 132, 1.98e9, 4.2e12, 700e12, 50e12, 227 * 1024),
    _gpu("h100", "sm_90a", 132, 1.75e9, 2.9e12, 620e12, 45e12, 227 * 1024),
    _gpu("a100", "sm_80", 108, 1.41e9, 1.75e12, 250e12, 8e12, 163 * 1024, lanes=64),
    _gpu("a10", "sm_86", 72, 1.5e9, 0.5e12, 60e12, 0.4e12, 99 * 1024),
    _gpu("l40s", "sm_89", 142, 2.2e9, 0.75e12, 250e12, 1e12, 99 * 1024),
    _gpu("b200", "sm_100a", 148, 1.85e9, 7e12, 1600e12, 30e12, 227 * 1024),
    _gpu("rtx5090", "sm_120", 170, 2.4e9, 1.6e12, 180e12, 1.4e12, 99 * 1024),
)}
"""The GPUs that have figures: by data sheet, less what STREAM-like copies and library products leave unused; h200's
bandwidth, mma and clock are measured."""

DEFAULTS = {"sm_80": "a100", "sm_86": "a10", "sm_89": "l40s", "sm_90": "h200", "sm_90a": "h200", "sm_100": "b200",
            "sm_100a": "b200", "sm_120": "rtx5090"}
"""The GPU that an architecture stands for."""


def target(name: str) -> Target:
    """The target of a GPU's name ("h200") or of an architecture ("sm_90a"). UnknownTarget if there is no such one."""
    key = name.lower()
    found = TARGETS.get(DEFAULTS.get(key, key))
    if found is None:
        raise UnknownTarget(target=name, known=", ".join([*TARGETS, *DEFAULTS]))
    return replace(found, arch=key) if key in DEFAULTS else found


def at_hand(device=None) -> Target:
    """The target of a torch.device, the current one if None: its GPU, or an h200 where there is none. UnknownTarget for a
    GPU whose architecture stands for none that is known.
    """
    import torch
    if not torch.cuda.is_available() or device is not None and device.type != "cuda":
        return target("h200")
    model = torch.cuda.get_device_name(device).lower().replace(" ", "")
    major, minor = torch.cuda.get_device_capability(device)
    known = next((t for t in TARGETS.values() if t.name in model), None)
    return known or target(f"sm_{major}{minor}{'a' if major >= 9 else ''}")
