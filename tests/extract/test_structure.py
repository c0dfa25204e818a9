"""Loop structure: what runs before, inside and beside what, read off free axes."""
from __future__ import annotations

import pytest

from deplodock.ir.dtype import bf16, f32, i64
from deplodock.ir.index import Axis, index
from deplodock.ir.loop import Buffer, Iota, cast, const, exp, fold, load, op, where
from extract.structure import (before, canonical, inside, live, loops, mirror, nest, operands, orbit, points, product,
                               streams, tops)

M, N, K, T, E = Axis("m", 512), Axis("n", 384), Axis("k", 256), Axis("t", 512), Axis("e", 64)
P, H = Axis("p", 2), Axis("h", 32)


def buffer(name, *axes, d=f32):
    return Buffer(name, d, axes, "input")


X, W, V, R = buffer("x", M, K), buffer("w", N, K), buffer("v", T, E), buffer("r", M, K)
XB, WB, VB = buffer("x", M, K, d=bf16), buffer("w", N, K, d=bf16), buffer("v", T, E, d=bf16)
SCORE = fold("sum", (E,), (load(buffer("q", M, E), M, E) * load(buffer("kk", T, E), T, E),))


def matmul(x=X, w=W, d=f32):
    return fold("sum", (K,), (cast(f32, load(x, M, K)) * cast(f32, load(w, N, K)),))


def square(x=X):
    return fold("sum", (K,), (load(x, M, K) * load(x, M, K),))


def peak(s, axes):
    return fold("max", axes, (s,))


@pytest.mark.parametrize("body, is_product, mma, prologue", [
    (matmul(), True, False, False),
    (matmul(XB, WB), True, True, False),
    (fold("sum", (K,), (exp(load(X, M, K)) * load(W, N, K),)), True, False, True),
    (fold("sum", (K,), (cast(f32, cast(bf16, exp(load(X, M, K)))) * cast(f32, load(WB, N, K)),)), True, True, True),
    (fold("sum", (K,), (exp(load(X, M, K)) * cast(f32, load(WB, N, K)),)), True, False, True),
    (square(), False, None, None),
    (fold("sum", (K,), (load(X, M, K),)), False, None, None),
    (fold("max", (K,), (load(X, M, K) * load(W, N, K),)), False, None, None),
    (fold("sum", (K,), (load(X, M, K) + load(W, N, K),)), False, None, None),
    (fold("online", (T,), (SCORE, load(V, T, E.primed(1))), 1), True, False, True),
    (fold("online", (T,), (SCORE, cast(f32, load(VB, T, E.primed(1)))), 1), True, True, True),
    (fold("online", (T,), (SCORE, const(f32, 1)), 1), False, None, None),
    (fold("online", (T,), (SCORE, load(V, T, E.primed(1))), 0), False, None, None),
], ids=lambda v: str(v)[:48])
def test_products_are_two_groups_of_factors(body, is_product, mma, prologue):
    p = product(canonical(body))
    assert (p is not None) == is_product
    if p:
        assert (p.mma, p.prologue) == (mma, prologue)


def test_a_scale_of_the_folded_axis_joins_the_smaller_operand():
    body = canonical(fold("sum", (K,), (load(X, M, K) * load(W, N, K) * load(buffer("s", K), K),)))
    p = product(body)
    assert {len(p.left), len(p.right)} == {1, 2}
    assert len(p.left if W in [f.tensor for f in p.left] else p.right) == 2  # w has 384 rows, x 512


def test_before_a_softmax_comes_its_maximum():
    x = load(X, M, K)
    total = canonical(fold("sum", (K,), (exp(x + -peak(x, (K,))),)))
    assert [f.monoid for f in before(total)] == ["max"] and not inside(total)
    assert [[f.monoid for f, _ in level] for level in loops((total,))] == [["max"], ["sum"]]


def test_inside_attention_runs_its_first_product():
    out = canonical(fold("online", (T,), (SCORE, load(V, T, E.primed(1))), 1))
    assert inside(out) == (orbit(canonical(SCORE)),) and not before(out)
    assert nest(out) == 2


def test_siblings_share_a_loop_where_they_read_something_in_common():
    product_, statistic = canonical(matmul()), canonical(square())
    other = canonical(square(R))
    assert len(loops((product_, statistic))) == 1
    assert len(loops((product_, statistic, other))) == 2


def test_what_a_hoisted_fold_needs_is_hoisted_with_it():
    """A norm's statistic over k, used in a product over k inside a sum over n: kept along n's loop where it depends on
    it.
    """
    inner = fold("sum", (K,), (load(X, M, K) * load(W, N, K),))
    outer = canonical(fold("sum", (N,), (inner * peak(inner, (N,)),)))
    (level,), *_ = [loops((outer,))[:1]]
    assert [f.monoid for f, _ in level] == ["max"]


def rotated(p):
    return fold("sum", (K,), (load(X, M, K) * load(buffer("w", P, H, K), p, H, K),))


def test_a_mirror_image_is_the_fold_itself_read_through_an_exchange():
    plain, turned = canonical(rotated(P)), canonical(rotated(1 - index(P)))
    assert mirror(turned) == (plain, (P,)) and mirror(plain) == (plain, ())
    assert tops(canonical(plain + turned)) != (plain,) and len(loops((plain, turned))) == 1
    assert streams(plain) == streams(turned)


def test_half_of_a_causal_mask_is_live():
    keys = op("le", Iota(index(T)), Iota(index(M)))
    score = load(buffer("s", M, T), M, T)
    causal = fold("online", (T,), (where(keys, score, const(f32, float("-inf"))), const(f32, 1)), 1)
    assert live(causal) == pytest.approx(0.5, abs=0.02)
    kept = where(keys, score, const(f32, 0.0))
    assert live(fold("online", (T,), (kept, const(f32, 1)), 1)) == 1.0  # 0 is not the identity of a maximum
    assert live(fold("sum", (T,), (kept,))) == pytest.approx(0.5, abs=0.02)
    first = op("lt", Iota(index(T)), const(i64, 128))
    assert live(fold("sum", (T,), (where(first, score, const(f32, 0.0)),))) == pytest.approx(0.25, abs=0.02)


def test_a_value_used_twice_is_counted_once():
    e = exp(load(X, M, K))
    assert len(points(canonical(e * e + e))) == 3
    assert points(cast(f32, load(XB, M, K))) == ()
    assert operands(canonical(matmul())) == ()
    assert len(operands(canonical(square()))) == 1


def test_folds_over_the_same_scores_share_their_exponential():
    total, out = (fold("online", (T,), (SCORE, v), 1) for v in (const(f32, 1), load(V, T, E.primed(1))))
    assert set(operands(total)) == set(operands(out)) and len(operands(out)) == 1
