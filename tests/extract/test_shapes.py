"""At every shape of the benchmarks: attention, norms and SiLU(g)·u are one kernel, in all three dtypes."""
from __future__ import annotations

import pytest

from benchmarks.cases import DTYPES, cases
from deplodock.capture import capture_module
from tests.extract.support import saturate_program


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["naive_attn", "sdpa", "rmsnorm", "silu_mul", "softmax"])
def test_one_kernel(op, dtype):
    kernels = {}
    for case in cases([dtype], op + "."):
        x = saturate_program(capture_module(*case.example()).program, "default").extract()
        kernels[case.name] = len(x.plans[0].kernels)
    assert len(kernels) >= 6 and set(kernels.values()) == {1}, kernels
