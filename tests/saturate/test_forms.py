"""What the e-graph of a program must hold, and what it must not."""
from __future__ import annotations

import math
import re

import pytest

from deplodock.facts import parameter
from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Cast, op, where
from deplodock.law import literal
from tests.saturate.support import body, flash, program, proved, total

f32, bf16 = Dtype.f32, Dtype.bf16
QKV = "q,k,v = torch.randn(2,5,8),torch.randn(2,5,8),torch.randn(2,5,8)"
SCORES = "q @ k.transpose(1, 2) * 8**-.5"
SPELLED = f"s = {SCORES}\ne = torch.exp(s - s.amax(-1, keepdim=True))"
HALF = "q,k,v = torch.randn(2,5,8).bfloat16(),torch.randn(2,5,8).bfloat16(),torch.randn(2,5,8).bfloat16()"
CAUSAL = "torch.full((5,5), float('-inf')).triu(1)"

ONE_PASS = {
    "naive attention": f"{QKV}\nF.softmax({SCORES}, -1) @ v",
    "with a causal mask": f"{QKV}\nF.softmax({SCORES} + {CAUSAL}, -1) @ v",
    "with an additive mask of any values": f"{QKV}\nm = torch.randn(5,5)\nF.softmax({SCORES} + m, -1) @ v",
    "with a boolean mask": f"{QKV}\nm = torch.ones(5,5).bool()\n"
                           f"F.softmax(({SCORES}).masked_fill(~m, float('-inf')), -1) @ v",
    "softmax spelled out": f"{QKV}\n{SPELLED}\n(e / e.sum(-1, keepdim=True)) @ v",
    "normalised after the product": f"{QKV}\n{SPELLED}\n(e @ v) / e.sum(-1, keepdim=True)",
    "SDPA": f"{QKV}\nF.scaled_dot_product_attention(q, k, v)",
    "SDPA, causal": f"{QKV}\nF.scaled_dot_product_attention(q, k, v, is_causal=True)",
}


@pytest.mark.parametrize("numerics", ["strict", "default"])
@pytest.mark.parametrize("code", ONE_PASS.values(), ids=ONE_PASS)
def test_attention_is_one_pass(code, numerics):
    assert program(code, numerics).has(flash(f32))


@pytest.mark.parametrize("name", ["naive attention", "with an additive mask of any values", "SDPA"])
def test_attention_in_16_bits(name):
    code = ONE_PASS[name].replace(QKV, HALF).replace("torch.randn(5,5)", "torch.randn(5,5).bfloat16()")
    assert program(code).has(Cast(bf16, flash(f32)))
    assert not program(code, "strict").has(Cast(bf16, flash(f32)))


def test_a_causal_mask_is_a_predicate():
    """However it is written: as an additive mask, or with the lowest value of fp32 instead of −∞."""
    for mask in (CAUSAL, "torch.full((5,5), torch.finfo(torch.float32).min).triu(1)",
                 "torch.where(torch.arange(5)[None] <= torch.arange(5)[:, None], 0., float('-inf'))",
                 "torch.zeros(5,5).masked_fill(~torch.ones(5,5).bool().tril(), float('-inf'))"):
        masked = where(op("le", body("a"), body("b")), body("x"), literal(f32, -math.inf))
        assert program(f"{QKV}\nF.softmax({SCORES} + {mask}, -1) @ v").has(flash(f32, masked)), mask


def test_masks_that_leave_a_row_dead_are_not_moved_to_infinity():
    """Anti-causal without the diagonal: row 4 has no key. A finite mask gives the mean of v there, −∞ would give
    NaN."""
    low = "torch.full((5,5), torch.finfo(torch.float32).min).tril(0)"
    p = program(f"{QKV}\nF.softmax({SCORES} + {low}, -1) @ v")
    masked = where(body("p"), body("x"), literal(f32, -math.inf))
    assert p.has(flash(f32)) and not p.has(flash(f32, masked))


def test_fp16_lowest_stays_an_addition():
    p = program(f"{QKV}\nF.softmax({SCORES} + torch.full((5,5), -65504.).triu(1), -1) @ v")
    assert p.has(flash(f32)) and not p.has(flash(f32, where(body("p"), body("x"), body("y"))))


