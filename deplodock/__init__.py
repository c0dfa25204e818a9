"""A compiler from PyTorch to CUDA in which every choice is an equation.

    compiled = deplodock.compile(module, (x, y))
    z = compiled(x, y)

torch, egglog and CUDA are imported by the first call, not with this package.
"""
from __future__ import annotations

from deplodock.version import __version__

__all__ = ["__version__", "compile"]


def compile(module, example_inputs=(), example_kwargs=None, *, numerics="default", target=None, variants=8, constants=None):
    """Compiles a module, or a function of tensors, for arguments of these shapes, dtypes, strides and devices.

    example_inputs: the tuple of positional arguments, or the only one; example_kwargs: those with names. They run on a
    GPU if that is where they are, and on the emulation of one if they are on the CPU. Arguments that are no tensors
    (numbers, strings, None) are part of the program. numerics: strict, default or fast. target: a GPU's name or an
    architecture; None is the GPU at hand, or an h200 on the CPU. variants: to how many kinds of arguments it may be
    compiled in all, the others when they first come. constants: bytes that tensors which were computed from parameters
    may take on the device; None: as many as the parameters. The others are computed at each call.

    Returns a deplodock.api.Compiled: called like the module, it returns what the module returns, without gradients.
    Parameters are read from the module at each call: what is written to them, or replaces them, counts. Raises a subclass of
    deplodock.errors.DeplodockError that says what is not supported, and where in the program.
    """
    from deplodock.api import Options, compile_module
    return compile_module(module, example_inputs, example_kwargs, Options(numerics, target, variants, constants))
