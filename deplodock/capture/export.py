"""The adapter to torch.export: what torch may move between versions is called here only. For torch 2.11 to 2.13."""
from __future__ import annotations

import contextlib
import io
import linecache
import logging
import operator
import os
import re
import sys
import sysconfig
import traceback
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode

from deplodock.capture.values import checked_dtype, is_dense
from deplodock.errors import (CaptureFailed, DataDependentShape, DeplodockError, GradientWanted, UnsupportedOperator,
                              UnsupportedOutput)
from deplodock.ir.torch import Source

_FOLDERS = Path(torch.__file__).parent, Path(__file__).parents[1], Path(sysconfig.get_paths()["stdlib"])
CALL = "<call>"
"""The place of an expression that calls a user's program."""
_NOT_THE_USERS = (*(f"{folder}{os.sep}" for folder in _FOLDERS), "<eval_with_key>", "<string>", "<frozen", CALL)
_FRAME = re.compile(r'File "(.*?)", line (\d+)')
_NO_TREE = re.compile("Found (.*) in output, which is not a known type")


def export(module: nn.Module, args: tuple, kwargs: dict | None = None) -> ExportedProgram:
    """The module's forward as a functional graph of ATen operators, high-level ones whole.

    Not strict: strict takes the fast path of nn.TransformerEncoderLayer, and needs importable code.
    Raises DataDependentShape where control flow or a shape depends on tensor values, CaptureFailed where tracing fails.
    """
    try:
        with _alone(), torch.no_grad(), _quiet(), _Retold(), _unassigned(module):
            exported = torch.export.export(module, args, kwargs, strict=False)
            _check_values(exported)
            for region in exported.graph_module.modules():
                if region is not exported.graph_module and isinstance(region, torch.fx.GraphModule):
                    region.forward = torch.fx.Interpreter(region).run  # autocast and no_grad regions keep their lines
            return exported.run_decompositions({})
    except DeplodockError as error:
        error.where = error.where or source_of_error(error)
        raise
    except Exception as error:
        raise _explained(error) from error


class _Retold(TorchFunctionMode):
    """Calls that PyTorch traces wrongly are made as calls of the same meaning that it traces right."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in RETOLD:
            args, kwargs = RETOLD[func](*args, **kwargs), {}
        return func(*args, **kwargs)


def _index(self: torch.Tensor, indices: list[torch.Tensor | None]) -> tuple:
    """On the CPU, the result takes its shape from the last index, even where that one has no dimensions and others do."""
    places = [i for i in indices if i is not None and i.dtype not in (torch.bool, torch.uint8)]
    if any(i.dim() for i in places):
        indices = [i.reshape(1) if any(i is p for p in places) and not i.dim() else i for i in indices]
    return self, indices


def _split(self: torch.Tensor, split_size: int | list[int], dim: int = 0) -> tuple:
    """Before torch 2.13, only pieces of 0 are traced of a dimension of 0, which is one piece for every size."""
    whole = isinstance(split_size, int) and split_size > 0 and not self.shape[dim]
    return self, 0 if whole else split_size, dim


RETOLD = {
    torch.ops.aten.index.Tensor: _index,
    torch.ops.aten.split.Tensor: _split,
    torch.Tensor.split: _split,
    torch.split: lambda tensor, split_size_or_sections, dim=0: _split(tensor, split_size_or_sections, dim),
}


@contextlib.contextmanager
def _unassigned(module: nn.Module):
    """Gives modules back the attributes that they had: what they assign while they are traced are tensors without values."""
    before = [(vars(m), dict(vars(m))) for m in module.modules()]
    try:
        yield
    finally:
        for now, then in before:
            for key in now.keys() - then.keys():
                del now[key]
            now.update(then)


def _alone() -> contextlib.AbstractContextManager:
    """Dynamo's lock: tracing changes tables of operators that all threads share."""
    return torch._dynamo.convert_frame.compile_lock


@contextlib.contextmanager
def _quiet():
    """Keeps torch's warnings to itself, and what it writes to standard error about a trace that fails."""
    written, disabled = io.StringIO(), logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(written):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
    sys.stderr.write(written.getvalue())


def _check_values(exported: ExportedProgram) -> None:
    """Refuses Python numbers read from tensors, which a later step of torch.export drops if it does not see their use, and
    tensors without strides, which it cannot take apart."""
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise DataDependentShape(source_of(node),
                                     found="a size or a Python number that depends on a tensor's values")
        if isinstance(value, torch.Tensor) and not is_dense(value):
            checked_dtype(f"the result of {node.target}", value, source_of(node))


