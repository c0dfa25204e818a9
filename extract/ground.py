"""Ground terms for the classes of an e-graph, over buffers."""
from __future__ import annotations

import heapq
from collections import defaultdict
from typing import Callable

from deplodock.ir.egraph import EGraph
from deplodock.ir.index import FloorDiv, Gathered, Index, Mod, index
from deplodock.ir.loop import Buffer, Iota, Load, Ref, children, gathers, rebuilt
from deplodock.ir.term import Term

FAR = 1 << 20
"""Size of a load of a stored tensor when the smallest term of a class is sought: only where there is no other."""


def grounded(i: Index, body: Callable[[int], Term]) -> Index:
    """An index whose loaded integers are ground bodies: `body` gives that of a class."""
    if not any(gathers((i,))):
        return i
    out = index(i.const)
    for atom, c in i.terms:
        match atom:
            case Gathered(Ref(n, _), extent): out = out + index(Gathered(body(n), extent)) * c
            case FloorDiv(x, n): out = out + (grounded(x, body) // n) * c
            case Mod(x, n): out = out + (grounded(x, body) % n) * c
            case _: out = out + index(atom) * c
    return out


def smallest(egraph: EGraph, buffers: dict[int, Buffer]) -> dict[int, Term]:
    """The ground term of fewest nodes of each body class, among equals the one of least key.

    Inputs and parameters are loaded, stored tensors only where a class has no other spelling. Dijkstra over sizes.
    """
    best: dict[int, Term] = {}
    size: dict[int, int] = {}
    heap: list[tuple[int, str, int, Term]] = []
    waiting: dict[int, list[tuple[int, Term]]] = defaultdict(list)

    def offer(c: int, n: Term) -> None:
        needs = _needs(n)
        if all(x in best for x in needs):
            far = isinstance(n, Load) and buffers[n.tensor.number].kind in ("stored", "output")
            t = _over(n, best, buffers)
            heapq.heappush(heap, (1 + sum(size[x] for x in needs) + FAR * far, t.key, c, t))
    for c, nodes in egraph.bodies.items():
        for n in nodes:
            for x in set(_needs(n)):
                waiting[x].append((c, n))
            offer(c, n)
    while heap:
        total, _, c, t = heapq.heappop(heap)
        if c not in best:
            best[c], size[c] = t, total
            for parent, n in waiting[c]:
                if parent not in best:
                    offer(parent, n)
    return best


def _needs(n: Term) -> list[int]:
    """The body classes that a node refers to, those in its indices among them."""
    held = n.indices if isinstance(n, Load) else (n.index,) if isinstance(n, Iota) else ()
    return [x.number for x in (*children(n), *gathers(held))]


def _over(n: Term, best: dict[int, Term], buffers: dict[int, Buffer]) -> Term:
    """A node with ground terms in place of its classes."""
    match n:
        case Load(Ref(t, _), indices): return Load(buffers[t], tuple(grounded(i, best.__getitem__) for i in indices))
        case Iota(i): return Iota(grounded(i, best.__getitem__))
    return rebuilt(n, [best[x.number] for x in children(n)])
