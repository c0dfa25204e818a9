"""Plans at the true sizes of the suite: how many kernels, and that the CUDA compiler takes them without spills.

Nothing runs here: sizes are those of TinyLlama-1.1B and Qwen2.5-7B.
"""
from __future__ import annotations

import pytest

from benchmarks.cases import Case, cases
from deplodock.capture import capture_module
from deplodock.pipeline import Compilation, compile
from tests.programs.support import DTYPES, FUNCTIONS, complaints, for_target

ONE_KERNEL = ("rmsnorm", "silu_mul", "sdpa", "naive_attn")
LENGTHS = {"rmsnorm": (32, 512), "silu_mul": (32, 512), "sdpa": (32, 128, 512), "naive_attn": (32, 128, 512)}
SUITE = {(c.name, c.dtype): c for c in cases(list(DTYPES))}


def planned(case: Case) -> Compilation:
    return compile(capture_module(*case.example()), "h200")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [f"{kind}.{model}.s{n}" for kind in ONE_KERNEL for model, n in
                                  zip(("tinyllama", "qwen", "tinyllama"), LENGTHS[kind])])
def test_one_kernel(name, dtype):
    x = planned(SUITE[name, dtype])
    assert len(x.plan.kernels) == 1 and x.plan.once == ()


SPILLS = ["matmul.tinyllama.down_proj.s32", "matmul.qwen.gate_proj.s512", "matmul_add.qwen.o_proj.s128", "rmsnorm.qwen.s512",
          "softmax.qwen.s512", "silu_mul.qwen.s128", "silu_mul_matmul.tinyllama.s512", "sdpa.qwen.s512", "naive_attn.tinyllama.s512"]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", SPILLS)
def test_kernels_compile_without_spills(name, dtype):
    x = planned(SUITE[name, dtype])
    assert {arch: complaints(for_target(x, arch)) for arch in ("sm_80", "sm_90a")} == {"sm_80": {}, "sm_90a": {}}


def test_the_suite_is_whole():
    assert len(SUITE) == 3 * (84 + 3) and {c.op for c in SUITE.values()} == {*FUNCTIONS, "layer"}
