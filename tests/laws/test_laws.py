"""Every law, by the same four tests: it holds on random instances, it is not vacuous, its tag is true of rounded
arithmetic, and each of its conditions is needed."""
from __future__ import annotations

import zlib
from itertools import islice

import numpy as np
import pytest

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis
from deplodock.ir.loop import Buffer, Cast, Const, Fold, Op, Var, cast, children, dtype, load, loads
from deplodock.ir.meaning import NUMPY, Meaning
from deplodock.ir.term import Term
from deplodock.law import Law, reduce
from deplodock.saturate import catalogue
from tests.laws.drawing import Judge, draw

LAWS = catalogue() + catalogue(("finishing",))
INSTANCES = 20
TRIES = 3000
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30)


def by_name(law: Law) -> str:
    return law.name


def equations(law: Law, loose: bool = False, only: Dtype | None = None):
    """Random ground equations of a law, whether their conditions hold or not; 1/0 of a literal is NaN here."""
    rng = np.random.default_rng(zlib.crc32(law.name.encode()))
    for _ in range(TRIES):
        binding = draw(law, rng, loose, only)
        if binding is not None:
            try:
                yield law(**binding)
            except OverflowError:  # no term: an integer literal without a value
                pass


def instances(law: Law, wanted: int = INSTANCES, only: Dtype | None = None):
    """Ground equations whose conditions hold."""
    judge = Judge()
    return islice((e for e in equations(law, only=only) if not judge.violated(e)), wanted)


def counterexamples(law: Law, number: int, wanted: int = 60):
    """Ground equations of which only the condition of that number does not hold."""
    judge = Judge()
    return islice((e for e in equations(law, loose=True) if judge.violated(e, number) == [number]), wanted)


def values(term: Term, rng: np.random.Generator, special: bool) -> dict:
    """Random values for the buffers that a term loads; `special`: NaN, infinities, zeros and huge numbers among
    them."""
    out = {}
    for buffer in sorted({l.tensor for l in loads(term) if isinstance(l.tensor, Buffer)}, key=lambda b: b.name):
        shape = [a.extent for a in buffer.axes]
        if not buffer.dtype.is_float:
            low, high = (0, 2) if buffer.dtype == Dtype.b8 else (-100, 100)
            out[buffer] = rng.integers(low, high, shape)
            continue
        x = rng.standard_normal(shape)
        if special:
            x = np.where(rng.random(shape) < 0.3, rng.choice(SPECIAL, shape), x)
        with np.errstate(over="ignore"):
            out[buffer] = x.astype(NUMPY[buffer.dtype])
    return out


