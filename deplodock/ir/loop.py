"""Loop IR: what a kernel computes, as scalar expressions inside loops over named axes.

    Axis   = name, extent                                       a loop axis; C' and C'' are the second and third of class C
    Index  = sum of coefficient * Atom, + constant              affine normal form, made by index()
    Atom   = Axis | floordiv(Index, n) | mod(Index, n) | gathered(Body)
    Tensor = Buffer(name, dtype, axes, kind)                    storage that has a name: input, parameter, constant ..
           | Launch(axes, Body)                                 the tensor that one loop nest materialises
    Body   = Load(Tensor, (Index ..)) | Const(dtype, value) | Iota(Index)
           | Op(name, (Body ..))                                pointwise, `where` and comparisons included (ir/ops.py)
           | Cast(dtype, Body) | RoundTo(dtype, Body)
           | Fold(monoid, (Axis ..), (Body ..), part)           a reduction over axes; part selects a component of its result

    monoids: sum(x) max(x) min(x) prod(x) any(x) all(x); argmax(x), argmin(x): part 0 the value, 1 the index (row-major
    over the axes); online(s, v): part 0 is m = max s, part 1 is sum of exp(s - m) * v, 0 where every s is -inf

    Var(name, sort)       a pattern variable of a law, where a term of that sort may stand
    Ref(number, free)     a class of an e-graph, where a Body or a Tensor may stand (ir/egraph.py)

Broadcasting is the absence of an axis, a transpose is an order of names, and no strides exist at this level: element
order is row-major in the axes of a Buffer or a Launch. Arithmetic on 16-bit floats does not exist: bodies load, cast to
f32, compute, and cast once at the root, so every rounding is a node.

A load outside of its tensor is 0: what is read under a condition may be asked for where the condition fails.

Terms are hash-consed: equal terms are one object, so equality is identity, and shared subterms are stored once. `key`
is a digest of the structure, the same in every process: sort by it wherever an order can reach the output.
"""
from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Iterable, Iterator
from weakref import WeakValueDictionary

from deplodock.ir.dtype import Dtype
from deplodock.ir.ops import OPS

_TABLE: WeakValueDictionary[tuple, "Term"] = WeakValueDictionary()


def _exact(value):
    """A hash key that tells 1 from 1.0 from True, 0.0 from -0.0, and knows a NaN again."""
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return value if isinstance(value, (Term, str, frozenset)) else (type(value), repr(value))


class _HashConsing(type):
    def __call__(cls, *args):
        key = (cls, _exact(args))
        term = _TABLE.get(key)
        if term is None:
            term = super().__call__(*args)
            term = _TABLE.setdefault(key, term)
        return term


@dataclass(frozen=True, eq=False)
class Term(metaclass=_HashConsing):
    """Base of all terms. Positional construction only; equality is identity."""

    @cached_property
    def key(self) -> str:
        """A digest of the structure: 16 hexadecimal digits, stable across processes."""
        def part(value) -> str:
            if isinstance(value, tuple):
                return "(" + ",".join(map(part, value)) + ")"
            return value.key if isinstance(value, Term) else repr(value)
        text = type(self).__name__ + ":" + ";".join(part(getattr(self, f.name)) for f in fields(self))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @cached_property
    def free(self) -> frozenset[Axis]:
        """The axes this term depends on: those in it that no Fold or Launch of it binds."""
        found = frozenset(a for c in _terms(self) for a in c.free)
        return found - frozenset(self.axes) if isinstance(self, Fold) else found

    def __str__(self) -> str:
        from deplodock.ir.show import show
        return show(self)

    __repr__ = __str__

    def __lt__(self, other: Term) -> bool:
        return self.key < other.key

    def __reduce__(self):
        """Terms are pickled and copied as calls of their constructor, so that what comes back is hash-consed too."""
        return type(self), tuple(getattr(self, f.name) for f in fields(self))


