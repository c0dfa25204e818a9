"""The loop structure of a kernel's body: its folds form a DAG, and relative to each consumer a fold is

    before   it does not depend on the consumer's loop: an earlier sweep computes it, and the tile of it is kept; inside
    it depends on it: computed chunk by chunk in the consumer's loop, as attention's first product is; sibling  it runs
    in the same loop: same extents, and they read something in common, as statistics beside a product do.

A fold that equals another mirrored along a tile axis (rotate-half) is that other one, read through an exchange. All of
this is read off free axes, never chosen, and never off which operator a body spells. Facts are memoised on the terms.
"""
from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import Callable, Iterable, TypeVar

import numpy as np

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, Index, index
from deplodock.ir.loop import (Buffer, Cast, Const, Fold, Iota, Load, Op, RoundTo, children, dtype, fold, gathers,
                               rebuilt, subst)
from deplodock.ir.meaning import Meaning
from deplodock.ir.term import Term

COLUMNS = 256
"""Columns that one block's tile can hold: the widest accumulator of a block with 64 rows (64 KiB of registers in f32).
"""
SPECIAL = frozenset("""exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh
    atanh sigmoid erf erfc lgamma hypot rsqrt sqrt recip div pow""".split())
"""Pointwise operators that run on the special-function unit."""

F = TypeVar("F", bound=Callable)


def _of_term(f: F) -> F:
    """Memoises a function of one term on the term itself, so that the memo lives exactly as long."""
    name = f"extract.{f.__name__}"

    def memoised(t):
        known = t.__dict__
        if name not in known:
            known[name] = f(t)
        return known[name]
    memoised.__doc__, memoised.__name__ = f.__doc__, f.__name__
    return memoised


@lru_cache(maxsize=1 << 15)
def volume(axes: frozenset[Axis] | tuple[Axis, ...]) -> int:
    """The number of points of a loop nest over axes."""
    return math.prod(a.extent for a in axes)


# ---- building bodies -------------------------------------------------------------------------------------------------

def chain(t: Term, name: str) -> list[Term]:
    """The operands of nested applications of one associative operator: a * (b * c) has three."""
    if isinstance(t, Op) and t.name == name:
        return [x for a in t.args for x in chain(a, name)]
    return [t]


@_of_term
def place(t: Term) -> tuple:
    """Where a term goes among the operands of a sum or a product: by its form, then by the places of the buffers that
    it reads, and by names only where nothing else tells two apart. Equal layers of a program come out equal that way.
    """
    return len(t.free), _form(t), _buffers(t), t.key


@_of_term
def _form(t: Term) -> str:
    """A digest of a term in which buffers are known by dtype and extents, axes by their extents."""
    def part(x) -> str:
        match x:
            case Axis(): return f"a{x.extent}"
            case Buffer(): return f"{x.dtype}{[a.extent for a in x.axes]}"
            case Term(): return _form(x)
            case tuple(): return f"({','.join(map(part, x))})"
        return repr(x)
    text = f"{type(t).__name__}:{';'.join(part(getattr(t, f.name)) for f in fields(t))}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@_of_term
def _buffers(t: Term) -> tuple[tuple[str, int], ...]:
    """The buffers that a body reads, in order: kind and number of each."""
    if isinstance(t, Load):
        name = t.tensor.name.rstrip("0123456789")
        return (name, int(t.tensor.name[len(name):] or -1)),
    return tuple(x for c in children(t) for x in _buffers(c))


def _less_maximum(t: Term) -> bool:
    return isinstance(t, Op) and t.name == "neg" and any(f.monoid == "max" for f in tops(t))


def product_of(factors: Iterable[Term], name: str = "mul") -> Term:
    """Operands of `mul` or `add` in their canonical order, which makes equal bodies one term. A maximum that is subtracted
    comes last: a + b - max(a + b) has the rounding of a + b twice, and loses it."""
    first, *rest = sorted(factors, key=lambda f: (_less_maximum(f), place(f)))
    for f in rest:
        first = Op(name, (first, f))
    return first


