"""NVRTC without a GPU: architectures, resources, the cache, errors."""
from __future__ import annotations

import logging

import pytest

from deplodock.errors import KernelRejected, ToolMissing
from deplodock.runtime import compile as nvrtc
from deplodock.runtime.cache import Cache
from deplodock.runtime.compile import compile_all, compile_cuda, sass

AXPY = """
extern "C" __global__ void axpy(float* __restrict__ y, const float* __restrict__ x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* y) {
    float v[96];
    for (int i = 0; i < 96; ++i) v[i] = y[threadIdx.x + i * 1024];
    __syncthreads();
    for (int i = 0; i < 96; ++i) y[threadIdx.x + i * 1024] = v[95 - i] * v[i];
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_kernel_compiles_for_an_architecture_that_is_not_here(arch):
    made = compile_cuda("axpy", AXPY, arch)
    assert made.code[:4] == b"\x7fELF" and f".target {arch}" in made.ptx
    assert 0 < made.registers < 40 and made.complaints == ()


def test_spills_are_reported():
    made = compile_cuda("spills", SPILLS, "sm_80")
    assert made.spills > 0
    assert made.complaints == (f"{made.spills} bytes of spills, {made.stack} bytes of stack",)


def test_the_second_compilation_comes_from_the_cache(tmp_path):
    store = Cache("cubin", tmp_path)
    first = compile_cuda("axpy", AXPY, "sm_80", store)
    second = compile_cuda("axpy", AXPY, "sm_80", store)
    assert first.fresh and not second.fresh
    assert (first.code, first.ptx, first.registers, first.log) == (second.code, second.ptx, second.registers, second.log)
    assert compile_cuda("axpy", AXPY, "sm_90a", store).fresh, "another architecture is another entry"
    assert compile_cuda("axpy", AXPY + " ", "sm_80", store).fresh, "another text is another entry"


def test_a_corrupt_entry_is_made_again(tmp_path, caplog):
    store = Cache("cubin", tmp_path)
    first = compile_cuda("axpy", AXPY, "sm_80", store)
    (entry,) = store.entries()
    entry.write_bytes(entry.read_bytes()[:-5] + b"wrong")
    with caplog.at_level(logging.WARNING, "deplodock"):
        again = compile_cuda("axpy", AXPY, "sm_80", store)
    assert again.fresh and again.code == first.code and "corrupt cache entry" in caplog.text
    assert not compile_cuda("axpy", AXPY, "sm_80", store).fresh


def test_many_kernels_compile_at_once_and_in_order():
    made = compile_all([("axpy", AXPY), ("spills", SPILLS)], "sm_80")
    assert [m.name for m in made] == ["axpy", "spills"]


def test_what_the_compiler_refuses_is_a_named_error():
    with pytest.raises(KernelRejected) as raised:
        compile_cuda("broken", 'extern "C" __global__ void broken() { nonsense; }', "sm_80")
    assert str(raised.value).splitlines() == [
        "kernel broken does not compile for sm_80",
        "  expected: CUDA text that the compiler accepts",
        '  found:    broken.cu(1): error: identifier "nonsense" is undefined',
        "            1 error detected in the compilation of \"broken.cu\".",
        "  to do:    this is a bug of deplodock: please report it with the folder that --dump writes",
    ]


def test_an_architecture_that_the_compiler_does_not_know():
    with pytest.raises(KernelRejected, match="invalid value for --gpu-architecture"):
        compile_cuda("axpy", AXPY, "sm_31")


def test_machine_code_prints():
    assert "/*0000*/" in sass(compile_cuda("axpy", AXPY, "sm_80"))


def test_a_missing_disassembler_is_named(monkeypatch):
    monkeypatch.setattr(nvrtc, "find_tool", lambda name: None)
    with pytest.raises(ToolMissing, match="pip install nvidia-cuda-nvdisasm"):
        sass(compile_cuda("axpy", AXPY, "sm_80"))
