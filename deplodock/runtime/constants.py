"""Which constants a program keeps in memory, and which it computes anew at each call because they would take too much."""
from __future__ import annotations

from deplodock.ir.plan import Plan
from deplodock.runtime.memory import size_of


def split(plan: Plan, limit: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The kernels of plan.once that run when parameters change, and those that run at each call, as places in plan.once.

    limit: bytes that constants may take. Those stay whose recomputation takes most time a byte, kernel by kernel, and
    those that the program returns. A kernel is in both lists if it serves constants of both.
    """
    outputs = {b.name for b in plan.outputs}
    read = {b.name for k in plan.kernels for b in k.reads} | outputs
    sizes = {at: sum(size_of(b) for b in k.writes if b.name in read) for at, k in enumerate(plan.once)}
    makers = {b.name: at for at, k in enumerate(plan.once) for b in k.writes}
    kept = {at for at, k in enumerate(plan.once) if outputs & {b.name for b in k.writes}}
    room = limit - sum(sizes[at] for at in kept)
    for at in sorted(set(sizes) - kept, key=lambda at: -plan.once[at].cost / max(1, sizes[at])):
        if sizes[at] and sizes[at] <= room:
            kept.add(at)
            room -= sizes[at]
    again = _needed(plan, {at for at in sizes if sizes[at] and at not in kept}, makers, kept)
    return tuple(sorted(_needed(plan, kept, makers, set()))), tuple(sorted(again))


def _needed(plan: Plan, wanted: set[int], makers: dict[str, int], there: set[int]) -> set[int]:
    """Those kernels of plan.once and all that they read from, less those whose results are there."""
    found: set[int] = set()
    todo = list(wanted)
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            reads = (makers[b.name] for b in plan.once[at].reads if b.name in makers)
            todo += [m for m in reads if m not in there]
    return found
