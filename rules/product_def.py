"""What products of Torch IR are made of (rules/definitions.py)."""
from __future__ import annotations

from deplodock.ir.index import Axis
from deplodock.ir.loop import fold
from deplodock.ir.tensor import Elements, Tensor, contract, like, linear, matmul, shape, torch_op, value, wide
from deplodock.law import law, rewrite

Number = float


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
    return rewrite(torch_op.addmm(input, a, b, 0.0, alpha)).to(like(a, scaled(matmul(a, b), alpha)))


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


DEFINITIONS = {
    "matmul": (matmul_def,), "linear": (linear_def, linear_bias_def), "addmm": (addmm_without_def, addmm_def),
    "einsum": (einsum_def,),
}
"""The laws that have an operator as their left side, in the order in which they are tried."""
