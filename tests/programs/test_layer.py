"""A decoder layer through the compiler, at a size that the emulation can run."""
import pytest
import torch

from deplodock.capture import capture_module
from deplodock.pipeline import compile
from tests.examples.decoder import SMALL, layer
from tests.programs.support import wrong


@pytest.mark.parametrize("numerics, dtype, attention, most", [
    ("default", torch.float32, "sdpa", 6), ("default", torch.bfloat16, "eager", 6), ("strict", torch.bfloat16, "sdpa", 10)])
def test_the_plan_is_small_and_right(numerics, dtype, attention, most):
    module, inputs = layer(SMALL, 13, dtype, attention=attention)
    x = compile(capture_module(module, inputs), "h200", numerics)
    assert len(x.plan.kernels) <= most
    assert wrong(x) == []
