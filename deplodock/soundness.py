"""The soundness check: every e-node of an e-graph evaluated on random arrays, in float64, against its class.

A class's value is an array over the axes it depends on. A node is evaluated as an ordinary term in which each child
class is a buffer that holds the class's value, so that NumPy's one table of meanings (ir/meaning.py) decides. Every
spelling of a tensor is evaluated from the program's inputs as well: comparing members of a class with each other does
not see a mistake that was made while the program was entered.
"""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deplodock.ir.dtype import Dtype
from deplodock.ir.egraph import EGraph
from deplodock.ir.index import Axis, Gathered, index
from deplodock.ir.loop import Buffer, Iota, Launch, Load
from deplodock.ir.meaning import Meaning, Named
from deplodock.ir.term import Term
from deplodock.snapshot import with_children

TOLERANCE = 1e-7
"""Relative, against the largest magnitude in the class: float64 has 1e-16, sums of a few thousand terms lose some."""


@dataclass(slots=True)
class Soundness:
    """evaluated: nodes that have a value, of `nodes`. equalities: comparisons made. wrong: one line for each that
    failed."""
    evaluated: int = 0
    nodes: int = 0
    equalities: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.wrong and self.evaluated == self.nodes


def random_inputs(egraph: EGraph, seed: int = 0) -> dict[Buffer, np.ndarray]:
    """Normal floats, random booleans, and integers that stay inside every extent that they index."""
    rng = np.random.default_rng(seed)
    buffers = sorted((t for ts in egraph.tensors.values() for t in ts if isinstance(t, Buffer)), key=lambda b: b.name)
    bound = min((a.extent for nodes in egraph.bodies.values() for n in nodes for a in _gathered(n)), default=8)
    values = {}
    for b in buffers:
        shape = [a.extent for a in b.axes]
        if b.dtype.is_float:
            values[b] = rng.standard_normal(shape)
        else:
            values[b] = rng.integers(0, 2 if b.dtype == Dtype.b8 else max(bound, 1), shape)
    return values


def _gathered(n: Term):
    indices = n.indices if isinstance(n, Load) else (n.index,) if isinstance(n, Iota) else ()
    stack = [a for i in indices for a, _ in i.terms]
    while stack:
        a = stack.pop()
        if isinstance(a, Gathered):
            yield a
        elif not isinstance(a, Axis):
            stack += [x for x, _ in a.index.terms]


def check_sound(egraph: EGraph, inputs: dict[Buffer, np.ndarray] | None = None, seed: int = 0) -> Soundness:
    """Evaluates all e-nodes and all entered spellings; see the head of the file."""
    inputs = random_inputs(egraph, seed) if inputs is None else inputs
    check = _Check(egraph, inputs)
    check.classes()
    check.spellings()
    return check.result


class _Check:
    def __init__(self, egraph: EGraph, inputs: dict[Buffer, np.ndarray]):
        self.egraph, self.inputs = egraph, inputs
        self.result = Soundness(nodes=egraph.size)
        self.meaning = Meaning(inputs)
        self.stand_ins: dict[int, Term] = {}

    def classes(self) -> None:
        waiting = [(c, n) for group in (self.egraph.tensors, self.egraph.bodies) for c, ns in group.items() for n in ns]
        while waiting:
            left = [(c, n) for c, n in waiting if not self._node(c, n)]
            if len(left) == len(waiting):
                return
            waiting = left

    def _node(self, c: int, node: Term) -> bool:
        """Evaluates a node and compares it with its class; False if a child has no value yet."""
        if isinstance(node, Buffer):
            self._tensor(c, node, self.meaning.tensor(node))
            return True
        try:
            term = with_children(node, self.stand_ins)
        except KeyError:
            return False
        self.result.evaluated += 1
        if isinstance(node, Launch):
            self._compare_tensor(c, node, term)
        else:
            self._compare_body(c, node, self.meaning.body(term))
        return True

    def _tensor(self, c: int, node: Buffer, value: np.ndarray) -> None:
        self.result.evaluated += 1
        self.stand_ins[c] = node

    def _compare_tensor(self, c: int, node: Launch, term: Launch) -> None:
        if not term.body.free <= frozenset(node.axes):
            self.result.wrong.append(f"%{c}: {node} leaves an axis unbound")
            return
        value = self.meaning.over(term.body, node.axes)
        if c not in self.stand_ins:
            stand_in = Buffer(f"%{c}", self._dtype(c), node.axes, "stored")
            self.meaning.tensors[stand_in] = value
            self.stand_ins[c] = stand_in
            return
        self.result.equalities += 1
        if not agree(self.meaning.tensor(self.stand_ins[c]), value):
            self.result.wrong.append(f"%{c}: {node} differs from its class")

    def _compare_body(self, c: int, node: Term, value: Named) -> None:
        axes = tuple(sorted(self.egraph.free[c], key=lambda a: a.name))
        extra = [n for n, a in enumerate(value.axes) if a not in self.egraph.free[c]]
        first = value.array[tuple(slice(0, 1) if n in extra else slice(None) for n in range(value.array.ndim))]
        if extra and not agree(np.broadcast_to(first, value.array.shape), value.array):
            self.result.wrong.append(f"%{c}: {node} depends on an axis that its class does not depend on")
            return
        kept = Named(tuple(a for a in value.axes if a in self.egraph.free[c]), first.squeeze(tuple(extra)))
        array = np.broadcast_to(kept.spread(axes), [a.extent for a in axes])
        if c not in self.stand_ins:
            buffer = Buffer(f"%{c}", self._dtype(c), axes, "stored")
            self.meaning.tensors[buffer] = array
            self.stand_ins[c] = Load(buffer, tuple(map(index, axes)))
            return
        self.result.equalities += 1
        if not agree(self.meaning.tensor(self.stand_ins[c].tensor), array):
            self.result.wrong.append(f"%{c}: {node} differs from its class")

    def _dtype(self, c: int) -> Dtype:
        return self.egraph.dtypes[c]

    def spellings(self) -> None:
        source = Meaning(self.inputs)
        for c, terms in self.egraph.spellings.items():
            for t in terms:
                if isinstance(t, Launch) and c in self.stand_ins:
                    self.result.equalities += 1
                    if not agree(self.meaning.tensor(self.stand_ins[c]), source.tensor(t)):
                        self.result.wrong.append(f"%{c} differs from the program's own {t}")


def agree(x: np.ndarray, y: np.ndarray) -> bool:
    """Equal shapes and, within the tolerance, values; NaN equals NaN."""
    if x.shape != y.shape:
        return False
    if not np.issubdtype(x.dtype, np.floating):
        return bool(np.array_equal(x, y))
    finite = np.abs(x[np.isfinite(x)])
    scale = max(finite.max(initial=0.0), 1e-300)
    return bool(np.allclose(x, y, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True))