def assemble(node: Term, parts: tuple[Term, ...]) -> Term:
    """`node` with other children, in canonical form: sums and products sorted, binders named by fold()."""
    match node:
        case Op("mul" | "add" as name):
            return product_of([x for p in parts for x in chain(p, name)], name)
        case Fold():
            made = fold(node.monoid, node.axes, parts, node.part)
            return made if not isinstance(made, Fold) or made.bodies == parts else canonical(made)
        case Cast(d, _):
            return parts[0] if dtype(parts[0]) == d else Cast(d, parts[0])
    return rebuilt(node, parts)


def canonical(t: Term) -> Term:
    """A body rebuilt in canonical form from the leaves up."""
    below = children(t)
    return assemble(t, tuple(map(canonical, below))) if below else t


# ---- folds, points and leaves ----------------------------------------------------------------------------------------

@_of_term
def tops(t: Term) -> tuple[Fold, ...]:
    """The folds of a body that are under no other fold, in order of appearance."""
    if isinstance(t, Fold):
        return (t,)
    return tuple(dict.fromkeys(f for c in children(t) for f in tops(c)))


@_of_term
def inner(f: Fold) -> tuple[Fold, ...]:
    """The folds directly below a fold."""
    return tuple(dict.fromkeys(g for b in f.bodies for g in tops(b)))


@_of_term
def folds(t: Term) -> frozenset[Fold]:
    """All folds of a body."""
    return frozenset(f for g in tops(t) for f in (g, *(h for b in g.bodies for h in folds(b))))


@_of_term
def leaves(t: Term) -> frozenset[Load]:
    """All loads of a body, those of loaded indices among them."""
    held = t.indices if isinstance(t, Load) else (t.index,) if isinstance(t, Iota) else ()
    below = [leaves(c) for c in (*children(t), *gathers(held))]
    found = below[0] if len(below) == 1 else frozenset().union(*below)
    return found | {t} if isinstance(t, Load) else found


@_of_term
def pointwise(t: Term) -> tuple[Term, ...]:
    """The distinct operators of a body outside its folds: each is computed once a point, however often it is used."""
    if isinstance(t, Fold):
        return ()
    below = dict.fromkeys(p for c in children(t) for p in pointwise(c))
    return (*below, t) if isinstance(t, (Op, Cast, RoundTo)) else tuple(below)


Work = tuple[Term, frozenset[Axis], bool]
"""(what is computed, the axes that it is computed over, whether by the special-function unit)."""


@_of_term
def points(t: Term) -> tuple[Work, ...]:
    """The operators of a body outside its folds, but for those that cost nothing."""
    return tuple((p, p.free, isinstance(p, Op) and p.name in SPECIAL) for p in pointwise(t) if not _free_of_charge(p))


def _free_of_charge(t: Term) -> bool:
    """Widening a 16-bit float, and negation, which is a modifier of the instruction that reads it."""
    match t:
        case Cast(Dtype.f32, b): return dtype(b).is_16bit
        case Op("neg"): return True
    return False


@_of_term
def operands(f: Fold) -> tuple[Work, ...]:
    """The operators that a fold's loop runs at each point; the multiplication of a product is the product's own. An
    online fold's exponential goes by what it is taken of, so that folds over the same scores share it.
    """
    own = f.bodies[0] if f.monoid == "sum" and product(f) else None
    total = {w[0]: w for b in f.bodies for w in points(b) if w[0] is not own}
    if f.monoid == "online" and f.part == 1:
        s = f.bodies[0]
        marker = Op("exp", (s,))
        total[marker] = marker, s.free, True
    return tuple(total.values())


# ---- products --------------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Product:
    """A fold that is a matrix product: two groups of factors, each with the fold's axes and with axes of its own.

    left, right: the factors; an online fold's left group is empty, it is the exponential. rows, columns: the own axes.
    mma: both operands are 16 bits wide, as a tensor core takes them. prologue: an operand is computed, not only loaded.
    """
    left: tuple[Term, ...]
    right: tuple[Term, ...]
    rows: frozenset[Axis]
    columns: frozenset[Axis]
    mma: bool
    prologue: bool


