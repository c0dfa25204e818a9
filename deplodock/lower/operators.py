"""C for each operator of ir/ops.py and of ir/tile.py, by the dtype of its operands. The one table for Kernel IR.

f32 goes by CUDA's accurate functions (no fast-math); reciprocal, reciprocal square root and the base-2 exponential of
online folds by the hardware's units, within 2 ulp. Integers wrap, as torch's do, so sums of signed ones are computed
unsigned: signed overflow is undefined in C. Operands and results of 16-bit floats are f32 by the time they come here.
"""
from __future__ import annotations

from typing import Callable, Sequence

from deplodock.ir.dtype import Dtype
from deplodock.ir.expression import (Binary, Call, Choose, Convert, Element, Expr, Int, Neg, Not, Real, bit_xor, call)
from deplodock.ir.kernel import CTYPE
from deplodock.ir.loop import Const

CALLS = {"sqrt": "sqrt", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10",
         "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan",
         "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh",
         "erf": "erf", "erfc": "erfc", "lgamma": "lgamma", "floor": "floor", "ceil": "ceil", "round": "rint",
         "trunc": "trunc", "pow": "pow", "atan2": "atan2", "hypot": "hypot", "copysign": "copysign", "fmod": "fmod",
         "abs": "fabs"}
"""Functions of C's mathematical library: of f64 under this name, of f32 with an f behind it."""
PRIMITIVE = {"maximum": "dd_max", "minimum": "dd_min", "sign": "dd_sign", "floordiv": "dd_floordiv",
             "truncdiv": "dd_truncdiv", "remainder": "dd_remainder"}
INTEGER_PRIMITIVE = {**PRIMITIVE, "abs": "dd_abs", "fmod": "dd_fmod", "pow": "dd_pow", "shl": "dd_shl", "shr": "dd_shr"}
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
         "eq": "==", "ne": "!=", "lt": "<", "le": "<="}
WRAPS = ("add", "sub", "mul")
LOG2E = 1.4426950408889634
UNSIGNED = {Dtype.i32: "u32", Dtype.i64: "u64", Dtype.u16: "u32", Dtype.u32: "u32", Dtype.u64: "u64"}

RESERVED = frozenset("""
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr continue
    decltype default delete do double else enum explicit export extern false float for friend goto if inline int long
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register return short
    signed sizeof static struct switch template this throw true try typedef typeid typename union unsigned using virtual void
    volatile while xor xor_eq i8 u8 i16 u16 u32 i64 u64 DD DD_INF DD_NAN TensorMap threadIdx blockIdx memcpy min max
    lane warp block thread smem r i j s fmax fmaxf isnan isinf abs
    """.split()) | frozenset(f + x for f in CALLS.values() for x in ("", "f"))
"""Names that a kernel's own variables must not take: C++'s, CUDA's, the functions above, and what the lowering uses."""


def real(value: float, d: Dtype) -> Expr:
    return Real(float(value), Dtype.f64 if d == Dtype.f64 else Dtype.f32)


def constant(c: Const) -> Expr:
    """A literal, in the type that its dtype computes in."""
    return real(c.value, c.dtype) if c.dtype.is_float else Int(int(c.value))


def convert(x: Expr, source: Dtype, target: Dtype) -> Expr:
    """x as another dtype, as torch casts: to b8 by comparison with 0, from floats to integers towards zero."""
    source, target = source.compute, target.compute
    if source == target:
        return x
    if isinstance(x, Int) and target.is_float:
        return real(x.value, target)
    if isinstance(x, Real) and target.is_float:
        return real(x.value, target)
    if target == Dtype.b8:
        return Binary("!=", x, real(0, source) if source.is_float else Int(0))
    return Convert(CTYPE[target], x)


def rounded(x: Expr, d: Dtype) -> Expr:
    """x, an f32 or f64 value, rounded to a narrower floating dtype."""
    match d:
        case Dtype.bf16: return call("dd_bf16", call("dd_pack_bf16", Convert("float", x), real(0, Dtype.f32)), 0)
        case Dtype.f16: return call("dd_f16", call("dd_pack_f16", Convert("float", x), real(0, Dtype.f32)), 0)
        case Dtype.f32: return Convert("float", x)
    return x


