"""A law: an equation between two terms that is a rewrite rule and its own test.

    @law("reassociates")
    def sum_pull_out(a: Body, b: Body, k: Axes):
        "Σₖ a·b = a·Σₖ b   when a does not depend on k, and is finite or assumed so, and b does"
        return rewrite(reduce("sum", k, a * b)).to(a * reduce("sum", k, b), lacks(k, a), assumed_finite(a), depends(k, b))

The function's name is the law's name, its signature declares the pattern variables, its docstring is the equation, its
body is one `return`. Called with pattern variables (`pattern()`) it is the rewrite; called with ground terms it is an
instance, which tests evaluate on both sides; `apply` rewrites a ground term in Python. A module's laws are read off the
module (`laws_of`): there is no registry. `deplodock/facts.py` has the side conditions, `deplodock/encoding.py` the
translation to egglog.

A law carries the tag that says what it does to numbers (`MODES` says which tags a numerics mode admits):

    exact         bit-equal on every machine input, NaN and infinities included (the sign of zero aside)
    reassociates  equal over the reals; order and grouping change, every intermediate keeps its dtype or a wider one
    contracts     equal over the reals, but a rounding is removed, moved, or made where an operand needs one
    approximates  not equal over the reals, or an intermediate gets narrower otherwise
"""
from __future__ import annotations

import inspect
import math
import re
from dataclasses import dataclass, fields
from functools import cached_property
from types import ModuleType
from typing import Any, Callable, Iterable

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, Index
from deplodock.ir.loop import Body, Const, Fold, Op, Tensor, Var, const, exp, fold, op
from deplodock.ir.term import Term

Axes = tuple[Axis, ...]
"""Sort: the axes of one fold or one launch."""
Indices = tuple[Index, ...]
"""Sort: the indices of one load."""
Value = float
"""Sort: the value of a literal."""
Pred = Body
"""Sort: a body of dtype b8."""
Monoid = str
"""Sort: the monoid of a fold."""
Int = int
"""Sort: an integer: an extent, a truth value."""

TAGS = ("exact", "reassociates", "contracts", "approximates")
MODES = {"strict": TAGS[:2], "default": TAGS[:3], "fast": TAGS}
"""Numerics modes, and the tags of the laws that each admits."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A side condition: a fact (deplodock/facts.py) about the terms that stand for a law's variables."""
    fact: Any
    args: tuple

    def __str__(self) -> str:
        return f"{self.fact.name}({', '.join(map(_text, self.args))})"


@dataclass(frozen=True, slots=True)
class Equation:
    """lhs = rhs under conditions; used left to right, and right to left as well if `both`."""
    lhs: Any
    rhs: Any
    conditions: tuple[Condition, ...]
    both: bool = False


@dataclass(frozen=True, slots=True)
class _Side:
    lhs: Any
    both: bool

    def to(self, rhs, *conditions: Condition) -> Equation:
        return Equation(self.lhs, rhs, conditions, self.both)


def rewrite(lhs) -> _Side:
    """rewrite(lhs).to(rhs, *conditions): the left side may be replaced by the right one."""
    return _Side(lhs, False)


def same(lhs, rhs, *conditions: Condition) -> Equation:
    """Both sides may replace each other."""
    return Equation(lhs, rhs, conditions, True)


@dataclass(frozen=True, eq=False)
class Law:
    """An equation with a name; see the head of the file."""
    function: Callable[..., Equation]
    tag: str

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def equation(self) -> str:
        """The equation in words of mathematics: the docstring's first paragraph, on one line."""
        return re.sub(r"\s+", " ", (inspect.getdoc(self.function) or "").partition("\n\n")[0])

    @property
    def module(self) -> str:
        """The file that holds the law, without `rules.`: its group."""
        return self.function.__module__.rpartition(".")[2]

    @property
    def where(self) -> tuple[str, int]:
        """The file and the line of the law."""
        code = self.function.__code__
        return code.co_filename, code.co_firstlineno

    @cached_property
    def variables(self) -> dict[str, str]:
        """The pattern variables and their sorts, in the order of the signature."""
        sorts = {}
        for name, p in inspect.signature(self.function).parameters.items():
            sorts[name] = p.annotation if isinstance(p.annotation, str) else p.annotation.__name__
        return sorts

    @property
    def ground(self) -> bool:
        """Whether it is only ever applied to ground terms, and has no pattern: what its function builds depends on
        them."""
        return self.module.endswith("_def") or self.module in ("view", "cutting", "merging")

    @property
    def conditions(self) -> tuple[str, ...]:
        """The side conditions as text, over the law's variables; those of a law without pattern stand in its
        equation."""
        return () if self.ground else tuple(map(str, self.pattern().conditions))

    def __call__(self, *args, **named) -> Equation:
        return self.function(*args, **named)

    def pattern(self) -> Equation:
        """The equation over pattern variables."""
        return self.function(*(Var(n, s) for n, s in self.variables.items()))

    def match(self, term) -> dict[str, Any] | None:
        """What the variables must stand for so that the left side is `term`; None if it is not of that form."""
        found: dict[str, Any] = {}
        return found if matches(self.pattern().lhs, term, found) else None

    def instance(self, **binding) -> Equation | None:
        """The equation for ground terms, None if a condition does not hold of them."""
        equation = self.function(**binding)
        return equation if all(c.fact.holds(*c.args) for c in equation.conditions) else None

    def apply(self, term):
        """The right side for a ground term that has the form of the left side and meets the conditions, else None."""
        binding = self.match(term)
        if binding is None or binding.keys() != self.variables.keys():
            return None
        equation = self.instance(**binding)
        return equation.rhs if equation else None

    def __repr__(self) -> str:
        return f"law {self.name}: {self.equation} ({self.tag})"


