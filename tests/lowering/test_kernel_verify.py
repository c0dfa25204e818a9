"""The verifier of Kernel IR: programs with one thing wrong, and what it says of each."""
from __future__ import annotations

import pytest

from deplodock.ir.cuda import Param
from deplodock.ir.dtype import Dtype
from deplodock.ir.expression import Address, Binary, Element, Int, Name, Pointer, call
from deplodock.ir.kernel import Array, Do, If, Kernel, Let, Loop, Roles, Set, Span, Variable
from deplodock.ir.kernel_verify import MalformedKernel, verify_kernel

LANE, WARP, THREAD, R = Name("lane", 32), Name("warp", 4), Name("thread", 128), Name("r", 4)
X, Y = Param("x", "x", Dtype.f32, False), Param("y", "y", Dtype.f32, True)
TILE = Span("tile", 0, 2048)


def kernel(*body, spans=(TILE,), shared=2048, threads=128):
    return Kernel("k", (X, Y), (), 1, threads, 1, shared, spans, body)


def do(name, *args, template=()):
    return Do(call(name, *args, template=template))


def each(*body, n=4):
    return Loop("r", Int(0), Int(n), Int(1), body, True)


COPY = do("dd_cp_async16", Name("tile") + THREAD * 16, Pointer("x", THREAD * 4))
WAIT, SYNC, COMMIT = do("dd_cp_async_wait", template=(0,)), do("dd_sync"), do("dd_cp_async_commit")
READ = do("dd_lds16", Address("a", Int(0)), Name("tile") + THREAD * 16)
A = Array("a", "float", 4)
STORE = do("dd_stg16", Pointer("y", THREAD * 4), Address("a", Int(0)))


def test_a_right_program_passes():
    verify_kernel(kernel(COPY, COMMIT, WAIT, SYNC, A, READ, each(Set(Element("a", R), Element("a", R), "+")), STORE))


WRONG = {
    "a name before its definition": (kernel(Let("i", "int", Name("j")), Let("j", "int", Int(0))), "j is used before"),
    "a name twice": (kernel(Let("i", "int", Int(0)), Let("i", "int", Int(1))), "i is defined twice"),
    "a name of an inner block": (kernel(If(Binary("==", LANE, Int(0)), (Let("i", "int", Int(0)),)),
                                        Let("j", "int", Name("i"))), "i is used before"),
    "a register too far": (kernel(A, Let("v", "float", Element("a", R)), ), "r is used before"),
    "an index past the end": (
        kernel(A, Loop("r", Int(0), Int(5), Int(1), (Set(Element("a", Name("r", 5)), Int(0)),), True)),
        "may lie outside of 4 registers"),
    "a fragment that is too small": (
        kernel(Array("f", "u32", 2), do("dd_ldmatrix_x4", Address("f", Int(0)), Name("tile"))),
        "may lie outside of 2 registers"),
    "a fragment of another type": (kernel(A, do("dd_ldmatrix_x4", Address("a", Int(0)), Name("tile"))), "is to be u32"),
    "16 bytes into 3 floats": (
        kernel(Array("b", "float", 3), do("dd_ldg16", Address("b", Int(0)), Pointer("x", Int(0)))),
        "may lie outside of 3 registers"),
    "an unknown primitive": (kernel(do("dd_magic")), "no primitive is called dd_magic"),
    "too few arguments": (kernel(do("dd_cp_async16", Name("tile"))), "takes 2 arguments"),
    "an input that is written": (
        kernel(A, do("dd_stg16", Pointer("x", Int(0)), Address("a", Int(0)))), "writes its outputs"),
    "an output that is read": (
        kernel(A, do("dd_ldg16", Address("a", Int(0)), Pointer("y", Int(0)))), "writes its outputs"),
    "a span past the allocation": (kernel(COPY, shared=1024), "lies outside of 1024 bytes"),
    "two spans in one place": (kernel(A, COPY, do("dd_sts4", Name("other"), Address("a", Int(0))), COPY,
                                      spans=(TILE, Span("other", 1024, 512))), "overlap in memory"),
    "two spans of one loop in one place": (
        kernel(A, Loop("i", Int(0), Int(3), Int(1), (do("dd_sts4", Name("tile"), Address("a", Int(0))),
                                                      do("dd_sts4", Name("other"), Address("a", Int(0)))), False),
               spans=(TILE, Span("other", 0, 512))), "overlap in memory"),
    "a barrier for some threads": (kernel(If(Binary("<", LANE, Int(16)), (SYNC,))), "dd_sync()"),
    "a barrier for some warps": (kernel(If(Binary("==", WARP, Int(0)), (SYNC,))), "dd_sync()"),
    "a barrier under a loop that threads leave at different times": (
        kernel(Loop("i", Int(0), LANE, Int(1), (SYNC,), False)), "dd_sync()"),
    "a barrier under a variable that threads set": (
        kernel(Variable("v", "int", Int(0)), Set(Name("v"), LANE), If(Binary("==", Name("v"), Int(0)), (SYNC,))),
        "dd_sync()"),
    "a shuffle for some lanes": (kernel(A, If(Binary("<", LANE, Int(16)), (
        Set(Element("a", Int(0)), call("dd_shfl_xor", Element("a", Int(0)), 1)),))), "dd_shfl_xor"),
    "wgmma for a warp": (kernel(If(Binary("==", WARP, Int(0)), (do("dd_wgmma_fence"),))), "dd_wgmma_fence"),
    "a block barrier inside a role": (kernel(Roles(96, (SYNC,), ())), "inside a role"),
    "a barrier of too many": (kernel(Roles(96, (do("dd_bar", 1, 128 + 32),), ())), "neither 96 threads nor"),
    "a copy that is not waited for": (kernel(COPY, COMMIT, SYNC, A, READ), "before a wait for it"),
    "a copy without a meeting": (kernel(COPY, COMMIT, WAIT, A, READ), "before the threads have met"),
    "a copy that the next round reads": (
        kernel(A, Loop("i", Int(0), Int(3), Int(1), (READ, COPY, COMMIT), False)), "before a wait for it"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name):
    program, wanted = WRONG[name]
    with pytest.raises(MalformedKernel) as error:
        verify_kernel(program)
    assert wanted in str(error.value)


def test_what_warps_agree_on_may_meet():
    verify_kernel(kernel(If(Binary("==", WARP, Int(0)), (do("dd_syncwarp"),)),
                         If(Binary("==", WARP // 4, Int(0)), (do("dd_wgmma_fence"), do("dd_bar", 2, 128))),
                         Roles(96, (do("dd_bar", 1, 96),), (do("dd_regs_dec", template=(40,)),))))


def test_what_one_part_reads_and_then_writes_may_lie_in_one_place():
    fill, other = do("dd_sts4", Name("tile"), Address("a", Int(0))), do("dd_sts4", Name("other"), Address("a", Int(0)))
    verify_kernel(kernel(A, If(Binary("==", Name("block", 2), Int(0)), (fill, SYNC, other)),
                         spans=(TILE, Span("other", 0, 512))))
