"""Models of Hugging Face folders on the command line: layers, weights, and what is wrong with a folder."""
from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, LlamaForCausalLM

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 48,
          "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 64}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path / "llama"


@pytest.fixture
def weighted(folder):
    """A folder with weights, as transformers writes them."""
    torch.manual_seed(0)
    LlamaForCausalLM(AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    return folder


def test_a_layer_is_called_as_the_model_calls_it(deplodock, folder):
    ran = deplodock("compile", str(folder), "--layer", "1", "--seq", "8", "--ir", "torch", "--dtype", "bf16")
    assert ran.code == 0, ran.err
    assert "hidden_states: bf16[1,8,32] = input" in ran.out and "is_causal=True" in ran.out
    assert "parameter 'self_attn.q_proj.weight'" in ran.out and "embed_tokens" not in ran.out


def test_weights_come_from_the_folder(weighted):
    from deplodock.capture import capture_model
    held = load_file(weighted / "model.safetensors")
    captured = capture_model(weighted, sequence=4)
    named = {v.path: captured.parameters[v.name] for v in captured.program.parameters}
    assert torch.equal(named["model.layers.1.mlp.up_proj.weight"], held["model.layers.1.mlp.up_proj.weight"])
    logits, = captured.eager(*captured.inputs)
    assert logits.shape == (1, 4, 64)
    expected = LlamaForCausalLM.from_pretrained(weighted).eval()(*captured.inputs).logits
    assert torch.allclose(logits, expected, atol=1e-6)


def test_drawn_weights_show_what_folding_does(folder):
    """Norms around 1, not at it; the same for the same seed, however much of the model is drawn."""
    from deplodock.capture import capture_model
    one, same, other = (capture_model(folder, layer=1, sequence=4, seed=s).parameters for s in (0, 0, 1))
    norm = one["input_layernorm_weight"]
    assert 0.01 < norm.std() < 0.3 and abs(norm.mean() - 1) < 0.1
    assert all(torch.equal(one[k], same[k]) for k in one) and not torch.equal(norm, other["input_layernorm_weight"])
    whole = capture_model(folder, sequence=4).parameters
    assert torch.equal(norm, whole["model_layers_1_input_layernorm_weight"])


def truncated(path):
    path.write_bytes(path.read_bytes()[:-100])


def corrupt(path):
    path.write_bytes(b"\xff" * 64 + path.read_bytes()[64:])


def without_a_tensor(path):
    held = load_file(path)
    held.pop("model.norm.weight")
    save_file(held, path, {"format": "pt"})


def of_another_shape(path):
    held = load_file(path)
    held["model.norm.weight"] = torch.ones(7)
    save_file(held, path, {"format": "pt"})


@pytest.mark.parametrize("damage", [truncated, corrupt, without_a_tensor, of_another_shape])
def test_damaged_weights(deplodock, golden, weighted, damage):
    damage(weighted / "model.safetensors")
    ran = deplodock("compile", str(weighted), "--seq", "4", "--ir", "torch", "-q")
    assert ran.code == 1 and ran.out == ""
    golden(f"errors/weights-{damage.__name__.replace('_', '-')}.txt", ran.err.replace(str(weighted), "MODEL"))


@pytest.mark.parametrize("name, code, text", [
    ("no-config", 2, None),
    ("config-is-no-json", 2, "{"),
    ("unknown-family", 1, json.dumps({**CONFIG, "model_type": "nosuchmodel"})),
    ("unknown-architecture", 1, json.dumps({**CONFIG, "architectures": ["NoSuchForCausalLM"]})),
])
def test_folders_that_are_no_model(deplodock, golden, folder, name, code, text):
    (folder / "config.json").unlink() if text is None else (folder / "config.json").write_text(text)
    ran = deplodock("compile", str(folder), "--ir", "torch", "-q")
    assert ran.code == code and ran.out == ""
    golden(f"errors/model-{name}.txt", ran.err.replace(str(folder), "MODEL"))


def test_a_layer_that_is_not_there(deplodock, golden, folder):
    ran = deplodock("compile", str(folder), "--layer", "2", "--ir", "torch", "-q")
    assert ran.code == 2
    golden("errors/model-no-such-layer.txt", ran.err)


def test_options_of_models_are_for_models(deplodock):
    ran = deplodock("compile", "-c", "torch.randn(8).exp()", "--layer", "0", "-q")
    assert ran.code == 2 and "--layer is about models" in ran.err
