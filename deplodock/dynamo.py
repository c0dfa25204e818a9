"""The backend of torch.compile: `torch.compile(model, backend="deplodock")`.

Each graph that Dynamo finds is made functional (capture/aot.py) and cut into the parts that can be compiled and those that
cannot, which stay in eager mode: for the others deplodock.compile does what it does for modules. So a parameter that
changes is seen, and misaligned tensors are another variant. Graphs with random numbers or in training mode stay whole in
eager mode. Gradients come from a backward pass that runs the graph again in eager mode.

`deplodock.explain()` says what was compiled, what was not, and why.
"""
from __future__ import annotations

import operator
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import nn

from deplodock.api import Compiled, Options, check_options
from deplodock.capture import Captured, capture_module
from deplodock.capture.aot import Traced, differentiable, frame, functional, parted, takes_gradients
from deplodock.capture.export import first_line, is_operator, source_of
from deplodock.capture.graph import TRAINING
from deplodock.capture.operators import TABLE
from deplodock.errors import (DeplodockError, GradientWanted, RandomNumbers, TrainingMode, UnsupportedOperator,
                              UsageError)
from deplodock.ir.show import counted
from deplodock.overlap import overlap
from deplodock.recompute import Recompute


class EagerWarning(UserWarning):
    """A part of a program runs in eager mode; the text says why."""


@dataclass
class Graph:
    """One graph of Dynamo. reason: why it was compiled; facts: its inputs, by name, in words; pieces: its compiled parts;
    eager: why other parts run in eager mode."""
    name: str
    reason: str
    facts: dict[str, str] = field(repr=False)
    pieces: list[Piece] = field(default_factory=list, repr=False)
    eager: list[str] = field(default_factory=list)