@_of_term
def product(f: Fold) -> Product | None:
    """How a fold is a matrix product, or None."""
    X, free = frozenset(f.axes), f.free
    if f.monoid == "sum":
        factors = chain(f.bodies[0], "mul")
    elif f.monoid == "online" and f.part == 1 and not isinstance(f.bodies[1], Const):
        factors = [f.bodies[0], *chain(f.bodies[1], "mul")]
    else:
        return None
    for a, b in itertools.combinations(factors, 2):
        rows, columns = (a.free & free) - b.free, (b.free & free) - a.free
        if not (rows and columns and X <= a.free and X <= b.free):
            continue
        if any(c.free & rows and c.free & columns for c in factors):
            continue
        return _grouped(f, factors, rows, columns)
    return None


def _grouped(f: Fold, factors: list[Term], rows: frozenset[Axis], columns: frozenset[Axis]) -> Product:
    left = [c for c in factors if c.free & rows]
    right = [c for c in factors if c.free & columns]
    rest = [c for c in factors if not c.free & (rows | columns)]
    # What belongs to neither side (a scale of the fold's axis) goes where an operand is computed anyway, else to the
    # smaller side.
    bare = [len(side) == 1 and narrow(side[0]) is not None for side in (left, right)]
    aside = left if bare == [False, True] else right if bare == [True, False] else min(
        (left, right), key=lambda side: volume(frozenset().union(*(c.free for c in side))))
    aside.extend(rest)
    if f.monoid == "online":
        # The exponential is rounded to the payload's dtype on its way into the product.
        mma = len(right if f.bodies[0] in left else left) == 1 and narrow(f.bodies[1]) is not None
        return Product(tuple(left), tuple(right), rows, columns, mma, True)
    mma = len(left) == len(right) == 1 and narrow(left[0]) is not None and narrow(left[0]) == narrow(right[0])
    prologue = any(len(side) > 1 or points(side[0]) for side in (left, right))
    return Product(tuple(left), tuple(right), rows, columns, mma, prologue)


def narrow(t: Term) -> Dtype | None:
    """The 16-bit dtype that holds a body exactly, where the body says so: cast(f32, a 16-bit value)."""
    match t:
        case Cast(Dtype.f32, b) if dtype(b).is_16bit:
            return dtype(b)
    return None


@_of_term
def nest(t: Term) -> int:
    """How many products of a body lie inside each other."""
    return max(((product(f) is not None) + max(map(nest, f.bodies)) for f in tops(t)), default=0)


# ---- mirrors ---------------------------------------------------------------------------------------------------------

def mirrored(i: Index) -> Axis | None:
    """The axis that an index reads backwards, n - 1 - axis, or None."""
    match i:
        case Index(((Axis() as a, -1),), c) if c == a.extent - 1:
            return a
    return None


@_of_term
def flips(t: Term) -> frozenset[Axis]:
    """The axes that a body reads backwards."""
    return frozenset(a for l in leaves(t) for i in l.indices if (a := mirrored(i)) is not None)


@_of_term
def mirror(f: Fold) -> tuple[Fold, tuple[Axis, ...]]:
    """The member of a fold's exchange orbit that is computed, and the tile axes along which the fold is its mirror
    image.
    """
    best = (len(flips(f)), f.key, f, ())
    for p in sorted(flips(f) & f.free):
        if p.extent <= COLUMNS:
            g = canonical(subst(f, {p: (p.extent - 1) - index(p)}))
            best = min(best, (len(flips(g)), g.key, g, (p,)))
    return best[2:]


def orbit(f: Fold) -> Fold:
    """The member of a fold's exchange orbit that is computed."""
    return mirror(f)[0]


# ---- loops -----------------------------------------------------------------------------------------------------------

@cache
def _slot(position: int, extent: int) -> Axis:
    return Axis(f"#{position}", extent)


@_of_term
def streams(f: Fold) -> frozenset[tuple]:
    """What a fold's loop reads chunk by chunk: (tensor, indices), loop axes numbered and mirrors forgotten."""
    slots = {a: index(_slot(i, a.extent)) for i, a in enumerate(f.axes)}
    found = set()
    for l in leaves(f):
        if not l.free.isdisjoint(f.axes):
            numbered = subst(l, slots).indices
            found.add((l.tensor, tuple(index(m) if (m := mirrored(i)) is not None else i for i in numbered)))
    return frozenset(found)


