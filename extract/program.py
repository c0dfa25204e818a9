"""An e-graph prepared for the search: which tensors may be stored, what each class can be read from, in what order.

The search works with ground terms over buffers: a tensor class becomes one Buffer, whatever it is called and however
its axes are ordered in other spellings.
"""
from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from deplodock.ir.dtype import Dtype
from deplodock.ir.egraph import EGraph
from deplodock.ir.index import Axis, FloorDiv, Index, Mod, index
from deplodock.ir.loop import (Buffer, Cast, Const, Fold, Iota, Launch, Load, Op, children, const, dtype, gathers,
                               loads, rebuilt, subst)
from deplodock.ir.meaning import Meaning
from deplodock.ir.plan import Output
from deplodock.ir.term import Term
from extract.cost import size
from extract.ground import grounded, smallest
from extract.structure import SPECIAL, assemble, canonical, leaves, mirrored, product, tops, volume

LEAVES = 2
"""Tensors that a class may be read from: of several that hold a value, the cheapest to read, and one more."""


@dataclass
class Program:
    """The saturated e-graph of a program, indexed for the search.

    buffers: the storage of each tensor class. own: the body class of each stored tensor, and its axes. rank: stored
    buffers in an order in which each can be computed from those before it. targets: what the program returns, as
    buffers. constants: definitions of parameter-only values, by buffer. leaf: what each body class can be read as.
    """
    egraph: EGraph
    outputs: tuple[Term, ...]
    given: tuple[Buffer, ...] = ()
    """Inputs and parameters, in the order of the program."""
    rounds: bool = False
    """Whether operands of products may be rounded to 16 bits (numerics default and fast)."""
    real: dict[Buffer, Buffer] = field(default_factory=dict)
    """The program's own buffers: the search calls inputs and parameters by their place, so that names decide nothing.
    """
    buffers: dict[int, Buffer] = field(default_factory=dict)
    own: dict[Buffer, tuple[int, tuple[Axis, ...]]] = field(default_factory=dict)
    source: dict[Buffer, Term] = field(default_factory=dict)
    """The ground launch that each stored tensor was entered as; of one that a law has made, its smallest."""
    rank: dict[Buffer, int] = field(default_factory=dict)
    targets: tuple[Buffer, ...] = ()
    constants: dict[Buffer, Output] = field(default_factory=dict)
    wide: dict[Buffer, Buffer] = field(default_factory=dict)
    """Constants rounded to the dtype of the weights they come from, and the same in f32."""
    leaf: dict[int, list[Term]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    late: dict[int, frozenset[Axis]] = field(default_factory=dict)
    wanted: set[Buffer] = field(default_factory=set)
    folded: set[int] = field(default_factory=set)
    """Classes that are read as constants."""
    narrow: dict[int, Dtype] = field(default_factory=dict)
    """Classes that the program itself holds in a 16-bit dtype."""
    rounded_scores: set[int] = field(default_factory=set)
    """Classes of scores s for which the program itself rounds exp(s - max s), or its quotient, to 16 bits."""
    coarse: bool = False
    """Whether all results of the program are rounded to 16 bits: a computed operand may be, too."""

    def __post_init__(self):
        self._nodes: dict[int, tuple[Term, ...]] = {}
        self._widened: dict[tuple[Term, tuple[Term, ...]], Term] = {}
        self._tensors()
        self.small = smallest(self.egraph, self.buffers)
        for b, (c, axes) in self.own.items():
            self.source.setdefault(b, Launch(axes, self.small[c]))
        parameter = (c for c in self.egraph.bodies if c in self.egraph.parameter)
        self.folded = {c for c in parameter if self._worth_folding(self.small[c])}
        self._narrow()
        self._order()
        self.wanted = self._storable()
        self._leaves()
        self._late()

    # ---- tensors -----------------------------------------------------------------------------------------------------

    def _tensors(self) -> None:
        g = self.egraph
        launches: dict[int, Launch] = {}
        places: dict[Buffer, int] = {}
        for b in self.given:
            self._given(b, places)
        for t, nodes in g.tensors.items():
            given = next((n for n in nodes if isinstance(n, Buffer)), None)
            if given is None:
                spelling = self._spelling(t)
                own = (l for l in g.launches(t) if spelling and l.axes == spelling.axes)
                launches[t] = next(own, g.launches(t)[0])
                continue
            self.buffers[t] = self._given(given, places)
        wanted = [g.number[t] for t in self.outputs if t in g.number]
        for rank, t in enumerate(self._in_order(launches, wanted)):
            axes, body = launches[t].axes, launches[t].body.number
            b = Buffer(f"t{rank}", g.dtypes[body], axes, "output" if t in wanted else "stored")
            self.buffers[t], self.own[b], self.rank[b] = b, (body, axes), rank
            if spelling := self._spelling(t):
                self.source[b] = spelling
        back = {real: b for b, real in self.real.items()}
        self.targets = tuple(self.buffers[g.number[t]] if t in g.number else back[t] for t in self.outputs)

    def _given(self, real: Buffer, places: dict[Buffer, int]) -> Buffer:
        """The buffer that stands for an input or a parameter."""
        b = Buffer(f"{real.kind}{places.setdefault(real, len(places))}", real.dtype, real.axes, real.kind)
        self.real[b] = real
        return b

    def _spelling(self, t: int) -> Launch | None:
        """The program's own launch of a tensor; None for one that a law has made."""
        return next((s for s in self.egraph.spellings.get(t, ()) if isinstance(s, Launch)), None)

    def _in_order(self, launches: dict[int, Launch], wanted: list[int]) -> list[int]:
        """Launched tensors, each after those that its spelling reads; one that a law made before its first reader."""
        out: list[int] = []
        seen: set[int] = set()
        stack = [(t, False) for t in reversed([*wanted, *sorted(launches)])]
        while stack:
            t, ready = stack.pop()
            if ready:
                out.append(t)
            elif t not in seen and t in launches and (spelling := self._spelling(t)):
                seen.add(t)
                stack.append((t, True))
                reads = dict.fromkeys(self.egraph.number[l.tensor] for l in loads(spelling.body))
                stack.extend((r, False) for r in reversed(reads))
        made = [t for t in sorted(launches) if t not in seen]
        for t in made:
            first = next((i for i, r in enumerate(out) if r not in made and self._may_read(launches[r], t)), len(out))
            out.insert(first, t)
        return out

    def _may_read(self, launch: Launch, t: int) -> bool:
        """Whether some way to compute a launch loads a tensor."""
        stack, seen = [launch.body.number], set()
        while stack:
            c = stack.pop()
            if c not in seen:
                seen.add(c)
                for n in self.egraph.bodies[c]:
                    if isinstance(n, Load) and n.tensor.number == t:
                        return True
                    stack.extend(x.number for x in children(n))
        return False

    # ---- constants ---------------------------------------------------------------------------------------------------

    def _worth_folding(self, t: Term) -> bool:
        """Whether a parameter-only value is computed once: it reads parameters, or takes folds or special functions."""
        if isinstance(t, Load):
            return False
        below = [t]
        while below:
            x = below.pop()
            if isinstance(x, (Load, Fold)) or isinstance(x, Op) and x.name in SPECIAL:
                return True
            below.extend(children(x))
        return False

    def constant(self, t: Term) -> Term:
        """A parameter-only body as the load of a constant: one buffer for a value, however its axes are called or
        mirrored. Parameters themselves, widened or not, are read as they are."""
        if isinstance(t, (Load, Const)) or isinstance(t, Cast) and isinstance(t.body, Load):
            return t
        if isinstance(t, Cast) and t.dtype == Dtype.f32 and dtype(t.body).is_16bit:
            return Cast(t.dtype, self.constant(t.body))
        t = canonical(t)
        if not leaves(t) and not t.free:
            return const(dtype(t), Meaning({}).body(t).array.item())
        seen, flipped = _mirror(t)
        axes: list[Axis] = []
        for a in _in_order(seen):
            if a in t.free and a not in axes:
                axes.append(a)
        slots = tuple(Axis(f"c{i}", a.extent) for i, a in enumerate(axes))
        body = canonical(subst(seen, dict(zip(axes, map(index, slots)))))
        buffer = next((b for b, o in self.constants.items() if o.body is body), None)
        if buffer is None:
            buffer = Buffer(f"c{len(self.constants)}", dtype(body), slots, "constant")
            self.constants[buffer] = Output(buffer, slots, body)
        return Load(buffer, tuple(a.extent - 1 - index(a) if a in flipped else index(a) for a in axes))

    def _folded(self, t: Term) -> Term:
        """A parameter-only value as the search reads it. What is computed from 16-bit weights is taken to be stored
        like them: as the operand of a product it will be. `widened` undoes this where it is not.
        """
        exact = self.constant(t)
        kinds = {l.tensor.dtype for l in leaves(t) if l.tensor.dtype.is_float}
        if not self.rounds or not isinstance(exact, Load) or exact.tensor.dtype != Dtype.f32 or len(kinds) != 1:
            return exact
        d, = kinds
        if not d.is_16bit:
            return exact
        rounded = self.constant(Cast(d, t))
        self.wide[rounded.tensor] = exact.tensor
        return Cast(Dtype.f32, rounded)

    def widened(self, t: Term, operands: tuple[Term, ...] = ()) -> Term:
        """A body that reads constants in f32 but for the operands of products on tensor cores."""
        match t:
            case _ if not self.wide:
                return t
            case Cast(Dtype.f32, Load(b, indices)) if b in self.wide:
                return t if t in operands else Load(self.wide[b], indices)
            case Fold() if (p := product(t)) and p.mma:
                operands = p.left + p.right
            case Op("mul"): pass
            case _: operands = ()
        if (t, operands) not in self._widened:
            below = children(t)
            made = assemble(t, tuple(self.widened(c, operands) for c in below)) if below else t
            self._widened[t, operands] = made
        return self._widened[t, operands]

    # ---- classes -----------------------------------------------------------------------------------------------------

    def _narrow(self) -> None:
        """Classes with a member cast(f32, r), r a class of 16-bit values: rounding them changes no more than the
        program did.
        """
        for c, nodes in self.egraph.bodies.items():
            for n in nodes:
                if isinstance(n, Cast) and n.dtype == Dtype.f32:
                    d = dtype(self.small[n.body.number])
                    if d.is_16bit:
                        self.narrow[c] = d
        g = self.egraph.bodies

        def operands(c: int, *names: str) -> set[int]:
            return {x.number for n in g[c] if isinstance(n, Op) and n.name in names for x in n.args}
        for c in self.narrow:
            for weight in {c} | operands(c, "mul", "div"):
                for shifted in operands(weight, "exp"):
                    self.rounded_scores |= operands(shifted, "add", "sub")
        self.coarse = all(b.dtype.is_16bit for b in self.targets if b.dtype.is_float)

    def may_round(self, scores: int) -> bool:
        """Whether the weights of a softmax over a class of scores may be 16 bits wide where they meet the values."""
        return self.rounds and (self.coarse or scores in self.rounded_scores)

    def nodes(self, c: int) -> tuple[Term, ...]:
        """What a class can be computed as: its nodes but loads and loaded indices, in an order that names do not decide;
        nothing where it is read as a constant.
        """
        if c not in self._nodes:
            nodes = [] if c in self.folded else [n for n in self.egraph.bodies[c] if not _is_read(n)]
            if len(nodes) > 1:
                nodes.sort(key=lambda n: rebuilt(n, [self.small[x.number] for x in children(n)]).key)
            self._nodes[c] = tuple(nodes)
        return self._nodes[c]

    def _order(self) -> None:
        seen: set[int] = set()
        for c, _ in self.own.values():
            stack = [(c, False)]
            while stack:
                x, ready = stack.pop()
                if ready:
                    self.order.append(x)
                elif x not in seen:
                    seen.add(x)
                    stack.append((x, True))
                    stack.extend((r.number, False) for n in reversed(self.nodes(x)) for r in reversed(children(n)))

    def _cheapest(self, n: Load) -> tuple:
        """Orders loads of one value by what they cost to read: what is given, small, needed by nobody else, early."""
        b = self.buffers[n.tensor.number]
        return b in self.rank, size(b), b not in self.targets, self.rank.get(b, -1), b.name

    def _loads(self, c: int) -> list[Load]:
        return [n for n in self.egraph.bodies[c] if isinstance(n, Load)]

    def _storable(self) -> set[Buffer]:
        """What may be stored: results of folds, what folds read, values with two readers. Of the tensors that hold one
        value, the cheapest to read."""
        g = self.egraph
        at = {(n.tensor.number, n.indices): c for c in g.bodies for n in self._loads(c)}
        loaded = {c: min(ls, key=self._cheapest) for c in self.order if (ls := self._loads(c))}
        held = {c: self.buffers[n.tensor.number] for c, n in loaded.items()}
        wanted, readers = set(self.targets), defaultdict(set)
        for t, b in self.buffers.items():
            if b not in self.own:
                continue
            c, body = self.own[b][0], self.source[b].body
            if self._spelling(t) is None:
                wanted.add(b)
                continue
            if isinstance(body.body if isinstance(body, Cast) else body, Fold) and c in held:
                wanted.add(held[c])
            for l in loads(body):
                r = at.get((g.number.get(l.tensor), l.indices))
                if r is None or r not in held or r in self.folded or r == c:
                    continue
                readers[held[r]].add(c)
                if tops(body):
                    wanted.add(held[r])
        return wanted | {b for b, cs in readers.items() if len(cs) > 1}

    def _leaves(self) -> None:
        """What each class is read from, if anything."""
        for c in self.order:
            if c in self.folded:
                self.leaf[c] = [self._folded(self.small[c])]
                continue
            usable = [n for n in self._loads(c)
                      if (b := self.buffers[n.tensor.number]) not in self.rank or b in self.wanted]
            self.leaf[c] = [Load(self.buffers[n.tensor.number], tuple(grounded(i, self._loaded) for i in n.indices))
                            for n in sorted(usable, key=self._cheapest)[:LEAVES]]
            self.leaf[c] += sorted(Iota(grounded(n.index, self._loaded)) for n in self.egraph.bodies[c]
                                   if isinstance(n, Iota) and _is_read(n))

    def _loaded(self, c: int) -> Term:
        """The body of a loaded index: read from memory where it is stored, else computed from indices and inputs."""
        ls = self._loads(c)
        if not ls:
            return self.small[c]
        n = min(ls, key=self._cheapest)
        b = self.buffers[n.tensor.number]
        if b in self.rank:
            self.wanted.add(b)
        return Load(b, tuple(grounded(i, self._loaded) for i in n.indices))

    def _late(self) -> None:
        """The axes that folds above a class may bind."""
        self.late = {c: frozenset() for c in self.order}
        moved = True
        while moved:
            moved = False
            for c in reversed(self.order):
                for n in self.nodes(c):
                    more = frozenset(n.axes) if isinstance(n, Fold) else self.late[c]
                    for r in children(n):
                        if not more <= self.late[r.number]:
                            self.late[r.number] |= more
                            moved = True


def _mirror(t: Term) -> tuple[Term, frozenset[Axis]]:
    """A body read the right way round along the axes that it reads backwards only, and these axes."""
    backwards = {a for l in leaves(t) for i in l.indices if (a := mirrored(i)) is not None and a in t.free}
    forwards = {a for l in leaves(t) for i in l.indices for a in i.free if mirrored(i) is not a}
    turned = frozenset(backwards - forwards)
    if not turned:
        return t, turned
    return canonical(subst(t, {a: a.extent - 1 - index(a) for a in turned})), turned


def _in_order(t: Term) -> list[Axis]:
    """The axes that a body's loads and indices name, those of the largest load first and in its order: a folded weight
    lies in memory as the weight does."""
    out: dict[Axis, None] = {}

    def walk(i: Index) -> None:
        for atom, _ in i.terms:
            match atom:
                case Axis(): out.setdefault(atom)
                case FloorDiv(x, _) | Mod(x, _): walk(x)
    for l in sorted(leaves(t), key=lambda l: (-volume(l.free), l.key)):
        for i in l.indices:
            walk(i)
    out.update(dict.fromkeys(sorted(t.free)))
    return list(out)


def _is_read(n: Term) -> bool:
    """Whether a node stands for what is read from memory: a load, or a loaded index."""
    return isinstance(n, Load) or isinstance(n, Iota) and any(gathers((n.index,)))
