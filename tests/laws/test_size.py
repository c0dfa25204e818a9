"""The laws of rules/size.py, proved by z3 and by enumeration; index arithmetic and predicates against enumeration."""
from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import z3

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, index
from deplodock.ir.loop import Iota, const, op, subst
from deplodock.ir.meaning import Meaning
from deplodock.law import laws_of
from deplodock.predicates import normal, proved, selection, some_key
from rules import size

LAWS = laws_of(size)
NONLINEAR = {"mod_mod": "nm", "mod_add": "n", "div_div": "m", "div_add": "n", "div_exact": "m", "split_join": "m",
             "join_split": "m", "lt_scale": "n"}
"""Laws that z3 does not decide with these divisors symbolic: proved for all their values up to 16."""


class Symbolic:
    """An integer of z3 with Python's operators. z3 divides as Python does where the divisor is positive."""

    def __init__(self, value):
        self.z = value if z3.is_expr(value) else z3.IntVal(value)

    def _with(self, other, f):
        return Symbolic(f(self.z, other.z if isinstance(other, Symbolic) else z3.IntVal(other)))

    def __add__(self, o): return self._with(o, lambda a, b: a + b)
    def __sub__(self, o): return self._with(o, lambda a, b: a - b)
    def __mul__(self, o): return self._with(o, lambda a, b: a * b)
    def __floordiv__(self, o): return self._with(o, lambda a, b: a / b)
    def __mod__(self, o): return self._with(o, lambda a, b: a % b)
    def __lt__(self, o): return self._with(o, lambda a, b: a < b)
    def __ge__(self, o): return self._with(o, lambda a, b: a >= b)
    def __eq__(self, o): return self._with(o, lambda a, b: a == b)
    __hash__ = None


def formula(x):
    return x.z if isinstance(x, Symbolic) else z3.BoolVal(x) if isinstance(x, bool) else z3.IntVal(x)


@pytest.mark.parametrize("law", LAWS, ids=lambda l: l.name)
def test_proved(law):
    fixed = NONLINEAR.get(law.name, "")
    for values in product(range(1, 17), repeat=len(fixed)):
        names = {v: Symbolic(z3.Int(v)) for v in law.variables} | dict(zip(fixed, map(Symbolic, values)))
        equation = law(**names)
        solver = z3.Solver()
        solver.set("timeout", 20_000)
        solver.add(*(formula(c.fact.holds(*c.args)) for c in equation.conditions))
        solver.add(formula(equation.lhs) != formula(equation.rhs))
        answer = solver.check()
        assert answer == z3.unsat, (law.name, values, solver.model() if answer == z3.sat else "undecided")


@pytest.mark.parametrize("law", LAWS, ids=lambda l: l.name)
def test_enumerated(law):
    """True of all small integers that meet the conditions, and each condition is needed, or keeps from dividing by
    0."""
    needed, held = [False] * len(law.pattern().conditions), 0
    for values in product(range(-7, 8), repeat=len(law.variables)):
        try:
            equation = law(*values)
            met = [c.fact.holds(*c.args) for c in equation.conditions]
            true = equation.lhs == equation.rhs
        except ZeroDivisionError:
            needed = [n or c.fact.name in ("at_least", "below") for n, c in zip(needed, law.pattern().conditions)]
            continue
        if all(met):
            held += 1
            assert true, (law.name, values)
        elif met.count(False) == 1 and not true:
            needed[met.index(False)] = True
    assert held >= 20 and all(needed), (held, needed)


A, B, C = Axis("a", 6), Axis("b", 4), Axis("c", 2)


def value(i):
    """The values of an index over all points of the axes."""
    return np.broadcast_to(Meaning({}).index(index(i)).spread((A, B, C)), (6, 4, 2))


@pytest.mark.parametrize("seed", range(40))
def test_index_arithmetic(seed):
    """Division and remainder of a random index, in normal form, against NumPy."""
    rng = np.random.default_rng(seed)
    built = index(int(rng.integers(-5, 6)))
    raw = np.full((6, 4, 2), built.const)
    points = dict(zip((A, B, C), np.indices((6, 4, 2))))
    for _ in range(4):
        n = int(rng.integers(1, 7))
        a = (A, B, C)[rng.integers(3)]
        match rng.integers(4):
            case 0: built, raw = built + a * n, raw + points[a] * n
            case 1: built, raw = built // n, raw // n
            case 2: built, raw = built % n, raw % n
            case 3: built, raw = built * n + a, raw * n + points[a]
        lo, hi = built.range
        assert np.array_equal(value(built), raw) and lo <= raw.min() and raw.max() <= hi


COMPARISONS = [op(name, Iota(index(i)), Iota(index(j)) if not isinstance(j, int) else const(Dtype.i64, j))
               for name in ("lt", "le", "eq", "ne")
               for i, j in ((A, B), (B, A + 1), (A * 2, B * 4 + 1), (A, 3), (A - B, -2), (index(1) - C, 0), (C, 1),
                            (A * 3, 7), (B, 9), (A, -1))]


@pytest.mark.parametrize("p", COMPARISONS, ids=str)
def test_predicates(p):
    """The normal form means the same, is its own normal form, and holds at the origin unless negated; ranges decide
    rightly."""
    want = np.broadcast_to(Meaning({}).body(p).spread((A, B, C)), (6, 4, 2))
    if (known := proved(p)) is not None:
        assert (want == known).all()
    if (q := normal(p)) is not None:
        assert np.array_equal(np.broadcast_to(Meaning({}).body(q).spread((A, B, C)), (6, 4, 2)), want)
        plain = q.args[0] if q.name == "not" else q
        assert normal(plain) is plain
        if plain.name == "le":
            assert Meaning({}).body(subst(plain, {A: index(0), B: index(0), C: index(0)})).array
    elif known is None:
        pytest.fail(f"{p} has no normal form")
    for k in ((A,), (B,), (A, B)):
        if some_key(k, p):
            over = tuple(n for n, a in enumerate((A, B, C)) if a in k)
            assert want.any(over).all()


def test_some_key_of_masks():
    m, t = Axis("m", 5), Axis("t", 5)
    causal, anti = op("le", Iota(index(t)), Iota(index(m))), op("lt", Iota(index(m)), Iota(index(t)))
    window = op("lt", Iota(m - 2), Iota(index(t)))
    assert some_key((t,), causal) and not some_key((t,), anti) and some_key((t,), op("and", causal, window))


def test_selection():
    i = selection(C, (index(A), index(1)), (index(A), index(0)))
    assert i == (index(A), 1 - index(C)) and selection(A, (index(0),), (index(1),)) is None
    assert selection(C, (index(A),), (index(B),)) is None and selection(C, (index(C),), (index(0),)) is None
