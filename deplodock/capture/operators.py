"""The one table from ATen operators to Torch IR, and the constructors it names.

A row is `"softmax.int": softmax`: an overload's name and the function that adds its Torch IR nodes. A constructor gets
a Call, which holds all arguments of the operator's schema by name, defaults filled in, tensors as Arg, and the shape
and the dtype of the result. An operator without a row is decomposed by PyTorch where it can be, else a named error.
"""
from __future__ import annotations

import math
from typing import Callable

import torch

from deplodock.capture.build import Call
from deplodock.errors import TrainingMode
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import Arg

Constructor = Callable[[Call], Arg | tuple[Arg, ...] | None]


# ---- pointwise -------------------------------------------------------------------------------------------------------

def pointwise(op: str, *names: str) -> Constructor:
    """All operands converted to the dtype of the result."""
    return lambda c: c.pointwise(op, *(c[n] for n in names))


def compare(op: str, first: str = "self", second: str = "other") -> Constructor:
    """Operands converted to the dtype that PyTorch promotes them to."""
    return lambda c: c.pointwise(op, c[first], c[second], dtype=c.promoted(c[first], c[second]))


def test(op: str) -> Constructor:
    """A predicate of one floating value."""
    return lambda c: c(op, c["self"])


def logical(op: str, *names: str) -> Constructor:
    """A logical operator: operands converted to b8 (x != 0)."""
    return lambda c: c.pointwise(op, *(c[n] for n in names), dtype=Dtype.b8)


def scaled(op: str) -> Constructor:
    """self op alpha * other, rounded once."""
    def construct(c: Call) -> Arg:
        if c["alpha"] == 1:
            return c.pointwise(op, c["self"], c["other"])
        return c.cast(c.wide(op, c["self"], c.wide("mul", c["other"], c["alpha"])), c.dtype)
    return construct


def rsub(c: Call) -> Arg:
    if c["alpha"] == 1:
        return c.pointwise("sub", c["other"], c["self"])
    return c.cast(c.wide("sub", c["other"], c.wide("mul", c["self"], c["alpha"])), c.dtype)


def divide(c: Call) -> Arg:
    op = {None: "div", "floor": "floor_divide", "trunc": "trunc_divide"}[c["rounding_mode"]]
    return c.pointwise(op, c["self"], c["other"])


def where(c: Call) -> Arg:
    return c.where(c["condition"], c["self"], c["other"])


def masked_fill(c: Call) -> Arg:
    return c.where(c["mask"], c["value"], c["self"])


def clamp(low: str, high: str) -> Constructor:
    """min(max(x, low), high): NaN stays NaN."""
    def construct(c: Call) -> Arg:
        x = c["self"]
        if (bound := c.get(low)) is not None:
            x = c.pointwise("maximum", x, bound)
        if (bound := c.get(high)) is not None:
            x = c.pointwise("minimum", x, bound)
        return x
    return construct


def isfinite(c: Call) -> Arg:
    return c("bitwise_not", c("bitwise_or", c("isnan", c["self"]), c("isinf", c["self"])))


def activation(op: str, *options: str) -> Constructor:
    return lambda c: c(op, c.cast(c["self"], c.dtype), **{o: c[o] for o in options})


def elu(c: Call) -> Arg:
    options = {o: float(c[o]) for o in ("alpha", "scale", "input_scale")}
    return c("elu", c.cast(c["self"], c.dtype), **options)


def leaky_relu(c: Call) -> Arg:
    return c("leaky_relu", c["self"], negative_slope=float(c["negative_slope"]))


def softplus(c: Call) -> Arg:
    return c("softplus", c["self"], beta=float(c["beta"]), threshold=float(c["threshold"]))


# ---- casts and copies ------------------------------------------------------------------------------------------------

def same(c: Call) -> Arg:
    """An operator that only copies: its result is its operand."""
    return c["self"]


def nothing(c: Call) -> None:
    """An assertion that PyTorch's own tracing has checked."""


def cast(c: Call) -> Arg:
    c.check_device(c.get("device"))
    return c.cast(c["self"], c.dtype)


def copy(c: Call) -> Arg:
    return c.expand(c.cast(c["src"], c.dtype), c.shape)


# ---- folds -----------------------------------------------------------------------------------------------------------

def reduction(op: str, dims: str = "dim") -> Constructor:
    """A fold over some dimensions; operands converted to the dtype of the result first, as PyTorch does."""
    def construct(c: Call) -> Arg:
        return c(op, c.cast(c["self"], c.dtype), dims=c.dims(c.get(dims)), keepdim=bool(c.get("keepdim")))
    return construct


