"""A program cut into regions: consecutive parts that are compiled on their own, equal ones once.

A whole model is too large for one e-graph, and most of it is one layer many times. It is cut where few intermediates are
alive that kernels would not store anyway (a value that several nodes read, or that folds read): between the blocks of a
model that is the residual stream alone, beside what stays alive through many of them. What lies between two cuts is joined
with its neighbours again, the pair that occurs most often first, as long as no region gets too large and no more work is
left than before. So the parts that repeat become equal regions, and few cuts are left.

What depends on parameters and constants only is part of every region that reads it; kernels that compute equal constants
are one when the plans of regions are put together (deplodock/assembled.py). Nothing is fused across a cut.

    cut(program) -> (Part(kind 0, program), Part(kind 1, ..), Part(kind 1, ..), ..)
"""
from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import Iterator

from deplodock.enter import enter
from deplodock.ir.loop import Cast, Fold, Load, children, loads
from deplodock.ir.term import Term
from deplodock.ir.torch import Arg, Node, Program, Value, contiguous

WHOLE = 112
"""Steps of a region at most, where there is a cut: what the definitions make of its operators. A layer of a transformer has
40 to 100, however its operators are written, and takes 5 s; two in one region take four times as long as one."""


@dataclass(frozen=True, slots=True)
class Part:
    """A region of a program. Parts of one kind are equal but for names: of tensors, parameters and lines of source."""
    kind: int
    program: Program

    @property
    def names(self) -> tuple[str, ...]:
        """Of all its tensors: parts of one kind have them in one order."""
        p = self.program
        return tuple(v.name for v in (*p.inputs, *p.parameters, *p.nodes))


def cut(program: Program, whole: int = WHOLE) -> tuple[Part, ...]:
    """The regions of a program, in the order in which they run. whole: steps of a region at most."""
    cutting = _Cutting(program, whole)
    if cutting.total <= whole or not cutting.nodes:
        return Part(0, program),
    return tuple(cutting.parts(cutting.joined(cutting.atoms())))


Span = tuple[int, int]
"""The first node of a part, and the one behind its last, by their places in _Cutting.nodes."""