def test_norm_folds_into_the_matrix():
    """Σ (x·r·w)·W = r·Σ x·(w·W): the scale moves behind the product, the weight into the matrix."""
    p = program("x = torch.randn(4,8)\nlinear = nn.Linear(8, 6, bias=False)\nlinear(nn.RMSNorm(8, eps=1e-6)(x))")
    folded = body("r") * total(p.read("x", "i") * body("w"))
    assert p.has(folded, parameter(body("w")))


def test_norm_folds_into_the_matrix_in_16_bits():
    code = ("x = torch.randn(4,8).bfloat16()\nlinear = nn.Linear(8, 6, bias=False).bfloat16()\n"
            "linear(nn.RMSNorm(8, eps=1e-6).bfloat16()(x))")
    for numerics, expected in (("default", True), ("strict", False)):
        p = program(code, numerics)
        folded = Cast(bf16, body("r") * total(Cast(f32, p.read("x", "i")) * body("w")))
        assert p.has(folded, parameter(body("w"))) is expected


def test_strict_moves_no_factor_that_may_be_infinite():
    p = program("x, r, w = torch.randn(4,8), torch.randn(4,1), torch.randn(6,8)\nF.linear(x * r, w)", "strict")
    assert not p.has(body("a") * total(body("b")))
    p = program("x, w = torch.randn(4,8), torch.randn(6,8)\nF.linear(x * 0.5, w)", "strict")
    assert p.has(literal(f32, 0.5) * total(body("b")))


def test_linears_of_one_input_are_one_group():
    code = "x = torch.randn(4,8)\nq, k, v = (nn.Linear(8, n, bias=False) for n in (6, 2, 3))\nq(x), k(x), v(x)"
    p = program(code)
    (key, members), = p.egraph.groups.items()
    assert len(members) == 3 and [a.extent for a in key[0]] == [8]


@pytest.mark.parametrize("left,right", [("q(x)", "wide[:, :6]"), ("k(x)", "wide[:, 6:8]"), ("v(x)", "wide[:, 8:]")])
def test_linears_of_one_input_are_slices_of_one_product(left, right):
    code = ("x = torch.randn(4,8)\nq, k, v = (nn.Linear(8, n, bias=False) for n in (6, 2, 3))\n"
            "wide = F.linear(x, torch.cat((q.weight, k.weight, v.weight)))")
    assert proved(code, left, right)


def test_gate_and_up_are_not_exchanged():
    code = "x = torch.randn(4,8)\ng, u = nn.Linear(8, 6, bias=False), nn.Linear(8, 6, bias=False)"
    assert proved(code, "F.silu(g(x)) * u(x)", "u(x) * (g(x) * torch.sigmoid(g(x)))")
    assert not proved(code, "F.silu(g(x)) * u(x)", "F.silu(u(x)) * g(x)")


def test_rotate_half_is_one_load():
    p = program("x = torch.randn(3,8)\nc, s = torch.randn(3,8), torch.randn(3,8)\n"
                "x * c + torch.cat((-x[..., 4:], x[..., :4]), -1) * s")
    sign = where(body("p"), literal(f32, -1.0), literal(f32, 1.0))
    assert p.has(p.read("x", "i") * p.read("c", "i") + sign * p.read("x", "j") * p.read("s", "i"))


