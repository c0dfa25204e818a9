"""Reading an e-graph back: egglog's rows as numbered classes of terms.

`Rows` is the plain reading: every class a small integer, every node a tuple. From it come the smallest ground term of
each class, and the EGraph that the rest of the compiler reads, whose numbers depend on terms alone.
"""
from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass

from deplodock.encoding import Encoder, Engine, with_bodies
from deplodock.ir.dtype import Dtype
from deplodock.ir.egraph import EGraph
from deplodock.ir.loop import (Axis, Buffer, Cast, Const, Fold, Index, Iota, Launch, Load, Op, Ref, RoundTo, Term, const,
                               gathers)


@dataclass(frozen=True, slots=True)
class Node:
    """One row: `form` is a term whose children are Refs, with the row's own class numbers; `children` are those numbers."""
    form: Term
    children: tuple[int, ...]


class Rows:
    """All rows of an engine. Class numbers are arbitrary: they differ from one reading to the next."""

    def __init__(self, engine: Engine, encoder: Encoder):
        self.encoder, self.engine = encoder, engine
        self.functions = engine.freeze().functions
        self._numbers: dict = {}
        self.value: list = []
        """The engine's own value of each class."""
        self.bodies: dict[int, list[Node]] = defaultdict(list)
        self.tensors: dict[int, list[Node]] = defaultdict(list)
        self.free = {self.number(r.inputs[0]): encoder.axes_of(engine.value_to_bigint(r.output)) for r in self._rows("free")}
        self.lists = self._index_lists()
        self._read_bodies()
        self.entered: dict[int, list[Term]] = defaultdict(list)
        for number, c in sorted((engine.value_to_i64(r.inputs[0]), self.number(r.output)) for r in self._rows("T")):
            self.entered[c].append(encoder.tensors[number])
        self._read_tensors()

    def number(self, value) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self.value)
            self.value.append(value)
        return self._numbers[value]

    def _rows(self, name: str):
        return self.functions[name].rows

    def ref(self, value) -> Ref:
        c = self.number(value)
        return Ref(c, self.free.get(c, frozenset()))

    def having(self, relation: str) -> frozenset[int]:
        """The classes of a relation's first column."""
        return frozenset(self.number(r.inputs[0]) for r in self._rows(relation))

    def dtypes(self) -> dict[int, Dtype]:
        return {self.number(r.inputs[0]): Dtype(self.engine.value_to_string(r.output))
                for name in ("dtype", "stored") for r in self._rows(name)}

    def _index_lists(self) -> dict:
        lists, e = {}, self.engine
        for r in self._rows("At"):
            lists[r.output] = self.encoder.indices[e.value_to_i64(r.inputs[0])]
        for r in self._rows("Gather"):
            bodies = [self.ref(v) for v in e.value_to_vec(r.inputs[1])]
            template = self.encoder.indices[e.value_to_i64(r.inputs[0])]
            to = {b: bodies[b.number] for b in gathers(template)}
            lists[r.output] = tuple(with_bodies(i, to) for i in template)
        return lists

    def _read_bodies(self) -> None:
        e, ref = self.engine, self.ref
        text, integer = e.value_to_string, e.value_to_i64
        axes = lambda v: self.encoder.axes[integer(v)]
        readers = {
            "Load": lambda t, i: Load(ref(t), self.lists[i]),
            "Float": lambda d, v: const(Dtype(text(d)), e.value_to_f64(v)),
            "Int": lambda d, v: const(Dtype(text(d)), integer(v)),
            "Iota": lambda i: Iota(self.lists[i][0]),
            "Op1": lambda o, *a: Op(text(o), tuple(map(ref, a))),
            "Op2": lambda o, *a: Op(text(o), tuple(map(ref, a))),
            "Op3": lambda o, *a: Op(text(o), tuple(map(ref, a))),
            "Cast": lambda d, a: Cast(Dtype(text(d)), ref(a)),
            "Round": lambda d, a: RoundTo(Dtype(text(d)), ref(a)),
            "Fold1": lambda m, k, *a: self._fold(text(m), axes(k), tuple(map(ref, a))),
            "Fold2": lambda m, k, *a: self._fold(text(m), axes(k), tuple(map(ref, a))),
        }
        for name, read in readers.items():
            for r in self._rows(name):
                form = read(*r.inputs)
                self.bodies[self.number(r.output)].append(Node(form, _children(form)))

    @staticmethod
    def _fold(monoid: str, axes: tuple[Axis, ...], bodies: tuple[Ref, ...]) -> Fold:
        name, _, part = monoid.partition(".")
        return Fold(name, axes, bodies, int(part or 0))

    def _read_tensors(self) -> None:
        integer = self.engine.value_to_i64
        for r in self._rows("Buffer"):
            self.tensors[self.number(r.output)].append(Node(self.encoder.tensors[integer(r.inputs[0])], ()))
        for r in self._rows("Launch"):
            form = Launch(self.encoder.axes[integer(r.inputs[0])], self.ref(r.inputs[1]))
            self.tensors[self.number(r.output)].append(Node(form, (form.body.number,)))

    def smallest(self) -> tuple[dict[int, Term], dict[int, int]]:
        """A ground term for each class and its size: of fewest nodes (a load of a launch counts three), then of least key.

        A tensor's is the first spelling that was entered. Dijkstra over sizes, so the result depends on terms alone.
        """
        size: dict[int, int] = {c: 1 for c in self.entered}
        best: dict[int, Term] = {c: ts[0] for c, ts in self.entered.items()}
        waiting: dict[int, list] = defaultdict(list)
        queue: list = []
        offers: dict[tuple[int, int], list[Node]] = defaultdict(list)

        def offer(c: int, node: Node) -> None:
            n = 1 + sum(size[x] for x in node.children) + 2 * (
                isinstance(node.form, Load) and isinstance(best[node.children[0]], Launch))
            if (c, n) not in offers:
                heapq.heappush(queue, (n, c))
            offers[c, n].append(node)

        for group in (self.bodies, self.tensors):
            for c, nodes in group.items():
                if c in best:
                    continue
                for node in nodes:
                    missing = {x for x in node.children if x not in best}
                    if not missing:
                        offer(c, node)
                    for x in missing:
                        waiting[x].append((c, node))
        while queue:
            n, c = heapq.heappop(queue)
            if c in best:
                continue
            size[c] = n
            best[c] = min((with_children(node.form, best) for node in offers[c, n]), key=lambda t: t.key)
            for parent, node in waiting[c]:
                if parent not in best and all(x in best for x in node.children):
                    offer(parent, node)
        return best, size


