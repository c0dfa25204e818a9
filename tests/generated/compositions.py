"""Random compositions: operators of the capture table, drawn by seed, each over values of the program so far or new inputs.

A composition is well-conditioned: what eager computes of each value is near the same in float64, and discrete operators read
what nothing has rounded. So a result that breaks the promise is the compiler's doing.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import torch

from deplodock.capture import operators
from tests.generated.case import DTYPES, NAMES, Case, Given, names_in
from tests.generated.draw import SIZES, Draw, Refused
from tests.generated.operators import ROWS, assignment, evaluated
from tests.generated.rows import DISCRETE, drawn

WEIGHTS = {"pointwise": 0.42, "folds": 0.2, "products": 0.14, "views": 0.16, "indexing": 0.05, "made": 0.03}
GROUPS: tuple[tuple[float, tuple[str, ...]], ...] = tuple(
    (WEIGHTS.get(name, 0.05), tuple(row for row in module.ROWS if row in ROWS)) for name, module in vars(operators).items() if hasattr(module, "ROWS"))
"""How often a step is of each file of the capture table, and its rows."""
MOVING = frozenset((*operators.views.ROWS, *operators.indexing.ROWS))
"""Rows that round nothing."""
FLOATS = ("f32", "f32", "f32", "f16", "bf16", "bf16", "f64")
ATTEMPTS = 30
"""Calls drawn for a step before the composition ends."""
MOST = 2000
"""Elements of a value."""
LOST = 32
"""Units of rounding that eager may be off: more, and the program is ill-conditioned."""


def keys(seed: int, count: int) -> list[str]:
    return [f"{seed} {i}" for i in range(count)]


def draw(key: str) -> Case:
    """The composition of a key: 3 to 12 calls."""
    return _Composer(key).case()


class _Composer:
    def __init__(self, key: str):
        self.key, self.random = key, Random(key)
        self.draw = Draw(self.random, self.random.choice(FLOATS), sizes=tuple(self.random.sample(SIZES, 3)))
        self.wide: dict[str, torch.Tensor] = {}              # every value in float64
        self.exact: set[str] = set()                         # values that nothing has rounded
        self.lines: list[str] = []
        self.rows: list[str] = []

    def case(self) -> Case:
        d = self.draw
        for _ in range(self.random.randint(1, 3)):
            d.fresh(d.shape(1, 3))
            self._admit_inputs()
        length = self.random.randint(3, 12)
        while len(self.lines) < length and self._step():
            continue
        used = set().union(*(names_in(line.partition(" = ")[2]) for line in self.lines))
        values = [n for n in d.pool if n.startswith("v")]
        outputs = [n for n in values if n not in used or self.random.random() < 0.15] or [g.name for g in d.givens][:1]
        givens = tuple(g for g in d.givens if g.name in used or g.name in outputs)
        numerics = "strict" if self.random.random() < 0.25 else "default"
        return Case(f"compositions {self.key}", givens, tuple(self.lines), tuple(outputs), numerics, tuple(self.rows))

    def _step(self) -> bool:
        """One more call; False if none was found."""
        for _ in range(ATTEMPTS):
            rows = self.random.choices([r for _, r in GROUPS], [w for w, _ in GROUPS])[0]
            if self._call(self.random.choice(rows)):
                return True
        return False

    def _call(self, row: str) -> bool:
        d, before = self.draw, (list(self.draw.givens), dict(self.draw.tensors), dict(self.draw.pool))
        if row in DISCRETE or row.partition(".")[0] in DISCRETE:
            d.pool = {n: t for n, t in d.pool.items() if n in self.exact}
        d.main = None
        try:
            text = drawn(row, d)
        except (Refused, IndexError, ValueError):
            text = ""
        d.pool = before[2]
        if not text or not self._admit(row, text):
            d.givens, d.tensors, d.pool = before
            return False
        return True

    def _nudged(self, t: torch.Tensor) -> torch.Tensor:
        """A tensor, each element off by up to a unit of rounding in the dtype of the composition."""
        if not t.is_floating_point():
            return t
        unit = torch.finfo(DTYPES[self.draw.dtype]).eps
        off = torch.rand(t.shape, generator=torch.Generator().manual_seed(len(self.lines)), dtype=torch.float64)
        return t.double() * (1 + unit * (2 * off - 1))

    def _admit_inputs(self) -> None:
        d = self.draw
        for g in d.givens:
            if g.name not in self.wide:
                t = d.tensors[g.name]
                self.wide[g.name] = t.double() if t.is_floating_point() else t
                d.pool[g.name] = t
                self.exact.add(g.name)

    def _admit(self, row: str, text: str) -> bool:
        """Adds a call, if its results are such that others can follow."""
        d, wide = self.draw, dict(self.wide)
        for g in d.givens:
            t = d.tensors[g.name]
            wide.setdefault(g.name, t.double() if t.is_floating_point() else t)
        results, exact = evaluated(text, d.tensors), evaluated(text, wide)
        if not results or not exact or not all(map(_tame, results, exact)):
            return False
        moved = evaluated(text, {n: t if n in self.exact else self._nudged(t) for n, t in wide.items()})
        if not all(map(_steady, results, exact, moved)):
            return False
        self._admit_inputs()
        names = [f"v{len(self.exact | set(d.tensors)) + n}" for n in range(len(results))]
        read = names_in(text)
        for name, result, meant in zip(names, results, exact):
            d.tensors[name] = d.pool[name] = result
            self.wide[name] = meant.double() if meant.is_floating_point() else meant
            whole = not result.is_floating_point()
            if read <= self.exact and (whole or row in MOVING):
                self.exact.add(name)
        self.lines.append(assignment(names, results, text))
        self.rows.append(row)
        return True


def _steady(y: torch.Tensor, exact: torch.Tensor, moved: torch.Tensor) -> bool:
    """Whether a value is but some units of rounding away where its operands are."""
    if not y.is_floating_point():
        return True
    return float((moved - exact).abs().max()) <= LOST * torch.finfo(y.dtype).eps * float(exact.abs().max())


def _tame(y: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether a value is small, finite, neither huge nor tiny, and what it is in float64 but for some units of rounding."""
    if not 0 < y.numel() <= MOST or y.shape != exact.shape:
        return False
    if not y.is_floating_point():
        return bool((y == exact).all())
    if not torch.isfinite(y).all() or not torch.isfinite(exact).all():
        return False
    largest = float(exact.abs().max())
    off = float((y.double() - exact.double()).abs().max())
    return largest == 0 or 1e-3 < largest < 1e3 and off <= LOST * torch.finfo(y.dtype).eps * largest


