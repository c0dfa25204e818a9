"""deplodock saturate: the e-graph of a program."""
from __future__ import annotations

from pathlib import Path

import click

from deplodock.cli.options import numerics_option, output_options, source_options, target_option
from deplodock.cli.output import writing
from deplodock.errors import UsageError


@click.command(name="saturate")
@source_options
@click.option("--phase", type=click.Choice(["tensor", "loop", "schedule"]), default="loop", show_default=True,
              help="What was entered, its fixpoint, or the schedules of the chosen kernels.")
@click.option("--laws", "groups", metavar="GROUP,..", help="Use these groups of laws only (see `deplodock laws`).")
@click.option("--region", "chosen", type=int, metavar="N", help="Show one region of a program that is cut into several.")
@click.option("--root", metavar="NAME", help="Show only the classes that this tensor of the program is made of.")
@click.option("--class", "number", type=int, metavar="N", help="Show one class.")
@click.option("--stats", is_flag=True, help="Nodes, classes, hits and time of each law, why it stopped; no classes.")
@click.option("--check", "equation", metavar='"A == B"',
              help="Whether the laws prove A equal to B: PyTorch expressions over the names that the program binds, or "
                   "classes (%12) and members as this verb prints them. Exit code 1 if not proved.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path), metavar="FILE",
              help="Write the e-graph in the format of egraph-serialize; - is standard output.")
@click.option("--dot", "dot_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it for Graphviz.")
@target_option
@numerics_option
@output_options
def command(source, code, model, phase, groups, chosen, root, number, stats, equation, json_file, dot_file, target, numerics, out):
    """Show the e-graph of a program: all programs that the laws prove equal to it, and the law that brought each node.

    \b
    deplodock saturate -c "x = torch.randn(8, 64); F.softmax(x, -1)" --stats
    deplodock saturate -c "x = torch.randn(8, 8); x @ x @ x" --check "(x @ x) @ x == x @ (x @ x)"
    """
    from deplodock.cli import egraph, program
    for file in (json_file, dot_file):
        if file and str(file) != "-":
            program.require_folder(file)
    captured, seconds = program.read(source, code, out, model)
    from deplodock.pipeline import compile as start
    if json_file and str(json_file) == "-":
        out.wants_json = True
    groups = _groups(groups) if groups else None
    listed = phase == "loop" and not (stats or json_file or dot_file or equation)
    compilation = start(captured, program.target_or_default(target), numerics, groups, provenance=listed)
    compilation.seconds.update(seconds)
    regions = _chosen(compilation, chosen, one=bool(json_file or dot_file or root or number is not None or equation and "%" in equation))
    if equation:
        with out.step("saturate"):
            proved = egraph.check(equation, compilation, regions[0][1])
        out.result(f"{'proved' if proved else 'not proved'}: {equation}")
        out.object("check", equation=equation, proved=proved, numerics=numerics)
        return 0 if proved else 1
    for head, region in regions:
        if head:
            out.result(head.rstrip())
        if phase == "tensor":
            out.result(region.entered.tensor_text)
            continue
        with out.step("saturate"):
            saturation = region.saturation
        if phase == "schedule":
            from deplodock.cli import schedules
            schedules.show(region, out)
        elif listed:
            egraph.show_classes(region, root, number, out)
        else:
            _write(saturation, json_file, dot_file, out)
            egraph.show_stats(saturation, out)
    return 0


def _chosen(compilation, number: int | None, one: bool) -> list[tuple[str, object]]:
    """The regions to show, each with its head. UsageError where one is wanted and there are several, or no such one."""
    from deplodock.cli.stages import headed
    found = headed(compilation)
    if number is None and not (one and len(found) > 1):
        return found
    if number is None or not 0 < number <= len(found):
        raise UsageError(title="which region?" if number is None else f"there is no region {number}",
                         expected=f"--region N, of 1 to {len(found)}", found=f"a program that is cut into {len(found)} distinct regions",
                         advice="`deplodock saturate --stats` lists them")
    return found[number - 1:number]


def _write(saturation, json_file: Path | None, dot_file: Path | None, out) -> None:
    """The files of --json and --dot."""
    from deplodock.cli import egraph
    if json_file:
        import json
        content = egraph.serialized(saturation.egraph)
        if out.wants_json:
            out.object("egraph", **content)
        else:
            with writing(json_file):
                json_file.write_text(json.dumps({"schema": 1, "kind": "egraph", **content}, indent=1) + "\n")
    if dot_file:
        with writing(dot_file):
            dot_file.write_text(egraph.dot(saturation.egraph))


def _groups(text: str) -> tuple[str, ...]:
    """The groups of --laws, in the order in which saturation runs them. UsageError for a name that is none."""
    from deplodock.saturate import GROUPS
    wanted = [name.strip() for name in text.split(",")]
    for name in wanted:
        if name not in GROUPS:
            raise click.UsageError(f"no group of laws is called {name!r}: {', '.join(GROUPS)}", click.get_current_context())
    return tuple(g for g in GROUPS if g in wanted)