def arg_reduction(op: str) -> Constructor:
    def construct(c: Call) -> Arg:
        if not c.shape_of(c["self"]):
            return c("full", value=0)
        dim = c.get("dim")
        return c(op, c["self"], dims=c.dims(None if dim is None else [dim]), keepdim=bool(c.get("keepdim")))
    return construct


def with_index(value: str, index: str) -> Constructor:
    """max and min along one dimension: the values and where they are."""
    def construct(c: Call) -> tuple[Arg, Arg]:
        options = dict(dims=c.dims([c["dim"]]), keepdim=c["keepdim"])
        if c.shape_of(c["self"]):
            where = c(index, c["self"], **options, dtype=Dtype.i64)
        else:
            where = c("full", value=0, dtype=Dtype.i64)
        return c(value, c["self"], **options), where
    return construct


def variance(finish: Callable[[Call, Arg], Arg]) -> Constructor:
    """sum (x - mean)^2 / (n - correction), then `finish`; 16-bit floats in f32, rounded once."""
    def construct(c: Call) -> Arg:
        dims, wide = c.dims(c.get("dim")), c.dtype.compute
        x, sizes = c.cast(c["self"], wide), c.shape_of(c["self"])
        ones = tuple(1 if d in dims else n for d, n in enumerate(sizes))
        off = c("sub", x, c("mean", x, dims=dims, keepdim=True, shape=ones, dtype=wide), shape=sizes, dtype=wide)
        total = c("sum", c("mul", off, off, shape=sizes, dtype=wide), dims=dims, keepdim=bool(c["keepdim"]), dtype=wide)
        correction = 1 if c["correction"] is None else c["correction"]
        return c.cast(finish(c, c.wide("div", total, max(0, math.prod(sizes[d] for d in dims) - correction))), c.dtype)
    return construct


def vector_norm(c: Call) -> Arg:
    """The 1-, 2- and infinity-norm; 16-bit floats in f32, rounded once."""
    wide, order = c.dtype.compute, c["ord"]
    options = dict(dims=c.dims(c["dim"]), keepdim=bool(c["keepdim"]), dtype=wide)
    x = c.cast(c["self"], wide)
    size = c.shape_of(x)
    match order:
        case 2: y = c.wide("sqrt", c("sum", c("mul", x, x, shape=size, dtype=wide), **options))
        case 1: y = c("sum", c("abs", x, shape=size, dtype=wide), **options)
        case math.inf: y = c("amax", c("abs", x, shape=size, dtype=wide), **options)
        case _: raise c.unsupported(f"ord={order}")
    return c.cast(y, c.dtype)


def softmax(op: str) -> Constructor:
    def construct(c: Call) -> Arg:
        x = c.cast(c["self"], c.dtype)
        if not c.shape:
            return c.reshape(c(op, c.reshape(x, (1,)), dim=0, shape=(1,)), ())
        return c(op, x, dim=c["dim"] % len(c.shape))
    return construct


def norm(op: str, *parameters: str) -> Constructor:
    """A normalisation over the trailing dimensions, in the widest dtype of its operands, rounded once."""
    def construct(c: Call) -> Arg:
        operands = [c["input"], *(c[p] for p in parameters)]
        rank = len(c.shape)
        wide = c.promoted(*(o for o in operands if o is not None))
        eps = torch.finfo(getattr(torch, wide.compute.torch_name)).eps if c["eps"] is None else float(c["eps"])
        dims = tuple(range(rank - len(c["normalized_shape"]), rank))
        return c.cast(c(op, *(o and c.cast(o, wide) for o in operands), dims=dims, eps=eps, dtype=wide), c.dtype)
    return construct


# ---- products --------------------------------------------------------------------------------------------------------

def matmul(first: str, second: str) -> Constructor:
    """Vectors become matrices of one row or column; the result loses that dimension again."""
    def construct(c: Call) -> Arg:
        a, b = c[first], c[second]
        if len(c.shape_of(a)) == 1:
            a = c.reshape(a, (1, *c.shape_of(a)))
        if len(c.shape_of(b)) == 1:
            b = c.reshape(b, (*c.shape_of(b), 1))
        *batch_a, m, _ = c.shape_of(a)
        *batch_b, _, n = c.shape_of(b)
        shape = (*torch.broadcast_shapes(tuple(batch_a), tuple(batch_b)), m, n)
        return c.reshape(c("matmul", a, b, shape=shape), c.shape)
    return construct


def addmm(first: str, second: str) -> Constructor:
    def construct(c: Call) -> Arg:
        return c("addmm", c["self"], c[first], c[second], beta=float(c["beta"]), alpha=float(c["alpha"]))
    return construct


