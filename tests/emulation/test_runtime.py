"""What surrounds the checks: that they are on, time limits, crashes, wrong launches, the cache, arrays of all kinds."""
import dataclasses
import time

import ml_dtypes
import numpy as np
import pytest
import torch

from deplodock.errors import EmulationFault, IndexOutOfRange, KernelRejected, ToolMissing
from deplodock.ir.cuda import Map
from deplodock.ir.dtype import Dtype
from deplodock.runtime.emulation import Launch, Pointer, build, emulate
from tests.emulation.cases import CASES

ONE = (1, 1, 1)


def kernel(body: str, params: str = "float* out", name: str = "k") -> dict[str, str]:
    return {name: f'extern "C" __global__ void {name}({params}) {{\n  {body}\n}}\n'}


def once(body: str, params: str = "float* out", block: int = 32, shared: int = 0, arguments=(Pointer("out"),), **options):
    """Runs a body by one block over one array of 64 floats; returns the array."""
    out = np.zeros(64, np.float32)
    emulate(kernel(body, params), [Launch("k", ONE, (block, 1, 1), arguments, shared)], {"out": out}, **options)
    return out


def faults(body: str, **options):
    with pytest.raises(EmulationFault) as caught:
        once(body, **options)
    return caught.value.faults


# ---- the checks are on -----------------------------------------------------------------------------------------------

def test_uninstrumented_kernels_are_refused(monkeypatch):
    """With a compiler or flags that do not instrument, every kernel would pass in silence."""
    without = tuple(f for f in build.CHECKED if f != "-fsanitize=thread")
    monkeypatch.setattr(build, "CHECKED", without)
    assert [f.kind for f in faults("out[threadIdx.x] = 1.0f;")] == ["uninstrumented"]


def test_a_report_says_where_and_what_to_do():
    with pytest.raises(EmulationFault) as caught:
        once("if (threadIdx.x == 7)\n    out[64] = 1.0f;  // one too far", arguments=(Pointer("out"),))
    assert str(caught.value) == """\
kernel k is wrong: bounds
  expected: a kernel without races, stray accesses, reads of what nobody wrote, or threads that wait forever
  found:    writes 4 bytes of global memory at byte 256 of buffer out, which has 256 bytes
  where:    kernel k, block 0,0,0, thread 7, line 3 of its CUDA text: out[64] = 1.0f;  // one too far
  to do:    correct the index, or guard the access"""


# ---- how a run can end -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("checked", [True, False])
def test_a_kernel_that_never_ends_is_stopped(checked):
    begin = time.monotonic()
    found = faults("for (volatile float* p = out; *p == 0.0f;) {}", checked=checked, timeout=1.0)
    assert time.monotonic() - begin < 30
    assert {f.kind for f in found} == {"timeout"} and found[0].kernel == "k"
    assert found[0].line == 2


def test_waiting_for_nobody_is_a_deadlock_not_a_hang():
    found = faults("if (threadIdx.x < 32) dd_bar(1, 64);", block=64)
    assert [f.kind for f in found] == ["deadlock"]
    assert "threads 0-31 wait at line 2 for bar.sync 1: 32 of 64 threads arrived (32 threads have exited)" in found[0].message


@pytest.mark.parametrize("body, says", [
    ("*(volatile int*)(out + 500000000) = 1;", "memory that is not there"),
    ("out[0] = 77 / (int)(threadIdx.x / 32);", "division by zero"),
    ("volatile char big[100000]; big[threadIdx.x] = 1; out[0] = big[5];", "more than 64 KB of local variables"),
])
def test_a_crash_is_a_report_with_a_line(body, says):
    found = faults(body, checked=False)
    assert [f.kind for f in found] == ["crash"]
    assert says in found[0].message and found[0].kernel == "k" and found[0].line in (1, 2)


def test_an_index_outside_its_dimension_is_the_callers_mistake():
    assert once("dd_check(63, 64); out[63] = 5.0f;", block=1)[63] == 5.0
    for i in (-1, 64):
        with pytest.raises(IndexOutOfRange, match=f"index {i} is out of range for a dimension of 64"):
            once(f"dd_check({i}, 64); out[{i}] = 5.0f;", block=1)


def test_text_that_is_no_cuda_is_refused_with_the_compilers_words():
    with pytest.raises(KernelRejected, match="'?nonsense'?"):
        once("nonsense;")


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch):
    build.find_compiler.cache_clear()
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with pytest.raises(ToolMissing, match="install g"):
        build.find_compiler()


