"""Kernels that the tests of lowering are about, as Loop IR terms. Nothing here knows how a term is lowered."""
from __future__ import annotations

import math

from deplodock.ir.dtype import Dtype, b8, bf16, f32, i32, i64
from deplodock.ir.index import Axis, Gathered, index
from deplodock.ir.loop import Buffer, Const, Iota, cast, const, dtype, exp, fold, load, op, recip, rsqrt, where
from deplodock.ir.plan import Kernel, Output
from deplodock.ir.term import Term

INF = float("inf")


def tensor(name: str, d: Dtype, *axes: Axis) -> Buffer:
    return Buffer(name, d, axes, "output" if name in ("y", "h") else "input")


def c(value: float, d: Dtype = f32) -> Const:
    return const(d, value)


def wide(t: Term) -> Term:
    """A 16-bit value as f32; another as it is."""
    return cast(dtype(t).compute, t)


def silu(x: Term) -> Term:
    return x * op("sigmoid", x)


def kernel(name: str, *outs: tuple[Buffer, Term], d: Dtype | None = None) -> Kernel:
    """outs: (buffer, body): the body is cast to the buffer's dtype, the buffer's axes are the launch's."""
    return Kernel(name, tuple(Output(b, b.axes, cast(b.dtype, body)) for b, body in outs))


# ---- pointwise -------------------------------------------------------------------------------------------------------

def silu_mul(M, N, d=bf16):
    m, n = Axis("m", M), Axis("n", N)
    g, u, y = (tensor(t, d, m, n) for t in "guy")
    return kernel("silu_mul", (y, silu(wide(load(g, m, n))) * wide(load(u, m, n))))


def transpose(M, N, d=f32):
    m, n = Axis("m", M), Axis("n", N)
    return kernel("transpose", (tensor("y", d, n, m), load(tensor("x", d, m, n), m, n)))


def scalar(d=f32):
    """0-d tensors."""
    return kernel("scalar", (tensor("y", d), load(tensor("x", d)) * c(2.0, d)))


def iota(N):
    n = Axis("n", N)
    return kernel("iota", (tensor("y", i64, n), op("remainder", Iota(index(n) * 3 + 1), const(i64, 7))))


def concat(N, M, d=f32):
    """Either half is read outside of its tensor where the other one is meant."""
    i = Axis("i", N + M)
    a, b = tensor("a", d, Axis("n", N)), tensor("b", d, Axis("m", M))
    body = where(op("lt", Iota(index(i)), const(i64, N)), load(a, index(i)), load(b, i - N))
    return kernel("concat", (tensor("y", d, i), body))


def flip_pad(N, P, d=f32):
    """Reversed, with zeros before and behind."""
    i = Axis("i", N + 2 * P)
    at = (N + P - 1) - index(i)
    inside = op("and", op("le", const(i64, 0), Iota(at)), op("lt", Iota(at), const(i64, N)))
    return kernel("flip_pad", (tensor("y", d, i), where(inside, load(tensor("x", d, Axis("n", N)), at), c(0.0, d))))


