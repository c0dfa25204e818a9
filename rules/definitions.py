"""What Torch operators are made of, and how the three primitives become launches.

Applied once, in Python, to ground terms while a program is entered (deplodock/enter.py): a law is called with the
operator's own operands and options by name (`shape` and `dtype` are the result's), and applies where its left side is
the operator. Each step of a definition becomes a launch of its own, so that an operator and its spelled-out form enter
as the same launches. On 16-bit floats definitions of several steps compute in f32 and round once, at the end.
"""
from __future__ import annotations

import math

from deplodock.facts import of_dtype, sixteen_bit
from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Axis, Iota, Launch, fold, index, load, op
from deplodock.ir.loop import cast as cast_body
from deplodock.ir.tensor import (Convert, Elements, Elementwise, IndexMap, Operator, Reduction, Shape, Tensor, amax,
                                 contract, convert_body, dtype, elementwise, elementwise_body, exp, index_map, like,
                                 linear, log, matmul, mean, part, places, reduce, reduction_body, rsqrt, shape, sigmoid,
                                 sum, to, torch_op, value, where, wide)
from deplodock.law import law, rewrite

Dims = tuple[int, ...]
Number = float

# ---- pointwise operators ---------------------------------------------------------------------------------------------

POINTWISE = {
    **{name: name for name in """neg abs sign sqrt rsqrt exp exp2 expm1 log log2 log1p sin cos tan atan tanh sigmoid erf
       floor ceil round trunc isnan isinf add sub mul div remainder fmod pow atan2 maximum minimum eq ne lt le
       where""".split()},
    "reciprocal": "recip", "bitwise_not": "not", "floor_divide": "floordiv", "trunc_divide": "truncdiv",
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "bitwise_left_shift": "shl",
    "bitwise_right_shift": "shr",
}
"""Torch operators that are one operator of ir/ops.py."""


@law("exact")
def pointwise_def(name: str, args: tuple):
    """f(a, b ..) = elementwise(f, a, b ..)"""
    return rewrite(Operator(name, args)).to(Elementwise(POINTWISE[name], args))


@law("exact")
def cast_def(x: Tensor, dtype: Dtype):
    """cast(x) = elementwise(cast, x)"""
    return rewrite(torch_op.cast(x, dtype)).to(to(x, dtype))


@law("exact")
def pow_square(a: Tensor):
    """a² = a·a"""
    return rewrite(torch_op.pow(a, 2.0)).to(a * a)


@law("reassociates")
def pow_cube(a: Tensor):
    """a³ = a·a·a"""
    return rewrite(torch_op.pow(a, 3.0)).to(like(a, wide(a) * wide(a) * wide(a)))


@law("reassociates")
def pow_root(a: Tensor):
    """a^½ = sqrt(a)"""
    return rewrite(torch_op.pow(a, 0.5)).to(elementwise("sqrt", a))


@law("reassociates")
def pow_rsqrt(a: Tensor):
    """a^−½ = rsqrt(a)"""
    return rewrite(torch_op.pow(a, -0.5)).to(rsqrt(a))


@law("exact")
def pow_recip(a: Tensor):
    """a⁻¹ = recip(a)"""
    return rewrite(torch_op.pow(a, -1.0)).to(elementwise("recip", a))


@law("exact")
def relu_def(x: Tensor):
    """relu(x) = max(x, 0)"""
    return rewrite(torch_op.relu(x)).to(elementwise("maximum", x, 0))


@law("exact")
def silu_def(x: Tensor):
    """silu(x) = x·sigmoid(x)"""
    return rewrite(torch_op.silu(x)).to(like(x, wide(x) * sigmoid(wide(x))))


@law("exact")
def gelu_erf_def(x: Tensor):
    """gelu(x) = ½·x·(1 + erf(x/√2))"""
    z = wide(x)
    return rewrite(torch_op.gelu(x, "none")).to(like(x, 0.5 * z * (1.0 + elementwise("erf", z / math.sqrt(2.0)))))


