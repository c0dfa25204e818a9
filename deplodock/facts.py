"""Side conditions of laws: facts over analyses of the e-graph, each defined once.

A fact has a name, its meaning, how a rule asks for it (`query`), and, where a ground term can answer, a decision in
Python (`holds`). ANALYSES are the rules that derive facts; what Python knows of axes, indices and predicates it states
as terms are entered (deplodock/predicates.py).

Facts only ever become true: the set of axes that a class depends on shrinks, a relation grows.
"""
from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Callable

import numpy as np

from deplodock import predicates
from deplodock.ir.dtype import Dtype
from deplodock.ir.index import index
from deplodock.ir.loop import dtype
from deplodock.ir.meaning import NUMPY
from deplodock.ir.ops import OPS
from deplodock.law import Condition


@dataclass(frozen=True)
class Fact:
    """`template` is the egglog query, with {0}, {1} .. for the arguments; empty for facts that no rule asks for.

    economy: a law that asks for it would be true without, but would fire where nothing is gained.
    """
    name: str
    meaning: str
    template: str
    decide: Callable[..., bool] | None = None
    economy: bool = False

    def __call__(self, *args) -> Condition:
        return Condition(self, args)

    def query(self, *args: str) -> str:
        return self.template.format(*args)

    def holds(self, *args) -> bool:
        """Whether it holds of ground terms. TypeError for a fact that only an e-graph can decide."""
        if self.decide is None:
            raise TypeError(f"{self.name} is decided by analyses of an e-graph, not on a ground term")
        return self.decide(*args)


lacks = Fact("lacks", "the body does not depend on the axes", "(= (bigint 0) (& (free {1}) (bound {0})))",
             lambda k, b: b.free.isdisjoint(k))
depends = Fact("depends", "the body depends on one of the axes, as far as is known", "(!= (bigint 0) (& (free {1}) (bound {0})))",
               lambda k, b: not b.free.isdisjoint(k), economy=True)
of_dtype = Fact("of_dtype", "the body has the dtype", "(= {1} (dtype {0}))", lambda b, d: dtype(b) == d)
floating = Fact("floating", "a dtype of floats, whose sums do not wrap around", "(floating {0})", lambda d: d.is_float)
float_literals = Fact("float_literals", "a dtype of floats, as the literals that the law makes are", "(floating {0})",
                      lambda d: d.is_float, economy=True)
sixteen_bit = Fact("sixteen_bit", "bf16 or f16", "(sixteen_bit {0})", lambda d: d.is_16bit)
parameter = Fact("parameter", "the body depends on parameters only", "(parameter {0})", economy=True)
given = Fact("given", "an input, a value of parameters only, or a product of such", "(given {0})", economy=True)
few_inputs = Fact("few_inputs", "at most three inputs in both products: n matrices can be grouped in about 4ⁿ ways",
                  "(<= (+ (inputs {0}) (inputs {1})) 3)", economy=True)
few_factors = Fact("few_factors", "the product has at most six factors: n can be grouped in about 3ⁿ ways",
                   "(<= (+ (factors {0}) (+ (factors {1}) (factors {2}))) 6)", economy=True)
worth_factoring = Fact("worth_factoring", "not the literal 0, of which all multiples are equal; at most six factors", "(<= (factors {0}) 6)",
                       economy=True)
finite = Fact("finite", "proved finite, from literals, ranges and integers", "(finite {0})")
assumed_finite = Fact("assumed_finite", "finite if inputs are and nothing overflows; under strict: proved finite",
                      "(assumed {0})")
live = Fact("live", "on every row some value is above −∞, or NaN", "(live {0} {1})")
some_key = Fact("some_key", "the predicate is true for some value of the axes, whatever the others are",
                "(some_key {0} {1})", predicates.some_key)
in_order = Fact("in_order", "the indices are the axes, in order", "(in_order {0} {1})",
                lambda k, i: i == tuple(map(index, k)))
selects = Fact("selects", "the indices {3} are {1} where the axis {0} of extent 2 is 0, and {2} where it is 1",
               "(selects {0} {1} {2} {3})", lambda p, at0, at1, i: predicates.selection(p.axis, at0, at1) == i)
proved = Fact("proved", "the ranges of its sides decide the predicate", "(proved {0} {1})",
              lambda p, truth: predicates.proved(p) == bool(truth))
