"""A compiled program around hand-written kernels, on the emulation: facts, constants, memory, results."""
from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from deplodock.errors import BrokenFact, GradientWanted, UsageError
from deplodock.ir.cuda import CudaKernel, Param
from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis
from deplodock.ir.loop import Buffer, const, load
from deplodock.ir.plan import Kernel, Output, Plan
from deplodock.ir.torch import Node, Program, Value
from deplodock.runtime.program import CompiledProgram, Loadable

N = 48
M = Axis("m", N)
F32 = Dtype.f32


def buffer(name: str, kind: str, axes: tuple[Axis, ...] = (M,)) -> Buffer:
    return Buffer(name, F32, axes, kind)


def kernel(name: str, out: Buffer, reads: list[Buffer], expression: str) -> tuple[Kernel, CudaKernel]:
    """out[i] = expression over the names of reads, once as a term that reads them and once as text."""
    body = const(F32, 0)
    for r in reads:
        body = body + load(r, *r.axes)
    params = tuple(Param(b.name, b.name, F32, b is out) for b in (*reads, out))
    arguments = ", ".join(f"{'' if p.written else 'const '}float* __restrict__ {p.name}" for p in params)
    text = (f'extern "C" __global__ void {name}({arguments}) {{\n  const int i = threadIdx.x;\n'
            f"  if (i < {N}) {out.name}[i] = {expression};\n}}\n")
    grid = 0 if any(a.extent == 0 for a in out.axes) else 1
    return Kernel(name, (Output(out, out.axes, body),)), CudaKernel(name, text, "", grid, 64, 0, params, ())


def program(inputs, parameters, once, calls, outputs, results=None) -> Loadable:
    """outputs: buffers; results: the names of the program's own tensors that they are, if they have others."""
    value = lambda b: Value(b.name, F32, tuple(a.extent for a in b.axes), (1,) * len(b.axes))
    results = results or [b.name for b in outputs]
    nodes = tuple(Node(r, "add", (), tuple(a.extent for a in b.axes), F32) for r, b in zip(results, outputs)
                  if r not in {v.name for v in (*inputs, *parameters)})
    plan = Plan(tuple(inputs), tuple(parameters), tuple(k for k, _ in once), tuple(k for k, _ in calls), tuple(outputs))
    ir = Program(tuple(map(value, inputs)), tuple(map(value, parameters)), nodes, tuple(results))
    return Loadable(ir, plan, tuple(c for _, c in (*once, *calls)), "sm_80")


x, w = buffer("x", "input"), buffer("w", "parameter")
t, u, y, z = buffer("t", "stored"), buffer("u", "stored"), buffer("y", "output"), buffer("z", "output")
c, d = buffer("c", "constant"), buffer("d", "constant")


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.randn(N)


@pytest.fixture
def affine(weight) -> CompiledProgram:
    """y = 2 (x + 3 w), by way of a constant and an intermediate."""
    made = program([x], [w], [kernel("fold", c, [w], "3 * w[i]")],
                   [kernel("add", t, [x, c], "x[i] + c[i]"), kernel("twice", y, [t], "2 * t[i]")], [y])
    return CompiledProgram(made, {"w": weight}, "cpu")


def test_it_computes(affine, weight):
    given = torch.randn(N)
    (result,) = affine(given)
    assert torch.equal(result, 2 * (given + 3 * weight))


def test_results_stay_valid(affine, weight):
    a, b = torch.randn(N), torch.randn(N)
    (first,), (second,) = affine(a), affine(b)
    assert torch.equal(first, 2 * (a + 3 * weight)) and torch.equal(second, 2 * (b + 3 * weight))


def test_memory_is_told(affine):
    assert affine.memory == {"constants": 4 * N, "slab": 256}


def test_constants_follow_their_parameters(affine, weight):
    given = torch.randn(N)
    weight.mul_(2)
    assert torch.equal(affine(given)[0], 2 * (given + 3 * weight))
    weight.data = torch.ones(N)
    assert torch.equal(affine(given)[0], 2 * (given + 3))
    weight.data = torch.ones(N + 1)
    with pytest.raises(BrokenFact, match="w has another shape"):
        affine(given)


def test_a_parameter_that_is_replaced_is_seen(affine, weight):
    given = torch.randn(N)
    for _ in range(3):                       # freed memory comes back at the same address
        other = torch.randn(N)
        assert affine.hold({"w": other}) is None
        assert torch.equal(affine(given)[0], 2 * (given + 3 * other))
        del other
    assert "w has another dtype" in str(affine.hold({"w": weight.double()}))
    for _ in range(3):
        weight.data = torch.randn(N)
        affine.hold({"w": weight})
        assert torch.equal(affine(given)[0], 2 * (given + 3 * weight))


def test_parameters_that_count_no_versions_are_read_each_time():
    with torch.inference_mode():
        weight, given = torch.randn(N), torch.randn(N)
        made = program([x], [w], [kernel("fold", c, [w], "3 * w[i]")], [kernel("add", y, [x, c], "x[i] + c[i]")], [y])
        compiled = CompiledProgram(made, {"w": weight}, "cpu")
        weight.mul_(2)
        assert torch.equal(compiled(given)[0], given + 3 * weight)


