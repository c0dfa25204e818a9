"""Torch IR -> ground terms of Loop IR: operators by their definitions, one launch for each primitive step, and then the
names of all axes.

An operator is expanded by the law that has it as its left side (rules/definitions.py), again and again
until primitives are left; each of those is a launch by a law as well. The program is then factored and named as a whole
(deplodock/names.py), so that most views are gone.
"""
from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import numpy as np

from deplodock.ir.index import Axis, Gathered, Index, index
from deplodock.ir.loop import Buffer, Const, Fold, Iota, Launch, Load, cast, children, dtype, loads, rebuilt, subst
from deplodock.ir.meaning import NUMPY
from deplodock.ir.show import Text, signature
from deplodock.ir.tensor import (RESULT, Convert, Elements, Elementwise, IndexMap, Named, Operator, Reduction,
                                 TensorTerm, shape)
from deplodock.ir.term import Term
from deplodock.ir.torch import OPERATORS, Arg, Node, Program, Source, Value
from deplodock.law import Law
from deplodock.names import Factoring, Naming
from rules import primitive_def
from rules.definitions import DEFINITIONS


@dataclass(frozen=True, slots=True)
class Statement:
    """name = launch: one primitive step. `node`, `op`: the Torch IR node that it is part of; `law`: its definition."""
    name: str
    launch: Launch
    node: str
    op: str
    law: str
    source: Source | None


@dataclass(frozen=True, slots=True)
class Result:
    """A tensor that the program returns. `dims`: the axes of each of its dimensions, slowest first; none for extent 1."""
    name: str
    tensor: Term
    dims: tuple[tuple[Axis, ...], ...]


