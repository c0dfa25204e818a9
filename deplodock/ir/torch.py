"""Torch IR: the user's program as PyTorch operators, functional and in order, shapes and dtypes known.

    Program = inputs, parameters, nodes, outputs
    Node    = name, op, arguments, shape, dtype, source        name = op(arguments)
    op      = the operator's public name: "softmax", "linear", "scaled_dot_product_attention", "add" ..
    argument: a name of an input, parameter or node wrapped in Arg; or a number, bool, None, Dtype, str; or a tuple of these

Arguments are bound: each has its name, and defaults are filled in, so a reader of the IR never needs torch's schema.
In-place operators, aliases and no-op wrappers (clone, detach, contiguous) are gone. The text form holds all of it but
the values of parameters; parse(str(program)) gives an equal program.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from deplodock.ir.dtype import Dtype


@dataclass(frozen=True, slots=True)
class Source:
    """Where in the user's program something is: file, line (from 1), and that line's text."""
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text.strip()}"


@dataclass(frozen=True, slots=True)
class Arg:
    """A reference to an input, a parameter or an earlier node, by name."""
    name: str


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that the program is given. `strides` are in elements; `alignment` is that of its base pointer in bytes.

    For a parameter, `path` is its name in the module ("layers.0.weight"). shares: the name of an earlier value whose
    storage this one overlaps, or empty.
    """
    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    alignment: int = 16
    path: str = ""
    shares: str = ""

    @property
    def is_contiguous(self) -> bool:
        return self.strides == contiguous(self.shape)


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    op: str
    args: tuple[tuple[str, object], ...]
    """(parameter name, argument) in the order of the operator's signature."""
    shape: tuple[int, ...]
    dtype: Dtype
    source: Source | None = field(default=None, compare=False)

    def arg(self, name: str):
        """The argument of that name. KeyError if the operator has none such."""
        return dict(self.args)[name]


@dataclass(frozen=True, slots=True)
class Program:
    """outputs: names of what is returned, in order (an input may be returned as it is)."""
    inputs: tuple[Value, ...]
    parameters: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of a shape, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))
