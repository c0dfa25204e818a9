"""Schedules for the kernels of a plan: facts of each kernel's loops, the laws of rules/schedule.py, the cheapest row.

The laws fill one e-graph per program with every legal schedule of every distinct kernel; the estimate here ranks rows
without lowering them. What an estimate cannot see is for measurement.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable

from deplodock.errors import IllegalSchedule, NoSchedule
from deplodock.ir.plan import Kernel, Plan, Schedule
from deplodock.join import Domain, Joins, Relation
from deplodock.lower.flatten import Facts
from deplodock.lower.kernel import lower_kernel
from deplodock.lower.structure import Structure, axes_of
from deplodock.lower.tile import lower_tile
from deplodock.lower.tile_scope import Knobs, spreads
from deplodock.target import Target
from extract.shape import Shape
from rules import schedule as laws

ACCUMULATORS = 128
"""32-bit accumulators of a thread: half of its 255 registers, what fragments, addresses and staged values leave."""
TRIES = 64
"""Offers that a kernel is lowered with, the cheapest first, before it counts as one that no law can serve."""
RELATIONS = tuple(v for v in vars(laws).values() if isinstance(v, Relation))
DOMAINS = tuple(v for v in vars(laws).values() if isinstance(v, Domain))


@dataclass(frozen=True, slots=True)
class Offer:
    """A schedule that the laws offer to a kernel: estimated seconds, and the row of the relation that it is."""
    cost: float
    shape: Shape
    relation: Relation
    row: tuple

    @property
    def knobs(self) -> Schedule:
        """What lowering obeys: made when it is asked for, since few of thousands of offers are tried."""
        return self.shape.knobs(self.relation, self.row)

    @property
    def family(self) -> str:
        return self.relation.name


def offers(plan: Plan, facts: Facts, target: Target, plain: bool = False) -> dict[str, list[Offer]]:
    """For each kernel that has a choice, by name, what the laws offer, the cheapest first. plain: of a point a thread."""
    joins = Joins((*RELATIONS, *(d.relation for d in DOMAINS)))
    for d in DOMAINS:
        for value in d.values:
            joins.fact(d(value))
    joins.fact(laws.machine(target.shared, ACCUMULATORS))
    shapes = {k.name: Shape.of(axes_of(k, facts), k.name) for k in (*plan.once, *plan.kernels)}
    for shape in shapes.values():
        if shape:
            joins.fact(shape.nest() if plain else shape.fact)
    joins.run(laws.STEPS)
    ranked: dict[str, list[tuple]] = {name: [] for name, shape in shapes.items() if shape}
    for relation in laws.WHOLE:
        for row in joins.rows(relation):
            ranked[row[0]].append((shapes[row[0]].cost(relation, row, target), row, relation.name, relation))
    return {name: [Offer(cost, shapes[name], relation, row) for cost, row, _, relation in
                   sorted(rows, key=lambda r: r[:3])] for name, rows in ranked.items()}


def schedule(plan: Plan, facts: Facts, target: Target, known: dict[Kernel, Kernel] | None = None,
             plain: bool = False) -> Plan:
    """The plan with a schedule in every kernel. NoSchedule, with all kernels for which no law offers one that they can be
    lowered with.

    known: kernels of other plans of the program with their schedules; those of this one are added, also before NoSchedule.
    plain: kernels that no other law serves may compute a point a thread.
    """
    known = {} if known is None else known
    new = replace(plan, once=tuple(k for k in (*plan.once, *plan.kernels) if k not in known), kernels=())
    found = offers(new, facts, target)
    missing: dict[str, int] = {}

    def scheduled(kernel: Kernel, found: dict[str, list[Offer]]) -> Kernel | None:
        if kernel.name not in found:
            return kernel
        spread = _spread(axes_of(kernel, facts), kernel.name)
        tried, refused = 0, {}
        for knobs in filter(spread, (o.knobs for o in found[kernel.name])):
            tiles, stages = tuple(x for x in knobs if x[0] != "stages"), dict(knobs).get("stages", 0)
            if stages <= refused.get(tiles, -1):  # where tiles do not fit registers, shorter rings change nothing
                continue
            if tried == TRIES:
                break
            tried += 1
            chosen = replace(kernel, schedule=knobs)
            try:
                lowered = lower_tile(chosen, facts)
            except IllegalSchedule:
                refused[tiles] = stages
                continue
            try:
                lower_kernel(lowered)
                return chosen
            except IllegalSchedule:
                continue
        missing[kernel.name] = tried
        return None
    for k in new.once:
        if made := scheduled(k, found):
            known[k] = made
    if missing and plain:
        left, missing = tuple(k for k in new.once if k.name in missing), {}
        found = offers(replace(new, once=left), facts, target, plain=True)
        known |= {k: made for k in left if (made := scheduled(k, found))}
    if missing:
        raise NoSchedule(kernel=next(iter(missing)), tried=next(iter(missing.values())), kernels=tuple(missing))
    return replace(plan, once=tuple(known[k] for k in plan.once), kernels=tuple(known[k] for k in plan.kernels))


def _spread(parts: tuple[Structure, ...], name: str) -> Callable[[Schedule], bool]:
    """Whether a block's lanes and warps suffice for the axes that share its tiles: few schedules differ in that, so it
    is asked once for all that spread axes alike, before any is lowered."""
    known: dict[Schedule, bool] = {}

    def suffices(knobs: Schedule) -> bool:
        key = tuple((k, v) for k, v in knobs if k == "atom" or k.startswith(("lanes.", "warps")))
        if key not in known:
            try:
                known[key] = all(spreads(p.flat, Knobs(name, key)) for p in parts)
            except IllegalSchedule:
                known[key] = False
        return known[key]
    return suffices


def derivation(offer: Offer) -> list[tuple[str, str, str]]:
    """The laws that lead to an offer, from the kernel's loops on: (law, what it read, what it added) as text."""
    found, family, row = [], offer.family, offer.row
    while step := next((s for s in laws.STEPS if s.join().head.relation.name == family), None):
        join = step.join()
        bound = {a.op: value for a, value in zip(join.head.args, row) if not a.args}
        before = join.premises[0]
        known = tuple(bound.get(str(a)) for a in before.args)
        found.append((step.name, _row(before.relation, known), _row(join.head.relation, row)))
        family, row = before.relation.name, known
    return found[::-1]


def _row(relation: Relation, values: tuple) -> str:
    return " ".join([relation.name, *(f"{c}={v}" for c, v in zip(relation.columns, values) if v is not None)])