EQUAL = {
    "softmax": ("x = torch.randn(4,8)", "F.softmax(x, -1)",
                "torch.exp(x - x.amax(-1, keepdim=True))"
                " / torch.exp(x - x.amax(-1, keepdim=True)).sum(-1, keepdim=True)"),
    "rms_norm": ("x, w = torch.randn(4,8), torch.randn(8)", "F.rms_norm(x, (8,), w, 1e-6)",
                 "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w"),
    "rms_norm with a root": ("x, w = torch.randn(4,8), torch.randn(8)", "F.rms_norm(x, (8,), w, 1e-6)",
                             "w * (x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6))"),
    "layer_norm": ("x, w, b = torch.randn(4,8), torch.randn(8), torch.randn(8)", "F.layer_norm(x, (8,), w, b)",
                   "(x - x.mean(-1, keepdim=True)) * torch.rsqrt(((x - x.mean(-1, keepdim=True))**2)"
                   ".mean(-1, keepdim=True) + 1e-5) * w + b"),
    "silu": ("x = torch.randn(4,8)", "F.silu(x)", "x * torch.sigmoid(x)"),
    "silu as a quotient": ("x = torch.randn(4,8)", "F.silu(x)", "x / (1 + torch.exp(-x))"),
    "gelu": ("x = torch.randn(4,8)", "F.gelu(x)", "0.5 * x * (1 + torch.erf(x / 2**.5))"),
    "gelu tanh": ("x = torch.randn(4,8)", "F.gelu(x, approximate='tanh')",
                  "0.5 * x * (1 + torch.tanh((2 / torch.pi)**.5 * (x + 0.044715 * x**3)))"),
    "sdpa": (QKV, "F.scaled_dot_product_attention(q, k, v)", f"F.softmax({SCORES}, -1) @ v"),
    "sdpa causal": (QKV, "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
                    f"F.softmax({SCORES} + {CAUSAL}, -1) @ v"),
}


@pytest.mark.parametrize("code,left,right", EQUAL.values(), ids=EQUAL)
def test_an_operator_is_its_spelled_out_form(code, left, right):
    assert proved(code, left, right)


def in_half(code: str) -> str:
    """A program with all its inputs in bf16."""
    return re.sub(r"torch\.randn\([^()]*\)", r"\g<0>.bfloat16()", code)


@pytest.mark.parametrize("code,left,right", EQUAL.values(), ids=EQUAL)
def test_an_operator_is_its_spelled_out_form_in_16_bits(code, left, right):
    right = right.replace(CAUSAL, f"{CAUSAL}.bfloat16()")
    assert proved(in_half(code), left, right)


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "silu as a quotient", "gelu tanh", "sdpa causal"])
def test_forms_that_round_differently_stay_apart_under_strict(name):
    code, left, right = EQUAL[name]
    assert not proved(in_half(code), left, right.replace(CAUSAL, f"{CAUSAL}.bfloat16()"), "strict")


APART = {
    "sum and max do not swap": ("x = torch.randn(4,8)", "x.sum(-1).amax(-1)", "x.amax(-1).sum(-1)"),
    "a factor that depends on the axis": ("x, w = torch.randn(4,8), torch.randn(8)", "(x * w).sum(-1)",
                                          "x.sum(-1) * w.sum()"),
    "a factor before a maximum": ("x, w = torch.randn(4,8), torch.randn(4,1)", "(x * w).amax(-1)",
                                  "x.amax(-1) * w[:, 0]"),
    "causal and anti-causal": (QKV, f"F.softmax({SCORES} + {CAUSAL}, -1) @ v",
                               f"F.softmax({SCORES} + {CAUSAL}.T, -1) @ v"),
    "a matrix and its transpose": ("x = torch.randn(5,5)", "x", "x.T"),
    "products of unlike operands": ("a, b = torch.randn(5,5), torch.randn(5,5)", "a @ b", "b @ a"),
    "halves exchanged": ("x = torch.randn(3,8)", "torch.cat((-x[..., 4:], x[..., :4]), -1)",
                         "torch.cat((x[..., 4:], -x[..., :4]), -1)"),
    "floor division after a product": ("x = torch.arange(5); y = torch.arange(5)", "(x * y) // 3", "x * (y // 3)"),
    "a mask that may leave a row dead": (f"{QKV}\nm = torch.randn(5,5)",
                                         "F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
                                         f"F.softmax({SCORES} + m, -1) @ v"),
}


@pytest.mark.parametrize("code,left,right", APART.values(), ids=APART)
def test_what_differs_stays_apart(code, left, right):
    assert not proved(code, left, right)


def test_roundings_stay_apart_under_strict():
    code = "x, y = torch.randn(4,8).bfloat16(), torch.randn(4,8).bfloat16()"
    exact = "(x.float() + y.float()).bfloat16()"
    assert proved(code, "x + y", exact, "strict")
    long, short = "(x + y) + x", "((x.float() + y.float()) + x.float()).bfloat16()"
    assert proved(code, long, short, "default") and not proved(code, long, short, "strict")
