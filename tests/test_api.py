"""deplodock.compile: what it takes, what it gives back, and what it refuses."""
from __future__ import annotations

import functools
import re
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode

import deplodock
from deplodock.api import Compiled, Options
from deplodock.capture import capture_module
from deplodock.errors import (BrokenFact, GradientWanted, OverlappingWrite, TooManyVariants, TrainingMode, UnknownTarget,
                              UsageError, WrongDtype)

X, Y = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)), torch.arange(8.0)


def same(a, b) -> bool:
    return torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_package_loads_nothing_heavy():
    text = "import sys, deplodock; print(sorted(set(sys.modules) & {'torch', 'egglog', 'numpy', 'cuda', 'click'}))"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("numerics", ["strict", "default", "fast"])
def test_a_module(numerics):
    module = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 5), nn.GELU()).eval()
    compiled = deplodock.compile(module, X, numerics=numerics)
    with torch.no_grad():
        assert same(compiled(X), module(X))
        module[1].weight.mul_(2)
        assert same(compiled(X), module(X))              # parameters are read where they are
    assert not compiled(X).requires_grad


def test_what_the_module_returns():
    def function(x, scale, *, pair):
        return {"sum": x + pair[0], "none": None, "list": [x * scale, (pair[1],)], "twice": x * scale}
    arguments = dict(pair=(Y, Y + 1))
    compiled = deplodock.compile(function, (X, 3.0), arguments)
    found, wanted = compiled(X, 3.0, **arguments), function(X, 3.0, **arguments)
    assert list(found) == list(wanted) and found["none"] is None and isinstance(found["list"][1], tuple)
    assert same(found["sum"], wanted["sum"]) and same(found["list"][0], wanted["list"][0])
    assert torch.equal(found["list"][1][0], Y + 1) and same(found["twice"], found["list"][0])
    found["list"][0].zero_()                             # no two results, and no argument, share memory
    found["list"][1][0].zero_()
    assert same(found["twice"], wanted["twice"]) and arguments["pair"][1][1] == 2