@_of_term
def before(f: Fold) -> dict[Fold, frozenset[Axis]]:
    """Folds in f's body that do not depend on f's loop, with those of their axes that folds between bind.

    An earlier sweep computes them and keeps them, whole along the axes between.
    """
    mine, found = frozenset(f.axes), {}

    def walk(fs: Iterable[Fold], bound: frozenset[Axis]) -> None:
        for g in fs:
            if mine.isdisjoint(g.free):
                found[orbit(g)] = found.get(orbit(g), frozenset()) | (g.free & bound)
            else:
                walk(inner(g), bound | frozenset(g.axes))
    walk(inner(f), frozenset())
    return found


@_of_term
def inside(f: Fold) -> tuple[Fold, ...]:
    """Folds directly below f that are computed chunk by chunk in its loop."""
    return tuple(g for g in inner(f) if not g.free.isdisjoint(f.axes))


Level = tuple[tuple[tuple[Fold, frozenset[Axis]], ...], ...]


@lru_cache(maxsize=1 << 15)
def loops(roots: tuple[Fold, ...], done: frozenset[Fold] = frozenset()) -> Level:
    """The loops of one level, in the order they run: in each, its (fold, axes of it that are kept whole).

    roots: the folds that the level computes; those that they need before come with them. done: folds that are known
    already. Siblings share a loop if they come at one depth, have one list of extents, and read something in common.
    """
    depth: dict[Fold, int] = {}
    whole: dict[Fold, frozenset[Axis]] = {}

    def visit(f: Fold, bound: frozenset[Axis] = frozenset()) -> int:
        new = whole.get(f, frozenset()) | bound
        if whole.get(f) != new:
            whole[f] = new
            depth[f] = max((1 + visit(g, between | new & g.free) for g, between in before(f).items() if g not in done),
                           default=0)
        return depth[f]
    for f in map(orbit, roots):
        if f not in done:
            visit(f)
    out: list[tuple[int, tuple[int, ...], frozenset, tuple[Fold, ...]]] = []
    for f, d in sorted(depth.items(), key=lambda x: (x[1], x[0].key)):
        extents = tuple(a.extent for a in f.axes)
        joined = [l for l in out if l[:2] == (d, extents) and l[2] & streams(f)]
        merged = (d, extents, streams(f).union(*(l[2] for l in joined)), tuple(g for l in joined for g in l[3]) + (f,))
        out = [l for l in out if l not in joined] + [merged]
    return tuple(tuple((f, whole[f]) for f in fs) for _, _, _, fs in sorted(out, key=lambda l: l[0]))


@lru_cache(maxsize=1 << 15)
def reach(roots: tuple[Fold, ...]) -> frozenset[Fold]:
    """The folds that the loops of a level compute."""
    return frozenset(f for level in loops(roots) for f, _ in level)


# ---- masks -----------------------------------------------------------------------------------------------------------

SAMPLES = 48
"""Points along an axis at which a mask is sampled: enough to know a triangle's share to 2 %."""


@_of_term
def live(f: Fold) -> float:
    """The share of a fold's points that its mask leaves: 0.5 for a causal one.

    A mask is a `where` at the root of the first body whose condition compares indices only, and whose other value is
    the monoid's identity.
    """
    match f.bodies[0]:
        case Op("where", (cond, _, Const(_, value))) if not leaves(cond) and not folds(cond):
            identity = {"sum": 0.0, "online": -math.inf, "max": -math.inf}.get(f.monoid)
            if identity is None or value != identity or not _tests_indices(cond):
                return 1.0
            ranges = {a: np.unique(np.linspace(0, a.extent - 1, min(a.extent, SAMPLES)).astype(int)) for a in cond.free}
            share = float(Meaning({}, ranges=ranges).body(cond).array.mean())
            return max(share, 1 / SAMPLES)
    return 1.0


def _tests_indices(t: Term) -> bool:
    return isinstance(t, (Iota, Const)) or isinstance(t, (Op, Cast)) and all(map(_tests_indices, children(t)))