@law("exact")
def gelu_tanh_def(x: Tensor):
    """gelu(x) = ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))"""
    z = wide(x)
    inner = math.sqrt(2.0 / math.pi) * (z + 0.044715 * (z * z * z))
    return rewrite(torch_op.gelu(x, "tanh")).to(like(x, 0.5 * z * (1.0 + elementwise("tanh", inner))))


@law("exact")
def softplus_def(x: Tensor, beta: Number, threshold: Number):
    """softplus(x) = where(β·x > threshold, x, log1p(exp(β·x))/β)"""
    z = wide(x)
    soft = elementwise("log1p", exp(z * beta)) / beta
    return rewrite(torch_op.softplus(x, beta, threshold)).to(
        like(x, where(elementwise("lt", threshold, z * beta), z, soft)))


@law("exact")
def leaky_relu_def(x: Tensor, negative_slope: Number):
    """leaky_relu(x) = where(x > 0, x, slope·x)"""
    z = wide(x)
    return rewrite(torch_op.leaky_relu(x, negative_slope)).to(
        like(x, where(elementwise("lt", 0.0, z), z, z * negative_slope)))


@law("exact")
def elu_def(x: Tensor, alpha: Number, scale: Number, input_scale: Number):
    """elu(x) = where(x > 0, scale·x, scale·α·(exp(x·input_scale) − 1))"""
    z = wide(x)
    low = elementwise("expm1", z * input_scale) * (alpha * scale)
    return rewrite(torch_op.elu(x, alpha, scale, input_scale)).to(
        like(x, where(elementwise("lt", 0.0, z), z * scale, low)))


# ---- reductions ------------------------------------------------------------------------------------------------------

MONOIDS = {"sum": "sum", "prod": "prod", "amax": "max", "amin": "min", "any": "any", "all": "all"}
"""Torch operators that are one fold."""


@law("reassociates")
def fold_def(name: str, x: Tensor, dims: Dims, keepdim: bool, shape: Shape):
    """sum(x, dims) = reduction(sum, dims, x), and likewise for prod, amax, amin, any, all"""
    return rewrite(Operator(name, (x, dims, keepdim))).to(torch_op.reshape(reduce(MONOIDS[name], x, dims), shape))


@law("reassociates")
def mean_def(x: Tensor, dims: Dims, keepdim: bool, shape: Shape):
    """mean(x) = (Σₖ x)/n"""
    return rewrite(torch_op.mean(x, dims, keepdim)).to(torch_op.reshape(like(x, mean(wide(x), dims)), shape))


@law("exact")
def argmax_def(x: Tensor, dims: Dims, keepdim: bool, shape: Shape):
    """argmax(x) = the index part of the fold argmax"""
    return rewrite(torch_op.argmax(x, dims, keepdim)).to(torch_op.reshape(reduce("argmax", x, dims, 1), shape))


@law("exact")
def argmin_def(x: Tensor, dims: Dims, keepdim: bool, shape: Shape):
    """argmin(x) = the index part of the fold argmin"""
    return rewrite(torch_op.argmin(x, dims, keepdim)).to(torch_op.reshape(reduce("argmin", x, dims, 1), shape))


@law("reassociates")
def softmax_def(x: Tensor, dim: int):
    """softmax(x) = exp(x − maxₖ x) / Σₖ exp(x − maxₖ x)"""
    e = exp(wide(x) - amax(wide(x), dim))
    return rewrite(torch_op.softmax(x, dim)).to(like(x, e / sum(e, dim)))


@law("reassociates")
def log_softmax_def(x: Tensor, dim: int):
    """log_softmax(x) = x − maxₖ x − log Σₖ exp(x − maxₖ x)"""
    s = wide(x) - amax(wide(x), dim)
    return rewrite(torch_op.log_softmax(x, dim)).to(like(x, s - log(sum(exp(s), dim))))


