"""Loop IR terms and laws as egglog commands: the only file that knows what the e-graph looks like inside.

    Tensor  = Buffer(id) | Launch(axes, Body)            ids and axes are numbers in tables on the Python side
    Indices = At(id) | Gather(id, [Body])                one index list; its loaded integers, if any, are children
    Body    = Load(Tensor, Indices) | Float(dtype, value) | Int(dtype, value) | Iota(Indices)
            | Op1(name, Body) | Op2(name, Body, Body) | Op3(name, Body, Body, Body) | Cast(dtype, Body)
            | Round(dtype, Body) | Fold1(monoid, axes, Body) | Fold2(monoid, axes, Body, Body)

The part of a fold stands in the monoid's name. Index arithmetic never enters: an index list is one interned number, and
what laws ask about it are facts that Python states (deplodock/facts.py). A set of axes is a big integer, one bit for an
axis. A command is one line of text: entering a program line by line measured ten times faster than as one text, and as
fast as building command objects.

Runs on egglog 13.2 and 14 alike: only `EGraph`, `parse_program`, `run_program` and `freeze` are used.
"""
from __future__ import annotations

import math
from typing import Iterable, Iterator

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, FloorDiv, Gathered, Index, Mod, index
from deplodock.ir.loop import Buffer, Cast, Const, Fold, Iota, Launch, Load, Op, PARTS, Ref, RoundTo, Var, gathers
from deplodock.ir.term import Term
from deplodock.law import Equation, Law

SORTS = """(datatype* (Tensor (Buffer i64) (Launch i64 Body)) (sort Bodies (Vec Body))
  (Indices (At i64) (Gather i64 Bodies))
  (Body (Load Tensor Indices) (Float String f64) (Int String i64) (Iota Indices)
        (Op1 String Body) (Op2 String Body Body) (Op3 String Body Body Body) (Cast String Body) (Round String Body)
        (Fold1 String i64 Body) (Fold2 String i64 Body Body)))
(function T (i64) Tensor :no-merge) (function B (i64) Body :no-merge)"""
BODIES = ("Load", "Float", "Int", "Iota", "Op1", "Op2", "Op3", "Cast", "Round", "Fold1", "Fold2")
TENSORS = ("Buffer", "Launch")
LONG = 240
"""Characters of a body's text beyond which it is named once and then referred to, so that text stays linear in a
DAG."""


class Table:
    """Numbers for things: the first number is 0, in order of arrival."""

    def __init__(self):
        self.items, self.numbers = [], {}

    def __call__(self, item) -> int:
        if item not in self.numbers:
            self.numbers[item] = len(self.items)
            self.items.append(item)
        return self.numbers[item]

    def __getitem__(self, number: int):
        return self.items[number]


