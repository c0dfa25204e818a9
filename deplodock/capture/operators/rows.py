"""How rows of the capture table are written."""
from __future__ import annotations

from typing import Callable

from deplodock.capture.build import Call
from deplodock.ir.torch import Arg

Constructor = Callable[[Call], Arg | tuple[Arg, ...] | None]


def rows(constructor: Constructor, names: str) -> dict[str, Constructor]:
    return {name if "." in name else name + ".default": constructor for name in names.split()}


def each(make: Callable[[str], Constructor], names: str) -> dict[str, Constructor]:
    """One row for each operator whose public name is ATen's."""
    return {name + ".default": make(name) for name in names.split()}