def einsum(c: Call) -> Arg:
    xs = tuple(c["tensors"])
    return c("einsum", xs, equation=explicit_equation(c["equation"], [len(c.shape_of(x)) for x in xs]))


def explicit_equation(equation: str, ranks: list[int]) -> str:
    """An einsum equation without blanks and dots, its output written out. `ranks`: each operand's number of dimensions."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    dots = max((rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks) if "..." in t), default=0)
    unused = [l for l in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if l not in equation]
    fresh = "".join(unused[:dots])

    def spelled(term: str, rank: int) -> str:
        n = rank - len(term.replace("...", ""))
        return term.replace("...", fresh[len(fresh) - n:])
    if not arrow:
        letters = left.replace("...", "").replace(",", "")
        right = ("..." if "..." in left else "") + "".join(sorted(l for l in set(letters) if letters.count(l) == 1))
    return ",".join(map(spelled, terms, ranks)) + "->" + right.replace("...", fresh)


def attention(c: Call) -> Arg:
    if c["dropout_p"]:
        raise TrainingMode(c.source, found=f"scaled_dot_product_attention with dropout_p={c['dropout_p']}")
    width = c.shape_of(c["query"])[-1]
    scale = c["scale"] if c["scale"] is not None else 1 / math.sqrt(width) if width else math.inf
    return c("scaled_dot_product_attention", c["query"], c["key"], c["value"], c["attn_mask"],
             is_causal=c["is_causal"], scale=float(scale), enable_gqa=c["enable_gqa"])


def embedding(c: Call) -> Arg:
    return c("embedding", c["weight"], c["indices"])


# ---- views -----------------------------------------------------------------------------------------------------------

def reshape(c: Call) -> Arg:
    return c.reshape(c["self"], c.shape)


def permute(c: Call) -> Arg:
    """Any reordering of dimensions: the operator itself, run on a tensor of distinct sizes, says which."""
    rank = len(c.shape_of(c["self"]))
    probe = torch.empty(tuple(range(2, 2 + rank)), device="meta")
    dims = tuple(n - 2 for n in c.target(**{**c.args, "self": probe}).shape)
    return c["self"] if dims == tuple(range(rank)) else c("permute", c["self"], dims=dims)


def expand(c: Call) -> Arg:
    return c.expand(c["self"], c.shape)


def slice_(c: Call) -> Arg:
    dim, size = c.dim("dim"), None
    size = c.shape_of(c["self"])[dim]
    start, stop, step = slice(c["start"], c["end"], c["step"]).indices(size)
    return c.slice(c["self"], dim, start, max(start, stop), step)


def split(c: Call) -> tuple[Arg, ...]:
    """Consecutive slices, as many and as long as the results."""
    dim, start, parts = c.dim("dim"), 0, []
    for shape, _ in c.outs:
        parts.append(c.slice(c["self"], dim, start, start + shape[dim], 1))
        start += shape[dim]
    return tuple(parts)


def select(c: Call) -> Arg:
    dim = c.dim("dim")
    return c("select", c["self"], dim=dim, index=c["index"] % c.shape_of(c["self"])[dim])


def unbind(c: Call) -> tuple[Arg, ...]:
    dim = c.dim("dim")
    return tuple(c("select", c["self"], dim=dim, index=i) for i in range(len(c.outs)))


def cat(c: Call) -> Arg:
    """Operands that PyTorch skips (one dimension of size 0 beside others of more) are left out."""
    xs = tuple(c.cast(x, c.dtype) for x in c["tensors"] if len(c.shape_of(x)) == len(c.shape))
    return joined(c, xs, c["dim"] % len(c.shape))


def stack(c: Call) -> Arg:
    dim = c["dim"] % len(c.shape)
    one = (*c.shape[:dim], 1, *c.shape[dim + 1:])
    return joined(c, tuple(c.reshape(c.cast(x, c.dtype), one) for x in c["tensors"]), dim)


def joined(c: Call, xs: tuple[Arg, ...], dim: int) -> Arg:
    return xs[0] if len(xs) == 1 else c("cat", xs, dim=dim)


def repeat(c: Call) -> Arg:
    """A tensor several times along each dimension: a new dimension before each, expanded and merged."""
    times = c["repeats"]
    shape = (1,) * (len(times) - len(c.shape_of(c["self"]))) + c.shape_of(c["self"])
    apart = c.reshape(c["self"], tuple(n for size in shape for n in (1, size)))
    return c.reshape(c.expand(apart, tuple(n for pair in zip(times, shape) for n in pair)), c.shape)


def repeat_interleave(c: Call) -> Arg:
    """Each element several times: a new dimension after `dim`, expanded and merged."""
    x, times = c["self"], c["repeats"]
    if c["dim"] is None:
        x, dim = c.reshape(x, (math.prod(c.shape_of(x)),)), 0
    else:
        dim = c.dim("dim")
    head, tail = c.shape_of(x)[:dim + 1], c.shape_of(x)[dim + 1:]
    return c.reshape(c.expand(c.reshape(x, (*head, 1, *tail)), (*head, times, *tail)), c.shape)


# ---- tensors made inside ---------------------------------------------------------------------------------------------

def full(value) -> Constructor:
    """A tensor of one value: that of the argument so named, or the number itself."""
    def construct(c: Call) -> Arg:
        c.check_device(c.get("device"))
        return c("full", value=c.number(c[value] if isinstance(value, str) else value, c.dtype))
    return construct


def arange(c: Call) -> Arg:
    c.check_device(c.get("device"))
    start, step = c.get("start") or 0, c.get("step") or 1
    return c("arange", start=c.number(start, c.dtype), step=c.number(step, c.dtype))


def eye(c: Call) -> Arg:
    rows, columns = c.shape
    i = c("arange", start=0, step=1, shape=(rows,), dtype=Dtype.i64)
    j = c("arange", start=0, step=1, shape=(columns,), dtype=Dtype.i64)
    return c.cast(c("eq", c.reshape(i, (rows, 1)), j, dtype=Dtype.b8), c.dtype)


def triangle(op: str) -> Constructor:
    return lambda c: c(op, c["self"], diagonal=c["diagonal"])


# ---- the table -------------------------------------------------------------------------------------------------------

def _rows(constructor: Constructor, names: str) -> dict[str, Constructor]:
    return {name if "." in name else name + ".default": constructor for name in names.split()}


def _each(make: Callable[[str], Constructor], names: str) -> dict[str, Constructor]:
    """One row for each operator whose public name is ATen's."""
    return {name + ".default": make(name) for name in names.split()}


