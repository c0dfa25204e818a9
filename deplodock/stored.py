"""Compiled programs as data: what running needs of one, to JSON and back, and the cache of those compiled before.

The format names classes of a closed list and their fields in order; terms that are shared are written once. Reading it
runs no code but those classes' constructors, which is why it is not pickle.
"""
from __future__ import annotations

import hashlib
import json
import math
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from deplodock.ir import kernel as kernel_ir, loop, plan, torch as torch_ir
from deplodock.ir.dtype import Dtype
from deplodock.lower.cuda import CudaKernel
from deplodock.pipeline import Compilation, Region
from deplodock.runtime.cache import Cache, digest
from deplodock.runtime.program import Loadable

CLASSES = {c.__name__: c for c in (
    loop.Axis, loop.FloorDiv, loop.Mod, loop.Gathered, loop.Index, loop.Buffer, loop.Load, loop.Const, loop.Iota, loop.Op,
    loop.Cast, loop.RoundTo, loop.Fold, plan.Output, plan.Kernel, plan.Plan, torch_ir.Source, torch_ir.Arg, torch_ir.Value,
    torch_ir.Node, torch_ir.Program, kernel_ir.Param, kernel_ir.Map, CudaKernel, Loadable)}
"""What a stored program is made of."""


def loadable(compilation: Compilation, store: Cache | None = None) -> Loadable:
    """What running needs of a compilation. With a cache: taken from there if the same was compiled before, kept there if not."""
    if store:
        restore(compilation, store)
    made = Loadable(compilation.torch, compilation.plan, compilation.cuda, compilation.target.arch)
    if store and "regions" in vars(compilation):
        if len(compilation.parts) > 1:
            for r in compilation.regions:
                if "saturation" in vars(r):
                    store.put(_key(r), encode(Loadable(r.torch, r.plan, r.cuda, r.target.arch)).encode())
        store.put(_key(compilation), encode(made).encode())
    return made


def restore(compilation: Compilation, store: Cache) -> bool:
    """Gives a compilation the plan and the CUDA of an equal one from the cache, so that nothing is saturated for them;
    whether there is one. If not, as much for those of its regions that were compiled before.

    Equal: the same Torch IR (which holds shapes, strides, alignments), target, numerics, and compiler.
    """
    if compilation.groups or "plan" in vars(compilation):
        return False
    if _restored(compilation, store):
        return True
    if len(compilation.parts) > 1:
        for r in compilation.regions:
            if "plan" not in vars(r):
                _restored(r, store)
    return False


def _restored(x: Compilation | Region, store: Cache) -> bool:
    known = store.get(_key(x))
    if known is not None:
        made = decode(known.decode())
        vars(x).update(plan=made.plan, cuda=made.kernels)
    return known is not None


def _key(x: Compilation | Region) -> str:
    whole = f"whole={x.whole}" if isinstance(x, Compilation) else f"region={x.number}"
    return digest(str(x.torch), whole, x.target.name, x.numerics, compiler())


@cache
def compiler() -> str:
    """A digest of the compiler itself: its sources, and the version of egglog, on which what is found may depend."""
    h = hashlib.sha256(metadata.version("egglog").encode())
    here = Path(__file__).resolve().parents[1]
    for package in ("deplodock", "rules", "extract"):
        for path in sorted((here / package).rglob("*")):
            if path.suffix in (".py", ".cuh"):
                h.update(str(path.relative_to(here)).encode() + b"\0" + path.read_bytes())
    return h.hexdigest()


def encode(value) -> str:
    """JSON of a value made of the classes above, tuples, dtypes, numbers, strings, None."""
    table: list[list] = []
    seen: dict[int, int] = {}

    def put(v):
        match v:
            case Dtype(): return {"dtype": str(v)}
            case float() if not math.isfinite(v): return {"float": repr(v)}
            case tuple(): return [put(x) for x in v]
            case None | bool() | int() | float() | str(): return v
        if not (is_dataclass(v) and CLASSES.get(type(v).__name__) is type(v)):
            raise TypeError(f"{type(v).__name__} is nothing that a stored program holds")
        if id(v) not in seen:
            row = [type(v).__name__, *(put(getattr(v, f.name)) for f in fields(v))]
            seen[id(v)] = len(table)
            table.append(row)
        return {"ref": seen[id(v)]}
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
        made.append(CLASSES[name](*map(get, values)))
    return get(data["root"])