@law("reassociates")
def layer_norm_def(x: Tensor, dims: Dims, eps: Number):
    """layer_norm(x) = (x − μ)·rsqrt(Σₖ (x − μ)²/n + ε), μ = (Σₖ x)/n"""
    d = wide(x) - mean(wide(x), dims)
    return rewrite(torch_op.layer_norm(x, None, None, dims, eps)).to(like(x, d * rsqrt(mean(d * d, dims) + eps)))


@law("reassociates")
def layer_norm_weight_def(x: Tensor, weight: Tensor, dims: Dims, eps: Number):
    """layer_norm(x, γ) = layer_norm(x)·γ"""
    return rewrite(torch_op.layer_norm(x, weight, None, dims, eps)).to(
        like(x, torch_op.layer_norm(wide(x), None, None, dims, eps) * wide(weight)))


@law("reassociates")
def layer_norm_affine_def(x: Tensor, weight: Tensor, bias: Tensor, dims: Dims, eps: Number):
    """layer_norm(x, γ, β) = layer_norm(x)·γ + β"""
    return rewrite(torch_op.layer_norm(x, weight, bias, dims, eps)).to(
        like(x, torch_op.layer_norm(wide(x), None, None, dims, eps) * wide(weight) + wide(bias)))


@law("reassociates")
def rms_norm_def(x: Tensor, dims: Dims, eps: Number):
    """rms_norm(x) = x·rsqrt(Σₖ x²/n + ε)"""
    z = wide(x)
    return rewrite(torch_op.rms_norm(x, None, dims, eps)).to(like(x, z * rsqrt(mean(z * z, dims) + eps)))


@law("reassociates")
def rms_norm_weight_def(x: Tensor, weight: Tensor, dims: Dims, eps: Number):
    """rms_norm(x, w) = rms_norm(x)·w"""
    return rewrite(torch_op.rms_norm(x, weight, dims, eps)).to(
        like(x, torch_op.rms_norm(wide(x), None, dims, eps) * wide(weight)))


# ---- products --------------------------------------------------------------------------------------------------------

@law("reassociates")
def matmul_def(a: Tensor, b: Tensor):
    """a @ b = Σₖ a[.., m, k]·b[.., k, n]"""
    return rewrite(torch_op.matmul(a, b)).to(like(a, matmul(a, b)))


@law("reassociates")
def linear_def(x: Tensor, weight: Tensor):
    """linear(x, w) = Σₖ x[.., k]·w[n, k]"""
    return rewrite(torch_op.linear(x, weight, None)).to(like(x, linear(x, weight)))


@law("reassociates")
def linear_bias_def(x: Tensor, weight: Tensor, bias: Tensor):
    """linear(x, w, b) = Σₖ x[.., k]·w[n, k] + b[n]"""
    return rewrite(torch_op.linear(x, weight, bias)).to(like(x, linear(x, weight) + wide(bias)))


@law("reassociates")
def addmm_def(input: Tensor, a: Tensor, b: Tensor, beta: Number, alpha: Number):
    """addmm(c, a, b) = β·c + α·Σₖ a·b"""
    return rewrite(torch_op.addmm(input, a, b, beta, alpha)).to(
        like(a, scaled(wide(input), beta) + scaled(matmul(a, b), alpha)))


@law("reassociates")
def addmm_without_def(input: Tensor, a: Tensor, b: Tensor, alpha: Number):
    """addmm(c, a, b, β = 0) = α·Σₖ a·b: c is not read"""
    return rewrite(torch_op.addmm(input, a, b, 0, alpha)).to(like(a, scaled(matmul(a, b), alpha)))


@law("reassociates")
def einsum_def(xs: tuple, equation: str):
    """einsum(x, y ..) = the sum of the products over the letters that the result lacks, two operands at a time"""
    return rewrite(torch_op.einsum(xs, equation)).to(like(xs[0], einsum(xs, equation)))


def scaled(t, factor: Number):
    """t·factor, no step where the factor is 1."""
    return t if factor == 1 else t * factor


