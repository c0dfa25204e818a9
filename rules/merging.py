"""Products that share an operand are one product with a wider matrix. Extraction finds the groups (EGraph.groups) and
builds one kernel of several outputs; that each output is a slice of the wide product is this law, which `--check`
proves as well."""
from __future__ import annotations

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, index
from deplodock.ir.loop import Body, Iota, Launch, Load, const, fold, op, subst, where
from deplodock.law import Axes, law, rewrite


@law("exact")
def merge_projections(x: Body, w: Body, v: Body, k: Axes, i: Axis, j: Axis, n: Axis, rest: Axes):
    """Σₖ x·v = load(launch([rest, n], Σₖ x·[w; v]), [rest, j + extent of i]), [w; v] the rows i of w and then the rows
    j of v"""
    wide = Launch((*rest, n), fold("sum", k, (x * rows(w, v, i, j, n),)))
    return rewrite(fold("sum", k, (x * v,))).to(Load(wide, (*map(index, rest), j + i.extent)))


def rows(w: Body, v: Body, i: Axis, j: Axis, n: Axis) -> Body:
    """The rows of w, which has them along i, and below them those of v, which has them along j, along n."""
    first = op("lt", Iota(index(n)), const(Dtype.i64, i.extent))
    return where(first, subst(w, {i: index(n)}), subst(v, {j: n - i.extent}))
