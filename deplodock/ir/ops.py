"""Pointwise operators: arity, result dtype, and meaning in NumPy. The one table that all interpretations start from.

`result` is "same" (the dtype of the last operand) or "b8". The NumPy function is the definition: it serves the
reference interpreter, constant folding, and the tests of laws and of generated kernels. Operands have one dtype, but for
`where`, whose first is b8. Integer arithmetic wraps modulo 2^n; division and remainder of integers are defined for
divisors other than 0: by 0, eager raises ZeroDivisionError on the CPU and gives what the hardware does on a GPU, a
compiled program gives some number.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Callable

import numpy as np

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


@partial(np.vectorize, otypes=[np.float64])
def _lgamma(a):
    """The logarithm of |Γ(a)|; infinite at 0, -1, -2 ..."""
    return math.inf if a <= 0 and a == np.floor(a) else math.lgamma(a)


@dataclass(frozen=True, slots=True)
class OpInfo:
    arity: int
    result: str
    numpy: Callable
    symbol: str = ""
    """How the operator prints between its operands; empty: as a call."""


def _trunc_div(a, b):
    """Division rounded towards zero, as C's of integers and torch's of all numbers."""
    if np.issubdtype(np.result_type(a, b), np.inexact):
        return np.trunc(a / b)
    q = np.floor_divide(a, b)
    return q + ((q < 0) & (q * b != a)).astype(q.dtype)


def _sign(a):
    """Of NaN 0, as torch has it."""
    return np.where(np.isnan(a), np.zeros_like(a), np.sign(a))


def _pow(a, b):
    """Of an integer to a negative power: what truncating the true value gives, 0 for 0."""
    if np.issubdtype(np.result_type(a, b), np.inexact) or not np.any(b < 0):
        return np.power(a, b)
    unit = np.where(a == 1, 1, np.where(a == -1, 1 - 2 * (b & 1), 0)).astype(np.result_type(a, b))
    return np.where(b < 0, unit, np.power(a, np.maximum(b, 0)))


OPS: dict[str, OpInfo] = {
    "add": OpInfo(2, "same", np.add, "+"),
    "sub": OpInfo(2, "same", np.subtract, "-"),
    "mul": OpInfo(2, "same", np.multiply, "*"),
    "div": OpInfo(2, "same", np.divide, "/"),
    "floordiv": OpInfo(2, "same", np.floor_divide, "//"),
    "truncdiv": OpInfo(2, "same", _trunc_div),
    "remainder": OpInfo(2, "same", np.remainder, "%"),
    "fmod": OpInfo(2, "same", np.fmod),
    "pow": OpInfo(2, "same", _pow, "**"),
    "atan2": OpInfo(2, "same", np.arctan2),
    "hypot": OpInfo(2, "same", np.hypot),
    "copysign": OpInfo(2, "same", np.copysign),
    "maximum": OpInfo(2, "same", np.maximum),
    "minimum": OpInfo(2, "same", np.minimum),
    "neg": OpInfo(1, "same", np.negative),
    "abs": OpInfo(1, "same", np.abs),
    "sign": OpInfo(1, "same", _sign),
    "recip": OpInfo(1, "same", lambda a: 1 / a),
    "sqrt": OpInfo(1, "same", np.sqrt),
    "rsqrt": OpInfo(1, "same", lambda a: 1 / np.sqrt(a)),
    "exp": OpInfo(1, "same", np.exp),
    "exp2": OpInfo(1, "same", np.exp2),
    "expm1": OpInfo(1, "same", np.expm1),
    "log": OpInfo(1, "same", np.log),
    "log2": OpInfo(1, "same", np.log2),
    "log10": OpInfo(1, "same", np.log10),
    "log1p": OpInfo(1, "same", np.log1p),
    "sin": OpInfo(1, "same", np.sin),
    "cos": OpInfo(1, "same", np.cos),
    "tan": OpInfo(1, "same", np.tan),
    "asin": OpInfo(1, "same", np.arcsin),
    "acos": OpInfo(1, "same", np.arccos),
    "atan": OpInfo(1, "same", np.arctan),
    "sinh": OpInfo(1, "same", np.sinh),
    "cosh": OpInfo(1, "same", np.cosh),
    "tanh": OpInfo(1, "same", np.tanh),
    "asinh": OpInfo(1, "same", np.arcsinh),
    "acosh": OpInfo(1, "same", np.arccosh),
    "atanh": OpInfo(1, "same", np.arctanh),
    "sigmoid": OpInfo(1, "same", lambda a: 1 / (1 + np.exp(-a))),
    "erf": OpInfo(1, "same", lambda a: _erf(a).astype(np.asarray(a).dtype)),
    "erfc": OpInfo(1, "same", lambda a: _erfc(a).astype(np.asarray(a).dtype)),
    "lgamma": OpInfo(1, "same", lambda a: _lgamma(a).astype(np.asarray(a).dtype)),
    "floor": OpInfo(1, "same", np.floor),
    "ceil": OpInfo(1, "same", np.ceil),
    "round": OpInfo(1, "same", np.rint),
    "trunc": OpInfo(1, "same", np.trunc),
    "eq": OpInfo(2, "b8", np.equal, "=="),
    "ne": OpInfo(2, "b8", np.not_equal, "!="),
    "lt": OpInfo(2, "b8", np.less, "<"),
    "le": OpInfo(2, "b8", np.less_equal, "<="),
    "and": OpInfo(2, "same", np.bitwise_and, "&"),
    "or": OpInfo(2, "same", np.bitwise_or, "|"),
    "xor": OpInfo(2, "same", np.bitwise_xor, "^"),
    "not": OpInfo(1, "same", np.invert, ""),
    "shl": OpInfo(2, "same", np.left_shift, "<<"),
    "shr": OpInfo(2, "same", np.right_shift, ">>"),
    "isnan": OpInfo(1, "b8", np.isnan),
    "isinf": OpInfo(1, "b8", np.isinf),
    "where": OpInfo(3, "same", np.where),
}
"""On b8, and, or, xor, not are logical. `round` rounds halves to even. `maximum` and `minimum` give NaN if an operand is."""
