"""Schedules for the kernels of a plan: facts of each kernel's loops, the laws of rules/schedule.py, the cheapest row.

The laws fill one e-graph per program with every legal schedule of every distinct kernel; the estimate here ranks rows
without lowering them. What an estimate cannot see is for measurement.
"""
from __future__ import annotations

from dataclasses import replace

from deplodock.errors import NoSchedule
from deplodock.ir.plan import Kernel, Plan
from deplodock.join import Domain, Joins, Relation
from deplodock.lower.flatten import Facts
from deplodock.lower.structure import axes_of
from deplodock.lower.tile import legal
from deplodock.target import Target
from extract.shape import Shape
from rules import schedule as laws

ACCUMULATORS = 128
"""32-bit accumulators of a thread: half of its 255 registers, what fragments, addresses and staged values leave."""
RELATIONS = tuple(v for v in vars(laws).values() if isinstance(v, Relation))
DOMAINS = tuple(v for v in vars(laws).values() if isinstance(v, Domain))


def schedule(plan: Plan, facts: Facts, target: Target) -> Plan:
    """The plan with a schedule in every kernel. NoSchedule if no law offers one that the kernel can be lowered with."""
    joins = Joins((*RELATIONS, *(d.relation for d in DOMAINS)))
    for d in DOMAINS:
        for value in d.values:
            joins.fact(d(value))
    joins.fact(laws.machine(target.shared, ACCUMULATORS))
    shapes = {k.name: Shape.of(axes_of(k, facts), k.name) for k in (*plan.once, *plan.kernels)}
    for shape in shapes.values():
        if shape:
            joins.fact(shape.fact)
    joins.run(laws.STEPS)
    found = {relation: joins.rows(relation) for relation in laws.WHOLE}

    def scheduled(kernel: Kernel) -> Kernel:
        shape = shapes[kernel.name]
        if shape is None:
            return kernel
        ranked = sorted((cost, row, relation.name) for relation, rows in found.items() for row in rows
                        if row[0] == kernel.name for cost in (shape.cost(relation, row, target),))
        for _, row, name in ranked:
            knobs = shape.knobs(next(r for r in laws.WHOLE if r.name == name), row)
            if legal(replace(kernel, schedule=knobs), facts) is None:
                return replace(kernel, schedule=knobs)
        raise NoSchedule(kernel=kernel.name, tried=len(ranked))
    return replace(plan, once=tuple(map(scheduled, plan.once)), kernels=tuple(map(scheduled, plan.kernels)))
