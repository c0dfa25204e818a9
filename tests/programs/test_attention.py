"""Attention with its options, and PyTorch's transformer modules in evaluation mode."""
from __future__ import annotations

import pytest

from tests.programs.support import from_code, wrong

SDPA = "s = F.scaled_dot_product_attention; "
QKV = SDPA + "q = torch.randn(2, 4, 5, 8); k = torch.randn(2, 4, 7, 8); v = torch.randn(2, 4, 7, 6); "

PROGRAMS = {
    "causal, more keys or fewer": QKV + "s(q, k, v, is_causal=True), s(k, q, v[:, :, :5], is_causal=True)",
    "masks of other shapes": QKV + "s(q, k, v, torch.rand(2, 1, 1, 7) > 0.4), s(q, k, v, torch.randn(2, 4, 5, 1))",
    "five dimensions": SDPA + "q, k = torch.randn(2, 3, 2, 5, 8), torch.randn(2, 3, 2, 7, 8); s(q, k, k[..., :6], "
                              "torch.rand(3, 1, 5, 7) > 0.4, scale=0.3)",
    "groups, masked": SDPA + "q, k = torch.randn(2, 6, 5, 8).half(), torch.randn(2, 2, 7, 8).half(); "
                             "s(q, k, k, torch.rand(2, 1, 5, 7) > 0.3, enable_gqa=True)",
    "rows without keys": SDPA + "q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4); m = torch.arange(5) < "
                                "torch.tensor([[5], [0], [2]]); s(q, k, k, m)",
    "keys of another width": "y, z = torch.randn(4, 2, 6), torch.randn(4, 2, 10); m = torch.rand(5, 4) > 0.6; "
                             "a = nn.MultiheadAttention(12, 3, kdim=6, vdim=10); "
                             "a(torch.randn(5, 2, 12), y, z, None, False, m)",
    "weights of padded keys": "x = torch.randn(2, 5, 12); p = torch.arange(5) > torch.tensor([[2], [4]]); "
                              "nn.MultiheadAttention(12, 3, batch_first=True)(x, x, x, key_padding_mask=p)",
    "weights of heads, a key of zeros": "x = torch.randn(5, 12); y = torch.randn(7, 12); p = torch.arange(7) > 5; "
                                        "m = torch.rand(5, 7) > 0.7; nn.MultiheadAttention(12, 3, add_zero_attn=True)"
                                        "(x, y, y, key_padding_mask=p, attn_mask=m, average_attn_weights=False)",
    "a key of parameters, masks as floats": "x = torch.randn(5, 2, 12); y = torch.randn(7, 2, 12); "
                                            "p = torch.randn(2, 7); m = torch.randn(6, 5, 7); nn.MultiheadAttention(12, 3, add_bias_kv=True)"
                                            "(x, y, y, key_padding_mask=p, attn_mask=m, need_weights=False)",
    "decoder layer": "nn.TransformerDecoderLayer(12, 3, 24)(torch.randn(5, 2, 12), torch.randn(7, 2, 12))",
    "encoder layer": "nn.TransformerEncoderLayer(12, 3, 24, batch_first=True, norm_first=True)(torch.randn(2, 5, 12))",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    assert wrong(from_code(PROGRAMS[name])) == []