def einsum(xs: tuple[Tensor, ...], equation: str) -> Tensor:
    """einsum, not rounded: a fold over the left operand's letters, then one product after another."""
    left, out = equation.split("->")
    first, *rest = left.split(",")
    result = xs[0]
    if not rest:
        axis = {c: Axis(c, n) for c, n in zip(first, shape(result))}
        return Elements(tuple(axis[c] for c in out),
                      fold("sum", tuple(a for c, a in axis.items() if c not in out),
                           (value(result, tuple(axis[c] for c in first)),)))
    for i, (letters, x) in enumerate(zip(rest, xs[1:])):
        later = "".join(rest[i + 1:]) + out
        kept = out if i == len(rest) - 1 else "".join(c for c in dict.fromkeys(first + letters) if c in later)
        result, first = contract((first, letters), kept, result, x), kept
    return result


# ---- attention -------------------------------------------------------------------------------------------------------

sdpa = torch_op.scaled_dot_product_attention


@law("exact")
def sdpa_gqa_def(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: Number):
    """sdpa(q, k, v, gqa) = sdpa(q, heads(k), heads(v)): the key head of query head h is h // r"""
    return rewrite(sdpa(q, k, v, mask, is_causal, scale, True)).to(
        sdpa(q, part.heads(k, q), part.heads(v, q), mask, is_causal, scale, False))


@law("reassociates")
def sdpa_def(q: Tensor, k: Tensor, v: Tensor, scale: Number):
    """sdpa(q, k, v) = attend(scores(q, k), v)"""
    return rewrite(sdpa(q, k, v, None, False, scale, False)).to(like(q, part.attend(part.scores(q, k, scale), v)))


@law("reassociates")
def sdpa_causal_def(q: Tensor, k: Tensor, v: Tensor, scale: Number):
    """sdpa(q, k, v, causal) = attend(where(t ≤ m, scores(q, k), −∞), v): every row keeps key 0"""
    return rewrite(sdpa(q, k, v, None, True, scale, False)).to(
        like(q, part.attend(where(part.causal(q, k), part.scores(q, k, scale), -math.inf), v)))


@law("reassociates")
def sdpa_mask_def(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: Number):
    """sdpa(q, k, v, mask) = attend(masked(scores(q, k), mask), v), and 0 on a row where no score is above −∞"""
    s = part.masked(part.scores(q, k, scale), mask)
    dead = elementwise("eq", amax(s, len(shape(q)) - 1), -math.inf)
    return rewrite(sdpa(q, k, v, mask, False, scale, False)).to(like(q, where(dead, 0.0, part.attend(s, v))))


