"""Forms of an e-graph: classes as text, statistics, egraph-serialize, Graphviz; and the check of an equation."""
from __future__ import annotations

import sys
from dataclasses import fields

import click

from deplodock.errors import UsageError
from deplodock.ir.egraph import EGraph
from deplodock.ir.index import Axis, index
from deplodock.ir.loop import Buffer, Launch, Ref, subst
from deplodock.ir.term import Term


def classes(egraph: EGraph) -> dict[int, tuple[Term, ...]]:
    """Every class, tensors first, with its members."""
    return {**egraph.tensors, **egraph.bodies}


def refs(term) -> tuple[Ref, ...]:
    """The classes that a node is made of, in the order of its text."""
    if isinstance(term, Ref):
        return (term,)
    if isinstance(term, tuple):
        return tuple(r for t in term for r in refs(t))
    if not isinstance(term, Term) or isinstance(term, (Axis, Buffer)):
        return ()
    return tuple(r for f in fields(term) for r in refs(getattr(term, f.name)))


def below(egraph: EGraph, number: int) -> list[int]:
    """The classes that can be reached from a class, itself first."""
    members, found, stack = classes(egraph), {}, [number]
    while stack:
        c = stack.pop()
        if c not in found:
            found[c] = None
            stack.extend(r.number for node in reversed(members[c]) for r in reversed(refs(node)))
    return list(found)


def signature(egraph: EGraph, number: int) -> str:
    """`f32[m:512,n:64]`: the dtype of a class and the axes that it depends on, or that its tensor has."""
    if number in egraph.tensors:
        node = egraph.tensors[number][0]
        axes = node.axes
    else:
        axes = tuple(sorted(egraph.free.get(number, ()), key=lambda a: a.name))
    return f"{egraph.dtypes.get(number, '')}[{','.join(f'{a.name}:{a.extent}' for a in axes)}]"


def show_classes(region, root: str | None, number: int | None, out) -> None:
    """Every class with its members and the law that brought each."""
    egraph = region.saturation.egraph
    members = classes(egraph)
    if number is not None and number not in members:
        raise UsageError(title=f"there is no class %{number}", expected=f"a number below {len(members)}", found=str(number),
                         advice="`deplodock saturate` without --class lists all")
    names = {egraph.number[t]: n for t, n in reversed(region.entered.names.items()) if t in egraph.number}
    shown = [number] if number is not None else below(egraph, _root(names, root)) if root else sorted(members)
    for c in shown:
        name = f" = {names[c]}" if c in names else ""
        out.result(click.style(f"%{c}: {signature(egraph, c)}{name}", bold=True))
        for node in members[c]:
            law = egraph.brought.get((c, node), "")
            out.result(f"  {node}" + (click.style(f"   # {law}", dim=True) if law else ""))


def _root(names: dict[int, str], root: str) -> int:
    found = [c for c, name in names.items() if name == root]
    if not found:
        raise UsageError(title=f"the program has no tensor called {root!r}", expected=", ".join(sorted(names.values())), found=root,
                         advice="`deplodock saturate --phase tensor` prints the names")
    return found[0]


def show_stats(saturation, out) -> None:
    egraph = saturation.egraph
    out.result(f"{egraph.size} e-nodes in {len(egraph.bodies)} body classes and {len(egraph.tensors)} tensor classes")
    out.result(f"stopped at {saturation.stopped} after {saturation.rounds} rounds: {' '.join(map(str, saturation.sizes))} e-nodes")
    rows = [[name, str(saturation.hits.get(name, "")), f"{seconds * 1e3:.1f}"]
            for name, seconds in sorted(saturation.seconds.items(), key=lambda item: -item[1])]
    out.table(["law or phase", "hits", "ms"], rows, (1, 2))


# ---- files -----------------------------------------------------------------------------------------------------------

def serialized(egraph: EGraph) -> dict:
    """The e-graph as egraph-serialize has it: nodes with an operator, children (a node of each class) and a class."""
    members = classes(egraph)
    first = {c: f"{c}.0" for c in members}
    nodes = {}
    for c, group in members.items():
        for i, node in enumerate(group):
            nodes[f"{c}.{i}"] = {"op": _operator(node), "children": [first[r.number] for r in refs(node)], "eclass": str(c),
                                 "cost": 1.0, "subsumed": False}
    data = {str(c): {"type": "Tensor" if c in egraph.tensors else "Body"} for c in members}
    return {"nodes": nodes, "root_eclasses": [], "class_data": data}


