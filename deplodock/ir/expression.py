"""Expressions of Kernel IR: what one thread computes, as trees that simplify themselves and print their parentheses.

    Expr = Int(value) | Real(value, dtype) | Name(name, limit)           limit: 0 <= name < limit, if that is known
         | Binary(op, a, b) | Not(a) | Neg(a) | Choose(test, a, b)
         | Element(array, index)                                         x[i], of an array of registers
         | Address(array, index)                                         &x[i], handed to a primitive
         | Pointer(buffer, index)                                        the address of an element in global memory
         | MapAddress(name)                                              &name, of a tensor map
         | Call(name, args, template) | Convert(type, a)

Made with Python's operators: + - * // % & ^ >> <<, and with the functions below. `//` and `%` round as C does, which is
the same for operands that are not negative; only such operands are simplified.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deplodock.ir.dtype import Dtype


class Operators:
    __slots__ = ()

    def __add__(self, o): return add(self, o)
    def __radd__(self, o): return add(o, self)
    def __sub__(self, o): return sub(self, o)
    def __rsub__(self, o): return sub(o, self)
    def __mul__(self, o): return mul(self, o)
    def __rmul__(self, o): return mul(o, self)
    def __floordiv__(self, o): return div(self, o)
    def __mod__(self, o): return mod(self, o)
    def __and__(self, o): return bit_and(self, o)
    def __xor__(self, o): return bit_xor(self, o)
    def __rshift__(self, o): return shift_right(self, o)

    def __str__(self) -> str:
        return text(self)


@dataclass(frozen=True, slots=True, repr=False)
class Int(Operators):
    value: int


@dataclass(frozen=True, slots=True, repr=False)
class Real(Operators):
    value: float
    dtype: Dtype


@dataclass(frozen=True, slots=True, repr=False)
class Name(Operators):
    name: str
    limit: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Binary(Operators):
    op: str
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True, repr=False)
class Not(Operators):
    a: Expr


@dataclass(frozen=True, slots=True, repr=False)
class Neg(Operators):
    a: Expr


@dataclass(frozen=True, slots=True, repr=False)
class Choose(Operators):
    test: Expr
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True, repr=False)
class Element(Operators):
    array: str
    index: Expr


@dataclass(frozen=True, slots=True, repr=False)
class Address(Operators):
    array: str
    index: Expr


@dataclass(frozen=True, slots=True, repr=False)
class Pointer(Operators):
    buffer: str
    index: Expr


@dataclass(frozen=True, slots=True, repr=False)
class MapAddress(Operators):
    name: str


@dataclass(frozen=True, slots=True, repr=False)
class Call(Operators):
    name: str
    args: tuple[Expr, ...] = ()
    template: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Convert(Operators):
    type: str
    a: Expr


Expr = (Int | Real | Name | Binary | Not | Neg | Choose | Element | Address | Pointer | MapAddress | Call | Convert)


def expr(x: Expr | int) -> Expr:
    return Int(int(x)) if isinstance(x, (int, bool)) else x


def operands(e: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside an expression."""
    match e:
        case Binary(_, a, b): return a, b
        case Not(a) | Neg(a) | Convert(_, a): return (a,)
        case Choose(t, a, b): return t, a, b
        case Element(_, i) | Address(_, i) | Pointer(_, i): return (i,)
        case Call(_, args): return args
    return ()


def bounds(e: Expr) -> tuple[float, float]:
    """The least and the greatest value (inclusive) of an integer expression; infinite where nothing is known."""
    match e:
        case Int(v): return v, v
        case Name(_, limit) if limit is not None: return 0, limit - 1
        case Binary("+", a, b):
            (p, q), (r, s) = bounds(a), bounds(b)
            return p + r, q + s
        case Binary("-", a, b):
            (p, q), (r, s) = bounds(a), bounds(b)
            return p - s, q - r
        case Binary("*", a, Int(n)):
            lo, hi = bounds(a)
            return (lo * n, hi * n) if n >= 0 else (hi * n, lo * n)
        case Binary("/", a, Int(n)) if bounds(a)[0] >= 0:
            lo, hi = bounds(a)
            return lo // n, hi // n if hi < math.inf else hi
        case Binary("%", a, Int(n)) if bounds(a)[0] >= 0: return 0, min(n - 1, bounds(a)[1])
        case Binary("&", a, Int(m)) if m >= 0: return 0, min(m, bounds(a)[1]) if bounds(a)[0] >= 0 else m
        case Binary(">>", a, Int(n)) if bounds(a)[0] >= 0:
            lo, hi = bounds(a)
            return lo >> n if lo < math.inf else lo, int(hi) >> n if hi < math.inf else hi
        case Binary("^", a, b):
            (p, q), (r, s) = bounds(a), bounds(b)
            if min(p, r) >= 0 and max(q, s) < math.inf:
                return 0, (1 << int(max(q, s)).bit_length()) - 1
    return -math.inf, math.inf


def _terms(e: Expr) -> list[Expr]:
    """The addends of a sum."""
    return [t for x in (e.a, e.b) for t in _terms(x)] if isinstance(e, Binary) and e.op == "+" else [e]


