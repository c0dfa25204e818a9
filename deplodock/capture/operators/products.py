"""Products of matrices, and attention."""
from __future__ import annotations

import math

import torch

from deplodock.capture.build import Call
from deplodock.capture.operators.rows import Constructor, of_floats, rows, same_dtype
from deplodock.errors import TrainingMode
from deplodock.ir.torch import Arg


def matmul(first: str, second: str) -> Constructor:
    """Vectors become matrices of one row or column; the result loses that dimension again."""
    def construct(c: Call) -> Arg:
        a, b = c[first], c[second]
        same_dtype(c, a, b)
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
        same_dtype(c, c["self"], c[first], c[second])
        return c("addmm", c["self"], c[first], c[second], beta=float(c["beta"]), alpha=float(c["alpha"]))
    return construct


def linear(c: Call) -> Arg:
    """A bias of another dtype is added after the product, but where both are one addmm."""
    x, weight, bias = c["input"], c["weight"], c["bias"]
    same_dtype(c, x, weight, bias if len(c.shape) == 2 else None)
    return c("linear", x, weight, bias)


def einsum(c: Call) -> Arg:
    """Operands in the dtype of the result: a sum of booleans is i64."""
    xs = tuple(c.cast(x, c.dtype) for x in c["tensors"])
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
    """A mask that keeps everything is none."""
    if c["dropout_p"]:
        raise TrainingMode(c.source, found=f"scaled_dot_product_attention with dropout_p={c['dropout_p']}")
    width = c.shape_of(c["query"])[-1]
    scale = c["scale"] if c["scale"] is not None else 1 / math.sqrt(max(1, width))
    kept = c.value_of(c["attn_mask"])
    mask = None if kept is True or kept == 0 and kept is not False else c["attn_mask"]
    return c("scaled_dot_product_attention", c["query"], c["key"], c["value"], mask,
             is_causal=c["is_causal"], scale=float(scale), enable_gqa=c["enable_gqa"])


ROWS: dict[str, Constructor] = {
    **rows(matmul("self", "other"), "matmul"),
    **rows(matmul("self", "mat2"), "mm bmm"),
    **rows(matmul("self", "vec"), "mv"),
    **rows(matmul("self", "tensor"), "dot"),
    **rows(linear, "linear"),
    **rows(addmm("mat1", "mat2"), "addmm"),
    **rows(addmm("batch1", "batch2"), "baddbmm"),
    **rows(einsum, "einsum"),
    **rows(of_floats(attention), "scaled_dot_product_attention"),
}
"""ATen overload -> constructor."""
