"""Many calls of one compiled module on a GPU: pointers that move, streams, kept results, parameters that change."""
from __future__ import annotations

import copy
import hashlib
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import deplodock
from benchmarks.startup import WITHOUT_SEARCH
from deplodock import dynamo
from deplodock.dynamo import Report

pytestmark = pytest.mark.gpu


class Block(nn.Module):
    """Several kernels, and constants: the norm's weight is folded into the product."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.RMSNorm(128), nn.Linear(128, 256), nn.Linear(256, 128)

    def forward(self, x):
        h = F.silu(self.up(self.norm(x)))
        return x + self.down(F.softmax(h, -1)), h.amax(-1)


@pytest.fixture
def block() -> Block:
    torch.manual_seed(0)
    made = Block().eval().requires_grad_(False).cuda()
    made.norm.weight.normal_(1, 0.1)
    return made


def change(module: Block, number: int) -> None:
    """One of the ways in which parameters change."""
    match number % 4:
        case 0: module.up.weight.mul_(1.1)
        case 1: module.norm.weight = nn.Parameter(torch.randn_like(module.norm.weight) * 0.1 + 1, requires_grad=False)
        case 2: module.down.load_state_dict(nn.Linear(256, 128).state_dict())
        case 3: module.up.bias.data = torch.randn_like(module.up.bias)


def close(found, wanted) -> bool:
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, wanted, strict=True))


def calls(run, module: Block, count: int, streams: list) -> list[tuple]:
    """`count` calls on streams in turn, with parameters that change between; what run and the module returned."""
    kept, rooms = [], []
    for number in range(count):
        if number % 23 == 22:
            torch.cuda.synchronize()             # who changes parameters waits for those who read them
            change(module, number // 23)
            torch.cuda.synchronize()
        with torch.cuda.stream(streams[number % len(streams)]):
            x = torch.randn(48, 128, device="cuda")
            if number % 3:
                rooms.append(torch.empty(number * 512 + 256, device="cuda"))     # the next tensors lie elsewhere
            kept.append((x, run(x), module(x)))
    torch.cuda.synchronize()
    return kept


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_200_calls(block, streams):
    compiled = deplodock.compile(block, torch.randn(48, 128, device="cuda"))
    assert compiled.memory["constants"] > 0
    kept = calls(compiled, block, 200, [torch.cuda.Stream() for _ in range(streams)])
    assert len({x.data_ptr() for x, _, _ in kept}) == 200
    wrong = [n for n, (_, found, wanted) in enumerate(kept) if not close(found, wanted)]
    assert wrong == [] and [v.calls for v in compiled.variants] == [200]


def test_constants_of_one_stream_are_waited_for_on_another(block):
    compiled = deplodock.compile(block, torch.randn(48, 128, device="cuda"))
    x, late, other = torch.randn(48, 128, device="cuda"), torch.cuda.Stream(), torch.cuda.Stream()
    for _ in range(5):
        block.up.weight.mul_(1.2)
        torch.cuda.synchronize()
        with torch.cuda.stream(late):
            torch.cuda._sleep(20_000_000)
            compiled(x)
        with torch.cuda.stream(other):
            found = compiled(x)
        torch.cuda.synchronize()
        assert close(found, block(x))


def test_constants_beyond_the_limit(block):
    compiled = deplodock.compile(block, torch.randn(48, 128, device="cuda"), constants=0)
    assert compiled.memory["constants"] == 0 and compiled.variants[0].program.recomputed > 0
    assert all(close(found, wanted) for _, found, wanted in calls(compiled, block, 60, [torch.cuda.Stream() for _ in range(2)]))


def test_variants(block):
    compiled = deplodock.compile(block, torch.randn(48, 128, device="cuda"))
    for x in (torch.randn(17, 128), torch.randn(128, 48).t(), torch.randn(48 * 128 + 1)[1:].view(48, 128)):
        moved = x.cuda() if x.is_contiguous() and not x.storage_offset() else torch.empty_strided(
            x.shape, x.stride(), device="cuda").copy_(x)
        if x.storage_offset():
            moved = x._base.cuda()[1:].view(48, 128)
        for _ in range(3):
            assert close(compiled(moved), block(moved))
    assert [v.calls for v in compiled.variants[1:]] == [3, 3, 3]


def test_torch_compile(block, monkeypatch):
    monkeypatch.setattr(dynamo, "REPORT", Report())
    torch._dynamo.reset()
    run = torch.compile(block, backend=deplodock.backend, options={"fallback": False})
    kept = calls(run, block, 100, [torch.cuda.Stream() for _ in range(2)])
    assert all(close(found, wanted) for _, found, wanted in kept)
    assert dynamo.REPORT.counters["fallbacks"] == 0 and dynamo.REPORT.counters["graphs"] <= 2
    x = torch.randn(48, 128, device="cuda")
    twin = copy.deepcopy(block).requires_grad_(True)
    trained = torch.compile(block.requires_grad_(True), backend=deplodock.backend, options={"fallback": False})
    for module, function in ((block, trained), (twin, twin)):
        sum(y.pow(2).sum() for y in function(x)).backward()
    for a, b in zip(block.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, rtol=1e-3, atol=1e-4)


FRESH = WITHOUT_SEARCH + """
import hashlib, deplodock, torch
program = deplodock.load(sys.argv[1])
x = torch.linspace(-2, 2, 48 * 128).view(48, 128).cuda()
results = program(x)
print(hashlib.sha256(b"".join(t.cpu().numpy().tobytes() for t in results)).hexdigest(), time.perf_counter() - start)
"""


def test_a_saved_program_gives_the_same_bytes_in_a_fresh_process(block, tmp_path, root):
    x = torch.linspace(-2, 2, 48 * 128).view(48, 128).cuda()
    compiled = deplodock.compile(block, x)
    compiled.save(tmp_path / "program")
    expected = hashlib.sha256(b"".join(t.cpu().numpy().tobytes() for t in compiled(x))).hexdigest()
    ran = subprocess.run([sys.executable, "-c", FRESH, str(tmp_path / "program")], capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": str(root), "DEPLODOCK_CACHE": str(tmp_path / "cache")})
    assert ran.returncode == 0, ran.stderr
    found, seconds = ran.stdout.split()
    assert found == expected and float(seconds) < 5