def decompose(exported: ExportedProgram, known: set[str]) -> ExportedProgram:
    """The program with operators that are not in `known` replaced by PyTorch's own decompositions, where it has one.

    `known` are overload names such as "softmax.int".
    """
    table = None
    while unknown := {n.target for n in exported.graph.nodes if is_operator(n) and n.target.__name__ not in known}:
        table = table or torch.export.default_decompositions()
        chosen = {target: table[target] for target in unknown if target in table}
        if not chosen:
            break
        with _alone(), torch.no_grad(), _quiet():
            exported = exported.run_decompositions(chosen)
        known = known | {target.__name__ for target in chosen}  # one that is its own decomposition stays
    return exported


def leaves(tree) -> list:
    """The leaves of nested tuples, lists and dicts in the order of an exported program's inputs."""
    return torch.utils._pytree.tree_leaves(tree)


def is_operator(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)


def called(operator) -> str:
    """What users call an operator: aten.sort.default, torch.cond."""
    if not isinstance(operator, torch._ops.HigherOrderOperator):
        return str(operator)
    name = operator.name()
    return f"torch.{name}" if hasattr(torch, name) else f"torch.ops.higher_order.{name}"


def is_item(node: torch.fx.Node) -> bool:
    """Whether a node takes one result of an operator that has several."""
    return node.op == "call_function" and node.target is operator.getitem


def arguments(node: torch.fx.Node) -> dict[str, object]:
    """All arguments of a node by their name in the operator's schema, defaults filled in."""
    bound, args = {}, list(node.args)
    for i, parameter in enumerate(node.target._schema.arguments):
        if i < len(args) and not parameter.kwarg_only:
            bound[parameter.name] = args[i]
        else:
            bound[parameter.name] = node.kwargs.get(parameter.name, parameter.default_value)
    return bound


LINES: dict[str, tuple[int, ...]] = {}
"""For the text of a program that was split into a statement a line: the line that each of its lines stood on."""


def original_line(file: str, line: int) -> int:
    """The line of a program as its author wrote it."""
    lines = LINES.get(file, ())
    return lines[line - 1] if 0 < line <= len(lines) else line


def source_of(node: torch.fx.Node) -> Source | None:
    """The user's line that made a node: the last frame outside of PyTorch, the standard library and this package."""
    return _source(_FRAME.findall(node.meta.get("stack_trace") or ""))


def source_of_error(error: BaseException) -> Source | None:
    """The user's line that an exception came through."""
    frames, trace = [], error.__traceback__
    while trace:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return _source(frames)


def source_of_call() -> Source | None:
    """The user's line that is being run."""
    return _source([(f.f_code.co_filename, line) for f, line in traceback.walk_stack(None)][::-1])


def _source(frames: list[tuple[str, str | int]]) -> Source | None:
    for file, line in reversed(frames):
        if "site-packages" not in file and not file.startswith(_NOT_THE_USERS):
            return Source(file, original_line(file, int(line)), linecache.getline(file, int(line)).strip())
    return None


def _explained(error: Exception) -> DeplodockError:
    """An exception of torch.export as one of ours. Torch wraps the first cause in others: all are looked at."""
    chain, e = [], error
    while e is not None and e not in chain:
        chain.append(e)
        e = e.__cause__ or e.__context__
    where = next((s for e in chain if (s := source_of_error(e))), None)
    for e in chain:
        if re.search("DataDependent|DynamicOutputShape", type(e).__name__) or "data-dependent" in str(e):
            return DataDependentShape(where,
                                      found="a branch, a size or a Python number that depends on a tensor's values")
        if gradient := gradient_wanted(e, where):
            return gradient
        if found := _NO_TREE.match(str(e)):
            return UnsupportedOutput(where, found=found[1])
    return CaptureFailed(where, error=f"{type(error).__name__}: {first_line(error)}")


def control_flow_wanted(error: BaseException, where: Source | None) -> UnsupportedOperator | None:
    """The error of a program whose torch.cond, or the like, PyTorch itself refuses while the program is recorded."""
    if type(error).__name__ != "UncapturedHigherOrderOpError":
        return None
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    name = next(f.f_code.co_name for f in frames if f"{os.sep}_higher_order_ops{os.sep}" in f.f_code.co_filename)
    return UnsupportedOperator(where, op=f"torch.{name}")


def gradient_wanted(error: BaseException, where: Source | None) -> GradientWanted | None:
    """The error of a program that computes gradients itself: it runs under no_grad, so autograd finds none."""
    if "does not require grad and does not have a grad_fn" not in str(error):
        return None
    return GradientWanted(where, title="gradients in the program", found="a call of autograd",
                          advice="compile the forward pass only; torch.compile with this backend gives gradients of it")


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
