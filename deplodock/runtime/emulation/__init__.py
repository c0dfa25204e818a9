"""CUDA on a CPU: emitted text is compiled unchanged by g++ and run with checks. How kernels are tested without a GPU.

    run_program     kernels as lowering emits them, one after another
    emulate         any CUDA text, with launches spelled out

What is checked: bounds of shared and global memory, alignment, reads of what nobody wrote, races (by exact
happens-before), missing waits and proxy fences of asynchronous copies and wgmma, mbarriers, divergent barriers, deadlock.
A fault raises EmulationFault. The runtime's parts are documented in host/*.h and host/*.cc.
"""
from deplodock.runtime.emulation.launch import Launch, Pointer
from deplodock.runtime.emulation.report import Fault
from deplodock.runtime.emulation.run import Statistics, emulate

__all__ = ["Fault", "Launch", "Pointer", "Statistics", "emulate"]