class _Cutting:
    """A program on the bench.

    nodes: those that depend on an input, in order. fixed: the others, by name. readers: of each of the former the places
    among `nodes` that read it. before: the steps of all nodes before each of `nodes`; total: those of the whole program.
    """

    def __init__(self, program: Program, whole: int):
        self.program, self.whole = program, whole
        self.values = {v.name: v for v in (*program.inputs, *program.parameters, *program.nodes)}
        self.place = {name: i for i, name in enumerate(self.values)}
        self.given = {v.name for v in program.inputs}
        varying, self.nodes, self.fixed = set(self.given), [], {}
        for n in program.nodes:
            if any(r in varying for r in reads(n)):
                varying.add(n.name)
                self.nodes.append(n)
            else:
                self.fixed[n.name] = n
        self.at = {n.name: i for i, n in enumerate(self.nodes)}
        self.readers: dict[str, list[int]] = {n.name: [] for n in self.nodes}
        for i, n in enumerate(self.nodes):
            for r in dict.fromkeys(reads(n)):
                if r in self.at:
                    self.readers[r].append(i)
        steps = {n.name: self._reading(n).steps for n in program.nodes}
        self.total = sum(steps.values())
        self.before = [0, *accumulate(steps[n.name] for n in self.nodes)]
        self.prices = self._prices()
        self.made: dict[Span, Program] = {}
        self.keys: dict[Span, str] = {}

    # ---- where to cut ------------------------------------------------------------------------------------------------

    def atoms(self) -> list[Span]:
        """The program cut wherever it costs least; what is still too large then is cut again, where that costs least."""
        done, todo = [], [(0, len(self.nodes))]
        while todo:
            low, high = todo.pop()
            inside = range(low + 1, high)
            if not inside or self._steps((low, high)) <= self.whole and (low, high) != (0, len(self.nodes)):
                done.append((low, high))
                continue
            least = min(self.prices[i] for i in inside)
            ends = [low, *(i for i in inside if self.prices[i] == least), high]
            todo += list(zip(ends, ends[1:]))[::-1]
        return done

    def _prices(self) -> list[tuple[int, int]]:
        """For each place among the nodes what a cut before it costs: the intermediates alive there, and how many of
        them need not be stored."""
        out, alive = [], []
        for at in range(len(self.nodes) + 1):
            alive = [n for n in alive if self.readers[n][-1] >= at]
            out.append((len(alive), sum(not self._stored(n, at) for n in alive)))
            if at < len(self.nodes) and self.readers[name := self.nodes[at].name]:
                alive.append(name)
        return out

    def _stored(self, name: str, at: int) -> bool:
        """Whether an intermediate is most likely stored at a cut whatever the rest is: several nodes behind read it, or
        one reads it in a fold; or one moves or widens it, and that is stored."""
        behind = [i for i in self.readers[name] if i >= at]
        if len(behind) != 1:
            return len(behind) > 1
        reader = self.nodes[behind[0]]
        found = self._reading(reader)
        return name in found.folded or (found.moves and size(reader) >= size(self.values[name])
                                        and self._stored(reader.name, behind[0] + 1))

    def _reading(self, node: Node) -> Reading:
        """What an operator does, with its operands by their names."""
        names = dict.fromkeys(reads(node))
        operands = tuple(replace(_value(self.values[r]), name=f"x{i}") for i, r in enumerate(names))
        to = {r: v.name for r, v in zip(names, operands)}
        found = reading(Program(operands, (), (_renamed(node, {**to, node.name: "y"}),), ("y",)))
        return replace(found, folded=frozenset(r for r in to if to[r] in found.folded))

    def _steps(self, span: Span) -> int:
        """The steps of a span, without what depends on parameters only."""
        return self.before[span[1]] - self.before[span[0]]

    # ---- joining -----------------------------------------------------------------------------------------------------

    def joined(self, spans: list[Span]) -> list[Span]:
        """Fewer spans: neighbours become one, the most frequent pair first, where that leaves no more steps to compile
        than before, or cuts a value that need not be stored."""
        while True:
            pairs: dict[str, list[int]] = {}
            for i, (a, b) in enumerate(zip(spans, spans[1:])):
                if self._steps((a[0], b[1])) <= self.whole:
                    at = pairs.setdefault(self.key((a[0], b[1])), [])
                    if not at or at[-1] < i - 1:
                        at.append(i)
            for at in sorted(pairs.values(), key=lambda at: (-len(at), at[0])):
                chosen = set(at)
                after = [(s[0], spans[i + 1][1]) if i in chosen else s for i, s in enumerate(spans) if i - 1 not in chosen]
                work, before = self._work(after), self._work(spans)
                loose = self.prices[spans[at[0]][1]][1] > 0
                if work <= before or loose and work <= self.whole:
                    spans = after
                    break
            else:
                return spans

    def _work(self, spans: list[Span]) -> int:
        """Steps of all distinct parts."""
        return sum({self.key(s): self._steps(s) for s in spans}.values())

    # ---- parts -------------------------------------------------------------------------------------------------------

    def key(self, span: Span) -> str:
        """Equal for spans that are equal but for names."""
        if span not in self.keys:
            self.keys[span] = canonical(self.part(span))
        return self.keys[span]

    def parts(self, spans: list[Span]) -> Iterator[Part]:
        kinds: dict[str, int] = {}
        for s in spans:
            yield Part(kinds.setdefault(self.key(s), len(kinds)), self.part(s))

    def part(self, span: Span) -> Program:
        """The program of a span: its nodes, the parameter-only ones that it needs, and what later ones read of it."""
        if span not in self.made:
            self.made[span] = self._part(*span)
        return self.made[span]

    def _part(self, low: int, high: int) -> Program:
        p = self.program
        mine = {n.name: n for n in self.nodes[low:high]}
        last = high == len(self.nodes)
        stack = [r for n in mine.values() for r in reads(n)] + [o for o in p.outputs if last and o in self.fixed]
        while stack:
            name = stack.pop()
            if name in self.fixed and name not in mine:
                mine[name] = self.fixed[name]
                stack += reads(mine[name])
        nodes = sorted(mine.values(), key=lambda n: self.place[n.name])
        read = dict.fromkeys(r for n in nodes for r in reads(n) if r not in mine)
        inputs = tuple(_value(self.values[r]) for r in read if r in self.given or r in self.at)
        parameters = tuple(self.values[r] for r in read if r not in self.given and r not in self.at)
        outputs = tuple(n.name for n in nodes if n.name in p.outputs and (last or n.name in self.at)
                        or n.name in self.at and self.readers[n.name] and self.readers[n.name][-1] >= high)
        return Program(inputs, parameters, tuple(nodes), outputs)


