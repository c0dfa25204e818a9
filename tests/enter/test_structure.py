"""What programs enter as: launches of primitive steps, dimensions factored, axes named by class."""
import re

import pytest
import torch

from deplodock.capture import capture_code, capture_module
from deplodock.enter import Entered, enter
from deplodock.ir.loop import Cast, Launch, Load, subst
from deplodock.ir.show import Text
from tests.enter.checks import check_captured
from tests.examples.decoder import SMALL, layer


def entered(code: str) -> Entered:
    return enter(capture_code(code).program)


def text(e: Entered) -> str:
    """Tensor IR without where its statements come from."""
    return re.sub(r"  # .*", "", e.tensor_text)


NAMED = {
    "a residual and its product share the classes of rows and columns": ("""
x = torch.randn(5, 8); l = nn.Linear(8, 8, bias=False); x + l(x)""", """
x: f32[m:5,n:8] = input
l_weight: f32[n:8,n':8] = parameter
linear: f32[m:5,n:8] = reduction sum[n'] x[m,n'] * l_weight[n,n']
add: f32[m:5,n:8] = elementwise add x linear
return add"""),
    "a square matrix has one class, and a chain of products three axes of it": ("""
A = torch.randn(6, 6); A @ A @ A""", """
A: f32[m:6,m':6] = input
matmul: f32[m:6,m':6] = reduction sum[m''] A[m,m''] * A[m'',m']
matmul_1: f32[m:6,m':6] = reduction sum[m''] matmul[m,m''] * A[m'',m']
return matmul_1"""),
    "keys are positions too": ("""
x = torch.randn(5, 8); F.softmax(x @ x.T, -1) @ x""", """
x: f32[m:5,k:8] = input
permute: f32[k:8,m:5] = index_map x[m,k]
matmul: f32[m:5,m':5] = reduction sum[k] x[m,k] * permute[k,m']
softmax_max: f32[m:5] = reduction max[m'] matmul[m,m']
softmax_sub: f32[m:5,m':5] = elementwise sub matmul softmax_max
softmax_exp: f32[m:5,m':5] = elementwise exp softmax_sub
softmax_sum: f32[m:5] = reduction sum[m'] softmax_exp[m,m']
softmax: f32[m:5,m':5] = elementwise div softmax_exp softmax_sum
matmul_1: f32[m:5,k:8] = reduction sum[m'] softmax[m,m'] * x[m',k]
return matmul_1"""),
    "heads and rotated halves are axes of weights, activations and angles alike": ("""
x = torch.randn(2, 5, 12); w = torch.randn(24, 12); c = torch.randn(5, 6)
q = F.linear(x, w).view(2, 5, 4, 6).transpose(1, 2)
q * c + torch.cat([-q[..., 3:], q[..., :3]], -1)""", """
x: f32[i:2,m:5,k:12] = input
w: f32[n:4,j:2,l:3,k:12] = input
c: f32[m:5,j:2,l:3] = input
linear: f32[i:2,m:5,n:4,j:2,l:3] = reduction sum[k] x[i,m,k] * w[n,j,l,k]
permute: f32[i:2,n:4,m:5,j:2,l:3] = index_map linear[i,m,n,j,l]
mul: f32[i:2,n:4,m:5,j:2,l:3] = elementwise mul permute c
slice: f32[i:2,n:4,m:5,l:3] = index_map permute[i,n,m,1,l]
neg: f32[i:2,n:4,m:5,l:3] = elementwise neg slice
slice_1: f32[i:2,n:4,m:5,l:3] = index_map permute[i,n,m,0,l]
cat: f32[i:2,n:4,m:5,j:2,l:3] = elementwise where j==0 neg slice_1
add: f32[i:2,n:4,m:5,j:2,l:3] = elementwise add mul cat
return add"""),
    "grouped heads are two axes, and repeating them is the absence of one": ("""
q = torch.randn(1, 6, 5, 8); k = torch.randn(1, 2, 7, 8)
q @ k.repeat_interleave(3, 1).transpose(2, 3)""", """
q: f32[i:2,j:3,m:5,k:8] = input
k: f32[i:2,n:7,k:8] = input
expand: f32[i:2,j:3,n:7,k:8] = index_map k[i,n,k]
permute: f32[i:2,j:3,k:8,n:7] = index_map expand[i,j,n,k]
matmul: f32[i:2,j:3,m:5,n:7] = reduction sum[k] q[i,j,m,k] * permute[i,j,k,n]
return matmul"""),
    "interleaved pairs split the other way round": ("""
x = torch.randn(3, 8); torch.stack([-x[:, 1::2], x[:, ::2]], -1).flatten(1)""", """
x: f32[i:3,j:4,l:2] = input
slice: f32[i:3,j:4] = index_map x[i,j,1]
neg: f32[i:3,j:4] = elementwise neg slice
slice_1: f32[i:3,j:4] = index_map x[i,j,0]
cat: f32[i:3,j:4,o:2] = elementwise where o==0 neg slice_1
return cat"""),
    "a fused projection of unequal parts splits into heads": ("""
x = torch.randn(5, 40); q, k = x.split([24, 16], 1); q.view(5, 3, 8), k.view(5, 2, 8)""", """
x: f32[i:5,j:5,l:8] = input
slice: f32[i:5,o:3,l:8] = index_map x[i,o,l]
slice_1: f32[i:5,p:2,l:8] = index_map x[i,p+3,l]
return slice slice_1"""),
    "a reshape that does not factor is index arithmetic": ("""
x = torch.randn(6, 10); x.reshape(15, 4)""", """
x: f32[i:6,j:10] = input
reshape: f32[l:15,o:4] = index_map x[(4*l+o)//10,(4*l+o)%10]
return reshape"""),
    "parts of unequal extents are guarded loads, shifts are offsets": ("""
x = torch.randn(3, 4); y = torch.randn(2, 4); torch.cat([x, y])[1:]""", """
x: f32[i:3,j:4] = input
y: f32[l:2,j:4] = input
cat: f32[o:5,j:4] = elementwise where o<3 x[o,j] y[o-3,j]
slice: f32[p:4,j:4] = index_map cat[p+1,j]
return slice"""),
    "a causal mask is a predicate over positions": ("""
x = torch.randn(5, 5); x + torch.full((5, 5), float("-inf")).triu(1), x.tril()""", """
x: f32[i:5,j:5] = input
full: f32[i:5,j:5] = elementwise -inf
triu: f32[i:5,j:5] = elementwise where j<=i 0 full
add: f32[i:5,j:5] = elementwise add x triu
tril: f32[i:5,j:5] = elementwise where j<=i x 0
return add tril"""),
    "dimensions of one element have no axis": ("""
x = torch.randn(1, 5, 1); y = torch.randn(3, 1, 1); x + y, x.sum(0), x.squeeze()""", """
x: f32[i:5] = input
y: f32[j:3] = input
add: f32[j:3,i:5] = elementwise add x y
return add x x"""),
    "an embedding is a load at a loaded index": ("""
ids = torch.randint(0, 9, (2, 3)); e = nn.Embedding(9, 4); e(ids) * 2""", """
ids: i64[i:2,j:3] = input
e_weight: f32[l:9,d:4] = parameter
embedding: f32[i:2,j:3,d:4] = index_map e_weight[int(ids[i,j]),d]
mul: f32[i:2,j:3,d:4] = elementwise mul embedding 2
return mul"""),
    "16-bit definitions compute in f32 and round once": ("""
x = torch.randn(5, 8).bfloat16(); F.softmax(x, -1)""", """
x: bf16[i:5,k:8] = input
softmax_cast: f32[i:5,k:8] = elementwise cast x
softmax_max: f32[i:5] = reduction max[k] softmax_cast[i,k]
softmax_sub: f32[i:5,k:8] = elementwise sub softmax_cast softmax_max
softmax_exp: f32[i:5,k:8] = elementwise exp softmax_sub
softmax_sum: f32[i:5] = reduction sum[k] softmax_exp[i,k]
softmax: bf16[i:5,k:8] = elementwise div softmax_exp softmax_sum
return softmax"""),
}


