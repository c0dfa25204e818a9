"""The adapter to Dynamo and AOTAutograd: what torch may move between versions is called here only. For torch 2.11 to 2.13.

Dynamo hands a backend a graph of torch functions that may write to their inputs; AOTAutograd makes it functional and
takes care of mutation, of outputs that are views of inputs, and of inputs that overlap. High-level operators stay whole,
by the override that torch.export uses itself.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
from torch._guards import CompileContext, TracingContext
from torch.export.exported_program import (_override_composite_implicit_decomp,
                                           _split_decomp_table_to_cia_and_python_decomp)
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase


@dataclass(frozen=True, slots=True)
class Traced:
    """What AOTAutograd found out. static: inputs that stay where they are and are not written to (parameters, mostly),
    by place; mutates: whether the graph writes to an input; aliases: whether an output is an input, or a view of one or of
    another output."""
    static: frozenset[int]
    mutates: bool
    aliases: bool


def functional(gm: torch.fx.GraphModule, example_inputs: Sequence,
               compiler: Callable[[torch.fx.GraphModule, Traced], Callable]) -> Callable:
    """gm as a function of its inputs, whose functional graph of ATen operators `compiler` makes a function of.

    Sizes are numbers: Dynamo's guards then see to it that another size is another graph. Without gradients: AOTAutograd
    would make an empty backward graph of high-level operators, and gradients would be lost in silence.
    """
    _specialise(gm)

    def compile_graph(graph: torch.fx.GraphModule, _) -> Callable:
        found = TracingContext.get().fw_metadata
        written = {i for i, x in enumerate(found.input_info) if x.mutates_data or x.mutates_metadata}
        views = _views(graph)
        aliases = bool(views) or any(o.base_idx is not None for o in found.output_info)
        run = compiler(graph, Traced(frozenset(found.static_input_indices) - written, bool(written), aliases))
        return make_boxed_func(run if not views else lambda *args: _with_views(list(run(*args)), views))

    kept, table = _split_decomp_table_to_cia_and_python_decomp({})
    with torch.no_grad(), _override_composite_implicit_decomp(kept):
        return aot_module_simplified(gm, example_inputs, fw_compiler=compile_graph, decompositions=table)


@dataclass(frozen=True, slots=True)
class _View:
    """Output `at` is a view of output `base`; size, strides and offset in elements."""
    at: int
    base: int
    size: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def _views(graph: torch.fx.GraphModule) -> tuple[_View, ...]:
    """The outputs of a functional graph that are views of other outputs: who writes to one sees it in the other."""
    (returned,) = graph.graph.output_node().args
    values = [n.meta.get("val") if isinstance(n, torch.fx.Node) and n.op != "placeholder" else None for n in returned]
    whole: dict[int, int] = {}
    found = []
    for at, t in enumerate(values):
        if isinstance(t, torch.Tensor) and t.is_contiguous() and t.nbytes == t.untyped_storage().nbytes():
            whole.setdefault(t.untyped_storage()._cdata, at)
    for at, t in enumerate(values):
        base = whole.get(t.untyped_storage()._cdata) if isinstance(t, torch.Tensor) else None
        if base is not None and base != at and returned[at] is not returned[base] and t.dtype == values[base].dtype:
            found.append(_View(at, base, tuple(t.shape), t.stride(), t.storage_offset()))
    return tuple(found)


def _with_views(outputs: list, views: tuple[_View, ...]) -> list:
    for v in views:
        base = outputs[v.base]
        outputs[v.at] = base.as_strided(v.size, v.strides, base.storage_offset() + v.offset)
    return outputs


def _specialise(gm: torch.fx.GraphModule) -> None:
    """Makes numbers of all symbolic sizes of the inputs, by asking for their values."""
    for node in gm.graph.nodes:
        value = node.meta.get("example_value") if node.op == "placeholder" else None
        for n in (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,):
            if isinstance(n, torch.SymInt):
                int(n)


def differentiable(gm: torch.fx.GraphModule) -> tuple[bool, ...]:
    """Which outputs of a graph of Dynamo require a gradient when it runs in eager mode."""
    (returned,) = gm.graph.output_node().args
    values = [n.meta.get("example_value") if isinstance(n, torch.fx.Node) else n for n in returned]
    return tuple(isinstance(v, torch.Tensor) and v.requires_grad for v in values)


def takes_gradients(gm: torch.fx.GraphModule) -> bool:
    """Whether a graph of Dynamo computes gradients itself, by torch.func."""
    return any(n.target is torch._C._functorch._grad_increment_nesting
               for m in gm.modules() if isinstance(m, torch.fx.GraphModule) for n in m.graph.nodes)


def frame() -> tuple[int, int] | None:
    """Dynamo's number of the frame that is being compiled, and how often it was compiled before; None outside of it."""
    found = CompileContext.current_compile_id()
    return None if found is None or found.frame_id is None else (found.frame_id, found.frame_compile_id)


def parted(graph: torch.fx.GraphModule, supported: Callable[[torch.fx.Node], bool]) -> tuple[torch.fx.GraphModule, list[str]]:
    """The graph with its supported nodes moved into as few modules as data flow allows, and the names of those modules."""
    class Support(OperatorSupportBase):
        def is_node_supported(self, submodules, node: torch.fx.Node) -> bool:
            return node.op in ("call_function", "get_attr") and supported(node)

    before = {name for name, _ in graph.named_children()}
    made = CapabilityBasedPartitioner(graph, Support(), allows_single_node_partition=True).partition_and_fuse()
    return made, [name for name, _ in made.named_children() if name not in before]