class Report:
    """What torch.compile has done with this backend, in this process. Prints as text."""

    def __init__(self):
        self.graphs: list[Graph] = []
        self._last: dict[int, Graph] = {}
        self._said: set[str] = set()

    @property
    def counters(self) -> dict[str, int]:
        """graphs; recompiles: those that Dynamo compiled for code that it knew; programs: variants of all parts; kernels
        of these programs; fallbacks: parts in eager mode."""
        variants = [v for g in self.graphs for p in g.pieces for v in p.variants]
        return {"graphs": len(self.graphs), "recompiles": sum(g.reason != FIRST for g in self.graphs),
                "programs": len(variants), "kernels": sum(len(v.made.plan.kernels) for v in variants),
                "fallbacks": sum(len(g.eager) for g in self.graphs)}

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Why parts run in eager mode, each reason once."""
        return tuple(dict.fromkeys(reason for g in self.graphs for reason in g.eager))

    def __str__(self) -> str:
        lines = [", ".join(counted(n, what.removesuffix("s")) for what, n in self.counters.items())]
        for g in self.graphs:
            lines.append(f"graph {g.name}: {g.reason}")
            for p in g.pieces:
                lines += [f"  {counted(len(v.made.plan.kernels), 'kernel')}, {counted(v.calls, 'call')}: {v.reason}"
                          for v in p.variants]
            lines += [f"  eager: {line}" for reason in g.eager for line in reason.splitlines()[:1]]
        return "\n".join(lines + [line for reason in self.fallbacks for line in ("", *reason.splitlines())])

    def begin(self, gm: torch.fx.GraphModule, inputs: Sequence) -> Graph:
        """A graph that is about to be compiled."""
        found = frame()
        names = [n.target for n in gm.graph.nodes if n.op == "placeholder"]
        facts = {n: _fact(x) for n, x in zip(names, inputs) if not _is_symbol(n, x)} | _modes()
        before = self._last.get(found[0]) if found and found[1] else None
        name = f"{found[0]}/{found[1]}" if found else str(len(self.graphs))
        made = Graph(name, FIRST if before is None else _differences(before.facts, facts), facts)
        self.graphs.append(made)
        if found:
            self._last[found[0]] = made
        return made

    def eager(self, graph: Graph, error: Exception) -> None:
        """Notes why a part of a graph runs in eager mode, and warns of each reason once."""
        text = str(error) if isinstance(error, DeplodockError) else (
            f"{type(error).__name__}: {first_line(error)}\n  to do:    this is a bug of deplodock: please report it")
        graph.eager.append(text)
        if text not in self._said:
            self._said.add(text)
            warnings.warn(f"a part of the program runs in eager mode: {text}", EagerWarning, stacklevel=2)


FIRST = "first"
REPORT = Report()


def backend(gm: torch.fx.GraphModule, example_inputs: Sequence, *, options: dict | None = None, mode: str | None = None) -> Callable:
    """What torch.compile calls for each graph. UsageError for options that there are not."""
    chosen, fallback = _options(options, mode)
    graph = REPORT.begin(gm, example_inputs)
    train = torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs)
    traced: list[Traced] = []

    def compiler(functions: torch.fx.GraphModule, found: Traced) -> Callable:
        traced.append(found)
        _refuse_state(functions)
        return _split(functions, found.static, _Shared(graph, chosen, fallback))

    try:
        if torch.is_grad_enabled() and takes_gradients(gm):      # we trace without gradients: they would be 0
            raise GradientWanted(title="gradients in the program", found="torch.func.grad, vjp, jacrev or hessian",
                                 advice="call it under torch.no_grad(), where it needs no gradients of others")
        run = functional(gm, example_inputs, compiler)
    except (GradientWanted, RandomNumbers, TrainingMode) as error:
        if not fallback:
            raise
        REPORT.eager(graph, error)
        return gm.forward
    if train and any(t.mutates or t.aliases for t in traced):
        REPORT.eager(graph, _GradientsOfMutation())
        return gm.forward
    if train:
        wanted = differentiable(gm)
        return lambda *args: Recompute.apply(run, gm.forward, wanted, *args)

    writes = any(t.mutates for t in traced)

    def call(*args):
        if writes and _seen_twice(args):       # Dynamo does not compile again for it, and what was traced may be apart
            if not graph.eager:
                REPORT.eager(graph, _WritesSeenTwice())
            return gm.forward(*args)
        if not (torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in args)):
            return run(*args)
        if not graph.eager:
            REPORT.eager(graph, _GradientsLater())
        return gm.forward(*args)
    return call


class _GradientsOfMutation(UnsupportedOperator):
    title = "gradients through a graph that writes to its inputs or returns views of them"
    expected = "a graph that is a function of its inputs, or no gradients"
    found = ""
    advice = "run it under torch.no_grad(), or keep what writes to inputs outside"


class _WritesSeenTwice(UnsupportedOperator):
    title = "writes to inputs of which some lie in the same memory"
    expected = "inputs that share no memory, where a graph writes to one"
    found = ""
    advice = "pass copies (x.clone()), or keep what writes to inputs outside"


def _seen_twice(args: Sequence) -> bool:
    """Whether two tensors have memory in common."""
    by_storage: dict[int, list[torch.Tensor]] = {}
    for t in args:
        if isinstance(t, torch.Tensor) and t.layout == torch.strided:
            by_storage.setdefault(t.untyped_storage().data_ptr(), []).append(t)
    return any(overlap(a, b) for found in by_storage.values() if len(found) > 1 for a, b in combinations(found, 2))


class _GradientsLater(UnsupportedOperator):
    title = "gradients through a graph that was compiled when nothing required any"
    expected = "parameters that require gradients before the first call, or no gradients"
    found = "Dynamo of torch 2.11 keeps a graph whose parameters come to require gradients"
    advice = "call torch._dynamo.reset() after requires_grad_(True), and the graph is compiled again"


def _options(options: dict | None, mode: str | None) -> tuple[Options, bool]:
    given = dict(options or {})
    fallback = given.pop("fallback", True)
    known = list(Options.__dataclass_fields__)
    for name, value in (*given.items(), *([("mode", mode)] if mode else [])):
        if name not in known:
            raise UsageError(title=f"unknown option {name!r}", found=f"{name}={value!r}",
                             expected=f"options={{..}} of {', '.join(known)}, fallback")
    chosen = Options(**given)
    check_options(chosen)
    return chosen, fallback


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all parts of a graph have in common."""
    graph: Graph
    options: Options
    fallback: bool


def _refuse_state(functions: torch.fx.GraphModule) -> None:
    """Random numbers have to be drawn in eager mode's order, and training mode keeps statistics: both need the whole."""
    for node in filter(is_operator, functions.graph.nodes):
        if node.target.__name__ in TRAINING:
            raise TrainingMode(source_of(node), found=f"aten.{node.target.__name__} in training mode")
        if torch.Tag.nondeterministic_seeded in node.target.tags and node.target.__name__ not in TABLE:
            raise RandomNumbers(source_of(node), op=f"aten.{node.target.__name__}")


def _split(functions: torch.fx.GraphModule, static: frozenset[int], shared: _Shared,
           refused: frozenset[str] = frozenset()) -> torch.fx.GraphModule:
    """The graph with the parts that can be compiled as modules. static: places of inputs that are parameters; refused:
    operators that are known not to compile."""
    table = torch.export.default_decompositions()
    places = {n.name for i, n in enumerate(functions.graph.find_nodes(op="placeholder")) if i in static}
    known: set[torch.fx.Node] = set()            # what depends on no input: capture may have its value

    def supported(node: torch.fx.Node) -> bool:
        if node.op == "get_attr":
            return True
        if node.target is operator.getitem:
            return supported(node.args[0])
        return is_operator(node) and node.target.__name__ not in refused and (
            node in known or node.target.__name__ in TABLE or node.target in table)

    for node in functions.graph.nodes:
        if node.op == "call_function" and known.issuperset(node.all_input_nodes):
            known.add(node)

    for node in filter(is_operator, functions.graph.nodes):
        if not supported(node) and node.target.__name__ not in refused:
            _stays(shared, UnsupportedOperator(source_of(node), op=str(node.target)))
    functions, names = parted(functions, supported)
    for name in names:
        part = functions.get_submodule(name)
        if all(getattr(n.target, "is_view", False) for n in part.graph.nodes if n.op == "call_function"):
            continue
        (node,) = functions.graph.find_nodes(op="call_module", target=name)
        piece = Piece(part, frozenset(i for i, a in enumerate(node.args) if a.name in places), shared)
        setattr(functions, name, piece)
        shared.graph.pieces.append(piece)
    return functions


