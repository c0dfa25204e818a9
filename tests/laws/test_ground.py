"""Laws that are applied to ground terms only: cuts of folds, merged products."""
from __future__ import annotations

import numpy as np
import pytest

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, index
from deplodock.ir.loop import Buffer, Iota, Launch, const, dtype, load, loads, op, subst, where
from deplodock.ir.meaning import Meaning
from deplodock.law import laws_of
from rules import cutting, merging
from tests.laws.drawing import AXES, Draw

K, Z, I = Axis("k", 6), Axis("z", 3), Axis("i", 2)
M, T = Axis("m", 3), Axis("t", 5)


def random_values(terms, rng) -> dict:
    found, stack, seen = {}, list(terms), set()
    while stack:
        t = stack.pop()
        for l in loads(t):
            if isinstance(l.tensor, Buffer):
                found.setdefault(l.tensor, rng.standard_normal([a.extent for a in l.tensor.axes]))
            elif l.tensor not in seen:
                seen.add(l.tensor)
                stack.append(l.tensor.body)
    return found


def agree(equation, seed: int, exact: bool = True) -> bool:
    given = random_values((equation.lhs, equation.rhs), np.random.default_rng(seed))
    axes = tuple(sorted(equation.lhs.free | equation.rhs.free, key=lambda a: a.name))
    x, y = (Meaning(given, exact).over(t, axes) for t in (equation.lhs, equation.rhs))
    same_dtype = dtype(equation.lhs) == dtype(equation.rhs)
    return same_dtype and bool(np.allclose(x, y, rtol=1e-9 if exact else 1e-5, equal_nan=True))


def body(rng: np.random.Generator, *axes: Axis):
    """A random body that depends on axes."""
    x = Buffer("x", Dtype.f32, tuple(Axis(f"x{n}", a.extent) for n, a in enumerate(axes)), "input")
    other = subst(Draw(rng).body(Dtype.f32), {AXES[0]: index(axes[0]), **{a: index(0) for a in AXES[1:]}})
    return other * load(x, *axes)


@pytest.mark.parametrize("seed", range(20))
def test_launch_cut(seed):
    b = body(np.random.default_rng(seed), M, T)
    equation = cutting.launch_cut.instance(b=b, k=(M, T), i=(index(M), index(T)))
    assert equation and isinstance(equation.rhs.tensor, Launch)
    assert agree(equation, seed) and agree(equation, seed, exact=False)
    assert cutting.launch_cut.instance(b=b, k=(M, T), i=(index(T), index(M))) is None


@pytest.mark.parametrize("monoid", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("seed", range(5))
def test_a_fold_cut_in_two(monoid, seed):
    b = body(np.random.default_rng(seed), M, K)
    for law, more in ((cutting.reduce_split, {}), (cutting.partial_launch, {"rest": (M,)})):
        equation = law.instance(m=monoid, b=b, k=K, z=Z, i=I, **more)
        assert equation and agree(equation, seed)
        assert law.instance(m=monoid, b=b, k=K, z=Axis("z", 2), i=I, **more) is None


def test_a_fold_cut_where_the_parts_do_not_cover_it_differs():
    b = body(np.random.default_rng(0), M, K)
    assert not agree(cutting.reduce_split(m="sum", b=b, k=K, z=Axis("z", 2), i=I), 0)


@pytest.mark.parametrize("seed", range(5))
def test_attention_over_split_keys(seed):
    """With a mask that leaves blocks without a key, and row 0 without any."""
    rng = np.random.default_rng(seed)
    keep = op("lt", Iota(index(K)), Iota(M * 2))
    s, v = where(keep, body(rng, M, K), const(Dtype.f32, -np.inf)), body(rng, K, T)
    equation = cutting.online_split.instance(s=s, v=v, k=K, z=Z, i=I, rest=(M, T))
    assert equation and agree(equation, seed)


@pytest.mark.parametrize("seed", range(20))
def test_merged_projections(seed):
    rng = np.random.default_rng(seed)
    i, j, n = Axis("i", 4), Axis("j", 3), Axis("n", 7)
    x, w, v = body(rng, M, K), load(Buffer("w", Dtype.f32, (Axis("w0", 4), Axis("w1", 6)), "parameter"), i, K), \
        load(Buffer("v", Dtype.f32, (Axis("v0", 3), Axis("v1", 6)), "parameter"), j, K)
    equation = merging.merge_projections.instance(x=x, w=w, v=v, k=(K,), i=i, j=j, n=n, rest=(M,))
    assert equation and agree(equation, seed) and agree(equation, seed, exact=False)


def test_every_ground_law_is_tested_here():
    tested = {"launch_cut", "reduce_split", "partial_launch", "online_split", "merge_projections"}
    assert {l.name for l in laws_of(cutting, merging)} == tested
