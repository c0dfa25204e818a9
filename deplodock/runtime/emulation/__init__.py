"""CUDA on a CPU: emitted text is compiled unchanged by g++ and run with checks. How kernels are tested without a GPU.

    run_program     kernels as lowering emits them, one after another
    emulate         any CUDA text, with launches spelled out

What is checked: bounds of shared and global memory, alignment, reads of what nobody wrote, races (by exact
happens-before, so whatever the schedule and the result), missing waits and proxy fences of asynchronous copies and of wgmma,
mbarriers, register budgets, divergent barriers, deadlock. Asynchronous work lands as late as is legal. A fault raises
EmulationFault; an index outside its dimension, which is the caller's mistake, IndexOutOfRange.

What it cannot show: anything that ptxas decides (registers, spills, serialised products), the tensor cores' own arithmetic
(here sums are in f32, in order), an order between blocks that an atomic gives by luck, blocks that wait for each other (they
run one after another), proxy fences for global memory, a read of shared memory beyond the four that are remembered, and speed.
The parts of the runtime are documented in host/*.h and host/*.cc. It needs g++ on x86-64 Linux.
"""
from typing import Any, Mapping, Sequence

from deplodock.ir.cuda import CudaKernel
from deplodock.runtime.emulation.launch import Launch, Pointer
from deplodock.runtime.emulation.report import Fault
from deplodock.runtime.emulation.run import Statistics, emulate

__all__ = ["Fault", "Launch", "Pointer", "Statistics", "emulate", "run_program"]


def run_program(kernels: Sequence[CudaKernel], arrays: Mapping[str, Any], **options: Any) -> tuple[Statistics, ...]:
    """Runs kernels one after another over arrays (NumPy, or CPU tensors) by the names of their buffers, in place.

    arrays: one for each buffer that some kernel takes, and perhaps others. A buffer that is written by the first kernel
    that takes it holds nothing before. options and errors are those of `emulate`. A kernel whose grid is empty is not run.
    """
    live = [k for k in kernels if k.grid]
    if not live:
        return ()
    texts: dict[str, str] = {}
    first: dict[str, bool] = {}              # buffer -> whether its first kernel writes it
    for k in live:
        if texts.setdefault(k.name, k.text) != k.text:
            raise ValueError(f"two different kernels are called {k.name}")
        for p in k.params:
            first.setdefault(p.name, p.written)
    launches = [Launch(k.name, (k.grid, 1, 1), (k.threads, 1, 1), (*(Pointer(p.name) for p in k.params), *k.maps), k.shared)
                for k in live]
    return emulate(texts, launches, {name: arrays[name] for name in first},
                   undefined={name for name, written in first.items() if written}, **options)