# ---- a smaller composition -------------------------------------------------------------------------------------------

def smaller(case: Case, fails: Callable[[Case], bool]) -> Case:
    """A composition from which no output and no call can be left out so that it still fails."""
    moved = True
    while moved:
        moved = False
        for candidate in _candidates(case):
            if fails(candidate):
                case, moved = candidate, True
                break
    return case


def _candidates(case: Case):
    """One output, or all but one; then the case without one of its calls, whose results become inputs."""
    if len(case.outputs) > 1:
        for name in case.outputs:
            yield _pruned(replace(case, outputs=(name,)))
        for name in case.outputs:
            yield _pruned(replace(case, outputs=tuple(o for o in case.outputs if o != name)))
    values = _values(case)
    for i, line in enumerate(case.lines):
        names = [n for n in names_in(line.partition(" = ")[0])]
        outputs = tuple(o for o in case.outputs if o not in names)
        if not outputs:
            continue
        new = tuple(Given(n, NAMES[values[n].dtype], tuple(values[n].shape), values="normal", seed=i) for n in sorted(names))
        yield _pruned(replace(case, lines=case.lines[:i] + case.lines[i + 1:], outputs=outputs, givens=case.givens + new))


def _values(case: Case) -> dict[str, torch.Tensor]:
    scope = dict(zip((g.name for g in case.givens), case.tensors()))
    with torch.no_grad():
        exec("\n".join(case.lines), {"torch": torch, "inf": float("inf"), "nan": float("nan")}, scope)
    return scope


def _pruned(case: Case) -> Case:
    """The case without what its outputs do not need."""
    needed, lines = set(case.outputs), []
    for line in reversed(case.lines):
        left, _, right = line.partition(" = ")
        if names_in(left) & needed:
            lines.append(line)
            needed |= names_in(right)
    givens = tuple(g for g in case.givens if g.name in needed)
    return replace(case, lines=tuple(reversed(lines)), givens=givens)