class Cache(nn.Module):
    """Writes to an input, to a buffer that it reads, and to one that it only writes to."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("last", torch.zeros(3, 8))

    def forward(self, x, cache, at: int = 0):
        self.count += 1
        self.last.copy_(x * 2)
        cache["k"][at:at + 3].mul_(2).add_(x)
        x.relu_()
        return {"sum": cache["k"].sum(0) * self.count, "x": x, "k": cache["k"][1:]}


def test_what_is_written_in_place_is_written_back():
    ours, theirs = Cache(), Cache()
    compiled = deplodock.compile(ours, (X.clone(), {"k": torch.ones(5, 8)}, 1))
    given, wanted = ([X - 1, {"k": torch.arange(40.0).view(5, 8)}] for _ in range(2))
    for _ in range(2):
        results = compiled(*given, 1), theirs(*wanted, 1)
        for a, b in (*((results[0][k], results[1][k]) for k in ("sum", "x", "k")), (given[0], wanted[0]),
                     (given[1]["k"], wanted[1]["k"]), (ours.count, theirs.count), (ours.last, theirs.last)):
            assert same(a, b)
    with pytest.raises(OverlappingWrite, match="x in place, which overlaps"):
        compiled(given[1]["k"][:3], given[1], 1)


def test_modules_and_parameters_that_are_added():
    layers = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ParameterList([nn.Parameter(X)]))
    compiled = deplodock.compile(lambda x: sum(layers[1], layers[0](x)), X)
    with torch.no_grad():
        layers[1].append(nn.Parameter(X + 1))
        assert same(compiled(X), layers[0](X) + 2 * X + 1)
        layers[0].register_module("more", nn.ReLU())
        compiled(X)
    assert [v.reason for v in compiled.variants[1:]] == [
        f"the module has another structure: {path} has modules or parameters that it had not, or lacks some, and not the "
        "modules that it was compiled with" for path in ("layers.1", "layers.0")]


class Remembers(nn.Module):
    def forward(self, x):
        self.last = x * 2
        return self.last + 1


def test_what_a_module_assigns_is_not_kept():
    module = Remembers()
    assert same(deplodock.compile(module, X)(X), 2 * X + 1) and not hasattr(module, "last")


def test_arguments_may_be_passed_by_name():
    def function(x, y, flag=False):
        return x - y if flag else x + y
    compiled = deplodock.compile(function, (X, Y))
    assert same(compiled(y=Y, x=X), X + Y) and same(compiled(X, Y, False), X + Y) and len(compiled.variants) == 1
    assert same(compiled(X, Y, True), X - Y)
    assert compiled.variants[1].reason == "argument 2 has another value: True, and not False"


def test_defaults_that_are_objects():
    compiled = deplodock.compile(lambda x, dtype=torch.float16, scale=2: x.to(dtype) * scale, X)
    assert compiled(X).dtype is torch.float16 and compiled(X, scale=2).shape == X.shape and len(compiled.variants) == 1


def test_what_python_does_not_define():
    assert torch.equal(deplodock.compile(torch.relu, X)(X), X.relu())
    assert same(deplodock.compile(torch.add, (X, Y))(X, Y), X + Y)


def test_inputs_that_are_unused_or_lend_their_shape_only():
    compiled = deplodock.compile(lambda x, y, z: (torch.zeros_like(x), z * 2), (X, Y, Y))
    zeros, double = compiled(X, Y, Y + 1)
    assert torch.equal(zeros, torch.zeros(3, 8)) and torch.equal(double, (Y + 1) * 2)


def test_stages_can_be_looked_at():
    compiled = deplodock.compile(lambda x: F.softmax(x, -1), X, target="a100")
    assert compiled.compilation.target.name == "a100" and "softmax" in str(compiled.compilation.torch)


def module() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 5), nn.Linear(5, 8)).eval().requires_grad_(False)


@pytest.mark.parametrize("given, reason", [
    ((torch.randn(4, 8),), "argument 0 has another shape: (4, 8), and not (3, 8)"),
    ((X.double(),), "argument 0 has another dtype: torch.float64, and not torch.float32"),
    ((torch.randn(8, 3).t(),), "argument 0 has another strides: (1, 3), and not (8, 1)"),
    ((torch.randn(25)[1:].view(3, 8),), "x has another alignment: ADDRESS, and not an address that is a multiple of 16 bytes"),
    ((X, -0.0), "argument 1 has another value: -0.0, and not 0.0"),
    ((X, 0), "argument 1 has another value: 0, and not 0.0"),
], ids=["shape", "dtype", "strides", "alignment", "sign of zero", "kind"])
def test_other_arguments_are_other_variants(given, reason):
    def function(x, s=0.0):
        return x.sin() + s, torch.zeros_like(x)
    compiled = deplodock.compile(function, X)
    for _ in range(2):
        for found, wanted in zip(compiled(*given), function(*given)):
            assert same(found, wanted) and found.dtype == wanted.dtype and found.shape == wanted.shape
    assert [v.calls for v in compiled.variants] == [0, 2]
    assert re.sub("0x[0-9a-f]+", "ADDRESS", compiled.variants[1].reason) == reason


def test_another_structure_is_another_variant():
    compiled = deplodock.compile(lambda xs: {"sum": sum(xs.values() if isinstance(xs, dict) else xs)}, ([X, X],))
    assert same(compiled((X, X, X))["sum"], 3 * X) and same(compiled({"a": X, "b": Y})["sum"], X + Y)
    assert [v.reason.split(":")[0] for v in compiled.variants[1:]] == ["the list of arguments has another structure"] * 2


def test_there_is_a_limit_of_variants(golden):
    compiled = deplodock.compile(lambda x: x + 1, X, variants=2)
    compiled(X[:2])
    with pytest.raises(TooManyVariants) as error:
        compiled(X[:1])
    golden("errors/too-many-variants.txt", str(error.value))
    with pytest.raises(BrokenFact, match="argument 0 has another shape"):
        deplodock.compile(lambda x: x + 1, X, variants=1)(X[:2])


@pytest.mark.parametrize("change, variants", [
    (lambda m: setattr(m[0], "weight", nn.Parameter(torch.randn(5, 8))), 1),
    (lambda m: m[0].weight.mul_(2), 1),
    (lambda m: m.load_state_dict(module().state_dict()), 1),
    (lambda m: setattr(m[0].weight, "data", torch.randn(5, 8)), 1),
    (lambda m: setattr(m[0], "bias", None), 2),
    (lambda m: m.__setitem__(0, nn.Linear(8, 5)), 2),
    (lambda m: (setattr(m, "0", nn.Linear(8, 4)), setattr(m, "1", nn.Linear(4, 8))), 2),
    (lambda m: setattr(m[0], "weight", nn.Parameter(torch.randn(8, 5).t())), 2),
], ids=["replaced", "in place", "loaded", "data", "removed", "module", "shape", "strides"])
def test_parameters_are_read_from_the_module(change, variants):
    m = module()
    compiled = deplodock.compile(lambda x: m(x), X)
    change(m)
    assert same(compiled(X), m(X)) and len(compiled.variants) == variants


def test_a_buffer_that_is_written_to_may_be_replaced():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(8))

        def forward(self, x):
            self.seen.copy_(x[0])
            return x * 2
    m = Counter()
    compiled = deplodock.compile(m, X)
    m.seen = torch.zeros(8)
    assert same(compiled(X), 2 * X) and torch.equal(m.seen, X[0])


def test_a_module_that_goes_into_training_is_refused():
    m = nn.Sequential(nn.Linear(8, 5), nn.Dropout(0.5)).eval()
    compiled = deplodock.compile(m, X)
    m.train()
    with pytest.raises(TrainingMode):
        compiled(X)
    m.eval()
    assert same(compiled(X), m(X).detach()) and len(compiled.variants) == 1


def test_parameters_of_another_dtype():
    m = module()
    compiled = deplodock.compile(m, X)
    m.bfloat16()
    assert torch.allclose(compiled(X.bfloat16()), m(X.bfloat16()), atol=0.05)
    assert compiled.variants[1].reason == "argument 0 has another dtype: torch.bfloat16, and not torch.float32"


def test_what_is_written_behind_the_back_of_pytorch_needs_a_word():
    m = nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 5)).requires_grad_(False)
    compiled = deplodock.compile(m, X)
    m[1].weight.data.mul_(2)                 # no version counts this
    compiled.refresh()
    assert same(compiled(X), m(X))


@pytest.mark.parametrize("given, error", [
    ((X, X), TypeError), ((), TypeError), ((X.clone().requires_grad_(),), GradientWanted),
], ids=["too many", "too few", "gradient"])
def test_other_arguments_are_refused(given, error):
    compiled = deplodock.compile(lambda x: x + 1, X)
    with pytest.raises(error):
        compiled(*given)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(UsageError, match="cannot compile int"):
        deplodock.compile(3, X)
    with pytest.raises(UsageError, match="unknown numerics 'sloppy'"):
        deplodock.compile(torch.relu, X, numerics="sloppy")
    with pytest.raises(UsageError, match="variants is 0"):
        deplodock.compile(torch.relu, X, variants=0)
    with pytest.raises(UnknownTarget):
        deplodock.compile(torch.relu, X, target="gtx1080")
    with pytest.raises(TrainingMode):
        deplodock.compile(nn.Sequential(nn.Dropout(0.5)), X)


def test_calls_while_another_thread_compiles():
    """torch.export puts fake tensors into a module while it traces it: no call may take them for its parameters."""
    module, x = nn.Linear(3, 4).requires_grad_(False), torch.randn(2, 3)
    weight, traced, tracing = module.weight, [], threading.Event()

    def slowly(*program):
        if traced:
            module._parameters["weight"] = FakeTensorMode().from_tensor(weight)
            tracing.set()
            time.sleep(0.2)
            module._parameters["weight"] = weight
        traced.append(program)
        return capture_module(*program)

    compiled = Compiled(module, (x,), {}, Options(), slowly)
    other = threading.Thread(target=compiled, args=(torch.randn(5, 3),))
    other.start()
    assert tracing.wait(60)
    found = compiled(x)
    other.join()
    assert same(found, module(x)) and [v.calls for v in compiled.variants] == [1, 1]


class Scaled:
    def __init__(self):
        self.linear = nn.Linear(3, 2).requires_grad_(False)

    def __call__(self, x):
        return self.linear(x) * 2


@pytest.mark.parametrize("function", [Scaled(), functools.partial(torch.add, alpha=2)], ids=["an object", "a partial"])
def test_what_can_be_called_is_a_program(function):
    x = [torch.randn(2, 3) for _ in range(2 if isinstance(function, functools.partial) else 1)]
    compiled = deplodock.compile(function, x)
    assert same(compiled(*x), function(*x))
    if isinstance(function, Scaled):
        function.linear.weight = nn.Parameter(torch.randn(2, 3), requires_grad=False)
        assert same(compiled(*x), function(*x)) and len(compiled.variants) == 1


def test_negated_views_are_refused():
    """Their elements are not what memory holds, and no stride says so."""
    x = torch.randn(4, dtype=torch.complex64)
    compiled = deplodock.compile(lambda x: x * 2, x.imag)
    assert same(compiled(x.imag), x.imag * 2)
    for call in (compiled, lambda x: deplodock.compile(lambda x: x * 2, x)):
        with pytest.raises(WrongDtype, match="a negated view"):
            call(x.conj().imag)