equivalent = Fact("equivalent", "the same predicate in normal form", "(equivalent {0} {1})",
                  lambda p, q: predicates.normal(p) is q is not p and predicates.proved(p) is None)
atomic = Fact("atomic", "one comparison of indices, neither true nor false at all points", "(atomic {0})",
              lambda p: predicates.comparison(p) is not None and predicates.proved(p) is None, economy=True)
extent = Fact("extent", "the number of points of the axes", "(= {1} (extent {0}))",
              lambda k, n: math.prod(a.extent for a in k) == n)
nonempty = Fact("nonempty", "the axes have a point", "(< 0 (extent {0}))", lambda k: all(a.extent for a in k))
nonzero = Fact("nonzero", "a literal other than 0", "(!= {0} 0.0)", lambda c: c != 0)
representable = Fact("representable", "the dtype holds the literal exactly", "(representable {0} {1})",
                     lambda d, c: _rounded(c, d) == c)
very_low = Fact("very_low", "at most −1e30: any score of usual size, added to it, rounds to it", "(<= {0} -1e30)",
                lambda c: c <= -1e30)
positive = Fact("positive", "a literal above 0", "(> {0} 0.0)", lambda c: c > 0)

covers = Fact("covers", "the points of z and i are those of k, z the outer part", "",
              lambda k, z, i: k.extent == z.extent * i.extent)
divides = Fact("divides", "m divides n", "", lambda m, n: n % m == 0)
at_least = Fact("at_least", "an integer is not below another", "", lambda a, b: a >= b)
below = Fact("below", "an integer is below another", "", lambda a, b: a < b)


def _rounded(c: float, d: Dtype) -> float:
    with np.errstate(over="ignore"):
        return float(np.array(c, NUMPY[d]))


def _names(kind: Callable[[str], bool]) -> list[str]:
    return [n for n in OPS if kind(n)]


_BOUNDED = "sin cos tanh sigmoid erf".split()
_KEEPS = "neg abs sign floor ceil round trunc".split()

FUNCTIONS = {
    "free (Body) BigInt": "(& old new)", "factors (Body) i64": "(max old new)", "inputs (Body) i64": "(min old new)",
    "reads (Indices) BigInt": "(& old new)",
    "bound (i64) BigInt": "", "extent (i64) i64": "", "stored (Tensor) String": "", "dtype (Body) String": "",
}
"""Facts that have a value, and how two values merge; where they may not differ, a conflict stops egglog."""

RELATIONS = """known(Tensor) parameter(Body) given(Body) in_order(i64 Indices) finite(Body) assumed(Body) low(Body)
above(Body) live(i64 Body) some_key(i64 Body) selects(Indices Indices Indices Indices) proved(Body i64)
equivalent(Body Body) atomic(Body) score(Body) max_shifted(Body i64 Body) sixteen_bit(String) gives_b8(String) gives_same(String)
integer(String) bounded(String) keeps(String) floating(String) representable(String f64)"""


def declarations() -> list[str]:
    """The commands that declare facts, and the rows of those that are tables of names."""
    functions = [f"(function {f} {':merge ' + merge if merge else ':no-merge'})" for f, merge in FUNCTIONS.items()]
    relations = [f"(relation {name} ({sorts}))" for name, sorts in re.findall(r"(\w+)\(([^)]*)\)", RELATIONS)]
    return [*functions, *relations, "(ruleset analysis)", *TABLES]


TABLES = [f'({relation} "{n}")' for relation, names in {
    "sixteen_bit": [d for d in Dtype if d.is_16bit], "integer": [d for d in Dtype if not d.is_float],
    "floating": [d for d in Dtype if d.is_float],
    "gives_b8": _names(lambda n: OPS[n].result == "b8"), "gives_same": _names(lambda n: OPS[n].result == "same"),
    "bounded": _BOUNDED, "keeps": _KEEPS}.items() for n in names]

