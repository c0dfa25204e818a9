"""How rows of the capture table are written."""
from __future__ import annotations

from typing import Callable

from deplodock.capture.build import Call
from deplodock.errors import WrongDtype
from deplodock.ir.torch import Arg

Constructor = Callable[[Call], Arg | tuple[Arg, ...] | None]


def rows(constructor: Constructor, names: str) -> dict[str, Constructor]:
    return {name if "." in name else name + ".default": constructor for name in names.split()}


def each(make: Callable[[str], Constructor], names: str) -> dict[str, Constructor]:
    """One row for each operator whose public name is ATen's."""
    return {name + ".default": make(name) for name in names.split()}


def of_floats(constructor: Constructor) -> Constructor:
    """A row whose result PyTorch computes in floating dtypes only, though it traces others: WrongDtype for these."""
    def construct(c: Call) -> Arg | tuple[Arg, ...] | None:
        if not c.dtype.is_float and 0 not in c.shape:
            raise WrongDtype(c.source, name=f"the result of {c.op}", dtype=f"torch.{c.dtype.torch_name}",
                             expected="a floating dtype: PyTorch computes it in no other",
                             advice="convert the operand to a floating dtype")
        return constructor(c)
    return construct


def of_integers(constructor: Constructor) -> Constructor:
    """A row that PyTorch computes of integers and truth values only, though it traces floats: WrongDtype for these."""
    def construct(c: Call) -> Arg | tuple[Arg, ...] | None:
        if c.dtype.is_float and 0 not in c.shape:
            raise WrongDtype(c.source, name=f"the result of {c.op}", dtype=f"torch.{c.dtype.torch_name}",
                             expected="integers or truth values: PyTorch computes it of no others",
                             advice="convert the operands to an integer dtype")
        return constructor(c)
    return construct


def same_dtype(c: Call, *operands: Arg | None) -> None:
    """WrongDtype unless all operands have the dtype of the first: PyTorch promotes none here, though it traces it."""
    first, *rest = (c.dtype_of(x) for x in operands if x is not None)
    for dtype in rest:
        if dtype != first:
            raise WrongDtype(c.source, name=f"an operand of {c.op}", dtype=f"torch.{dtype.torch_name}",
                             expected=f"torch.{first.torch_name}, as another operand has: PyTorch promotes neither",
                             advice="convert one of them to the dtype of the other")
