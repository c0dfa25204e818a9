"""Programs saturated for tests: every e-graph that a test looks at has been checked for soundness, node by node."""
from __future__ import annotations

from functools import lru_cache

from deplodock.capture import capture_code
from deplodock.enter import Entered, enter
from deplodock.ir.loop import Buffer, Load, Var, recip
from deplodock.ir.term import Term
from deplodock.law import literal, online_sum, reduce
from deplodock.saturate import Saturation, saturate
from deplodock.soundness import check_sound


class Program:
    """A program given as `-c` would be, and its e-graph."""

    def __init__(self, code: str, numerics: str = "default", **options):
        self.entered: Entered = enter(capture_code(code).program)
        self.saturation: Saturation = saturate(self.entered, numerics, **options)
        self.egraph = self.saturation.egraph
        sound = check_sound(self.egraph)
        assert sound.ok, (sound.evaluated, sound.nodes, sound.wrong[:5])

    @property
    def outputs(self) -> list[Term]:
        return [r.tensor for r in self.entered.outputs]

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.entered.inputs + self.entered.parameters if b.name == name)

    def read(self, name: str, at: str) -> Load:
        """A pattern: the buffer of that name, read at any indices; loads with the same `at` agree in them."""
        return Load(self.buffer(name), Var(at, "Indices"))

    def has(self, pattern: Term, *conditions, output: int = 0) -> bool:
        """Whether an output's class has a member of a form."""
        return self.saturation.has(self.outputs[output], pattern, *conditions)


@lru_cache(maxsize=None)
def program(code: str, numerics: str = "default") -> Program:
    return Program(code, numerics)


def proved(code: str, left: str, right: str, numerics: str = "default") -> bool:
    """Whether the laws prove two expressions over the names that the code binds equal."""
    p = program(f"{code}\n({left}), ({right})", numerics)
    return p.saturation.equal(*p.outputs)


def body(name: str) -> Var:
    return Var(name, "Body")


def axes(name: str) -> Var:
    return Var(name, "Axes")


def flash(d, s: Term | None = None, v: Term | None = None) -> Term:
    """The one-pass form of attention over keys t: recip(online_sum(t, s, 1))·online_sum(t, s, v)."""
    s, t = s or body("s"), axes("t")
    return recip(online_sum(t, s, literal(d, 1.0))) * online_sum(t, s, v or body("v"))


def total(a: Term, k: str = "k") -> Term:
    return reduce("sum", axes(k), a)
