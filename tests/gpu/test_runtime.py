"""The runtime on a GPU: streams, graphs, moved tensors, constants, tensor maps, times."""
from __future__ import annotations

import pytest
import torch

from deplodock.capture import capture_code, capture_module
from deplodock.pipeline import compile
from deplodock.runtime.cache import Cache
from deplodock.runtime.check import check
from deplodock.runtime.program import CompiledProgram, Loadable

pytestmark = pytest.mark.gpu


def load(captured, store) -> tuple[CompiledProgram, object]:
    """The program on the GPU, and its captured twin there."""
    from deplodock.cli.program import target_or_default
    compilation = compile(captured, target_or_default(None))
    captured = captured.to("cuda")
    made = Loadable(compilation.torch, compilation.plan, compilation.cuda, compilation.target.arch)
    return CompiledProgram(made, captured.parameters, "cuda", store), captured


@pytest.fixture
def store(tmp_path) -> Cache:
    return Cache("cubin", tmp_path)


PROGRAMS = {
    "softmax": "F.softmax(torch.randn(64, 1000), -1)",
    "rms norm": "nn.RMSNorm(2048)(torch.randn(33, 2048).bfloat16())",
    "linear": "nn.Linear(512, 96)(torch.randn(70, 512))",
    "half product with residual": "x, w, r = torch.randn(128, 256).half(), torch.randn(256, 128).half() / 16, torch.randn(128, 128).half()\nx @ w + r",
    "attention": "q, k, v = (torch.randn(1, 4, 130, 64).bfloat16() for _ in range(3))\n"
                 "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    "two kernels": "x = torch.randn(64, 512)\nF.softmax(x @ torch.randn(512, 512) / 20, -1) @ torch.randn(512, 256)",
    "offset and strides": "x = torch.randn(65, 130)\nx[1:, 2:].t() * 2",
}


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_the_promise_is_kept(code, store):
    program, captured = load(capture_code(code), store)
    with torch.no_grad():
        reports = check(program, captured.program, captured.inputs, captured.parameters, captured.eager(*captured.inputs))
    assert all(r.ok for r in reports), [str(r.error()) for r in reports if not r.ok]


@pytest.fixture
def chain(store):
    """A program of several kernels, and what it computes."""
    captured = capture_code("x = torch.randn(64, 256)\nF.softmax(F.softmax(x, -1) @ torch.randn(256, 256), 0).exp().amax(0)")
    program, captured = load(captured, store)
    assert len(program.plan.kernels) > 1
    return program, captured


def test_a_graph_replays_what_was_launched(chain):
    program, captured = chain
    expected = program(*captured.inputs)[0].clone()
    for _ in range(5):
        assert torch.equal(program(*captured.inputs)[0], expected)
    assert any(g is not None for g in program._calls._graphs.values())


def test_moved_tensors_are_found(chain):
    program, captured = chain
    expected = program(*captured.inputs)[0].clone()
    kept = []
    for _ in range(12):
        moved = [t.clone() for t in captured.inputs]
        kept.append(moved)
        assert torch.equal(program(*moved)[0], expected)


def test_results_stay_valid(chain):
    program, captured = chain
    first = program(*captured.inputs)[0]
    copy = first.clone()
    others = [torch.randn_like(t) for t in captured.inputs]
    for _ in range(4):
        program(*others)
    assert torch.equal(first, copy)


def test_the_current_stream_is_used(chain):
    program, captured = chain
    expected = program(*captured.inputs)[0].clone()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = [torch.empty_like(t) for t in captured.inputs]
        torch.cuda._sleep(20_000_000)
        for a, b in zip(late, captured.inputs):
            a.copy_(b)
        result = program(*late)[0]
    stream.synchronize()
    assert torch.equal(result, expected)


def test_it_can_be_captured(chain):
    program, captured = chain
    given = [t.clone() for t in captured.inputs]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        program(*given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result, = program(*given)
    for t in given:
        t.normal_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result, program(*given)[0])


def test_constants_follow_their_parameters(store):
    module = torch.nn.Sequential(torch.nn.RMSNorm(64), torch.nn.Linear(64, 32)).requires_grad_(False)
    module[0].weight.normal_(1, 0.1)
    captured = capture_module(module, (torch.randn(16, 64),))
    program, captured = load(captured, store)
    for name, p in captured.parameters.items():
        p.mul_(1.5)
    reports = check(program, captured.program, captured.inputs, captured.parameters, captured.eager(*captured.inputs))
    assert all(r.ok for r in reports)


def test_poison_shows_what_is_not_written(chain, monkeypatch):
    program, captured = chain
    monkeypatch.setattr(program._calls, "run", lambda tensors: None)
    assert program(*captured.inputs, poison=True)[0].isnan().all()


def test_the_second_load_compiles_nothing(store):
    code = "F.softmax(torch.randn(16, 100), -1)"
    assert load(capture_code(code), store)[0].compilations == 1
    assert load(capture_code(code), store)[0].compilations == 0


def test_a_tensor_map_describes_its_buffer():
    from deplodock.ir.dtype import Dtype
    from deplodock.ir.cuda import Map
    from deplodock.runtime.launch import tensor_map
    t = torch.randn(256, 128, device="cuda").bfloat16()
    made = tensor_map(Map("m", "t", Dtype.bf16, (256, 128), (256,), (64, 64), 128), t.data_ptr(), 0)
    assert made.device.device_id == 0


def test_times_are_plausible(chain):
    from deplodock.runtime.timing import measure
    program, captured = chain
    with torch.no_grad():
        found = measure({"ours": [lambda: program(*captured.inputs)] * 2, "again": [lambda: program(*captured.inputs)] * 2}, rounds=5)
    ours, again = found["ours"], found["again"]
    assert 1 < ours.hot < 1000 and 0.7 < ours.hot / again.hot < 1.4 and ours.host > 1