@pytest.mark.parametrize("what", NAMED)
def test_enters_as(what):
    code, expected = NAMED[what]
    assert text(entered(code)) == expected.strip()


SPELLED_OUT = {
    "rms_norm": """
x = torch.randn(5, 8); w = torch.randn(8)
F.rms_norm(x, (8,), w, 1e-5), x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w""",
    "layer_norm": """
x = torch.randn(5, 8); w = torch.randn(8); b = torch.randn(8); d = x - x.mean(-1, keepdim=True)
F.layer_norm(x, (8,), w, b), d * torch.rsqrt((d * d).mean(-1, keepdim=True) + 1e-5) * w + b""",
    "softmax": """
x = torch.randn(5, 8); e = torch.exp(x - x.amax(-1, keepdim=True)); F.softmax(x, -1), e / e.sum(-1, keepdim=True)""",
    "log_softmax": """
x = torch.randn(5, 8); s = x - x.amax(-1, keepdim=True); F.log_softmax(x, -1), s - s.exp().sum(-1, keepdim=True).log()""",
    "silu": "x = torch.randn(5, 8); F.silu(x), x * torch.sigmoid(x)",
    "mean": "x = torch.randn(5, 8); x.mean(1), x.sum(1) / 8",
    "matmul": """
x = torch.randn(5, 8); w = torch.randn(3, 8); x @ w.T, torch.einsum('mk,kn->mn', x, w.T), torch.mm(x, w.T)""",
    "attention": """
q = torch.randn(2, 3, 5, 8); k = torch.randn(2, 3, 7, 8)
F.scaled_dot_product_attention(q, k, k), F.softmax(q @ k.transpose(-1, -2) * 8 ** -.5, -1) @ k""",
    "grouped attention": """
q = torch.randn(2, 6, 5, 8); k = torch.randn(2, 2, 7, 8); r = k.repeat_interleave(3, 1)
F.scaled_dot_product_attention(q, k, k, enable_gqa=True), F.scaled_dot_product_attention(q, r, r)""",
    "a norm in 16 bits": """
x = torch.randn(5, 8).bfloat16(); h = x.float()
F.rms_norm(x, (8,), None, 1e-5), (h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-5)).bfloat16()""",
}


