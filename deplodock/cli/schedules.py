"""saturate --phase schedule: what the schedule laws offer to the chosen kernels."""
from __future__ import annotations

from collections import Counter

import click

MOST = 12
"""Schedules of a kernel that are listed; all of them with -v."""


def show(region, out) -> None:
    """For each kernel how many schedules of each family the laws offer, and the cheapest ones by estimate."""
    from extract.schedule import offers
    with out.step("schedule"):
        plan = region.plan
        found = offers(plan, region.facts, region.target)
    for kernel in (*plan.once, *plan.kernels):
        offered = found.get(kernel.name, [])
        families = ", ".join(f"{n} {family}" for family, n in sorted(Counter(o.family for o in offered).items()))
        out.result(click.style(f"{kernel.name}: {len(offered)} schedules ({families or 'its loops leave no choice'})", bold=True))
        shown = offered if out.verbose else offered[:MOST]
        for o in shown:
            mark = "*" if o.knobs == kernel.schedule else " "
            out.result(f"{mark} {o.cost * 1e6:8.2f} us  {o.family:15} {text(o.knobs)}")
        if kernel.schedule not in [o.knobs for o in shown] and offered:
            out.result(f"* chosen: {text(kernel.schedule)}")
        if len(shown) < len(offered):
            out.result(f"  .. {len(offered) - len(shown)} more")


def text(knobs) -> str:
    return " ".join(f"{name}={value}" for name, value in knobs)