@pytest.mark.parametrize("launch, says", [
    (Launch("k", ONE, (32, 1, 1), ()), "has 1 parameters, the launch gives 0"),
    (Launch("k", ONE, (1025, 1, 1), (Pointer("out"),)), "1 to 1024 threads"),
    (Launch("k", ONE, (32, 1, 1), (Pointer("out"),), 300000), "227 KB"),
    (Launch("k", (3, 1, 1), (32, 1, 1), (Pointer("out"),), 0, 2), "divides the grid"),
    (Launch("other", ONE, (32, 1, 1), (Pointer("out"),)), "no kernel other"),
    (Launch("k", ONE, (32, 1, 1), (Map("m", "out", Dtype.f32, (2, 64), (256,), (1, 32), 128),)), "leaves its buffer"),
    (Launch("k", ONE, (32, 1, 1), (Map("m", "out", Dtype.f32, (4, 16), (64,), (1, 3), 0),)), "tensor map is refused"),
])
def test_a_wrong_launch_is_refused(launch, says):
    with pytest.raises(EmulationFault, match=says):
        emulate(kernel("out[0] = 1.0f;"), [launch], {"out": np.zeros(64, np.float32)})


@pytest.mark.parametrize("declaration", ["extern __shared__ float raw[];", "extern __shared__ __align__(16) float raw[];"])
def test_dynamic_shared_memory_under_a_name_of_its_own(declaration):
    body = "raw[threadIdx.x] = 2.0f * threadIdx.x;\n  dd_sync();\n  out[threadIdx.x] = raw[31 - threadIdx.x];"
    assert once(f"{declaration}\n  {body}", shared=128)[:32].tolist() == [2.0 * (31 - i) for i in range(32)]
    assert {f.kind for f in faults(f"{declaration}\n  {body}", shared=124)} >= {"bounds"}


# ---- programs of several kernels -------------------------------------------------------------------------------------

def test_kernels_run_in_order_and_share_buffers():
    x, y = np.arange(64, dtype=np.float32), np.empty(64, np.float32)
    texts = (kernel("t[threadIdx.x] = 2.0f * x[threadIdx.x];", "const float* x, float* t", "double_it")
             | kernel("y[63 - threadIdx.x] = t[threadIdx.x] + 1.0f;", "const float* t, float* y", "turn"))
    launches = [Launch("double_it", ONE, (64, 1, 1), (Pointer("x"), Pointer("t"))),
                Launch("turn", ONE, (64, 1, 1), (Pointer("t"), Pointer("y")))]
    done = emulate(texts, launches, {"x": x, "t": np.empty(64, np.float32), "y": y}, undefined={"t", "y"})
    assert [s.kernel for s in done] == ["double_it", "turn"]
    np.testing.assert_array_equal(y, (2 * x + 1)[::-1])


def test_a_fault_names_the_kernel_of_several():
    texts = kernel("out[threadIdx.x] = 1.0f;", name="fine") | kernel("out[threadIdx.x + 1] = 1.0f;", name="bad")
    launches = [Launch(n, ONE, (64, 1, 1), (Pointer("out"),)) for n in ("fine", "bad", "fine")]
    with pytest.raises(EmulationFault) as caught:
        emulate(texts, launches, {"out": np.zeros(64, np.float32)})
    assert {f.kernel for f in caught.value.faults} == {"bad"}


def test_one_launch_is_ordered_before_the_next():
    """The same elements, written by other threads: no race between launches, one within."""
    texts = kernel("out[(threadIdx.x + shift) % 64] = 1.0f;", "float* out, int shift")
    launches = [Launch("k", ONE, (64, 1, 1), (Pointer("out"), shift)) for shift in range(3)]
    emulate(texts, launches, {"out": np.zeros(64, np.float32)})


def test_the_second_time_nothing_is_compiled(monkeypatch, tmp_path):
    monkeypatch.setenv("DEPLODOCK_CACHE", str(tmp_path))
    case = dataclasses.replace(CASES["reverse"])
    case.run()
    monkeypatch.setattr(build, "_gcc", lambda *a: pytest.fail("g++ was called"))
    case.run()


def test_a_kernel_that_did_not_change_is_not_compiled_again(monkeypatch, tmp_path):
    monkeypatch.setenv("DEPLODOCK_CACHE", str(tmp_path))
    compiled, gcc = [], build._gcc
    monkeypatch.setattr(build, "_gcc", lambda arguments, where, names: (compiled.append(names), gcc(arguments, where, names)))
    first, second = kernel("out[0] = 1.0f;", name="first"), kernel("out[0] = 2.0f;", name="second")
    build.build(first | second)
    assert sorted(compiled) == ["first", "first, second", "second", "the runtime"]
    compiled.clear()
    build.build(first | kernel("out[0] = 3.0f;", name="second"))
    assert sorted(compiled) == ["first, second", "second"]


