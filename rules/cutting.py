"""Launches where the program has none: a value stored once, a fold cut in two. Applied to ground terms where extraction
or a schedule asks for them: in the e-graph, every value would be offered in memory, at every extent."""
from __future__ import annotations

from deplodock.facts import covers, in_order
from deplodock.ir.index import Axis, index
from deplodock.ir.loop import Body, Launch, Load, fold, subst
from deplodock.law import Axes, Indices, Monoid, law, rewrite


@law("exact")
def launch_cut(b: Body, k: Axes, i: Indices):
    """b = load(launch(k, b), k)   when k are all axes of b; stored in the dtype it has, so nothing is rounded"""
    return rewrite(b).to(Load(Launch(k, b), i), in_order(k, i))


@law("reassociates")
def reduce_split(m: Monoid, b: Body, k: Axis, z: Axis, i: Axis):
    """fold(m, k, b) = fold(m, z, fold(m, i, b[k := z·n + i])), n the extent of i   when it divides that of k"""
    return rewrite(fold(m, (k,), (b,))).to(fold(m, (z,), (fold(m, (i,), (part(b, k, z, i),)),)), covers(k, z, i))


@law("reassociates")
def partial_launch(m: Monoid, b: Body, k: Axis, z: Axis, i: Axis, rest: Axes):
    """fold(m, k, b) = fold(m, z, load(launch([rest, z], fold(m, i, b[k := z·n + i])), [rest, z])): split-K in two
    kernels"""
    partial = Launch((*rest, z), fold(m, (i,), (part(b, k, z, i),)))
    return rewrite(fold(m, (k,), (b,))).to(fold(m, (z,), (stored(partial),)), covers(k, z, i))


@law("reassociates")
def online_split(s: Body, v: Body, k: Axis, z: Axis, i: Axis, rest: Axes):
    """online_sum(k, s, v) = online_sum(z, mₓ, lₓ), mₓ and lₓ the maximum and the sum of the block x of k: attention
    over split keys.

    Dead blocks are allowed: they give −∞ and 0.
    """
    blocks = part(s, k, z, i), part(v, k, z, i)
    low, top = (stored(Launch((*rest, z), fold("online", (i,), blocks, n))) for n in (0, 1))
    return rewrite(fold("online", (k,), (s, v), 1)).to(fold("online", (z,), (low, top), 1), covers(k, z, i))


def part(b: Body, k: Axis, z: Axis, i: Axis) -> Body:
    """b at the point i of block z of the axis k."""
    return subst(b, {k: z * i.extent + i})


def stored(launch: Launch) -> Load:
    """A launch read at its own axes."""
    return Load(launch, tuple(map(index, launch.axes)))
