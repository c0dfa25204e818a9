"""Reading an e-graph back: egglog's rows as numbered classes of terms.

`Rows` is the plain reading: every class a small integer, every node a tuple. From it come the smallest ground term of
each class, and the EGraph that the rest of the compiler reads, whose numbers depend on terms alone.
"""
from __future__ import annotations

import heapq
import math
from collections import defaultdict
from typing import Mapping, NamedTuple

from egglog.bindings import EGraph as Engine

from deplodock.encoding import Encoder, with_bodies
from deplodock.ir.dtype import Dtype
from deplodock.ir.egraph import EGraph
from deplodock.ir.index import Axis, Index
from deplodock.ir.loop import Cast, Const, Fold, Iota, Launch, Load, Op, Ref, RoundTo, const, gathers
from deplodock.ir.term import Term


class Node(NamedTuple):
    """One row: `data` is what is no class, `children` the numbers of the classes it refers to (of an index list: those
    of its loaded integers, for which Ref(0), Ref(1) .. stand in `data`, come last)."""
    kind: str
    data: tuple
    children: tuple[int, ...]


class Rows:
    """All rows of an engine. Class numbers are arbitrary: they differ from one reading to the next."""

    def __init__(self, engine: Engine, encoder: Encoder):
        self.encoder, self.engine = encoder, engine
        self.functions = engine.freeze().functions
        self._numbers: dict = {}
        self._origins: list[tuple[int, Node, list]] = []
        self.value: list = []
        """The engine's own value of each class."""
        self.bodies: dict[int, list[Node]] = defaultdict(list)
        self.tensors: dict[int, list[Node]] = defaultdict(list)
        sets: dict[int, frozenset[Axis]] = {}
        self.free: dict[int, frozenset[Axis]] = {}
        for r in self._rows("free"):
            mask = engine.value_to_bigint(r.output)
            if mask not in sets:
                sets[mask] = encoder.axes_of(mask)
            self.free[self.number(r.inputs[0])] = sets[mask]
        self._read_bodies()
        self._read_tensors()
        self.entered: dict[int, list[Term]] = defaultdict(list)
        for number, c in sorted((engine.value_to_i64(r.inputs[0]), self.number(r.output)) for r in self._rows("T")):
            self.entered[c].append(encoder.tensors[number])

    def number(self, value) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self.value)
            self.value.append(value)
        return self._numbers[value]

    def _rows(self, name: str):
        return self.functions[name].rows

    def free_of(self, c: int) -> frozenset[Axis]:
        return self.free.get(c, frozenset())

    def having(self, relation: str) -> frozenset[int]:
        """The classes of a relation's first column."""
        return frozenset(self.number(r.inputs[0]) for r in self._rows(relation))

    def dtypes(self) -> dict[int, Dtype]:
        return {self.number(r.inputs[0]): Dtype(self.engine.value_to_string(r.output))
                for name in ("dtype", "stored") for r in self._rows(name)}

    def _index_lists(self) -> dict:
        """By value: the indices of a list, and the classes of its loaded integers."""
        lists, e = {}, self.engine
        for r in self._rows("At"):
            lists[r.output] = self.encoder.indices[e.value_to_i64(r.inputs[0])], ()
        for r in self._rows("Gather"):
            bodies = tuple(map(self.number, e.value_to_vec(r.inputs[1])))
            lists[r.output] = self.encoder.indices[e.value_to_i64(r.inputs[0])], bodies
        return lists

    def _read_bodies(self) -> None:
        e, number, lists = self.engine, self.number, self._index_lists()
        text, integer = e.value_to_string, e.value_to_i64

        def load(t, i):
            indices, bodies = lists[i]
            return (indices,), (number(t), *bodies)

        def iota(i):
            indices, bodies = lists[i]
            return indices, bodies

        def fold(m, k, *a):
            name, _, part = text(m).partition(".")
            return (name, self.encoder.axes[integer(k)], int(part or 0)), tuple(map(number, a))

        def whole(d, v):
            return const(d, v % (1 << 64) if d == Dtype.u64 else v)

        def op(o, *a):
            return (text(o),), tuple(map(number, a))

        readers = {
            "Load": load, "Iota": iota, "Op1": op, "Op2": op, "Op3": op, "Fold1": fold, "Fold2": fold,
            "Float": lambda d, v: ((const(Dtype(text(d)), e.value_to_f64(v)),), ()),
            "Int": lambda d, v: ((whole(Dtype(text(d)), integer(v)),), ()),
            "Cast": lambda d, a: ((Dtype(text(d)),), (number(a),)),
            "Round": lambda d, a: ((Dtype(text(d)),), (number(a),)),
        }
        for kind, read in readers.items():
            for r in self._rows(kind):
                node = Node(kind, *read(*r.inputs))
                self.bodies[number(r.output)].append(node)
                self._origins.append((number(r.output), node, r.inputs))

    def _read_tensors(self) -> None:
        integer = self.engine.value_to_i64
        for r in self._rows("Buffer"):
            node = Node("Buffer", (self.encoder.tensors[integer(r.inputs[0])],), ())
            self.tensors[self.number(r.output)].append(node)
            self._origins.append((self.number(r.output), node, r.inputs))
        for r in self._rows("Launch"):
            node = Node("Launch", (self.encoder.axes[integer(r.inputs[0])],), (self.number(r.inputs[1]),))
            self.tensors[self.number(r.output)].append(node)
            self._origins.append((self.number(r.output), node, r.inputs))

    def origins(self):
        """Each class number and node with the row that it was read from: the function's name and the inputs."""
        return ((c, node, (node.kind, tuple(inputs))) for c, node, inputs in self._origins)


