"""Tensors computed as the program itself does it: what is left where the search has found nothing else."""
from __future__ import annotations

from deplodock.ir.index import FloorDiv, Gathered, Index, Mod, index
from deplodock.ir.loop import Buffer, Iota, Load, children, rebuilt, subst
from deplodock.ir.term import Term
from extract.program import Program
from extract.structure import canonical, leaves


def spelled(p: Program, b: Buffer) -> Term:
    """The body of a stored tensor as it was entered. What it loads is read where it is stored before it, or is a constant;
    else it is computed in place."""
    at = {(n.tensor.number, n.indices): c for c in p.order for n in p.egraph.bodies[c] if isinstance(n, Load)}
    back = {real: known for known, real in p.real.items()}
    before = p.rank[b]

    def visit(t: Term) -> Term:
        match t:
            case Load(): return load(t)
            case Iota(i): return Iota(indices((i,))[0])
        below = children(t)
        return rebuilt(t, map(visit, below)) if below else t

    def load(l: Load) -> Term:
        if isinstance(l.tensor, Buffer):
            return Load(back.get(l.tensor, l.tensor), indices(l.indices))
        number = p.egraph.number[l.tensor]
        held = p.leaf.get(at.get((number, l.indices)), ())
        usable = [x for x in held if all(p.rank.get(y.tensor, -1) < before for y in leaves(x))]
        if usable:
            return usable[0]
        stored = p.buffers[number]
        if stored in p.wanted and p.rank[stored] < before:
            return Load(stored, indices(l.indices))
        return visit(subst(l.tensor.body, dict(zip(l.tensor.axes, l.indices))))

    def indices(ix: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(map(gathered, ix))

    def gathered(i: Index) -> Index:
        out = index(i.const)
        for atom, c in i.terms:
            match atom:
                case Gathered(x, n): out = out + index(Gathered(visit(x), n)) * c
                case FloorDiv(x, n): out = out + (gathered(x) // n) * c
                case Mod(x, n): out = out + (gathered(x) % n) * c
                case _: out = out + index(atom) * c
        return out
    return canonical(visit(p.source[b].body))
