"""Bad input: for each kind of mistake its message, word for word, and its exit code."""
from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
import torch
from torch._higher_order_ops import while_loop

from deplodock import compile
from deplodock.errors import OverlappingWrite, UnsupportedOperator

BAD = {
    "syntax": (1, "x = torch.randn(8"),
    "nothing": (1, ""),
    "no-value": (1, "x = torch.randn(8)"),
    "fails-in-pytorch": (1, "torch.randn(8, 3) @ torch.randn(8, 3)"),
    "unsupported-operator": (1, "x = torch.randn(8)\ntorch.sort(x)[0] + 1"),
    "data-dependent-shape": (1, "x = torch.randn(8)\nx[x > 0]"),
    "data-dependent-branch": (1, "x = torch.randn(8)\nx * 2 if x.sum() > 0 else x"),
    "wrong-dtype": (1, "x = torch.randn(8, dtype=torch.complex64)\nx * 2"),
    "mismatched-devices": (1, "x = torch.randn(8)\ny = torch.randn(8, device='meta')\nx + y"),
    "random-numbers": (1, "x = torch.randn(8)\ntorch.bernoulli(x.sigmoid())"),
    "dropout-in-training": (1, "m = nn.Dropout(0.5).train()\nm(torch.randn(8))"),
    "gradients": (1, "x = torch.randn(4, requires_grad=True)\ny = (x * x).sum()\ny.backward()\nx.grad"),
    "topk": (1, "x = torch.randn(8)\nx.topk(2).values"),
    "scatter": (1, "x = torch.zeros(4)\ni = torch.randint(0, 4, (3,))\nx.scatter_add(0, i, torch.randn(3))"),
    "index-put": (1, "x = torch.randn(4)\ni = torch.randint(0, 4, (3,))\nx[i] = 0.0\nx"),
    "sparse": (1, "x = torch.eye(4).to_sparse()\nx @ torch.randn(4, 4)"),
    "nested": (1, "a, b = torch.randn(2, 3), torch.randn(4, 3)\nx = torch.nested.as_nested_tensor([a, b], layout=torch.jagged)\nx * 2"),
    "loop-on-a-value": (1, "x = torch.randn(8)\nwhile x.sum() < 10: x = x * 2\nx"),
    "control-flow": (1, "x = torch.randn(8)\ntorch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))"),
    "ends-the-process": (1, "import sys\nx = torch.randn(8)\nsys.exit(0) if len(x) else x"),
    "returns-no-tensor": (1, "x = torch.randn(8)\n(x * 2, nn.Linear(8, 8))"),
}


@pytest.mark.parametrize("name", BAD)
def test_the_program(deplodock, golden, name):
    code, text = BAD[name]
    ran = deplodock("compile", "--ir", "torch", "-c", text)
    assert ran.code == code and ran.out == ""
    golden(f"errors/{name}.txt", ran.err)


def test_quantised_tensors(deplodock, golden):
    """With a scale and a zero point, their elements are not what their memory holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")              # PyTorch's own, that they will go
        ran = deplodock("compile", "--ir", "torch", "-c", "x = torch.randn(8)\ntorch.quantize_per_tensor(x, 0.1, 0, torch.qint8)")
    assert ran.code == 1 and ran.out == ""
    golden("errors/quantised.txt", ran.err)


@pytest.mark.parametrize("name, given", [("seen-twice", lambda x: (x[:3], x[2:5])),
                                         ("elements-that-are-one", lambda x: (x[:1].expand(3), x[2:5]))])
def test_overlapping_inputs_that_are_written_to(name, given, golden):
    with pytest.raises(OverlappingWrite) as raised:
        compile(lambda x, y: x.add_(y), given(torch.ones(5)))
    assert raised.value.exit_code == 1
    golden(f"errors/overlapping-write-{name}.txt", str(raised.value))


@pytest.mark.parametrize("name, function", [
    ("torch.cond", lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))),
    ("while_loop", lambda x: while_loop(lambda x: x.sum() < 3, lambda x: (x + 1,), (x,))[0]),
], ids=["torch.cond", "while_loop"])
def test_control_flow_in_a_function(name, function):
    """PyTorch's constructs that hold graphs are named, and not the graphs that they hold."""
    with pytest.raises(UnsupportedOperator, match=rf"unsupported operator torch\S*\b{name.removeprefix('torch.')}\n") as raised:
        compile(function, torch.ones(4))
    assert f'("{name}", lambda x:' in str(raised.value.where)