def test_the_same_schedule_twice_gives_the_same_bits():
    text = kernel("atomicAdd(out, 1.0f / (1 + threadIdx.x));")
    results = []
    for seed in (3, 3):
        out = np.zeros(64, np.float32)
        emulate(text, [Launch("k", (4, 1, 1), (256, 1, 1), (Pointer("out"),))], {"out": out}, seed=seed, workers=1)
        results.append(out.tobytes())
    assert results[0] == results[1]


# ---- arrays ----------------------------------------------------------------------------------------------------------

def test_what_nobody_writes_is_nan():
    out = np.zeros(64, np.float32)
    emulate(kernel("if (threadIdx.x % 2) out[threadIdx.x] = 1.0f;"), [Launch("k", ONE, (64, 1, 1), (Pointer("out"),))],
            {"out": out}, undefined={"out"})
    np.testing.assert_array_equal(np.isnan(out), np.arange(64) % 2 == 0)


def test_reading_what_nobody_wrote_is_a_fault_and_what_was_written_before_is_not():
    body = "out[threadIdx.x] = out[threadIdx.x] + 1.0f;"
    assert once(body, block=64)[0] == 1.0
    assert [f.kind for f in faults(body, block=64, undefined={"out"})] == ["uninitialised"]


def test_neighbouring_bytes_belong_to_different_threads():
    """Races are told per element, however small: in global and in shared memory."""
    x, out = np.arange(64, dtype=np.uint8), np.empty(64, np.uint8)
    text = kernel("__shared__ u8 s[64];\n  s[threadIdx.x] = x[threadIdx.x];\n  dd_sync();\n  out[threadIdx.x] = s[63 - threadIdx.x];",
                  "const u8* __restrict__ x, u8* __restrict__ out")
    for blocks in (1, 2):
        emulate(text, [Launch("k", ONE, (64, 1, 1), (Pointer("x"), Pointer("out")))], {"x": x, "out": out}, undefined={"out"})
        np.testing.assert_array_equal(out, x[::-1])


def test_tensors_are_read_and_written_in_place():
    x = torch.arange(64, dtype=torch.bfloat16)
    out = torch.empty(64, dtype=torch.bfloat16)
    body = "const u32 pair = x[threadIdx.x];\n  out[threadIdx.x] = dd_pack_bf16(dd_bf16(pair, 0) * 2.0f, dd_bf16(pair, 1) * 2.0f);"
    emulate(kernel(body, "const u32* x, u32* out"), [Launch("k", ONE, (32, 1, 1), (Pointer("x"), Pointer("out")))],
            {"x": x, "out": out}, undefined={"out"})
    assert torch.equal(out, 2 * x)


def test_a_strided_tensor_is_its_memory():
    x = torch.arange(64, dtype=torch.float32).reshape(8, 8)
    out = torch.empty(8)
    emulate(kernel("out[threadIdx.x] = x[threadIdx.x * 8];", "const float* x, float* out"),
            [Launch("k", ONE, (8, 1, 1), (Pointer("x"), Pointer("out")))], {"x": x[:, 3], "out": out}, undefined={"out"})
    assert torch.equal(out, x[:, 3])


def test_empty_arrays_and_offsets():
    x, out = np.arange(8, dtype=np.float32), np.zeros(2, np.float32)
    emulate(kernel("out[0] = x[0];", "const float* x, const float* none, float* out"),
            [Launch("k", ONE, ONE, (Pointer("x", 12), Pointer("none"), Pointer("out", 4)))],
            {"x": x, "none": np.empty(0, np.float32), "out": out})
    assert out.tolist() == [0, 3]


def test_numbers_as_arguments():
    out = np.zeros(3, np.float64)
    emulate(kernel("out[0] = n; out[1] = x;", "double* out, int n, float x"),
            [Launch("k", ONE, ONE, (Pointer("out"), -7, 0.1))], {"out": out})
    assert out.tolist() == [-7, np.float32(0.1), 0]


def test_half_types_of_numpy():
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x, out = np.arange(64).astype(dtype), np.empty(64, dtype)
        emulate(kernel("out[threadIdx.x] = x[63 - threadIdx.x];", "const u16* x, u16* out"),
                [Launch("k", ONE, (64, 1, 1), (Pointer("x"), Pointer("out")))], {"x": x, "out": out}, undefined={"out"})
        np.testing.assert_array_equal(out, x[::-1])
