"""Kernel candidates: all bodies of the tensors worth storing that one kernel can compute, the best of each kind.

Bottom up over the e-graph's classes: a partial body is a ground term for a class, with some loads left in it. It is
kept if its loop structure is feasible (extract/cost.py), among the best few of those whose folds come from the same
classes, and if no other needs only tensors that it needs and takes no longer. One body uses one spelling of a class.
"""
from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Iterable, Iterator

from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Buffer, Cast, Fold, Load, children, dtype
from deplodock.ir.plan import Output
from deplodock.ir.term import Term
from deplodock.target import Target
from extract.cost import Cost, Refused, cost, size
from extract.program import Program
from extract.spelled import spelled
from extract.structure import assemble, folds, leaves, loops, narrow, orbit, product, product_of, streams, tops
from rules.finishing import round_operand

BEST = 3
"""Bodies kept of each class for each set of fold classes; more changed no plan of the suite (tests/extract)."""
BREADTH = 32
"""Bodies kept of each class. Those that need most stored tensors go first: each of these comes from another kernel.
Where sizes are small, every kernel costs a launch, and there are hundreds of ways to mix what is read with what is
computed: more of them are more for the cover than it can look at. Of a decoder layer at its size few classes have more,
and its plan is the same with 64."""
COMBINATIONS = 200_000
"""Combinations of bodies that agree which are tried, or a tenth of those that do not, before the search only completes
what has no body yet: 3 s. A decoder layer takes 17,000."""
BODIES = 20_000
"""Bodies that are priced before the same: 10 s. A decoder layer takes 6,000 to 11,000."""
SIBLINGS = 4
"""Products that may share a loop over one operand: query, key, value, and one more."""
ROWS_TOGETHER = 2
"""Kernels without products that may share their sweep."""


class Candidate:
    """A kernel that could be in a plan. `need`: stored tensors that it reads; `names`: the buffers that it writes."""
    __slots__ = ("outs", "cost", "reads", "need", "names", "__dict__")

    def __init__(self, outs: tuple[Output, ...], cost: Cost):
        self.outs, self.cost = outs, cost
        self.reads = frozenset(l.tensor for o in outs for l in leaves(o.body))
        self.need = frozenset(b for b in self.reads if b.kind in ("stored", "output"))
        self.names = frozenset(o.buffer for o in outs)

    @property
    def seconds(self) -> float:
        return self.cost.seconds

    @cached_property
    def roots(self) -> tuple[Fold, ...]:
        return tuple(dict.fromkeys(f for o in self.outs for f in tops(o.body)))

    @cached_property
    def key(self) -> tuple[str, ...]:
        return tuple(x for o in self.outs for x in (o.buffer.name, o.body.key))


@dataclass(slots=True)
class Partial:
    """A body of a class. classes, picks: the classes in which a choice matters of which it uses a body, and these bodies,
    as bits: two bodies agree if they have as many picks in common as classes. kind: the classes of its folds at the top,
    and below them."""
    body: Term
    need: frozenset[Buffer]
    seconds: float
    classes: int
    picks: int
    kind: tuple[frozenset[int], frozenset[int]]
    leaf: bool
    serial: int
    """Bodies made later have greater ones."""


@dataclass
class Statistics:
    """What the search did: combinations tried, bodies made, why bodies were dropped, candidates kept."""
    counts: Counter = field(default_factory=Counter)

    @property
    def cut_short(self) -> bool:
        """Whether the search has stopped looking for more than one body of a class."""
        n = self.counts
        return n["combinations"] > COMBINATIONS or n["with two spellings"] > 10 * COMBINATIONS or n["bodies"] > BODIES

    def __str__(self) -> str:
        return ", ".join(f"{n} {what}" for what, n in sorted(self.counts.items()))


