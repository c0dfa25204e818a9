"""A compiler from PyTorch to CUDA in which every choice is an equation.

    compiled = deplodock.compile(module, (x, y))
    z = compiled(x, y)

torch, egglog and CUDA are imported by the first call, not with this package.
"""
from __future__ import annotations

from deplodock.version import __version__

__all__ = ["__version__", "backend", "compile", "explain", "load"]


def compile(module, example_inputs=(), example_kwargs=None, *, numerics="default", target=None, variants=8, constants=None):
    """Compiles a module, or a function of tensors, for arguments of these shapes, dtypes, strides and devices.

    example_inputs: the tuple of positional arguments, or the only one; example_kwargs: those with names. They run on a
    GPU if that is where they are, and on the emulation of one if they are on the CPU. Arguments that are no tensors
    (numbers, strings, None) are part of the program. numerics: strict, default or fast. target: a GPU's name or an
    architecture; None is the GPU at hand, or an h200 on the CPU. variants: to how many kinds of arguments it may be
    compiled in all, the others when they first come. constants: bytes that tensors which were computed from parameters
    may take on the device; None: as many as the parameters, or 64 MiB if that is more. The others are computed at each call.

    Returns a deplodock.api.Compiled: called like the module, it returns what the module returns, without gradients.
    Parameters are read from the module at each call: what is written to them, or replaces them, counts. Raises a subclass of
    deplodock.errors.DeplodockError that says what is not supported, and where in the program.
    """
    from deplodock.api import Options, compile_module
    return compile_module(module, example_inputs, example_kwargs, Options(numerics, target, variants, constants))


def load(folder, device=None, *, constants=None):
    """The program that `deplodock compile --save` or Compiled.save wrote to a folder, as a deplodock.saved.Loaded: called
    like the module that it was compiled from. It needs neither egglog nor the module.

    device: where it runs; None: the GPU if there is one, else the CPU's emulation. constants: as in compile().
    UsageError if there is no saved program, OtherVersion, DamagedProgram, WeightsChanged for a file of weights that it
    refers to, NoGpu, OtherGpu for a GPU that its code does not run on.
    """
    from deplodock.saved import load as load_folder
    return load_folder(folder, device, constants)


def backend(gm, example_inputs, *, options=None, mode=None):
    """The backend of torch.compile: `torch.compile(model, backend="deplodock", options={"numerics": "strict"})`.

    options: numerics, target, variants and constants as compile() has them; fallback=False makes an error of what would
    run in eager mode. After installation torch knows the name; without it, pass this function as backend.
    """
    from deplodock.dynamo import backend as compile_graph
    return compile_graph(gm, example_inputs, options=options, mode=mode)


def explain():
    """What torch.compile has done with this backend in this process, as a deplodock.dynamo.Report: its `counters`, its
    `graphs` with the reason why each was compiled, `fallbacks`: why parts run in eager mode. It prints as text."""
    from deplodock.dynamo import REPORT
    return REPORT
