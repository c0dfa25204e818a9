"""An operator and its spelled-out form are one program to the compiler, and two where they are not the same numbers.

In fp32, and in 16 bits under `default`, both forms get the same plan. Under `strict` each keeps its own roundings to 16
bits. A row that may be masked wholly is 0 in scaled_dot_product_attention and NaN in softmax.
"""
from __future__ import annotations

import pytest

from tests.programs.support import from_code, keys

X = "x = torch.randn(5, 48).{0}; "
ROW = X + "w = torch.randn(48).{0}; b = torch.randn(48).{0}; "
QKV = "q, k, v = (torch.randn(1, 2, 13, 8).{0} for _ in range(3)); "
FORMS = {
    "rms_norm": (ROW + "F.rms_norm(x, (48,), w, 1e-6)",
                 ROW + "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w"),
    "layer_norm": (ROW + "F.layer_norm(x, (48,), w, b, 1e-5)",
                   ROW + "m = x.mean(-1, keepdim=True); c = x - m; c * torch.rsqrt((c * c).mean(-1, keepdim=True) + 1e-5) * w + b"),
    "softmax": (X + "F.softmax(x, -1)",
                X + "e = torch.exp(x - x.amax(-1, keepdim=True)); e / e.sum(-1, keepdim=True)"),
    "sdpa": (QKV + "F.scaled_dot_product_attention(q, k, v)",
             QKV + "F.softmax(q @ k.transpose(-1, -2) * 8 ** -0.5, -1) @ v"),
    "sdpa causal": (QKV + "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
                    QKV + "m = torch.full((13, 13), float('-inf'), dtype=q.dtype).triu(1); "
                          "F.softmax(q @ k.transpose(-1, -2) * 8 ** -0.5 + m, -1) @ v"),
    "silu": (X + "F.silu(x)", X + "x * torch.sigmoid(x)"),
    "gelu": (X + "F.gelu(x)", X + "0.5 * x * (1 + torch.erf(x * 2 ** -0.5))"),
    "gelu tanh": (X + "F.gelu(x, approximate='tanh')",
                  X + "0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x ** 3)))"),
}
CASTS = {"f32": "float()", "bf16": "bfloat16()", "f16": "half()"}


def both(name: str, dtype: str, numerics: str):
    return [from_code(form.format(CASTS[dtype]), numerics) for form in FORMS[name]]


@pytest.mark.parametrize("dtype", CASTS)
@pytest.mark.parametrize("name", FORMS)
def test_one_plan(name, dtype):
    whole, spelled = both(name, dtype, "default")
    assert keys(whole) == keys(spelled) and len(keys(whole)) == 1


@pytest.mark.parametrize("name", FORMS)
def test_apart_under_strict_in_16_bits(name):
    whole, spelled = both(name, "bf16", "strict")
    assert keys(whole) != keys(spelled)


@pytest.mark.parametrize("name", ["rms_norm", "softmax", "sdpa"])
def test_one_plan_under_strict_in_32_bits(name):
    whole, spelled = both(name, "f32", "strict")
    assert keys(whole) == keys(spelled)


DEAD = QKV + "m = torch.randn(13, 13).{0}; "
KILLING = {
    "given mask": (DEAD + "F.scaled_dot_product_attention(q, k, v, m)",
                   DEAD + "F.softmax(q @ k.transpose(-1, -2) * 8 ** -0.5 + m, -1) @ v"),
    "boolean mask": (DEAD + "F.scaled_dot_product_attention(q, k, v, m > 0)",
                     DEAD + "F.softmax((q @ k.transpose(-1, -2) * 8 ** -0.5).masked_fill(~(m > 0), float('-inf')), -1) @ v"),
    "made mask": (QKV + "m = torch.full((13, 13), float('-inf')).triu(0); F.scaled_dot_product_attention(q, k, v, m)",
                  QKV + "m = torch.full((13, 13), float('-inf')).triu(0); "
                        "F.softmax(q @ k.transpose(-1, -2) * 8 ** -0.5 + m, -1) @ v"),
}


@pytest.mark.parametrize("name", KILLING)
def test_apart_where_a_row_may_be_masked_wholly(name):
    whole, spelled = (from_code(form.format("float()")) for form in KILLING[name])
    assert keys(whole) != keys(spelled)
