"""Expressions of Kernel IR: what they simplify to has the value of what was written, and so has their text."""
from __future__ import annotations

import re

from hypothesis import given, settings, strategies as st

from deplodock.ir.dtype import Dtype
from deplodock.ir.expression import (Binary, Choose, Convert, Element, Expr, Int, Name, Neg, Not, Real, binary, bounds,
                                     call, choose, compare, literal, replace, text)

LIMITS = {"lane": 32, "warp": 8, "r": 12}


def names():
    return st.sampled_from([Name(n, limit) for n, limit in LIMITS.items()] + [Name("m_0")])


@st.composite
def written(draw, depth=4):
    """(operator, operands) trees of operands that are not negative, where C's division rounds as Python's does."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.one_of(names(), st.integers(0, 40).map(Int)))
    op = draw(st.sampled_from(["+", "*", "/", "%", "&", "^", ">>"]))
    a = draw(written(depth=depth - 1))
    if op in ("*", "/", "%", ">>"):
        b = Int(draw(st.integers(0, 5) if op == ">>" else st.integers(1, 40)))
    else:
        b = draw(written(depth=depth - 1))
    return (op, a, b)


def value(t, at) -> int:
    match t:
        case Int(v): return v
        case Name(n, _): return at[n]
    op, a, b = t
    a, b = value(a, at), value(b, at)
    match op:
        case "+": return a + b
        case "*": return a * b
        case "/": return a // b
        case "%": return a % b
        case "&": return a & b
        case "^": return a ^ b
    return a >> b


def built(t) -> Expr:
    return t if isinstance(t, (Int, Name)) else binary(t[0], built(t[1]), built(t[2]))


def evaluated(e: Expr, at) -> int:
    """The C text read by Python: every bitwise operator is in parentheses, so both read it alike."""
    return eval(text(e).replace("/", "//"), {}, dict(at))


places = st.fixed_dictionaries({n: st.integers(0, k - 1) for n, k in LIMITS.items()} | {"m_0": st.integers(0, 1 << 20)})


@settings(max_examples=400, deadline=None)
@given(written(), places)
def test_simplified_means_the_same(t, at):
    e = built(t)
    assert evaluated(e, at) == value(t, at)


@settings(max_examples=200, deadline=None)
@given(written(), places)
def test_bounds_hold(t, at):
    e = built(t)
    low, high = bounds(e)
    assert low <= evaluated(e, at) <= high


@settings(max_examples=200, deadline=None)
@given(written(), written(), places, st.sampled_from(["<", "<=", "==", "!="]))
def test_decided_comparisons_are_right(s, t, at, op):
    e = compare(op, built(s), built(t))
    assert bool(evaluated(e, at)) == eval(f"{value(s, at)} {op} {value(t, at)}")


@settings(max_examples=100, deadline=None)
@given(written(), places, st.integers(0, 11))
def test_replacing_a_name_is_evaluating_there(t, at, r):
    assert evaluated(replace(built(t), "r", r), at) == value(t, at | {"r": r})


LANE, R = Name("lane", 32), Name("r", 8)


def test_text_keeps_its_parentheses():
    table = {
        (LANE >> 2) * 8 + (LANE & 3): "(lane >> 2) * 8 + (lane & 3)",
        (LANE ^ 3) + Name("m"): "(lane ^ 3) + m",
        Name("a") - (Name("b") - Name("c")): "a - (b - c)",
        (Name("a") - 1) * 2: "(a - 1) * 2",
        Name("a") // (Name("b") * Name("c")): "a / (b * c)",
        Neg(Neg(Name("x"))): "-(-x)",
        Not(Binary("==", Name("a"), Int(1))): "!(a == 1)",
        Convert("float", Name("a") + Name("b")): "(float)(a + b)",
        Binary("+", Choose(Name("t"), Int(1), Int(2)), Name("a")): "(t ? 1 : 2) + a",
        Element("x", R * 2 + 1): "x[r * 2 + 1]",
        Binary("&&", Binary("||", Name("a"), Name("b")), Name("c")): "(a || b) && c",
    }
    for e, wanted in table.items():
        assert text(e) == wanted


def test_what_simplifies():
    assert R // 8 == Int(0) and R % 8 == R
    assert (R * 2 + 1) // 2 == R and (R * 2 + 1) % 2 == Int(1)
    assert (LANE >> 2 & 7) == LANE >> 2
    assert compare("<", LANE, 32) == Int(1)
    assert choose(Int(0), Name("a"), Name("b")) == Name("b")
    assert (Name("a") + 3) + (Name("b") + 4) == Name("a") + Name("b") + 7


def test_division_of_what_may_be_negative_stays():
    e = (Name("i") * 4 + R) // 4
    assert text(e) == "(i * 4 + r) / 4"


def test_literals_read_back_as_the_same_value():
    import numpy as np
    for v in (0.1, 1.0, -2.5, 1e-6, 1.4426950408889634, 3.4028235e38, 1e-45, 123456789.0, 1e7, 0.0):
        assert np.float32(literal(v, Dtype.f32).removesuffix("f")) == np.float32(v)
        assert re.search(r"[.e]", literal(v, Dtype.f32)), "a literal without a point or exponent is no float in C"
        assert float(literal(v, Dtype.f64)) == v
    assert literal(float("-inf"), Dtype.f32) == "-DD_INF" and literal(1e60, Dtype.f32) == "DD_INF"
    assert text(call("f", Real(-1.0, Dtype.f32))) == "f(-1.0f)"