class Encoder:
    """Text of ground terms. `new` commands that declare what the text refers to wait in `lines`.

    Callers may watch: axes, index lists, tensors and bodies are reported once each, in order, through `seen`.
    """

    def __init__(self):
        self.axes, self.indices, self.tensors, self.bits, self.named = Table(), Table(), Table(), Table(), Table()
        self.lines: list[str] = []
        self.seen: list[Term | tuple] = []
        self._memo: dict[Term, str] = {}

    def drain(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    def mask(self, axes: Iterable[Axis]) -> str:
        """A set of axes as an egglog expression."""
        return _bigint(sum(1 << self.bits(a) for a in axes))

    def axes_of(self, mask: int) -> frozenset[Axis]:
        return frozenset(a for i, a in enumerate(self.bits.items) if mask >> i & 1)

    def axis_list(self, axes: tuple[Axis, ...]) -> str:
        if axes not in self.axes.numbers:
            number = self.axes(axes)
            self.lines.append(f"(set (bound {number}) {self.mask(axes)})")
            self.lines.append(f"(set (extent {number}) {math.prod(a.extent for a in axes)})")
            self.seen.append(axes)
        return str(self.axes(axes))

    def index_list(self, indices: tuple[Index, ...]) -> str:
        bodies = tuple(dict.fromkeys(gathers(indices)))
        if bodies:
            to = {b: Ref(n, frozenset()) for n, b in enumerate(bodies)}
            template = tuple(with_bodies(i, to) for i in indices)
            text = f"(Gather {self.indices(template)} (vec-of {' '.join(map(self.body, bodies))}))"
        else:
            text = f"(At {self.indices(indices)})"
        if indices not in self._memo:
            self._memo[indices] = text
            self.lines.append(f"(set (reads {text}) {self.mask(frozenset().union(*(i.free for i in indices)))})")
            self.seen.append(indices)
        return text

    def tensor(self, t: Term) -> str:
        if t not in self.tensors.numbers:
            number = self.tensors(t)
            match t:
                case Buffer():
                    self.lines.append(f"(set (T {number}) (Buffer {number}))")
                    self.lines.append(f'(set (stored (Buffer {number})) "{t.dtype}")')
                    if t.kind in ("parameter", "constant"):
                        self.lines.append(f"(known (Buffer {number}))")
                case Launch(axes, body):
                    self.lines.append(f"(set (T {number}) (Launch {self.axis_list(axes)} {self.body(body)}))")
                    self.identity(axes)
            self.seen.append(t)
        return f"(T {self.tensors(t)})"

    def identity(self, axes: tuple[Axis, ...]) -> None:
        """States which index list reads a launch over `axes` point by point."""
        at = tuple(map(index, axes))
        if (axes, "at") not in self._memo:
            self._memo[axes, "at"] = ""
            self.lines.append(f"(in_order {self.axis_list(axes)} {self.index_list(at)})")

    def body(self, b: Term) -> str:
        if b not in self._memo:
            self._memo[b] = ""
            text = self._body(b)
            if len(text) > LONG:
                number = self.named(b)
                self.lines.append(f"(set (B {number}) {text})")
                text = f"(B {number})"
            self._memo[b] = text
            self.seen.append(b)
        return self._memo[b]

    def _body(self, b: Term) -> str:
        match b:
            case Load(t, indices): return f"(Load {self.tensor(t)} {self.index_list(indices)})"
            case Iota(i): return f"(Iota {self.index_list((i,))})"
            case Const(): return literal_text(b)
            case Op(name, args): return f'(Op{len(args)} "{name}" {" ".join(map(self.body, args))})'
            case Cast(d, x): return f'(Cast "{d}" {self.body(x)})'
            case RoundTo(d, x): return f'(Round "{d}" {self.body(x)})'
            case Fold(monoid, axes, bodies, part):
                bodies_text = " ".join(map(self.body, bodies))
                return f'(Fold{len(bodies)} "{monoid_name(monoid, part)}" {self.axis_list(axes)} {bodies_text})'
        raise TypeError(f"{type(b).__name__} cannot be entered")


def monoid_name(monoid: str, part: int) -> str:
    return f"{monoid}.{part}" if PARTS[monoid] > 1 else monoid


def literal_text(c: Const) -> str:
    if c.dtype.is_float:
        return f'(Float "{c.dtype}" {number_text(float(c.value))})'
    return f'(Int "{c.dtype}" {signed(int(c.value))})'


def signed(v: int) -> int:
    """The number of 64 bits with a sign that has the bits of v: egglog's integers have a sign, u64 has none."""
    return (v + (1 << 63)) % (1 << 64) - (1 << 63)


def number_text(v: float) -> str:
    return "NaN" if math.isnan(v) else repr(v)


def _bigint(n: int) -> str:
    return f"(bigint {n})" if n < 1 << 62 else f'(from-string "{n}")'


def with_bodies(i: Index, to: dict[Term, Term]) -> Index:
    """An index with other bodies in its gathered atoms."""
    def atom(a: Term) -> Index:
        match a:
            case Gathered(b, n): return index(Gathered(to[b], n))
            case FloorDiv(j, n): return with_bodies(j, to) // n
            case Mod(j, n): return with_bodies(j, to) % n
        return index(a)
    out = index(i.const)
    for a, c in i.terms:
        out = out + atom(a) * c
    return out


# ---- laws ------------------------------------------------------------------------------------------------------------

def declarations(law: Law) -> Iterator[str]:
    """The commands that declare a law: a ruleset that bears its name, with a rule for each direction."""
    equation = law.pattern()
    yield f"(ruleset {law.name})"
    yield _rule(law.name, equation.lhs, equation.rhs, equation)
    if equation.both:
        yield _rule(law.name, equation.rhs, equation.lhs, equation, "_back")


def _rule(name: str, lhs, rhs, equation: Equation, suffix: str = "") -> str:
    query = Query()
    root = query.pattern(lhs)
    facts = [] if isinstance(lhs, Var) else [f"(= root_ {root})"]
    facts += query.facts
    facts += [c.fact.query(*map(query.argument, c.args)) for c in equation.conditions]
    target = root if isinstance(lhs, Var) else "root_"
    action = f"(union {target} {Query().pattern(rhs, build=True)})"
    return f'(rule ({" ".join(facts)}) ({action}) :ruleset {name} :name "{name}{suffix}")'


class Query:
    """Text of a pattern. A max-shifted exponential, exp(s - max s), is looked up as one fact, which keeps patterns
    small.

    With an encoder, buffers may stand in a pattern for themselves.
    """

    def __init__(self, encoder: Encoder | None = None):
        self.encoder, self.facts, self.markers = encoder, [], {}

    def argument(self, a) -> str:
        """An argument of a condition."""
        match a:
            case Var(): return a.name + "_"
            case Dtype() | str(): return f'"{a}"'
            case bool(): return str(int(a))
            case float(): return number_text(a)
            case int(): return str(a)
        return self.pattern(a)

    def pattern(self, p: Term, build: bool = False) -> str:
        def each(terms):
            return " ".join(self.pattern(t, build) for t in terms)
        match p:
            case Var(): return p.name + "_"
            case Buffer() if self.encoder: return self.encoder.tensor(p)
            case Op("exp", (Op("add", (s, Op("neg", (Fold("max", Var() as k, (s2,), 0),)))),)) if s is s2 and not build:
                marker = self.markers.setdefault(p, f"shifted{len(self.markers)}_")
                fact = f"(max_shifted {marker} {k.name}_ {self.pattern(s)})"
                if fact not in self.facts:
                    self.facts.append(fact)
                return marker
            case Load(t, i): return f"(Load {each((t, i))})"
            case Launch(k, b): return f"(Launch {each((k, b))})"
            case Iota(i): return f"(Iota {self.pattern(i, build)})"
            case Const(d, Op() as v): return f"(Float {self.argument(d)} {self.value(v)})"
            case Const(Var() as d, Var(name, "Int")): return f"(Float {self.argument(d)} (to-f64 {name}_))"
            case Const(d, Var(name, "Int")): return f"(Int {self.argument(d)} {name}_)"
            case Const(d, Var(name)): return f"(Float {self.argument(d)} {name}_)"
            case Const(d, float() as v): return f"(Float {self.argument(d)} {number_text(v)})"
            case Const(d, v): return f"(Int {self.argument(d)} {int(v)})"
            case Op(f, args): return f"(Op{len(args)} {self.argument(f)} {each(args)})"
            case Cast(d, b): return f"(Cast {self.argument(d)} {self.pattern(b, build)})"
            case RoundTo(d, b): return f"(Round {self.argument(d)} {self.pattern(b, build)})"
            case Fold(monoid, k, bodies, part):
                m = self.argument(monoid if isinstance(monoid, Var) else monoid_name(monoid, part))
                return f"(Fold{len(bodies)} {m} {k.name}_ {each(bodies)})"
        raise TypeError(f"a law cannot hold {p!r}")

    def value(self, v) -> str:
        """Arithmetic on literals, done in float64."""
        match v:
            case Op(name, (a, b)):
                return f"({dict(mul='*', add='+', sub='-', div='/')[name]} {self.value(a)} {self.value(b)})"
            case Op("neg", (a,)): return f"(neg {self.value(a)})"
            case Op("recip", (a,)): return f"(/ 1.0 {self.value(a)})"
        return self.argument(v)