class Search:
    """The partial bodies of every class of a program: `bodies` after `run`."""

    def __init__(self, program: Program, target: Target, best: int = BEST):
        self.program, self.target, self.limit = program, target, best
        self.partials: dict[int, list[Partial]] = {c: [] for c in program.order}
        self.tried: set[tuple[int, Term]] = set()
        self.fold_class: dict[Fold, int] = {}
        self.narrow_as: dict[Term, Dtype] = {}
        self.class_of: dict[Term, int] = {}
        self.statistics = Statistics()
        self.bit = {c: 1 << i for i, c in enumerate(self._tracked())}
        self.picked = 0

    def run(self) -> None:
        p = self.program
        for c in p.order:
            for leaf in p.leaf[c]:
                self._add(c, leaf, 0, 0, leaf=True)
        done: dict[tuple[int, int], int] = {}
        moved = True
        while moved:
            moved = False
            for c in p.order:
                for j, node in enumerate(p.nodes(c)):
                    below = [self.partials[x.number] for x in children(node)]
                    short = self.statistics.cut_short
                    if short and any(not x.leaf for x in self.partials[c]):
                        break
                    if short:
                        below = [sorted(xs, key=lambda x: (x.seconds, x.serial))[:BEST] for xs in below]
                    known, done[c, j] = done.get((c, j), -1), len(self.tried)
                    newest = max((x.serial for xs in below for x in xs), default=0)
                    if newest <= known:
                        continue
                    for parts in self._agreeing(below, short):
                        if not parts or max(x.serial for x in parts) > known:
                            moved |= self._combine(c, node, parts)
                    if not short and self.statistics.cut_short:
                        done[c, j], moved = known, True

    def bodies(self, c: int) -> list[Term]:
        return [self._read_throughout(x.body) for x in self.partials[c]]

    def _read_throughout(self, body: Term) -> Term:
        """A body that reads a stored tensor wherever it needs its values. Those that it computes again, at other places, are
        rounded or added up in another way, which exp(s - max s) shows."""
        held = {l.tensor for l in leaves(body) if l.tensor in self.program.rank}
        seen: dict[Term, Term] = {}

        def visit(t: Term) -> Term:
            below = children(t)
            if t not in seen:
                seen[t] = self._read(t, held) or (assemble(t, tuple(map(visit, below))) if below else t)
            return seen[t]
        return visit(body) if held else body

    def _read(self, t: Term, held: set[Buffer]) -> Load | None:
        """What has the value of a computed body among tensors that are held."""
        if isinstance(t, Load) or t not in self.class_of or not (tops(t) or dtype(t).is_16bit):
            return None
        return next((l for l in self.program.leaf[self.class_of[t]] if isinstance(l, Load) and l.tensor in held), None)

    def _tracked(self) -> list[int]:
        """Classes of which one body may use one spelling only: those with a fold or a load, and those on a cycle."""
        p = self.program
        found = {c for c in p.order if c not in p.folded
                 and any(isinstance(n, (Fold, Load)) for n in p.egraph.bodies[c])}
        return sorted(found | _cyclic({c: {x.number for n in p.nodes(c) for x in children(n)} for c in p.order}))

    def _agreeing(self, below: list[list[Partial]], short: bool, classes: int = 0, picks: int = 0,
                  parts: tuple[Partial, ...] = ()) -> Iterator[tuple[Partial, ...]]:
        """Bodies for each operand, in which no class has two spellings; until the search is cut short, if it is not yet.
        """
        if len(parts) == len(below):
            yield parts
            return
        for x in list(below[len(parts)]):
            if (both := classes & x.classes) and both.bit_count() != (picks & x.picks).bit_count():
                self.statistics.counts["with two spellings"] += 1
            elif short or not self.statistics.cut_short:
                yield from self._agreeing(below, short, classes | x.classes, picks | x.picks, (*parts, x))

    def _combine(self, c: int, node: Term, parts: tuple[Partial, ...]) -> bool:
        self.statistics.counts["combinations"] += 1
        classes = picks = 0
        for x in parts:
            classes |= x.classes
            picks |= x.picks
        if classes & self.bit.get(c, 0):
            return False
        body = assemble(node, tuple(x.body for x in parts)) if parts else node
        if isinstance(body, Fold):
            if isinstance(node, Fold) and node.monoid == "online" and not self.program.may_round(node.bodies[0].number):
                p = product(body)
                if p is not None and p.mma:
                    self.statistics.counts["would round what the program does not"] += 1
                    return False
            body = self._on_tensor_cores(body)
            self.fold_class.setdefault(body, c)
        return self._add(c, body, classes, picks)

    def _add(self, c: int, body: Term, classes: int, picks: int, leaf: bool = False) -> bool:
        if (c, body) in self.tried:
            return False
        self.tried.add((c, body))
        p, counts = self.program, self.statistics.counts
        counts["bodies"] += 1
        priced = cost(((p.egraph.free[c], body),), 0, self.target, p.late[c])
        if isinstance(priced, Refused):
            counts[priced.reason] += 1
            return False
        need = frozenset(l.tensor for l in leaves(body) if l.tensor in p.rank)
        others = self.partials[c]
        if not leaf:
            if any(not o.leaf and self.beats(o.need, o.seconds, need, priced.seconds) for o in others):
                counts["dominated"] += 1
                return False
            others[:] = [o for o in others if o.leaf or not self.beats(need, priced.seconds, o.need, o.seconds)]
        if c in p.narrow:
            self.narrow_as.setdefault(body, p.narrow[c])
        self.class_of.setdefault(body, c)
        if c in self.bit:
            classes |= self.bit[c]
            picks |= 1 << self.picked
            self.picked += 1
        made = Partial(body, need, priced.seconds, classes, picks, self._kind(body), leaf, len(self.tried))
        others.append(made)
        alike = [o for o in others if o.kind == made.kind and not o.leaf]
        if not leaf and len(alike) > self.limit:
            worst = max(alike, key=lambda o: (o.seconds, o.body.key))
            others.remove(worst)
            return worst is not made
        if len(others) > BREADTH:
            worst = max((o for o in others if not o.leaf), key=lambda o: (len(o.need), o.seconds, o.body.key))
            others.remove(worst)
            return worst is not made
        return True

    @staticmethod
    def beats(need: frozenset[Buffer], seconds: float, other_need: frozenset[Buffer], other_seconds: float) -> bool:
        """Whether a body makes another of its class superfluous: it needs no other tensor and takes no longer."""
        return need <= other_need and seconds <= other_seconds * (1 + 1e-9)

    def _kind(self, body: Term) -> tuple[frozenset[int], frozenset[int]]:
        top = frozenset(self.fold_class.get(f, -1) for f in tops(body))
        return top, frozenset(self.fold_class.get(g, -1) for f in tops(body) for b in f.bodies for g in folds(b))

    def _on_tensor_cores(self, f: Fold) -> Fold:
        """A product with its computed operand rounded to 16 bits, by round_operand: to the dtype of the other operand,
        or to the one in which the program itself holds both. Where the program does not hold the operand in 16 bits,
        only if that cannot show: its data are 16 bits wide, and so are all of the program's results.
        """
        program = self.program
        p = product(f)
        if not program.rounds or p is None or p.mma or f.monoid != "sum" or dtype(f) != Dtype.f32:
            return f
        sides = p.left, p.right
        exact = [narrow(s[0]) if len(s) == 1 else None for s in sides]
        held = [e or self.narrow_as.get(product_of(s)) for e, s in zip(exact, sides)]
        d = exact[0] or exact[1] or (held[0] if held[0] == held[1] else None)
        if d is None or any(e not in (None, d) for e in exact):
            return f
        for h, s in zip(held, sides):
            if h != d and not (program.coarse and any(l.tensor.dtype == d for x in s for l in leaves(x))):
                return f
        left, right = (product_of(s) for s in sides)
        if exact == [None, None]:
            left = Cast(Dtype.f32, Cast(d, left))  # as the program does
        elif exact[0] is None:
            left, right = right, left
        rounded = round_operand.instance(a=right, w=left.body, k=f.axes, d=d).rhs
        return Fold(f.monoid, f.axes, (product_of(rounded.bodies[0].args),), f.part)


