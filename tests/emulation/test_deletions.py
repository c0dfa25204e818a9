"""Each statement that orders something, deleted from a correct kernel, is missed: every deletion is reported, in every schedule.

UNNEEDED holds what a kernel could do without, since a later barrier orders the same accesses.
"""
import re

import pytest

from deplodock.errors import EmulationFault
from tests.emulation.cases import CASES

ORDERING = re.compile(
    r"(?:if \([^()]*\) )?\b(?:__sync\w+|__threadfence|dd_(?:sync|syncwarp|bar|fence_async|wgmma_(?:fence|commit|wait<\d>)|"
    r"mbar_(?:init_fence|expect_tx|arrive|wait)|tma_store_(?:commit|wait_read)|cp_async_(?:commit|wait<\d>))|cluster_sync|arrive_at)"
    r"\([^;]*\);")

UNNEEDED = {("attend", "dd_sync();", 0)}
"""The first of attend's two barriers: only one thread uses the mbarrier between them."""


def deletions() -> list[tuple[str, int, str]]:
    """kernel, the statement, and its place among equal ones."""
    found = []
    for name, case in CASES.items():
        statements = [m[0] for m in ORDERING.finditer(body_of(case.text))]
        found += [(name, s, statements[:i].count(s)) for i, s in enumerate(statements)]
    return [d for d in found if d not in UNNEEDED]


def body_of(text: str) -> str:
    """What follows the wrappers that a kernel brings itself."""
    return text[text.find("#endif") + 1:] if "#endif" in text else text


@pytest.mark.parametrize("kernel, statement, which", deletions())
def test_each_deletion_is_reported(kernel, statement, which):
    case = CASES[kernel]
    body = body_of(case.text)
    m = [m for m in ORDERING.finditer(body) if m[0] == statement][which]
    text = case.text.removesuffix(body) + body[:m.start()] + ";" + body[m.end():]
    for seed in range(2):
        with pytest.raises(EmulationFault):
            case.run(text, seed=seed)