def _terms(t: Term) -> Iterator[Term]:
    for f in fields(t):
        stack = [getattr(t, f.name)]
        while stack:
            v = stack.pop()
            if isinstance(v, tuple):
                stack.extend(v)
            elif isinstance(v, Term):
                yield v


# ---- axes and indices ------------------------------------------------------------------------------------------------

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


# ---- tensors ---------------------------------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False, repr=False)
class Buffer(Term):
    """Storage with a name. `axes` are its dimensions, factored, slowest first.

    kind: input | parameter | constant (computed once, from parameters) | stored (an intermediate) | output
    """
    name: str
    dtype: Dtype
    axes: tuple[Axis, ...]
    kind: str

    @cached_property
    def free(self) -> frozenset[Axis]:
        return frozenset()


@dataclass(frozen=True, eq=False, repr=False)
class Launch(Term):
    """The tensor that a loop nest over `axes` (slowest first) materialises, one element of `body` at each point."""
    axes: tuple[Axis, ...]
    body: Body

    @cached_property
    def free(self) -> frozenset[Axis]:
        return frozenset()

    @property
    def dtype(self) -> Dtype:
        return dtype(self.body)


Tensor = Buffer | Launch


# ---- bodies ----------------------------------------------------------------------------------------------------------

class BodyOperators:
    """Infix forms for laws and definitions: `a * b` is Op("mul", (a, b)). Both operands are bodies of one dtype."""

    def __add__(self, o): return op("add", self, o)
    def __sub__(self, o): return op("sub", self, o)
    def __mul__(self, o): return op("mul", self, o)
    def __truediv__(self, o): return op("div", self, o)
    def __floordiv__(self, o): return op("floordiv", self, o)
    def __mod__(self, o): return op("remainder", self, o)
    def __neg__(self): return op("neg", self)


