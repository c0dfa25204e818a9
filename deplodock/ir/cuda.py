"""CUDA: the text of a kernel, and what a launch of it needs. It is all that running reads of a compilation's last stage."""
from __future__ import annotations

from dataclasses import dataclass

from deplodock.ir.dtype import Dtype


@dataclass(frozen=True, slots=True)
class Param:
    """A pointer to element 0 of the buffer `name`, called `pointer` in the text."""
    name: str
    pointer: str
    dtype: Dtype
    written: bool


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor map, all sizes slowest first. `dims` in elements, `strides` in bytes, none for the last; `box` is what
    one copy moves, in elements; `swizzle` in bytes: 0, 32, 64 or 128. What a box has outside of it arrives as 0."""
    name: str
    buffer: str
    dtype: Dtype
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """A kernel's text and how it is launched: a grid of `grid` blocks in one dimension, with the addresses of `params`
    and then the tensor maps `maps` as arguments, in order."""
    name: str
    text: str
    """The kernel alone, without the wrappers it calls."""
    wrappers: str
    grid: int
    """Blocks; 0: there is nothing to do."""
    threads: int
    shared: int
    """Bytes of dynamic shared memory."""
    params: tuple[Param, ...]
    maps: tuple[Map, ...]

    @property
    def source(self) -> str:
        """The whole source."""
        return f"{self.wrappers}\n{self.text}"
