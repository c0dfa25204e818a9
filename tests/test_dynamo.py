"""torch.compile(.., backend="deplodock"): on the emulation, against eager."""
from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import deplodock
from deplodock import dynamo
from deplodock.dynamo import EagerWarning, Report


@pytest.fixture(autouse=True)
def report(monkeypatch) -> Report:
    """What happens in one test only."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    monkeypatch.setattr(dynamo, "REPORT", Report())
    yield dynamo.REPORT
    torch._dynamo.reset()


def compiled(function, **options):
    return torch.compile(function, backend=deplodock.backend, options={"fallback": False, **options})


def same(a, b) -> bool:
    return torch.allclose(a, b, rtol=1e-5, atol=1e-6)


class Net(nn.Module):
    """A norm before a product: its weight is folded into a constant. Writes to a buffer and to an argument."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.RMSNorm(4), nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x, cache=None):
        y = self.linear(self.norm(x))
        self.calls.add_(1)
        if cache is not None:
            cache[:, 0] = y[:, 0]
        return {"y": y, "flat": x.view(-1), "x": x, "n": x.shape[0]}


@torch.no_grad()
def test_parameters_writes_and_views(report):
    net = Net().eval()
    run, twin = compiled(net), copy.deepcopy(net)
    steps = [lambda m, w: None, lambda m, w: m.linear.weight.mul_(2), lambda m, w: setattr(m.norm, "weight", nn.Parameter(w)),
             lambda m, w: setattr(m.linear.weight, "data", w.expand(3, 4).contiguous())]
    for step in steps:
        x, cache, w = torch.randn(2, 4), torch.zeros(2, 3), torch.rand(4) + 0.5
        step(net, w), step(twin, w)
        other = cache.clone()
        found, wanted = run(x, cache), twin(x, other)
        assert same(found["y"], wanted["y"]) and same(cache, other) and torch.equal(net.calls, twin.calls)
        assert found["x"] is x and found["flat"].data_ptr() == x.data_ptr() and found["n"] == 2
    assert report.counters["programs"] == report.counters["graphs"] == 1 and report.counters["fallbacks"] == 0
    (piece,) = report.graphs[0].pieces
    (variant,) = piece.variants
    assert variant.calls == len(steps) and variant.program.memory["constants"] > 0


@torch.no_grad()
def test_writes_to_memory_that_only_a_later_call_sees_twice(report):
    def function(x, y):
        x.add_(1)
        y[0] = 3
        return x * 2
    run = torch.compile(function, backend=deplodock.backend)
    run(torch.ones(3), torch.ones(3))
    for views in (lambda b: (b[:3], b[:3]), lambda b: (b[:3], b[2:5])):
        ours, theirs = torch.arange(6.0), torch.arange(6.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EagerWarning)
            assert torch.equal(run(*views(ours)), function(*views(theirs))) and torch.equal(ours, theirs)
    assert "same memory" in report.fallbacks[0] and len(report.fallbacks) == 1


def test_gradients_that_a_program_takes_itself(report):
    def function(x):
        return torch.func.grad(lambda r: r.sin().sum())(x) * 2
    x = torch.randn(3)
    with pytest.warns(EagerWarning, match="gradients in the program"):
        assert same(torch.compile(function, backend=deplodock.backend)(x), 2 * x.cos())
    with torch.no_grad():
        assert same(compiled(function)(x), 2 * x.cos())


def test_outputs_that_are_views_of_each_other_share_their_memory(report):
    def function(x):
        y = x.sin() * 2
        return y[1:, ::2], y, y.t(), y + 1, y
    x = torch.randn(3, 4)
    found, wanted = compiled(function)(x), function(x)
    for results in (found, wanted):
        results[1].add_(1)
        results[2][0, 2] = 7
    assert all(map(same, found, wanted)) and found[1] is found[4]


@torch.no_grad()
def test_constants_are_computed_once(report, monkeypatch):
    net = Net().eval()
    run = compiled(net)
    run(torch.randn(2, 4))
    (piece,) = report.graphs[0].pieces
    runs = []
    monkeypatch.setattr(piece.variants[0].program._once, "run", lambda tensors: runs.append(tensors))
    run(torch.randn(2, 4))
    assert runs == []