def candidates(program: Program, search: Search) -> list[Candidate]:
    """Kernels of every tensor worth storing, and of several tensors where their loops agree; none that another beats.
    """
    p, target, counts = program, search.target, search.statistics.counts
    single: dict[Buffer, list[Candidate]] = defaultdict(list)
    for b, (c, axes) in p.own.items():
        if b not in p.wanted:
            continue
        for body in search.bodies(c):
            if any(p.rank.get(l.tensor, -1) >= p.rank[b] for l in leaves(body)):
                continue  # computed from what comes after it, or from itself
            made = _candidate((Output(b, axes, p.widened(body)),), target)
            if made is not None:
                single[b].append(made)
        if not single[b]:  # the search was cut short, or found only what reads later tensors
            made = _as_spelled(p, b, target)
            single[b] += [made] if made is not None else []
    several = _several(program, single, target)
    counts["kernels of one tensor"] = sum(map(len, single.values()))
    counts["kernels of several"] = len(several)
    by: dict[frozenset[Buffer], list[Candidate]] = defaultdict(list)
    for k in [k for ks in single.values() for k in ks] + several:
        by[k.names].append(k)
    kept: list[Candidate] = []
    for ks in by.values():
        chosen: list[Candidate] = []
        for k in sorted(ks, key=lambda k: (k.seconds, k.key)):
            if not any(o.need <= k.need for o in chosen):
                chosen.append(k)
        kept += chosen
    counts["candidates"] = len(kept)
    return kept