FREE = """
(= e (Load t i)) (= f (reads i)) => (set (free e) f)
(= e (Iota i)) (= f (reads i)) => (set (free e) f)
(= e (Float d v)) => (set (free e) (bigint 0))
(= e (Int d v)) => (set (free e) (bigint 0))
(= e (Op1 o a)) (= f (free a)) => (set (free e) f)
(= e (Op2 o a b)) (= f (free a)) (= g (free b)) => (set (free e) (| f g))
(= e (Op3 o a b c)) (= f (free a)) (= g (free b)) (= h (free c)) => (set (free e) (| f (| g h)))
(= e (Cast d a)) (= f (free a)) => (set (free e) f)
(= e (Round d a)) (= f (free a)) => (set (free e) f)
(= e (Fold1 m k a)) (= f (free a)) (= x (bound k)) => (set (free e) (^ f (& f x)))
(= e (Fold2 m k a b)) (= f (free a)) (= g (free b)) (= x (bound k)) => (set (free e) (^ (| f g) (& (| f g) x)))"""

DTYPE = """
(= e (Load t i)) (= d (stored t)) => (set (dtype e) d)
(= t (Launch k b)) (= d (dtype b)) => (set (stored t) d)
(= e (Iota i)) => (set (dtype e) "i64")
(= e (Float d v)) => (set (dtype e) d)
(= e (Int d v)) => (set (dtype e) d)
(= e (Op1 o a)) (gives_same o) (= d (dtype a)) => (set (dtype e) d)
(= e (Op1 o a)) (gives_b8 o) => (set (dtype e) "b8")
(= e (Op2 o a b)) (gives_same o) (= d (dtype b)) => (set (dtype e) d)
(= e (Op2 o a b)) (gives_b8 o) => (set (dtype e) "b8")
(= e (Op3 o a b c)) (= d (dtype c)) => (set (dtype e) d)
(= e (Cast d a)) => (set (dtype e) d)
(= e (Round d a)) (= x (dtype a)) => (set (dtype e) x)
(= e (Fold1 m k a)) (!= m "argmax.1") (!= m "argmin.1") (= d (dtype a)) => (set (dtype e) d)
(= e (Fold1 "argmax.1" k a)) => (set (dtype e) "i64")
(= e (Fold1 "argmin.1" k a)) => (set (dtype e) "i64")
(= e (Fold2 m k a b)) (= d (dtype b)) => (set (dtype e) d)"""

PARAMETER = """
(= e (Load t (At i))) (known t) => (parameter e)
(= t (Launch k b)) (parameter b) => (known t)
(= e (Float d v)) => (parameter e)
(= e (Int d v)) => (parameter e)
(= e (Iota (At i))) => (parameter e)
(= e (Op1 o a)) (parameter a) => (parameter e)
(= e (Op2 o a b)) (parameter a) (parameter b) => (parameter e)
(= e (Op3 o a b c)) (parameter a) (parameter b) (parameter c) => (parameter e)
(= e (Cast d a)) (parameter a) => (parameter e)
(= e (Round d a)) (parameter a) => (parameter e)
(= e (Fold1 m k a)) (parameter a) => (parameter e)
(= e (Fold2 m k a b)) (parameter a) (parameter b) => (parameter e)
(parameter e) => (given e)
(= e (Load (Buffer n) i)) => (given e)
(= e (Cast d a)) (given a) => (given e)
(= e (Fold1 "sum" k (Op2 "mul" a b))) (given a) (given b) => (given e)"""

# Inputs in a product of products of what is given; a value of parameters only counts as none.
INPUTS = """
(parameter e) => (set (inputs e) 0)
(= e (Load (Buffer n) i)) => (set (inputs e) 1)
(= e (Cast d a)) (= x (inputs a)) => (set (inputs e) x)
(= e (Fold1 "sum" k (Op2 "mul" a b))) (= x (inputs a)) (= y (inputs b)) => (set (inputs e) (+ x y))"""

# Factors of a product, counted up to 7; 1 is none, as a·1 = a would count without end; 0 is all that fit, as a·0 = b·0.
FACTORS = """
(= e (Load t i)) => (set (factors e) 1)
(= e (Iota i)) => (set (factors e) 1)
(= e (Float d 1.0)) => (set (factors e) 0)
(= e (Float d v)) (!= v 1.0) => (set (factors e) 1)
(= e (Float d 0.0)) => (set (factors e) 7)
(= e (Int d v)) => (set (factors e) 0)
(= e (Op1 o a)) => (set (factors e) 1)
(= e (Op2 o a b)) (!= o "mul") => (set (factors e) 1)
(= e (Op2 "mul" a b)) (= x (factors a)) (= y (factors b)) => (set (factors e) (min 7 (+ x y)))
(= e (Op3 o a b c)) => (set (factors e) 1)
(= e (Cast d a)) => (set (factors e) 1)
(= e (Round d a)) => (set (factors e) 1)
(= e (Fold1 m k a)) => (set (factors e) 1)
(= e (Fold2 m k a b)) => (set (factors e) 1)"""