def test_recompiles_are_counted_and_explained(report):
    run = compiled(lambda x, n: x.sin() * n)
    for x in (torch.randn(2, 4), torch.randn(3, 4), torch.randn(3, 4).double(), torch.randn(3, 5)[:, 1:]):
        assert torch.allclose(run(x, 2.0), x.sin() * 2)
    assert same(run(torch.ones(2, 4), 3.0), torch.ones(2, 4).sin() * 3)
    assert report.counters["recompiles"] == 4 and report.counters["graphs"] == 5
    said = [g.reason for g in report.graphs]
    assert said[:3] == ["first", "L_x_ is float32[3, 4], strides [4, 1], cpu, and not float32[2, 4], strides [4, 1], cpu",
                        "L_x_ is float64[3, 4], strides [4, 1], cpu, and not float32[3, 4], strides [4, 1], cpu"]
    assert "strides [5, 1]" in said[3] and str(report).splitlines()[0].startswith("5 graphs, 4 recompiles, 5 programs")


def test_numbers_and_modes_explain_recompiles_too(report):
    run, x = compiled(lambda x, n: x.sin() * n), torch.randn(2, 4)
    for n in (2, 3, 5):
        assert same(run(x, n), x.sin() * n)
    with torch.no_grad():
        run(x, 5)
    assert [g.reason for g in report.graphs] == ["first", "L_n_ is 3, and was part of the graph", "L_n_ is 5, and not 3",
                                                 "grad mode is off, and not on"]


def test_threads_may_compile_at_the_same_time(report):
    """PyTorch's tables of operators are changed while one of them traces."""
    run = compiled(lambda x: x.sin() + 1)
    inputs = [torch.randn(n, 3) for n in (2, 3, 4)]
    with ThreadPoolExecutor(len(inputs)) as pool:
        assert all(same(found, x.sin() + 1) for found, x in zip(pool.map(run, inputs), inputs))


def test_what_dynamo_does_not_guard_is_another_variant(report):
    run = compiled(torch.cos)
    for x in (torch.randn(8), torch.randn(9)[1:], torch.randn(8)):
        assert same(run(x), x.cos())
    (piece,) = report.graphs[0].pieces
    assert [v.calls for v in piece.variants] == [2, 1] and "another alignment" in piece.variants[1].reason


def step(run, module, *inputs, **context):
    """Gradients of a loss by every parameter and input that wants one."""
    module.zero_grad()
    inputs = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    with torch.autocast("cpu", torch.bfloat16, enabled=context.get("autocast", False)):
        outputs = run(*inputs)
    sum(y.float().pow(2).sum() for y in outputs if y.requires_grad).backward()
    return outputs, [None if t.grad is None else t.grad.clone() for t in (*module.parameters(), *inputs)]


class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.idle = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(2, 2)

    def forward(self, x, y):
        h = self.two(F.gelu(self.one(x)) + y)
        return h, h.argmax(-1), h.detach() + 1, y * 2


@pytest.mark.parametrize("autocast", [False, True], ids=["f32", "autocast"])
def test_gradients_are_those_of_eager(report, autocast):
    module, x, y = Trained(), torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    run = compiled(module)
    for _ in range(2):
        found, ours = step(run, module, x, y, autocast=autocast)
        wanted, theirs = step(module, module, x, y, autocast=autocast)
        assert [t.requires_grad for t in found] == [t.requires_grad for t in wanted] == [True, False, False, False]
        for a, b in zip(ours, theirs, strict=True):
            assert (a is None) == (b is None) and (a is None or torch.allclose(a, b, rtol=1e-4, atol=2e-2 if autocast else 1e-5))
    assert report.counters["programs"] == 1 and report.counters["fallbacks"] == 0


