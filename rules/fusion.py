"""Fusion: to load what a launch stores is to compute it in place.

With `load_launch`, each class of bodies holds both the load (materialise) and the body (fuse), so that every partition
of a program into kernels is in the e-graph at once, in linear space.
"""
from __future__ import annotations

from deplodock.facts import in_order
from deplodock.ir.loop import Body, Launch, Load
from deplodock.law import Axes, Indices, law, rewrite


@law("exact")
def load_launch(k: Axes, i: Indices, b: Body):
    """load(launch(k, b), k) = b"""
    return rewrite(Load(Launch(k, b), i)).to(b, in_order(k, i))
