"""The suite without a GPU: its cases are what they should be, one compiles, results become files."""
from __future__ import annotations

import json
import math
import pickle
import time
from collections import Counter

import pytest
import torch
import torch.nn.functional as F


from benchmarks.cases import Case, cases
from benchmarks.report import Result, write
from benchmarks.startup import METER, row
from benchmarks.suite import build


def test_the_cases():
    found = cases(["f32", "bf16"])
    assert Counter(c.dtype for c in found) == {"f32": 87, "bf16": 87}
    operators = Counter(c.op for c in found if c.dtype == "f32")
    assert operators["layer"] == 3 and sum(operators.values()) == 87
    assert [c.shapes for c in cases(["f16"], "layer")] == [((1, n, 2048),) for n in (32, 128, 512)]


@pytest.mark.parametrize("op", ["matmul", "matmul_add", "rmsnorm", "softmax", "silu_mul", "silu_mul_matmul", "sdpa", "naive_attn"])
def test_the_data(op):
    """A case of each kind runs in PyTorch and stays finite."""
    case = next(c for c in cases(["f32"]) if c.op == op)
    module, example = case.example()
    inputs = case.inputs("cpu")
    assert [(t.shape, t.dtype) for t in example] == [(t.shape, t.dtype) for t in inputs]
    result = module(*inputs)
    assert result.isfinite().all() and 0.01 < result.std() < 10


def test_naive_attention_is_causal_attention():
    case = Case("naive", "naive_attn", ((1, 2, 16, 8),) * 3, "f32")
    q, k, v, m = case.inputs("cpu")
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(case.module("cpu")(q, k, v, m), expected, atol=1e-6)


def test_a_case_is_compiled_without_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("DEPLODOCK_CACHE", str(tmp_path))
    result, made = build(Case("rmsnorm", "rmsnorm", ((1, 32, 256), (256,)), "bf16"), "default", "h200")
    assert result.failure == "" and result.kernels == ["k_rms_norm"] and "nvrtc" in result.seconds
    assert pickle.loads(made).arch == "sm_90a" and list((tmp_path / "cubin").glob("??/*"))


def test_a_failure_is_a_result():
    result, made = build(Case("broken", "matmul", ((2, 3), (4, 5)), "f32"), "default", "h200")
    assert made == b"" and result.failure and not result.ok


def test_results_become_a_table_and_json(tmp_path):
    a, b, c = (Case(n, "softmax", ((1, 2),), "f32") for n in ("good", "bad", "broken"))
    results = [Result(a, True, 1e-7, 2e-7, 4e-7, 0.5, (0,), ["k"], {}, 10, 9, 20, 15, 14, 30), Result(b, False, 1e-3, 2e-7, 4e-7, 9, (0,), ["k"]),
               Result(c, failure="LaunchFailed: gone\ntrace")]
    table = write(results, {"gpu": "NVIDIA H200", "date": "2026-11-30", "numerics": "default", "torch": "2.13"}, tmp_path)
    assert table.name == "h200-2026-11-30-default.md"
    text = table.read_text()
    assert "1 of 3 keep the promise; 1 of 1 faster than eager, geometric mean 1.50" in text
    assert "| good | f32 | 1 | 1.00e-07 | 2.00e-07 | kept | 10.0 | 15.0 | 1.50 |" in text
    assert "**BROKEN**" in text and "failed: LaunchFailed: gone" in text and "trace" not in text
    found = json.loads(table.with_suffix(".json").read_text())
    assert found["results"][1]["us"] is None and found["results"][0]["us"] == 10 and math.isclose(found["results"][0]["error"], 1e-7)


def test_models_are_cases():
    from benchmarks.models import cases as models
    found = models()
    assert Counter(c.layer is None for c in found) == {False: 12, True: 2}
    case = next(c for c in found if c.name == "tinyllama-1.1b.layer.s32" and c.dtype == "bf16")
    module, example = case.example()
    assert [tuple(t.shape) for t in example] == [(1, 32, 2048), (1, 32, 64), (1, 32, 64), (1, 32)] and example[0].dtype is torch.bfloat16
    assert len(list(module.parameters())) == 9


def test_startup_says_what_is_whose(capsys):
    """What PyTorch takes is told apart, calls inside of calls counted once."""
    scope: dict = {}
    exec(METER, scope)

    class Owner:
        outer = staticmethod(lambda: time.sleep(0.05) or Owner.inner())
        inner = staticmethod(lambda: time.sleep(0.05) or "result")
    for name in ("outer", "inner"):
        scope["counted"]("export", Owner, name)
    assert Owner.outer() == Owner.inner() == "result"
    scope["tell"]()
    told = json.loads(capsys.readouterr().err)
    assert 0.15 <= told["export"] < told["in all"] and told["processor"] > 0 and told["peak"] > 1e8
    assert row("warm", {"in all": 9.0, "processor": 8.5, "import": 3.0, "model": 1.0, "export": 2.5, "cut": 0.5, "save": 1.0,
                        "peak": 3 * 2**30}, 2**31) == (
        "| warm | 9.0 | 8.5 | 3.0 | 1.0 | 2.5 | 2.5 | 3.00 | 1.00 | cut 0.5, save 1.0, the rest 1.0 |")
