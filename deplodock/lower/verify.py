"""What must hold of every Tile IR."""
from __future__ import annotations

from deplodock.ir.tile import Kernel


def verify(k: Kernel) -> None:
    pass
