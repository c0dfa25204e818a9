"""From a graph of torch.export to Torch IR: each node by its row of the table, or a named error."""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from deplodock.capture.build import RESERVED, Builder, Call, output_facts, unique
from deplodock.capture.export import arguments, is_item, is_operator, source_of
from deplodock.capture.operators import TABLE, nothing
from deplodock.errors import (DataDependentShape, MismatchedDevices, MutatedInput, RandomNumbers, TrainingMode, UnsupportedOperator,
                              UnsupportedOutput, WrongDtype)
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import Arg, Program, Value

_TRAINING = {"native_dropout.default", "_native_batch_norm_legit_functional.default", "dropout.default"}
_MUTATIONS = {OutputKind.USER_INPUT_MUTATION, OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION}


@dataclass(frozen=True, slots=True)
class Translated:
    """A program, the names that it gives to the placeholders which the graph reads, and the graph's nodes that it returns."""
    program: Program
    names: dict[str, str]
    outputs: tuple[torch.fx.Node, ...]


def translate(exported: ExportedProgram, tensors: Mapping[str, torch.Tensor], names: Mapping[str, str],
              paths: Mapping[str, str], keep_writes: bool) -> Translated:
    """The Torch IR of an exported program. Assertions are erased from its graph.

    tensors: placeholder -> its example value or parameter; names: placeholder -> its name in Torch IR (others keep their own);
    paths: placeholder of a parameter -> its path. Unless keep_writes is False, a write to an input is an error.
    """
    for node in exported.graph.nodes:
        if is_operator(node) and TABLE.get(node.target.__name__) is nothing:
            exported.graph.erase_node(node)
    read = {n.name for n in exported.graph.nodes if n.op == "placeholder" and n.users}
    tensors = {p: t for p, t in tensors.items() if p in read}
    device = check_devices(tensors, names)
    values = described(tensors, names, paths)
    inputs = tuple(v for p, v in values.items() if p not in paths)
    builder = Builder(inputs, tuple(v for p, v in values.items() if p in paths), device)
    results: dict[torch.fx.Node, object] = {}
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            results[node] = Arg(values[node.name].name) if node.name in values else None
        elif is_item(node):
            results[node] = results[node.args[0]][node.args[1]]
        elif is_operator(node):
            results[node] = _operator(builder, node, results)
        elif node.op != "output":
            raise _unsupported(node)
    outputs = _outputs(exported, names, keep_writes)
    return Translated(builder.program(tuple(results[n] for n in outputs)), {p: v.name for p, v in values.items()}, outputs)


def _operator(builder: Builder, node: torch.fx.Node, results: dict) -> object:
    source, op = source_of(node), node.target.__name__
    if op in _TRAINING and op != "dropout.default":
        raise TrainingMode(source, found=f"aten.{op}")
    if torch.Tag.nondeterministic_seeded in node.target.tags and op not in TABLE:
        raise RandomNumbers(source, op=f"aten.{op}")
    if op not in TABLE or node.target.namespace != "aten":
        raise _unsupported(node)
    args = {name: _argument(value, results) for name, value in arguments(node).items()}
    value = node.meta.get("val")
    outs = () if value is None else output_facts(value, source, f"aten.{op}")
    return TABLE[op](Call(builder, node.target, args, outs, source))


def _unsupported(node: torch.fx.Node) -> Exception:
    value, source = node.meta.get("val"), source_of(node)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) or "_assert_scalar" in str(node.target):
        return DataDependentShape(source, found=f"{node.target}: a Python number that depends on a tensor's values")
    if isinstance(value, torch.Tensor):
        output_facts(value, source, str(node.target))
    return UnsupportedOperator(source, op=str(node.target))


def _argument(value, results: dict) -> object:
    """An argument of a graph node as Torch IR has it."""
    match value:
        case torch.fx.Node(): return results[value]
        case list() | tuple(): return tuple(_argument(v, results) for v in value)
        case float() if math.isnan(value): return math.nan
    return value


def _outputs(exported: ExportedProgram, names: Mapping[str, str], keep_writes: bool) -> tuple[torch.fx.Node, ...]:
    """The nodes that the user's program returns, without what it writes to its inputs."""
    outputs = []
    (returned,) = exported.graph.output_node().args
    for spec, node in zip(exported.graph_signature.output_specs, returned, strict=True):
        if spec.kind in _MUTATIONS:
            if keep_writes or spec.kind != OutputKind.USER_INPUT_MUTATION:
                raise MutatedInput(name=names.get(spec.target, spec.target))
        elif isinstance(node, torch.fx.Node):
            outputs.append(node)
        elif node is not None:
            raise UnsupportedOutput(found=f"{node!r}")
    return tuple(outputs)


# ---- values ----------------------------------------------------------------------------------------------------------

def described(tensors: Mapping[str, torch.Tensor], names: Mapping[str, str], paths: Mapping[str, str]) -> dict[str, Value]:
    """What Torch IR says about tensors that a program is given. Raises WrongDtype for those it cannot hold."""
    values: dict[str, Value] = {}
    taken = set(RESERVED)
    for placeholder, t in tensors.items():
        name = unique(names.get(placeholder, placeholder), taken)
        taken.add(name)
        dtype = Dtype.of_torch(t.dtype)
        if dtype is None or t.layout != torch.strided or t.is_quantized or t.is_nested:
            raise WrongDtype(name=name, dtype=t.dtype if t.layout == torch.strided else f"{t.dtype}, {t.layout}")
        earlier = (values[p].name for p in values if _overlap(t, tensors[p]))
        values[placeholder] = Value(name, dtype, tuple(t.shape), strides_of(t), t.storage_offset(), alignment_of(t),
                                    paths.get(placeholder, ""), next(earlier, ""))
    return values


def strides_of(t: torch.Tensor) -> tuple[int, ...]:
    """Strides in elements; row-major ones where there is only one way to walk the elements."""
    from deplodock.ir.torch import contiguous
    return contiguous(tuple(t.shape)) if t.is_contiguous() else tuple(t.stride())


def alignment_of(t: torch.Tensor) -> int:
    """Alignment of the first element in bytes, at most 16: no instruction asks for more."""
    return 16 if t.is_meta else math.gcd(t.data_ptr(), 16)


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have memory in common, as ranges of bytes of one storage."""
    if a.is_meta or not a.numel() or not b.numel() or a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return False
    (a0, a1), (b0, b1) = _bytes(a), _bytes(b)
    return a0 < b1 and b0 < a1


def _bytes(t: torch.Tensor) -> tuple[int, int]:
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
    return t.data_ptr(), t.data_ptr() + (last + 1) * t.element_size()


def check_devices(tensors: Mapping[str, torch.Tensor], names: Mapping[str, str]) -> torch.device:
    """The one device that all tensors are on (the CPU where there are none), or MismatchedDevices."""
    where: dict[torch.device, str] = {}
    for placeholder, t in tensors.items():
        where.setdefault(t.device, names.get(placeholder, placeholder))
    if len(where) > 1:
        raise MismatchedDevices(found=", ".join(f"{name} on {device}" for device, name in where.items()))
    return next(iter(where), torch.device("cpu"))