@dataclass(frozen=True, slots=True)
class Entered:
    """A program as ground terms.

    inputs, parameters: a buffer for each value of the program, in its order. strides: by buffer, the step of each of
    its axes in elements of the user's tensor. statements: in program order. outputs: what is returned, in order.
    """
    inputs: tuple[Buffer, ...]
    parameters: tuple[Buffer, ...]
    strides: dict[Buffer, tuple[int, ...]]
    statements: tuple[Statement, ...]
    outputs: tuple[Result, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(s.launch for s in self.statements)

    @property
    def names(self) -> dict[Term, str]:
        """The name of each buffer and launch."""
        return {**{b: b.name for b in self.inputs + self.parameters}, **{s.launch: s.name for s in self.statements}}

    @property
    def tensor_text(self) -> str:
        """Tensor IR: one statement a line, with the law that it comes from and the user's line."""
        names = self.names
        text = Text(names)
        lines = [f"{b.name}: {signature(b.axes, b.dtype)} = {b.kind}" for b in self.inputs + self.parameters]
        for s in self.statements:
            where = f" {s.source.file}:{s.source.line}" if s.source else ""
            declared = f"{s.name}: {signature(s.launch.axes, s.launch.dtype)}"
            lines.append(f"{declared} = {text.primitive(s.launch)}  # {s.law}{where}")
        return "\n".join([*lines, " ".join(["return", *(names[r.tensor] for r in self.outputs)])])


def enter(program: Program) -> Entered:
    """The ground terms of a program; see the head of the file."""
    entering = _Entering(program)
    for node in program.nodes:
        entering.node(node)
    return entering.entered()


class _Entering:
    """A program on its way in. Its tensors are buffers and launches with one axis for each dimension.

    values: those tensors by name. named: what stands for them in Tensor IR. names: their first names. steps: by launch,
    in program order, its name, the node it is part of and its definition. memo: of terms of Tensor IR that are launches
    now. constants: the first of those that are one number once they are rounded, such as 8 ** -0.5 and 1 / sqrt(8).
    current, law, uses: the node and the definition being expanded, and how often each tensor in that is an operand.
    """

    def __init__(self, program: Program):
        self.program = program
        self.reserved = {v.name for v in program.inputs + program.parameters + program.nodes}
        self.values: dict[str, Term] = {}
        self.named: dict[str, Named] = {}
        self.names: dict[Term, str] = {}
        self.steps: dict[Term, tuple[str, Node, str]] = {}
        self.memo: dict[Term, Term] = {}
        self.constants: dict[tuple, Const] = {}
        self.current: Node | None = None
        self.law, self.uses = "", Counter()
        for kind, values in (("input", program.inputs), ("parameter", program.parameters)):
            for v in values:
                axes = tuple(Axis(f"i{d}", n) for d, n in enumerate(v.shape))
                self._bind(v.name, Buffer(v.name, v.dtype, axes, kind))

    def _bind(self, name: str, t: Term) -> Named:
        self.values[name] = t
        self.named[name] = Named(name, shape(t), dtype(t))
        self.names.setdefault(t, name)
        return self.named[name]

    # -- operators --

    def node(self, node: Node) -> None:
        self.current = node
        before = len(self.steps)
        args = [self._argument(a) for _, a in node.args] + [getattr(node, f) for f in RESULT.get(node.op, ())]
        made = self._operator(Operator(node.op, tuple(args)), {"shape": node.shape, "dtype": node.dtype})
        if (shape(made), dtype(made)) != (node.shape, node.dtype):
            raise AssertionError(f"{node.op} is {dtype(made)}{list(shape(made))} by its definition, "
                                 f"{node.dtype}{list(node.shape)} in the program")
        if len(self.steps) > before and next(reversed(self.steps)) is made:
            old, _, law = self.steps[made]
            self.steps[made] = node.name, node, law
            self.values.pop(old), self.named.pop(old)
            self.names[made] = node.name
        self._bind(node.name, made)

    def _argument(self, a):
        match a:
            case Arg(name): return self.named[name]
            case tuple(): return tuple(map(self._argument, a))
        return a

    def _operator(self, t: Operator, result: dict) -> Term:
        """The launch of an operator. result: the shape and dtype of the node that it is, where they are known."""
        t = Operator(t.name, tuple(self._name(a) if isinstance(a, Term) and _open(a) else a for a in t.args))
        for law in DEFINITIONS[t.name]:
            given = {"name": t.name, "args": t.args, **result, **dict(zip(_arguments(t.name, law), t.args))}
            sorts = law.variables
            if any(v not in given or sorts[v] == "Tensor" and not isinstance(given[v], Term) for v in sorts):
                continue
            equation = law.instance(**{v: given[v] for v in sorts})
            if equation and equation.lhs is t:
                outer, self.law, self.uses = (self.law, self.uses), law.name, _uses(equation.rhs)
                made = self._tensor(equation.rhs)
                self.law, self.uses = outer
                return made
        raise AssertionError(f"no definition of {t.name} covers {t.args}")

    def _tensor(self, t: Term) -> Term:
        """The launch or the buffer of a tensor."""
        if isinstance(t, Named):
            return self.values[t.name]
        if t not in self.memo:
            self.memo[t] = self._operator(t, {}) if isinstance(t, Operator) else self._primitive(t)
        return self.memo[t]

    # -- primitives --

    def _primitive(self, t: Term) -> Term:
        match t:
            case Convert(arg, d):
                if isinstance(arg, (Elementwise, Reduction, Elements)) and self.uses.get(arg) == 1:
                    made, label = self._made(self._ground(arg))
                    return self._record(Launch(made.axes, cast(d, made.body)), label)
                arg = self._name(arg)
                if arg.dtype == d:
                    return self._tensor(arg)
                return self._record(self._launch(primitive_def.convert_launch(arg, d).rhs), "cast")
        return self._record(*self._made(self._ground(t)))

    def _ground(self, t: Term) -> Term:
        """A primitive over named operands."""
        match t:
            case Elementwise(f, args):
                return Elementwise(f, tuple(self._name(a) if isinstance(a, Term) else a for a in args))
            case Reduction(monoid, dims, arg, part): return Reduction(monoid, dims, self._name(arg), part)
            case IndexMap(arg, to, indices): return IndexMap(self._name(arg), to, indices)
        return t

    def _name(self, t: Term) -> Named:
        return t if isinstance(t, Named) else self.named[self.names[self._tensor(t)]]

    def _made(self, t: Term) -> tuple[Launch, str]:
        """The launch of a primitive over named operands, and what to call it."""
        match t:
            case Elementwise(f, args): return self._launch(primitive_def.elementwise_launch(f, args).rhs), f
            case Reduction(monoid, dims, arg, part):
                return self._launch(primitive_def.reduction_launch(monoid, dims, arg, part).rhs), monoid
            case IndexMap(arg, to, indices):
                return self._launch(primitive_def.index_map_launch(arg, to, indices).rhs), "map"
        return self._launch(t), "product" if isinstance(t.body, Fold) else "map"

    def _launch(self, t: Launch | Elements) -> Launch:
        return Launch(t.axes, self._bound(t.body))

    def _bound(self, b: Term) -> Term:
        """A body that loads launches and buffers in place of the tensors that stand for them."""
        match b:
            case Load(t, ix):
                made, at = self._tensor(t), tuple(map(self._index, ix))
                return subst(made.body, dict(zip(made.axes, at))) if _positional(made) else Load(made, at)
            case Iota(i): return Iota(self._index(i))
            case Const(d, v) if d.is_float:
                return self.constants.setdefault((d, np.asarray(v, NUMPY[d.compute]).tobytes()), b)
        return rebuilt(b, map(self._bound, children(b)))

    def _index(self, i: Index) -> Index:
        if not any(isinstance(atom, Gathered) for atom, _ in i.terms):
            return i
        out = index(i.const)
        for atom, c in i.terms:
            out = out + index(Gathered(self._bound(atom.body), atom.extent) if isinstance(atom, Gathered) else atom) * c
        return out

    def _record(self, made: Launch, label: str) -> Launch:
        if made not in self.names:
            base = f"{self.current.name}_{label}"
            name = next(n for j in itertools.count(1)
                        if (n := base + (str(j) if j > 1 else "")) not in self.reserved and n not in self.values)
            self.steps[made] = name, self.current, self.law
            self._bind(name, made)
        return made

    # -- the whole program --

    def entered(self) -> Entered:
        p = self.program
        buffers = [self.values[v.name] for v in p.inputs + p.parameters]
        roots = [*buffers, *self.steps, *(self.values[o] for o in p.outputs)]
        factoring = Factoring(roots)
        naming = Naming(map(factoring.tensor, roots))

        def final(t: Term) -> Term:
            return naming.tensor(factoring.tensor(t))

        statements: dict[Term, Statement] = {}
        for old, (name, node, law) in self.steps.items():
            new = final(old)
            if isinstance(new, Launch) and new not in statements:
                statements[new] = Statement(name, new, node.name, node.op, law, node.source)
        strides = {final(b): _strides(v, factoring.dims(b), final(b).axes)
                   for v, b in zip(p.inputs + p.parameters, buffers)}
        returned = ((name, self.values[name]) for name in p.outputs)
        outputs = tuple(_result(name, final(t), factoring.dims(t)) for name, t in returned)
        n = len(p.inputs)
        return Entered(tuple(map(final, buffers[:n])), tuple(map(final, buffers[n:])), strides,
                       tuple(statements.values()), outputs)


def _arguments(name: str, law: Law) -> tuple[str, ...]:
    """The names of an operator's arguments: those of Torch IR, or the law's own for a part of a definition."""
    if name not in OPERATORS:
        return tuple(law.variables)
    operands, options = OPERATORS[name]
    return operands + options + RESULT.get(name, ())


def _open(t: Term) -> bool:
    """Whether an operator is in a tensor, so that its shape is not known yet."""
    return isinstance(t, Operator) or any(map(_open, _operands(t)))


def _positional(t: Term) -> bool:
    """Whether a tensor holds integers or truth values that are arithmetic on positions: it is computed where it is read,
    so that a mask is a predicate and a list of positions is an index."""
    return isinstance(t, Launch) and not dtype(t).is_float and _without_loads(t.body)


def _without_loads(b: Term) -> bool:
    match b:
        case Iota(i): return not any(isinstance(atom, Gathered) for atom, _ in i.terms)
        case Load() | Fold(): return False
    return all(map(_without_loads, children(b)))


def _operands(t: Term) -> list[TensorTerm]:
    """The tensors that a term of Tensor IR reads."""
    if isinstance(t, Elements):
        return [l.tensor for l in loads(t.body)]
    return [x for x in (getattr(t, "arg", None), *getattr(t, "args", ())) if isinstance(x, TensorTerm)]


def _uses(t: Term) -> Counter[Term]:
    """How many times each tensor below t is an operand."""
    uses, seen, stack = Counter(), set(), [t]
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        inside = _operands(x)
        uses.update(inside)
        stack += inside
    return uses


def _result(name: str, t: Term, counts: tuple[int, ...]) -> Result:
    axes = iter(t.axes)
    return Result(name, t, tuple(tuple(itertools.islice(axes, n)) for n in counts))


def _strides(v: Value, counts: tuple[int, ...], axes: tuple[Axis, ...]) -> tuple[int, ...]:
    """The step of each axis of a value's buffer, in elements."""
    out, rest = [], list(axes)
    for stride, n in zip(v.strides, counts):
        dim, rest = rest[:n], rest[n:]
        steps = []
        for a in reversed(dim):
            steps.append(stride)
            stride *= a.extent
        out += reversed(steps)
    return tuple(out)