def as_spelled(p: Program, target: Target) -> list[Candidate]:
    """A kernel for each tensor worth storing that computes it as the program does, in program order."""
    made = [_as_spelled(p, b, target) for b in sorted(p.own, key=p.rank.get) if b in p.wanted and b in p.source]
    return [k for k in made if k is not None]


def _as_spelled(p: Program, b: Buffer, target: Target) -> Candidate | None:
    return _candidate((Output(b, p.own[b][1], p.widened(spelled(p, b))),), target)


def _candidate(outs: tuple[Output, ...], target: Target) -> Candidate | None:
    priced = cost(tuple((frozenset(o.axes), o.body) for o in outs), sum(size(o.buffer) for o in outs), target)
    return Candidate(outs, priced) if isinstance(priced, Cost) else None


def _several(p: Program, single: dict[Buffer, list[Candidate]], target: Target) -> list[Candidate]:
    """Kernels with several outputs: products in one loop over a common operand, or rows swept together."""
    groups: dict[tuple, dict[Buffer, list[Candidate]]] = defaultdict(lambda: defaultdict(list))
    for b, ks in single.items():
        for k in ks:
            for key in _shared_loops(k):
                groups[key][b].append(k)
    made: dict[tuple, Candidate | None] = {}
    for (products, *_), by in groups.items():
        needs = {k.need for ks in by.values() for k in ks if len(k.need) <= 2}
        for need in sorted(needs, key=lambda n: sorted(b.name for b in n)):
            cheapest = {b: min(usable, key=lambda k: (k.seconds, k.key)) for b, ks in by.items()
                        if (usable := [k for k in ks if k.need <= need])}
            families: dict[object, list[Buffer]] = defaultdict(list)  # q, q*cos and rope(q) are one product: one family
            for b, k in cheapest.items():
                families[frozenset(orbit(f) for f in k.roots if product(f)) or b].append(b)
            for r in range(2, min(len(families), SIBLINGS if products else ROWS_TOGETHER) + 1):
                for chosen in itertools.combinations(families.values(), r):
                    for bs in itertools.product(*chosen):
                        _merge(p, [cheapest[b] for b in sorted(bs, key=p.rank.get)], products, made, target)
    return [k for k in made.values() if k is not None]


def _shared_loops(k: Candidate) -> Iterable[tuple]:
    """What kernels must have in common to run in one loop nest."""
    products = [f for f in k.roots if product(f)]
    if products:
        return dict.fromkeys((True, tuple(a.extent for a in f.axes), s) for f in products
                             for s in sorted(streams(f), key=lambda s: (s[0].key, *(i.key for i in s[1]))))
    if any(product(f) for o in k.outs for f in folds(o.body)):
        return ()
    return [(False, k.cost.sweep, b) for b in sorted(k.reads, key=lambda b: b.name)]


def _merge(p: Program, ks: list[Candidate], products: bool, made: dict, target: Target) -> None:
    names = tuple(b for k in ks for b in k.names)
    reads = frozenset().union(*(k.reads for k in ks))
    if (names, reads) in made:
        return
    made[names, reads] = None
    if reads & set(names):
        return
    if max((p.rank[b] for b in reads if b in p.rank), default=-1) >= min(p.rank[b] for b in names):
        return
    k = _candidate(tuple(o for k in ks for o in k.outs), target)
    if k is None:
        return
    if products and len({i for i, level in enumerate(loops(k.roots)) for f, _ in level if product(f)}) > 1:
        return
    made[names, reads] = k


def _cyclic(graph: dict[int, set[int]]) -> set[int]:
    """The nodes of a graph that lie on a cycle (Tarjan's strongly connected components, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on: set[int] = set()
    found: set[int] = set()
    for start in graph:
        if start in order:
            continue
        work = [(start, iter(sorted(graph[start])))]
        order[start] = low[start] = len(order)
        stack.append(start)
        on.add(start)
        while work:
            v, targets = work[-1]
            for w in targets:
                if w not in graph:
                    continue
                if w not in order:
                    order[w] = low[w] = len(order)
                    stack.append(w)
                    on.add(w)
                    work.append((w, iter(sorted(graph[w]))))
                    break
                if w in on:
                    low[v] = min(low[v], order[w])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[v])
                if low[v] == order[v]:
                    members = []
                    while True:
                        w = stack.pop()
                        on.discard(w)
                        members.append(w)
                        if w == v:
                            break
                    if len(members) > 1 or v in graph[v]:
                        found.update(members)
    return found
