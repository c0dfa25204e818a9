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
"""
from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Iterable, Iterator

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, FloorDiv, Gathered, Index, Mod, index
from deplodock.ir.ops import OPS
from deplodock.ir.term import Term

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

    @cached_property
    def free(self) -> frozenset[Axis]:
        return frozenset(a for b in self.bodies for a in b.free) - frozenset(self.axes)


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