# `above`: NaN, or greater than −∞. Arithmetic is left out, as it may overflow.
PROVED = """
(= e (Float d v)) (< v inf) (> v -inf) => (finite e)
(= e (Int d v)) => (finite e)
(= e (Iota i)) => (finite e)
(= e (Op1 o a)) (keeps o) (finite a) => (finite e)
(= e (Op1 o a)) (bounded o) (finite a) => (finite e)
(= e (Op3 "where" p a b)) (finite a) (finite b) => (finite e)
(= e (Cast d a)) (!= d "f16") (= x (dtype a)) (integer x) => (finite e)
(= e (Load (Launch k b) i)) (finite b) => (finite e)
(finite e) => (above e)
(= e (Op1 o a)) (bounded o) => (above e)
(= e (Op1 "exp" a)) => (above e)
(= e (Op1 "abs" a)) => (above e)
(= e (Op3 "where" p a b)) (above a) (above b) => (above e)
(= e (Load (Launch k b) i)) (above b) => (above e)
(= e (Fold1 "max" k s)) (above s) => (live k s)
(= e (Fold1 "max" k s)) (= s (Op3 "where" p a b)) (some_key k p) (above a) => (live k s)
(= e (Op1 "exp" (Op2 "add" s (Op1 "neg" (Fold1 "max" k s))))) => (max_shifted e k s)
(finite e) => (assumed e)"""

# `low`: assumed finite, or −∞ where a mask says so. `score`: made of sums, which no mask is, so that it is finite if all
# inputs but masks are.
ASSUMED = """
(= e (Load (Buffer n) i)) => (assumed e)
(= e (Load (Launch k b) i)) (assumed b) => (assumed e)
(= e (Op1 o a)) (assumed a) => (assumed e)
(= e (Op1 "exp" a)) (low a) => (assumed e)
(= e (Op2 o a b)) (assumed a) (assumed b) => (assumed e)
(= e (Op3 "where" p a b)) (assumed a) (assumed b) => (assumed e)
(= e (Cast d a)) (assumed a) => (assumed e)
(= e (Round d a)) (assumed a) => (assumed e)
(= e (Fold1 m k a)) (assumed a) => (assumed e)
(= e (Fold1 "max" k s)) (= s (Op3 "where" p a b)) (some_key k p) (assumed a) (low b) => (assumed e)
(assumed e) => (low e)
(= e (Float d v)) (< v inf) => (low e)
(= e (Load (Launch k b) i)) (low b) => (low e)
(= e (Op2 "add" a b)) (low a) (low b) => (low e)
(= e (Op3 "where" p a b)) (low a) (low b) => (low e)
(= e (Cast d a)) (low a) => (low e)
(= e (Fold1 "sum" k a)) (assumed a) => (score e)
(= e (Load (Launch k b) i)) (score b) => (score e)
(= e (Op2 "mul" a b)) (score a) (finite b) => (score e)
(= e (Op2 "mul" a b)) (score b) (finite a) => (score e)
(= e (Cast d a)) (score a) => (score e)
(= e (Round d a)) (score a) => (score e)
(= e (Fold1 "max" k s)) (= s (Op3 "where" p a b)) (some_key k p) (score a) => (live k s)
(= e (Fold1 "max" k s)) (= s (Op3 "where" p a b)) (= q (Op1 "not" p)) (some_key k q) (score b) => (live k s)"""


def analyses(numerics: str) -> list[str]:
    """The rules that derive facts, in a numerics mode: strict assumes nothing."""
    text = FREE + DTYPE + PARAMETER + INPUTS + FACTORS + PROVED + ("" if numerics == "strict" else ASSUMED)
    rules = (line.split(" => ") for line in text.splitlines() if line)
    return [f"(rule ({when}) ({then}) :ruleset analysis)" for when, then in rules]
