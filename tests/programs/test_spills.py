"""The kernels that are chosen at the true sizes of the suite compile without spills, for sm_80 and for sm_90a.

Nothing runs here: sizes are those of TinyLlama-1.1B and Qwen2.5-7B. How many kernels there are is in tests/extract.
"""
from __future__ import annotations

import pytest

from benchmarks.cases import cases
from deplodock.capture import capture_module
from deplodock.pipeline import compile
from tests.programs.support import complaints, for_target

SUITE = {(c.name, c.dtype): c for c in cases(["f32", "bf16"])}
NAMES = ["matmul.tinyllama.down_proj.s32", "matmul.qwen.gate_proj.s512", "matmul_add.qwen.o_proj.s128", "rmsnorm.qwen.s512",
         "softmax.qwen.s512", "silu_mul.qwen.s128", "silu_mul_matmul.tinyllama.s512", "sdpa.qwen.s512", "naive_attn.tinyllama.s512"]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", NAMES)
def test_kernels_compile_without_spills(name, dtype):
    x = compile(capture_module(*SUITE[name, dtype].example()), "h200")
    assert {arch: complaints(for_target(x, arch)) for arch in ("sm_80", "sm_90a")} == {"sm_80": {}, "sm_90a": {}}


def test_the_suite_is_whole():
    assert len(SUITE) == 2 * (84 + 3)
