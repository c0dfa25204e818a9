"""Flattened kernels compute what the kernels do, and their axes are as few as their accesses allow."""

import numpy as np
import pytest

from deplodock.ir.dtype import Dtype, f32
from deplodock.ir.index import Axis
from deplodock.ir.loop import fold, load
from deplodock.ir.meaning import Meaning
from deplodock.lower.flatten import all_folds, factored, flatten
from deplodock.lower.structure import axes_of
from tests.lowering import terms as t
from tests.lowering.cases import CASES, Storage

DENSE = [name for name, c in CASES.items() if not c.facts and not any(
    f.monoid in ("argmax", "argmin") for o in c.kernel.outs for f in all_folds((o.body,)))]


def values_of(kernel) -> dict:
    rng = np.random.default_rng(0)
    out = {}
    for b in kernel.reads:
        shape = [a.extent for a in b.axes]
        out[b] = (rng.standard_normal(shape) if b.dtype.is_float else rng.random(shape) < 0.5 if b.dtype == Dtype.b8
                  else rng.integers(1, 13, shape))
    return out


@pytest.mark.parametrize("name", DENSE)
def test_a_flattened_kernel_means_what_the_kernel_means(name):
    kernel = CASES[name].kernel
    values = values_of(kernel)
    for flat in flatten(kernel, {}):
        views = {b: np.ascontiguousarray(values[v.param.buffer]).reshape(v.dims)
                 for b, v in flat.views.items() if v.param.buffer in values}
        for out in flat.outs:
            (given,) = [o for o in kernel.outs if o.buffer.name == out.buffer.name]
            wanted = Meaning(values).over(given.body, given.axes)
            found = Meaning(views).over(out.body, tuple(i.axis for i in out.indices))
            np.testing.assert_allclose(np.ravel(found), np.ravel(wanted), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_axes_have_names_of_their_own_and_folds_have_one_axis(name):
    c = CASES[name]
    for flat in flatten(c.kernel, c.facts):
        launch = {a.name for a in flat.axes}
        assert len(launch) == len(flat.axes) and all(n.isidentifier() for n in launch)

        def check(body, bound):
            for f in all_folds((body,)):
                (a,) = f.axes
                assert a.extent > 1 and a.name not in launch and a.name.isidentifier()
                assert a.name not in {x.name for g in all_folds(f.bodies) for x in g.axes}
        for o in flat.outs:
            check(o.body, launch)


AXES = {
    "batch and contraction": (t.grouped_matmul(2, 25, 2, 3, 16, 64), [("b_s", 50), ("n", 64)], ["g_r_e"]),
    "pointwise over a dense tensor": (t.silu_mul(6, 8), [("m_n", 48)], []),
    "rows that a statistic needs apart": (t.rmsnorm(6, 8), [("m", 6), ("k", 8)], ["k1"]),
    "a total": (t.total(3, 4), [], ["m_n"]),
    "windows that overlap": (t.window_max(20, 3), [("i", 20), ("j", 20)], ["a"]),
    "queries of a group without a mask": (t.attention(4, 2, 8, 16, causal=False),
                                          [("kv", 2), ("g_s", 16), ("e", 16)], ["s"]),
    "queries under a mask": (t.attention(4, 2, 8, 16), [("kv", 2), ("g", 2), ("s", 8), ("e", 16)], ["s1"]),
    "extents of one": (t.matmul(1, 8, 16), [("n", 8)], ["k"]),
}


@pytest.mark.parametrize("name", AXES)
def test_axes_that_lie_one_in_the_other_are_one(name):
    kernel, axes, loops = AXES[name]
    (s,) = axes_of(kernel)
    assert [(a.name, a.extent) for a in s.axes] == axes
    assert [l.axis.name for l in s.loops] == loops


def test_axes_of_an_input_that_is_not_dense_stay_apart():
    storage = Storage((6, 8), (16, 1))
    (flat,) = flatten(t.silu_mul(6, 8), {"g": storage})
    assert [a.name for a in flat.axes] == ["m", "n"]


def test_an_expanded_dimension_is_no_dimension():
    storage = Storage((6, 8), (0, 1))
    (flat,) = flatten(t.silu_mul(6, 8), {"g": storage, "u": storage})
    reads = {v.param.name: v.dims for b, v in flat.views.items()}
    assert reads["g"] == (8,) and reads["y"] == (6, 8)


@pytest.mark.parametrize("shape, strides, extents, wanted", [
    ((6, 8), (8, 1), (6, 8), (8, 1)),
    ((6, 8), (1, 6), (2, 3, 8), (3, 1, 6)),
    ((4, 1, 6), (6, 99, 1), (4, 1, 2, 3), (6, 99, 3, 1)),
    ((), (), (1,), (0,)),
    ((0, 4), (4, 1), (0, 4), (4, 1)),
])
def test_strides_of_factored_dimensions(shape, strides, extents, wanted):
    found = factored(shape, strides, extents)
    assert [s for s, n in zip(found, extents) if n != 1] == [s for s, n in zip(wanted, extents) if n != 1]


def test_axes_that_do_not_factor_the_dimensions_are_an_error():
    with pytest.raises(ValueError, match="do not factor"):
        factored((6, 8), (8, 1), (4, 12))


def test_parts_are_outputs_with_axes_of_their_own():
    first, second = axes_of(t.projections(8, 16, 4, 32))
    assert [a.name for a in first.axes] == ["m", "q"] and [a.name for a in second.axes] == ["m", "v"]
    (only,) = axes_of(t.attention_parts(2, 8, 8, 16))
    assert len(only.flat.outs) == 3


def test_an_output_over_fewer_axes_has_a_part_where_others_would_compute_its_folds_again():
    """The keys of grouped heads beside the queries: a block for each group of queries would compute them once more."""
    m, g, n, k = (Axis(*a) for a in (("m", 8), ("g", 2), ("n", 16), ("k", 32)))
    x, wq, wk = t.tensor("x", f32, m, k), t.tensor("wq", f32, g, n, k), t.tensor("wk", f32, n, k)
    q = fold("sum", (k,), (load(x, m, k) * load(wq, g, n, k),))
    keys = fold("sum", (k,), (load(x, m, k) * load(wk, n, k),))
    parts = axes_of(t.kernel("queries_and_keys", (t.tensor("y", f32, m, g, n), q), (t.tensor("h", f32, m, n), keys)))
    assert [[a.name for a in p.axes] for p in parts] == [["m", "g_n"], ["m", "n"]]
    (joined,) = axes_of(t.add_rmsnorm(8, 16))
    assert len(joined.flat.outs) == 2


def test_what_a_schedule_is_made_for():
    (s,) = axes_of(t.gate_up(64, 32, 48, norm=True))
    (loop,) = s.loops
    assert [f.monoid for f in loop.folds].count("sum") == 3 and len(loop.products) == 2
    for p in loop.products:
        assert {a.name for a in p.rows} == {"m"} and {a.name for a in p.columns} == {"n"} and p.dtype == Dtype.bf16
    (s,) = axes_of(t.attention(4, 2, 8, 16))
    (loop,) = s.loops
    assert loop.online and [l.axis.name for l in loop.inside] == ["e1"]
