"""Schedules for the kernels of a plan: facts of each kernel's loops, the laws of rules/schedule.py, the cheapest row.

The laws fill one e-graph per program with every legal schedule of every distinct kernel; the estimate here ranks rows
without lowering them. What an estimate cannot see is for measurement.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Iterable, Mapping

from deplodock.ir.loop import Axis, dtype
from deplodock.ir.plan import Kernel, Plan, Schedule
from deplodock.join import Domain, Joins, Relation
from deplodock.lower.flatten import Facts
from deplodock.lower.structure import Loop, Product, Structure, axes_of
from deplodock.lower.tile import illegal
from deplodock.target import Target
from rules import schedule as laws

ACCUMULATORS = 128
"""32-bit accumulators of a thread: half of its 255 registers, what fragments, addresses and staged values leave."""
ROUND = 0.6e-6
"""Seconds from the request of a slab to its arrival, divided by the slots that are filled ahead."""
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
        if shape.fact:
            joins.fact(shape.fact)
    joins.run(laws.STEPS)
    found = {relation: joins.rows(relation) for relation in laws.WHOLE}

    def scheduled(kernel: Kernel) -> Kernel:
        shape = shapes[kernel.name]
        if shape.fact is None:
            return kernel
        ranked = sorted((cost, row, relation.name) for relation, rows in found.items() for row in rows
                        if row[0] == kernel.name for cost in (shape.cost(relation, row, target),))
        for _, row, name in ranked:
            knobs = shape.knobs(next(r for r in laws.WHOLE if r.name == name), row)
            if illegal(replace(kernel, schedule=knobs), facts) is None:
                return replace(kernel, schedule=knobs)
        raise NoSchedule(kernel=kernel.name, tried=len(ranked))
    return replace(plan, once=tuple(map(scheduled, plan.once)), kernels=tuple(map(scheduled, plan.kernels)))
