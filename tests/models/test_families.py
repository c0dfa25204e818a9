"""Model families at toy sizes: a layer of each is captured whole, its mask as a predicate; some are run whole, and
`python -m tests.models` runs all of them."""
from __future__ import annotations

import pytest

from deplodock.capture import capture_model
from tests.models.families import FAMILIES, Choice, folder, judged, part

LAYERED = [f for f in FAMILIES if f != "resnet"]
CAUSAL = {"llama", "qwen2", "qwen3", "phi3", "gpt2", "clip_text"}


@pytest.mark.parametrize("family", LAYERED)
def test_a_layer_is_captured(family):
    captured = capture_model(folder(family), layer=1, sequence=6, part=part(family))
    program = captured.program
    assert captured.inputs[0].shape[-1] == 32 and captured.inputs[0].shape == captured.eager(*captured.inputs)[0].shape
    assert not [v for v in program.parameters if v.path.startswith("constant")]
    assert not [v for v in program.inputs if "mask" in v.name and family != "t5"]
    if family in CAUSAL:
        attention, = (n for n in program.nodes if n.op == "scaled_dot_product_attention")
        assert attention.arg("is_causal")


@pytest.mark.parametrize("family, through_torch", [("bert", False), ("resnet", False), ("vit", True)])
def test_a_family_agrees_as_a_whole(family, through_torch):
    made = judged(Choice(family), through_torch, limit=600)
    assert made.wrong == () and made.eager == () and made.counts["kernels"]
