"""What the emulation runs: launches of kernels over named buffers. Plain data.

    Launch   = kernel, grid, block, cluster, shared, arguments
    Argument = Pointer(buffer, bytes) | Map (a tensor map, of ir/kernel.py) | int | float
"""
from __future__ import annotations

from dataclasses import dataclass

from deplodock.ir.cuda import Map


@dataclass(frozen=True, slots=True)
class Pointer:
    """The address of a buffer's first element, or `offset` bytes past it."""
    buffer: str
    offset: int = 0


Argument = Pointer | Map | int | float


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch. grid and block count blocks and threads in x, y, z; shared: bytes of dynamic shared memory.

    A Python int is passed as a C int, a float as a C float.
    """
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared: int = 0
    cluster: int = 1


def script(launches: tuple[Launch, ...], numbers: dict[str, int]) -> list[str]:
    """The lines of main.cc's input for launches; numbers: the place of each buffer in the list of buffers."""
    lines = []
    for launch in launches:
        sizes = (*launch.grid, *launch.block, launch.cluster, launch.shared)
        lines.append(f"kernel {launch.kernel} " + " ".join(map(str, sizes)))
        lines += [_argument(a, numbers) for a in launch.arguments]
        lines.append("go")
    return lines


def _argument(a: Argument, numbers: dict[str, int]) -> str:
    match a:
        case Pointer(buffer, offset):
            return f"pointer {numbers[buffer]} {offset}"
        case Map(_, buffer, dtype, dims, strides, box, swizzle):
            innermost_first = (*reversed(dims), *reversed(box), *reversed(strides))
            return " ".join(map(str, ("map", numbers[buffer], 0, dtype.bytes, len(dims), swizzle, *innermost_first)))
        case int():
            return f"int {a}"
        case float():
            return f"float {a!r}"
    raise TypeError(f"no argument of a kernel: {a!r}")
