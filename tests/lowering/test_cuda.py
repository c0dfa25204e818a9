"""Every case down to CUDA text: verified, compiled for what its constructs allow. tests/emulation/test_cases.py runs them."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from deplodock.errors import IndexOutOfRange
from deplodock.ir.kernel import show
from deplodock.runtime.compile import compile_cuda
from tests.lowering import terms as t
from tests.lowering.cases import CASES, Case
from tests.lowering.running import cuda, lowered, run

GOLDEN = ("silu_mul f16 odd", "rmsnorm f32 ragged", "row argmax1 f32", "matmul ragged kn add", "fma nk", "attention",
          "roles matmul add")
HOPPER = [n for n in CASES if re.match("wgmma|tma|roles", n)]
"""Cases with instructions that only sm_90a has."""


@pytest.mark.parametrize("name", CASES)
def test_compiles_without_spills_or_serialised_products(name):
    made = cuda(CASES[name])
    code = compile_cuda(made.name, made.source, "sm_90a" if name in HOPPER else "sm_80")
    assert code.complaints == ()


@pytest.mark.parametrize("name", GOLDEN)
def test_text(name, golden):
    k = lowered(CASES[name])
    made = cuda(CASES[name])
    assert compile_cuda(made.name, made.source, "sm_90a").complaints == ()
    file = name.replace(" ", "_")
    golden(f"kernel/{file}.txt", show(k))
    golden(f"cuda/{file}.cu", made.text)


def test_source_holds_only_the_wrappers_it_uses():
    made = cuda(CASES["silu_mul"])
    defined = set(re.findall(r"\b(dd_\w+)\([^;]*\) {", made.wrappers))
    assert "dd_ldg16" in defined and "dd_mma_m16n8k16_bf16" not in defined and "TensorMap" not in made.source
    assert all(re.search(rf"\b{d}\b", made.source.replace(f"{d}(", "", 1)) for d in defined)


def test_same_text_in_every_process():
    program = ("from tests.lowering.cases import CASES\nfrom tests.lowering.running import cuda\nimport hashlib\n"
               f"print(hashlib.sha256(''.join(cuda(CASES[n]).source for n in {GOLDEN!r}).encode()).hexdigest())")
    found = {subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
                            timeout=120, capture_output=True, text=True).stdout for seed in ("1", "2")}
    assert len(found) == 1


def test_loaded_index_outside_of_its_extent_stops_the_program():
    case = CASES["embedding"]
    with pytest.raises(IndexOutOfRange):
        run(case, cuda(case), given={"ids": torch.full((13,), 50)})


def test_tensors_beyond_31_bits_are_indexed_with_64():
    schedule = CASES["silu_mul"].kernel.schedule
    small, large = (cuda(Case(replace(t.silu_mul(m, 4096), schedule=schedule))) for m in (2, 1 << 20))
    assert "(i64)" not in small.text and "(i64)" in large.text
    assert compile_cuda(large.name, large.source, "sm_80").complaints == ()
