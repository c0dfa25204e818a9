"""deplodock run: results, their checks, JSON."""
from __future__ import annotations

import json

import pytest

from deplodock.errors import WrongNumbers

SOFTMAX = "x = torch.randn(8, 64)\nF.softmax(x, -1)"


def test_json_holds_what_the_conventions_say(deplodock, monkeypatch, tmp_path):
    monkeypatch.setenv("DEPLODOCK_CACHE", str(tmp_path))
    ran = deplodock("run", "-c", SOFTMAX, "--device", "cpu", "--json")
    assert ran.code == 0
    found = json.loads(ran.out)
    assert found["schema"] == 1 and found["kind"] == "run" and found["device"] == "cpu (emulation)"
    (kernel,) = found["kernels"]
    assert set(kernel) >= {"name", "grid", "block", "cluster", "shared"}
    assert found["counters"] == {"saturations": 1, "compilations": 0, "timings": 0}
    (output,) = found["outputs"]
    assert output["shape"] == [8, 64] and output["dtype"] == "float32" and output["ok"] is True and output["nan_match"] is True
    assert 0 < output["rel_err"] < output["bound"] and 0 < output["eager_rel_err"] and 0 < output["max_abs_err"] < 1e-6
    again = json.loads(deplodock("run", "-c", SOFTMAX, "--device", "cpu", "--json").out)
    assert again["counters"] == {"saturations": 0, "compilations": 0, "timings": 0}


@pytest.mark.parametrize("code", [
    "nn.RMSNorm(96)(torch.randn(5, 96))",
    "nn.Linear(64, 24)(torch.randn(7, 64))",
    "q, k, v = (torch.randn(1, 2, 33, 16) for _ in range(3))\nF.scaled_dot_product_attention(q, k, v, is_causal=True)",
    "x = torch.randn(3, 5)\nx + 1, x.sum(-1), x",
    "torch.randn(()) * 2",
    "torch.randn(0, 3) * 2",
    "torch.randn(9).argmax()",
], ids=lambda c: c.splitlines()[-1])
def test_programs_keep_the_promise_on_the_emulation(deplodock, code):
    ran = deplodock("run", "-c", code, "--device", "cpu")
    assert ran.code == 0 and "ok" in ran.out, ran.err


def test_the_seed_decides_the_inputs(deplodock):
    def error(seed):
        return json.loads(deplodock("run", "-c", SOFTMAX, "--device", "cpu", "--json", "--seed", seed).out)["outputs"][0]["max_abs_err"]
    assert error("1") == error("1") != error("2")


def test_without_a_gpu_it_says_that_it_emulates(deplodock, monkeypatch):
    import torch
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ran = deplodock("run", "-c", SOFTMAX)
    assert ran.code == 0 and "no GPU: running on the emulation" in ran.err and ran.out.startswith("on cpu (emulation)")


def test_wrong_numbers_end_with_code_3(deplodock, monkeypatch, golden):
    import torch

    from deplodock.runtime.program import CompiledProgram
    right = CompiledProgram.__call__
    monkeypatch.setattr(CompiledProgram, "__call__", lambda self, *i, **k: tuple(y * torch.tensor(1.001) for y in right(self, *i, **k)))
    ran = deplodock("run", "-c", SOFTMAX, "--device", "cpu")
    assert ran.code == WrongNumbers.exit_code == 3 and "WRONG" in ran.out and ran.err.startswith("error: wrong numbers in softmax\n")


def test_results_that_differ_from_call_to_call_are_wrong(deplodock, monkeypatch):
    from deplodock.runtime.program import CompiledProgram
    right, calls = CompiledProgram.__call__, []

    def drifting(self, *inputs, **options):
        calls.append(1)
        return tuple(y.nextafter(y + len(calls)) if len(calls) > 1 else y for y in right(self, *inputs, **options))
    monkeypatch.setattr(CompiledProgram, "__call__", drifting)
    ran = deplodock("run", "-c", SOFTMAX, "--device", "cpu")
    assert ran.code == 3 and "different bits" in ran.err
