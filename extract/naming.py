"""Names and canonical forms of chosen kernels: axes by their place, buffers and kernels after what they compute."""
from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Collection, Iterable

from deplodock.ir.index import Axis, FloorDiv, Gathered, Index, Mod, index
from deplodock.ir.loop import Buffer, Const, Fold, Iota, Load, Op, children, const, gathers, loads, rebuilt
from deplodock.ir.meaning import NUMPY
from deplodock.ir.plan import Kernel, Output
from deplodock.ir.term import Term
from extract.structure import chain

LONGEST = 4
"""Operators in a kernel's name; where there are more, those with a fold stand for all."""


def identifier(text: str) -> str:
    """Text reduced to [A-Za-z0-9_], as names that reach CUDA must be."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") or "x"


def unique(name: str, taken: set[str], reserved: Collection[str] = ()) -> str:
    """The name, with the first number behind it that makes it new, and none of the reserved ones; it is taken then."""
    n, made = 1, name
    while made in taken or made in reserved:
        n, made = n + 1, f"{name}_{n + 1}"
    taken.add(made)
    return made


def kernel_name(operators: Iterable[tuple[str, bool]]) -> str:
    """A name from (operator, has it a fold) of what a kernel computes, in program order: k_rms_norm_linear."""
    operators = list(operators)
    names = list(dict.fromkeys(identifier(o) for o, _ in operators))
    if len(names) > LONGEST:
        names = list(dict.fromkeys(identifier(o) for o, folds in operators if folds)) or names
    return "_".join(["k", *(names[:LONGEST] or ["copy"])])


class _Renaming:
    """Terms with other buffers and axes. Free axes go by `free`, those that a fold binds by `bound`, in its scope."""

    def __init__(self, buffers: dict[Buffer, Buffer], free: dict[Axis, Axis], bound: dict[Axis, Axis]):
        self.buffers, self.free, self.bound, self.memo = buffers, free, bound, {}

    def __call__(self, t: Term) -> Term:
        if t not in self.memo:
            self.memo[t] = self._term(t)
        return self.memo[t]

    def _term(self, t: Term) -> Term:
        match t:
            case Load(b, indices): return Load(self.buffers.get(b, b), tuple(map(self.index, indices)))
            case Iota(i): return Iota(self.index(i))
            case Fold():
                mine = {a: self.bound[a] for a in t.axes}
                inner = _Renaming(self.buffers, {**self.free, **mine}, self.bound)
                return Fold(t.monoid, tuple(mine[a] for a in t.axes), tuple(map(inner, t.bodies)), t.part)
        return rebuilt(t, map(self, children(t)))

    def index(self, i: Index) -> Index:
        out = index(i.const)
        for atom, c in i.terms:
            match atom:
                case Axis(): out = out + index(self.free[atom]) * c
                case FloorDiv(x, n): out = out + (self.index(x) // n) * c
                case Mod(x, n): out = out + (self.index(x) % n) * c
                case Gathered(b, n): out = out + index(Gathered(self(b), n)) * c
        return out


def renamed(outs: tuple[Output, ...], buffers: dict[Buffer, Buffer]) -> tuple[Output, ...]:
    """Outputs over other buffers, axes named by their place: i0, i1 .. those of the outputs, k0, k1 .. those of folds,
    in order of appearance. Outputs that share an axis still do, and folds that share one; an output and a fold do not.
    """
    free: dict[Axis, Axis] = {}
    bound: dict[Axis, Axis] = {}
    for o in outs:
        for a in o.axes:
            free.setdefault(a, Axis(f"i{len(free)}", a.extent))
    for o in outs:
        for f in _binders(o.body):
            for a in f.axes:
                bound.setdefault(a, Axis(f"k{len(bound)}", a.extent))
    to = _Renaming(buffers, free, bound)
    return tuple(Output(buffers.get(o.buffer, o.buffer), tuple(free[a] for a in o.axes), to(o.body)) for o in outs)


def _binders(b: Term) -> list[Fold]:
    """The folds of a body, outer ones first, those in loaded indices among them."""
    out: dict[Fold, None] = {}
    seen: set[Term] = set()

    def walk(t: Term) -> None:
        if t in seen:
            return
        seen.add(t)
        if isinstance(t, Fold):
            out.setdefault(t)
        indices = t.indices if isinstance(t, Load) else (t.index,) if isinstance(t, Iota) else ()
        for c in (*gathers(indices), *children(t)):
            walk(c)
    walk(b)
    return list(out)


def ordered(t: Term) -> Term:
    """A body whose literals, reals until then, are rounded to their dtypes, and whose sums and products have their operands
    in an order that does not depend on what buffers are called."""
    memo: dict[Term, Term] = {}
    blank: dict[Term, str] = {}

    def visit(t: Term) -> Term:
        if t not in memo:
            memo[t] = _visit(t)
        return memo[t]

    def _visit(t: Term) -> Term:
        match t:
            case Const(d, v) if d.is_float:
                return const(d, NUMPY[d](v))
            case Op("mul" | "add" as name):
                first, *rest = sorted(map(visit, chain(t, name)), key=shape)
                for f in rest:
                    first = Op(name, (first, f))
                return first
        return rebuilt(t, map(visit, children(t)))

    def shape(t: Term) -> str:
        """The key of a body in which all buffers of one shape are one."""
        if t not in blank:
            blank[t] = _blank(t).key
        return blank[t]
    return visit(t)


def _blank(t: Term) -> Term:
    if isinstance(t, Load):
        b = t.tensor
        return Load(Buffer("b", b.dtype, tuple(Axis(f"d{i}", a.extent) for i, a in enumerate(b.axes)), "stored"), t.indices)
    return rebuilt(t, map(_blank, children(t)))


def key(kernel: Kernel) -> str:
    """A digest of what a kernel computes, whatever its buffers and axes are called and in what order operands come: equal
    kernels of two programs, or of two layers of one, have the same. Literals count as what they are when they are emitted.
    """
    outs = [replace(o, body=ordered(o.body)) for o in renamed(kernel.outs, {})]
    buffers: dict[Buffer, Buffer] = {}
    for o in outs:
        for b in [*(l.tensor for l in _loads_in_order(o.body)), o.buffer]:
            if b not in buffers:
                axes = tuple(Axis(f"d{i}", a.extent) for i, a in enumerate(b.axes))
                buffers[b] = Buffer(f"b{len(buffers)}", b.dtype, axes, "stored")
    outs = renamed(tuple(outs), buffers)
    text = ";".join(f"{o.buffer.key}[{','.join(a.key for a in o.axes)}]={o.body.key}" for o in outs)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _loads_in_order(b: Term) -> Iterable[Load]:
    return loads(b)