def _scale(e: Expr) -> int:
    match e:
        case Int(v): return v
        case Binary("*", _, Int(n)): return n
    return 1


def add(a, b) -> Expr:
    a, b = expr(a), expr(b)
    match a, b:
        case Int(x), Int(y): return Int(x + y)
        case Int(0), _: return b
        case _, Int(0): return a
        case Int(), _: return add(b, a)
        case Binary("+", x, Int(m)), Int(n): return add(x, m + n)
        case Binary("+", x, Int(m)), _: return add(add(x, b), m)
        case _, Binary("+", x, Int(m)): return add(add(a, x), m)
        case _, Int(n) if n < 0: return Binary("-", a, Int(-n))
        case _, Neg(y): return Binary("-", a, y)
    return Binary("+", a, b)


def sub(a, b) -> Expr:
    a, b = expr(a), expr(b)
    match a, b:
        case _, Int(n): return add(a, -n)
        case _ if a == b: return Int(0)
        case Int(0), _: return Neg(b)
    return Binary("-", a, b)


def mul(a, b) -> Expr:
    a, b = expr(a), expr(b)
    match a, b:
        case Int(x), Int(y): return Int(x * y)
        case Int(), _: return mul(b, a)
        case _, Int(0): return Int(0)
        case _, Int(1): return a
        case Binary("*", x, Int(m)), Int(n): return mul(x, m * n)
        case Binary("+", x, Int(m)), Int(n): return add(mul(x, n), m * n)
    return Binary("*", a, b)


