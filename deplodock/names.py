"""Dimensions factored into their finest axes, and axes named by dimension class, for a whole program at once.

Factoring. A dimension of N elements may be read in parts: a reshape splits it, a slice takes one half, a product runs
over what another view merged. Each such use asks for a *split*, a stride s that divides N, at which the dimension falls
into an outer and an inner axis. Splits spread along loads, up and down, until nothing changes: hidden = (head, 64), and
with rotate-half (head, 2, 32), for weights and activations alike. The splits of one dimension must divide each other;
one that does not is refused, and index arithmetic (i // n, i mod n, i*n + j) stays in its place.

Naming. Two axes are of one class if one is ever read at the other. Every axis, of a launch or of a fold, is the first
of C, C', C'' .. of its class that is not yet taken in this launch, or not free in the rest of this fold's body.

Both take launches with one axis for each dimension, whose own axes and binders have distinct names.
"""
from __future__ import annotations

import math
from typing import Iterable, Iterator

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, FloorDiv, Gathered, Index, Mod, index
from deplodock.ir.loop import (Body, Buffer, Const, Fold, Iota, Launch, Load, Op, children, const, dtype, fold,
                               gathers, loads, pick, rebuilt)
from deplodock.ir.term import Term

Key = tuple[Term, Axis]
"""An axis in its scope: a launch with one of its axes or binders, or a buffer with one of its axes."""


class _Sets:
    """Union-find over keys; a set is known by its first member in the order of the program."""

    def __init__(self):
        self.up: dict[Key, Key] = {}
        self.order: dict[Key, int] = {}

    def add(self, key: Key) -> None:
        self.order.setdefault(key, len(self.order))

    def find(self, key: Key) -> Key:
        while self.up.get(key, key) != key:
            key = self.up[key]
        return key

    def join(self, a: Key, b: Key) -> None:
        a, b = sorted((self.find(a), self.find(b)), key=self.order.__getitem__)
        self.up[b] = a


def _program(tensors: Iterable[Term]) -> list[Term]:
    """The tensors and all that they read, each after what it reads."""
    done: dict[Term, None] = {}
    stack: list[tuple[Term, bool]] = [(t, False) for t in reversed(list(tensors))]
    while stack:
        t, ready = stack.pop()
        if t in done:
            continue
        if ready or isinstance(t, Buffer):
            done[t] = None
            continue
        stack.append((t, True))
        stack += [(l.tensor, False) for l in reversed(list(loads(t.body)))]
    return list(done)


def _scope(t: Term) -> tuple[Axis, ...]:
    """The axes of a tensor and the binders in it."""
    return t.axes + (tuple(a for f in _folds(t.body) for a in f.axes) if isinstance(t, Launch) else ())


def _bodies(b: Body) -> Iterator[Body]:
    """A body and all that is in it, the bodies inside indices among them."""
    seen, stack = set(), [b]
    while stack:
        t = stack.pop()
        if t in seen:
            continue
        seen.add(t)
        yield t
        stack.extend(reversed(children(t)))
        if isinstance(t, (Load, Iota)):
            stack.extend(gathers(_indices(t)))


def _folds(b: Body) -> Iterator[Fold]:
    return (t for t in _bodies(b) if isinstance(t, Fold))


def _indices(b: Load | Iota) -> tuple[Index, ...]:
    return b.indices if isinstance(b, Load) else (b.index,)


# ---- factoring -------------------------------------------------------------------------------------------------------

