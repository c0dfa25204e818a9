"""Terms: immutable trees that are hash-consed, so that equal terms are one object and shared subterms are stored once.

Equality is identity. `key` is a digest of the structure, the same in every process: sort by it wherever an order can reach
the output.
"""
from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Iterator
from weakref import WeakValueDictionary

_TABLE: WeakValueDictionary[tuple, "Term"] = WeakValueDictionary()


def _exact(value):
    """A hash key that tells 1 from 1.0 from True, 0.0 from -0.0, and knows a NaN again."""
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return value if isinstance(value, (Term, str, frozenset)) else (type(value), repr(value))


class _HashConsing(type):
    def __call__(cls, *args):
        key = (cls, _exact(args))
        term = _TABLE.get(key)
        if term is None:
            term = super().__call__(*args)
            term = _TABLE.setdefault(key, term)
        return term


@dataclass(frozen=True, eq=False)
class Term(metaclass=_HashConsing):
    """Base of all terms. Positional construction only; equality is identity."""

    @cached_property
    def key(self) -> str:
        """A digest of the structure: 16 hexadecimal digits, stable across processes."""
        def part(value) -> str:
            if isinstance(value, tuple):
                return "(" + ",".join(map(part, value)) + ")"
            return value.key if isinstance(value, Term) else repr(value)
        text = type(self).__name__ + ":" + ";".join(part(getattr(self, f.name)) for f in fields(self))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @cached_property
    def free(self) -> frozenset[Term]:
        """The axes this term depends on: those in it that nothing in it binds."""
        return frozenset(a for c in _terms(self) for a in c.free)

    def __str__(self) -> str:
        from deplodock.ir.show import show
        return show(self)

    __repr__ = __str__

    def __lt__(self, other: Term) -> bool:
        return self.key < other.key

    def __reduce__(self):
        """Terms are pickled and copied as calls of their constructor, so that what comes back is hash-consed too."""
        return type(self), tuple(getattr(self, f.name) for f in fields(self))


def _terms(t: Term) -> Iterator[Term]:
    for f in fields(t):
        stack = [getattr(t, f.name)]
        while stack:
            v = stack.pop()
            if isinstance(v, tuple):
                stack.extend(v)
            elif isinstance(v, Term):
                yield v