def apply(op: str, d: Dtype, args: Sequence[Expr]) -> Expr:
    """op of ir/ops.py on operands of dtype d (of `where`: the dtype of the last two). KeyError for one that d lacks."""
    d = d.compute
    if op == "where":
        return Choose(*args)
    if op in ("isnan", "isinf"):
        return _classify(op, d, args[0])
    if d.is_float:
        return _float(op, d, args)
    if op == "not":
        return Not(args[0]) if d == Dtype.b8 else bit_xor(args[0], -1)
    if op == "neg":
        return _wrapped(d, lambda u: Binary("-", Int(0), u(args[0])))
    if op in WRAPS:
        return _wrapped(d, lambda u: Binary(INFIX[op], *map(u, args)))
    if op == "div":
        raise KeyError(f"true division of {d}: integers are cast to a floating dtype first")
    if op in INFIX:
        return Binary(INFIX[op], *args)
    if op in ("floor", "ceil", "round", "trunc"):
        return args[0]
    return call(INTEGER_PRIMITIVE[op], *args, template=(CTYPE[d],))


def _wrapped(d: Dtype, f: Callable) -> Expr:
    """Arithmetic modulo 2^n: of narrow types in C's int, which storing cuts; of those that overflow it unsigned."""
    if d not in UNSIGNED:
        return f(lambda x: x)
    return Convert(CTYPE[d], f(lambda x: Convert(UNSIGNED[d], x)))


def _classify(op: str, d: Dtype, x: Expr) -> Expr:
    if not d.is_float:
        return Int(0)
    if op == "isnan":
        return Binary("!=", x, x)
    return Binary("==", _float("abs", d, (x,)), real(float("inf"), d))


def _float(op: str, d: Dtype, args: Sequence[Expr]) -> Expr:
    wide = d == Dtype.f64
    one = real(1, d)
    match op:
        case "neg": return Neg(args[0])
        case "exp2sub":
            x = Binary("-", *args)
            return call("exp2", x) if wide else call("dd_exp2", x)
        case "expsub":
            x = Binary("-", *args)
            return call("exp", x) if wide else call("dd_exp2", Binary("*", x, real(LOG2E, d)))
        case "fmax": return call("fmax" if wide else "fmaxf", *args)
        case "finite": return Choose(Binary("==", args[0], real(float("-inf"), d)), real(0, d), args[0])
        case "recip": return Binary("/", one, args[0]) if wide else call("dd_rcp", *args)
        case "rsqrt": return Binary("/", one, call("sqrt", *args)) if wide else call("dd_rsqrt", *args)
        case "sigmoid": return _float("recip", d, (Binary("+", one, _float("exp", d, (Neg(args[0]),))),))
    if op in INFIX and op not in ("and", "or", "xor"):
        return Binary(INFIX[op], *args)
    if op in PRIMITIVE:
        return call(PRIMITIVE[op], *args, template=(CTYPE[d],))
    return Call(CALLS[op] + ("" if wide else "f"), tuple(args))


def merge(monoid: str, d: Dtype, a: Expr, b: Expr) -> Expr:
    """a (monoid) b for a monoid with one component. "fmax" passes over NaN, which the sums beside it carry."""
    named = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}
    if monoid in ("any", "all") and d != Dtype.b8:
        raise KeyError(f"{monoid} folds b8, not {d}")
    return apply(named.get(monoid, monoid), d, (a, b))


def takes(monoid: str, d: Dtype, x: Expr, at: Expr, best: Expr, best_at: Expr) -> Expr:
    """Whether (x, at) replaces (best, best_at) under argmax or argmin: NaN beats all, then values, then places."""
    beats = Binary(">" if monoid == "argmax" else "<", x, best)
    ties = Binary("==", x, best)
    if d.is_float:
        nan, best_nan = Binary("!=", x, x), Binary("!=", best, best)
        beats = Binary("||", beats, Binary("&&", nan, Not(best_nan)))
        ties = Binary("||", ties, Binary("&&", nan, best_nan))
    return Binary("||", beats, Binary("&&", ties, Binary("<", at, best_at)))


def element(array: str, index: Expr, d: Dtype) -> Expr:
    """Value number `index` of an array of registers: of a 16-bit float, as f32."""
    if d.is_16bit:
        return call(f"dd_{d}", Element(array, index // 2), index % 2)
    return Element(array, index)
