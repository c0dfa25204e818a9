"""deplodock compile: the stages, the forms of a program, where text goes."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

SOFTMAX = "x = torch.randn(8, 64)\nF.softmax(x, -1)"
MARKS = {"torch": "= softmax x", "tensor": "reduction max", "loop": "k_softmax", "tile": "kernel k_softmax", "kernel": "kernel k_softmax",
         "cuda": '__global__ void', "ptx": ".target sm_80", "sass": "/*0000*/"}
"""What the text of each stage holds."""


@pytest.mark.parametrize("stage", MARKS)
def test_every_stage_prints(deplodock, stage):
    ran = deplodock("compile", "-c", SOFTMAX, "--ir", stage, "--target", "a100")
    assert ran.code == 0 and ran.err == "" and MARKS[stage] in ran.out


def test_the_text_is_the_same_every_time(deplodock):
    """Here, after other programs, and in a process of its own with another hash seed."""
    arguments = ["compile", "-q", "-c", SOFTMAX]
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    other = subprocess.run([sys.executable, "-m", "deplodock", *arguments], capture_output=True, text=True, check=True,
                           env={**os.environ, "PYTHONHASHSEED": seed})
    assert other.stdout == deplodock(*arguments).out != ""


def test_what_the_user_prints_is_no_result(deplodock):
    ran = deplodock("compile", "--ir", "torch", "-c", "print('hello')\ntorch.randn(8).exp()")
    assert "hello" in ran.err and "hello" not in ran.out and "exp" in ran.out


def test_json_is_all_there_is_on_standard_output(deplodock):
    ran = deplodock("compile", "--json", "-vv", "--ir", "cuda", "-c", "print('hello')\n" + SOFTMAX)
    found = json.loads(ran.out)
    assert found["schema"] == 1 and found["kind"] == "compile" and "__global__" in found["text"] and "hello" in ran.err
    assert set(found["seconds"]) >= {"enter", "saturate", "extract", "schedule", "tile", "kernel", "cuda"}


def test_to_a_file(deplodock, tmp_path):
    ran = deplodock("compile", "-c", SOFTMAX, "--ir", "torch", "-o", tmp_path / "out.txt")
    assert ran.out == "" and (tmp_path / "out.txt").read_text() == deplodock("compile", "-c", SOFTMAX, "--ir", "torch").out


class TestForms:
    """-c, a file, a saved Torch IR and standard input give the same program."""

    def test_a_function_of_a_file(self, deplodock, tmp_path):
        (tmp_path / "program.py").write_text("import torch\nimport torch.nn.functional as F\n\ndef f():\n"
                                             "    x = torch.randn(8, 64)\n    return F.softmax(x, -1)\n")
        ran = deplodock("compile", f"{tmp_path}/program.py:f", "--ir", "torch")
        assert ran.code == 0 and "f32[8,64] = softmax" in ran.out

    def test_a_saved_torch_ir(self, deplodock, tmp_path):
        (tmp_path / "saved.txt").write_text(text := deplodock("compile", "-c", SOFTMAX, "--ir", "torch").out)
        assert deplodock("compile", tmp_path / "saved.txt", "--ir", "torch").out == text

    def test_standard_input(self, deplodock, monkeypatch):
        import io
        text = deplodock("compile", "-c", SOFTMAX, "--ir", "torch").out
        for given in (SOFTMAX, text):
            monkeypatch.setattr(sys, "stdin", io.StringIO(given))
            out = deplodock("compile", "-", "--ir", "torch").out
            assert [line.split("#")[0] for line in out.splitlines()] == [line.split("#")[0] for line in text.splitlines()]


def test_verbose_times_the_stages_and_counts_the_laws(deplodock):
    ran = deplodock("compile", "-c", SOFTMAX, "-v", "--ir", "loop")
    assert "saturate" in ran.err and "laws fired" in ran.err and "load_launch" in ran.err and "1 kernel," in ran.err and "import" in ran.err and "capture" in ran.err


def test_very_verbose_prints_steps_between_markers(deplodock):
    err = deplodock("compile", "-c", "x = torch.randn(64, 64).half()\nx @ x", "-vv").err.splitlines()
    opened, closed = [line for line in err if line.startswith(">>> ")], [line for line in err if line == "<<<"]
    assert len(opened) == len(closed)
    assert [m for m in opened if m.startswith(">>> s:")] == [f">>> s:{stage}" for stage in ("tensor", "loop", "tile", "kernel", "cuda")]
    schedule = [">>> l:blockify", ">>> l:chunk_k", ">>> l:double_buffer", ">>> l:mma_atom"]
    assert ">>> l:mul_comm" in opened and ">>> l:program" not in opened and [m for m in opened if m in schedule] == schedule
    assert re.search(r"^\+slab k=k_matmul bm=\d+ bn=\d+ bk=\d+$", "\n".join(err), re.M)


def test_dump_has_everything_and_can_be_run(deplodock, tmp_path):
    folder = tmp_path / "dump"
    assert deplodock("compile", "-c", SOFTMAX, "--ir", "ptx", "--target", "a100", "--dump", folder).code == 0
    assert sorted(p.name for p in folder.iterdir()) == [
        "00-program.py", "01-torch.txt", "02-tensor.txt", "03-loop.txt", "04-tile.txt", "05-kernel.txt", "06-cuda.cu",
        "07-kernels.ptx", "repro.py"]
    ran = subprocess.run([sys.executable, folder / "repro.py", "--device", "cpu"], capture_output=True, text=True)
    assert ran.returncode == 0 and "ok" in ran.stdout
