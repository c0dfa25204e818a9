"""deplodock run: compile, run, check."""
from __future__ import annotations

import click

from deplodock.cli.options import json_option, numerics_option, option, output_options, source_options


@click.command(name="run")
@source_options
@option("--device", type=click.Choice(["cuda", "cpu"]),
        help="Where it runs; cpu is the emulation. [default: cuda where there is a GPU, else cpu]")
@numerics_option
@option("--seed", type=int, default=0, show_default=True, help="Of the random inputs.")
@click.option("--bench", is_flag=True, help="Time it beside eager, torch.compile and max-autotune (on a GPU).")
@json_option
@output_options
def command(source, code, model, device, numerics, seed, bench, as_json, out):
    """Compile a program, run it, and check it against float64 and against PyTorch.

    The promise of strict and default: against float64, a relative error of at most the largest of twice eager's, half an
    ulp of the output's dtype and, in f32, 3e-7 (in f64, 2.5 ulp), no element far off its row, NaN and infinities where
    float64 has them. Exit code 3 if it is broken.

    \b
    deplodock run -c "F.softmax(torch.randn(8, 64), -1)" --device cpu
    deplodock run layers.py:block --bench
    deplodock run FOLDER                        # of compile --save
    """
    from deplodock.cli import steps
    from deplodock.errors import UsageError
    if bench and device == "cpu":
        raise UsageError(title="--bench needs a GPU", expected="--device cuda", found="--device cpu",
                         advice="the emulation checks programs; its times say nothing about a GPU")
    device = _device(device, bench, out)
    import torch

    from deplodock.runtime.check import check
    from deplodock.saved import was_saved
    if source and code is None and was_saved(source):
        captured, made, compiled, numerics, compilation = _loaded(source, device, seed, out)
    else:
        captured, made, compiled, compilation = _compiled(source, code, model, device, numerics, seed, out)
    with out.step("run"), torch.no_grad():
        reports = check(compiled, made.program, captured.inputs, captured.parameters, captured.eager(*captured.inputs))
    if out.verbose and compilation:
        steps.summary(compilation, out, compiled.cubins)

    times = {}
    if bench:
        from deplodock.cli.bench import bench as time_all
        with out.step("bench"):
            times = time_all(captured, made)
    _print(out, device, numerics, reports, times)
    out.object("run", device=_describe(device), numerics=numerics, kernels=_kernels(made, compiled),
               counters={"saturations": compilation.saturations if compilation else 0,
                         "compilations": compiled.compilations, "timings": len(times)},
               seconds=compilation.seconds if compilation else {}, memory=compiled.memory,
               outputs=[_output(r) for r in reports], **({"timings": times} if bench else {}))
    for r in reports:
        if not r.ok:
            raise r.error()


def _compiled(source: str | None, code: str | None, model: dict, device: str, numerics: str, seed: int, out):
    """A program that is compiled now: Captured, Loadable, CompiledProgram, Compilation."""
    from deplodock.cli import program, stages
    captured, seconds = program.read(source, code, out, model, seed)
    from deplodock.pipeline import compile as start
    from deplodock.runtime.cache import Cache
    from deplodock.runtime.program import CompiledProgram
    from deplodock.stored import loadable, restore
    compilation = start(captured, program.target_or_default(None), numerics)
    compilation.seconds.update(seconds)
    store = Cache("program")
    if not restore(compilation, store):
        stages.compute(compilation, "cuda", out)
    captured = captured.to(device)
    made = loadable(compilation, store)
    with out.step("load"):
        return captured, made, CompiledProgram(made, captured.parameters, device, Cache("cubin")), compilation


def _loaded(folder: str, device: str, seed: int, out):
    """A saved program with random inputs: Captured, Loadable, CompiledProgram, its numerics, and no compilation."""
    with out.step("load"):
        from deplodock.capture import capture_torch_ir
        from deplodock.saved import load
        loaded = load(folder, device)
        captured = capture_torch_ir(str(loaded.made.program), folder, seed, loaded.parameters).to(device)
    return captured, loaded.made, loaded.program, loaded.numerics, None


def _device(wish: str | None, bench: bool, out) -> str:
    """The device of --device; without it a GPU if there is one. NoGpu if there is none and one is needed."""
    from deplodock.errors import NoGpu
    from deplodock.runtime.launch import require_gpu
    try:
        if wish != "cpu":
            require_gpu()
            return "cuda"
    except NoGpu:
        if wish == "cuda" or bench:
            raise
        out.say("no GPU: running on the emulation (--device cpu)")
    return "cpu"


def _describe(device: str) -> str:
    if device == "cpu":
        return "cpu (emulation)"
    import torch
    return torch.cuda.get_device_name()


def _kernels(made, compiled) -> list[dict]:
    """Every distinct kernel with what is known of it: registers and spills only where the CUDA compiler has run."""
    code = {c.name: c for c in compiled.cubins}
    found, split = {}, len(made.plan.once)
    for i, k in enumerate(made.kernels):
        entry = {"name": k.name, "grid": k.grid, "block": k.threads, "cluster": 1, "shared": k.shared,
                 "once": i < split, "launches": 1}
        if k.name in code:
            entry |= {"registers": code[k.name].registers, "spills": code[k.name].spills}
        if k.name in found:
            found[k.name]["launches"] += 1
        else:
            found[k.name] = entry
    return list(found.values())


def _output(r) -> dict:
    v = r.verdict
    return {"name": r.name, "shape": list(r.shape), "dtype": str(r.dtype).removeprefix("torch."), "rel_err": _number(v.rel_err),
            "eager_rel_err": _number(v.eager_rel_err), "bound": _number(v.bound), "max_abs_err": _number(v.max_abs_err),
            "excess": _number(v.excess), "nan_match": v.nan_match, "mismatches": v.mismatches, "repeats": r.repeats, "ok": r.ok}


def _number(x: float) -> float | None:
    """JSON has no NaN and no infinity."""
    import math
    return x if math.isfinite(x) else None


def _print(out, device: str, numerics: str, reports, times: dict) -> None:
    out.result(f"on {_describe(device)}, numerics {numerics}")
    out.table(["output", "shape", "error", "eager's", "allowed", "worst element", "verdict"], [
        [r.name, f"{str(r.dtype).removeprefix('torch.')}{list(r.shape)}", f"{r.verdict.rel_err:.2e}", f"{r.verdict.eager_rel_err:.2e}",
         f"{r.verdict.bound:.2e}", f"{r.verdict.excess:.2f} of allowed", "ok" if r.ok else "WRONG"] for r in reports], (2, 3, 4))
    if times:
        ours = times["deplodock"]["cold"]
        out.result("")
        out.table(["", "cold us", "hot us", "host us", "cold, against deplodock"], [
            [name, *(f"{t[k]:.1f}" if t[k] is not None else "-" for k in ("cold", "hot", "host")), f"{t['cold'] / ours:.2f} x"]
            for name, t in times.items()], (1, 2, 3, 4))
        if ours > times["eager"]["cold"]:
            out.result("slower than eager")
