"""Random ground terms for the variables of a law, and the decision of its side conditions.

Bodies are drawn over a few axes of different extents; a variable that a condition determines (the dtype of a body, the
extent of axes, the normal form of a predicate) is computed from the others. Conditions are decided by the analyses that
saturation uses, on the drawn terms; where a fact has a decision in Python too, both must agree.
"""
from __future__ import annotations

import math

import numpy as np

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, Index, index
from deplodock.ir.loop import Buffer, Cast, Iota, Var, cast, const, dtype, load, op, where
from deplodock.ir.term import Term
from deplodock.law import Equation, Law, reduce
from deplodock.predicates import normal, proved, selection
from deplodock.session import Session
from deplodock.substitution import in_order

AXES = tuple(Axis(n, e) for n, e in (("h", 2), ("i", 3), ("j", 4), ("k", 5)))
EMPTY = Axis("z", 0)
VALUES = (1.0, 2.0, 0.5, -3.0, 0.1, 1.0, 0.0, -math.inf, -1e30, float(np.finfo(np.float32).min))
FLOATS = (Dtype.f32, Dtype.bf16, Dtype.f16)


class Draw:
    """One choice of ground terms. `loose`: draw what violates conditions as well: empty axes, any dtype, infinite
    literals."""

    def __init__(self, rng: np.random.Generator, loose: bool = False, integers: bool = True):
        self.rng, self.loose = rng, loose
        others = (Dtype.f64, Dtype.i32) if loose and integers else ()
        self.narrow = self.pick((Dtype.bf16, Dtype.f16) + others)

    def pick(self, options):
        return options[self.rng.integers(len(options))]

    def some_axes(self, least: int = 0) -> tuple[Axis, ...]:
        n = self.rng.integers(least, 4)
        return tuple(AXES[i] for i in sorted(self.rng.choice(len(AXES), n, replace=False)))

    def buffer(self, d: Dtype, axes: tuple[Axis, ...]) -> Buffer:
        kind = self.pick(("input", "parameter"))
        name = f"{kind[0]}{d}_{''.join(a.name for a in axes)}{self.rng.integers(2)}"
        return Buffer(name, d, tuple(Axis(f"{name}{n}", a.extent) for n, a in enumerate(axes)), kind)

    def body(self, d: Dtype, depth: int = 2) -> Term:
        """A body of a dtype. Arithmetic is done in f32 at least."""
        if d == Dtype.b8:
            return self.predicate()
        if not d.is_float:
            return self.integer(d, depth)
        choice = self.rng.integers(8 if depth else 3)
        if d.is_16bit:
            return self.leaf(d) if choice < 4 or not depth else Cast(d, self.body(Dtype.f32, depth - 1))
        match choice:
            case 0 | 1 | 2: return self.leaf(d)
            case 3: return op(self.pick(("add", "mul", "sub")), self.body(d, depth - 1), self.body(d, depth - 1))
            case 4: return op(self.pick(("neg", "exp", "sigmoid", "abs", "sin")), self.body(d, depth - 1))
            case 5: return reduce(self.pick(("sum", "max")), (self.pick(AXES),), self.body(d, depth - 1))
            case 6: return where(self.predicate(), self.body(d, depth - 1), self.body(d, 0))
        return Cast(d, self.body(self.pick((Dtype.bf16, Dtype.f16)), 0))

    def integer(self, d: Dtype, depth: int) -> Term:
        """An integer body: its arithmetic wraps around."""
        below = (self.integer(d, depth - 1) for _ in range(2)) if depth else ()
        match self.rng.integers(7 if depth else 2):
            case 0:
                return cast(d, Iota(index(self.pick(AXES)))) if depth else const(d, int(self.rng.integers(-100, 100)))
            case 1 | 2:
                axes = self.some_axes()
                return load(self.buffer(d, axes), *axes)
            case 3 | 4: return op(self.pick(("add", "mul", "sub")), *below)
            case 5: return op("neg", next(below))
        return reduce(self.pick(("sum", "max")), (self.pick(AXES),), next(below))

    def leaf(self, d: Dtype) -> Term:
        if self.rng.integers(4) == 0:
            return const(d, self.pick(VALUES[:4] if not self.loose else VALUES))
        if self.rng.integers(6) == 0 and not d.is_16bit:
            return cast(d, Iota(index(self.pick(AXES))))
        axes = self.some_axes()
        return load(self.buffer(d, axes), *axes)

    def predicate(self) -> Term:
        a, b = (AXES[i] for i in self.rng.choice(len(AXES), 2, replace=False))
        shift = int(self.rng.integers(-2, 3))
        match self.rng.integers(6):
            case 0: return op("le", Iota(index(a)), Iota(b + shift))
            case 1: return op("lt", Iota(a * 2 + shift), Iota(index(b)))
            case 2: return op("eq", Iota(index(a)), const(Dtype.i64, abs(shift)))
            case 3: return op("ne", Iota(a + b), Iota(b + shift))
            case 4: return op("and", self.predicate(), self.predicate())
        axes = self.some_axes()
        return load(self.buffer(Dtype.b8, axes), *axes)

    def fold_axes(self, avoid: tuple[Axis, ...] = ()) -> tuple[Axis, ...]:
        if self.loose and self.rng.integers(4) == 0:
            return (EMPTY,)
        free = [a for a in AXES if a not in avoid]
        n = 1 + (self.rng.integers(4) == 0)
        return tuple(free[i] for i in sorted(self.rng.choice(len(free), n, replace=False)))


