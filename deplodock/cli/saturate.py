"""deplodock saturate: the e-graph of a program."""
from __future__ import annotations

from pathlib import Path

import click

from deplodock.cli.options import numerics_option, output_options, source_options, target_option


@click.command(name="saturate")
@source_options
@click.option("--phase", type=click.Choice(["tensor", "loop", "schedule"]), default="loop", show_default=True,
              help="What was entered, its fixpoint, or the schedules of the chosen kernels.")
@click.option("--laws", "groups", metavar="GROUP,..", help="Use these groups of laws only (see `deplodock laws`).")
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
def command(source, code, phase, groups, root, number, stats, equation, json_file, dot_file, target, numerics, out):
    """Show the e-graph of a program: all programs that the laws prove equal to it, and the law that brought each node.

    \b
    deplodock saturate -c "x = torch.randn(8, 64); F.softmax(x, -1)" --stats
    deplodock saturate -c "x = torch.randn(8, 8); x @ x @ x" --check "(x @ x) @ x == x @ (x @ x)"
    """
    from deplodock.cli import egraph, program
    captured, seconds = program.read(source, code, out)
    from deplodock.pipeline import compile as start
    if json_file and str(json_file) == "-":
        out.wants_json = True
    groups = _groups(groups) if groups else None
    listed = phase == "loop" and not (stats or json_file or dot_file or equation)
    compilation = start(captured, program.target_or_default(target), numerics, groups, provenance=listed)
    compilation.seconds.update(seconds)
    if phase == "tensor":
        out.result(compilation.entered.tensor_text)
        return 0
    if equation:
        with out.step("saturate"):
            proved = egraph.check(equation, compilation)
        out.result(f"{'proved' if proved else 'not proved'}: {equation}")
        out.object("check", equation=equation, proved=proved, numerics=numerics)
        return 0 if proved else 1
    with out.step("saturate"):
        saturation = compilation.saturation
    if phase == "schedule":
        from deplodock.cli import schedules
        schedules.show(compilation, out)
        return 0
    if json_file:
        import json
        content = egraph.serialized(saturation.egraph)
        if out.wants_json:
            out.object("egraph", **content)
        else:
            json_file.write_text(json.dumps({"schema": 1, "kind": "egraph", **content}, indent=1) + "\n")
    if dot_file:
        dot_file.write_text(egraph.dot(saturation.egraph))
    if stats or json_file or dot_file:
        egraph.show_stats(saturation, out)
    else:
        egraph.show_classes(compilation, root, number, out)
    return 0


def _groups(text: str) -> tuple[str, ...]:
    """The groups of --laws, in the order in which saturation runs them. UsageError for a name that is none."""
    from deplodock.saturate import GROUPS
    wanted = [name.strip() for name in text.split(",")]
    for name in wanted:
        if name not in GROUPS:
            raise click.UsageError(f"no group of laws is called {name!r}: {', '.join(GROUPS)}", click.get_current_context())
    return tuple(g for g in GROUPS if g in wanted)
