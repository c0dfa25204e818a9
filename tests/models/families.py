"""Configurations of model families at toy sizes: a folder each, as transformers writes them."""
from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
FAMILIES = tuple(sorted(p.parent.name for p in HERE.glob("*/config.json")))


def folder(family: str) -> Path:
    return HERE / family
