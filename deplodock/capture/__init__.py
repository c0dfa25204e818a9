"""Capture: PyTorch programs to Torch IR, from text (`-c`), a file, or a module with example inputs.

    captured = capture_code("x = torch.randn(8, 8); F.softmax(x, -1)")
    print(captured.program)
    captured.eager(*captured.inputs)              # what PyTorch computes
"""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from deplodock.capture.code import Text
from deplodock.capture.export import decompose, export
from deplodock.capture.graph import Translated, translate
from deplodock.capture.operators import TABLE
from deplodock.errors import UnknownName
from deplodock.ir.torch import Program


@dataclass(frozen=True, slots=True)
class Captured:
    """A program, the tensors to try it with, and PyTorch's own way to run it.

    inputs: example values in the order of program.inputs; parameters: name in the program -> tensor (parameters, buffers and
    constants); graph: PyTorch's functional graph of the same program, over parameters and inputs; positions: of each input among
    the flat arguments of the module; tree: torch's TreeSpec of what it returns; text: the text it was recorded from, if any.
    """
    program: Program
    inputs: tuple[torch.Tensor, ...]
    parameters: dict[str, torch.Tensor]
    graph: torch.fx.GraphModule
    positions: tuple[int, ...]
    tree: object
    text: Text | None = None

    def eager(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs as PyTorch computes them in eager mode, in the order of program.outputs."""
        with torch.no_grad():
            return tuple(self.graph(*self.parameters.values(), *inputs))


def capture_code(text: str, seed: int = 0) -> Captured:
    """The program of `-c`: its last statement is an expression, whose tensors are the outputs.

    Tensors made by random or data factories become inputs, named after their variables; what arange, full, zeros, ones and
    tril make is part of the program; parameters of modules become parameters. Modules are in evaluation mode.
    """
    return _capture_text(Text(text, seed=seed))


def capture_expression(expression: str, captured: Captured) -> Captured:
    """A PyTorch expression over the names that another program's text binds: both are over the same inputs and parameters."""
    text = captured.text
    return _capture_text(Text(text.text, text.file, expression, like=text, seed=text.seed, module_name=text.module_name))


def _capture_text(text: Text) -> Captured:
    return _captured(export(text, tuple(text.inputs)), text.inputs, text.names, "bound.", text, keep_writes=False)


def _captured(exported: ExportedProgram, inputs, names, prefix: str = "", text: Text | None = None, keep_writes: bool = True) -> Captured:
    """inputs: the flat example inputs; names: theirs; prefix: what to leave out of the paths of parameters."""
    exported = decompose(exported, set(TABLE))
    tensors, called, paths = {}, {}, {}
    given = iter(zip(inputs, names))
    for spec in exported.graph_signature.input_specs:
        placeholder = spec.arg.name
        if spec.kind == InputKind.USER_INPUT:
            tensors[placeholder], called[placeholder] = next(given)
        else:
            held = exported.constants if spec.target in exported.constants else exported.state_dict
            tensors[placeholder] = held[spec.target].detach()
            paths[placeholder] = spec.target.removeprefix(prefix)
            called[placeholder] = paths[placeholder].replace(".", "_")
    order = [p for p in tensors if p not in paths]
    tensors = {p: t for p, t in tensors.items() if isinstance(t, torch.Tensor)}
    translated = translate(exported, tensors, called, paths, keep_writes)
    program = translated.program
    placeholders = {name: p for p, name in translated.names.items()}
    return Captured(program, tuple(tensors[placeholders[v.name]] for v in program.inputs),
                    {v.name: tensors[placeholders[v.name]] for v in program.parameters},
                    _eager(exported, translated, [placeholders[v.name] for v in (*program.parameters, *program.inputs)], tensors),
                    tuple(order.index(placeholders[v.name]) for v in program.inputs), exported.call_spec.out_spec, text)


def _eager(exported: ExportedProgram, translated: Translated, order: list[str], tensors: dict[str, torch.Tensor]) -> torch.fx.GraphModule:
    """The graph as a module that takes the placeholders in `order` and returns the outputs.

    A placeholder that only lends its shape is no input of the program: its example value is held instead.
    """
    graph, copies = torch.fx.Graph(), {}
    found = {n.name: n for n in exported.graph.nodes if n.op == "placeholder"}
    for name in order:
        copies[found[name]] = graph.placeholder(name)
    held = {name: tensors[name] for name, node in found.items() if node.users and name not in order and name in tensors}
    for name in held:
        copies[found[name]] = graph.get_attr(name)
    for node in exported.graph.nodes:
        if node.op not in ("placeholder", "output"):
            copies[node] = graph.node_copy(node, lambda n: copies.get(n))
    graph.output(tuple(copies[n] for n in translated.outputs))
    root = nn.Module()
    for name, t in held.items():
        root.register_buffer(name, t)
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(root, graph)