def reads(node: Node) -> Iterator[str]:
    """The names of the tensors that a node reads, in order."""
    for _, a in node.args:
        if isinstance(a, Arg):
            yield a.name
        elif isinstance(a, tuple):
            yield from (x.name for x in a if isinstance(x, Arg))


def canonical(program: Program) -> str:
    """The text of a program without what does not change it: names, paths of parameters, lines of source."""
    kinds = (("x", program.inputs), ("p", program.parameters), ("n", program.nodes))
    to = {v.name: f"{kind}{i}" for kind, values in kinds for i, v in enumerate(values)}

    def value(v: Value) -> Value:
        return replace(v, name=to[v.name], path="", shares=to.get(v.shares, ""))
    return str(Program(tuple(map(value, program.inputs)), tuple(map(value, program.parameters)),
                       tuple(_renamed(n, to) for n in program.nodes), tuple(to[o] for o in program.outputs),
                       tuple(to[w] for w in program.writes)))


def _renamed(node: Node, to: dict[str, str]) -> Node:
    def argument(a):
        match a:
            case Arg(name): return Arg(to[name])
            case tuple(): return tuple(map(argument, a))
        return a
    return replace(node, name=to[node.name], args=tuple((k, argument(a)) for k, a in node.args), source=None)


def _value(v: Value | Node) -> Value:
    """A tensor as an input: an intermediate lies in memory row by row."""
    return v if isinstance(v, Value) else Value(v.name, v.dtype, v.shape, contiguous(v.shape))


def size(v: Value | Node) -> int:
    """Bytes of a tensor."""
    return math.prod(v.shape) * v.dtype.bytes


@dataclass(frozen=True, slots=True)
class Reading:
    """What an operator does. folded: the operands that its definition reads inside of a fold, as they are or elementwise;
    moves: whether all that it does is to move its operand, or to change its dtype; steps: how many steps that takes."""
    folded: frozenset[str]
    moves: bool
    steps: int


@cache
def reading(program: Program) -> Reading:
    """Of a program of one operator."""
    entered = enter(program)
    behind: dict[Term, frozenset[str]] = {b: frozenset([b.name]) for b in entered.inputs}
    found: set[str] = set()
    for s in entered.statements:
        behind[s.launch] = frozenset().union(*(behind.get(l.tensor, frozenset()) for l in loads(s.launch.body)))
        for f in _folds(s.launch.body):
            found |= frozenset().union(*(behind.get(l.tensor, frozenset()) for l in loads(f)))
    bodies = (s.launch.body for s in entered.statements)
    moves = all(isinstance(b.body if isinstance(b, Cast) else b, Load) for b in bodies)
    return Reading(frozenset(found), moves, len(entered.statements))


def _folds(t: Term) -> Iterator[Term]:
    if isinstance(t, Fold):
        yield t
    else:
        for c in children(t):
            yield from _folds(c)
