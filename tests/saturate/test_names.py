"""Names of axes decide what the e-graph can see as equal: the cases that a naming scheme gets wrong, and two of a
layer."""
from __future__ import annotations

import numpy as np
import pytest

from deplodock.facts import parameter
from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Load
from deplodock.ir.meaning import Meaning
from deplodock.soundness import random_inputs
from tests.saturate.support import body, flash, program, proved, total

LAYER = "x = torch.randn(5,8)\nf, g = nn.Linear(8, 8, bias=False), nn.Linear(8, 7, bias=False)\n"
NORM = "n = nn.RMSNorm(8, eps=1e-5)\n"
HEADS = ("q, k, v = torch.randn(2,5,6,4), torch.randn(2,5,3,4), torch.randn(2,5,3,7)\n"
         "q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)\n")
LORA = ("x, a, b = torch.randn(5,8), nn.Linear(8, 3, bias=False), nn.Linear(3, 7, bias=False)\n"
        "w = nn.Linear(8, 7, bias=False)\n")


def test_residual_around_a_linear():
    p = program(LAYER + "x + f(x)")
    assert p.has(p.read("x", "i") + total(p.read("x", "j") * p.read("f_weight", "l")))


def test_one_weight_twice():
    p = program(LAYER + "f(f(x)) + x")
    inner = total(p.read("x", "j") * p.read("f_weight", "l"), "k2")
    assert p.has(total(inner * p.read("f_weight", "m")) + p.read("x", "i"))


def test_matrix_power_fuses():
    p = program("a = torch.randn(6,6)\na @ a @ a")
    assert p.has(total(total(p.read("a", "i") * p.read("a", "j"), "k2") * p.read("a", "l")))


PROVED = {
    "(A@A)@A = A@(A@A)": ("a = torch.randn(6,6)", "(a @ a) @ a", "a @ (a @ a)"),
    "A@A@A@A, left and right": ("a = torch.randn(6,6)", "a @ a @ a @ a", "a @ (a @ (a @ a))"),
    "A@A@A@A, left and in pairs": ("a = torch.randn(6,6)", "a @ a @ a @ a", "(a @ a) @ (a @ a)"),
    "x@x.T is symmetric": ("x = torch.randn(5,8)", "x @ x.T", "(x @ x.T).T"),
    "Linear(x) = (V@x.T).T": (LAYER, "g(x)", "(g.weight @ x.T).T"),
    "low-rank update": (LORA, "w(x) + b(a(x))", "F.linear(x, w.weight + b.weight @ a.weight)"),
    "RMSNorm, spelled out": (LAYER + NORM, "n(x)", "x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * n.weight"),
    "RMSNorm, as models write it": (LAYER + NORM, "n(x)",
                                    "n.weight * (x.float() * torch.rsqrt(x.float().pow(2)"
                                    ".mean(-1, keepdim=True) + 1e-5)).to(x.dtype)"),
    "grouped heads": (HEADS, "F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True, scale=.5)",
                      "F.softmax((q * .5) @ k.repeat_interleave(2, 1).transpose(2, 3)"
                      " + torch.full((5,5), float('-inf')).triu(1), -1) @ v.repeat_interleave(2, 1)"),
    "sums that never meet": ("a, b = torch.randn(5,8), torch.randn(5,8)", "torch.exp(a * b).sum(-1)",
                             "torch.exp(b * a).sum(-1)"),
    "shifted": ("x = torch.randn(5,8)", "(x * x)[1:]", "x[1:] * x[1:]"),
    "flattened": ("x = torch.randn(5,8)", "(x * x).flatten()", "x.flatten() * x.flatten()"),
    "flattened and cut": ("x = torch.randn(5,8)", "(x * x).flatten()[3:30]", "x.flatten()[3:30] * x.flatten()[3:30]"),
    "gathered": ("x, i = torch.randn(5,8), torch.tensor([0, 4, 2, 2])", "F.embedding(i, x * x)",
                 "F.embedding(i, x) * F.embedding(i, x)"),
    "diagonal": ("a = torch.randn(6,6)", "torch.einsum('ii->i', a * a)",
                 "torch.einsum('ii->i', a) * torch.einsum('ii->i', a)"),
}


@pytest.mark.parametrize("code,left,right", PROVED.values(), ids=PROVED)
def test_proved(code, left, right):
    assert proved(code, left, right)


def test_flash_attention_of_one_tensor_with_its_scores_inside():
    p = program("x = torch.randn(5,8)\nF.softmax(x @ x.T, -1) @ x")
    assert p.has(flash(Dtype.f32, total(p.read("x", "a") * p.read("x", "b"), "k")))


def test_norm_then_linear_folds():
    p = program(LAYER + NORM + "g(n(x))")
    assert p.has(body("r") * total(p.read("x", "i") * body("w")), parameter(body("w")))


def loads_of(p, name: str) -> set[int]:
    """The classes that hold a load of a buffer."""
    buffer = p.egraph.number[p.buffer(name)]
    return {c for c, nodes in p.egraph.bodies.items()
            for t in nodes if isinstance(t, Load) and t.tensor.number == buffer}


def test_three_projections_of_one_norm_share_the_operand():
    """Separately built, on one normalised input: a group of weights that the norm's weight is folded into."""
    p = program(NORM + "x = torch.randn(5,8)\nq, k, v = (nn.Linear(8, e, bias=False) for e in (12, 4, 4))\n"
                       "q(n(x)), k(n(x)), v(n(x))")
    assert [len(members) for (_, x), members in p.egraph.groups.items() if x in loads_of(p, "x")] == [3]


def test_low_rank_update_and_matrix_are_one_group():
    p = program(LORA + "w(x) + b(a(x))")
    x, = loads_of(p, "x")
    weights = {p.egraph.number[p.read(n, "i").tensor] for n in ("w_weight", "a_weight")}
    members = next(m for (_, y), m in p.egraph.groups.items() if y == x)
    read = {t.tensor.number for c in members for t in p.egraph.bodies[c] if isinstance(t, Load)}
    assert weights <= read


def test_values_against_the_program():
    """Members of a class cannot show a capture made while entering: the output is compared with NumPy's own."""
    p = program("x = torch.randn(5,8)\nF.softmax(x @ x.T, -1) @ x")
    given = random_inputs(p.egraph)
    x = given[p.buffer("x")]
    e = np.exp(x @ x.T)
    assert np.allclose(Meaning(given).tensor(p.outputs[0]), e / e.sum(-1, keepdims=True) @ x)
