"""Saved programs: what is in the folder, the same bytes from a process without egglog, and what is refused."""
from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import namedtuple

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import deplodock
from deplodock.cli import execute
from deplodock.errors import (BrokenFact, DamagedProgram, DeplodockError, OtherGpu, OtherVersion, UnsavableContainer,
                              UsageError, WeightsChanged)
from deplodock.saved import FORMAT


class Net(nn.Module):
    """A folded weight, one that is stored transposed, one that only some of a storage is, and one in 16 bits."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.RMSNorm(8), nn.Linear(8, 6)
        self.turned = nn.Parameter(torch.randn(8, 6).t())
        self.register_buffer("part", torch.randn(4, 12)[1, 1::2])
        self.short = nn.Parameter(torch.randn(6).bfloat16())

    def forward(self, x, pair, *, scale=2.0, name="unused"):
        y = self.linear(self.norm(x)) @ self.turned * scale + pair["a"][0]
        return {"y": (y, None), "z": self.part * self.short}


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
PAIR = {"a": (torch.arange(8.0), 5)}


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval().requires_grad_(False)


@pytest.fixture(scope="module")
def weights(net, tmp_path_factory):
    """A model's file of weights; its names lack the prefix that a wrapper would give them."""
    file = tmp_path_factory.mktemp("model") / "model.safetensors"
    save_file({"model.linear.weight": net.linear.weight, "model.norm.weight": net.norm.weight + 1}, file)
    return file


@pytest.fixture(scope="module")
def original(net, weights, tmp_path_factory):
    """(the compiled module, the folder it is saved to)"""
    compiled = deplodock.compile(net, (X, PAIR), target="h200")
    folder = tmp_path_factory.mktemp("saved") / "program"
    compiled.save(folder, [weights])
    return compiled, folder


@pytest.fixture
def folder(original, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(original[1], tmp_path / "program")


def digest(result) -> str:
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in (result["y"][0], result["z"]))).hexdigest()


FRESH = """
import hashlib, sys
class Blocker:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("egglog", "rules", "extract"):
            raise ImportError(f"{name} is not installed")
sys.meta_path.insert(0, Blocker())
import torch
torchs = set(sys.modules)
import deplodock, deplodock.saved
assert not {"sympy", "torch._dynamo", "torch._inductor", "transformers", "cuda", "deplodock.lower", "deplodock.capture",
            "deplodock.law"} & (set(sys.modules) - torchs), "loading takes what only compiling needs"
program = deplodock.load(sys.argv[1], device="cpu")
x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
result = program(x, pair={"a": (torch.arange(8.0), 5)})
print(hashlib.sha256(b"".join(t.numpy().tobytes() for t in (result["y"][0], result["z"]))).hexdigest(), result["y"][1])
"""