class Smallest:
    """The smallest member of each class: of fewest nodes (a load of a launch counts three), then the first in order.

    Classes are found by size, smallest first, those of one size sorted by their members; so `bodies`, the order in
    which they are found, depends on terms alone, and so does `ground`. A tensor's member is the first spelling that was
    entered.
    """

    def __init__(self, rows: Rows):
        places = {t: n for n, t in enumerate(rows.encoder.tensors.items)}
        self.tensors = sorted(rows.entered, key=lambda c: places[rows.entered[c][0]])
        self.bodies: list[int] = []
        self._rank = {c: n for n, c in enumerate(self.tensors)}
        self._ground = {c: rows.entered[c][0] for c in self.tensors}
        self._node: dict[int, Node] = {}
        self._size = {c: 1 for c in self.tensors}
        self._search(rows)

    def _search(self, rows: Rows) -> None:
        waiting: dict[int, list[tuple[int, Node]]] = defaultdict(list)
        offers: dict[int, dict[int, list[Node]]] = defaultdict(lambda: defaultdict(list))
        sizes: list[int] = []

        def offer(c: int, node: Node) -> None:
            n = 1 + sum(self._size[x] for x in node.children)
            if node.kind == "Load" and isinstance(self._ground[node.children[0]], Launch):
                n += 2
            if n not in offers:
                heapq.heappush(sizes, n)
            offers[n][c].append(node)

        for c, nodes in rows.bodies.items():
            for node in nodes:
                missing = {x for x in node.children if x not in self._rank}
                for x in missing:
                    waiting[x].append((c, node))
                if not missing:
                    offer(c, node)
        while sizes:
            n = heapq.heappop(sizes)
            found = []
            for c, nodes in offers.pop(n).items():
                if c not in self._rank:
                    node = min(nodes, key=self.order)
                    found.append((self.order(node), c, node))
            for _, c, node in sorted(found, key=lambda f: f[0]):
                self._rank[c], self._node[c], self._size[c] = len(self._rank), node, n
                self.bodies.append(c)
            for _, c, _ in found:
                for parent, node in waiting[c]:
                    if parent not in self._rank and all(x in self._rank for x in node.children):
                        offer(parent, node)

    def order(self, node: Node) -> tuple:
        """What nodes are sorted by: kind, what they hold beside classes, and the places of these. Their classes must be
        found."""
        return node.kind, _text(node.data), [self._rank[c] for c in node.children]

    def __contains__(self, c: int) -> bool:
        return c in self._rank

    def ground(self, c: int) -> Term:
        """The smallest member as a ground term."""
        if c not in self._ground:
            node = self._node[c]
            self._ground[c] = term(node, {x: self.ground(x) for x in node.children})
        return self._ground[c]


def _text(datum) -> str:
    if isinstance(datum, tuple):
        return ",".join(map(_text, datum))
    return datum.key if isinstance(datum, Term) else str(datum)


