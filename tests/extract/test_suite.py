"""The suite: plans of real programs, every candidate and plan evaluated against the source in float64."""
from __future__ import annotations

import pytest

from extract import check
from extract.cover import count, cover
from extract.extract import stored
from extract.kernels import BEST
from extract.naming import key
from tests.extract.support import decoder, extracted, saturated

ATTENTION = "q = torch.randn(1, 2, 13, 8{d}); k = torch.randn(1, 2, 13, 8{d}); v = torch.randn(1, 2, 13, 8{d}); "
PROGRAMS = {
    "pointwise": "x = torch.randn(5, 8); y = torch.randn(8); torch.tanh(x) * y + 1",
    "silu_mul": "g = torch.randn(5, 8).bfloat16(); u = torch.randn(5, 8).bfloat16(); F.silu(g) * u",
    "matmul": "x = torch.randn(5, 8).bfloat16(); w = torch.randn(8, 7).bfloat16(); x @ w",
    "matmul_add": "x = torch.randn(5, 8); w = torch.randn(8, 7); r = torch.randn(5, 7); x @ w + r",
    "silu_mul_matmul": "g = torch.randn(5, 8); u = torch.randn(5, 8); w = torch.randn(8, 7); (F.silu(g) * u) @ w",
    "rms_norm": "x = torch.randn(5, 8); w = torch.randn(8); F.rms_norm(x, (8,), w, 1e-6)",
    "rms_norm_linear": "lin = nn.Linear(8, 7, bias=False); n = nn.RMSNorm(8); lin(n(torch.randn(5, 8)))",
    "layer_norm": "x = torch.randn(5, 8); F.layer_norm(x, (8,), torch.randn(8), torch.randn(8))",
    "softmax": "x = torch.randn(5, 9); F.softmax(x, -1)",
    "log_softmax": "x = torch.randn(5, 9); m = x.amax(-1, keepdim=True); "
                   "x - m - torch.log(torch.exp(x - m).sum(-1, keepdim=True))",
    "naive_attention": ATTENTION.format(d="") + "m = torch.randn(13, 13); "
                       "F.softmax(q @ k.transpose(-1, -2) * 8**-0.5 + m, -1) @ v",
    "sdpa": ATTENTION.format(d="") + "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    "self_attention": "x = torch.randn(13, 8); F.softmax(x @ x.T, -1) @ x",
    "two_products": "a = torch.randn(6, 6); a @ a @ a",
    "residual": "lin = nn.Linear(8, 8); x = torch.randn(5, 8); x + lin(x)",
    "rotary": "lin = nn.Linear(8, 24, bias=False); n = nn.RMSNorm(8); c = torch.randn(5, 8); s = torch.randn(5, 8); "
              "q = lin(n(torch.randn(5, 8))).view(5, 3, 8).transpose(0, 1); "
              "q * c + torch.cat((-q[..., 4:], q[..., :4]), -1) * s",
    "argmax": "x = torch.randn(5, 9); torch.argmax(x * 2, -1)",
    "embedding": "e = nn.Embedding(10, 8); ids = torch.randint(0, 10, (5,)); e(ids) * 2",
    "column_scale": "x = torch.randn(5, 8); w = torch.randn(7, 8); ((x / x.abs().sum(0)) @ w.T).amax(-1)",
    "two_outputs": "x = torch.randn(5, 8); (x.sum(-1), x.amax(-1))",
    "an_input_returned": "x = torch.randn(5, 8); (x, x + 1, x)",
    "nothing_but_an_input": "x = torch.randn(5, 8); x",
    "a_transpose": "x = torch.randn(5, 8); x.T",
    "no_elements": "x = torch.randn(0, 8); y = torch.randn(5, 0); (x * 2, y.sum(-1))",
    "a_scalar": "x = torch.randn(()); x * x.exp()",
    "integers": "x = torch.randint(0, 5, (3, 4)); y = torch.randint(0, 5, (4, 2)); x @ y",
    "constants_of_constants": "l = nn.Linear(6, 6, bias=False); x = torch.randn(2, 6); "
                              "x @ (l.weight @ l.weight) @ l.weight.T",
    "gathered_by_argmax": "x = torch.randn(4, 9); e = nn.Embedding(9, 3); e(x.argmax(-1))",
    "mlp": "l = nn.LayerNorm(8); a = nn.Linear(8, 12); b = nn.Linear(12, 8); x = torch.randn(3, 8); "
           "b(F.gelu(a(l(x)))) + x",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_candidate_and_plan_computes_what_the_source_does(name):
    x = extracted(PROGRAMS[name])
    source = check.source(x.program)
    for seed in (0, 1):
        values = check.arguments(source, seed)
        assert check.wrong_candidates(source, x.candidates, values) == []
        for c in x.covers:
            assert check.wrong_outputs(source, c.kernels, values) == []
        known = check.truth(source, values)
        named = {real.name: values[b] for b, real in source.given.items()}
        for plan in x.plans:
            for found, b in zip(check.results(plan, named), source.targets):
                assert not check.disagree(found, known[b])


@pytest.mark.parametrize("name", "silu_mul rms_norm layer_norm softmax naive_attention sdpa matmul_add".split())
def test_one_kernel(name):
    assert len(extracted(PROGRAMS[name]).plans[0].kernels) == 1


DECODER = {512: 5, 2048: 7, 4: 2, 8: 3, 32: 3, 64: 4, 5632: 11}
"""Small extents for the axes of a decoder layer at length 512; no two of one layer's classes become equal."""


@pytest.mark.parametrize("dtype, numerics, most", [
    ("float32", "default", 6), ("bfloat16", "default", 6), ("bfloat16", "strict", 10)])
def test_decoder_layer(dtype, numerics, most):
    x = decoder(512, dtype, numerics).extract(numerics)
    fewest = cover(stored(x.program), x.candidates, x.program.rank, 1, count)
    assert len(fewest[0].kernels) <= most
    source = check.source(x.program, DECODER)
    values = check.arguments(source)
    assert check.wrong_candidates(source, x.candidates, values) == []
    for c in (*x.covers, *fewest):
        assert check.wrong_outputs(source, c.kernels, values) == []
    assert len(x.fewest().kernels) == len(fewest[0].kernels)


def test_wider_search_finds_nothing_cheaper():
    """Two more bodies of each kind change no plan; what they would change is said."""
    changed = {}
    programs = {name: saturated(code) for name, code in PROGRAMS.items()}
    programs["decoder"] = decoder(512, "bfloat16", "default")
    for name, s in programs.items():
        usual, wider = (s.extract(best=b).covers[0].total for b in (BEST, BEST + 2))
        if wider < usual * (1 - 1e-9):
            changed[name] = (usual, wider)
    assert changed == {}


RENAMED = [
    ("x = torch.randn(5, 8); w = torch.randn(8); F.rms_norm(x, (8,), w, 1e-6)",
     "zebra = torch.randn(5, 8); apple = torch.randn(8); F.rms_norm(zebra, (8,), apple, 1e-6)"),
    (PROGRAMS["naive_attention"],
     "z = torch.randn(1, 2, 13, 8); b = torch.randn(1, 2, 13, 8); a = torch.randn(1, 2, 13, 8); "
     "y = torch.randn(13, 13); F.softmax(z @ b.transpose(-1, -2) * 8**-0.5 + y, -1) @ a"),
    ("x = torch.randn(5, 8); g = nn.Linear(8, 7); u = nn.Linear(8, 7); F.silu(g(x)) * u(x)",
     "q = torch.randn(5, 8); zz = nn.Linear(8, 7); aa = nn.Linear(8, 7); F.silu(zz(q)) * aa(q)"),
]


@pytest.mark.parametrize("one, other", RENAMED, ids=["rms_norm", "attention", "gate_up"])
def test_names_decide_nothing(one, other):
    a, b = extracted(one), extracted(other)
    assert [key(k) for k in a.plans[0].kernels] == [key(k) for k in b.plans[0].kernels]
    assert [k.name for k in a.plans[0].kernels] == [k.name for k in b.plans[0].kernels]
    assert len(a.candidates) == len(b.candidates)
    assert [c.total for c in a.covers] == [c.total for c in b.covers]


def test_equal_layers_are_equal_kernels():
    layer = "x = x + {0}(F.rms_norm(x, (2048,))); "
    code = "a = nn.Linear(2048, 2048).bfloat16(); b = nn.Linear(2048, 2048).bfloat16(); " \
           "x = torch.randn(512, 2048).bfloat16(); "
    plan = extracted(code + layer.format("a") + layer.format("b") + "x").plans[0]
    assert len({key(k) for k in plan.kernels}) == 1 and len(plan.kernels) == 2


def test_kernels_are_named_after_what_they_compute():
    x = extracted(PROGRAMS["rms_norm_linear"])
    assert [k.name for k in x.plans[0].kernels] == ["k_rms_norm_linear"]
    assert any("rms_norm" in line for line in x.plans[0].kernels[0].source)


def test_constants_are_computed_once():
    plan = extracted(PROGRAMS["rms_norm_linear"]).plans[0]
    assert [b.kind for k in plan.once for b in k.writes] == ["constant"]
    assert {b.kind for k in plan.once for b in k.reads} == {"parameter"}
    assert plan.once[0].writes[0] in plan.kernels[0].reads


def test_report_says_what_runs():
    text = str(extracted(PROGRAMS["rms_norm_linear"]))
    assert "k_rms_norm_linear" in text and "optimal among" in text and "us" in text and "reads" in text