def test_a_fresh_process_without_egglog_computes_the_same_bytes(original, root):
    compiled, folder = original
    ran = subprocess.run([sys.executable, "-c", FRESH, str(folder)], env={**os.environ, "PYTHONPATH": str(root)},
                         capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.split() == [digest(compiled(X, PAIR)), "None"], ran.stderr


def test_weights_stay_where_they_are_unless_they_differ(original, weights):
    head = json.loads((original[1] / "deplodock.json").read_text())
    places = {e["name"]: e["file"] for e in head["parameters"]}
    assert places.pop("linear_weight") == str(weights) and set(places.values()) == {"parameters.safetensors"}
    assert {p.name for p in original[1].glob("*.cubin")} == {f"{k.name}.cubin" for k in original[0].variants[0].made.kernels}


def test_parameters_can_be_written_to(folder, net):
    loaded = deplodock.load(folder, "cpu")
    before = loaded(X, PAIR)["y"][0]
    loaded.parameters["linear_weight"].mul_(2), loaded.parameters["linear_bias"].mul_(2)
    assert torch.allclose(loaded(X, PAIR)["y"][0] - PAIR["a"][0], 2 * (before - PAIR["a"][0]), rtol=1e-4, atol=1e-4)


def test_other_arguments_are_refused(original):
    loaded = deplodock.load(original[1], "cpu")
    for args, kwargs, error in (((X[:2], PAIR), {}, BrokenFact), ((X, {"a": (PAIR["a"][0], 6)}), {}, BrokenFact),
                                ((X, PAIR), {"scale": 3.0}, BrokenFact), ((X, [1]), {}, BrokenFact), ((X,), {}, TypeError),
                                ((X.clone().as_strided((3, 8), (1, 3)), PAIR), {}, BrokenFact)):
        with pytest.raises(error):
            loaded(*args, **kwargs)


def spoil(name: str, folder, weights) -> None:
    """Does one thing to a saved program."""
    head, file, code = folder / "deplodock.json", folder / "parameters.safetensors", sorted(folder.glob("*.cubin"))[0]
    match name:
        case "other-version": head.write_text(head.read_text().replace(f'"format": {FORMAT}', '"format": 99'))
        case "changed-head": head.write_text(head.read_text().replace("float32", "float64"))
        case "truncated-head": head.write_text(head.read_text()[:300])
        case "missing-head": head.unlink()
        case "truncated-program": (folder / "program.json").write_text((folder / "program.json").read_text()[:-40])
        case "missing-program": (folder / "program.json").unlink()
        case "truncated-cubin": code.write_bytes(code.read_bytes()[:-40])
        case "missing-cubin": code.unlink()
        case "missing-parameters": file.unlink()
        case "truncated-parameters": file.write_bytes(file.read_bytes()[:-8])
        case "changed-parameters": file.write_bytes(file.read_bytes()[:-1] + b"\1")
        case "changed-weights": save_file({"model.linear.weight": torch.ones(6, 8)}, weights)
        case "missing-weights": weights.unlink()
        case "truncated-weights": weights.write_bytes(weights.read_bytes()[:-8])


@pytest.mark.parametrize("name, kind", [
    ("other-version", OtherVersion), ("changed-head", DamagedProgram), ("truncated-head", DamagedProgram),
    ("missing-head", UsageError), ("truncated-program", DamagedProgram), ("missing-program", DamagedProgram),
    ("truncated-cubin", DamagedProgram), ("missing-cubin", DamagedProgram), ("truncated-parameters", DamagedProgram),
    ("missing-parameters", DamagedProgram), ("changed-parameters", DamagedProgram), ("changed-weights", WeightsChanged),
    ("missing-weights", WeightsChanged), ("truncated-weights", WeightsChanged)])
def test_what_is_not_as_it_was_is_named(name, kind, folder, weights, golden, capsys):
    before = weights.read_bytes(), (weights.stat().st_atime_ns, weights.stat().st_mtime_ns)
    try:
        spoil(name, folder, weights)
        with pytest.raises(kind) as error:
            deplodock.load(folder, "cpu")
        code = execute(["run", str(folder), "--device", "cpu"])
    finally:
        weights.write_bytes(before[0])
        os.utime(weights, ns=before[1])
    text = str(error.value).replace(str(folder), "FOLDER").replace(str(weights), "WEIGHTS")
    golden(f"errors/saved-{name}.txt", text.replace(deplodock.__version__, "VERSION"))
    assert code == kind.exit_code and capsys.readouterr().err == f"error: {error.value}\n"


def test_another_gpu_is_named(original, golden, capsys, monkeypatch):
    """Before anything is moved to it."""
    for name, value in (("is_available", True), ("get_device_capability", (8, 6)), ("current_device", 0),
                        ("get_device_name", "NVIDIA RTX A6000")):
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    with pytest.raises(OtherGpu) as error:
        deplodock.load(original[1])
    golden("errors/saved-for-another-gpu.txt", str(error.value))
    assert execute(["run", str(original[1])]) == OtherGpu.exit_code == 4
    assert capsys.readouterr().err == f"error: {error.value}\n"


def test_a_copy_with_other_times_is_checked_by_its_content(folder):
    os.utime(folder / "parameters.safetensors")
    deplodock.load(folder, "cpu")


def test_what_cannot_be_saved_is_named(tmp_path, golden, net):
    pair = namedtuple("Pair", "a b")
    compiled = deplodock.compile(lambda x: pair(x * 2, x), X)
    with pytest.raises(UnsavableContainer) as error:
        compiled.save(tmp_path / "program")
    golden("errors/saved-container.txt", re.sub(r"<class .*?>", "CLASS", str(error.value)))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError) as error:
        compiled.save(tmp_path)
    golden("errors/saved-to-a-full-folder.txt", str(error.value).replace(str(tmp_path), "FOLDER"))
    assert {p.name for p in tmp_path.iterdir()} == {"file"}
    with pytest.raises(DeplodockError) as error:
        deplodock.load(tmp_path)
    golden("errors/saved-nothing.txt", str(error.value).replace(str(tmp_path), "FOLDER"))


def test_the_command_line(tmp_path, capsys):
    folder, code = tmp_path / "program", "m = nn.Linear(8, 5)\nx = torch.randn(3, 8)\nm(x).relu(), x[0] * 2"
    for text in (code, code.replace("relu", "exp")):         # the second replaces the first
        assert execute(["compile", "-c", text, "--ir", "torch", "--save", str(folder), "--target", "a100"]) == 0
    assert f"saved to {folder}" in capsys.readouterr().err
    assert execute(["run", str(folder), "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counters"] == {"saturations": 0, "compilations": 0, "timings": 0} and len(found["outputs"]) == 2
    assert found["kernels"] and all(o["ok"] for o in found["outputs"])
    loaded = deplodock.load(folder, "cpu")
    assert torch.equal(loaded(x=X)[1], X[0] * 2)
    (folder / "program.json").unlink()
    assert execute(["run", str(folder), "--device", "cpu"]) == 1
