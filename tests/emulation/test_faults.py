"""Each fault planted in a correct kernel is reported, with its kind and the line, in every schedule tried.

A fault is an edit of the kernel's text. Whether the result comes out right is not looked at: many of these faults leave it
right on this machine, on this schedule, and that is why they need a check.
"""
import re

import pytest

from deplodock.errors import EmulationFault
from tests.emulation.cases import CASES

Edit = tuple[str, str, int]


def edit(old: str, new: str, which: int = 0) -> Edit:
    """Replaces one occurrence of `old`, counted from 0."""
    return old, new, which


def drop(old: str, which: int = 0) -> Edit:
    return edit(old, "", which)


# fault: kernel, the kinds of report that name it, edits
PLANTED = {
    # ---- barriers and shared memory
    "barrier missing after a reduction": ("rmsnorm", "race", [drop("  __syncthreads();\n")]),
    "barrier missing before a tile is read": ("matmul", "race", [drop("    __syncthreads();\n")]),
    "barrier missing before a tile is overwritten": ("matmul", "race", [drop("    __syncthreads();\n", 1)]),
    "warp barrier missing": ("reverse", "race", [drop("  dd_syncwarp();\n")]),
    "shared memory never written": ("rmsnorm", "uninitialised", [edit("% 32 == 0)", "% 32 == 0 && threadIdx.x < 224)")]),
    "static shared index out of range": ("rmsnorm", "bounds", [edit("part[threadIdx.x % 8]", "part[threadIdx.x % 9]")]),
    "register index out of range": ("mma", "bounds", [edit("d[i][j][3]", "d[i][j][4 + k0]"), edit("int m0 =", "int k0 = K % 2, m0 =")]),
    "dynamic shared memory exceeded": ("mma", "bounds", [edit("at(k % 3, 0, row", "at(k % 4, 0, row")]),
    "two barriers in two branches": ("matmul", "branch", [
        edit("    __syncthreads();\n", "    if (threadIdx.x < 128) __syncthreads();\n    else\n      __syncthreads();\n")]),
    "barrier skipped by one warp": ("matmul", "race", [edit("    __syncthreads();\n", "    if (threadIdx.x >= 32) __syncthreads();\n")]),
    "shuffle by half of its lanes": ("rmsnorm", "deadlock", [edit("m >>= 1) sum +=", "m >>= 1) if (threadIdx.x % 32 < 16) sum +=")]),
    "shuffle in two branches": ("rmsnorm", "branch", [
        edit("m >>= 1) sum +=", "m >>= 1) if (threadIdx.x % 2) sum += dd_shfl_xor(sum, m);\nelse sum +=")]),
    "atomic and plain access to shared memory": ("splitk", "race", [
        edit("  if (t == 0) {\n", "  if (t == 1) last = 0;\n  if (t == 0) {\n")]),
    # ---- global memory
    "global read past the end": ("add", "bounds", [edit("i < n", "i <= n")]),
    "global read before the beginning": ("add", "bounds", [edit("x[i]", "x[i - 1]")]),
    "read of an output that nobody wrote": ("splitk", "uninitialised", [edit("partial[row * 3 + 2]", "partial[row * 3 + 2] + y[row]")]),
    "two blocks write one element": ("add", "global", [edit("blockIdx.x * 256", "blockIdx.x * 255")]),
    "two threads write one element": ("add", "global", [edit("z[i] =", "z[i & ~1] =")]),
    "fence missing before an atomic": ("splitk", "global", [drop("    __threadfence();\n")]),
    "fence missing after an atomic": ("splitk", "global", [drop("    __threadfence();\n", 1)]),
    "partial sums read before they are counted": ("splitk", "global", [edit("== 2", "== 0")]),
    "write to what is declared const": ("add", "const", [edit("z[i] =", "((float*)x)[i] = z[i] =")]),
    "read through the read-only path of what was written": ("rmsnorm", "global", [
        edit("    float w[4];\n", "    float w[4];\n    if (i) dd_ldg16(w, y + blockIdx.x * 2048 + 4 * threadIdx.x);\n")]),
    "vector load off its alignment": ("rmsnorm", "misaligned", [edit("row + 16 *", "row + 4 + 16 *")]),
    "null pointer": ("add", "bounds", [edit("y[i]", "(i == 77 ? *(const volatile float*)nullptr : y[i])")]),
    # ---- cp.async, ldmatrix, mma.sync
    "cp.async waited for one group too late": ("mma", "race", [edit("wait<1>", "wait<2>")]),
    "cp.async not waited for": ("mma", "race", [drop("    dd_cp_async_wait<1>();\n")]),
    "cp.async not followed by a barrier": ("mma", "race", [drop("    dd_sync();\n")]),
    "cp.async one stage too far ahead": ("mma", "race", [edit("if (k + 2 < steps) load(k + 2)", "if (k + 3 < steps) load(k + 3)")]),
    "cp.async off its alignment": ("mma", "misaligned", [edit("a + (m0 + row)", "a + 1 + (m0 + row)")]),
    "ldmatrix rows off their alignment": ("mma", "misaligned", [edit("dd_ldmatrix_x4(fa[i], at", "dd_ldmatrix_x4(fa[i], 8 + at")]),
    "ldmatrix by half of a warp": ("mma", "branch", [edit("dd_ldmatrix_x4(fa", "if (lane < 16) dd_ldmatrix_x4(fa")]),
    # ---- mbarriers and TMA
    "mbarrier not waited for": ("gemm", "race", [drop("      dd_mbar_wait(full + 8 * slot, phase);\n")]),
    "producer does not wait": ("gemm", "mbarrier", [drop("          dd_mbar_wait(empty + 8 * slot, phase ^ 1);\n")]),
    "producer's first parity wrong": ("gemm", "deadlock", [edit("phase ^ 1)", "phase)")]),
    "consumer's phase not flipped": ("gemm", "race", [edit("slot = 0; phase ^= 1;", "slot = 0;", 1)]),
    "one arrival too many expected": ("gemm", "deadlock", [edit("dd_mbar_init(empty + 8 * i, 2)", "dd_mbar_init(empty + 8 * i, 3)")]),
    "fewer bytes expected than copied": ("gemm", "expect_tx", [edit("dd_mbar_expect_tx(full + 8 * slot, 24576)", "dd_mbar_expect_tx(full + 8 * slot, 24448)")]),
    "one of two copies expected": ("gemm", "expect_tx", [edit("slot, 24576)", "slot, 16384)")]),
    "more bytes expected than copied": ("gemm", "deadlock", [edit("slot, 24576)", "slot, 24704)")]),
    "initialisation not fenced": ("gemm", "proxy", [drop("    dd_mbar_init_fence();\n")]),
    "initialisation not followed by a barrier": ("gemm", "race mbarrier", [drop("  dd_sync();\n")]),
    "plain write to an mbarrier": ("gemm", "mbarrier", [edit("  u32 slot = 0,", "  if (t == 300) dd_sts_half(full, 0);\n  u32 slot = 0,")]),
    "swizzled box off its alignment": ("gemm", "tma", [edit("smem = dd_shared()", "smem = dd_shared() + 128")]),
    "stage given back before its product is done": ("gemm", "race", [drop("      dd_wgmma_wait<1>();\n")]),
    "operand's stage overlaps the staging tile": ("gemm", "race", [edit("smem + 3 * 24576", "smem + 2 * 24576")]),
    "store's tile not fenced": ("gemm", "proxy", [drop("    dd_fence_async();\n")]),
    "store's tile fenced by one thread": ("gemm", "proxy", [edit("    dd_fence_async();\n", "    if (t % 128 == 0) dd_fence_async();\n")]),
    "store's tile fenced after the barrier": ("gemm", "proxy", [
        edit("    dd_fence_async();\n    dd_bar(1 + group, 128);\n", "    dd_bar(1 + group, 128);\n    dd_fence_async();\n")]),
    "named barrier missing before a store": ("gemm", "race", [drop("    dd_bar(1 + group, 128);\n", 1)]),
    "staging tile reused before the store has read it": ("gemm", "race", [drop("    if (t % 128 == 0) dd_tma_store_wait_read();\n")]),
    "store not waited for at the end": ("gemm", "tma", [edit("  }\n  if (t % 128 == 0) dd_tma_store_wait_read();\n", "  }\n")]),
    "named barrier with another count": ("gemm", "deadlock", [edit("dd_bar(1 + group, 128)", "dd_bar(1 + group, 256)", 0)]),
    "two named barriers of one name": ("gemm", "barrier", [edit("dd_bar(1 + group, 128)", "dd_bar(1, 128 + 32 * group)", 0)]),
    "block barrier inside a role": ("gemm", "deadlock", [edit("  float d[32];\n", "  float d[32];\n  dd_sync();\n")]),
    "register budgets do not add up": ("gemm", "deadlock", [edit("dd_regs_dec<40>", "dd_regs_dec<56>")]),
    # ---- wgmma
    "wgmma not fenced": ("gemm", "wgmma", [drop("      dd_wgmma_fence();\n")]),
    "wgmma not committed": ("gemm", "wgmma", [drop("      dd_wgmma_commit();\n")]),
    "accumulators read before the last wait": ("gemm", "wgmma", [edit("dd_wgmma_wait<0>", "dd_wgmma_wait<1>")]),
    "accumulator scaled while in flight": ("gemm", "wgmma", [edit("dd_wgmma_commit();", "dd_wgmma_commit(); d[3] *= 0.5f;")]),
    "accumulator scaled after the fence": ("gemm", "wgmma", [edit("dd_wgmma_fence();", "dd_wgmma_fence(); d[3] *= 0.5f;")]),
    "descriptor off its swizzle atom": ("gemm", "wgmma", [edit("dd_descriptor(stage + 16384,", "dd_descriptor(stage + 16384 + 128,")]),
    "warps pass different descriptors": ("gemm", "wgmma", [edit("dd_descriptor(stage + group * 8192", "dd_descriptor(stage + warp * 2048")]),
    "A fragments packed after the fence": ("attend", "wgmma", [drop("  dd_wgmma_fence();\n", 1)]),
    "A fragment overwritten while in flight": ("attend", "wgmma", [edit("dd_wgmma_commit();", "dd_wgmma_commit();\n  p[3][1] = 0;", 1)]),
    "operand by cp.async not fenced": ("attend", "proxy", [drop("  dd_fence_async();\n")]),
    # ---- clusters
    "block barrier in place of a cluster's": ("cluster", "mbarrier", [edit("  cluster_sync();\n", "  dd_sync();\n")]),
    "block leaves while its cluster needs it": ("cluster", "mbarrier", [drop("  cluster_sync();\n", 1)]),
    "stage given back to one block only": ("cluster", "deadlock", [edit("arrive_at(empty, 0)", "arrive_at(empty, rank)")]),
    "stage given back without a proxy fence": ("cluster", "proxy", [drop("    dd_fence_async();\n")]),
}


def plant(text: str, edits: list[Edit]) -> str:
    for old, new, which in edits:
        at = [m.start() for m in re.finditer(re.escape(old), text)]
        assert len(at) > which, f"{old!r} occurs {len(at)} times"
        text = text[:at[which]] + new + text[at[which] + len(old):]
    return text


@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault_is_reported(name):
    kernel, kinds, edits = PLANTED[name]
    case = CASES[kernel]
    text = plant(case.text, edits)
    for seed in range(2):
        with pytest.raises(EmulationFault) as caught:
            case.run(text, seed=seed)
        expected = [f for f in caught.value.faults if f.kind in kinds.split()]
        assert expected, caught.value.faults
        assert expected[0].kernel == case.launch.kernel
        assert expected[0].line is not None and expected[0].text in text