def draw(law: Law, rng: np.random.Generator, loose: bool = False, only: Dtype | None = None) -> dict | None:
    """Ground terms for the variables of a law, None if a variable that a condition determines has no value.

    only: the dtype of all bodies.
    """
    names = {c.fact.name for c in law.pattern().conditions}
    if loose and "floating" in names and rng.integers(3) == 0:
        only = Dtype.i8
    d, binding = Draw(rng, loose, integers="Value" not in law.variables.values()), {}
    conditions = law.pattern().conditions
    dtypes = {c.args[0].name: c.args[1] for c in conditions if c.fact.name == "of_dtype" and isinstance(c.args[0], Var)}
    narrow = {c.args[0].name for c in conditions if c.fact.name == "sixteen_bit"}
    narrow |= {c.args[0].name for c in conditions if c.fact.name == "representable"}
    common = d.pick(FLOATS) if law.module == "numerics" else Dtype.f32

    def dtype_of(variable: str) -> Dtype:
        wanted = dtypes.get(variable)
        if only:
            return only
        if wanted and loose and rng.integers(3) == 0:
            return d.pick(FLOATS)
        if isinstance(wanted, Var):
            return d.narrow if wanted.name in narrow or law.module == "numerics" else Dtype.f32
        return wanted or common

    for name, sort in law.variables.items():
        match sort:
            case "Axes":
                binding[name] = d.fold_axes(tuple(a for v in binding.values() if isinstance(v, tuple) for a in v))
            case "Body": binding[name] = d.body(dtype_of(name))
            case "Pred": binding[name] = d.predicate()
            case "Value": binding[name] = float(d.pick(VALUES))
            case "Dtype" if loose and rng.integers(3) == 0: binding[name] = d.pick((*FLOATS, Dtype.f64))
            case "Dtype": binding[name] = d.narrow if name in narrow or law.module == "numerics" else Dtype.f32
            case "Int": binding[name] = int(rng.integers(0, 6))
            case "Index": binding[name] = index(AXES[0])
            case "Tensor": binding[name] = d.buffer(only or Dtype.f32, d.some_axes(1))
            case "Indices": binding[name] = None
    if "Indices" in law.variables.values() and "Tensor" in law.variables.values():
        _indices(law, d, binding)
    if not (loose and rng.integers(3) == 0):
        _derive(conditions, d, binding)
    return None if any(v is None for v in binding.values()) else binding


def _indices(law: Law, d: Draw, binding: dict) -> None:
    """Index lists for the loads of a drawn tensor: equal but for constants."""
    tensor = next(binding[n] for n, s in law.variables.items() if s == "Tensor")
    others = AXES[1:]
    base = [index(d.pick(others)) if d.rng.integers(2) else index(0) for _ in tensor.axes]
    for name, sort in law.variables.items():
        if sort == "Indices":
            binding[name] = tuple(i + int(d.rng.integers(0, 2)) if i.is_const else i for i in base)


def _derive(conditions, d: Draw, binding: dict) -> None:
    """Variables that a condition determines."""
    for c in conditions:
        args = [binding.get(a.name) if isinstance(a, Var) else a for a in c.args]
        target = c.args[-1].name if isinstance(c.args[-1], Var) else None
        match c.fact.name:
            case "of_dtype" if target and isinstance(args[0], Term): binding[target] = dtype(args[0])
            case "extent": binding[target] = math.prod(a.extent for a in args[0])
            case "in_order":
                binding[c.args[0].name] = AXES
                binding[target] = in_order(AXES)
                if d.loose and d.rng.integers(2):
                    binding[target] = tuple(index(a) if d.rng.integers(2) else index(0) for a in AXES)
            case "proved": binding[target] = None if proved(args[0]) is None else int(proved(args[0]))
            case "equivalent": binding[target] = normal(args[0])
            case "selects": binding[target] = selection(args[0].axis, args[1], args[2])


class Judge:
    """Decides conditions: in Python where a fact can, else by the analyses of an engine without laws."""

    def __init__(self):
        self.session = Session((), "default")

    def violated(self, equation: Equation, only: int | None = None) -> list[int] | None:
        """The numbers of the conditions that do not hold. With `only`, None as soon as it cannot be the only one."""
        bad = [n for n, c in enumerate(equation.conditions) if c.fact.decide is not None and not c.fact.holds(*c.args)]
        if only is not None and (any(n != only for n in bad) or
                                 equation.conditions[only].fact.decide is not None and only not in bad):
            return None
        open_ = [n for n, c in enumerate(equation.conditions) if c.fact.decide is None]
        if open_ and (only is not None or not bad):
            s = self.session
            s.declared(equation.lhs)
            queries = [c.fact.query(*(text(s, a) for a in c.args)) for c in equation.conditions]
            s.flush()
            answers = [s.holds(q) for q in queries]
            for c, answer in zip(equation.conditions, answers):
                if c.fact.decide is not None and c.fact.holds(*c.args) != answer:
                    raise AssertionError(f"{c}: analysis says {answer}, Python {not answer}")
            bad = [n for n, answer in enumerate(answers) if not answer]
        return bad


def text(s: Session, a) -> str:
    """A ground argument of a condition as egglog text."""
    match a:
        case Dtype() | str(): return f'"{a}"'
        case float(): return "NaN" if math.isnan(a) else repr(a)
        case int(): return str(a)
        case tuple() if a and isinstance(a[0], Axis): return s.encoder.axis_list(a)
        case tuple(): return s.encoder.index_list(a)
        case Index(): return s.encoder.index_list((a,))
    return s.declared(a)
