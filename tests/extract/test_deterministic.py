"""The same program gives the same plans in every process, whatever Python's hashes and addresses are."""
from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
from tests.extract.support import decoder
x = decoder(512, "bfloat16", "default").extract()
print(x, *x.plans, *sorted(k.key for k in x.candidates), sep="\\n")
"""


def test_every_process_finds_the_same(root):
    texts = set()
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        filler = f"held = [object() for _ in range({seed} * 1000)]\n"  # other addresses
        texts.add(subprocess.run([sys.executable, "-c", filler + PROGRAM], env=env, cwd=root, capture_output=True,
                                 text=True, check=True, timeout=300).stdout)
    assert len(texts) == 1 and "optimal" in texts.pop()
