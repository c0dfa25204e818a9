"""From a graph of torch.export to Torch IR: each node by its row of the table, or a named error."""
from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from deplodock.capture.build import Builder, Call, output_facts
from deplodock.capture.closed import emit
from deplodock.capture.constants import Constants
from deplodock.capture.export import arguments, called, is_item, is_operator, source_of
from deplodock.capture.operators import TABLE
from deplodock.capture.operators.pointwise import nothing
from deplodock.capture.values import check_devices, described
from deplodock.errors import DeplodockError, RandomNumbers, TrainingMode, UnsupportedOperator, UnsupportedOutput
from deplodock.ir.torch import Arg, Program
from deplodock.overlap import check_written

TRAINING = {"native_dropout.default", "_native_batch_norm_legit_functional.default"}
_MUTATIONS = {OutputKind.USER_INPUT_MUTATION, OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION}


def translate(exported: ExportedProgram, tensors: Mapping[str, torch.Tensor], names: Mapping[str, str],
              paths: Mapping[str, str], constants: Constants, keep_writes: bool) -> tuple[Program, dict[str, str]]:
    """The Torch IR of an exported program, and the names that it gives to the placeholders which the graph reads.

    tensors: placeholder or constant node -> its example value, parameter or value; names: placeholder -> its name in
    Torch IR (others keep their own); paths: placeholder of a parameter, or constant node -> its path. keep_writes: what
    it writes to them is written back.
    """
    outputs, written = outputs_of(exported, keep_writes)
    nodes = [n for n in exported.graph.nodes
             if n not in constants.unread and not (is_operator(n) and TABLE.get(n.target.__name__) is nothing)]
    read = {n.name for node in nodes for n in node.all_input_nodes} | set(written)
    tensors = {p: t for p, t in tensors.items() if p in read}
    device = check_devices(tensors, names)
    values = described(tensors, names, paths)
    for placeholder in written:
        check_written(values[placeholder].name, {v.name: tensors[p] for p, v in values.items()})
    inputs = tuple(v for p, v in values.items() if p not in paths)
    builder = Builder(inputs, tuple(v for p, v in values.items() if p in paths), device)
    results: dict[torch.fx.Node, object] = {}
    for node in nodes:
        if node in constants.forms:
            results[node] = emit(Call(builder, node.target, {}, _facts(node), source_of(node)), constants.forms[node])
        elif node.op == "placeholder" or node in constants.tensors:
            results[node] = Arg(values[node.name].name) if node.name in values else None
        elif is_item(node):
            results[node] = results[node.args[0]][node.args[1]]
        elif is_operator(node):
            try:
                results[node] = _operator(builder, node, results)
            except DeplodockError as error:
                error.operator = node.target.__name__
                raise
        elif node.op not in ("output", "get_attr"):         # get_attr: a graph that torch.cond or the like is given
            raise _unsupported(node)
    program = builder.program(tuple(results[n] for n in outputs), tuple(values[p].name for p in written))
    return program, {p: v.name for p, v in values.items()}


def _operator(builder: Builder, node: torch.fx.Node, results: dict) -> object:
    source, op = source_of(node), node.target.__name__
    if op in TRAINING:
        raise TrainingMode(source, found=f"aten.{op} in training mode")
    if torch.Tag.nondeterministic_seeded in node.target.tags and op not in TABLE:
        raise RandomNumbers(source, op=f"aten.{op}")
    if op not in TABLE or node.target.namespace != "aten":
        raise _unsupported(node)
    args = {name: _argument(value, results) for name, value in arguments(node).items()}
    first = node.all_input_nodes[0].meta.get("val") if node.all_input_nodes else None
    return TABLE[op](Call(builder, node.target, args, _facts(node), source, first if isinstance(first, torch.Tensor) else None))


def _facts(node: torch.fx.Node) -> tuple:
    """Shapes and dtypes of what a node returns."""
    value = node.meta.get("val")
    return () if value is None else output_facts(value, source_of(node), str(node.target))


def _unsupported(node: torch.fx.Node) -> Exception:
    value, source = node.meta.get("val"), source_of(node)
    if isinstance(value, torch.Tensor):
        output_facts(value, source, str(node.target))
    return UnsupportedOperator(source, op=called(node.target))


def _argument(value, results: dict) -> object:
    """An argument of a graph node as Torch IR has it."""
    match value:
        case torch.fx.Node(): return results[value]
        case list() | tuple(): return tuple(_argument(v, results) for v in value)
        case float() if math.isnan(value): return math.nan
    return value


def outputs_of(exported: ExportedProgram, keep_writes: bool) -> tuple[tuple[torch.fx.Node, ...], tuple[str, ...]]:
    """The nodes that the user's program returns, then those that it writes to tensors it is given; and the placeholders
    of these tensors."""
    outputs, written = [], {}
    signature = exported.graph_signature
    placeholders = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target is not None}
    (returned,) = exported.graph.output_node().args
    for spec, node in zip(signature.output_specs, returned, strict=True):
        if spec.kind in _MUTATIONS:
            written[placeholders.get(spec.target, spec.target)] = node
        elif isinstance(node, torch.fx.Node):
            outputs.append(node)
        elif node is not None:
            raise UnsupportedOutput(found=f"{node!r}")
    return (*outputs, *(written.values() if keep_writes else ())), tuple(written if keep_writes else ())


def absent_outputs(exported: ExportedProgram) -> tuple[int, ...]:
    """Which leaves of what the user's program returns are None."""
    (returned,) = exported.graph.output_node().args
    leaves = [node for spec, node in zip(exported.graph_signature.output_specs, returned, strict=True)
              if spec.kind == OutputKind.USER_OUTPUT]
    return tuple(i for i, node in enumerate(leaves) if node is None)