def _children(form: Term) -> tuple[int, ...]:
    """The classes that a node refers to, those in its indices among them."""
    match form:
        case Load(t, indices): return (t.number, *(b.number for b in gathers(indices)))
        case Iota(i): return tuple(b.number for b in gathers((i,)))
        case Op(_, args): return tuple(a.number for a in args)
        case Cast(_, b) | RoundTo(_, b): return (b.number,)
        case Fold(): return tuple(b.number for b in form.bodies)
    return ()


def with_children(form: Term, to: dict[int, Term]) -> Term:
    """A node with terms in place of its classes."""
    def at(indices: tuple[Index, ...]) -> tuple[Index, ...]:
        bodies = {b: to[b.number] for b in gathers(indices)}
        return tuple(with_bodies(i, bodies) for i in indices) if bodies else indices
    match form:
        case Load(t, indices): return Load(to[t.number], at(indices))
        case Iota(i): return Iota(*at((i,)))
        case Op(name, args): return Op(name, tuple(to[a.number] for a in args))
        case Cast(d, b): return Cast(d, to[b.number])
        case RoundTo(d, b): return RoundTo(d, to[b.number])
        case Fold(m, k, bodies, part): return Fold(m, k, tuple(to[b.number] for b in bodies), part)
        case Launch(k, b): return Launch(k, to[b.number])
    return form


def freeze(rows: Rows) -> EGraph:
    """The e-graph under canonical numbers: tensors in the order they were entered, then bodies, smallest first."""
    best, size = rows.smallest()
    order = {t: n for n, t in enumerate(rows.encoder.tensors.items)}
    tensors = sorted(rows.tensors, key=lambda c: (order.get(best.get(c), len(order)), best[c].key))
    bodies = sorted((c for c in rows.bodies if c in best), key=lambda c: (size[c], best[c].key))
    refs = {c: Ref(n, rows.free.get(c, frozenset())) for n, c in enumerate([*tensors, *bodies])}

    def nodes(group: dict[int, list[Node]], classes: list[int]) -> dict[int, tuple[Term, ...]]:
        return {refs[c].number: tuple(sorted((with_children(n.form, refs) for n in group[c]), key=_node_order))
                for c in classes}

    number = _numbers_of_entered(rows, refs)
    return EGraph(
        bodies=nodes(rows.bodies, bodies), tensors=nodes(rows.tensors, tensors),
        free={refs[c].number: refs[c].axes for c in bodies},
        spellings={refs[c].number: tuple(rows.entered[c]) for c in tensors},
        number=number,
        parameter=frozenset(refs[c].number for c in rows.having("parameter") | rows.having("known") if c in refs),
        cut=frozenset(refs[c].number for c in rows.having("cut") if c in refs),
        dtypes={refs[c].number: d for c, d in rows.dtypes().items() if c in refs})


def _node_order(t: Term) -> tuple:
    return type(t).__name__, str(t)


def _numbers_of_entered(rows: Rows, refs: dict[int, Ref]) -> dict[Term, int]:
    """The class of each ground tensor and body that was entered, by congruence: children first, as they were entered."""
    known: dict[Term, Ref] = {t: refs[c] for c, ts in rows.entered.items() for t in ts}
    table = {with_children(n.form, refs): refs[c] for c, nodes in rows.bodies.items() for n in nodes
             if all(x in refs for x in n.children) and c in refs}
    for t in rows.encoder.seen:
        if isinstance(t, Term) and t not in known:
            if (form := _over_classes(t, known)) in table:
                known[t] = table[form]
    return {t: r.number for t, r in known.items()}


def _over_classes(t: Term, known: dict[Term, Ref]) -> Term | None:
    """A ground body as a node: its children replaced by their classes."""
    def at(indices):
        bodies = {b: known[b] for b in gathers(indices)}
        return tuple(with_bodies(i, bodies) for i in indices) if bodies else indices
    try:
        match t:
            case Load(x, indices): return Load(known[x], at(indices))
            case Iota(i): return Iota(*at((i,)))
            case Op(name, args): return Op(name, tuple(known[a] for a in args))
            case Cast(d, b): return Cast(d, known[b])
            case RoundTo(d, b): return RoundTo(d, known[b])
            case Fold(m, k, bodies, part): return Fold(m, k, tuple(known[b] for b in bodies), part)
    except KeyError:
        return None
    return t
