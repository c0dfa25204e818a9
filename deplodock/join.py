"""Schedule laws: guarded joins over facts and knob domains, run by egglog as a flat relational query.

A schedule law adds rows to a relation for all rows of others that meet its guards:

    @step
    def double_buffer(k: str, bm: int, bn: int, bk: int, stages: int):
        \"\"\"slab i lives in slot i mod S   when S slabs fit shared memory\"\"\"
        return given(tile(k, bm, bn, bk), slots(stages)).when(stages * bk * (bm + bn) * 2 <= 232_448) \\
            .adds(pipe(k, bm, bn, bk, stages))

Numbers are integer expressions with Python's operators; the same expression prints as egglog and evaluates in Python,
so that a law can be tested by enumeration. `//` rounds towards zero, as egglog's does: keep operands non-negative.
"""
from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Callable, Iterable

from egglog.bindings import EGraph

_PYTHON = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a // b,
           "%": lambda a, b: a % b, "<=": lambda a, b: a <= b, "<": lambda a, b: a < b, "=": lambda a, b: a == b}


@dataclass(frozen=True, eq=False)
class Num:
    """An integer expression: a variable (op is its name and there are no args), a literal, or an operation."""
    op: str
    args: tuple["Num", ...] = ()

    def __str__(self) -> str:
        return f"({self.op} {' '.join(map(str, self.args))})" if self.args else self.op

    def value(self, env: dict[str, int]) -> int | bool:
        if self.args:
            return _PYTHON[self.op](*(a.value(env) for a in self.args))
        return env[self.op] if self.op in env else int(self.op)

    def _with(self, op: str, other, swap: bool = False) -> "Num":
        other = number(other)
        return Num(op, (other, self) if swap else (self, other))

    def __add__(self, o): return self._with("+", o)
    def __radd__(self, o): return self._with("+", o, True)
    def __sub__(self, o): return self._with("-", o)
    def __mul__(self, o): return self._with("*", o)
    def __rmul__(self, o): return self._with("*", o, True)
    def __floordiv__(self, o): return self._with("/", o)
    def __rfloordiv__(self, o): return self._with("/", o, True)
    def __mod__(self, o): return self._with("%", o)
    def __le__(self, o): return self._with("<=", o)
    def __ge__(self, o): return self._with("<=", o, True)
    def __lt__(self, o): return self._with("<", o)
    def equals(self, o): return self._with("=", o)


def number(x: Num | int) -> Num:
    return x if isinstance(x, Num) else Num(str(x))


def divides(n: Num | int, a: Num) -> Num:
    return (a % n).equals(0)


@dataclass(frozen=True)
class Relation:
    """A named relation. Its first column is a kernel's name where `keyed`, all others are integers."""
    name: str
    columns: tuple[str, ...]
    keyed: bool = True

    def __call__(self, *args: Num | str | int) -> "Row":
        if len(args) != len(self.columns):
            raise TypeError(f"{self.name} has {len(self.columns)} columns, got {len(args)}")
        return Row(self, tuple(args))


@dataclass(frozen=True)
class Domain:
    """The values that a knob may have: a relation of one column, whose rows are known from the start."""
    name: str
    values: tuple[int, ...]

    @property
    def relation(self) -> Relation:
        return Relation(self.name, ("value",), keyed=False)

    def __call__(self, value: Num) -> "Row":
        return Row(self.relation, (value,))


@dataclass(frozen=True)
class Row:
    relation: Relation
    args: tuple

    def __str__(self) -> str:
        return f"({self.relation.name} {' '.join(str(a) for a in self.args)})"


@dataclass(frozen=True)
class Join:
    """premises and guards -> the row that is added."""
    premises: tuple[Row, ...]
    guards: tuple[Num, ...] = ()
    head: Row | None = None

    def when(self, *guards: Num) -> "Join":
        return Join(self.premises, self.guards + guards, self.head)

    def adds(self, head: Row) -> "Join":
        return Join(self.premises, self.guards, head)


def given(*premises: Row) -> Join:
    return Join(premises)


@dataclass(frozen=True)
class Step:
    """A schedule law. Calling it with variables gives the Join; name, docstring and file come from the function."""
    function: Callable
    tag: str = "exact"

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def equation(self) -> str:
        return " ".join((inspect.getdoc(self.function) or "").split())

    def join(self) -> Join:
        return self.function(*(Num(p) for p in inspect.signature(self.function).parameters))


def step(tag: str) -> Callable[[Callable], Step]:
    """Declares a schedule law and what it does to values: "exact", or "reassociates" where folds change their order."""
    return lambda function: Step(function, tag)


@dataclass
class Joins:
    """An e-graph of relations that schedule laws fill. Use: fact(..), run(steps), rows(relation)."""
    relations: Iterable[Relation]
    hits: dict[str, int] = field(default_factory=dict)

    def __post_init__(self):
        self._egraph = EGraph()
        for r in self.relations:
            self._run(f"(relation {r.name} ({' '.join(['String'] * r.keyed + ['i64'] * (len(r.columns) - r.keyed))}))")

    def _run(self, text: str):
        return self._egraph.run_program(*self._egraph.parse_program(text))

    def fact(self, row: Row) -> None:
        args = " ".join(f'"{a}"' if isinstance(a, str) else str(a) for a in row.args)
        self._run(f"({row.relation.name} {args})")

    def run(self, steps: Iterable[Step]) -> None:
        """Runs each law once, in order: laws are staged, each reads what earlier ones added."""
        for s in steps:
            j = s.join()
            self._run(f"(ruleset {s.name})")
            conditions = " ".join(map(str, (*j.premises, *j.guards)))
            self._run(f"(rule ({conditions}) ({j.head}) :ruleset {s.name})")
            before = self._size(j.head.relation)
            self._run(f"(run-schedule (run {s.name}))")
            self.hits[s.name] = self._size(j.head.relation) - before

    def _size(self, relation: Relation) -> int:
        return self._egraph.run_program(*self._egraph.parse_program(f"(print-size {relation.name})"))[0].size

    def rows(self, relation: Relation) -> list[tuple]:
        """The rows of a relation, sorted."""
        eg, out = self._egraph, []
        function = eg.freeze().functions.get(relation.name)
        for row in function.rows if function else ():
            values = [eg.value_to_string(v) if i == 0 and relation.keyed else eg.value_to_i64(v)
                      for i, v in enumerate(row.inputs)]
            out.append(tuple(values))
        return sorted(out)