class Factoring:
    """The splits of every dimension of a program; `tensor` gives a tensor of it over the finest axes."""

    def __init__(self, tensors: Iterable[Term]):
        self.program = _program(tensors)
        self._sets = _Sets()
        self._splits: dict[Key, list[int]] = {}
        self._reads: list[tuple[Term, Term, Axis, Index]] = []
        """(launch, tensor it loads, a dimension of that, the index there), where the index is no single axis."""
        self._changed = True
        self._done: dict[Term, Term] = {}
        for t in self.program:
            for a in _scope(t):
                self._sets.add((t, a))
        launches = [t for t in self.program if isinstance(t, Launch)]
        for t in launches:
            self._link(t)
        for t in launches:
            self._arithmetic(t)
        while self._changed:
            self._changed = False
            for read in self._reads:
                self._spread(*read)
        for t in self.program:
            self._done[t] = self._tensor(t)

    def _link(self, t: Launch) -> None:
        for l in loads(t.body):
            for d, i in zip(l.tensor.axes, l.indices):
                if i.axis and i.axis.extent == d.extent:
                    self._sets.join((t, i.axis), (l.tensor, d))
                elif not i.is_const and d.extent and not any(a.extent == 0 for a in i.free):
                    self._reads.append((t, l.tensor, d, i))

    def _arithmetic(self, t: Launch) -> None:
        """The splits that quotients and remainders in indices ask for."""
        indices = [i for b in _bodies(t.body) if isinstance(b, (Load, Iota)) for i in _indices(b)]
        stack = [atom for i in indices for atom, _ in i.terms]
        while stack:
            atom = stack.pop(0)
            if isinstance(atom, (FloorDiv, Mod)):
                self._cut(t, atom.index, atom.divisor)
                stack += [a for a, _ in atom.index.terms]

    def _add(self, key: Key, split: int) -> None:
        """Splits the dimension at a stride, unless that is no stride of it or does not agree with its other splits."""
        n = key[1].extent
        root = self._sets.find(key)
        known = self._splits.setdefault(root, [])
        if 1 < split < n and n % split == 0 and split not in known and all(
                split % s == 0 or s % split == 0 for s in known):
            known.append(split)
            known.sort()
            self._changed = True

    def splits(self, key: Key) -> list[int]:
        """The strides at which a dimension is split, smallest first."""
        return self._splits.get(self._sets.find(key), [])

    def _cut(self, t: Launch, i: Index, n: int) -> None:
        """Asks of the axes in i what makes i // n and i mod n plain."""
        for atom, c in i.terms:
            if n % c:
                continue
            match atom:
                case Axis(): self._add((t, atom), n // abs(c))
                case FloorDiv(inner, m): self._cut(t, inner, m * (n // abs(c)))
                case Mod(inner, m) if n // abs(c) < m: self._cut(t, inner, n // abs(c))

    def _spread(self, t: Launch, source: Term, d: Axis, i: Index) -> None:
        """Splits of a dimension become splits of the axes that read it, and the other way round."""
        key = (source, d)
        flipped = len(i.terms) == 1 and i.terms[0][1] == -1
        for s in tuple(self.splits(key)):
            if (i.const + flipped) % s == 0:
                self._cut(t, i, s)
        for atom, c in i.terms:
            if isinstance(atom, Axis) and (c > 0 or flipped):
                for s in (1, *self.splits((t, atom)), atom.extent):
                    if (i.const + flipped) % (abs(c) * s) == 0:
                        self._add(key, abs(c) * s)

    # -- the program over the finest axes --

    def factors(self, key: Key) -> tuple[Axis, ...]:
        """The axes of a dimension, slowest first; none where it has one element."""
        a = key[1]
        if a.extent == 1:
            return ()
        strides = [a.extent, *reversed(self.splits(key)), 1]
        extents = [outer // inner for outer, inner in zip(strides, strides[1:])]
        return (a,) if len(extents) == 1 else tuple(Axis(f"{a.name}_{j}", n) for j, n in enumerate(extents))

    def dims(self, t: Term) -> tuple[int, ...]:
        """How many axes each dimension of a tensor has."""
        return tuple(len(self.factors((t, a))) for a in t.axes)

    def tensor(self, t: Term) -> Term:
        """A tensor of the program over its finest axes. A launch that only renames the axes of what it loads is gone."""
        return self._done[t]

    def _tensor(self, t: Term) -> Term:
        axes = tuple(f for a in t.axes for f in self.factors((t, a)))
        if isinstance(t, Buffer):
            return Buffer(t.name, t.dtype, axes, t.kind)
        if any(a.extent == 0 for a in axes):
            return Launch(axes, const(dtype(t), 0))
        body = _Rewriting(self, t).body(t.body)
        if isinstance(body, Load) and body.indices == tuple(map(index, axes)) and all(
                a.extent == b.extent for a, b in zip(axes, body.tensor.axes)):
            return body.tensor
        return Launch(axes, body)


class _Rewriting:
    """Rewrites the body of one launch to the finest axes."""

    def __init__(self, factoring: Factoring, launch: Launch):
        self.factoring, self.launch = factoring, launch
        self.memo: dict[Term, Term] = {}
        self.axes: dict[Axis, Index] = {}

    def at(self, a: Axis) -> Index:
        """The value of a dimension's index, from its factors."""
        if a not in self.axes:
            total = index(0)
            for f in self.factoring.factors((self.launch, a)):
                total = total * f.extent + f
            self.axes[a] = total
        return self.axes[a]

    def index(self, i: Index) -> Index:
        if i.axis:
            return self.at(i.axis)
        out = index(i.const)
        for atom, c in i.terms:
            match atom:
                case Axis(): new = self.at(atom)
                case FloorDiv(inner, n): new = self.index(inner) // n
                case Mod(inner, n): new = self.index(inner) % n
                case Gathered(b, n): new = index(Gathered(self.body(b), n))
            out = out + new * c
        return out

    def body(self, b: Body) -> Body:
        if b not in self.memo:
            self.memo[b] = self._body(b)
        return self.memo[b]

    def _body(self, b: Body) -> Body:
        match b:
            case Load(t, ix):
                return Load(self.factoring.tensor(t), tuple(
                    f for a, i in zip(t.axes, ix) for f in self.parts((t, a), self.index(i))))
            case Iota(i):
                i = self.index(i)
                return const(Dtype.i64, i.const) if i.is_const else Iota(i)
            case Fold(monoid, axes, bodies, part):
                new = tuple(f for a in axes for f in self.factoring.factors((self.launch, a)))
                if any(a.extent == 0 for a in new):
                    return identity(b)
                if not new and part == 1:
                    return const(Dtype.i64, 0)
                return fold(monoid if new else "max", new, map(self.body, bodies), part)
        return decided(rebuilt(b, map(self.body, children(b))))

    def parts(self, key: Key, i: Index) -> tuple[Index, ...]:
        """An index into a dimension as indices into its factors."""
        if key[1].extent == 1:
            return ()
        strides = [*reversed(self.factoring.splits(key)), 1]
        return (i // strides[0], *(i % outer // inner for outer, inner in zip(strides, strides[1:])))


def identity(f: Fold) -> Const:
    """What a fold over no elements gives: the identity of its monoid."""
    d = dtype(f)
    match f.monoid:
        case "sum" | "any": return const(d, 0)
        case "prod" | "all": return const(d, 1)
        case "max" if d.is_float: return const(d, -math.inf)
        case "min" if d.is_float: return const(d, math.inf)
    raise ValueError(f"{f.monoid} over no elements has no value in {d}")


def decided(b: Body) -> Body:
    """A comparison of indices that their ranges decide, as a literal, and `where` of such a literal, as its branch."""
    match b:
        case Op("where", (Const(_, c), x, y)):
            return x if c else y
        case Op("eq" | "lt" | "le" as f, (Iota() | Const(Dtype.i64, _) as x, Iota() | Const(Dtype.i64, _) as y)):
            (lo, hi), (low, high) = _range(x), _range(y)
            yes, no = {"eq": (lo == hi == low == high, hi < low or high < lo), "lt": (hi < low, lo >= high),
                       "le": (hi <= low, lo > high)}[f]
            return const(Dtype.b8, yes) if yes or no else b
    return b


def _range(b: Iota | Const) -> tuple[float, float]:
    return b.index.range if isinstance(b, Iota) else (b.value, b.value)


# ---- naming ----------------------------------------------------------------------------------------------------------

LETTERS = "ijlopqrsuvwxyzabcdefghkmnt"
"""Names of classes that no product suggests one for, in order."""


class Naming:
    """The dimension classes of a program; `tensor` gives a tensor of it with the axes of their classes."""

    def __init__(self, tensors: Iterable[Term]):
        self.program = _program(tensors)
        self._sets = _Sets()
        self._done: dict[Term, Term] = {}
        for t in self.program:
            for a in _scope(t):
                self._sets.add((t, a))
        for t in self.program:
            if isinstance(t, Launch):
                self._link(t)
        self._name()
        for t in self.program:
            self._done[t] = self._tensor(t)

    def _link(self, t: Launch) -> None:
        for l in loads(t.body):
            for d, i in zip(l.tensor.axes, l.indices):
                if len(i.terms) == 1 and isinstance(i.terms[0][0], Axis) and abs(i.terms[0][1]) == 1:
                    a = i.terms[0][0]
                    if a.extent == d.extent:
                        self._sets.join((t, a), (l.tensor, d))

    def _name(self) -> None:
        """Names classes in program order: what its axes were called where they were made, else the next free letter."""
        hints: dict[Key, list[str]] = {}
        for key in self._sets.order:
            hints.setdefault(self._sets.find(key), []).append(key[1].name.split("_")[0])
        taken: set[str] = set()
        self._names: dict[Key, str] = {}
        for root, names in hints.items():
            letters = [n for n in names if len(n) == 1]
            name = next(n for n in _candidates(letters) if n not in taken)
            taken.add(name)
            self._names[root] = name

    def axis(self, t: Term, a: Axis) -> Axis:
        """The first axis of the class of an axis of t."""
        return Axis(self._names[self._sets.find((t, a))], a.extent)

    def tensor(self, t: Term) -> Term:
        """A tensor of the program under its new names."""
        return self._done[t]

    def _tensor(self, t: Term) -> Term:
        new = pick((self.axis(t, a) for a in t.axes), ())
        if isinstance(t, Buffer):
            return Buffer(t.name, t.dtype, new, t.kind)
        return Launch(new, self._body(t, t.body, dict(zip(t.axes, new)), {}))

    def _body(self, t: Launch, b: Body, to: dict[Axis, Axis], memo: dict[Body, Body]) -> Body:
        if b not in memo:
            memo[b] = self._renamed(t, b, to, memo)
        return memo[b]

    def _renamed(self, t: Launch, b: Body, to: dict[Axis, Axis], memo: dict[Body, Body]) -> Body:
        match b:
            case Load(x, ix): return Load(self.tensor(x), tuple(self._index(t, i, to, memo) for i in ix))
            case Iota(i): return Iota(self._index(t, i, to, memo))
            case Fold(monoid, axes, bodies, part):
                new = pick((self.axis(t, a) for a in axes), {to[a] for a in b.free})
                to = {**to, **dict(zip(axes, new))}
                inner: dict[Body, Body] = {}
                return Fold(monoid, new, tuple(self._body(t, c, to, inner) for c in bodies), part)
        return rebuilt(b, (self._body(t, c, to, memo) for c in children(b)))

    def _index(self, t: Launch, i: Index, to: dict[Axis, Axis], memo: dict[Body, Body]) -> Index:
        if i.axis:
            return index(to[i.axis])
        out = index(i.const)
        for atom, c in i.terms:
            match atom:
                case Axis(): new = index(to[atom])
                case FloorDiv(inner, n): new = self._index(t, inner, to, memo) // n
                case Mod(inner, n): new = self._index(t, inner, to, memo) % n
                case Gathered(b, n): new = index(Gathered(self._body(t, b, to, memo), n))
            out = out + new * c
        return out


def _candidates(hints: list[str]) -> Iterator[str]:
    yield from hints
    yield from LETTERS
    n = 2
    while True:
        yield from (f"{l}{n}" for l in (*hints[:1], *LETTERS))
        n += 1
