"""A saved Torch IR can be tried: its example tensors have its facts, its graph computes what it says."""
from __future__ import annotations

import pytest
import torch

from deplodock.capture import capture_code, capture_torch_ir
from deplodock.errors import TorchIRSyntaxError
from deplodock.reference import error, reference

PROGRAMS = {
    "rms norm and linear": "nn.Linear(16, 8)(nn.RMSNorm(16)(torch.randn(4, 16)))",
    "attention": "q, k = torch.randn(2, 4, 8, 16), torch.randn(2, 2, 8, 16)\n"
                 "F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)",
    "indices": "x = torch.randn(5, 7); i = torch.randint(0, 4, (3,)); x[:, i, None], x.index_select(0, i), x.take(i)",
    "embedding": "ids = torch.randint(0, 5, (7,)); nn.Embedding(5, 12)(ids).half()",
    "strides, offsets and shared storage": "x = torch.randn(6, 8); x[1:, ::2].t() * x[0].expand(4, 8)[:, :5]",
    "what the program makes": "torch.where(torch.ones(4, 4).tril() > 0, torch.randn(4, 4), torch.arange(4.0))",
    "integers": "a = torch.randint(0, 9, (5,), dtype=torch.int32); (a << 2) // 3 + (a == 2)",
    "argmax": "torch.randn(3, 9).argmax(-1)",
}


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_it_computes_what_the_program_does(code):
    captured = capture_code(code)
    saved = capture_torch_ir(str(captured.program))
    assert saved.program == captured.program
    for value, t in zip(saved.program.inputs, saved.inputs):
        assert (tuple(t.shape), t.stride(), t.storage_offset()) == (value.shape, value.strides, value.offset)
    exact = reference(saved.program, saved.inputs, saved.parameters)
    for y, y64 in zip(saved.eager(*saved.inputs), exact, strict=True):
        assert error(y, y64) < (2e-3 if y.dtype == torch.float16 else 1e-5)
    same = saved.graph(*captured.parameters.values(), *captured.inputs)
    for y, z in zip(same, captured.eager(*captured.inputs)):
        assert y.dtype == z.dtype and torch.allclose(y, z, rtol=1e-3, atol=1e-6)


def test_examples_depend_on_the_seed_alone():
    text = str(capture_code("torch.randn(8).exp()").program)
    first, again, other = (capture_torch_ir(text, seed=s).inputs[0] for s in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_what_is_no_torch_ir_is_named():
    with pytest.raises(TorchIRSyntaxError):
        capture_torch_ir("hello")
