"""Loop IR as loop nests: where each fold stands, and which share a loop."""
from __future__ import annotations

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis
from deplodock.ir.loop import Buffer, Launch, const, exp, fold, load
from deplodock.ir.show import Text

M, K, N = Axis("m", 4), Axis("k", 6), Axis("n", 5)
X, W = Buffer("x", Dtype.f32, (M, K), "input"), Buffer("w", Dtype.f32, (K, N), "input")
S = Buffer("s", Dtype.f32, (M, N), "input")
ONE = const(Dtype.f32, 1)


def nest(axes, body) -> str:
    return "\n" + Text().nest("out", Launch(axes, body)) + "\n"


def test_a_product():
    assert nest((M, N), fold("sum", (K,), (load(X, M, K) * load(W, K, N),))) == """
out: f32[m:4,n:5]
  for m in 0..4:  # grid
    for n in 0..5:  # grid
      r0 = identity of sum
      for k in 0..6:
        r0 sum= x[m,k] * w[k,n]
      out[m,n] = r0
"""


def test_what_does_not_need_the_loop_stands_before_it():
    s = load(S, M, N)
    top = fold("max", (N,), (s,))
    assert nest((M,), fold("sum", (N,), (exp(s - top),))) == """
out: f32[m:4]
  for m in 0..4:  # grid
    r0 = identity of max
    for n in 0..5:
      r0 max= s[m,n]
    r1 = identity of sum
    for n in 0..5:
      r1 sum= exp(s[m,n] - r0)
    out[m] = r1
"""


def test_folds_over_the_same_axes_share_a_loop_and_an_inner_product():
    score = fold("sum", (K,), (load(X, M, K) * load(W, K, N),))
    v = load(S, M, N)
    body = fold("online", (N,), (score, v), 1) / fold("online", (N,), (score, ONE), 1) + fold("online", (N,), (score, v), 0)
    assert nest((M,), body) == """
out: f32[m:4]
  for m in 0..4:  # grid
    r0 = identity of online
    r1 = identity of online
    for n in 0..5:
      r2 = identity of sum
      for k in 0..6:
        r2 sum= x[m,k] * w[k,n]
      r0 online= r2, s[m,n]
      r1 online= r2, 1
    out[m] = (r0.1 / r1.1) + r0.0
"""