def law(tag: str) -> Callable[[Callable[..., Equation]], Law]:
    """Makes a function a law of the given tag (see the head of the file)."""
    if tag not in TAGS:
        raise ValueError(f"a law's tag is one of {', '.join(TAGS)}, not {tag!r}")
    return lambda function: Law(function, tag)


def laws_of(*modules: ModuleType) -> tuple[Law, ...]:
    """The laws that modules define, in the order of their text."""
    return tuple(v for m in modules for v in vars(m).values()
                 if isinstance(v, Law) and v.function.__module__ == m.__name__)


def admitted(laws: Iterable[Law], numerics: str) -> tuple[Law, ...]:
    """Those laws that a numerics mode admits."""
    return tuple(l for l in laws if l.tag in MODES[numerics])


def matches(pattern, term, found: dict[str, Any]) -> bool:
    """Whether `term` is an instance of `pattern`; `found` collects what the variables stand for."""
    match pattern:
        case Var(name, sort):
            if name in found:
                return found[name] == term
            found[name] = term
            return _of_sort(sort, term)
        case Term():
            return type(pattern) is type(term) and all(
                matches(getattr(pattern, f.name), getattr(term, f.name), found) for f in fields(pattern))
        case tuple():
            return isinstance(term, tuple) and len(pattern) == len(term) and all(
                matches(p, t, found) for p, t in zip(pattern, term))
    return type(pattern) is type(term) and pattern == term


def _of_sort(sort: str, term) -> bool:
    match sort:
        case "Axis": return isinstance(term, Axis)
        case "Index": return isinstance(term, Index)
        case "Axes" | "Indices": return isinstance(term, tuple)
        case "Dtype": return isinstance(term, Dtype)
        case "Value": return isinstance(term, float)
        case "Int": return isinstance(term, int)
        case "Tensor": return isinstance(term, Tensor)
    return True


def _text(arg) -> str:
    return "[" + ", ".join(map(_text, arg)) + "]" if isinstance(arg, tuple) else str(arg)


# ---- terms that laws are written with: over variables a pattern, over ground terms a term with canonical binders -----

def reduce(monoid: str, k: Axes, body: Body) -> Body:
    """The fold of one body over axes."""
    return Fold(monoid, k, (body,), 0) if isinstance(k, Var) else fold(monoid, k, (body,))


def online_max(k: Axes, s: Body, v: Body) -> Body:
    """Part 0 of the online fold: the largest s."""
    return Fold("online", k, (s, v), 0) if isinstance(k, Var) else fold("online", k, (s, v), 0)


def online_sum(k: Axes, s: Body, v: Body) -> Body:
    """Part 1 of the online fold: sum of exp(s - max s)·v over k in one pass; 0 where every s is −∞."""
    return Fold("online", k, (s, v), 1) if isinstance(k, Var) else fold("online", k, (s, v), 1)


def literal(d: Dtype, value) -> Const:
    """A literal whose dtype or value may be a variable."""
    return Const(d, value) if isinstance(d, Var) or isinstance(value, Term) else const(d, value)


def shifted(k: Axes, s: Body) -> Body:
    """exp(s - maxₖ s): what a softmax sums."""
    return exp(s + -reduce("max", k, s))


def less(a: Int, b: Int):
    """a < b of integers; of variables, the operator."""
    return op("lt", a, b) if isinstance(a, Term) else a < b


def inverse(c: Value) -> Value:
    """1/c of a literal's value, in float64; NaN for 0, which has no inverse."""
    return Op("recip", (c,)) if isinstance(c, Term) else 1.0 / c if c else math.nan