def _split(a: Expr, n: int) -> tuple[Expr, Expr] | None:
    """(q, r) with a = q*n + r and 0 <= r < n, if the addends of a can be dealt out so."""
    q, r = Int(0), Int(0)
    for t in _terms(a):
        s = _scale(t)
        if bounds(t)[0] < 0:
            return None
        if isinstance(t, Int):
            q, r = add(q, t.value // n), add(r, t.value % n)
        elif s % n == 0:
            q = add(q, mul(t.a, s // n))
        else:
            r = add(r, t)
    return (q, r) if bounds(r)[1] < n else None


def div(a, b) -> Expr:
    a, b = expr(a), expr(b)
    match a, b:
        case Int(x), Int(n) if x >= 0: return Int(x // n)
        case _, Int(1): return a
        case _, Int(n):
            if parts := _split(a, n):
                return parts[0]
            if isinstance(a, Binary) and isinstance(a.b, Int) and bounds(a.a)[0] >= 0:
                if a.op == "/":
                    return div(a.a, a.b.value * n)
                if a.op == "*" and a.b.value > 0 and n % a.b.value == 0:
                    return div(a.a, n // a.b.value)
    return Binary("/", a, b)


def mod(a, b) -> Expr:
    a, b = expr(a), expr(b)
    match a, b:
        case Int(x), Int(n) if x >= 0: return Int(x % n)
        case _, Int(1): return Int(0)
        case _, Int(n):
            if parts := _split(a, n):
                return parts[1]
            if isinstance(a, Binary) and a.op == "*" and isinstance(a.b, Int) and bounds(a.a)[0] >= 0:
                m = a.b.value
                if m > 0 and n % m == 0:
                    return mul(mod(a.a, n // m), m)
    return Binary("%", a, b)


def bit_and(a, b) -> Expr:
    a, b = expr(a), expr(b)
    match a, b:
        case Int(x), Int(y): return Int(x & y)
        case Int(), _: return bit_and(b, a)
        case _, Int(0): return Int(0)
        case _, Int(m) if bounds(a)[0] >= 0 and bounds(a)[1] <= m and m & (m + 1) == 0: return a
    return Binary("&", a, b)


def bit_xor(a, b) -> Expr:
    a, b = expr(a), expr(b)
    match a, b:
        case Int(x), Int(y): return Int(x ^ y)
        case Int(0), _: return b
        case _, Int(0): return a
        case Int(), _: return bit_xor(b, a)
        case Binary("^", x, Int(m)), Int(n): return bit_xor(x, m ^ n)
    return Binary("^", a, b)


def shift_right(a, b) -> Expr:
    a, b = expr(a), expr(b)
    match a, b:
        case Int(x), Int(n): return Int(x >> n)
        case _, Int(0): return a
        case _, Int(n) if bounds(a)[0] >= 0 and bounds(a)[1] < 1 << n: return Int(0)
    return Binary(">>", a, b)


_COMPARE = {"<": lambda x, y: x < y, "<=": lambda x, y: x <= y, "==": lambda x, y: x == y, "!=": lambda x, y: x != y,
            ">": lambda x, y: x > y, ">=": lambda x, y: x >= y}


def compare(op: str, a, b) -> Expr:
    """a op b, decided where the ranges of integers say so."""
    a, b = expr(a), expr(b)
    (p, q), (r, s) = bounds(a), bounds(b)
    if p == q and r == s and -math.inf < p and -math.inf < r:
        return Int(int(_COMPARE[op](p, r)))
    match op:
        case "<" if q < r: return Int(1)
        case "<" if p >= s: return Int(0)
        case "<=" if q <= r: return Int(1)
        case "<=" if p > s: return Int(0)
    return Binary(op, a, b)


def both(*tests) -> Expr:
    """The conjunction; Int(1) of nothing."""
    out: Expr = Int(1)
    for t in map(expr, tests):
        if t == Int(0) or out == Int(0):
            return Int(0)
        if t != Int(1):
            out = t if out == Int(1) else Binary("&&", out, t)
    return out


def choose(test, a, b) -> Expr:
    test, a, b = expr(test), expr(a), expr(b)
    if isinstance(test, Int):
        return a if test.value else b
    return a if a == b else Choose(test, a, b)


def call(name: str, *args, template: tuple[str | int, ...] = ()) -> Call:
    return Call(name, tuple(map(expr, args)), template)


def replace(e: Expr, name: str, value: Expr | int) -> Expr:
    """e with an expression in place of a name, simplified again."""
    value = expr(value)

    def go(x: Expr) -> Expr:
        match x:
            case Name(n, _): return value if n == name else x
            case Binary(op, a, b): return binary(op, go(a), go(b))
            case Not(a): return Not(go(a))
            case Neg(a): return Neg(go(a))
            case Convert(t, a): return Convert(t, go(a))
            case Choose(t, a, b): return choose(go(t), go(a), go(b))
            case Element(n, i): return Element(n, go(i))
            case Address(n, i): return Address(n, go(i))
            case Pointer(n, i): return Pointer(n, go(i))
            case Call(n, args, t): return Call(n, tuple(map(go, args)), t)
        return x
    return go(e)


def binary(op: str, a, b) -> Expr:
    """a op b on integers, simplified."""
    match op:
        case "+": return add(a, b)
        case "-": return sub(a, b)
        case "*": return mul(a, b)
        case "/": return div(a, b)
        case "%": return mod(a, b)
        case "&": return bit_and(a, b)
        case "^": return bit_xor(a, b)
        case ">>": return shift_right(a, b)
        case "&&": return both(a, b)
    return compare(op, a, b) if op in _COMPARE else Binary(op, expr(a), expr(b))


# ---- text ------------------------------------------------------------------------------------------------------------

_LEVEL = {"*": 10, "/": 10, "%": 10, "+": 9, "-": 9, "<<": 8, ">>": 8, "<": 7, "<=": 7, ">": 7, ">=": 7, "==": 6,
          "!=": 6, "&": 5, "^": 4, "|": 3, "&&": 2, "||": 1}
"""C's precedence; higher binds tighter."""
_BITS = ("<<", ">>", "&", "^", "|")


def literal(value: float, dtype: Dtype) -> str:
    """A floating constant of f32 or f64 as the shortest C text that reads back as the same value."""
    if math.isnan(value):
        return "DD_NAN"
    if math.isinf(value):
        return "-DD_INF" if value < 0 else "DD_INF"
    if dtype == Dtype.f64:
        return repr(float(value))
    with np.errstate(over="ignore"):
        rounded = np.float32(value)
    if np.isinf(rounded):
        return "-DD_INF" if value < 0 else "DD_INF"
    if 1e-4 <= abs(rounded) < 1e7 or rounded == 0:
        return str(rounded) + "f"
    return np.format_float_scientific(rounded, trim="0") + "f"


def text(e: Expr, level: int = 0) -> str:
    """C text. Operands of bitwise operators are put in parentheses even where C would not need them."""
    match e:
        case Int(v): return str(v) + "ull" * (v >= 1 << 63) if v >= 0 or level == 0 else f"({v})"
        case Real(v, d): return literal(v, d) if v >= 0 or level == 0 else f"({literal(v, d)})"
        case Name(n, _): return n
        case MapAddress(n): return f"&{n}"
        case Not(a): return f"!{text(a, 11)}"
        case Neg(a): return f"-({text(a)})" if isinstance(a, (Neg, Int, Real)) else f"-{text(a, 11)}"
        case Convert(t, a): return f"({t}){text(a, 11)}"
        case Choose(t, a, b):
            inner = f"{text(t, 1)} ? {text(a, 1)} : {text(b, 1)}"
            return f"({inner})" if level else inner
        case Element(n, i): return f"{n}[{text(i)}]"
        case Address(n, i): return n if i == Int(0) else f"&{n}[{text(i)}]"
        case Pointer(n, i): return n if i == Int(0) else (f"({n} + {text(i, 10)})" if level else f"{n} + {text(i, 10)}")
        case Call(n, args, t):
            head = n + (f"<{', '.join(map(str, t))}>" if t else "")
            return f"{head}({', '.join(text(a) for a in args)})"
        case Binary(op, a, b):
            mine = _LEVEL[op]
            inner = f"{_operand(op, a, mine)} {op} {_operand(op, b, mine + 1)}"
            return f"({inner})" if mine < level else inner
    raise TypeError(type(e).__name__)


def _operand(op: str, e: Expr, level: int) -> str:
    mixed = isinstance(e, Binary) and e.op != op and (op in _BITS or e.op in _BITS or {op, e.op} == {"&&", "||"})
    return f"({text(e)})" if mixed else text(e, level)
