"""The main job, shown: RMSNorm, softmax and attention, from PyTorch to CUDA to numbers, every IR on the way.

    python -m benchmarks.demo [--lines 12]

Runs on the GPU if there is one, else on the emulation of one. Long texts are cut to --lines; `deplodock compile --ir STAGE`
prints them whole.
"""
from __future__ import annotations

import argparse
import sys

PROGRAMS = {
    "RMSNorm": "x = torch.randn(32, 256)\nnn.RMSNorm(256)(x)",
    "softmax": "x = torch.randn(32, 256)\nF.softmax(x, -1)",
    "attention": "q, k, v = (torch.randn(1, 4, 64, 32) for _ in range(3))\n"
                 "F.softmax(q @ k.transpose(-2, -1) * 32 ** -0.5, -1) @ v",
}
TITLES = {"torch": "Torch IR: the program as PyTorch operators", "tensor": "Tensor IR: operators by their definitions",
          "loop": "Loop IR: the chosen kernels", "tile": "Tile IR: blocks, tiles, layouts", "kernel": "Kernel IR: one thread",
          "cuda": "CUDA"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=12, help="of each stage")
    lines = parser.parse_args().lines
    print("loading PyTorch ..", file=sys.stderr)
    return max(show(title, code, lines) for title, code in PROGRAMS.items())


def show(title: str, code: str, lines: int) -> int:
    """Prints every stage of a program, then runs it. Returns the exit code of `deplodock run`."""
    from deplodock.capture import capture_code
    from deplodock.cli import execute, stages
    from deplodock.cli.program import target_or_default
    from deplodock.pipeline import compile
    heading(f"{title}", "=")
    print(code)
    compilation = compile(capture_code(code), target_or_default(None))
    for stage, name in TITLES.items():
        if stage == "tile":
            saturation = compilation.region.saturation
            fired = [law for law, hits in sorted(saturation.hits.items()) if hits]
            heading("the e-graph")
            print(f"{saturation.egraph.size} e-nodes, stopped at {saturation.stopped}; laws that fired: {', '.join(fired)}")
        heading(name)
        text = ("\n".join(k.text for k in compilation.cuda) if stage == "cuda" else stages.text(compilation, stage)).splitlines()
        print("\n".join(text[:lines]) + (f"\n.. {len(text) - lines} more lines" if len(text) > lines else ""))
    heading("numbers")
    sys.stdout.flush()
    return execute(["run", "-c", code])


def heading(text: str, rule: str = "-") -> None:
    print(f"\n{rule * 3} {text} {rule * max(3, 100 - len(text))}")


if __name__ == "__main__":
    sys.exit(main())