def _stays(shared: _Shared, error: Exception) -> None:
    """A part stays in eager mode, or the error is raised if that is not wanted."""
    if not shared.fallback:
        raise error
    REPORT.eager(shared.graph, error)


class Piece(nn.Module):
    """A part of a graph that is compiled when it first runs: there are tensors then, with addresses.

    part: its graph; static: the places of arguments that are parameters.
    """

    def __init__(self, part: torch.fx.GraphModule, static: frozenset[int], shared: _Shared):
        super().__init__()
        self._part, self._static, self._shared = [part], static, shared      # in a list: no submodules
        self._lock = threading.Lock()
        self._run: Callable | None = None
        self._compiled: Compiled | None = None
        self._holder = [_Holder(part, static)]

    @property
    def variants(self) -> tuple:
        """Its programs: see api.Variant."""
        return self._compiled.variants if self._compiled else ()

    def forward(self, *args):
        if self._run is not None:
            return self._run(*args)
        holder = self._holder[0]
        with self._lock:                       # a call's parameters are in the holder until it has run
            inputs = holder.take(args)
            if self._compiled is None:
                try:
                    self._compiled = Compiled(holder, inputs, {}, self._shared.options, _capture_apart)
                except Exception as error:
                    self._run = self._without(error)
                    return self._run(*args)
            return self._compiled(*inputs)

    def _without(self, error: Exception) -> Callable:
        """What to run instead: the part in smaller parts, without the operator that the error speaks of."""
        _stays(self._shared, error)
        names = {n.target.__name__ for n in self._part[0].graph.nodes if is_operator(n)}
        blamed = frozenset({getattr(error, "operator", "")} & names)
        if not blamed or blamed == names:
            return self._part[0].forward
        return _split(self._part[0], self._static, self._shared, blamed).forward


def _capture_apart(*program) -> Captured:
    """capture_module in a thread of its own: AOTAutograd calls us with parts of PyTorch's dispatcher switched off for this
    thread, which torch.export needs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(capture_module, *program).result()


class _Holder(nn.Module):
    """A part of a graph as a module that holds its parameters, which each call brings anew."""

    def __init__(self, part: torch.fx.GraphModule, static: frozenset[int]):
        super().__init__()
        names = [n.name for n in part.graph.nodes if n.op == "placeholder"]
        self._names = [name if i in static else None for i, name in enumerate(names)]
        interpreter = torch.fx.Interpreter(part)                # keeps the user's lines

        def forward(*inputs):
            given = iter(inputs)
            return interpreter.run(*(next(given) if name is None else self._buffers[name] for name in self._names))
        self.forward = forward

    def take(self, args: tuple) -> tuple:
        """Keeps the parameters among the arguments, and returns the others."""
        self._buffers.update((name, a) for name, a in zip(self._names, args) if name is not None)
        return tuple(a for name, a in zip(self._names, args) if name is None)


def _fact(value) -> str:
    """An input in words."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return f"{value.node.hint}"
    if not isinstance(value, torch.Tensor):
        return f"{value}"
    shape = [int(n) for n in value.shape]
    gradient = ", requires a gradient" if value.requires_grad else ""
    made = ", made in inference mode" if value.is_inference() else ""
    return f"{value.dtype}{shape}, strides {[int(n) for n in value.stride()]}, {value.device}{gradient}{made}".removeprefix("torch.")


def _is_symbol(name: str, value) -> bool:
    """Whether an input is a symbol in other inputs' shapes, which tell as much."""
    return isinstance(value, torch.SymInt) and str(value) == name


def _modes() -> dict[str, str]:
    """What else Dynamo compiles for, in words."""
    devices = ("cpu", "cuda")
    casts = [f"{torch.get_autocast_dtype(d)} on {d}".removeprefix("torch.") for d in devices if torch.is_autocast_enabled(d)]
    return {"grad mode": "on" if torch.is_grad_enabled() else "off",
            "inference mode": "on" if torch.is_inference_mode_enabled() else "off", "autocast": ", ".join(casts) or "off"}


def _differences(before: dict[str, str], now: dict[str, str]) -> str:
    """Why a graph was compiled again, as far as its inputs tell."""
    changed = [f"{n} is {now[n]}, and not {before[n]}" if n in before else f"{n} is {now[n]}, and was part of the graph"
               for n in now if now[n] != before.get(n)]
    if changed:
        return "; ".join(changed)
    return "something else that Dynamo guards on has changed: TORCH_LOGS=recompiles says what"
