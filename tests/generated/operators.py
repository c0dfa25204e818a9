"""Tests of one operator: for each row of the capture table and each dtype, calls drawn by seed."""
from __future__ import annotations

import warnings
from random import Random

import torch

from deplodock.capture.operators import TABLE, indexing, made, pointwise, views
from tests.generated.case import DTYPES, NAMES, Case
from tests.generated.draw import Draw, Refused
from tests.generated.rows import drawn

ROWS = tuple(row for row in TABLE if "empty" not in row)
"""All rows but those of memory that nothing was written to: it has no values to compare."""
ELEMENTWISE = frozenset(row for kind in (pointwise, views, indexing, made) for row in kind.ROWS)
"""Rows that compute each element as eager does, the largest ones too; elsewhere products may be regrouped, and overflow."""
ATTEMPTS = 40
"""Calls drawn before a dtype counts as one that PyTorch does not take."""


def keys(seed: int, count: int, only: str = "") -> list[str]:
    """`count` cases for each row and dtype: what draw() makes a case of. only: text that the row has in its name."""
    return [f"{seed} {row} {dtype} {i}" for row in ROWS if only in row for dtype in DTYPES for i in range(count)]


def draw(key: str) -> Case | None:
    """The case of a key; None where PyTorch takes no such call."""
    seed, row, dtype, number = key.split()
    random, i = Random(key), int(number)
    special = "special" if row in ELEMENTWISE else "nonfinite"
    for _ in range(ATTEMPTS):
        d = Draw(random, dtype, special=special if i % 4 == 3 else "", layouts=i % 2 == 1, empty=i % 4 == 2)
        try:
            text = drawn(row, d)
        except (Refused, IndexError, ValueError):
            continue
        if (made := evaluated(text, d.tensors)) is not None:
            names = [f"v{n}" for n in range(len(made))]
            line = assignment(names, made, text)
            numerics = "strict" if random.random() < 0.25 else "default"
            return Case(f"operators {key}", tuple(d.givens), (line,), tuple(names) or ("x0",), numerics, (row,))
    return None


def assignment(names: list[str], made: Made, text: str) -> str:
    """The statement that names the results of a call."""
    comma = "," if len(names) == 1 and made.listed else ""
    return f"{', '.join(names)}{comma} = {text}" if names else text


class Made(tuple):
    """The results of a call; `listed`: whether it returns several, perhaps only one of them."""
    listed = False


def evaluated(text: str, tensors: dict[str, torch.Tensor]) -> Made | None:
    """What a call gives in eager mode; None where PyTorch refuses it, or gives what is no tensor of ours."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = eval(text, {"torch": torch, "inf": float("inf"), "nan": float("nan")}, dict(tensors))
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, OverflowError):
        return None
    made = Made(result if isinstance(result, (tuple, list)) else () if result is None else (result,))
    made.listed = isinstance(result, (tuple, list))
    return made if all(t.dtype in NAMES for t in made) else None
