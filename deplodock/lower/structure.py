"""What the loops of a flattened kernel are, whatever the schedule: which folds share a loop, which come before it or
lie inside it, and which are products.

    Structure = axes, loops                  of one part of a kernel
    Loop      = axis, folds, inside          siblings of one loop, and the loops inside it
    Product   = left, right, rows, columns   a fold that is a matrix product

An expression lives at the innermost loop whose axis it needs. For folds that means: one that uses no axis bound on the
way to it is finished before the loop (`hoisted`); one that uses the loop's axis is computed inside, chunk by chunk; and
folds of one extent at one depth, none of which needs another, that read something in common, are siblings.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterable

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, Index, index
from deplodock.ir.loop import Cast, Const, Fold, Iota, Op, const, dtype, loads, op, subst, where
from deplodock.ir.plan import Kernel
from deplodock.ir.term import Term
from deplodock.ir.tile import Compare
from deplodock.lower.flatten import Facts, Flat, all_folds, flatten, identity, outer_folds


@dataclass(frozen=True, slots=True)
class Product:
    """sum over k of left * right, or, of an online fold, of the exponential (left is None) times right.

    rows, columns: the axes that only left, or only right, depends on. dtype: of both factors where they are 16 bits
    wide, as a tensor core takes them (an online fold's exponential is rounded to it), else None.
    """
    left: Term | None
    right: Term
    rows: frozenset[Axis]
    columns: frozenset[Axis]
    dtype: Dtype | None


@dataclass(frozen=True, slots=True)
class Loop:
    """folds: under the names that they have in the kernel; products: those that are some. axis: whose name the knobs of
    this loop bear."""
    axis: Axis
    folds: tuple[Fold, ...]
    products: tuple[Product, ...]
    inside: tuple[Loop, ...]

    @property
    def online(self) -> bool:
        return any(f.monoid == "online" for f in self.folds)


@dataclass(frozen=True, slots=True)
class Structure:
    """axes: of the grid, slowest first. loops: in the order in which they run. mirrored: axes of two that folds read
    backwards; where a tile holds both halves, such a fold is computed once."""
    axes: tuple[Axis, ...]
    loops: tuple[Loop, ...]
    mirrored: frozenset[Axis]
    flat: Flat


def axes_of(kernel: Kernel, facts: Facts = {}) -> tuple[Structure, ...]:
    """The loops of each part of a kernel, under the names that its knobs use (`tile.m`, `warps.m` ..)."""
    return tuple(Structure(f.axes, loops([o.body for o in f.outs]), _mirrored(f), f) for f in flatten(kernel, facts))


def _mirrored(flat: Flat) -> frozenset[Axis]:
    folds = all_folds(o.body for o in flat.outs)
    return frozenset(a for f in folds for a in backwards(f) if a.extent == 2 and a in flat.axes)


def loops(bodies: Iterable[Term], done: frozenset[Fold] = frozenset()) -> tuple[Loop, ...]:
    out = []
    for group in siblings(bodies, lambda f: f in done):
        done = done | frozenset(group)
        inside = loops([b for f in group for b in f.bodies], done)
        products = tuple(p for f in group if (p := product(f)))
        out.append(Loop(common_axis(group), tuple(group), products, inside))
    return tuple(out)


def common_axis(group: list[Fold]) -> Axis:
    """The axis of the loop of sibling folds: the first one's that no fold inside goes by, too."""
    inside = {g.axes[0] for g in all_folds(b for f in group for b in f.bodies)}
    return next((f.axes[0] for f in group if f.axes[0] not in inside), group[0].axes[0])


def siblings(bodies: Iterable[Term], done: Callable[[Fold], bool],
             same: Callable[[Fold], Fold] = lambda f: f) -> list[list[Fold]]:
    """The folds that bodies need and that are not done, grouped by the loop they share, in the order these run.

    same: the fold that is computed in place of one that is its mirror image.
    """
    depth: dict[Fold, int] = {}

    def visit(f: Fold) -> int:
        f = same(f)
        if done(f):
            return 0
        if f not in depth:
            first = [g for b in f.bodies for g in hoisted(b, frozenset(f.axes))]
            depth[f] = 1 + max(map(visit, first), default=0)
        return depth[f]
    for b in bodies:
        for f in outer_folds(b):
            visit(f)
    groups: list[tuple[tuple, frozenset, list[Fold]]] = []
    for f, d in depth.items():
        (a,) = f.axes
        kind = d, a.extent, tuple(subst(p, {a: index(_slot(a))}) for p in limits(f))
        joined = [g for g in groups if g[0] == kind and g[1] & streams(f)]
        merged = kind, streams(f).union(*(g[1] for g in joined)), [*(x for g in joined for x in g[2]), f]
        at = groups.index(joined[0]) if joined else len(groups)
        groups = [g for g in groups[:at] if g not in joined] + [merged] + [g for g in groups[at:] if g not in joined]
    return [fs for _, _, fs in sorted(groups, key=lambda g: g[0][0])]


def streams(f: Fold) -> frozenset[tuple]:
    """What a fold's loop reads chunk by chunk, whatever its axis is called, and whichever way it reads other axes."""
    (a,) = f.axes
    return frozenset((l.tensor, tuple(_forwards(subst(i, {a: index(_slot(a))})) for i in l.indices))
                     for l in loads(f) if a in l.free)


def backwards(f: Fold) -> frozenset[Axis]:
    """The axes outside of a fold that it reads backwards."""
    terms = [term for l in loads(f) for i in l.indices for term in i.terms]
    return frozenset(a for a, c in terms if isinstance(a, Axis) and c < 0) & f.free


def _slot(a: Axis) -> Axis:
    return Axis("#", a.extent)


def _forwards(i: Index) -> Index:
    """An index that reads an axis backwards, read forwards."""
    match i:
        case Index(((Axis() as a, -1),), c) if c == a.extent - 1:
            return index(a)
    return i


def hoisted(b: Term, bound: frozenset[Axis]) -> list[Fold]:
    """The outermost folds of b, at any depth, that use none of the axes bound on the way to them."""
    return [h for g in outer_folds(b)
            for h in ([g] if g.free.isdisjoint(bound) else
                      [h for x in g.bodies for h in hoisted(x, bound | frozenset(g.axes))])]


# ---- products --------------------------------------------------------------------------------------------------------

def product(f: Fold) -> Product | None:
    """How a fold is a matrix product, or None."""
    (k,) = f.axes
    if f.monoid == "online" and f.part == 1:
        v = widened(f.bodies[1])
        rows, columns = f.bodies[0].free - v.free, v.free - f.bodies[0].free
        if not (rows and columns and k in v.free):
            return None
        return Product(None, v, rows, columns, _sixteen(v))
    if f.monoid != "sum":
        return None
    factors = [widened(x) for x in chain(f.bodies[0])]
    sides = _sides(factors, k)
    if sides is None:
        return None
    left, right = sides
    return Product(left, right, left.free - right.free, right.free - left.free,
                   _sixteen(left) if _sixteen(left) == _sixteen(right) else None)


def _sides(factors: list[Term], k: Axis) -> tuple[Term, Term] | None:
    """Factors as two, each with axes of its own and k. What belongs to neither goes to a side that is computed
    anyway."""
    free = frozenset().union(*(x.free for x in factors)) - {k}
    for i, a in enumerate(factors):
        for b in factors[i + 1:]:
            rows, columns = (a.free & free) - b.free, (b.free & free) - a.free
            if not (rows and columns and k in a.free and k in b.free):
                continue
            if any(c.free & rows and c.free & columns for c in factors):
                continue
            left = [c for c in factors if c.free & rows]
            right = [c for c in factors if c.free & columns]
            rest = [c for c in factors if not c.free & (rows | columns)]
            aside = right if len(left) == 1 and len(right) > 1 else left
            aside.extend(rest)
            return _times(left), _times(right)
    return None


def _times(factors: list[Term]) -> Term:
    first, *rest = factors
    for f in rest:
        first = op("mul", first, f)
    return first


def chain(b: Term) -> list[Term]:
    """The factors of nested multiplications."""
    return [x for a in b.args for x in chain(a)] if isinstance(b, Op) and b.name == "mul" else [b]


def widened(b: Term) -> Term:
    """where(p, cast(f32, x), 0) as cast(f32, where(p, x, 0)): a factor that is guarded keeps its width in memory."""
    match b:
        case Op("where", (p, a, Const(d, 0))):
            inner = widened(a)
            if isinstance(inner, Cast) and inner.dtype == d and dtype(inner.body).is_16bit:
                return Cast(d, where(p, inner.body, const(dtype(inner.body), 0)))
    return b


def _sixteen(b: Term) -> Dtype | None:
    match b:
        case Cast(Dtype.f32, x) if dtype(x).is_16bit:
            return dtype(x)
    return None


# ---- masks -----------------------------------------------------------------------------------------------------------

def limits(f: Fold) -> tuple[Term, ...]:
    """What must hold for the body of a fold not to be the monoid's identity, as far as it says so at its root."""
    match f.bodies[0]:
        case Op("where", (p, _, Const() as c)) if c is identity(f.monoid, c.dtype) and affine(p):
            return (p,)
    return ()


def affine(p: Term) -> tuple[Compare, ...] | None:
    """A predicate as comparisons of indices that all hold, or None where it is something else."""
    match p:
        case Op("and", (a, b)):
            left, right = affine(a), affine(b)
            return left + right if left and right else None
        case Op("not", (a,)):
            inner = affine(a)
            return (negated(inner[0]),) if inner and len(inner) == 1 else None
        case Op("lt" | "le" | "eq" | "ne" as relation, (a, b)):
            x, y = as_index(a), as_index(b)
            return (Compare(relation, x, y),) if x is not None and y is not None else None
    return None


def negated(c: Compare) -> Compare:
    match c.relation:
        case "lt": return Compare("le", c.right, c.left)
        case "le": return Compare("lt", c.right, c.left)
        case "eq": return Compare("ne", c.left, c.right)
    return Compare("eq", c.left, c.right)


def as_index(b: Term) -> Index | None:
    """An integer body as an index, where it is one: no loaded values, and small enough to be computed in 32 bits."""
    match b:
        case Iota(i): return i
        case Const(d, v) if not d.is_float and d != Dtype.b8 and abs(v) < 1 << 30: return index(int(v))
        case Cast(Dtype.i64 | Dtype.i32, x) if dtype(x) in (Dtype.i64, Dtype.i32): return as_index(x)
        case Op("add" | "sub" | "mul" | "floordiv" | "remainder" as name, (x, y)):
            i, j = as_index(x), as_index(y)
            if i is None or j is None:
                return None
            match name:
                case "add": return i + j
                case "sub": return i - j
                case "mul" if j.is_const: return i * j.const
                case "mul" if i.is_const: return j * i.const
                case "floordiv" if j.is_const and j.const > 0: return i // j.const
                case "remainder" if j.is_const and j.const > 0: return i % j.const
    return None


def slack(c: Compare) -> Index | None:
    """The index that is >= 0 exactly where an inequality holds; None for eq and ne."""
    match c.relation:
        case "le": return c.right - c.left
        case "lt": return c.right - c.left - 1
    return None
