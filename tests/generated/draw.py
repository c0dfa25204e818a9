"""Draws a call of one ATen overload: its arguments by the overload's own schema, and by tests/generated/rows.py where the
schema does not say enough.

    Draw       what is drawn so far: tensors given, and values that operators may read
    Operand    a tensor as a call names it
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import torch

from tests.generated.case import COMPUTED, DTYPES, LAYOUTS, NAMES, Given

SIZES: tuple[int, ...] = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 29)
LARGEST = 600
"""Elements of one tensor: the emulation runs some million steps a second."""


@dataclass(frozen=True, slots=True)
class Operand:
    """name: as a line of the program says it."""
    name: str
    shape: tuple[int, ...]
    dtype: str


class Refused(Exception):
    """What was drawn makes no call."""


@dataclass
class Draw:
    random: Random
    dtype: str = "f32"
    special: str = ""
    """The values of tensors, where they are not normal."""
    layouts: bool = False
    empty: bool = False
    """Whether sizes may be 0."""
    sizes: tuple[int, ...] = SIZES
    givens: list[Given] = field(default_factory=list)
    pool: dict[str, torch.Tensor] = field(default_factory=dict)
    """Values that a call may read, by name: none for a test of one operator."""
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """All tensors that lines may name."""
    main: Operand | None = None
    """The first operand of the call."""

    # ---- tensors

    def size(self) -> int:
        return 0 if self.empty and self.random.random() < 0.15 else self.random.choice(self.sizes)

    def shape(self, least: int = 0, most: int = 4) -> tuple[int, ...]:
        shape = [self.size() for _ in range(self.random.randint(least, most))]
        while math.prod(shape) > LARGEST:
            shape[shape.index(max(shape))] = self.random.choice((1, 2, 3))
        return tuple(shape)

    def fresh(self, shape: tuple[int, ...], dtype: str = "", values: str = "") -> Operand:
        """A new tensor that the case is given."""
        layout = self.random.choice(LAYOUTS) if self.layouts else "plain"
        values = values or self.special or "normal"
        g = Given(f"x{len(self.givens)}", dtype or self.dtype, tuple(shape), layout, values, self.random.getrandbits(30))
        self.givens.append(g)
        self.tensors[g.name] = g.tensor()
        return Operand(g.name, g.shape, g.dtype)

    def reading(self, allowed: Callable[[torch.Tensor], bool]) -> Operand | None:
        """A value of the pool; None where none will do."""
        names = [n for n, t in self.pool.items() if allowed(t)]
        if not names:
            return None
        latest = [n for n in names if n.startswith("v")][-3:]
        name = self.random.choice(latest if latest and self.random.random() < 0.7 else names)
        t = self.pool[name]
        return Operand(name, tuple(t.shape), NAMES[t.dtype])

    def first(self, least: int = 0, most: int = 4) -> Operand:
        """The first operand, of at least and at most so many dimensions."""
        if self.main is None:
            self.main = (self.reading(lambda t: least <= t.ndim <= most) if self.pool else None) \
                or self.fresh(self.shape(least, most))
        return self.main

    def of_shape(self, shape: tuple[int, ...], dtype: str = "", values: str = "") -> Operand:
        """A tensor of exactly this shape and dtype (that of the first operand unless given)."""
        dtype = dtype or (self.main.dtype if self.main else self.dtype)
        found = None if values or self.random.random() < 0.5 else \
            self.reading(lambda t: tuple(t.shape) == tuple(shape) and NAMES[t.dtype] == dtype)
        return found or self.fresh(shape, dtype, values)

    def beside(self, shape: tuple[int, ...], values: str = "", dtype: str = "") -> Operand:
        """A tensor that broadcasts with a shape, now and then of another dtype."""
        def fits(t: torch.Tensor) -> bool:
            return all(a == b or a == 1 for a, b in zip(reversed(t.shape), reversed(shape))) and t.ndim <= len(shape)
        found = None if values or dtype else self.reading(fits)
        if found and self.random.random() < 0.8:
            return found
        cut = self.random.choice((0, 0, 0, self.random.randint(0, len(shape))))
        shape = tuple(1 if self.random.random() < 0.15 else n for n in shape[cut:])
        if not dtype:
            dtype = self.main.dtype if self.main else self.dtype
            dtype = self.random.choice(COMPUTED) if self.random.random() < 0.1 else dtype
        return self.fresh(shape, dtype, values)

    # ---- numbers

    def number(self, dtype: str = "") -> float | int | bool:
        kind = DTYPES[dtype or (self.main.dtype if self.main else self.dtype)]
        if kind.is_floating_point and self.random.random() < 0.8:
            return self.random.choice((0.5, 1.5, -0.75, 2.0, 0.1, 3.25))
        return self.random.choice((1, 2, 3, 5))

    def dim(self) -> int:
        rank = len(self.main.shape)
        return self.random.randint(-max(rank, 1), max(rank, 1) - 1)

    def dims(self) -> list[int]:
        rank = len(self.main.shape)
        return self.random.sample(range(rank), self.random.randint(0, rank)) if rank else []

    def chance(self, p: float = 0.5) -> bool:
        return self.random.random() < p


Drawer = Callable[[Draw], object]


def call(name: str, d: Draw, rank: tuple[int, int], special: dict[str, Drawer]) -> str:
    """The text of a call of an overload ("add.Tensor"). rank: of its first operand; special: drawers by argument.

    Refused where nothing is known of an argument.
    """
    args, in_place = [], True
    for a in overload(name)._schema.arguments:
        if a.name in special:
            value = special[a.name](d)
        else:
            value = _by_schema(d, a, rank)
        if value is not _LEFT_OUT:
            args.append(said(value) if in_place and not a.kwarg_only else f"{a.name}={said(value)}")
        elif a.has_default_value():
            in_place = False
        else:
            raise Refused(f"{name}: nothing is known of {a.name}: {a.real_type}")
    return f"torch.ops.aten.{name.removesuffix('.default')}({', '.join(args)})"


def overload(name: str):
    packet, _, rest = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), rest or "default")


def said(value) -> str:
    """A value as Python text."""
    match value:
        case Operand(name): return name
        case list(): return f"[{', '.join(map(said, value))}]"
        case torch.dtype(): return str(value)
    return repr(value)


_LEFT_OUT = object()


def _by_schema(d: Draw, a, rank: tuple[int, int]):
    """A value for an argument by its type and name; _LEFT_OUT for one that has its default."""
    kind = str(a.real_type)
    match kind, a.name:
        case "Tensor", _ if d.main is None:
            return d.first(*rank)
        case "Tensor", ("index" | "indices"):
            return d.fresh(d.shape(1, 1), "i64", f"index {d.main.shape[0] if d.main.shape else 1}")
        case "Tensor", ("mask" | "condition"):
            return d.beside(d.main.shape, dtype="b8")
        case "Tensor", _:
            return d.beside(d.main.shape)
        case "Optional[Tensor]", _:
            return d.beside(d.main.shape) if d.chance(0.7) else None
        case "List[Tensor]", _:
            x = d.first(*rank)
            return [x, *(d.of_shape(x.shape) for _ in range(d.random.randint(0, 3)))]
        case ("number" | "Optional[number]"), _ if not a.has_default_value() or d.chance(0.6):
            return d.number()
        case "float", _ if not a.has_default_value():
            return float(d.number("f32"))
        case ("int" | "Optional[int]"), ("dim" | "dim0" | "dim1") if d.main and d.chance(0.9):
            return d.dim()
        case ("List[int]" | "Optional[List[int]]"), ("dim" | "dims") if d.main:
            return d.dims() if kind == "List[int]" or d.chance(0.8) else None
        case "bool", "keepdim":
            return d.chance()
    return _LEFT_OUT
