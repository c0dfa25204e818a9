"""What a program computes from no input and no parameter, or is given as a mask, evaluated at capture by PyTorch on the CPU.

Model code makes masks and positions from arange, comparisons, cumsum and indexing. What such a part hands to the rest of
the program becomes a closed form of positions (deplodock/capture/closed.py) where it has one, so that laws see the
predicate and not a table; else it stays as it is written, or becomes a constant tensor where it cannot stay: an operator
has no row in the capture table, or an integer depends on floats, which another order of rounding would change.
"""
from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram

from deplodock.capture.closed import Affine, Choice, Form, closed_form
from deplodock.capture.export import is_item, is_operator, leaves


LARGEST = 1 << 28
"""Elements of a tensor that is evaluated: the mask of 16,384 positions, which takes a second and some GiB."""


@dataclass(frozen=True, slots=True)
class Constants:
    """forms, tensors: by the node that they stand for; unread: nodes that nothing needs any more."""
    forms: dict[torch.fx.Node, Form]
    tensors: dict[torch.fx.Node, torch.Tensor]
    unread: frozenset[torch.fx.Node]


def find_constants(exported: ExportedProgram, known: Container[str], given: Mapping[str, torch.Tensor]) -> Constants:
    """The parts of a graph that depend on no placeholder, or only on those in `given`, which nobody can change.

    known: overload names that may stay in the program.
    """
    values: dict[torch.fx.Node, object] = {n: given[n.name].cpu() for n in exported.graph.nodes
                                           if n.op == "placeholder" and n.name in given}
    with torch.no_grad():
        for node in exported.graph.nodes:
            if _may_evaluate(node) and all(n in values for n in node.all_input_nodes):
                try:
                    values[node] = _value(node, values)
                except (RuntimeError, IndexError):
                    continue    # PyTorch says the same to whoever runs the program
    handed = {n for n in values if isinstance(values[n], torch.Tensor) and any(user not in values for user in n.users)}
    forms, tensors = {}, {}
    for node in handed:
        part = _upstream(node)
        stays = all(is_item(n) or is_operator(n) and n.target.__name__ in known for n in part) and not _rounds(node, part, values)
        form = closed_form(values[node])
        if form is not None and not (stays and len(part) <= _steps(form)):
            forms[node] = form
        elif not stays:
            tensors[node] = values[node]
    return Constants(forms, tensors, frozenset(values) - _needed(handed, {*forms, *tensors}))


def _may_evaluate(node: torch.fx.Node) -> bool:
    sizes = (t.numel() for t in leaves(node.meta.get("val")) if isinstance(t, torch.Tensor))
    return (is_item(node) or is_operator(node) and torch.Tag.nondeterministic_seeded not in node.target.tags) and all(
        isinstance(n, int) and n <= LARGEST for n in sizes)


def _value(node: torch.fx.Node, values: dict[torch.fx.Node, object]) -> object:
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
    if "device" in kwargs:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    return node.target(*args, **kwargs)


def _upstream(node: torch.fx.Node) -> set[torch.fx.Node]:
    """The node, and all that it is computed from."""
    found, stack = set(), [node]
    while stack:
        if (n := stack.pop()) not in found:
            found.add(n)
            stack.extend(n.all_input_nodes)
    return found


def _rounds(node: torch.fx.Node, part: Iterable[torch.fx.Node], values: dict[torch.fx.Node, object]) -> bool:
    """Whether an integer or a truth value is decided by floats."""
    return not _is_float(values[node]) and any(_is_float(values[n]) for n in part)


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _steps(form: Form) -> int:
    """How many nodes a form takes, about."""
    match form:
        case Affine(_, steps): return max(1, sum(step != 0 for step in steps))
        case Choice(where, _, _): return 4 * len(where)


def _needed(handed: Iterable[torch.fx.Node], replaced: Container[torch.fx.Node]) -> set[torch.fx.Node]:
    """Nodes that are still read where those in `replaced` are not computed any more; these among them."""
    found = set()
    for node in handed:
        found |= {node} if node in replaced else _upstream(node)
    return found
