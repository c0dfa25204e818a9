"""Sizes and indices: integer laws with division rounded towards minus infinity.

Index arithmetic never enters the e-graph: ir/index.py applies these laws as an index is built, so that every index has
one affine normal form, and lowering applies them to guards and bounds of tiles.
"""
from __future__ import annotations

from deplodock.facts import at_least, below, divides
from deplodock.law import Int, law, less, rewrite


@law("exact")
def div_exact(a: Int, n: Int, m: Int):
    """(a·n) // m = a·(n // m)   when m divides n, m > 0"""
    return rewrite(a * n // m).to(a * (n // m), at_least(m, 1), divides(m, n))


@law("exact")
def div_div(a: Int, n: Int, m: Int):
    """(a // n) // m = a // (n·m)   when n, m > 0"""
    return rewrite(a // n // m).to(a // (n * m), at_least(n, 1), at_least(m, 1))


@law("exact")
def mod_mod(a: Int, n: Int, m: Int):
    """(a mod n·m) mod m = a mod m   when n, m > 0"""
    return rewrite(a % (n * m) % m).to(a % m, at_least(n, 1), at_least(m, 1))


@law("exact")
def div_add(a: Int, b: Int, n: Int):
    """(a·n + b) // n = a + b // n   when n > 0"""
    return rewrite((a * n + b) // n).to(a + b // n, at_least(n, 1))


@law("exact")
def mod_add(a: Int, b: Int, n: Int):
    """(a·n + b) mod n = b mod n   when n > 0"""
    return rewrite((a * n + b) % n).to(b % n, at_least(n, 1))


@law("exact")
def div_small(a: Int, n: Int):
    """a // n = 0   when 0 ≤ a < n"""
    return rewrite(a // n).to(0, at_least(a, 0), below(a, n))


@law("exact")
def mod_small(a: Int, n: Int):
    """a mod n = a   when 0 ≤ a < n"""
    return rewrite(a % n).to(a, at_least(a, 0), below(a, n))


@law("exact")
def split_join(i: Int, j: Int, m: Int):
    """(i·m + j) // m = i   when 0 ≤ j < m"""
    return rewrite((i * m + j) // m).to(i, at_least(j, 0), below(j, m))


@law("exact")
def join_split(i: Int, m: Int):
    """(i // m)·m + i mod m = i   when m > 0"""
    return rewrite(i // m * m + i % m).to(i, at_least(m, 1))


@law("exact")
def lt_scale(a: Int, n: Int, r: Int, m: Int):
    """a·n + r < m·n ⇔ a < m   when 0 ≤ r < n"""
    return rewrite(less(a * n + r, m * n)).to(less(a, m), at_least(r, 0), below(r, n))


@law("exact")
def lt_shift(i: Int, c: Int, n: Int):
    """i + c < n ⇔ i < n - c"""
    return rewrite(less(i + c, n)).to(less(i, n - c))
