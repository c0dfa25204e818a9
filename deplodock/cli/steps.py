"""What happened on the way: times and counts for -v, every step as a diff for -vv.

A diff stands between markers that a search finds: `>>> l:online_softmax` .. `<<<`. The letter says what kind of step it
was: l a law, s a step of lowering.
"""
from __future__ import annotations

import difflib

import click

from deplodock.cli import stages
from deplodock.ir.show import counted


def summary(compilation, out, cubins=()) -> None:
    """-v: seconds of each stage, the laws that fired, the shape of the result."""
    for stage, seconds in compilation.seconds.items():
        out.say(f"{stage:>10}  {seconds * 1e3:8.1f} ms")
    regions = vars(compilation).get("regions", ())
    for region in regions:
        if len(regions) > 1:
            times = counted(compilation.times[region.number - 1], "time")
            out.say(f"region {region.number}, {times}: {counted(len(region.torch.nodes), 'node')}")
        saturation = vars(region).get("saturation")
        if saturation is not None:
            fired = {name: n for name, n in sorted(saturation.hits.items()) if n}
            out.say(f"saturation: {saturation.egraph.size} e-nodes, stopped at {saturation.stopped}, "
                    f"{counted(len(fired), 'law')} fired")
            out.say("  " + ", ".join(f"{name} {n}" for name, n in fired.items()))
        if "plan" in vars(region):
            _plan(region.plan, out)
    if "plan" in vars(compilation) and len(regions) != 1:
        _plan(compilation.plan, out)
        for note in compilation.plan.notes:
            out.say(f"  {note}")
    for cubin in cubins:
        out.say(f"{cubin.name}: {cubin.registers} registers, {cubin.stack} bytes of stack, {cubin.spills} bytes of spills"
                + ("" if cubin.fresh else ", from the cache"))


def _plan(plan, out) -> None:
    out.say(f"plan: {counted(len(plan.kernels), 'kernel')}, {len(plan.once)} more for constants, "
            + ("the cheapest cover of the candidates" if plan.optimal else "not proved to be the cheapest cover"))


def show(compilation, last: str, out) -> None:
    """-vv: each step from the program as written to the last stage, of each distinct region."""
    for head, region in stages.headed(compilation):
        if head:
            out.say(head.rstrip())
        show_region(region, last, out)


def show_region(region, last: str, out) -> None:
    """Each step of a region."""
    before = str(region.torch)
    for stage in stages.STAGES[1:stages.STAGES.index(last) + 1]:
        if stage in ("ptx", "sass"):
            break
        if stage == "loop":
            laws(region.saturation, out)
        if stage == "tile":
            schedules(region, out)
        after = stages.program_source(region.cuda) if stage == "cuda" else stages.region_text(region, stage)
        diff(f"s:{stage}", before, after, out)
        before = after


def laws(saturation, out) -> None:
    """What each law brought into the e-graph, as lines that its text gained."""
    from deplodock.cli.egraph import classes
    egraph = saturation.egraph
    members = [(c, node) for c, group in classes(egraph).items() for node in group]
    found = dict.fromkeys(egraph.brought[m] for m in members if m in egraph.brought)
    for law in (name for name in found if name in saturation.hits):
        added = [f"  %{c}: {node}" for c, node in members if egraph.brought.get((c, node)) == law]
        old = [f"  %{c}: {node}" for c, node in members if egraph.brought.get((c, node)) != law
               and any(line.startswith(f"  %{c}:") for line in added)]
        diff(f"l:{law}", "\n".join(old), "\n".join(sorted([*old, *added], key=lambda t: int(t[3:].partition(":")[0]))), out)


def schedules(region, out) -> None:
    """How the laws of rules/schedule.py lead from the loops of each kernel to its schedule."""
    from extract.schedule import derivation, offers
    found = offers(region.plan, region.facts, region.target)
    for kernel in region.all_kernels:
        chosen = next((o for o in found.get(kernel.name, ()) if o.knobs == kernel.schedule), None)
        for law, before, after in derivation(chosen) if chosen else ():
            diff(f"l:{law}", before, after, out)


def diff(name: str, before: str, after: str, out) -> None:
    """One step, as a unified diff between markers, to standard error."""
    colors = {"+": "green", "-": "red", "@": "cyan"}
    out.say(click.style(f">>> {name}", bold=True))
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm=""):
        out.say(click.style(line, fg=colors.get(line[:1])))
    out.say("<<<")