def test_gradients_of_gradients(report):
    def penalty(run):
        x = torch.linspace(0, 1, 6).requires_grad_()
        (gradient,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        (gradient.pow(2).sum() + run(x).sum()).backward()
        return x.grad
    assert same(penalty(compiled(lambda x: x.sin() * x)), penalty(lambda x: x.sin() * x)) and report.counters["programs"] == 1


def eager(function, *inputs, **options):
    """What torch.compile gives where parts fall back, and the warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = torch.compile(function, backend=deplodock.backend, options=options)(*inputs)
    return found, [str(w.message) for w in said if w.category is EagerWarning]


def test_gradients_of_graphs_that_write_to_inputs_are_eagers(report):
    def function(x, cache):
        cache.mul_(2)
        return x * cache
    x, cache = torch.randn(3, requires_grad=True), torch.ones(3)
    found, said = eager(function, x, cache)
    found.sum().backward()
    assert torch.equal(x.grad, cache) and torch.equal(cache, torch.full((3,), 2.0)) and len(said) == 1


def test_only_what_is_not_supported_runs_in_eager_mode(report, golden):
    def function(x):
        a = x.sin() + 1
        b = torch.sort(a)[0] * 2
        return torch.sort(b)[0].exp(), a.cos()
    x = torch.randn(2, 4)
    found, said = eager(function, x)
    assert all(map(same, found, function(x))) and report.counters["kernels"] >= 3 and report.counters["fallbacks"] == 2
    assert len(said) == len(report.fallbacks) == 2                     # one for each line of the program
    golden("errors/eager-part.txt", re.sub(r"/\S+:\d+", "FILE:LINE", said[0]))


def test_what_capture_or_the_compiler_stops_at_runs_in_eager_mode(report, monkeypatch):
    from deplodock.capture.operators import TABLE
    from deplodock.errors import UnsupportedOperator
    def refuse(call):
        raise UnsupportedOperator(call.source, op=f"{call.op}, in this form")
    monkeypatch.setitem(TABLE, "tanh.default", refuse)
    x = torch.randn(4)
    found, said = eager(lambda x: (x.sin() + 1).tanh() * 2, x)
    assert same(found, (x.sin() + 1).tanh() * 2) and "in this form" in said[0] and report.counters["programs"] == 2
    monkeypatch.setattr("deplodock.api.loadable", lambda *_: 1 / 0)
    found, said = eager(lambda x: x.sin(), x)
    assert same(found, x.sin()) and "ZeroDivisionError" in said[0] and "bug of deplodock" in said[0]


def test_training_and_random_numbers_run_in_eager_mode(report):
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    twin, x = copy.deepcopy(module), torch.randn(8, 4)
    torch.manual_seed(1)
    found, said = eager(module, x)
    torch.manual_seed(1)
    assert torch.equal(found, twin(x)) and torch.equal(module[1].running_mean, twin[1].running_mean) and "training mode" in said[0]
    found.sum().backward()
    assert module[0].weight.grad is not None
    torch.manual_seed(1)
    found, said = eager(lambda x: x + torch.rand_like(x), x)
    torch.manual_seed(1)
    assert torch.equal(found, x + torch.rand_like(x)) and "random numbers" in said[0]


def test_options(report, golden):
    x = torch.randn(4).bfloat16()
    compiled(lambda x: (x.exp() + 1).sin(), numerics="strict", target="a100")(x)
    compilation = report.graphs[0].pieces[0].variants[0].compilation
    assert compilation.numerics == "strict" and compilation.target.name == "a100"
    with pytest.raises(Exception) as error:
        compiled(torch.sin, colour="red")(x)
    golden("errors/unknown-backend-option.txt", str(error.value).split("\n\nSet TORCHDYNAMO")[0])
    with pytest.raises(Exception, match="unknown target 'abacus'"):
        torch.compile(torch.sin, backend=deplodock.backend, options={"target": "abacus"})(x)
    with pytest.raises(Exception, match="unsupported operator aten.sort"):
        compiled(lambda x: torch.sort(x)[0])(x)


PROGRAM = """
import sys, torch
f = torch.compile(lambda x: x * 2 + 1, backend="deplodock")
x = torch.arange(4.0)
assert torch.equal(f(x), x * 2 + 1)
print(sys.modules["deplodock"].explain().counters["programs"])
"""


def test_the_entry_point(root, tmp_path):
    """As after an installation: torch finds the backend by its name, with no import of ours."""
    import tomllib
    (name, value), = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"]["torch_dynamo_backends"].items()
    info = tmp_path / "deplodock-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deplodock\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{name} = {value}\n")
    paths = os.pathsep.join([str(tmp_path), str(root)])
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout == "1\n", ran.stderr


def test_gradients_that_are_wanted_later(report):
    """Dynamo of torch 2.11 keeps a graph whose parameters come to require gradients."""
    x, w = torch.randn(3, 4), torch.randn(4, 2)
    made = []
    torch.compile(lambda x, w: F.silu(x @ w), backend=lambda gm, given: made.append(deplodock.backend(gm, given)) or made[0])(x, w)
    call, = made
    assert not call(x, w)[0].requires_grad
    a, b = (w.clone().requires_grad_() for _ in range(2))
    with pytest.warns(EagerWarning, match="compiled when nothing required any"):
        call(x, a)[0].sum().backward()
    F.silu(x @ b).sum().backward()
    assert torch.allclose(a.grad, b.grad)
    with torch.no_grad():
        assert not call(x, a)[0].requires_grad


def test_numbers_that_become_tensors(report):
    """Their lift_fresh_copy has a row of its own: torch.export has none left."""
    x = torch.randn(3, 4)
    assert same(compiled(lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0]))(x), x * torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert report.counters["fallbacks"] == 0
