"""Kernels become the Tile IR that a person would have them become, and what cannot be lowered says why."""
from dataclasses import replace

import pytest

from deplodock.errors import IllegalSchedule
from deplodock.ir.dtype import f32
from deplodock.ir.tile import Convert, Exchange, For, Mma, MmaWait, Promote, Reduce, walk
from deplodock.ir.tile_show import show_tile
from deplodock.ir.tile_verify import verify_tile
from deplodock.lower.kernel import legal
from deplodock.lower.tile import lower_tile
from tests.lowering import terms as t
from tests.lowering.cases import CASES, FMA, MMA, ROLES, WGMMA, case

GOLDEN = ("silu_mul", "rmsnorm", "softmax ragged", "argmax block", "embedding", "matmul ragged kn add", "norm_matmul",
          "fma long", "rope_matmul", "attention", "attention f32", "attention window", "wgmma swiglu_down",
          "roles gate_up norm")


def lowered(name):
    c = CASES[name]
    return lower_tile(c.kernel, c.facts)


def statements(name):
    return [s for p in lowered(name).parts for s in walk(p.body)]


@pytest.mark.parametrize("name", GOLDEN)
def test_text(name, golden):
    golden(f"tile/{name.replace(' ', '_')}.txt", show_tile(lowered(name)) + "\n")


@pytest.mark.parametrize("name", CASES)
def test_every_case_has_one_verified_form(name):
    c = CASES[name]
    first, second = lower_tile(c.kernel, c.facts), lower_tile(c.kernel, c.facts)
    verify_tile(first)
    assert first == second
    assert legal(c.kernel, c.facts) is None


def test_outputs_without_elements_have_no_part():
    assert lowered("silu_mul empty").parts == ()


def test_an_accumulator_is_an_operand_as_it_is():
    """The scores of attention go into the second product without a trip through shared memory."""
    assert not [s for s in statements("attention") if isinstance(s, Convert)]


def test_a_mirrored_product_is_computed_once():
    products = [s for s in statements("rope_matmul") if isinstance(s, Mma)]
    assert len({s.acc for s in products}) == 1
    assert [s.axis for s in statements("rope_matmul") if isinstance(s, Exchange)] == ["p"]


def test_a_mirrored_product_is_two_where_its_halves_lie_in_two_blocks():
    k = case(t.rope_matmul(64, 32, 96), {"atom": "mma", "tile.m": 32, "tile.h": 32, "tile.k": 32}).kernel
    body = [s for p in lower_tile(k).parts for s in walk(p.body)]
    assert len({s.acc for s in body if isinstance(s, Mma)}) == 2
    assert not [s for s in body if isinstance(s, Exchange)]


def test_a_product_within_a_sum_adds_into_its_accumulators():
    """A convolution is one product over taps and channels."""
    assert len({s.acc for s in statements("conv1d") if isinstance(s, Mma)} | {
        r for s in statements("conv1d") if isinstance(s, Reduce) for r in s.dst}) == 1


@pytest.mark.parametrize("name, promoted", [
    ("fma long", True), ("fma long chunks", True), ("fma nk", False), ("matmul nk", False), ("rmsnorm long", True),
    ("rmsnorm", False), ("attention f32 d160", True)])
def test_long_sums_of_f32_are_taken_in_partial_sums(name, promoted):
    assert bool([s for s in statements(name) if isinstance(s, Promote)]) == promoted


@pytest.mark.parametrize("name, lag", [("wgmma nk", 1), ("wgmma swiglu_down", 0), ("wgmma attention", 0)])
def test_products_stay_in_flight_only_where_nothing_rewrites_their_operands(name, lag):
    loops = [s for s in statements(name) if isinstance(s, For)]
    assert [s.lag for s in loops] == [lag]
    inside = [s for l in loops for s in walk(l.body) if isinstance(s, MmaWait)]
    assert max(s.pending for s in inside) == lag


def test_a_causal_loop_ends_at_the_diagonal_and_a_window_begins_below_it():
    causal, window = ([s for s in statements(n) if isinstance(s, For)][0] for n in ("attention", "attention window"))
    assert [str(i) for i in causal.lo] == ["0"] and [str(i) for i in causal.hi] == ["64", "s_0+32"]
    assert [str(i) for i in window.lo] == ["0", "s_0-39"]


ILLEGAL = {
    "an axis that is not there": (t.matmul(64, 64, 64), MMA | {"tile.q": 2},
                                  "tile.q is no knob of a kernel with the axes k, m, n"),
    "a knob that is not there": (t.matmul(64, 64, 64), MMA | {"swizzle": 2},
                                 "swizzle is no knob of a kernel with the axes k, m, n"),
    "an atom that is not there": (t.matmul(64, 64, 64), MMA | {"atom": "dp4a"},
                                  "atom is one of mma, wgmma, fma, none, not dp4a"),
    "rows of no block of 16": (t.matmul(64, 64, 64), MMA | {"tile.m": 24},
                               "m x n is no multiple of 16 x 16: [24, 64]"),
    "more warps than blocks": (t.matmul(64, 64, 64), MMA | {"warps.m": 4}, "more warps along m than blocks of 16"),
    "a chunk of no step": (t.matmul(64, 64, 64), MMA | {"tile.k": 24},
                           "tile.k = 24 is no multiple of 16, one step of mma"),
    "a tile that lanes do not divide": (t.matmul(64, 64, 64, d=f32), FMA | {"tile.m": 12},
                                        "tile.m = 12 is no multiple of 8 = vec x lanes x warps of m"),
    "more than 32 lanes": (t.matmul(64, 64, 64, d=f32), FMA | {"lanes.m": 8},
                           "more than 32 lanes for the axes that share a tile with m"),
    "lanes that are no power of two": (t.silu_mul(4, 96), {"tile.m_n": 96, "lanes.m_n": 3},
                                       "vec, lanes and warps of m_n are powers of two, not 1, 3, 1"),
    "a ring that is too short": (t.matmul(256, 64, 512), WGMMA | {"stages": 2},
                            "a ring of 2 stages: it has one to use, one to fill, and one while products are in flight"),
    "wgmma with warps along its columns": (t.matmul(256, 64, 512), WGMMA | {"warps.m": 4, "warps.n": 2},
                                           "wgmma has its warps, four or more, along its rows m"),
    "wgmma with too many columns": (t.matmul(256, 512, 512), WGMMA | {"tile.n": 512},
                                    "wgmma has at most 256 columns, not 512"),
    "wgmma with narrow rows": (t.matmul(256, 64, 512), WGMMA | {"tile.k": 32},
                               "a row of x's tile is no multiple of 128 bytes, as wgmma reads it"),
    "roles without bulk copies": (t.matmul(256, 64, 512), WGMMA | {"roles": 1}, "roles need copy tma"),
    "roles over tiles without a box": (t.matmul(256, 64, 510), WGMMA | ROLES,
                                       "roles need one part, and a box for every copy"),
    "no tile": (t.silu_mul(4, 96), {"tile.m_n": 0}, "tile.m_n = 0"),
    "two axes swept": (t.rmsnorm(4, 96), {"sweep.m": 1, "sweep.k": 1}, "a block sweeps one axis at most"),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_a_schedule_that_does_not_fit_says_why(name):
    kernel, knobs, reason = ILLEGAL[name]
    kernel = replace(kernel, schedule=tuple(sorted(knobs.items())))
    assert legal(kernel) == reason
    with pytest.raises(IllegalSchedule):
        lower_tile(kernel)
