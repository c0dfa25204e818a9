"""What Python knows of predicates over loop indices: their normal form, whether ranges decide them, whether a row has a
key.

A comparison of indices is E <= 0 or E == 0 for an affine E. In normal form coefficients have no common divisor and the
predicate holds where all axes are 0 (t <= m, not m < t), so that a predicate and its negation share one comparison.
"""
from __future__ import annotations

import math
from itertools import product

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, Index, index
from deplodock.ir.loop import Const, Iota, Op, op, subst
from deplodock.ir.term import Term


def affine(b: Term) -> Index | None:
    """The index that an integer body counts, None if it is none."""
    match b:
        case Iota(i): return i
        case Const(d, v) if not d.is_float and d != Dtype.b8: return index(v)
    return None


def comparison(p: Term) -> tuple[str, Index] | None:
    """(relation, E) such that p says E <= 0, E == 0, or E != 0; None if p compares something else than indices."""
    match p:
        case Op("lt" | "le" | "eq" | "ne" as name, (a, b)):
            i, j = affine(a), affine(b)
            if i is not None and j is not None:
                return ("le" if name == "lt" else name), i - j + (name == "lt")
    return None


def proved(p: Term) -> bool | None:
    """Whether p is true at all points, or false at all; None if it is neither or not known."""
    match p:
        case Op("and", (a, b)):
            x, y = proved(a), proved(b)
            return False if x is False or y is False else True if x and y else None
        case Op("not", (a,)):
            x = proved(a)
            return None if x is None else not x
    found = comparison(p)
    if found is None:
        return None
    name, e = found
    lo, hi = e.range
    if name == "le":
        return True if hi <= 0 else False if lo > 0 else None
    never = lo > 0 or hi < 0 or e.const % max(math.gcd(*(c for _, c in e.terms)), 1) if e.terms else e.const != 0
    equal = False if never else True if not e.terms else None
    return equal if equal is None or name == "eq" else not equal


def normal(p: Term) -> Term | None:
    """p as a comparison in normal form, or the negation of one; None if p is no comparison of indices."""
    found = comparison(p)
    if found is None or not found[1].terms:
        return None
    name, e = found
    d = math.gcd(*(c for _, c in e.terms))
    if name == "le":
        e = _divided(e, d, -(-e.const // d))
        if e.const <= 0:
            return _compare("le", e)
        return op("not", _compare("le", 1 - e))
    if e.const % d:
        return None
    e = _divided(e, d, e.const // d)
    e = e if e.terms[0][1] > 0 else -e
    positive = name == "eq"
    match e:
        case Index(((Axis(_, 2) as a, 1),), -1): e, positive = index(a), not positive
    return _compare("eq", e) if positive else op("not", _compare("eq", e))


def _divided(e: Index, d: int, constant: int) -> Index:
    return Index(tuple((a, c // d) for a, c in e.terms), constant)


def _compare(name: str, e: Index) -> Op:
    """e <= 0 or e == 0 with the positive terms on the left and the rest on the right."""
    left = Index(tuple((a, c) for a, c in e.terms if c > 0), 0)
    right = left - e
    return op(name, Iota(left), Const(Dtype.i64, right.const) if right.is_const else Iota(right))


def some_key(k: tuple[Axis, ...], p: Term) -> bool:
    """Whether for all values of the other axes there are values of `k` for which p holds; False if that is not seen.

    Tried for each axis of k: its first point, its last, and each other axis that has no more points (the diagonal).
    """
    axes = [a for a in k if a in p.free]
    others = sorted(p.free - set(k), key=lambda a: a.name)
    choices = [[index(0), index(a.extent - 1), *(index(o) for o in others if o.extent <= a.extent)] for a in axes]
    return bool(axes) and all(a.extent > 0 for a in k) and any(
        proved(subst(p, dict(zip(axes, choice)))) for choice in product(*choices))


def selection(p: Axis, at0: tuple[Index, ...], at1: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """The indices that are `at0` where the axis p of extent 2 is 0 and `at1` where it is 1, if they differ by
    constants."""
    if p.extent != 2 or len(at0) != len(at1) or any(p in i.free for i in at0 + at1):
        return None
    steps = [b - a for a, b in zip(at0, at1)]
    return tuple(a + p * s.const for a, s in zip(at0, steps)) if all(s.is_const for s in steps) and at0 != at1 else None