@law("exact")
def heads_def(x: Tensor, q: Tensor):
    """heads(x)[.., h, t, d] = x[.., h // r, t, d], r = heads of q / heads of x"""
    *batch, n, t, d = shape(x)
    r = shape(q)[-3] // n
    return rewrite(part.heads(x, q)).to(
        index_map(x, (*batch, n * r, t, d), lambda *i: (*i[:-3], i[-3] // r, *i[-2:])))


@law("reassociates")
def scores_def(q: Tensor, k: Tensor, scale: Number):
    """scores(q, k)[.., m, t] = c·Σ_d q[.., m, d]·k[.., t, d], not rounded"""
    flipped = (*shape(k)[:-2], shape(k)[-1], shape(k)[-2])
    return rewrite(part.scores(q, k, scale)).to(
        matmul(q, index_map(k, flipped, lambda *i: (*i[:-2], i[-1], i[-2]))) * scale)


@law("exact")
def causal_def(q: Tensor, k: Tensor):
    """causal(q, k)[m, t] = t ≤ m, over query positions m and key positions t"""
    m, t = Axis("m", shape(q)[-2]), Axis("t", shape(k)[-2])
    return rewrite(part.causal(q, k)).to(Elements((m, t), op("le", Iota(index(t)), Iota(index(m)))))


@law("exact")
def masked_where_def(s: Tensor, mask: Tensor):
    """masked(s, mask) = where(mask, s, −∞) for a mask of b8: true keeps"""
    return rewrite(part.masked(s, mask)).to(where(mask, s, -math.inf), of_dtype(mask, Dtype.b8))


@law("exact")
def masked_add_def(s: Tensor, mask: Tensor):
    """masked(s, mask) = s + mask for a mask of floats"""
    return rewrite(part.masked(s, mask)).to(s + wide(mask))


@law("reassociates")
def attend_rounded_def(s: Tensor, v: Tensor):
    """attend(s, v) = (Σₜ e·v)/Σₜ e, v of 16 bits, e = exp(s − maxₜ s) rounded to v's dtype for the product only"""
    dim = len(shape(v)) - 1
    e = exp(s - amax(s, dim))
    return rewrite(part.attend(s, v)).to(matmul(like(v, e), v) / sum(e, dim), sixteen_bit(dtype(v)))


@law("reassociates")
def attend_def(s: Tensor, v: Tensor):
    """attend(s, v) = Σₜ softmaxₜ(s)·v"""
    dim = len(shape(v)) - 1
    e = exp(s - amax(s, dim))
    return rewrite(part.attend(s, v)).to(matmul(e / sum(e, dim), v))


# ---- primitives as launches ------------------------------------------------------------------------------------------

@law("exact")
def elementwise_launch(f: str, args: tuple):
    """elementwise(f, a, b ..) = launch([i ..], f(a[i ..], b[i ..] ..)), rounded once at its root"""
    term = Elementwise(f, args)
    at = places(term.shape)
    return rewrite(term).to(Launch(at, cast_body(term.dtype, elementwise_body(f, args, at))))


@law("exact")
def convert_launch(arg: Tensor, dtype: Dtype):
    """elementwise(cast, a) = launch([i ..], cast(d, a[i ..]))"""
    at = places(shape(arg))
    return rewrite(Convert(arg, dtype)).to(Launch(at, convert_body(arg, dtype, at)))


@law("reassociates")
def reduction_launch(monoid: str, dims: Dims, arg: Tensor, part: int):
    """reduction(op, dims, a) = launch([i ..], fold(op, [k ..], a[i .., k ..])), rounded once at its root"""
    term = Reduction(monoid, dims, arg, part)
    at = places(term.shape)
    return rewrite(term).to(Launch(at, cast_body(term.dtype, reduction_body(monoid, dims, arg, part, at))))


@law("exact")
def index_map_launch(arg: Tensor, shape: Shape, indices: tuple):
    """index_map([i ..], a, [ix ..]) = launch([i ..], load(a, [ix ..]))"""
    return rewrite(IndexMap(arg, shape, indices)).to(Launch(places(shape), load(arg, *indices)))


DEFINITIONS = {
    **{name: (pointwise_def,) for name in POINTWISE},
    "cast": (cast_def,), "relu": (relu_def,), "silu": (silu_def,), "gelu": (gelu_erf_def, gelu_tanh_def),
    "pow": (pow_square, pow_cube, pow_root, pow_rsqrt, pow_recip, pointwise_def),
    "softplus": (softplus_def,), "leaky_relu": (leaky_relu_def,), "elu": (elu_def,),
    **{name: (fold_def,) for name in MONOIDS},
    "mean": (mean_def,), "argmax": (argmax_def,), "argmin": (argmin_def,),
    "softmax": (softmax_def,), "log_softmax": (log_softmax_def,),
    "layer_norm": (layer_norm_def, layer_norm_weight_def, layer_norm_affine_def),
    "rms_norm": (rms_norm_def, rms_norm_weight_def),
    "matmul": (matmul_def,), "linear": (linear_def, linear_bias_def), "addmm": (addmm_without_def, addmm_def),
    "einsum": (einsum_def,),
    "scaled_dot_product_attention": (sdpa_gqa_def, sdpa_def, sdpa_causal_def, sdpa_mask_def),
    "heads": (heads_def,), "scores": (scores_def,), "causal": (causal_def,),
    "masked": (masked_where_def, masked_add_def), "attend": (attend_rounded_def, attend_def),
}
"""The laws that have an operator as their left side, in the order in which they are tried: operators of Torch IR, then
those that only definitions use."""
