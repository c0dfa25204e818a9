"""Layouts over F2: which bits of (register, lane, warp) hold which bits of which axis, and where a tile lies in memory.

    Layout = registers, lanes, warps       a tile spread over the threads of a block
    Shared = rows, columns, element size   a tile in shared memory: row pitch, panels, swizzle
    Address = Layout o Shared              the byte address of each register of each thread

A Layout is given by its basis. Each lane bit and each warp bit adds `step` to one axis, or nothing (None: the threads
that differ in this bit hold copies). The registers of a thread are digits (axis, step, size), lowest first; size is 2,
a bit, but for the outermost digit of an axis, which may have any size: a tile that is no power of two repeats one.
Every step is a power of two. Axes are named; what a name stands for is the business of whoever holds the layout.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import xor
from typing import Collection, Iterable, Mapping

Digit = tuple[str, int, int]
"""(axis, step, size): the j-th value adds j * step to the axis."""
Bit = tuple[str, int] | None
"""(axis, step), or None: a copy."""
Source = tuple[str, int, int]
"""("lane" or "warp", number of the bit, what it adds where it is set)."""


def log2(n: int) -> int:
    """The exponent of a power of two. ValueError for another number."""
    if n <= 0 or n & (n - 1):
        raise ValueError(f"{n} is no power of two")
    return n.bit_length() - 1


def xor_all(values: Iterable[int]) -> int:
    return reduce(xor, values, 0)


@dataclass(frozen=True, slots=True)
class Layout:
    """A tile spread over the registers, lanes and warps of a block."""
    regs: tuple[Digit, ...]
    lane: tuple[Bit, ...]
    """Five bits."""
    warp: tuple[Bit, ...]

    @property
    def size(self) -> int:
        """Registers of a thread, counted in elements."""
        return prod(size for _, _, size in self.regs)

    @property
    def axes(self) -> frozenset[str]:
        return frozenset([d[0] for d in self.regs] + [b[0] for b in self.lane + self.warp if b])

    def extent(self, axis: str) -> int:
        """Elements of the tile along an axis: 1 for one it does not have."""
        return max([1] + [step * size for a, step, size in self.regs if a == axis]
                   + [2 * b[1] for b in self.lane + self.warp if b and b[0] == axis])

    def project(self, axes: Collection[str]) -> Layout:
        """The layout of a tile that lacks some axes: their registers go, their lanes and warps hold copies."""
        def keep(bits):
            return tuple(b if b and b[0] in axes else None for b in bits)
        return Layout(tuple(d for d in self.regs if d[0] in axes), keep(self.lane), keep(self.warp))

    def thread(self, axis: str) -> tuple[Source, ...]:
        """What the bits of the thread's number add to its coordinate on an axis."""
        return tuple((name, i, b[1]) for name, bits in (("lane", self.lane), ("warp", self.warp))
                     for i, b in enumerate(bits) if b and b[0] == axis)

    def digits(self, axis: str) -> tuple[tuple[int, int, int], ...]:
        """(stride, size, step): register r adds (r // stride % size) * step to the coordinate on an axis."""
        out, stride = [], 1
        for a, step, size in self.regs:
            if a == axis:
                out.append((stride, size, step))
            stride *= size
        return tuple(out)

    def coordinate(self, axis: str, lane: int, warp: int, register: int) -> int:
        """The coordinate that a register of a thread holds on an axis."""
        at = {"lane": lane, "warp": warp}
        return (sum(step for name, i, step in self.thread(axis) if at[name] >> i & 1)
                + sum(register // stride % size * step for stride, size, step in self.digits(axis)))

    def register_in(self, source: Layout, off: Mapping[str, int]) -> tuple[int, tuple[tuple[int, int, int], ...]]:
        """Which register of a tile laid out as `source`, that holds this tile at `off`, is register r of this one.

        (constant, ((stride, size, scale), ..)): constant + sum of (r // stride % size) * scale. The threads agree: see
        `holds`.
        """
        mine, stride = {}, 1
        for axis, step, size in self.regs:
            mine[axis, step] = (stride, size)
            stride *= size
        const, digits, scale = 0, [], 1
        for axis, step, size in source.regs:
            if (axis, step) in mine:
                digits.append((*mine[axis, step], scale))
            else:
                const += off.get(axis, 0) // step % size * scale
            scale *= size
        return const, tuple(digits)

    def holds(self, part: Layout) -> bool:
        """Whether a tile laid out as `part` is some of the registers of this one."""
        return self.lane == part.lane and self.warp == part.warp and set(part.regs) <= set(self.regs)

    @property
    def copies(self) -> tuple[tuple[str, int], ...]:
        """The lane and warp bits whose threads hold copies: ("lane" or "warp", number of the bit)."""
        return tuple((name, i) for name, bits in (("lane", self.lane), ("warp", self.warp))
                     for i, b in enumerate(bits) if b is None)

    def __str__(self) -> str:
        def bits(bs):
            return " ".join(f"{b[0]}:{b[1]}" if b else "-" for b in bs)
        regs = " ".join(f"{a}:{step}" + (f"x{size}" if size != 2 else "") for a, step, size in self.regs)
        return f"reg({regs}) lane({bits(self.lane)}) warp({bits(self.warp)})"


# ---- shared memory ---------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Shared:
    """rows x columns in shared memory, columns contiguous, 16-byte chunks swizzled so that 8 rows meet all banks.

    The rows are a group of axes, slowest first; the inner ones are padded to powers of two. At rows of 128 bytes the
    swizzle is the hardware's own of that width, and at 64 and 32 bytes those of TMA.
    """
    row: tuple[str, ...]
    spans: tuple[int, ...]
    col: str
    cols: int
    size: int
    """Bytes of an element."""
    panels: int = 0
    """Columns are cut into panels of so many bytes, one behind the other, for wgmma and TMA. 0: they are not."""
    apart: int = 0
    """Rows that are read together are 1 << apart rows from each other: those are what the swizzle tells apart."""

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next: a power of two, 16 at least."""
        return self.panels or max(16, 1 << (self.cols * self.size - 1).bit_length())

    def stride(self, axis: str) -> int:
        """Rows from one value of an axis of the group to the next: a power of two."""
        inner = self.spans[self.row.index(axis) + 1:]
        return 1 << sum((s - 1).bit_length() for s in inner)

    @property
    def rows(self) -> int:
        return self.stride(self.row[0]) * self.spans[0] if self.row else 1

    @property
    def panel_bytes(self) -> int:
        """Bytes from one panel to the next."""
        return self.rows * self.pitch

    @property
    def bytes(self) -> int:
        return self.panel_bytes * (self.cols * self.size // self.panels if self.panels else 1)

    @property
    def swizzle(self) -> tuple[int, int, int]:
        """What each of the lowest three bits of the row, those from `apart` on, flips in the address within a row.

        The three must reach address bits 4, 5 and 6; those that the pitch does not put there are flipped in.
        """
        natural = [step if (step := self.pitch << self.apart + i) < 128 else 0 for i in range(3)]
        unused = [b for b in (16, 32, 64) if b not in natural and b < self.pitch]
        return tuple(0 if n or not unused else unused.pop(0) for n in natural)

    def place(self, axis: str, value: int) -> tuple[int, int]:
        """(added, flipped): what a coordinate adds to a byte address, and what it flips in the offset within a row."""
        if axis == self.col:
            byte = value * self.size
            return (byte // self.panels * self.panel_bytes, byte % self.panels) if self.panels else (0, byte)
        if axis not in self.row:
            return 0, 0
        row = value * self.stride(axis)
        return row * self.pitch, xor_all(flip for i, flip in enumerate(self.swizzle) if row >> self.apart + i & 1)

    def byte(self, at: Mapping[str, int]) -> int:
        """The byte address of an element."""
        places = [self.place(a, v) for a, v in at.items()]
        return sum(p[0] for p in places) + xor_all(p[1] for p in places)

    def address(self, layout: Layout, off: Mapping[str, int]) -> Address:
        """The byte address of each register of a tile laid out as `layout`, which lies at `off` in this one."""
        add, flip = [], []
        for name, bits in (("lane", layout.lane), ("warp", layout.warp)):
            for i, bit in enumerate(bits):
                if bit:
                    a, x = self.place(*bit)
                    add += [(name, i, a)] if a else []
                    flip += [(name, i, x)] if x else []
        digits, stride = [], 1
        for axis, step, size in layout.regs:
            places = tuple(self.place(axis, step << i) for i in range((size - 1).bit_length()))
            digits.append((stride, size, places))
            stride *= size
        const = [self.place(axis, value) for axis, value in off.items()]
        return Address(tuple(add), tuple(flip), tuple(digits), sum(c[0] for c in const), xor_all(c[1] for c in const))


@dataclass(frozen=True, slots=True)
class Address:
    """A byte address as a function of lane, warp and register r:

    sum of thread_add + add + sum over digits of the added parts  +  xor of thread_flip, flip and the flipped parts.
    A digit (stride, size, ((added, flipped), ..)) has the value j = r // stride % size; bit i of j brings the i-th
    pair.    The flipped bits that no thread touches may as well be added: see `touched`.
    """
    thread_add: tuple[Source, ...]
    thread_flip: tuple[Source, ...]
    digits: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...]
    add: int
    flip: int

    @property
    def touched(self) -> int:
        """The bits within a row that depend on the thread: constants are xored into these, and added to others."""
        mask = 0
        for _, _, value in self.thread_flip:
            mask |= value
        return mask

    def byte(self, lane: int, warp: int, register: int) -> int:
        at = {"lane": lane, "warp": warp}
        pairs = [p for stride, size, places in self.digits for i, p in enumerate(places)
                 if register // stride % size >> i & 1]
        added = self.add + sum(v for n, i, v in self.thread_add if at[n] >> i & 1) + sum(p[0] for p in pairs)
        flipped = xor_all(v for n, i, v in self.thread_flip if at[n] >> i & 1) ^ xor_all(p[1] for p in pairs)
        return added + (self.flip ^ flipped)
