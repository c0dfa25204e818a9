"""Compiled programs as text: what running needs of one, to JSON and back.

The format names classes of a closed list and their fields in order; terms that are shared are written once, and so are
long texts: those of kernels, which come again in each layer. Reading it runs no code but those classes' constructors,
which is why it is not pickle.
"""
from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass

from deplodock.ir import cuda, loop, plan, torch as torch_ir
from deplodock.ir.dtype import Dtype
from deplodock.runtime.program import Loadable

CLASSES = {c.__name__: c for c in (
    loop.Axis, loop.FloorDiv, loop.Mod, loop.Gathered, loop.Index, loop.Buffer, loop.Load, loop.Const, loop.Iota, loop.Op,
    loop.Cast, loop.RoundTo, loop.Fold, plan.Output, plan.Kernel, plan.Plan, torch_ir.Source, torch_ir.Arg, torch_ir.Value,
    torch_ir.Node, torch_ir.Program, cuda.Param, cuda.Map, cuda.CudaKernel, Loadable)}
"""What a stored program is made of."""
LONG = 100
"""Characters from which on a text is a row of the table, and written once."""


def encode(value) -> str:
    """JSON of a value made of the classes above, tuples, dtypes, numbers, strings, None."""
    table: list[list] = []
    seen: dict[int | str, int] = {}

    def row(key: int | str, *values) -> dict:
        if key not in seen:
            seen[key] = len(table)
            table.append(list(values))
        return {"ref": seen[key]}

    def put(v):
        match v:
            case Dtype(): return {"dtype": str(v)}
            case float() if not math.isfinite(v): return {"float": repr(v)}
            case tuple(): return [put(x) for x in v]
            case str() if len(v) >= LONG: return row(v, "text", v)
            case None | bool() | int() | float() | str(): return v
        if not (is_dataclass(v) and CLASSES.get(type(v).__name__) is type(v)):
            raise TypeError(f"{type(v).__name__} is nothing that a stored program holds")
        return {"ref": seen[id(v)]} if id(v) in seen else row(
            id(v), type(v).__name__, *(put(getattr(v, f.name)) for f in fields(v)))
    root = put(value)
    return json.dumps({"table": table, "root": root}, separators=(",", ":"))


def decode(text: str):
    """The value that encode() wrote."""
    data = json.loads(text)
    made: list = []

    def get(v):
        match v:
            case {"ref": at}: return made[at]
            case {"dtype": name}: return Dtype(name)
            case {"float": name}: return float(name)
            case list(): return tuple(map(get, v))
        return v
    for name, *values in data["table"]:
        made.append(values[0] if name == "text" else CLASSES[name](*map(get, values)))
    return get(data["root"])
