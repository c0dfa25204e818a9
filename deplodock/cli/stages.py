"""The stages of a compilation as text: what `compile --ir` prints and `--dump` writes."""
from __future__ import annotations

STAGES = ("torch", "tensor", "loop", "tile", "kernel", "cuda", "ptx", "sass")

SUFFIX = {"torch": "torch.txt", "tensor": "tensor.txt", "loop": "loop.txt", "tile": "tile.txt", "kernel": "kernel.txt",
          "cuda": "cuda.cu", "ptx": "kernels.ptx", "sass": "kernels.sass"}
"""File names' endings: the tools of those formats know some of them."""

_WORK = {"torch": (), "tensor": ("entered",), "loop": ("saturation", "extraction", "plan"), "tile": ("tiles",),
         "kernel": ("kernels",), "cuda": ("cuda",), "ptx": (), "sass": ()}


def work(stage: str) -> tuple[str, ...]:
    """The attributes of a pipeline.Region that a stage needs, in the order in which they are computed."""
    return tuple(name for s in STAGES[:STAGES.index(stage) + 1] for name in _WORK[s])


def compute(compilation, stage: str, out) -> None:
    """All that a stage needs, of each distinct region, with a line of progress for each step."""
    for region in compilation.regions:
        for name in work(stage):
            with out.step(name if region.number is None else f"region {region.number}: {name}"):
                getattr(region, name)


def text(compilation, stage: str, cubins=()) -> str:
    """A stage as text. cubins: of compilation.cuda, in that order, for ptx and sass."""
    match stage:
        case "torch": return str(compilation.torch)
        case "cuda":
            heads = [f"// {note}\n" for note in compilation.plan.notes if compilation.plan.cuts]
            return "".join(heads) + program_source(compilation.cuda)
        case "ptx": return "\n".join(c.ptx for c in cubins)
        case "sass":
            from deplodock.runtime.compile import sass
            return "\n".join(map(sass, cubins))
    return "\n\n".join(head + region_text(r, stage) for head, r in headed(compilation))


def headed(compilation, mark: str = "# ") -> list[tuple[str, object]]:
    """Each distinct region of a compilation with a line of its own, which says how often it occurs; no line for a program
    that is one region."""
    from deplodock.ir.show import counted
    regions = compilation.regions
    if len(regions) == 1:
        return [("", regions[0])]
    return [(f"{mark}region {r.number} of {len(regions)}, {counted(times, 'time')}: {counted(len(r.torch.nodes), 'node')}, up to "
             f"{r.torch.nodes[-1].name}\n", r) for r, times in zip(regions, compilation.times)]


def region_text(region, stage: str) -> str:
    """A stage of a pipeline.Region as text."""
    match stage:
        case "tensor": return region.entered.tensor_text
        case "loop": return loop_text(region)
        case "tile":
            from deplodock.ir.tile_show import show_tile
            return "\n\n".join(map(show_tile, region.tiles))
        case "kernel":
            from deplodock.ir.kernel import show
            return "\n\n".join(map(show, region.kernels))
    raise ValueError(f"no stage is called {stage!r}")


def loop_text(region) -> str:
    """What was chosen and why, as comments, then each kernel as the loops that it runs."""
    from deplodock.ir.loop import Launch
    from deplodock.ir.show import Text
    plan = region.plan
    blocks = ["\n".join(f"# {line}" for line in str(region.extraction).splitlines())]
    for i, kernel in enumerate((*plan.once, *plan.kernels)):
        knobs = " ".join(f"{name}={value}" for name, value in kernel.schedule)
        head = f"kernel {kernel.name}:{'  # runs once' if i < len(plan.once) else ''}  # {knobs}"
        blocks.append("\n".join([head, *(Text().nest(o.buffer.name, Launch(o.axes, o.body)) for o in kernel.outs)]))
    return "\n\n".join(blocks)


def program_source(kernels) -> str:
    """All distinct kernels as one CUDA file that compiles as it stands: each wrapper once, then the kernels."""
    from deplodock.lower.cuda import wrappers
    bodies = "\n".join({k.name: k.text for k in kernels}.values())
    return f"{wrappers(bodies)}\n{bodies}".rstrip("\n")