@pytest.mark.parametrize("what", SPELLED_OUT)
def test_an_operator_enters_as_its_spelled_out_form(what):
    first, *others = (fused(r.tensor) for r in entered(SPELLED_OUT[what]).outputs)
    assert others and all(o is first for o in others)


def fused(t):
    """A tensor with launches that only cast joined to what they read: a definition rounds in its last step's launch."""
    match t:
        case Launch(axes, Cast(d, Load(Launch(inner, body), ix))):
            return fused(Launch(axes, Cast(d, subst(body, dict(zip(inner, ix))))))
    return t


def test_a_fully_masked_row_keeps_attention_apart_from_its_spelled_out_form():
    e = entered("""
q = torch.randn(2, 3, 5, 8); m = torch.randn(5, 5)
F.scaled_dot_product_attention(q, q, q, attn_mask=m), F.softmax(q @ q.transpose(-1, -2) * 8 ** -.5 + m, -1) @ q""")
    guarded, spelled = (r.tensor for r in e.outputs)
    assert isinstance(guarded, Launch) and guarded.body.name == "where" and guarded.body.args[2].tensor is spelled


@pytest.mark.parametrize("code, rounded", [
    ("x > 0.1", 2), ("x.floor()", 1), ("x.argmax(1)", 1), ("x.to(torch.int32)", 1), ("x.bool()", 1), ("x * 0.1", 0),
    ("x.amax(1)", 0), ("x.float()", 0), ("x.float() > 0.1", 0), ("x.clamp(0, 1)", 0)])
def test_discrete_operators_see_16_bit_operands_rounded(code, rounded):
    """In every numerics mode: a rounding that a discrete result depends on is kept apart from those that may go."""
    body = entered(f"x = torch.randn(5, 8).bfloat16(); {code}").statements[-1].launch.body
    assert Text({}).term(body).count("round_to(bf16") == rounded


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_decoder_layer(attention, dtype):
    module, inputs = layer(SMALL, 5, dtype, batch=2, attention=attention)
    e = check_captured(capture_module(module, inputs))
    assert 50 <= len(e.statements) <= 70
    shapes = {b.name: tuple(a.extent for a in b.axes) for b in e.parameters}
    assert shapes["self_attn_q_proj_weight"] == (2, 3, 2, 4, 48)
    assert shapes["self_attn_k_proj_weight"] == (2, 2, 4, 48)
    assert shapes["self_attn_v_proj_weight"] == (2, 8, 48)
    assert shapes["self_attn_o_proj_weight"] == (48, 2, 3, 8)


def test_provenance_and_strides():
    class Norm(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.rms_norm(x.reshape(2, 3, 4), (4,))
    e = enter(capture_module(Norm(), (torch.randn(4, 6).T,)).program)
    last = e.statements[-1]
    assert (last.name, last.node, last.op, last.law) == ("rms_norm", "rms_norm", "rms_norm", "rms_norm_def")
    assert all("rms_norm(x.reshape" in s.source.text for s in e.statements)
    assert [a.extent for a in e.inputs[0].axes] == [2, 3, 4]
    assert e.strides[e.inputs[0]] == (3, 1, 6)
