"""Capture: PyTorch programs to Torch IR, from text (`-c`), a file, or a module with example inputs.

    captured = capture_code("x = torch.randn(8, 8); F.softmax(x, -1)")
    print(captured.program)
    captured.eager(*captured.inputs)              # what PyTorch computes
"""
from __future__ import annotations

import copy
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._pytree import TreeSpec, tree_flatten, tree_structure, tree_unflatten

from deplodock.capture.build import unique
from deplodock.capture.code import Text, as_forward
from deplodock.capture.closed import is_mask
from deplodock.capture.constants import find_constants
from deplodock.capture.export import CALL, decompose, export, leaves, source_of
from deplodock.capture.graph import absent_outputs, outputs_of, translate
from deplodock.capture.model import model_example
from deplodock.capture.operators import TABLE
from deplodock.capture.saved import examples, graph_of
from deplodock.capture.values import checked_dtype, copied, moved_to
from deplodock.errors import UnknownName, UsageError
from deplodock.ir.torch import Program, parse
from deplodock.overlap import overlap


@dataclass(frozen=True, slots=True)
class Captured:
    """A program, the tensors to try it with, and PyTorch's own way to run it, which writes to none of them.

    inputs: example values in the order of program.inputs; parameters: name in the program -> tensor (parameters,
    buffers and constants); graph: PyTorch's own functional form of the same program, a module called with parameters
    and then inputs; positions: of each input among the flat arguments of the module; tree: torch's TreeSpec of what it
    returns; absent: which of its leaves are None, and no outputs; text: the text it was recorded from, if any.
    """
    program: Program
    inputs: tuple[torch.Tensor, ...]
    parameters: dict[str, torch.Tensor]
    graph: torch.fx.GraphModule
    positions: tuple[int, ...]
    tree: TreeSpec
    text: Text | None = None
    absent: tuple[int, ...] = ()

    def to(self, device: torch.device | str) -> Captured:
        """The same program and example values on another device; strides, offsets and shared storage stay."""
        moved = moved_to(device, [*self.inputs, *self.parameters.values()])
        inputs, parameters = moved[:len(self.inputs)], moved[len(self.inputs):]
        graph = copy.deepcopy(self.graph).to(device)
        for node in graph.graph.nodes:
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": torch.device(device)}
        graph.recompile()
        return replace(self, inputs=tuple(inputs), parameters=dict(zip(self.parameters, parameters)), graph=graph)

    def eager(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs as PyTorch computes them in eager mode, in the order of program.outputs."""
        with torch.no_grad():
            return tuple(self.graph(*self.parameters.values(), *inputs))


def capture_code(text: str, seed: int = 0) -> Captured:
    """The program of `-c`: its last statement is an expression, whose tensors are the outputs.

    Tensors made by random or data factories become inputs, named after their variables; what arange, full, zeros, ones
    and tril make is part of the program; parameters of modules become parameters. Modules are in evaluation mode.
    """
    return _capture_text(Text(text, seed=seed))


def capture_expression(expression: str, captured: Captured) -> Captured:
    """A PyTorch expression over the names that another program's text binds: both have the same inputs and parameters."""
    text = captured.text
    if text is None:
        raise UsageError(title=f"no names for the expression {expression!r}", expected="a program given as Python text",
                         found="a saved Torch IR, or a module", advice="give the program with -c, or as PATH.py:NAME")
    return _capture_text(Text(text.text, text.file, expression, like=text, seed=text.seed, names=text.given_names),
                         keep_writes=False)


def capture_file(spec: str, seed: int = 0) -> Captured:
    """The program `path.py:name`. The file is run like the text of -c: what random factories make becomes inputs.

    name is a function without required parameters, whose result is the program's; or a function or an nn.Module that is
    called with the file's `example_inputs`: a tensor, a tuple, a dict of keyword arguments, or a function that returns
    one. Raises UsageError if there is no such file, UnknownName if it has no such program.
    """
    path, _, name = spec.rpartition(":")
    if not path or not name.isidentifier():
        raise UsageError(title=f"not a program: {spec!r}",
                         expected="a file and a name in it, such as `model.py:attention`",
                         advice="pass a Python program with -c, or PATH.py:NAME")
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise UsageError(title=f"cannot read {path}", expected="a Python file", found=error.strerror,
                         advice="check the path") from error
    module = f"deplodock_program_{Path(path).stem}"
    sys.modules.setdefault(module, types.ModuleType(module))  # dataclasses look their module up there
    names = {"__name__": module, PROGRAM: partial(_call_program, path, name)}
    sys.path.insert(0, str(Path(path).parent))
    try:
        return _capture_text(Text(text, path, f"{PROGRAM}(globals())", seed=seed, names=names, place=CALL))
    finally:
        sys.path.remove(str(Path(path).parent))


PROGRAM = "__program__"


def _call_program(file: str, name: str, scope: dict[str, object]):
    """Calls the function or module `name` of a file's scope, with the file's example_inputs if it takes arguments."""
    program = scope.get(name)
    if not callable(program) or inspect.isclass(program):
        kind = "a class" if inspect.isclass(program) else type(program).__name__
        names = [n for n, v in scope.items() if _is_program(v, file)]
        new = f"make an instance: `{name.lower()} = {name}(..)`" if inspect.isclass(program) else "write one"
        raise UnknownName(file=file, name=name, found=kind if name in scope else "nothing of this name",
                          advice=f"one of {', '.join(names)}" if names else new)
    parameters = inspect.signature(program).parameters.values() if inspect.isfunction(program) else ()
    if inspect.isfunction(program) and all(p.default is not p.empty for p in parameters):
        return program()
    if "example_inputs" not in scope:
        raise UnknownName(file=file, name=name, title=f"{file} does not say what to call {name} with",
                          expected="`example_inputs` in the file, or a function without required parameters",
                          found=f"{name} takes arguments",
                          advice="add `example_inputs = (torch.randn(..), ..)` to the file")
    given = scope["example_inputs"]
    given = given() if callable(given) else given
    match given:
        case dict(): return program(**given)
        case tuple() | list(): return program(*given)
    return program(given)


def as_module(function: nn.Module | Callable) -> nn.Module:
    """A function as a module whose submodules are the modules that the function uses: a method's own, those that its
    object holds, those of its closure, and globals that it names. So their parameters have places, like those of any
    module."""
    if isinstance(function, nn.Module):
        return function
    module = nn.Module()
    module.forward = as_forward(function)
    used: dict[str, object] = {}
    if inspect.isfunction(function):
        names = inspect.getclosurevars(function)
        used = {**names.globals, **names.nonlocals}
    else:
        owner = getattr(function, "__self__", function)         # a method's, or an object that can be called
        used = {"self": owner, **getattr(owner, "__dict__", {})}
    for name, value in used.items():
        if isinstance(value, nn.Module):
            module.add_module(unique(name, dir(module)), value)
    return module


def capture_module(module: nn.Module | Callable, args: tuple = (), kwargs: dict | None = None) -> Captured:
    """A module, or a function of tensors, as it computes on inputs of these shapes, dtypes and strides.

    Captured.inputs are the tensors in args and kwargs that it reads, Captured.positions where they stand among all.
    """
    module = as_module(module)
    for number, t in enumerate(leaves((args, kwargs))):
        if isinstance(t, torch.Tensor):
            checked_dtype(f"input {number}", t)
    apart, originals = _apart((args, kwargs or {}))
    exported = export(module, *apart)
    inputs = [originals.get(id(t), t) for t in leaves(exported.example_inputs)]
    return _captured(exported, inputs, [None] * len(inputs))


def capture_model(folder: Path | str, layer: int | None = None, sequence: int = 128, batch: int = 1,
                  dtype: str | None = None, device: torch.device | str = "cpu", seed: int = 0,
                  part: str | None = None) -> Captured:
    """A model of a local Hugging Face folder, its part, or one of its layers, with drawn inputs: see capture/model.py."""
    return capture_module(*model_example(folder, layer, sequence, batch, dtype, device, seed, part))


def _apart(arguments: tuple[tuple, dict]) -> tuple[tuple[tuple, dict], dict[int, torch.Tensor]]:
    """Arguments in which no two tensors overlap, which torch.export does not always trace, and what the copies among them
    are copies of, by their id."""
    flat, tree = tree_flatten(arguments)
    originals: dict[int, torch.Tensor] = {}
    seen: list[torch.Tensor] = []
    for at, t in enumerate(flat):
        if not isinstance(t, torch.Tensor) or t.layout != torch.strided:
            continue
        if any(overlap(t, x) for x in seen):
            flat[at] = copied(t)
            originals[id(flat[at])] = t
        seen.append(t)
    return tree_unflatten(flat, tree), originals


def _is_program(value, file: str) -> bool:
    """Whether a value is a module, or a function that the file defines."""
    return isinstance(value, nn.Module) or inspect.isfunction(value) and value.__code__.co_filename == file


def capture_torch_ir(text: str, file: str = "<torch ir>", seed: int = 0,
                     parameters: Mapping[str, torch.Tensor] | None = None) -> Captured:
    """A saved Torch IR (the text of a Program), with random inputs and parameters, or with these parameters.
    TorchIRSyntaxError if it is none."""
    program = parse(text, file)
    tensors = examples(program, seed) | dict(parameters or {})
    return Captured(program, tuple(tensors[v.name] for v in program.inputs),
                    {v.name: tensors[v.name] for v in program.parameters}, graph_of(program),
                    tuple(range(len(program.inputs))), tree_structure(program.returned))


def _capture_text(text: Text, keep_writes: bool = True) -> Captured:
    return _captured(export(text, tuple(text.inputs)), text.inputs, text.names, "bound.", text, keep_writes)


def _captured(exported: ExportedProgram, inputs, names, prefix: str = "", text: Text | None = None,
              keep_writes: bool = True) -> Captured:
    """inputs: the flat example inputs; names: theirs; prefix: what to leave out of the paths of parameters."""
    tensors, called, paths = {}, {}, {}
    given = iter(zip(inputs, names))
    for spec in exported.graph_signature.input_specs:
        placeholder = spec.arg.name
        if spec.kind == InputKind.USER_INPUT:
            tensors[placeholder], name = next(given)
            called[placeholder] = name or placeholder
        else:
            held = exported.constants if spec.target in exported.constants else exported.state_dict
            tensors[placeholder] = held[spec.target].detach()
            paths[placeholder] = spec.target.removeprefix(prefix)
            called[placeholder] = paths[placeholder].replace(".", "_")
    order = [p for p in tensors if p not in paths]
    tensors = {p: t for p, t in tensors.items() if isinstance(t, torch.Tensor)}
    decomposed = decompose(exported, set(TABLE))
    masks = {s.arg.name: tensors[s.arg.name] for s in exported.graph_signature.input_specs
             if s.kind == InputKind.CONSTANT_TENSOR and is_mask(tensors[s.arg.name])}
    constants = find_constants(decomposed, TABLE, masks)
    device = next((t.device for t in tensors.values()), torch.device("cpu"))
    for node, value in constants.tensors.items():
        checked_dtype(f"the result of {node.target}", value, source_of(node))
        tensors[node.name], paths[node.name] = value.to(device), f"constant.{node.name}"
    program, names_of = translate(decomposed, tensors, called, paths, constants, keep_writes)
    placeholders = {name: p for p, name in names_of.items()}
    read = [placeholders[v.name] for v in (*program.parameters, *program.inputs)]
    graph = _eager(exported, outputs_of(exported, keep_writes)[0], read, tensors)
    return Captured(program, tuple(tensors[placeholders[v.name]] for v in program.inputs),
                    {v.name: tensors[placeholders[v.name]] for v in program.parameters}, graph,
                    tuple(order.index(placeholders[v.name]) for v in program.inputs), exported.call_spec.out_spec, text,
                    absent_outputs(exported))


def _eager(exported: ExportedProgram, outputs: tuple[torch.fx.Node, ...], read: list[str],
           tensors: dict[str, torch.Tensor]) -> torch.fx.GraphModule:
    """The graph as a module that takes the placeholders in `read`, in that order, and returns the outputs.

    A placeholder that only lends its shape is no input of the program: its example value is held instead. A constant
    in `read` is computed as the program says.
    """
    graph, copies, root = torch.fx.Graph(), {}, nn.Module()
    found = {n.name: n for n in exported.graph.nodes if n.op == "placeholder"}
    for name in read:
        made = graph.placeholder(name)
        if name in found:
            copies[found[name]] = made
    for name, node in found.items():
        if node not in copies and name in tensors:
            root.register_buffer(name, tensors[name])
            copies[node] = graph.get_attr(name)
    for node in exported.graph.nodes:
        if node.op not in ("placeholder", "output"):
            copies[node] = graph.node_copy(node, lambda n: copies.get(n))
    graph.output(tuple(copies[n] for n in outputs))
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(root, graph)
