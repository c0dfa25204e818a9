"""Generated kernels with one ordering statement deleted: the emulation must report every one that orders something."""
from __future__ import annotations

import re

import pytest

from deplodock.errors import EmulationFault
from tests.lowering.cases import CASES
from tests.lowering.running import cuda, run

ORDERS = re.compile(r"\b(dd_sync|dd_bar|dd_syncwarp|dd_cp_async_wait|dd_cp_async_commit|dd_mbar_\w+|dd_fence_async|"
                    r"dd_wgmma_(?:fence|wait|commit)|dd_tma_store_(?:commit|wait_read))\b(?:<\d+>)?\([^;]*\);")

REDUNDANT = {
    "softmax ragged": 0,
    "matmul nk": 0,
    "matmul kn add blocked": 0,
    "roles matmul add": 3,
}
"""Case -> deletions that nothing can show. The residual's slot is given back (a fence, a warp's meeting) and waited
for, though the operands' ring already keeps the producer from the next tile until the residual has been read."""


@pytest.mark.slow
@pytest.mark.parametrize("name", REDUNDANT)
def test_every_deletion_is_reported(name):
    case, made = CASES[name], cuda(CASES[name])
    lines = made.text.split("\n")
    spots = [i for i, line in enumerate(lines) if ORDERS.search(line)]
    assert spots
    silent = [lines[i].strip() for i in spots if not _reported(case, made, lines, i)]
    assert len(silent) <= REDUNDANT[name], silent


def _reported(case, made, lines, i) -> bool:
    text = "\n".join([*lines[:i], ORDERS.sub(";", lines[i]), *lines[i + 1:]])
    try:
        return any(run(case, made, seed=seed, text=text) for seed in (0, 7))
    except EmulationFault:
        return True