def term(node: Node, to: Mapping[int, Term]) -> Term:
    """A node as a term, with terms in place of its classes."""
    data, children = node.data, node.children
    match node.kind:
        case "Load": return Load(to[children[0]], _filled(data[0], children[1:], to))
        case "Iota": return Iota(*_filled(data, children, to))
        case "Op1" | "Op2" | "Op3": return Op(data[0], tuple(to[c] for c in children))
        case "Cast": return Cast(data[0], to[children[0]])
        case "Round": return RoundTo(data[0], to[children[0]])
        case "Fold1" | "Fold2": return Fold(data[0], data[1], tuple(to[c] for c in children), data[2])
        case "Launch": return Launch(data[0], to[children[0]])
    return data[0]


def _filled(indices: tuple[Index, ...], classes: tuple[int, ...], to: Mapping[int, Term]) -> tuple[Index, ...]:
    """An index list with terms for its loaded integers."""
    if not classes:
        return indices
    bodies = {Ref(n, frozenset()): to[c] for n, c in enumerate(classes)}
    return tuple(with_bodies(i, bodies) for i in indices)


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


def freeze(rows: Rows, laws: Mapping[tuple[int, Node], str]) -> EGraph:
    """The e-graph under canonical numbers: tensors in the order they were entered, then bodies, smallest first.

    laws: what made each node, by the class numbers of `rows`.
    """
    found = Smallest(rows)
    refs = {c: Ref(n, rows.free_of(c)) for n, c in enumerate([*found.tensors, *found.bodies])}

    def nodes(group: dict[int, list[Node]], classes: list[int]) -> dict[int, tuple[Term, ...]]:
        whole = {c: [n for n in group[c] if all(x in refs for x in n.children)] for c in classes}
        return {refs[c].number: tuple(term(n, refs) for n in sorted(ns, key=found.order)) for c, ns in whole.items()}

    bodies = nodes(rows.bodies, found.bodies)
    for number, members in bodies.items():
        _one_literal(number, members)
    parameter = frozenset(refs[c].number for c in rows.having("parameter") | rows.having("known") if c in refs)
    return EGraph(
        bodies=bodies, tensors=nodes(rows.tensors, found.tensors),
        free={refs[c].number: refs[c].axes for c in found.bodies},
        spellings={refs[c].number: tuple(rows.entered[c]) for c in found.tensors},
        number=_numbers_of_entered(rows, refs, bodies),
        parameter=parameter, groups=_groups(bodies, parameter),
        brought={(refs[c].number, term(node, refs)): law for (c, node), law in laws.items()
                 if c in refs and all(x in refs for x in node.children)},
        dtypes={refs[c].number: d for c, d in rows.dtypes().items() if c in refs})


def _one_literal(number: int, members: tuple[Term, ...]) -> None:
    """A tripwire: unequal literals in one class mean that a law is false. Rounding may tell constants of one value
    apart."""
    values = [n.value for n in members if isinstance(n, Const)]
    if any(not math.isclose(v, values[0], rel_tol=1e-9) for v in values[1:] if v == v or values[0] == values[0]):
        unequal = " and ".join(map(str, values))
        raise AssertionError(f"the laws made {unequal} equal (class %{number}): one of them is false")


def _groups(bodies: Mapping[int, tuple[Term, ...]], parameter: frozenset[int]) -> dict:
    """Sums over the same axes of one operand times operands that depend on parameters only, as EGraph.groups has
    them."""
    found: dict[tuple[tuple[Axis, ...], int], set[int]] = defaultdict(set)
    for nodes in bodies.values():
        for node in nodes:
            match node:
                case Fold("sum", axes, (Ref() as product,), 0):
                    for factor in bodies[product.number]:
                        match factor:
                            case Op("mul", (Ref() as x, Ref() as w)):
                                k = frozenset(axes)
                                if (w.number in parameter and x.number not in parameter
                                        and w.axes - x.axes and x.axes - k and w.axes & k):
                                    found[axes, x.number].add(w.number)
    return {key: tuple(sorted(ws)) for key, ws in found.items() if len(ws) > 1}


def _numbers_of_entered(rows: Rows, refs: dict[int, Ref], nodes: Mapping[int, tuple[Term, ...]]) -> dict[Term, int]:
    """The class of each ground tensor and body that was entered, by congruence: children first, as they were
    entered."""
    known: dict[Term, Ref] = {t: refs[c] for c, ts in rows.entered.items() for t in ts}
    table = {t: refs[c] for c in rows.bodies if c in refs for t in nodes[refs[c].number]}
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