@dataclass(frozen=True, eq=False, repr=False)
class Load(Term, BodyOperators):
    tensor: Term
    indices: tuple[Index, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Const(Term, BodyOperators):
    """A literal: a float for floating dtypes, an int for integers, a bool for b8. Make one with const()."""
    dtype: Dtype
    value: float | int | bool


@dataclass(frozen=True, eq=False, repr=False)
class Iota(Term, BodyOperators):
    """The value of an index, as i64."""
    index: Index


@dataclass(frozen=True, eq=False, repr=False)
class Op(Term, BodyOperators):
    name: str
    args: tuple[Body, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Cast(Term, BodyOperators):
    dtype: Dtype
    body: Body


@dataclass(frozen=True, eq=False, repr=False)
class RoundTo(Term, BodyOperators):
    """body rounded to a narrower dtype and back: a rounding that a discrete operator sees, in every numerics mode."""
    dtype: Dtype
    body: Body


@dataclass(frozen=True, eq=False, repr=False)
class Fold(Term, BodyOperators):
    """A reduction over `axes` by a monoid; see the head of the file. Make one with fold(), which names its binders."""
    monoid: str
    axes: tuple[Axis, ...]
    bodies: tuple[Body, ...]
    part: int


@dataclass(frozen=True, eq=False, repr=False)
class Var(Term, BodyOperators):
    """A pattern variable of a law; `sort` is Body, Tensor, Axis, Axes, Index, Indices, Dtype, Value, Pred or Monoid."""
    name: str
    sort: str


@dataclass(frozen=True, eq=False, repr=False)
class Ref(Term, BodyOperators):
    """A class of an e-graph standing for any of its members; `axes` are those that every member depends on."""
    number: int
    axes: frozenset[Axis]

    @cached_property
    def key(self) -> str:
        return f"ref{self.number}"

    @cached_property
    def free(self) -> frozenset[Axis]:
        return self.axes


Body = Load | Const | Iota | Op | Cast | RoundTo | Fold | Var | Ref
PARTS = {"sum": 1, "max": 1, "min": 1, "prod": 1, "any": 1, "all": 1, "argmax": 2, "argmin": 2, "online": 2}
"""Monoids and the number of components of their result."""


def const(dtype: Dtype, value) -> Const:
    """A literal of a dtype: the value is converted to the Python type that the dtype calls for."""
    if dtype == Dtype.b8:
        return Const(dtype, bool(value))
    return Const(dtype, float(value) if dtype.is_float else int(value))


def op(name: str, *args: Body) -> Op:
    if name not in OPS:
        raise KeyError(f"no pointwise operator is called {name!r}: see deplodock/ir/ops.py")
    if len(args) != OPS[name].arity:
        raise TypeError(f"{name} takes {OPS[name].arity} operands, got {len(args)}")
    return Op(name, args)


def where(cond: Body, a: Body, b: Body) -> Op: return op("where", cond, a, b)
def exp(a: Body) -> Op: return op("exp", a)
def recip(a: Body) -> Op: return op("recip", a)
def rsqrt(a: Body) -> Op: return op("rsqrt", a)


def cast(d: Dtype, body: Body) -> Body:
    """body as dtype d; the body itself where it has that dtype already."""
    return body if not isinstance(body, (Var, Ref)) and not isinstance(d, Var) and dtype(body) == d else Cast(d, body)


def load(tensor: Tensor, *indices: Index | Axis | int) -> Load:
    """tensor[indices], one index for each of its axes."""
    return Load(tensor, tuple(map(index, indices)))


def inside(i: Index, n: int) -> tuple[Op, ...]:
    """The comparisons that say 0 <= i < n, without those that are true for all values of the axes."""
    lo, hi = i.range
    return ((op("le", const(Dtype.i64, 0), Iota(i)),) if lo < 0 else ()) + (
        (op("lt", Iota(i), const(Dtype.i64, n)),) if hi >= n else ())


_DTYPES: dict[Term, Dtype] = {}


def dtype(t: Term) -> Dtype:
    """The dtype of a body or a tensor."""
    match t:
        case Buffer(): return t.dtype
        case Launch(): return dtype(t.body)
        case Load(): return dtype(t.tensor)
        case Const(): return t.dtype
        case Iota(): return Dtype.i64
        case Cast(): return t.dtype
        case RoundTo(): return dtype(t.body)
        case Fold("argmax" | "argmin", _, bodies, part): return Dtype.i64 if part else dtype(bodies[0])
        case Fold(_, _, bodies, _): return dtype(bodies[-1])
        case Op(name, args):
            kind = OPS[name].result
            return Dtype.b8 if kind == "b8" else dtype(args[-1])
    own = getattr(t, "dtype", None)  # terms of Tensor IR, which loads may read while a program is entered
    if isinstance(own, Dtype):
        return own
    raise TypeError(f"{type(t).__name__} has no dtype of its own")


def children(b: Body) -> tuple[Body, ...]:
    """The bodies directly inside a body (those inside its indices are not among them: see gathers())."""
    match b:
        case Op(): return b.args
        case Cast() | RoundTo(): return (b.body,)
        case Fold(): return b.bodies
    return ()


def rebuilt(b: Body, parts: Iterable[Body]) -> Body:
    """b with other children, in the order of children(b)."""
    parts = tuple(parts)
    match b:
        case Op(): return Op(b.name, parts)
        case Cast(): return Cast(b.dtype, *parts)
        case RoundTo(): return RoundTo(b.dtype, *parts)
        case Fold(): return Fold(b.monoid, b.axes, parts, b.part)
    return b


def gathers(indices: Iterable[Index]) -> Iterator[Body]:
    """The bodies of loaded integers inside indices."""
    for i in indices:
        for atom, _ in i.terms:
            match atom:
                case Gathered(): yield atom.body
                case FloorDiv() | Mod(): yield from gathers((atom.index,))


def loads(b: Body) -> Iterator[Load]:
    """Every distinct load in a body, those of loaded indices among them; not those inside the launches it reads."""
    seen: set[Term] = set()
    stack = [b]
    while stack:
        t = stack.pop()
        if t in seen:
            continue
        seen.add(t)
        if isinstance(t, Load):
            yield t
            stack.extend(gathers(t.indices))
        if isinstance(t, Iota):
            stack.extend(gathers((t.index,)))
        stack.extend(reversed(children(t)))


# ---- names and substitution ------------------------------------------------------------------------------------------

def pick(axes: Iterable[Axis], avoid: Iterable[Axis]) -> tuple[Axis, ...]:
    """Names for axes: each the first of C, C', C'' .. of its class that is neither in `avoid` nor taken by one before it."""
    taken, out = set(avoid), []
    for a in axes:
        base = a.base
        new = next(p for n in itertools.count() if (p := base.primed(n)) not in taken)
        taken.add(new)
        out.append(new)
    return tuple(out)


def fold(monoid: str, axes: Iterable[Axis], bodies: Iterable[Body], part: int = 0) -> Body:
    """A Fold whose binders have their canonical names: the first of their class that is not free in the rest of the bodies.

    Axes of extent 1 are not folded: they are index 0. A fold over no axis is its body (for a sum, a max ..).
    """
    axes, bodies = tuple(axes), tuple(bodies)
    ones = [a for a in axes if a.extent == 1]
    if ones:
        bodies = tuple(subst(b, {a: index(0) for a in ones}) for b in bodies)
        axes = tuple(a for a in axes if a.extent != 1)
    if not axes and PARTS[monoid] == 1:
        return bodies[0]
    rest = frozenset().union(*(b.free for b in bodies)) - set(axes)
    new = pick(axes, rest)
    if new != axes:
        bodies = tuple(subst(b, dict(zip(axes, map(index, new)))) for b in bodies)
    return Fold(monoid, new, bodies, part)


def subst(t: Term, to: dict[Axis, Index]) -> Term:
    """t with indices in place of free axes, avoiding capture by renaming binders. Launches are closed: it stops there."""
    return _Substitution({a: index(i) for a, i in to.items()}).term(t)


class _Substitution:
    def __init__(self, to: dict[Axis, Index]):
        self.to, self.memo = {a: i for a, i in to.items() if i.axis is not a}, {}

    def term(self, t: Term) -> Term:
        if not self.to or t.free.isdisjoint(self.to):
            return t
        if t not in self.memo:
            self.memo[t] = self._term(t)
        return self.memo[t]

    def _term(self, t: Term) -> Term:
        match t:
            case Index(): return self.index(t)
            case Load(): return Load(t.tensor, tuple(map(self.index, t.indices)))
            case Iota(): return Iota(self.index(t.index))
            case Fold():
                to = {a: i for a, i in self.to.items() if a not in t.axes and a in t.free}
                rest = frozenset().union(*(to[a].free if a in to else frozenset((a,)) for a in t.free))
                new = pick(t.axes, rest)
                inner = _Substitution({**to, **dict(zip(t.axes, map(index, new)))})
                return Fold(t.monoid, new, tuple(map(inner.term, t.bodies)), t.part)
        return rebuilt(t, map(self.term, children(t)))

    def index(self, i: Index) -> Index:
        out = index(i.const)
        for atom, c in i.terms:
            out = out + self.atom(atom) * c
        return out

    def atom(self, a: Term) -> Index:
        match a:
            case Axis(): return self.to.get(a, index(a))
            case FloorDiv(i, n): return self.index(i) // n
            case Mod(i, n): return self.index(i) % n
            case Gathered(b, n): return index(Gathered(self.within(b), n))
        return index(a)

    def within(self, b: Body) -> Body:
        """A loaded index, 0 where it is asked for outside of the axes that it is defined over: there it is no index."""
        out = self.term(b)
        for a in sorted(b.free):
            if isinstance(a, Axis) and a in self.to:
                for test in inside(self.to[a], a.extent):
                    out = where(test, out, const(dtype(out), 0))
        return out