def test_constants_beyond_the_limit_are_computed_at_each_call(weight):
    """e from d from c: with room for one of the two that calls read, d is kept and e computed anew, from d."""
    e, m = buffer("e", "constant"), buffer("m", "constant")
    once = [kernel("one", c, [w], "2 * w[i]"), kernel("two", d, [c], "c[i] + 1"), kernel("three", e, [d], "d[i] + 1"),
            kernel("four", m, [c], "-c[i]")]
    once[1] = replace(once[1][0], cost=2.0), once[1][1]
    made = program([x], [w], once, [kernel("add", y, [x, d, e, m], "x[i] + d[i] + e[i] + m[i]")], [y])
    given = torch.randn(N)
    for limit, recomputed, held in ((None, 0, 3), (4 * N, 3, 1), (0, 4, 0)):
        compiled = CompiledProgram(made, {"w": weight}, "cpu", limit=limit)
        assert compiled.recomputed == recomputed and compiled.memory["constants"] == held * 4 * N
        for _ in range(2):
            assert torch.allclose(compiled(given)[0], given + 2 * weight + 3)
            weight.add_(1)


def test_constants_are_computed_once(weight, monkeypatch):
    """Not even again when a parameter changes that none comes from."""
    b, bias = buffer("b", "parameter"), torch.randn(N)
    made = program([x], [w, b], [kernel("fold", c, [w], "3 * w[i]")], [kernel("add", y, [x, c, b], "x[i] + c[i] + b[i]")], [y])
    compiled, given, runs = CompiledProgram(made, {"w": weight, "b": bias}, "cpu"), torch.randn(N), []
    monkeypatch.setattr(compiled._once, "run", lambda tensors: runs.append(tensors))
    for _ in range(2):
        bias.mul_(2)
        assert torch.equal(compiled(given)[0], given + 3 * weight + bias)
    assert runs == []


@pytest.mark.parametrize("wrong, fact, wanted, given", [
    (torch.randn(N + 1), "shape", "(48,)", "(49,)"),
    (torch.randn(N, dtype=torch.float64), "dtype", "torch.float32", "torch.float64"),
    (torch.randn(2 * N)[::2], "strides", "(1,)", "(2,)"),
    (torch.randn(N, device="meta"), "device", "cpu", "meta"),
])
def test_broken_facts_are_named(affine, wrong, fact, wanted, given):
    with pytest.raises(BrokenFact) as raised:
        affine(wrong)
    assert str(raised.value).splitlines() == [
        f"x has another {fact} than the program was compiled for", f"  expected: {wanted}", f"  found:    {given}",
        "  to do:    pass such a tensor, or compile the program for this one"]


def test_a_misaligned_input_is_named(affine):
    with pytest.raises(BrokenFact, match="another alignment"):
        affine(torch.randn(N + 1)[1:])


def test_strides_of_one_element_do_not_matter():
    one = Axis("one", 1)
    a, b = buffer("a", "input", (M, one)), buffer("b", "output", (M, one))
    made = program([a], [], [], [kernel("copy", b, [a], "a[i]")], [b])
    made = Loadable(Program((Value("a", F32, (N, 1), (1, 1)),), (), (Node("b", "add", (), (N, 1), F32),), ("b",)), made.plan,
                    made.kernels, made.arch)
    given = torch.randn(N, 7)[:, :1].contiguous().as_strided((N, 1), (1, 7))
    assert torch.equal(CompiledProgram(made, {}, "cpu")(given)[0], given)


def test_the_number_of_inputs_is_checked(affine):
    with pytest.raises(UsageError, match="wrong number of inputs"):
        affine()


def test_gradients_are_refused_where_they_would_be_lost(affine):
    given = torch.randn(N, requires_grad=True)
    with pytest.raises(GradientWanted, match="input x requires a gradient"):
        affine(given)
    with torch.no_grad():
        affine(given)


def test_an_input_that_is_returned_is_a_copy():
    made = program([x], [], [], [kernel("twice", y, [x], "2 * x[i]")], [y, x])
    given = torch.randn(N)
    doubled, same = CompiledProgram(made, {}, "cpu")(given)
    assert torch.equal(same, given) and same.data_ptr() != given.data_ptr() and torch.equal(doubled, 2 * given)


def test_two_results_in_one_buffer_are_two_tensors():
    made = program([x], [], [], [kernel("twice", y, [x], "2 * x[i]")], [y, y, y], ["p", "q", "p"])
    p, q, again = CompiledProgram(made, {}, "cpu")(torch.randn(N))
    assert torch.equal(p, q) and p.data_ptr() != q.data_ptr() and again.data_ptr() == p.data_ptr()


def test_constants_and_parameters_that_are_returned(weight):
    made = program([], [w], [kernel("fold", c, [w], "3 * w[i]"), kernel("unused", d, [w], "w[i]")], [], [c, w])
    compiled = CompiledProgram(made, {"w": weight}, "cpu")
    folded, same = compiled()
    folded.zero_()
    assert torch.equal(compiled()[0], 3 * weight) and torch.equal(same, weight)
    assert compiled.memory["constants"] == 4 * N, "what nobody reads is not kept"


def test_nothing_to_do():
    none = Axis("none", 0)
    a, b = buffer("a", "input", (none,)), buffer("b", "output", (none,))
    made = program([a], [], [], [kernel("copy", b, [a], "a[i]")], [b])
    assert CompiledProgram(made, {}, "cpu")(torch.empty(0))[0].shape == (0,)
