"""Axes and indices of Loop IR (its grammar: ir/loop.py). Indices are kept in an affine normal form as they are built."""
from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from deplodock.ir.term import Term

if TYPE_CHECKING:
    from deplodock.ir.loop import Body


@dataclass(frozen=True, eq=False, repr=False)
class Axis(Term):
    """A named loop axis of `extent` iterations. Primes tell axes of one dimension class apart."""
    name: str
    extent: int

    @cached_property
    def free(self) -> frozenset[Axis]:
        return frozenset((self,))

    @property
    def base(self) -> Axis:
        """The first axis of this axis's class: the name without primes."""
        return Axis(self.name.rstrip("'"), self.extent)

    def primed(self, n: int) -> Axis:
        return Axis(self.name + "'" * n, self.extent)

    def __add__(self, other): return index(self) + other
    def __sub__(self, other): return index(self) - other
    def __mul__(self, n: int): return index(self) * n
    def __floordiv__(self, n: int): return index(self) // n
    def __mod__(self, n: int): return index(self) % n
    def __neg__(self): return index(self) * -1


@dataclass(frozen=True, eq=False, repr=False)
class FloorDiv(Term):
    """An atom: index // divisor, rounded towards minus infinity; divisor > 0."""
    index: Index
    divisor: int


@dataclass(frozen=True, eq=False, repr=False)
class Mod(Term):
    """An atom: index mod divisor, in 0 .. divisor - 1; divisor > 0."""
    index: Index
    divisor: int


@dataclass(frozen=True, eq=False, repr=False)
class Gathered(Term):
    """An atom: an integer loaded from memory, used as an index. `extent` bounds it: 0 <= value < extent is checked at run time."""
    body: Body
    extent: int


@dataclass(frozen=True, eq=False, repr=False)
class Index(Term):
    """const + sum of coefficient * atom, atoms distinct and in key order. Make one with index() and arithmetic."""
    terms: tuple[tuple[Term, int], ...]
    const: int

    @property
    def axis(self) -> Axis | None:
        """The axis, where this index is one axis and nothing else."""
        match self:
            case Index(((Axis() as a, 1),), 0):
                return a
        return None

    @property
    def is_const(self) -> bool:
        return not self.terms

    @cached_property
    def range(self) -> tuple[float, float]:
        """The least and the greatest value over all values of the axes (inclusive)."""
        lo = hi = self.const
        for atom, c in self.terms:
            a, b = _atom_range(atom)
            lo, hi = lo + min(c * a, c * b), hi + max(c * a, c * b)
        return lo, hi

    def __add__(self, other) -> Index:
        other = index(other)
        total: dict[Term, int] = {}
        for atom, c in self.terms + other.terms:
            total[atom] = total.get(atom, 0) + c
        return _affine(total, self.const + other.const)

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other) -> Index:
        return self + index(other) * -1

    def __rsub__(self, other) -> Index:
        return index(other) - self

    def __radd__(self, other) -> Index:
        return self + other

    def __mul__(self, n: int) -> Index:
        return _affine({a: c * n for a, c in self.terms}, self.const * n)

    __rmul__ = __mul__

    def _split(self, n: int) -> tuple[Index, Index]:
        """(q, r) with self = q*n + r: q gathers all that n divides."""
        q = _affine({a: c // n for a, c in self.terms if c % n == 0}, self.const // n)
        r = _affine({a: c for a, c in self.terms if c % n}, self.const % n)
        return q, r

    def __floordiv__(self, n: int) -> Index:
        """Rounds towards minus infinity. Laws div_exact, div_add, div_small, div_div of rules/size.py, applied as it is built."""
        if n == 1:
            return self
        q, r = self._split(n)
        lo, hi = r.range
        if lo >= 0 and hi < n:
            return q
        match r:
            case Index(((FloorDiv(inner, m), 1),), 0):
                return q + inner // (n * m)
        return q + Index(((FloorDiv(r, n), 1),), 0)

    def __mod__(self, n: int) -> Index:
        """In 0 .. n - 1. Laws mod_add, mod_small, mod_mod of rules/size.py, applied as it is built."""
        if n == 1:
            return index(0)
        _, r = self._split(n)
        lo, hi = r.range
        if lo >= 0 and hi < n:
            return r
        match r:
            case Index(((Mod(inner, m), 1),), 0) if m % n == 0:
                return inner % n
        return Index(((Mod(r, n), 1),), 0)


def _affine(total: dict[Term, int], const: int) -> Index:
    terms = sorted(((a, c) for a, c in total.items() if c and not (isinstance(a, Axis) and a.extent == 1)),
                   key=lambda t: (isinstance(t[0], Axis) and t[0].name or "~", t[0].key))
    return Index(tuple(terms), const)


def _atom_range(atom: Term) -> tuple[float, float]:
    match atom:
        case Axis(_, n): return 0, max(n - 1, 0)
        case Gathered(_, n): return 0, max(n - 1, 0)
        case Mod(_, n): return 0, n - 1
        case FloorDiv(i, n):
            lo, hi = i.range
            return lo // n, hi // n
    return -math.inf, math.inf


def index(value: Index | Axis | Term | int) -> Index:
    """An Index of an axis, an atom, or an integer. An axis of extent 1 is the constant 0."""
    if isinstance(value, Index):
        return value
    if isinstance(value, int):
        return Index((), value)
    return _affine({value: 1}, 0)
