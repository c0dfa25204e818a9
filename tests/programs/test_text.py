"""The same program gives the same bytes: under other names, in another order, in another process."""
from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.programs.support import from_code, keys

SAME = {
    "names": ("x = torch.randn(5, 48); w = torch.randn(48); lin = nn.Linear(48, 24); lin(F.rms_norm(x, (48,), w, 1e-6))",
              "zebra = torch.randn(5, 48); apple = torch.randn(48); q = nn.Linear(48, 24); q(F.rms_norm(zebra, (48,), apple, 1e-6))"),
    "order of inputs": ("q = torch.randn(2, 13, 8); k = torch.randn(2, 13, 8); v = torch.randn(2, 13, 8); "
                        "F.softmax(q @ k.transpose(1, 2), -1) @ v",
                        "v = torch.randn(2, 13, 8); k = torch.randn(2, 13, 8); q = torch.randn(2, 13, 8); "
                        "F.softmax(q @ k.transpose(1, 2), -1) @ v"),
    "order of steps": ("x = torch.randn(5, 48); a = nn.Linear(48, 24); b = nn.Linear(48, 24); g = a(x); u = b(x); F.silu(g) * u",
                       "x = torch.randn(5, 48); a = nn.Linear(48, 24); b = nn.Linear(48, 24); u = b(x); g = a(x); u * F.silu(g)"),
}


@pytest.mark.parametrize("name", SAME)
def test_names_and_order_decide_nothing(name):
    one, other = map(from_code, SAME[name])
    assert keys(one) == keys(other)
    assert [k.schedule for k in one.plan.kernels] == [k.schedule for k in other.plan.kernels]


PROGRAM = """
import hashlib, torch
from tests.programs.support import FUNCTIONS, arguments, program, with_plan
from tests.programs.test_promise import PRIMES
from tests.examples.decoder import SMALL, layer
found = [program(FUNCTIONS[kind], arguments(kind, PRIMES[kind], "bf16")) for kind in ("silu_mul_matmul", "naive_attn")]
found.append(program(*layer(SMALL, 13, torch.bfloat16)))
print(hashlib.sha256("".join(k.source for x in found for k in x.cuda).encode()).hexdigest())
"""


def test_the_same_bytes_in_every_process():
    runs = [subprocess.Popen([sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONHASHSEED": seed}, text=True,
                             stdout=subprocess.PIPE) for seed in ("1", "2")]
    found = [run.communicate(timeout=250)[0] for run in runs]
    assert found[0] == found[1] and len(found[0].strip()) == 64
