"""A saturated e-graph, frozen into terms: what extraction, printing and the soundness check read.

A node is a Loop IR term whose children are Ref: Op("mul", (Ref(3), Ref(7))), Load(Ref(2), indices), Launch(axes, Ref(9)).
Classes are numbered in an order that depends on the terms alone, never on egglog's row order.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis
from deplodock.ir.loop import Launch
from deplodock.ir.term import Term


@dataclass(slots=True)
class EGraph:
    """bodies, tensors: the nodes of each class, in canonical order.

    free: the axes that a body class depends on (the intersection over its members).
    spellings: for each tensor class, the ground Launch or Buffer terms that were entered as it, the program's own first.
    number: the class of each ground tensor and body that was entered.
    parameter: the classes that depend on parameters only.
    dtypes: the dtype of each class.
    groups: products that share an operand: (the fold's axes, that operand's class) and the classes of the other operands,
    each depending on parameters only: one wide product computes all of them.
    brought: the law that made each node of each class, where provenance was asked for.
    """
    bodies: dict[int, tuple[Term, ...]]
    tensors: dict[int, tuple[Term, ...]]
    free: dict[int, frozenset[Axis]]
    spellings: dict[int, tuple[Term, ...]]
    number: dict[Term, int]
    parameter: frozenset[int] = frozenset()
    dtypes: dict[int, Dtype] = field(default_factory=dict)
    groups: dict[tuple[tuple[Axis, ...], int], tuple[int, ...]] = field(default_factory=dict)
    brought: dict[tuple[int, Term], str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of e-nodes."""
        return sum(map(len, self.bodies.values())) + sum(map(len, self.tensors.values()))

    def launches(self, number: int) -> tuple[Launch, ...]:
        return tuple(n for n in self.tensors[number] if isinstance(n, Launch))
