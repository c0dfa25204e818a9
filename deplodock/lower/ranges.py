"""What integer bodies can be at most: which loaded indices need no check."""
from __future__ import annotations

import math

from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Cast, Const, Iota, Op, dtype
from deplodock.ir.term import Term

Range = tuple[float, float]
UNKNOWN: Range = (-math.inf, math.inf)


def int_range(b: Term) -> Range:
    """The least and the greatest value of an integer body; infinite where nothing is known."""
    d = dtype(b)
    if d.is_float or d == Dtype.b8:
        return UNKNOWN
    lo, hi = _range(b)
    low, high = d.extremes
    return (lo, hi) if low <= lo and hi <= high else UNKNOWN             # else it wraps around


def _range(b: Term) -> Range:
    match b:
        case Const(_, v): return v, v
        case Iota(i): return i.range
        case Cast(_, x): return int_range(x)
        case Op("where", (_, x, y)):
            (p, q), (r, s) = int_range(x), int_range(y)
            return min(p, r), max(q, s)
        case Op(name, args) if name in ("add", "sub", "neg", "abs", "minimum", "maximum"):
            (p, q), *rest = map(int_range, args)
            r, s = rest[0] if rest else (0, 0)
            match name:
                case "add": return p + r, q + s
                case "sub": return p - s, q - r
                case "neg": return -q, -p
                case "abs": return (0 if p <= 0 <= q else min(abs(p), abs(q))), max(abs(p), abs(q))
                case "minimum": return min(p, r), min(q, s)
                case "maximum": return max(p, r), max(q, s)
    return UNKNOWN