def _operator(node: Term) -> str:
    """A node's text with its children left out: what tells two nodes with the same children apart."""
    text = str(node)
    for r in refs(node):
        text = text.replace(str(r), "·", 1)
    return text


def dot(egraph: EGraph) -> str:
    """A cluster for each class, an arrow from each node to the classes it is made of."""
    lines = ["digraph egraph {", "  compound=true; rankdir=TB; node [shape=box, fontname=monospace, fontsize=10];"]
    for c, group in classes(egraph).items():
        lines.append(f'  subgraph cluster_{c} {{ label="%{c} {signature(egraph, c)}"; style=dashed;')
        lines += [f'    "{c}.{i}" [label="{_escaped(str(node))}"];' for i, node in enumerate(group)]
        lines.append("  }")
    for c, group in classes(egraph).items():
        for i, node in enumerate(group):
            lines += [f'  "{c}.{i}" -> "{r.number}.0" [lhead=cluster_{r.number}];' for r in refs(node)]
    return "\n".join([*lines, "}", ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


# ---- equations -------------------------------------------------------------------------------------------------------

def check(equation: str, compilation, region) -> bool:
    """Whether the laws prove the two sides of `A == B` equal. Printed terms are those of a region."""
    left, right = sides(equation)
    printed = _printed(region, left), _printed(region, right)
    if None not in printed:
        return printed[0] == printed[1]
    if printed != (None, None):
        raise UsageError(title="an equation between a printed term and an expression", expected="two of the same kind",
                         found=equation, advice="write both sides as PyTorch, or both as `deplodock saturate` prints them")
    from deplodock.capture import capture_expression
    from deplodock.pipeline import compile as start
    both = start(capture_expression(f"({left}), ({right})", compilation.captured), compilation.target, compilation.numerics,
                 compilation.groups, whole=sys.maxsize).region
    a, b = both.entered.outputs
    if a.tensor.dtype != b.tensor.dtype or _shape(a) != _shape(b):
        return False
    return both.saturation.equal(a.tensor, _renamed(b.tensor, a.tensor))


def sides(equation: str) -> tuple[str, str]:
    """The sides of `A == B`, split at the one == that is inside no bracket and no string. UsageError if there is none."""
    import ast
    try:
        match ast.parse(equation.strip(), mode="eval").body:
            case ast.Compare(left, [ast.Eq()], [right]):
                return ast.get_source_segment(equation.strip(), left), ast.get_source_segment(equation.strip(), right)
    except SyntaxError:
        pass
    left, equals, right = equation.partition("==")
    if not equals or "==" in right:
        raise UsageError(title="not an equation", expected='"A == B"', found=equation,
                         advice="write two expressions with == between them")
    return left.strip(), right.strip()


def _printed(region, side: str) -> int | None:
    """The class that a side names as `saturate` prints it: `%12`, or a member; None if it is something else."""
    import re
    if not re.search(r"%\d", side):
        return None
    egraph = region.saturation.egraph
    members = classes(egraph)
    if re.fullmatch(r"%\d+", side) and int(side[1:]) in members:
        return int(side[1:])
    plain = side.replace(" ", "")
    return next((c for c, group in members.items() for node in group if str(node).replace(" ", "") == plain), None)


def _shape(result) -> tuple[int, ...]:
    import math
    return tuple(math.prod(a.extent for a in group) for group in result.dims)


def _renamed(tensor: Term, like: Term) -> Term:
    """A launch over the axes of another: equality of tensors is that of bodies at the same names."""
    if not isinstance(tensor, Launch) or not isinstance(like, Launch) or tensor.axes == like.axes:
        return tensor
    if tuple(a.extent for a in tensor.axes) != tuple(a.extent for a in like.axes):
        return tensor
    return Launch(like.axes, subst(tensor.body, {a: index(b) for a, b in zip(tensor.axes, like.axes)}))
