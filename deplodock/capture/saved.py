"""A saved Torch IR as a program that can be tried: example tensors for its values, and its own graph for PyTorch."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from deplodock.ir.torch import Arg, Program, Value
from deplodock.reference import MEANING, operate

LARGEST = 8
"""Integers that nothing is known about are drawn below this: small enough to count, shift and index with."""

MOVING = ("cast", "reshape", "expand", "permute", "slice", "select", "flip", "roll", "unfold", "diagonal", "as_strided")
"""Operators whose results hold nothing but their operand's values."""


def examples(program: Program, seed: int) -> dict[str, torch.Tensor]:
    """A tensor for each input and parameter, by name, with the facts that the program states of it."""
    generator = torch.Generator().manual_seed(seed)
    values = {v.name: v for v in (*program.inputs, *program.parameters)}
    owners = {name: _owner(v, values) for name, v in values.items()}
    storages = {}
    for owner in dict.fromkeys(owners.values()):
        reach = max(_reach(values[name]) for name, o in owners.items() if o == owner)
        storages[owner] = _drawn(values[owner], reach, _limit(owner, program), generator)
    return {name: storages[owners[name]].view(_torch(v)).as_strided(v.shape, v.strides, v.offset)
            for name, v in values.items()}


def _torch(v: Value) -> torch.dtype:
    return getattr(torch, v.dtype.torch_name)


def _owner(v: Value, values: dict[str, Value]) -> str:
    """The first value whose storage this one lies in."""
    while v.shares:
        v = values[v.shares]
    return v.name


def _reach(v: Value) -> int:
    """Elements of storage up to the last one of a value."""
    return v.offset + (sum((n - 1) * s for n, s in zip(v.shape, v.strides)) + 1 if 0 not in v.shape else 0)


def _drawn(v: Value, count: int, limit: int, generator: torch.Generator) -> torch.Tensor:
    if v.dtype.is_float:
        return torch.randn(count, generator=generator, dtype=torch.float64).to(_torch(v))
    return torch.randint(0, 2 if v.dtype == "b8" else limit, (count,), generator=generator).to(_torch(v))


def _limit(name: str, program: Program) -> int:
    """What an integer input must stay below: the rows of every table that it is an index of."""
    shapes = {v.name: v.shape for v in (*program.inputs, *program.parameters, *program.nodes)}
    same, rows = {Arg(name)}, []
    for n in program.nodes:
        match n.op:
            case op if op in MOVING and n.arg("x") in same: same.add(Arg(n.name))
            case "embedding" if n.arg("indices") in same: rows.append(shapes[n.arg("weight").name][0])
            case "gather" if n.arg("index") in same: rows.append(shapes[n.arg("x").name][n.arg("dim")])
            case "index":
                rows += [size for i, size in zip(n.arg("indices"), shapes[n.arg("x").name]) if i in same]
    return max(1, min(rows, default=LARGEST))


def graph_of(program: Program) -> torch.fx.GraphModule:
    """The program as PyTorch runs it in eager mode, over parameters and inputs, in that order."""
    graph, made = torch.fx.Graph(), {}
    for v in (*program.parameters, *program.inputs):
        made[v.name] = graph.placeholder(v.name)

    def value(a):
        match a:
            case Arg(name): return made[name]
            case tuple(): return tuple(map(value, a))
        return a

    for n in program.nodes:
        names, given = tuple(name for name, _ in n.args), tuple(value(a) for _, a in n.args)
        args = n.op, names, given, n.shape, getattr(torch, n.dtype.torch_name)
        made[n.name] = graph.call_function(run_operator, args, {"device": torch.device("cpu")})
    graph.output(tuple(made[name] for name in program.outputs))
    return torch.fx.GraphModule(nn.Module(), graph)


def run_operator(op: str, names: tuple[str, ...], given: tuple, shape: tuple[int, ...], dtype: torch.dtype,
                 device: torch.device) -> torch.Tensor:
    """One operator of Torch IR in its own dtype."""
    def tensors(a) -> bool:
        return isinstance(a, tuple) and any(isinstance(x, torch.Tensor) for x in a)
    args = {n: list(a) if tensors(a) else a for n, a in zip(names, given)}
    return operate(op, args, shape, dtype, device, OWN_OPERATORS)


def _addmm(input, a, b, beta, alpha):
    return (torch.addmm if a.ndim == 2 else torch.baddbmm)(input, a, b, beta=beta, alpha=alpha)


OWN_OPERATORS = {
    **MEANING,
    "addmm": _addmm,
    "elu": lambda x, alpha, scale, input_scale: torch.ops.aten.elu(x, alpha, scale, input_scale),
    "rms_norm": lambda x, weight, dims, eps: F.rms_norm(x, [x.shape[d] for d in dims], weight, eps),
    "scaled_dot_product_attention": lambda q, k, v, mask, is_causal, scale, enable_gqa: F.scaled_dot_product_attention(
        q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa),
}
"""Torch IR operator -> PyTorch's own, where the reference spells it out."""
