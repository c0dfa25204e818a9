"""deplodock compile: one stage of a program as text."""
from __future__ import annotations

import time
from pathlib import Path

import click

from deplodock.cli.options import json_option, numerics_option, option, output_options, source_options, target_option
from deplodock.cli.output import writing
from deplodock.cli.stages import STAGES


@click.command(name="compile")
@source_options
@option("--ir", type=click.Choice(STAGES), default="cuda", show_default=True, help="The stage to print.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to a file instead.")
@click.option("--dump", type=click.Path(file_okay=False, path_type=Path),
              help="Write every stage up to this one to a folder, numbered, with a repro.py.")
@click.option("--save", type=click.Path(file_okay=False, path_type=Path),
              help="Write the program to a folder that `deplodock run` and deplodock.load run without compiling it.")
@target_option
@numerics_option
@json_option
@output_options
def command(source, code, model, ir, output, dump, save, target, numerics, as_json, out):
    """Print one stage of a program on its way from PyTorch to machine code.

    \b
    deplodock compile -c "F.softmax(torch.randn(8, 64), -1)"
    deplodock compile layers.py:block --ir loop -v
    deplodock compile MODEL --layer 0 --seq 128
    """
    from deplodock.cli import program, stages, steps
    if output:
        program.require_folder(output)
    captured, seconds = program.read(source, code, out, model)
    from deplodock.pipeline import compile as start
    compilation = start(captured, program.target_or_default(target), numerics, provenance=out.verbose >= 2)
    compilation.seconds.update(seconds)
    from deplodock.runtime.cache import Cache
    from deplodock.stored import loadable, restore
    whole, store = save or ir in ("cuda", "ptx", "sass"), Cache("program")
    if not (whole and not dump and out.verbose < 2 and restore(compilation, store)):
        stages.compute(compilation, "cuda" if save else ir, out)
        if whole:
            loadable(compilation, store)
    cubins = machine_code(compilation, out) if ir in ("ptx", "sass") else ()
    text = stages.text(compilation, ir, cubins)
    if dump:
        from deplodock.cli.dump import dump as write
        with writing(dump):
            write(dump, compilation, ir, cubins)
        out.say(f"wrote {dump}")
    if save:
        start = time.perf_counter()
        with out.step("save"), writing(save):
            program.save(save, compilation, source)
        compilation.seconds["save"] = time.perf_counter() - start
        out.say(f"saved to {save}")
    if out.verbose >= 2:
        steps.show(compilation, ir, out)
    if out.verbose >= 1:
        steps.summary(compilation, out, cubins)
    if output:
        with writing(output):
            output.write_text(text + "\n")
    else:
        out.result(text)
    out.object("compile", stage=ir, target=compilation.target.name, arch=compilation.target.arch, numerics=numerics,
               seconds=compilation.seconds, text=None if output else text, file=str(output) if output else None)


def machine_code(compilation, out):
    """The compiled kernels, from the cache where they are there."""
    from deplodock.runtime.cache import Cache
    from deplodock.runtime.compile import compile_all
    start = time.perf_counter()
    with out.step("nvrtc"):
        made = compile_all(list({k.name: k.source for k in compilation.cuda}.items()), compilation.target.arch, Cache("cubin"))
    compilation.seconds["nvrtc"] = time.perf_counter() - start
    return made