TABLE: dict[str, Constructor] = {
    # pointwise
    **_each(lambda op: pointwise(op, "self"), """neg abs sign reciprocal sqrt rsqrt exp exp2 expm1 log log2 log1p sin
        cos tan atan tanh sigmoid erf floor ceil trunc round bitwise_not relu silu"""),
    **_rows(pointwise("sign", "self"), "sgn"),
    **_each(test, "isnan isinf"),
    **_rows(isfinite, "isfinite"),
    **_rows(scaled("add"), "add.Tensor add.Scalar"),
    **_rows(scaled("sub"), "sub.Tensor sub.Scalar"),
    **_rows(rsub, "rsub.Tensor rsub.Scalar"),
    **_rows(pointwise("mul", "self", "other"), "mul.Tensor mul.Scalar"),
    **_rows(pointwise("div", "self", "other"), "div.Tensor div.Scalar"),
    **_rows(divide, "div.Tensor_mode div.Scalar_mode"),
    **_rows(pointwise("floor_divide", "self", "other"), "floor_divide floor_divide.Scalar"),
    **_rows(pointwise("remainder", "self", "other"), "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor"),
    **_rows(pointwise("fmod", "self", "other"), "fmod.Tensor fmod.Scalar"),
    **_rows(pointwise("pow", "self", "exponent"), "pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar"),
    **_rows(pointwise("atan2", "self", "other"), "atan2"),
    **_rows(pointwise("maximum", "self", "other"), "maximum"),
    **_rows(pointwise("minimum", "self", "other"), "minimum"),
    **_rows(compare("eq"), "eq.Tensor eq.Scalar"),
    **_rows(compare("ne"), "ne.Tensor ne.Scalar"),
    **_rows(compare("lt"), "lt.Tensor lt.Scalar"),
    **_rows(compare("le"), "le.Tensor le.Scalar"),
    **_rows(compare("lt", "other", "self"), "gt.Tensor gt.Scalar"),
    **_rows(compare("le", "other", "self"), "ge.Tensor ge.Scalar"),
    **_rows(logical("bitwise_and", "self", "other"), "logical_and"),
    **_rows(logical("bitwise_or", "self", "other"), "logical_or"),
    **_rows(logical("bitwise_xor", "self", "other"), "logical_xor"),
    **_rows(logical("bitwise_not", "self"), "logical_not"),
    **_rows(pointwise("bitwise_and", "self", "other"),
            "bitwise_and.Tensor bitwise_and.Scalar __and__.Tensor __and__.Scalar"),
    **_rows(pointwise("bitwise_or", "self", "other"),
            "bitwise_or.Tensor bitwise_or.Scalar __or__.Tensor __or__.Scalar"),
    **_rows(pointwise("bitwise_xor", "self", "other"),
            "bitwise_xor.Tensor bitwise_xor.Scalar __xor__.Tensor __xor__.Scalar"),
    **_rows(pointwise("bitwise_left_shift", "self", "other"),
            "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar __lshift__.Tensor __lshift__.Scalar"),
    **_rows(pointwise("bitwise_right_shift", "self", "other"),
            "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar __rshift__.Tensor __rshift__.Scalar"),
    **_rows(where, "where.self where.ScalarOther where.ScalarSelf where.Scalar"),
    **_rows(masked_fill, "masked_fill.Scalar masked_fill.Tensor"),
    **_rows(clamp("min", "max"), "clamp clamp.Tensor clamp_min clamp_min.Tensor clamp_max clamp_max.Tensor"),
    **_rows(clamp("min_val", "max_val"), "hardtanh"),
    **_rows(activation("gelu", "approximate"), "gelu"),
    **_rows(elu, "elu"),
    **_rows(leaky_relu, "leaky_relu"),
    **_rows(softplus, "softplus"),
    # casts and copies
    **_rows(same, "clone detach"),
    **_rows(nothing, "_assert_tensor_metadata"),
    **_rows(cast, "_to_copy"),
    **_rows(copy, "copy"),
    # folds
    **_rows(reduction("sum"), "sum sum.dim_IntList"),
    **_rows(reduction("mean"), "mean mean.dim"),
    **_rows(reduction("prod"), "prod prod.dim_int"),
    **_rows(reduction("amax"), "amax max"),
    **_rows(reduction("amin"), "amin min"),
    **_rows(reduction("any"), "any any.dim any.dims"),
    **_rows(reduction("all"), "all all.dim all.dims"),
    **_rows(arg_reduction("argmax"), "argmax"),
    **_rows(arg_reduction("argmin"), "argmin"),
    **_rows(with_index("amax", "argmax"), "max.dim"),
    **_rows(with_index("amin", "argmin"), "min.dim"),
    **_rows(variance(lambda c, v: v), "var.correction"),
    **_rows(variance(lambda c, v: c.wide("sqrt", v)), "std.correction"),
    **_rows(vector_norm, "linalg_vector_norm"),
    **_rows(softmax("softmax"), "softmax.int"),
    **_rows(softmax("log_softmax"), "log_softmax.int"),
    **_rows(norm("layer_norm", "weight", "bias"), "layer_norm"),
    **_rows(norm("rms_norm", "weight"), "rms_norm"),
    # products
    **_rows(matmul("self", "other"), "matmul"),
    **_rows(matmul("self", "mat2"), "mm bmm"),
    **_rows(matmul("self", "vec"), "mv"),
    **_rows(matmul("self", "tensor"), "dot"),
    **_rows(lambda c: c("linear", c["input"], c["weight"], c["bias"]), "linear"),
    **_rows(addmm("mat1", "mat2"), "addmm"),
    **_rows(addmm("batch1", "batch2"), "baddbmm"),
    **_rows(einsum, "einsum"),
    **_rows(attention, "scaled_dot_product_attention"),
    **_rows(embedding, "embedding"),
    # views
    **_rows(reshape, "view _unsafe_view unsqueeze squeeze squeeze.dim squeeze.dims"),
    **_rows(permute, "permute transpose.int t"),
    **_rows(expand, "expand"),
    **_rows(slice_, "slice.Tensor"),
    **_rows(split, "split.Tensor split_with_sizes"),
    **_rows(select, "select.int"),
    **_rows(unbind, "unbind.int"),
    **_rows(cat, "cat"),
    **_rows(stack, "stack"),
    **_rows(repeat, "repeat"),
    **_rows(repeat_interleave, "repeat_interleave.self_int"),
    # tensors made inside
    **_rows(full("fill_value"), "full full_like new_full"),
    **_rows(full("value"), "fill.Scalar"),
    **_rows(full("s"), "scalar_tensor"),
    **_rows(full(0), "zeros zeros_like new_zeros zero"),
    **_rows(full(1), "ones ones_like new_ones"),
    **_rows(arange, "arange arange.start arange.start_step"),
    **_rows(eye, "eye eye.m"),
    **_rows(triangle("triu"), "triu"),
    **_rows(triangle("tril"), "tril"),
}
"""ATen overload -> constructor."""
