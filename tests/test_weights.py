"""Parameters in files: which file holds them, that each is hashed once, and that a change is seen."""
from __future__ import annotations

import math
import os

import pytest
import torch
from safetensors.torch import save_file

from deplodock import weights
from deplodock.errors import BadWeights, WeightsChanged
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import Value

CPU = torch.device("cpu")
A, B = torch.tensor([1.0, math.nan, 0.0, 2.0]), torch.arange(3, dtype=torch.int16)


def value(name: str, t: torch.Tensor) -> Value:
    return Value(name, Dtype.of_torch(t.dtype), tuple(t.shape), t.stride(), path=f"model.{name}")


@pytest.fixture(autouse=True)
def hashed(tmp_path, monkeypatch) -> list[str]:
    """Names of the tensors of files that were hashed since the cache was empty."""
    monkeypatch.setenv("DEPLODOCK_CACHE", str(tmp_path / "cache"))
    names, tensor = [], weights._tensor
    monkeypatch.setattr(weights, "_tensor", lambda path, name: names.append(name) or tensor(path, name))
    return names


@pytest.fixture
def file(tmp_path):
    save_file({"a": A, "b": B}, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def places(head: dict) -> dict[str, str]:
    return {e["name"]: os.path.basename(e["file"]) for e in head["parameters"]}


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    bits = (weights._bytes(t.contiguous()) for t in (a, b))
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*bits)


@pytest.mark.parametrize("name, t, kept", [
    ("a", A, False), ("b", B, False), ("a", torch.tensor([1.0, math.nan, -0.0, 2.0]), True), ("b", B + 1, True),
    ("a", A.view(2, 2), True), ("a", A.view(torch.int32), True), ("c", A, True)])
def test_a_parameter_stays_in_a_file_that_holds_its_bits(name, t, kept, file, tmp_path):
    head = weights.write(tmp_path, [value(name, t)], {name: t}, [file])
    assert places(head) == {name: weights.OWN if kept else file.name}
    assert same(weights.read(tmp_path, head, [value(name, t)], CPU)[name], t)


def test_parameters_that_share_memory(tmp_path):
    memory = torch.randn(24)
    tensors = {"all": memory, "again": memory, "part": memory[3:9], "turned": memory.view(4, 6).t(), "steps": memory[1::3],
               "none": memory[:0], "half": torch.randn(5).bfloat16(), "one": torch.tensor(3)}
    values = [value(name, t) for name, t in tensors.items()]
    found = weights.read(tmp_path, weights.write(tmp_path, values, tensors, []), values, CPU)
    assert all(same(found[v.name], tensors[v.name]) and found[v.name].stride() == v.strides for v in values)


def test_a_file_is_hashed_once(file, tmp_path, hashed):
    values, tensors = [value("a", A), value("b", B)], {"a": A, "b": B}
    weights.write(tmp_path, values[:1], tensors, [file])
    assert hashed == ["a"]
    head = [weights.write(tmp_path, values, tensors, [file]) for _ in range(2)][1]
    assert hashed == ["a", "b"]
    weights.read(tmp_path, head, values, CPU)
    assert hashed == ["a", "b"]
    os.utime(file)
    for _ in range(2):
        weights.read(tmp_path, head, values, CPU)
        assert sorted(hashed) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("length, found", [(None, "No such file or directory"), (-4, "incomplete metadata"), (4, "header")])
def test_a_file_that_cannot_be_read_is_named(length, found, file, tmp_path):
    data = file.read_bytes()
    file.unlink() if length is None else file.write_bytes(data[:length])
    with pytest.raises(BadWeights, match=f"cannot take weights from {file}(.|\n)*{found}"):
        weights.write(tmp_path, [value("a", A)], {"a": A}, [file])


def test_a_change_with_the_old_time_is_seen(file, tmp_path):
    head, before = weights.write(tmp_path, [value("b", B)], {"b": B}, [file]), file.stat()
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    with pytest.raises(WeightsChanged, match="found: +b was changed"):
        weights.read(tmp_path, head, [value("b", B)], CPU)