def both(equation, rng: np.random.Generator, exact: bool, special: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The values of both sides at the same random inputs."""
    given = values(Op("add", (equation.lhs, equation.rhs)), rng, special)
    meaning = Meaning(given, exact)
    axes = tuple(sorted(equation.lhs.free | equation.rhs.free, key=lambda a: a.name))
    with np.errstate(all="ignore"):
        return meaning.over(equation.lhs, axes), meaning.over(equation.rhs, axes)


def close(x: np.ndarray, y: np.ndarray, tolerance: float = 1e-9) -> bool:
    if x.dtype == np.bool_ or np.issubdtype(x.dtype, np.integer):
        return bool(np.array_equal(x, y))
    scale = np.abs(x[np.isfinite(x)]).max(initial=1.0)
    x, y = x.astype(np.float64), y.astype(np.float64)
    return bool(np.allclose(x, y, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def well_typed(t: Term) -> bool:
    """Whether operands of each operator have one dtype (but for the condition of a `where`)."""
    if isinstance(t, Op):
        args = t.args[1:] if t.name == "where" else t.args
        if len({dtype(a) for a in args}) > 1:
            return False
    return all(map(well_typed, children(t)))


def assumes_finite(law: Law) -> bool:
    return any(c.fact.name in ("assumed_finite", "finite", "live") for c in law.pattern().conditions)


@pytest.mark.parametrize("law", LAWS, ids=by_name)
def test_holds(law):
    rng, found = np.random.default_rng(1), 0
    for equation in instances(law):
        found += 1
        assert dtype(equation.lhs) == dtype(equation.rhs) and well_typed(equation.rhs), equation
        for _ in range(3):
            x, y = both(equation, rng, exact=True)
            assert close(x, y), f"{equation.lhs}  =  {equation.rhs}"
    assert found >= INSTANCES, f"only {found} instances of {law.name}: it is vacuous, or drawing does not reach it"


@pytest.mark.parametrize("law", LAWS, ids=by_name)
def test_tag_is_true(law):
    """With every operation rounded to its dtype: bit-equal if exact, else no less accurate than the side it replaces,
    or, if it contracts, than half an ulp of the 16-bit dtype that it rounds to."""
    rng = np.random.default_rng(2)
    errors = []
    for equation in instances(law):
        for special in (False, not assumes_finite(law) and law.tag == "exact"):
            state = rng.bit_generator.state
            x, y = both(equation, rng, exact=False, special=special)
            rng.bit_generator.state = state
            if law.tag == "exact":
                assert np.array_equal(x, y, equal_nan=x.dtype.kind not in "bi"), f"{equation.lhs}  =  {equation.rhs}"
                continue
            want, _ = both(equation, rng, exact=True, special=special)
            errors.append((error(x, want), error(y, want)))
    if law.tag != "exact":
        before, after = np.array(errors).T
        rounding = 2**-8 if law.tag == "contracts" else 0
        assert after.mean() <= max(2 * before.mean() + 1e-7, rounding), (before.mean(), after.mean())


FLOATS_ONLY = {"div", "recip", "sqrt", "rsqrt", "exp", "log", "sigmoid"}


def speaks_of_floats(t: Term) -> bool:
    """Whether a pattern has float literals or operators that integers have not, so that it cannot match integers."""
    match t:
        case Const(d, v): return isinstance(d, Var) or d.is_float
        case Op(name, _) if name in FLOATS_ONLY: return True
        case Cast(Dtype.f32, _) | Fold("online"): return True
    return any(map(speaks_of_floats, children(t)))


@pytest.mark.parametrize("law", [l for l in LAWS if not speaks_of_floats(l.pattern().lhs)], ids=by_name)
def test_holds_of_integers_that_wrap_around(law):
    if any(c.fact.name in ("floating", "float_literals") for c in law.pattern().conditions):
        assert not list(instances(law, 1, Dtype.i8))
        return
    rng, found = np.random.default_rng(4), 0
    for equation in instances(law, 10, Dtype.i8):
        found += 1
        with np.errstate(all="ignore"):
            x, y = both(equation, rng, exact=False)
        assert np.array_equal(x, y), f"{equation.lhs}  =  {equation.rhs}"
    assert found == 10


def error(x: np.ndarray, want: np.ndarray) -> float:
    """Relative to the norm, over finite elements."""
    ok = np.isfinite(want) & np.isfinite(x.astype(np.float64))
    norm = np.linalg.norm(want[ok]) or 1.0
    return float(np.linalg.norm(x.astype(np.float64)[ok] - want[ok]) / norm)


CONDITIONS = [(law, n) for law in LAWS for n, c in enumerate(law.pattern().conditions) if not c.fact.economy]


@pytest.mark.parametrize("law,number", CONDITIONS, ids=lambda x: by_name(x) if isinstance(x, Law) else str(x))
def test_condition_is_needed(law, number):
    """Some draw that violates only this condition makes the equation false, or ill-typed."""
    rng = np.random.default_rng(3)
    for equation in counterexamples(law, number):
        if not well_typed(equation.rhs) or dtype(equation.lhs) != dtype(equation.rhs):
            return
        for exact, special in ((True, False), (True, True), (False, True)):
            x, y = both(equation, rng, exact, special)
            if not close(x, y):
                return
    pytest.fail(f"no draw shows that {law.name} needs {law.conditions[number]}")


def test_names_are_unique():
    assert len({l.name for l in LAWS}) == len(LAWS)


@pytest.mark.parametrize("law", LAWS, ids=by_name)
def test_form(law):
    assert law.equation and law.where[0].endswith(f"rules/{law.module}.py")
    known = {"Body", "Pred", "Tensor", "Axes", "Index", "Indices", "Dtype", "Value", "Int"}
    unknown = set(law.variables.values()) - known
    assert not unknown, f"sorts {unknown} cannot be matched in an e-graph"


DISTRIBUTIONS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "positive": lambda rng, n: rng.random(n),
    "one large outlier": lambda rng, n: np.where(np.arange(n) == n // 3, 100.0, rng.standard_normal(n)),
}


@pytest.mark.parametrize("terms", [64, 1024, 16384])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("law", ["cast_roundtrip", "round_operand"])
def test_contractions_keep_the_promise(law, distribution, terms):
    """Of a product over K terms whose operand is rounded, or no longer is: the error of the result, rounded to bf16, is
    at most the larger of twice that of the side replaced and half an ulp."""
    law = next(l for l in LAWS if l.name == law)
    k, m = Axis("k", terms), Axis("m", 8)
    x = Buffer("x", Dtype.f32, (Axis("x0", 8), Axis("x1", terms)), "input")
    w = Buffer("w", Dtype.bf16, (Axis("w0", terms),), "parameter")
    rng = np.random.default_rng(terms)
    given = {x: np.stack([DISTRIBUTIONS[distribution](rng, terms) for _ in range(8)]).astype(np.float32),
             w: (rng.standard_normal(terms) * terms**-0.5).astype(NUMPY[Dtype.bf16])}
    if law.name == "round_operand":
        equation = law(a=load(x, m, k), w=load(w, k), k=(k,), d=Dtype.bf16)
        sides = equation.lhs, equation.rhs
    else:
        equation = law(b=load(x, m, k), d=Dtype.bf16)
        sides = tuple(reduce("sum", (k,), side * cast(Dtype.f32, load(w, k))) for side in (equation.lhs, equation.rhs))
    want = Meaning(given).over(sides[0], (m,))
    before, after = (error(Meaning(given, exact=False).over(cast(Dtype.bf16, side), (m,)), want) for side in sides)
    assert after <= max(2 * before, 2**-8), (before, after)
