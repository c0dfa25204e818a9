"""Programs before and after capture: what a person reads, line by line."""
from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deplodock.capture import capture_code
from deplodock.capture.build import RESERVED
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import OPERATORS, Arg, Node, Program, Source, Value, contiguous, parse

EXAMPLES = {
    "softmax": ("F.softmax(torch.randn(8, 8), -1)", """\
randn: f32[8,8] = input
softmax: f32[8,8] = softmax randn dim=1  # <-c>:1: F.softmax(torch.randn(8, 8), -1)
return softmax"""),
    "norm and linear in bf16": ("""\
x = torch.randn(1, 32, 64).bfloat16()
norm = nn.RMSNorm(64).bfloat16()
nn.Linear(64, 32, bias=False).bfloat16()(norm(x))""", """\
x: bf16[1,32,64] = input
norm_weight: bf16[64] = parameter 'norm.weight'
linear_weight: bf16[32,64] = parameter 'linear.weight'
rms_norm: bf16[1,32,64] = rms_norm x norm_weight dims=(2,) eps=1.1920928955078125e-07  \
# <-c>:3: nn.Linear(64, 32, bias=False).bfloat16()(norm(x))
linear: bf16[1,32,32] = linear rms_norm linear_weight None  # <-c>:3: nn.Linear(64, 32, bias=False).bfloat16()(norm(x))
return linear"""),
    "naive attention": ("""\
q = torch.randn(2, 8, 4); k = torch.randn(2, 8, 4); v = torch.randn(2, 8, 4)
mask = torch.full((8, 8), float('-inf')).triu(1)
scores = q @ k.transpose(-1, -2) * 4 ** -0.5 + mask
scores.softmax(-1) @ v""", """\
q: f32[2,8,4] = input
k: f32[2,8,4] = input
v: f32[2,8,4] = input
full: f32[8,8] = full value=-inf  # <-c>:2: mask = torch.full((8, 8), float('-inf')).triu(1)
triu: f32[8,8] = triu full diagonal=1  # <-c>:2: mask = torch.full((8, 8), float('-inf')).triu(1)
permute: f32[2,4,8] = permute k dims=(0,2,1,)  # <-c>:3: scores = q @ k.transpose(-1, -2) * 4 ** -0.5 + mask
matmul: f32[2,8,8] = matmul q permute  # <-c>:3: scores = q @ k.transpose(-1, -2) * 4 ** -0.5 + mask
mul: f32[2,8,8] = mul matmul 0.5  # <-c>:3: scores = q @ k.transpose(-1, -2) * 4 ** -0.5 + mask
add: f32[2,8,8] = add mul triu  # <-c>:3: scores = q @ k.transpose(-1, -2) * 4 ** -0.5 + mask
softmax: f32[2,8,8] = softmax add dim=2  # <-c>:4: scores.softmax(-1) @ v
matmul_1: f32[2,8,4] = matmul softmax v  # <-c>:4: scores.softmax(-1) @ v
return matmul_1"""),
    "attention with shared heads": ("""\
q = torch.randn(1, 4, 16, 8); k = torch.randn(1, 2, 16, 8); v = torch.randn(1, 2, 16, 8)
F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)""", """\
q: f32[1,4,16,8] = input
k: f32[1,2,16,8] = input
v: f32[1,2,16,8] = input
scaled_dot_product_attention: f32[1,4,16,8] = scaled_dot_product_attention q k v None is_causal=True \
scale=0.35355339059327373 enable_gqa=True  \
# <-c>:2: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
return scaled_dot_product_attention"""),
    "promotion is explicit": ("""\
x = torch.randn(4).half(); y = torch.randn(4); i = torch.tensor([1, 2, 3, 4]); (x * 2 + y) > i""", """\
x: f16[4] = input
y: f32[4] = input
i: i64[4] = input
mul: f16[4] = mul x 2.0  # <-c>:1: (x * 2 + y) > i
cast: f32[4] = cast mul  # <-c>:1: (x * 2 + y) > i
add: f32[4] = add cast y  # <-c>:1: (x * 2 + y) > i
cast_1: f32[4] = cast i  # <-c>:1: (x * 2 + y) > i
lt: b8[4] = lt cast_1 add  # <-c>:1: (x * 2 + y) > i
return lt"""),
    "a chain over several lines": ("""\
x = torch.randn(4, 6)
(x.exp()
  .sum(1)
  .log())""", """\
x: f32[4,6] = input
exp: f32[4,6] = exp x  # <-c>:2: (x.exp()
sum: f32[4] = sum exp dims=(1,) keepdim=False  # <-c>:3: .sum(1)
log: f32[4] = log sum  # <-c>:4: .log())
return log"""),
    "views": ("x = torch.randn(2, 6); x[:, 4:].reshape(-1), x.view(2, 2, 3).transpose(0, 2), x[None, 0, ::2]", """\
x: f32[2,6] = input
slice: f32[2,2] = slice x dim=1 start=4 stop=6 step=1  \
# <-c>:1: x[:, 4:].reshape(-1), x.view(2, 2, 3).transpose(0, 2), x[None, 0, ::2]
reshape: f32[4] = reshape slice  # <-c>:1: x[:, 4:].reshape(-1), x.view(2, 2, 3).transpose(0, 2), x[None, 0, ::2]
reshape_1: f32[2,2,3] = reshape x  # <-c>:1: x[:, 4:].reshape(-1), x.view(2, 2, 3).transpose(0, 2), x[None, 0, ::2]
permute: f32[3,2,2] = permute reshape_1 dims=(2,1,0,)  \
# <-c>:1: x[:, 4:].reshape(-1), x.view(2, 2, 3).transpose(0, 2), x[None, 0, ::2]
reshape_2: f32[1,2,6] = reshape x  # <-c>:1: x[:, 4:].reshape(-1), x.view(2, 2, 3).transpose(0, 2), x[None, 0, ::2]
select: f32[1,6] = select reshape_2 dim=1 index=0  \
# <-c>:1: x[:, 4:].reshape(-1), x.view(2, 2, 3).transpose(0, 2), x[None, 0, ::2]
slice_1: f32[1,3] = slice select dim=1 start=0 stop=6 step=2  \
# <-c>:1: x[:, 4:].reshape(-1), x.view(2, 2, 3).transpose(0, 2), x[None, 0, ::2]
return reshape permute slice_1"""),
    "an operator that PyTorch decomposes": ("torch.deg2rad(torch.randn(3))", """\
randn: f32[3] = input
mul: f32[3] = mul randn 0.017453292519943295  # <-c>:1: torch.deg2rad(torch.randn(3))
return mul"""),
    "an activation that has a row": ("F.hardswish(torch.randn(3))", """\
randn: f32[3] = input
add: f32[3] = add randn 3.0  # <-c>:1: F.hardswish(torch.randn(3))
maximum: f32[3] = maximum add 0.0  # <-c>:1: F.hardswish(torch.randn(3))
minimum: f32[3] = minimum maximum 6.0  # <-c>:1: F.hardswish(torch.randn(3))
mul: f32[3] = mul randn minimum  # <-c>:1: F.hardswish(torch.randn(3))
div: f32[3] = div mul 6.0  # <-c>:1: F.hardswish(torch.randn(3))
return div"""),
    "unused inputs and dead code are left out": ("x = torch.randn(3); y = torch.randn(3); z = y * 2; x", """\
x: f32[3] = input
return x"""),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_program_as_text(name):
    program, text = EXAMPLES[name]
    assert str(capture_code(program).program) == text


# ---- any program survives its text -----------------------------------------------------------------------------------

names = st.from_regex(r"[a-z_][a-z0-9_]{0,3}", fullmatch=True).filter(lambda n: n not in RESERVED)
numbers = st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.just(math.nan), st.none())
files, lines = st.sampled_from(["<-c>", "a file.py"]), st.sampled_from(["x # y", ""])
sources = st.none() | st.builds(Source, files, st.integers(1, 99), lines)
dims = st.lists(st.integers(-3, 3)).map(tuple)
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@st.composite
def programs(draw) -> Program:
    called = draw(st.lists(names, min_size=3, max_size=8, unique=True))
    values, nodes = [], []
    for i, name in enumerate(called[:2]):
        shape = draw(shapes)
        strides = draw(st.just(contiguous(shape)) | st.just(tuple(0 for _ in shape)))
        offset, alignment = draw(st.integers(0, 9)), draw(st.sampled_from([1, 16]))
        path = draw(st.sampled_from(["", "a.b", "it's", 'a "b"']))
        values.append(Value(name, draw(st.sampled_from(Dtype)), shape, strides, offset, alignment, path,
                            called[0] if i else ""))
    for i, name in enumerate(called[2:], 2):
        op = draw(st.sampled_from(sorted(OPERATORS)))
        operands, options = OPERATORS[op]
        tensors = st.sampled_from(called[:i]).map(Arg)
        several = st.lists(tensors, min_size=1, max_size=3).map(tuple)
        args = [(o, draw(several if o == "xs" else tensors | numbers)) for o in operands]
        args += [(o, draw(numbers | dims | st.sampled_from(["ab,b->a", "none", *Dtype]))) for o in options]
        nodes.append(Node(name, op, tuple(args), draw(shapes), draw(st.sampled_from(Dtype)), draw(sources)))
    outputs = tuple(draw(st.lists(st.sampled_from(called), min_size=1, max_size=3)))
    return Program(tuple(values[:1]), tuple(values[1:]), tuple(nodes), outputs)


@settings(max_examples=80, deadline=None)
@given(programs())
def test_any_program_survives_its_text(program):
    text = str(program)
    again = parse(text)
    assert again == program
    assert str(again) == text
    assert [n.source for n in again.nodes] == [n.source for n in program.nodes]


def test_blank_lines_and_comments_are_skipped():
    assert parse("# saved\n\nx: f32[2] = input\n  # more\nreturn x\n") == parse("x: f32[2] = input\nreturn x")
