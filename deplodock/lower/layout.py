"""Layouts made from knobs, the fragments of tensor cores, and what is read off a layout: runs, ldmatrix, conflicts.

Nothing here is chosen: a schedule says how many elements, lanes and warps lie along an axis, and the rest follows.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, Iterable, Mapping, Sequence

from deplodock.ir.layout import Bit, Digit, Layout, Shared, log2, xor_all


@dataclass(frozen=True, slots=True)
class Spread:
    """How one axis is spread over a block: `vec` neighbours in registers, then lanes, then warps, then registers again.

    lane_at and warp_at number the lowest bits that the axis has to itself among those it is ever tiled together with.
    """
    vec: int = 1
    lanes: int = 1
    lane_at: int = 0
    warps: int = 1
    warp_at: int = 0

    @property
    def span(self) -> int:
        """The tile of the axis is a multiple of this many elements."""
        return self.vec * self.lanes * self.warps

    def meets(self, other: Spread) -> bool:
        """Whether some lane or warp bit belongs to both."""
        return any(max(at, o_at) < min(at + log2(n), o_at + log2(m)) for at, n, o_at, m in (
            (self.lane_at, self.lanes, other.lane_at, other.lanes),
            (self.warp_at, self.warps, other.warp_at, other.warps)))


def blocked(axes: Sequence[str], span: Mapping[str, int], spread: Mapping[str, Spread], warp_bits: int) -> Layout:
    """A tile over `axes` (the last one fastest in registers) of span[a] elements each, spread as the schedule says."""
    vec: list[Digit] = []
    repeats: list[Digit] = []
    lane: list[Bit] = [None] * 5
    warp: list[Bit] = [None] * warp_bits
    for a in reversed(axes):
        s, step = spread.get(a, Spread()), 1
        for _ in range(log2(s.vec)):
            vec.append((a, step, 2))
            step *= 2
        for bits, n, at in ((lane, s.lanes, s.lane_at), (warp, s.warps, s.warp_at)):
            for i in range(log2(n)):
                bits[at + i] = (a, step)
                step *= 2
        if span[a] > step:
            repeats.append((a, step, span[a] // step))
    return Layout(tuple(vec + repeats), tuple(lane), tuple(warp))


def digits_of(group: Iterable[str], span: Mapping[str, int]) -> list[Digit]:
    """The coordinate of a group of axes (slowest first) as digits, fastest first: bits, then what is odd of an axis."""
    out = []
    for a in reversed(tuple(group)):
        n, step = span[a], 1
        while n % 2 == 0:
            out.append((a, step, 2))
            n, step = n // 2, step * 2
        if n > 1:
            out.append((a, step, n))
    return out


def merged(digits: Iterable[Digit]) -> list[Digit]:
    """Neighbouring digits of one axis as one digit."""
    out: list[Digit] = []
    for a, step, n in digits:
        if out and out[-1][0] == a and out[-1][1] * out[-1][2] == step:
            out[-1] = (a, out[-1][1], out[-1][2] * n)
        else:
            out.append((a, step, n))
    return out


def fragment(kind: str, r: tuple[str, ...], c: tuple[str, ...], span: Mapping[str, int],
             warp_axes: Sequence[str | None]) -> Layout:
    """Operands and result of m16n8k16 in blocks of 16 x 16 (PTX ISA, "Matrix Fragments for mma.m16n8k16").

    A: r = m, c = k; C: r = m, c = n (the same map: an accumulator is an operand as it is); B: r = n, c = k. r and c are
    groups of axes. warp_axes names the axis of each warp bit; one that is in neither group, or None, holds copies.
    ValueError where a group is no multiple of 16, or has fewer blocks than warps.
    """
    rows, cols = digits_of(r, span), digits_of(c, span)
    if not all(len(g) >= 4 and all(d[2] == 2 for d in g[:4]) for g in (rows, cols)):
        raise ValueError(f"{'.'.join(r)} x {'.'.join(c)} is no multiple of 16 x 16: {[span[a] for a in (*r, *c)]}")
    regs = [cols[0], cols[3], rows[3]] if kind == "B" else [cols[0], rows[3], cols[3]]
    lane = tuple(d[:2] for d in (cols[1], cols[2], rows[0], rows[1], rows[2]))
    rest = {"r": rows[4:], "c": cols[4:]}
    warp: list[Bit] = []
    for a in warp_axes:
        group = "r" if a in r else "c" if a in c else None
        if group is None:
            warp.append(None)
            continue
        if not rest[group] or rest[group][0][2] != 2:
            raise ValueError(f"more warps along {a} than blocks of 16")
        warp.append(rest[group].pop(0)[:2])
    return Layout(tuple(regs + merged(rest["c"]) + merged(rest["r"])), lane, tuple(warp))


def outer_operand(acc: Layout, axes: Collection[str], k: str, slice_: int, k_first: bool) -> Layout:
    """An operand of an outer product in registers (atom fma): the accumulator's rows or columns, and a slice along k.

    k_first: k is contiguous in memory, so neighbours along it are neighbouring registers.
    """
    part = acc.project(axes)
    along_k = tuple((k, 1 << i, 2) for i in range(log2(slice_)))
    return Layout(along_k + part.regs if k_first else part.regs + along_k, part.lane, part.warp)


def widened(part: Layout, whole: Layout) -> Layout:
    """The layout of a tile that is as long as `whole` is along its axes, and of which `part` is a slice: what a slice
    lacks is repeats."""
    more = tuple((a, part.extent(a), whole.extent(a) // part.extent(a)) for a in sorted(whole.axes)
                 if whole.extent(a) > part.extent(a))
    return Layout(part.regs + more, part.lane, part.warp)


# ---- read off a layout -----------------------------------------------------------------------------------------------

def run(layout: Layout, axis: str, most: int) -> int:
    """Elements that are neighbours both in registers and along an axis, at most so many: a power of two."""
    v = 1
    for a, step, size in layout.regs:
        if a != axis or step != v:
            break
        v *= min(size & -size, most // v)
        if v < step * size:
            break
    return v


def ldmatrix(layout: Layout, shared: Shared) -> tuple[bool, Layout] | None:
    """(transposed?, layout of the row addresses) if ldmatrix.x4 delivers `layout` from `shared`, else None.

    Its 8x8 matrices have the packed pair and two lane bits along one axis, three lane bits along the other; registers
    1 and 2 choose the matrix. Read backwards, this is stmatrix.
    """
    if shared.size != 2 or len(layout.regs) < 3 or any(d[2] != 2 for d in layout.regs[:3]) or None in layout.lane:
        return None
    along = (layout.regs[0][:2],) + layout.lane[:2]
    across = layout.lane[2:]
    for trans, inner, rows in ((False, along, across), (True, across, along)):
        if (inner == tuple((shared.col, 1 << i) for i in range(3))
                and all(a in shared.row and s * shared.stride(a) == 1 << i for i, (a, s) in enumerate(rows))):
            return trans, Layout(layout.regs[3:], rows + (layout.regs[1][:2], layout.regs[2][:2]), layout.warp)
    return None


def copy_layout(shared: Shared, vec: int, warp_bits: int) -> Layout:
    """Threads over a shared tile for a copy into it: vec elements each, neighbours along the contiguous axis.

    It may cover more than the tile: the copy is guarded where `extent` of an axis exceeds the tile's.
    """
    cols = max(1, (shared.cols if shared.panels else shared.pitch // shared.size) // vec)
    rows: list[tuple[str, int]] = []
    for a, n in reversed(tuple(zip(shared.row, shared.spans))[1:]):
        rows += [(a, 1 << i) for i in range((n - 1).bit_length())]
    outermost, threads = shared.row[0], 5 + warp_bits
    rows += [(outermost, 1 << i) for i in range(threads + 3)]
    c = min(threads, log2(cols & -cols))
    bits: list[Bit] = [(shared.col, vec << i) for i in range(c)] + rows[:threads - c]
    left, at = rows[threads - c:], 1 << (threads - c)
    repeats: list[Digit] = [(shared.col, vec << c, cols >> c)]
    while at < min(8 << shared.apart, shared.rows):                          # rows that the swizzle tells apart are bits, not repeats
        repeats.append((*left.pop(0), 2))
        at *= 2
    repeats += merged((a, s, 2) for a, s in left if a != outermost)
    step = next(s for a, s in left if a == outermost)
    repeats.append((outermost, step, -(-shared.spans[0] // step)))
    return Layout(tuple(d for d in repeats if d[2] > 1), tuple(bits[:5]), tuple(bits[5:]))


def dealt(shared: Shared, vec: int, warp_bits: int) -> Layout:
    """Threads over a shared tile, exactly: vec elements each, then lanes and warps as far as its axes are powers of
    two; threads that are left hold copies, elements that are left are repeats."""
    digits = digits_of((*shared.row, shared.col), {shared.col: shared.cols, **dict(zip(shared.row, shared.spans))})
    first = [(shared.col, 1 << i, 2) for i in range(log2(vec))]
    rest = [d for d in digits if d not in first]
    bits = [d for d in rest if d[2] == 2][:5 + warp_bits]
    threads: list[Bit] = [d[:2] for d in bits]
    threads += [None] * (5 + warp_bits - len(bits))
    return Layout((*first, *(d for d in rest if d not in bits)), tuple(threads[:5]), tuple(threads[5:]))


def conflicts(layout: Layout, shared: Shared) -> int:
    """Ways of the worst bank conflict of 16-byte accesses, 8 lanes at a time; 1 is none. Equal addresses do not."""
    worst = 1
    for phase in range(0, 32, 8):
        seen: dict[int, set[int]] = {}
        for lane in range(phase, phase + 8):
            places = [shared.place(*b) for i, b in enumerate(layout.lane) if b and lane >> i & 1]
            byte = sum(p[0] for p in places) + xor_all(p[1] for p in places)
            seen.setdefault(byte // 16 % 8, set()).add(byte // 16)
        worst = max(worst, *map(len, seen.values()))
    return worst