def test_an_unknown_target(deplodock, golden):
    ran = deplodock("compile", "-c", "torch.randn(8).exp()", "--target", "h2000")
    assert ran.code == 2 and ran.out == ""
    golden("errors/unknown-target.txt", ran.err)


@pytest.mark.parametrize("arguments", [("compile", "--dump"), ("compile", "--save"), ("compile", "-o"), ("saturate", "--dot")],
                         ids=" ".join)
def test_a_place_that_cannot_be_written_to(deplodock, arguments, tmp_path):
    """A file stands where a folder would have to be, or the name is longer than names can be."""
    (tmp_path / "file").touch()
    place = tmp_path / ("file/new" if arguments[1] in ("--dump", "--save") else "n" * 300)
    ran = deplodock(arguments[0], "-c", "torch.randn(8).exp()", arguments[1], place)
    assert ran.code == 2 and f"error: cannot write {place}" in ran.err


@pytest.mark.parametrize("arguments", ["laws", "laws --json", "--help"])
def test_a_reader_that_goes_away(arguments):
    """Is no failure of ours; a disk that is full is one, said in one line."""
    command = f"{sys.executable} -m deplodock {arguments}"
    ran = subprocess.run(["bash", "-c", f"set -o pipefail; {command} | true; exit $?"], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    if arguments != "--help":
        ran = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, text=True)
        assert ran.returncode == 2 and "cannot write standard output" in ran.stderr and "bug" not in ran.stderr


def test_a_missing_gpu(deplodock, golden, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    ran = deplodock("run", "-c", "torch.randn(8).exp()", "--device", "cuda")
    assert ran.code == 4 and ran.out == ""
    golden("errors/missing-gpu.txt", ran.err)


def test_a_corrupt_cache_entry_is_made_again(deplodock, golden, tmp_path, monkeypatch):
    monkeypatch.setenv("DEPLODOCK_CACHE", str(tmp_path / "cache"))
    compile_ptx = ("compile", "-c", "torch.randn(8).exp()", "--ir", "ptx", "--target", "a100")
    first = deplodock(*compile_ptx)
    (entry,) = (p for p in (tmp_path / "cache" / "cubin").glob("??/*"))
    entry.write_bytes(entry.read_bytes()[:-1])
    again = deplodock(*compile_ptx)
    assert first.code == again.code == 0 and again.out == first.out and first.err == ""
    golden("errors/corrupt-cache-entry.txt", again.err.replace(str(entry), "CACHE/ENTRY"))
    assert deplodock(*compile_ptx).err == ""


def test_an_error_as_json(deplodock):
    import json
    ran = deplodock("compile", "--json", "-c", "x = torch.randn(8")
    found = json.loads(ran.out)
    assert ran.code == found["exit_code"] == 1 and found["kind"] == "error" and found["error"] == "ProgramSyntaxError"
    assert found["message"] in ran.err


def test_a_bug_says_that_it_is_one(deplodock, monkeypatch):
    from deplodock import capture
    monkeypatch.setattr(capture, "capture_code", lambda *_, **__: 1 / 0)
    ran = deplodock("compile", "-c", "x")
    assert ran.code == 1 and "ZeroDivisionError" in ran.err and "bug of deplodock" in ran.err and "Traceback" not in ran.err
    assert "Traceback" in deplodock("compile", "-c", "x", "-vv").err


def test_interrupted(deplodock, monkeypatch):
    from deplodock import capture

    def interrupt(*_, **__):
        raise KeyboardInterrupt
    monkeypatch.setattr(capture, "capture_code", interrupt)
    ran = deplodock("compile", "-c", "x")
    assert ran.code == 130 and ran.err.strip() == "interrupted"


def test_a_folder_that_is_missing(deplodock, tmp_path):
    ran = deplodock("compile", "-c", "torch.randn(8).exp()", "-o", tmp_path / "missing" / "file")
    assert ran.code == 2 and "make the folder" in ran.err
    for option in ("--json", "--dot"):
        ran = deplodock("saturate", "-c", "torch.randn(8).exp()", option, tmp_path / "missing" / "file")
        assert ran.code == 2 and "make the folder" in ran.err


def test_a_file_that_is_no_text(deplodock, tmp_path):
    file = tmp_path / "noise"
    file.write_bytes(bytes(range(256)))
    ran = deplodock("compile", file)
    assert ran.code == 2 and "bytes that are no text" in ran.err
