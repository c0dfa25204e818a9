"""deplodock.compile: what it takes, what it gives back, and what it refuses."""
from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import deplodock
from deplodock.errors import BrokenFact, GradientWanted, TrainingMode, UnknownTarget, UsageError

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


def test_arguments_may_be_passed_by_name():
    def function(x, y, flag=False):
        return x - y if flag else x + y
    compiled = deplodock.compile(function, (X, Y))
    assert same(compiled(y=Y, x=X), X + Y) and same(compiled(X, Y, False), X + Y)
    with pytest.raises(BrokenFact, match="was compiled for") as error:
        compiled(X, Y, True)
    assert error.value.facts["given"] == "True"


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


@pytest.mark.parametrize("given, error", [
    ((torch.randn(4, 8),), BrokenFact), ((X.double(),), BrokenFact), ((torch.randn(8, 3).t(),), BrokenFact),
    ((3.0,), BrokenFact), (([X],), BrokenFact), ((X, X), TypeError), ((), TypeError),
    ((X.clone().requires_grad_(),), GradientWanted),
], ids=["shape", "dtype", "strides", "kind", "structure", "too many", "too few", "gradient"])
def test_other_arguments_are_refused(given, error):
    compiled = deplodock.compile(lambda x: x + 1, X)
    with pytest.raises(error):
        compiled(*given)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(UsageError, match="cannot compile int"):
        deplodock.compile(3, X)
    with pytest.raises(UsageError, match="unknown numerics 'sloppy'"):
        deplodock.compile(torch.relu, X, numerics="sloppy")
    with pytest.raises(UnknownTarget):
        deplodock.compile(torch.relu, X, target="gtx1080")
    with pytest.raises(TrainingMode):
        deplodock.compile(nn.Sequential(nn.Dropout(0.5)), X)
