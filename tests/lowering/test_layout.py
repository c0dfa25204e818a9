"""Layouts: a tile's elements each have one place, shared addresses compose, and banks do not conflict."""
import itertools

import pytest

from deplodock.ir.layout import Layout, Shared
from deplodock.ir.tile import LoadShared, walk
from deplodock.lower.layout import Spread, blocked, conflicts, copy_layout, fragment, ldmatrix, outer_operand, run
from deplodock.lower.tile import lower_tile
from tests.lowering.cases import CASES

SPAN = {"m": 64, "n": 96, "k": 16, "s": 64, "t": 64}


def places(layout: Layout, axes) -> dict[tuple[int, ...], int]:
    """How often each element is held."""
    found: dict[tuple[int, ...], int] = {}
    for lane, warp, r in itertools.product(range(32), range(1 << len(layout.warp)), range(layout.size)):
        at = tuple(layout.coordinate(a, lane, warp, r) for a in axes)
        found[at] = found.get(at, 0) + 1
    return found


LAYOUTS = {
    "blocked": (blocked(("m", "n"), {"m": 24, "n": 32}, {"m": Spread(1, 4, 3, 2, 0), "n": Spread(2, 8, 0)}, 1),
                "mn", (24, 32)),
    "blocked odd repeats": (blocked(("n",), {"n": 96}, {"n": Spread(1, 32)}, 0), "n", (96,)),
    "A": (fragment("A", ("m",), ("k",), SPAN, ("m", "m")), "mk", (64, 16)),
    "B": (fragment("B", ("n",), ("k",), SPAN, ("m", "m")), "nk", (96, 16)),
    "C": (fragment("C", ("m",), ("n",), SPAN, ("m", "m")), "mn", (64, 96)),
    "C of groups": (fragment("C", ("p", "h"), ("n",), {"p": 4, "h": 8, "n": 32}, ("p",)), "phn", (4, 8, 32)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_element_has_a_place_and_copies_are_even(name):
    layout, axes, shape = LAYOUTS[name]
    found = places(layout, axes)
    assert set(found) == set(itertools.product(*map(range, shape)))
    assert set(found.values()) == {2 ** len(layout.copies)}


def test_an_accumulator_of_scores_is_the_left_operand_of_the_next_product():
    warps = ("s", "s")
    assert fragment("C", ("s",), ("t",), SPAN, warps) == fragment("A", ("s",), ("t",), SPAN, warps)


def test_the_statistics_of_rows_lie_as_the_rows_of_the_accumulator():
    warps = ("m", "m")
    a, c = fragment("A", ("m",), ("k",), SPAN, warps), fragment("C", ("m",), ("n",), SPAN, warps)
    assert a.project("m") == c.project("m")
    assert a.project("m").copies == (("lane", 0), ("lane", 1))


def test_a_projection_of_a_blocked_layout_is_the_blocked_layout_of_fewer_axes():
    spread = {"m": Spread(1, 4, 3, 2, 0), "n": Spread(2, 8, 0)}
    span = {"m": 32, "n": 32}
    assert blocked(("m", "n"), span, spread, 1).project("m") == blocked(("m",), span, spread, 1)


def test_an_outer_product_reads_rows_and_columns_of_its_accumulator():
    acc = blocked(("m", "n"), {"m": 32, "n": 32}, {"m": Spread(1, 4, 3), "n": Spread(2, 8, 0)}, 0)
    a, b = outer_operand(acc, "m", "k", 4, True), outer_operand(acc, "n", "k", 4, False)
    assert a.project("m") == acc.project("m") and b.project("n") == acc.project("n")
    assert run(a, "k", 4) == 4 and run(b, "n", 4) == 2


SHARED = {
    "64 bytes": Shared(("m",), (64,), "k", 32, 2),
    "128 bytes": Shared(("m",), (64,), "k", 64, 2),
    "256 bytes": Shared(("m",), (64,), "k", 128, 2),
    "panels of an odd number of rows": Shared(("m",), (112,), "k", 128, 2, 128),
    "columns that are no power of two": Shared(("m",), (32,), "k", 80, 2),
    "groups of rows": Shared(("p", "m"), (4, 16), "k", 64, 2),
    "f32": Shared(("m",), (32,), "k", 16, 4),
    "f64": Shared(("m",), (32,), "k", 16, 8),
    "rows read four apart": Shared(("m",), (64,), "k", 32, 4, apart=2),
    "short rows read four apart": Shared(("m",), (64,), "k", 16, 4, apart=2),
}


@pytest.mark.parametrize("name", SHARED)
def test_elements_of_a_shared_tile_do_not_overlap(name):
    s = SHARED[name]
    at = itertools.product(*map(range, s.spans), range(s.cols))
    bytes_ = [s.byte(dict(zip((*s.row, s.col), x))) for x in at]
    assert len(set(bytes_)) == len(bytes_)
    assert all(0 <= b <= s.bytes - s.size and b % s.size == 0 for b in bytes_)


@pytest.mark.parametrize("name", SHARED)
def test_the_address_of_a_register_is_that_of_its_element(name):
    s = SHARED[name]
    span = dict(zip((*s.row, s.col), (*s.spans, s.cols)))
    spread = {s.col: Spread(2, 4, 0), s.row[-1]: Spread(1, 8, 2, 2, 0)}
    layout = blocked((*s.row, s.col), span, spread, 1)
    address = s.address(layout, {s.col: 0})
    for lane, warp, r in itertools.product(range(32), range(2), range(layout.size)):
        assert address.byte(lane, warp, r) == s.byte({a: layout.coordinate(a, lane, warp, r) for a in span})


@pytest.mark.parametrize("k", [16, 32, 64, 80, 128])
@pytest.mark.parametrize("kind, order", [("A", "row"), ("A", "column"), ("B", "row"), ("B", "column")])
def test_ldmatrix_delivers_fragments_without_conflicts(k, kind, order):
    span = {"m": 64, "k": 16}
    layout = fragment(kind, ("m",), ("k",), span, ("m",))
    shared = Shared(("m",), (64,), "k", k, 2) if order == "row" else Shared(("k",), (k,), "m", 64, 2)
    transposed, rows = ldmatrix(layout, shared)
    assert transposed == (order == "column")
    assert conflicts(rows, shared) == 1
    across, along = ("m", "k") if order == "row" else ("k", "m")
    for lane in range(32):                                   # each lane's address is that of a row of eight elements
        assert rows.coordinate(along, lane, 0, 0) % 8 == 0
        assert rows.coordinate(across, lane, 0, 0) < 16


@pytest.mark.parametrize("k_first, vec, shared", [
    (True, 1, Shared(("n",), (32,), "k", 16, 4)), (True, 1, Shared(("n",), (32,), "k", 32, 4)),
    (True, 4, Shared(("n",), (32,), "k", 32, 4, apart=2)), (False, 4, Shared(("k",), (16,), "n", 32, 4))])
def test_operands_of_outer_products_are_read_without_conflicts(k_first, vec, shared):
    acc = blocked(("m", "n"), {"m": 16, "n": 32}, {"m": Spread(1, 4, 3), "n": Spread(vec, 8, 0)}, 0)
    operand = outer_operand(acc, "n", "k", 4, k_first)
    assert run(operand, shared.col, 4) == 4 and conflicts(operand, shared) == 1


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if dict(c.kernel.schedule).get("atom") == "fma"])
def test_lowered_outer_products_read_shared_memory_without_conflicts(name):
    kernel = lower_tile(CASES[name].kernel, CASES[name].facts)
    reads = [(s.dst.layout, s.src.shape) for part in kernel.parts for s in walk(part.body) if isinstance(s, LoadShared)]
    assert reads and all(conflicts(layout, shared) == 1 for layout, shared in reads)


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("vec, warp_bits", [(1, 0), (4, 2), (8, 3)])
def test_a_copy_covers_its_tile(name, vec, warp_bits):
    s = SHARED[name]
    vec = min(vec, 16 // s.size)
    layout = copy_layout(s, vec, warp_bits)
    found = places(layout, (*s.row, s.col))
    wanted = set(itertools.product(*map(range, s.spans), range(0, s.cols, vec)))
    assert wanted <= set(found)
    assert set(found.values()) == {1}


def test_registers_of_a_slice_are_found_in_the_tile():
    whole = fragment("A", ("m",), ("k",), {"m": 32, "k": 64}, ("m",))
    part = fragment("A", ("m",), ("k",), {"m": 32, "k": 16}, ("m",))
    assert whole.holds(part)
    for off in (0, 16, 48):
        const, digits = part.register_in(whole, {"k": off})
        for r in range(part.size):
            source = const + sum(r // stride % size * scale for stride, size, scale in digits)
            for lane in (0, 5, 31):
                assert whole.coordinate("k", lane, 1, source) == part.coordinate("k", lane, 1, r) + off
                assert whole.coordinate("m", lane, 1, source) == part.coordinate("m", lane, 1, r)