def reshape(N, A, d=f32):
    """A reshape that does not factor: rows of A elements from rows of another length."""
    i, j = Axis("i", N // A), Axis("j", A)
    x = tensor("x", d, Axis("r", N // 6), Axis("s", 6))
    flat = i * A + j
    return kernel("reshape", (tensor("y", d, i, j), load(x, flat // 6, flat % 6)))


def embedding(T, V, D, d=bf16):
    t, v, e = Axis("t", T), Axis("v", V), Axis("e", D)
    ids, w = tensor("ids", i64, t), tensor("w", d, v, e)
    return kernel("embedding", (tensor("y", d, t, e), load(w, index(Gathered(load(ids, t), V)), e)))


def gathered_elements(T, V, D, d=f32):
    """An index for each element, as gather has it: neighbours are not read together."""
    t, v, e = Axis("t", T), Axis("v", V), Axis("e", D)
    ids, w = tensor("ids", i64, t, e), tensor("w", d, v, e)
    return kernel("gathered_elements", (tensor("y", d, t, e), load(w, index(Gathered(load(ids, t, e), V)), e)))


def integers(N):
    n = Axis("n", N)
    a, b = tensor("a", i64, n), tensor("b", i32, n)
    x, y = load(a, n), cast(i64, load(b, n))
    return kernel("integers", (tensor("y", i64, n), op("floordiv", x * const(i64, 3), y) + op("remainder", x, y)),
                  (tensor("h", b8, n), op("and", op("lt", x, y), op("ne", y, const(i64, 0)))))


# ---- rows ------------------------------------------------------------------------------------------------------------

def mean_square(x: Buffer, m: Axis, k: Axis) -> Term:
    j, d = k.primed(1), x.dtype.compute
    square = wide(load(x, m, j)) * wide(load(x, m, j))
    return rsqrt(fold("sum", (j,), (square,)) * c(1.0 / k.extent, d) + c(1e-6, d))


def rmsnorm(M, K, d=bf16):
    m, k = Axis("m", M), Axis("k", K)
    x, w = tensor("x", d, m, k), tensor("w", d, k)
    return kernel("rmsnorm", (tensor("y", d, m, k), wide(load(x, m, k)) * mean_square(x, m, k) * wide(load(w, k))))


def add_rmsnorm(M, K, d=bf16):
    """Two outputs: h = x + r, and the norm of h."""
    m, k = Axis("m", M), Axis("k", K)
    x, r, w = tensor("x", d, m, k), tensor("r", d, m, k), tensor("w", d, k)
    added = lambda a: wide(load(x, m, a)) + wide(load(r, m, a))
    j = k.primed(1)
    scale = rsqrt(fold("sum", (j,), (added(j) * added(j),)) * c(1.0 / K) + c(1e-6))
    normed = added(k) * scale * wide(load(w, k))
    return kernel("add_rmsnorm", (tensor("h", d, m, k), added(k)), (tensor("y", d, m, k), normed))


def layernorm(M, K, d=f32):
    m, k = Axis("m", M), Axis("k", K)
    x = tensor("x", d, m, k)
    mean = fold("sum", (k.primed(1),), (load(x, m, k.primed(1)),)) * c(1.0 / K, d)
    centred = lambda a: load(x, m, a) - mean
    j = k.primed(1)
    var = fold("sum", (j,), (centred(j) * centred(j),)) * c(1.0 / K, d)
    return kernel("layernorm", (tensor("y", d, m, k), centred(k) * rsqrt(var + c(1e-5, d))))


def softmax(M, K, d=bf16):
    m, k = Axis("m", M), Axis("k", K)
    x, j = tensor("x", d, m, k), k.primed(1)
    top = fold("max", (j,), (wide(load(x, m, j)),))
    e = lambda a: exp(wide(load(x, m, a)) - top)
    return kernel("softmax", (tensor("y", d, m, k), e(k) * recip(fold("sum", (j,), (e(j),)))))


def online_softmax(M, K, d=f32):
    """Maximum and sum in one pass."""
    m, k = Axis("m", M), Axis("k", K)
    x, j = tensor("x", d, m, k), k.primed(1)
    s = wide(load(x, m, j))
    top, total = (fold("online", (j,), (s, c(1.0)), part) for part in (0, 1))
    return kernel("online_softmax", (tensor("y", d, m, k), exp(wide(load(x, m, k)) - top) * recip(total)))


def column_sum(M, N, d=f32):
    m, n = Axis("m", M), Axis("n", N)
    return kernel("column_sum", (tensor("y", d, n), fold("sum", (m,), (load(tensor("x", d, m, n), m, n),))))


def total(M, N, d=f32):
    m, n = Axis("m", M), Axis("n", N)
    return kernel("total", (tensor("y", d), fold("sum", (m, n), (load(tensor("x", d, m, n), m, n),))))


def row_fold(monoid, M, K, d=f32, part=0):
    m, k = Axis("m", M), Axis("k", K)
    body = fold(monoid, (k,), (load(tensor("x", d, m, k), m, k),), part)
    return kernel(f"row_{monoid}", (tensor("y", dtype(body), m), body))


def window_max(N, W, d=f32):
    """Max pooling: a fold over two axes that are none, over windows that overlap."""
    i, j, a, b = Axis("i", N), Axis("j", N), Axis("a", W), Axis("b", W)
    x = tensor("x", d, Axis("r", N + W - 1), Axis("s", N + W - 1))
    return kernel("window_max", (tensor("y", d, i, j), fold("max", (a, b), (load(x, i + a, j + b),))))


def window_argmax(N, W, d=f32):
    i, j, a, b = Axis("i", N), Axis("j", N), Axis("a", W), Axis("b", W)
    x = tensor("x", d, Axis("r", N + W - 1), Axis("s", N + W - 1))
    return kernel("window_argmax", (tensor("y", i64, i, j), fold("argmax", (a, b), (load(x, i + a, j + b),), 1)))


# ---- products --------------------------------------------------------------------------------------------------------

def dot(x: Buffer, w: Buffer, m: Axis, n: Axis, k: Axis, weight: str = "nk") -> Term:
    b = load(w, n, k) if weight == "nk" else load(w, k, n)
    return fold("sum", (k,), (wide(load(x, m, k)) * wide(b),))


def matmul(M, N, K, weight="nk", epilogue="", d=bf16):
    m, n, k = Axis("m", M), Axis("n", N), Axis("k", K)
    x, w = tensor("x", d, m, k), tensor("w", d, *((n, k) if weight == "nk" else (k, n)))
    body = dot(x, w, m, n, k, weight)
    if epilogue == "add":
        body = body + wide(load(tensor("r", d, m, n), m, n))
    if epilogue == "silu":
        body = silu(body)
    return kernel("matmul", (tensor("y", d, m, n), body))


def norm_matmul(M, N, K, d=bf16):
    """The row's scale behind the product."""
    m, n, k = Axis("m", M), Axis("n", N), Axis("k", K)
    x, w = tensor("x", d, m, k), tensor("w", d, n, k)
    return kernel("norm_matmul", (tensor("y", d, m, n), mean_square(x, m, k) * dot(x, w, m, n, k)))


def norm_then_matmul(M, N, K, d=bf16):
    """The normalised row is rounded, as eager does: a fold before the loop, an operand that is computed."""
    m, n, k = Axis("m", M), Axis("n", N), Axis("k", K)
    x, g, w = tensor("x", d, m, k), tensor("g", d, k), tensor("w", d, n, k)
    row = cast(d, wide(load(x, m, k)) * mean_square(x, m, k) * wide(load(g, k)))
    return kernel("norm_then_matmul", (tensor("y", d, m, n), fold("sum", (k,), (wide(row) * wide(load(w, n, k)),))))


def residual_norm_matmul(M, N, K, A, E, d=bf16):
    """A product and a residual, which are the operand of another product and of the sum beside it."""
    m, n, k, a, e = Axis("m", M), Axis("n", N), Axis("k", K), Axis("a", A), Axis("e", E)
    x, w, r, g = tensor("x", d, a, m, e), tensor("w", d, k, a, e), tensor("r", d, m, k), tensor("g", d, n, k)
    row = fold("sum", (a, e), (wide(load(x, a, m, e)) * wide(load(w, k, a, e)),)) + wide(load(r, m, k))
    scale = rsqrt(fold("sum", (k,), (row * row,)) * c(1.0 / K) + c(1e-6))
    product = fold("sum", (k,), (row * wide(load(g, n, k)),))
    return kernel("residual_norm_matmul", (tensor("y", d, m, n), scale * product))


def norm_then_projections(M, Q, V, K, d=bf16):
    """Two outputs, as of projections, of a row that is normalised first."""
    m, q, v, k = Axis("m", M), Axis("q", Q), Axis("v", V), Axis("k", K)
    x, g, wq, wv = tensor("x", d, m, k), tensor("g", d, k), tensor("wq", d, q, k), tensor("wv", d, v, k)
    row = cast(d, wide(load(x, m, k)) * mean_square(x, m, k) * wide(load(g, k)))
    product = lambda w, n: fold("sum", (k,), (wide(row) * wide(load(w, n, k)),))
    y, h = tensor("y", d, m, q), tensor("h", d, m, v)
    return kernel("norm_then_projections", (y, product(wq, q)), (h, product(wv, v)))


def gate_up(M, N, K, d=bf16, norm=False):
    m, n, k = Axis("m", M), Axis("n", N), Axis("k", K)
    x, wg, wu = tensor("x", d, m, k), tensor("wg", d, n, k), tensor("wu", d, n, k)
    scale = mean_square(x, m, k) if norm else None
    g, u = (dot(x, w, m, n, k) * scale if norm else dot(x, w, m, n, k) for w in (wg, wu))
    return kernel("gate_up", (tensor("y", d, m, n), silu(g) * u))


def swiglu_down(M, N, K, d=bf16):
    """silu(g) * u is computed on its way into the product."""
    m, n, k = Axis("m", M), Axis("n", N), Axis("k", K)
    g, u, w = tensor("g", d, m, k), tensor("u", d, m, k), tensor("w", d, n, k)
    a = cast(d, silu(wide(load(g, m, k))) * wide(load(u, m, k)))
    return kernel("swiglu_down", (tensor("y", d, m, n), fold("sum", (k,), (wide(a) * wide(load(w, n, k)),))))


def grouped_matmul(B, S, G, R, E, N, d=bf16):
    """Batch, and a contraction over (group, head, feature): axes that lie one in the other."""
    b, s, g, r, e, n = (Axis(*a) for a in zip("bsgren", (B, S, G, R, E, N)))
    x, w = tensor("x", d, b, s, g, r, e), tensor("w", d, n, g, r, e)
    body = fold("sum", (g, r, e), (wide(load(x, b, s, g, r, e)) * wide(load(w, n, g, r, e)),))
    return kernel("grouped_matmul", (tensor("y", d, b, s, n), body))


def projections(M, Q, V, K, d=bf16):
    """Two outputs with columns of their own that share the rows, and the rows' norm."""
    m, q, v, k = Axis("m", M), Axis("q", Q), Axis("v", V), Axis("k", K)
    x, wq, wv = tensor("x", d, m, k), tensor("wq", d, q, k), tensor("wv", d, v, k)
    scale = mean_square(x, m, k)
    return kernel("projections", (tensor("y", d, m, q), scale * dot(x, wq, m, q, k)),
                  (tensor("h", d, m, v), scale * dot(x, wv, m, v, k)))


def rope_matmul(M, H, K, d=bf16):
    """Rotate-half as an index: p -> 1 - p on an axis of two; the columns of the product are the pair (p, h)."""
    m, p, h, k = Axis("m", M), Axis("p", 2), Axis("h", H), Axis("k", K)
    x, w, co, si = tensor("x", d, m, k), tensor("w", d, p, h, k), tensor("co", f32, m, h), tensor("si", f32, m, h)
    half = lambda i: fold("sum", (k,), (wide(load(x, m, k)) * wide(load(w, i, h, k)),))
    sign = where(op("eq", Iota(index(p)), const(i64, 0)), c(-1.0), c(1.0))
    body = half(index(p)) * load(co, m, h) + sign * half(1 - index(p)) * load(si, m, h)
    return kernel("rope_matmul", (tensor("y", d, m, p, h), body))


def conv1d(B, L, C, N, d=bf16):
    """Three taps, padded by one: a sum over taps of products over channels; the pad guards the read."""
    b, i, ch, n, tap = Axis("b", B), Axis("i", L), Axis("ch", C), Axis("n", N), Axis("tap", 3)
    x, w = tensor("x", d, b, Axis("l", L), ch), tensor("w", d, tap, n, ch)
    at = i + tap - 1
    inside = op("and", op("le", const(i64, 0), Iota(at)), op("lt", Iota(at), const(i64, L)))
    read = where(inside, load(x, b, at, ch), c(0.0, d))
    body = fold("sum", (tap, ch), (wide(read) * wide(load(w, tap, n, ch)),))
    return kernel("conv1d", (tensor("y", d, b, i, n), body))


# ---- attention -------------------------------------------------------------------------------------------------------

def attention(H, KV, S, D, d=bf16, causal=True, T=None, mask=False, window=None):
    """mask: an additive one of the query and the key. window: keys no more than so many before the query."""
    kv, g, s, e, t = Axis("kv", KV), Axis("g", H // KV), Axis("s", S), Axis("e", D), Axis("s", T or S).primed(1)
    q, k, v = (tensor(n, d, *axes) for n, axes in (("q", (kv, g, s, e)), ("k", (kv, t, e)), ("v", (kv, t, e))))
    j = e.primed(1)
    score = fold("sum", (j,), (wide(load(q, kv, g, s, j)) * wide(load(k, kv, t, j)),))
    score = score * c(1.0 / math.sqrt(D), d.compute)
    if mask:
        score = score + wide(load(tensor("mask", d, s, t), s, t))
    keep = op("le", Iota(index(t)), Iota(index(s)))
    if window:
        keep = op("and", keep, op("lt", Iota(index(s)), Iota(t + window)))
    if causal:
        score = where(keep, score, c(-INF, d.compute))
    o = fold("online", (t,), (score, wide(load(v, kv, t, e))), 1)
    l = fold("online", (t,), (score, c(1.0, d.compute)), 1)
    return kernel("attention", (tensor("y", d, kv, g, s, e), o * recip(l)))


def dead_rows(S, D, d=bf16):
    """Keys strictly before the query: the first row has none, and is 0."""
    s, t, e = Axis("s", S), Axis("s", S).primed(1), Axis("e", D)
    q, k, v = tensor("q", d, s, e), tensor("k", d, t, e), tensor("v", d, t, e)
    j = e.primed(1)
    score = fold("sum", (j,), (wide(load(q, s, j)) * wide(load(k, t, j)),)) * c(1.0 / math.sqrt(D), d.compute)
    score = where(op("lt", Iota(index(t)), Iota(index(s))), score, c(-INF, d.compute))
    o, l = (fold("online", (t,), (score, x), 1) for x in (wide(load(v, t, e)), c(1.0, d.compute)))
    return kernel("dead_rows", (tensor("y", d, s, e), o), (tensor("h", f32, s), cast(f32, l)))


def expected_position(S, D, d=bf16):
    """Attention's mean of the values, and of a number for each key, which is no product."""
    s, t, e = Axis("s", S), Axis("s", S).primed(1), Axis("e", D)
    q, k, v, w = tensor("q", d, s, e), tensor("k", d, t, e), tensor("v", d, t, e), tensor("w", f32, t)
    j = e.primed(1)
    score = fold("sum", (j,), (wide(load(q, s, j)) * wide(load(k, t, j)),)) * c(1.0 / math.sqrt(D), d.compute)
    o, l, z = (fold("online", (t,), (score, x), 1) for x in (wide(load(v, t, e)), c(1.0, d.compute), load(w, t)))
    return kernel("expected_position", (tensor("y", d, s, e), o * recip(l)), (tensor("h", f32, s), z * recip(l)))


def gathered_matmul(T, V, N, K, d=bf16):
    """Rows of a product that are chosen by loaded integers."""
    t_, v, n, k = Axis("t", T), Axis("v", V), Axis("n", N), Axis("k", K)
    ids, x, w = tensor("ids", i64, t_), tensor("x", d, v, k), tensor("w", d, n, k)
    row = load(x, index(Gathered(load(ids, t_), V)), k)
    return kernel("gathered_matmul", (tensor("y", d, t_, n), fold("sum", (k,), (wide(row) * wide(load(w, n, k)),))))


def batched_matmul(B, H, M, N, K, d=bf16):
    """A batch of products whose right factor all of the batch's second axis share."""
    b, h, m, n, k = (Axis(*a) for a in zip("bhmnk", (B, H, M, N, K)))
    x, w = tensor("x", d, b, h, m, k), tensor("w", d, b, k, n)
    body = fold("sum", (k,), (wide(load(x, b, h, m, k)) * wide(load(w, b, k, n)),))
    return kernel("batched_matmul", (tensor("y", d, b, h, m, n), body))


def average_pool(N, W, d=f32):
    i, a, n = Axis("i", N), Axis("a", W), Axis("r", N * 2)
    at = i * 2 + a - 1
    inside = op("and", op("le", const(i64, 0), Iota(at)), op("lt", Iota(at), const(i64, N * 2)))
    body = fold("sum", (a,), (where(inside, load(tensor("x", d, n), at), c(0.0, d)),)) * c(1.0 / W, d)
    return kernel("average_pool", (tensor("y", d, i), body))


def cosine(M, N, K, d=f32):
    """Rows of a product over their norms: two statistics beside a product, of its rows and of its columns."""
    m, n, k = Axis("m", M), Axis("n", N), Axis("k", K)
    x, w = tensor("x", d, m, k), tensor("w", d, n, k)
    norm = lambda t_, a: rsqrt(fold("sum", (k,), (wide(load(t_, a, k)) * wide(load(t_, a, k)),)))
    return kernel("cosine", (tensor("y", d, m, n), dot(x, w, m, n, k) * norm(x, m) * norm(w, n)))


def softmax_matmul(M, N, K, d=bf16):
    """A softmax that is an operand: two folds before the loop, exponentials on the way into the product."""
    m, n, k = Axis("m", M), Axis("n", N), Axis("k", K)
    x, w = tensor("x", d, m, k), tensor("w", d, k, n)
    j = k.primed(1)
    top = fold("max", (j,), (wide(load(x, m, j)),))
    e = lambda a: exp(wide(load(x, m, a)) - top)
    p = cast(d, e(k) * recip(fold("sum", (j,), (e(j),))))
    return kernel("softmax_matmul", (tensor("y", d, m, n), fold("sum", (k,), (wide(p) * wide(load(w, k, n)),))))


def attention_parts(H, S, T, D, d=bf16):
    """What a split over keys stores: all parts of the fold."""
    h, s, t, e = Axis("h", H), Axis("s", S), Axis("t", T), Axis("e", D)
    q, k, v = tensor("q", d, h, s, e), tensor("k", d, h, t, e), tensor("v", d, h, t, e)
    j = e.primed(1)
    score = fold("sum", (j,), (wide(load(q, h, s, j)) * wide(load(k, h, t, j)),)) * c(1.0 / math.sqrt(D))
    m, l, o = tensor("m", f32, h, s), tensor("l", f32, h, s), tensor("o", f32, h, s, e)
    top, total_ = (fold("online", (t,), (score, c(1.0)), part) for part in (0, 1))
    weighted = fold("online", (t,), (score, wide(load(v, h, t, e))), 1)
    return kernel("attention_parts", (m, top), (l, total_), (o, weighted))


def linear_attention(S, D, d=bf16):
    """sum_t (q.k_t) v_t: a product as the operand of a product, no softmax."""
    s, t, e = Axis("s", S), Axis("t", S), Axis("e", D)
    q, k, v = tensor("q", d, s, e), tensor("k", d, t, e), tensor("v", d, t, e)
    j = e.primed(1)
    p = fold("sum", (j,), (wide(load(q, s, j)) * wide(load(k, t, j)),))
    body = fold("sum", (t,), (wide(cast(d, p)) * wide(load(v, t, e)),))
    return kernel("linear_attention", (tensor("y", d, s, e), body))
