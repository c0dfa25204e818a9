"""What a launch takes: tensor maps are made when a buffer is first seen at an address, however many a program has."""
from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from deplodock.ir.cuda import CudaKernel, Map, Param
from deplodock.ir.dtype import Dtype
from deplodock.runtime import launch
from deplodock.runtime.compile import Cubin
from deplodock.runtime.launch import MAPS, Gpu, Loaded, Sequence, runs_on

KERNELS = 300


@dataclass(frozen=True)
class At:
    """A tensor, of which a launch looks at the address only."""
    address: int

    def data_ptr(self) -> int:
        return self.address


@pytest.fixture
def gpu(monkeypatch) -> Gpu:
    """A GPU that is there but for its driver."""
    monkeypatch.setattr(launch, "require_gpu", lambda index, arch: None)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr("cuda.core.Device", lambda index: SimpleNamespace(set_current=lambda: None))
    monkeypatch.setattr(Gpu, "stream", lambda self: "stream")
    return Gpu(0, "sm_90a")


@pytest.fixture
def encoded(monkeypatch) -> list[tuple[str, int]]:
    """(buffer, address) of each tensor map that was made."""
    made = []
    monkeypatch.setattr(launch, "tensor_map", lambda m, address, device: made.append((m.buffer, address)) or f"{m.name}@{address}")
    return made


@pytest.fixture
def launched(monkeypatch) -> list[tuple]:
    """(kernel, its arguments) of each launch."""
    found = []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)      # kernel by kernel, not as a graph
    monkeypatch.setattr("cuda.core.launch", lambda stream, config, function, *arguments: found.append((function, arguments)))
    return found


@pytest.fixture
def sequence(gpu) -> Sequence:
    """Kernel i reads buffer i by a tensor map and writes buffer i + 1; buffer 0 is the program's input."""
    def kernel(i: int) -> Loaded:
        return Loaded(f"k{i}", f"f{i}", None, (i + 1,), ((Map("m", f"b{i}", Dtype.f32, (64, 64), (256,), (32, 32), 128), i),))
    return Sequence(gpu, tuple(map(kernel, range(KERNELS))))


def test_tensor_maps_are_made_once_for_each_address(sequence, encoded, launched):
    fixed = [At(1000 + i) for i in range(KERNELS)]
    for call in range(3 * MAPS):
        sequence.run((At(call % MAPS), *fixed))
        assert len(launched) == (call + 1) * KERNELS
        assert launched[-KERNELS] == ("f0", (1000, f"m@{call % MAPS}")) and launched[-1] == ("f299", (1299, "m@1298"))
    assert len(encoded) == len(set(encoded)) == MAPS + KERNELS - 1
    assert {b for b, _ in encoded[KERNELS:]} == {"b0"}


def test_the_maps_that_were_used_last_are_kept(sequence, encoded, launched):
    fixed = [At(1000 + i) for i in range(KERNELS)]
    for address in (*range(MAPS), 0, MAPS):                 # a ninth address: that of the second call goes, not of the first
        sequence.run((At(address), *fixed))
    before = len(encoded)
    for address in (0, *range(2, MAPS + 1)):
        sequence.run((At(address), *fixed))
    assert len(encoded) == before
    sequence.run((At(1), *fixed))
    assert encoded[before:] == [("b0", 1)]


def test_code_is_loaded_once(gpu, monkeypatch):
    """A layer's kernel comes again in each layer, with other buffers and another grid."""
    made, configs = [], []

    class Code:
        @classmethod
        def from_cubin(cls, code, name):
            made.append(name)
            return cls()

        def get_kernel(self, name):
            return f"f{name}"
    monkeypatch.setattr("cuda.core.ObjectCode", Code)
    monkeypatch.setattr("cuda.core.LaunchConfig", lambda **options: configs.append(options["grid"]))
    cubins = {name: Cubin(name, "sm_90a", name.encode(), "", "") for name in ("a", "b")}
    loaded = [gpu.load(CudaKernel(name, "", "", i, 64, 0, (Param(f"p{i}", "p", Dtype.f32, True),), ()), cubins[name], {f"p{i}": i})
              for i, name in enumerate("abab", 1)]
    assert made == ["a", "b"] and configs == [1, 2, 3, 4]
    assert [(k.function, k.pointers) for k in loaded] == [("fa", (1,)), ("fb", (2,)), ("fa", (3,)), ("fb", (4,))]


@pytest.mark.parametrize("arch, capability, runs", [
    ("sm_80", (8, 0), True), ("sm_80", (8, 6), True), ("sm_80", (9, 0), False), ("sm_86", (8, 0), False), ("sm_90a", (9, 0), True),
    ("sm_90a", (10, 0), False), ("sm_90", (9, 0), True), ("sm_100a", (10, 0), True), ("sm_120", (12, 1), True)])
def test_which_gpus_code_runs_on(arch, capability, runs):
    assert runs_on(arch, capability) is runs
