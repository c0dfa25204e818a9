"""What depends on no input: evaluated at capture, and a formula of positions where it is one."""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from deplodock.capture import capture_module
from deplodock.capture.build import Builder, Call
from deplodock.capture.closed import Affine, Bound, Choice, closed_form, emit
from deplodock.ir.dtype import Dtype
from deplodock.reference import reference

ROW, COLUMN = torch.arange(6)[:, None], torch.arange(9)[None]
FORMS = {
    "causal": (COLUMN <= ROW, Choice((Bound(1, 0, None, 0),), True, False)),
    "causal, keys before the queries": (COLUMN <= ROW + 3, Choice((Bound(1, 0, None, 3),), True, False)),
    "its negation": (COLUMN > ROW, Choice((Bound(1, 0, 1, None),), True, False)),
    "window": ((COLUMN <= ROW) & (COLUMN > ROW - 3), Choice((Bound(1, 0, -2, None), Bound(1, 0, None, 0)), True, False)),
    "prefix": ((COLUMN < 5).expand(6, 9), Choice((Bound(1, None, None, 4),), True, False)),
    "causal with a prefix": ((COLUMN <= ROW) | (COLUMN < 3), Choice((Bound(1, None, 3, None), Bound(1, 0, 1, None)), False, True)),
    "causal, padded": ((COLUMN <= ROW) & (COLUMN > 1), Choice((Bound(1, None, 2, None), Bound(1, 0, None, 0)), True, False)),
    "over heads and batches": ((COLUMN <= ROW).expand(2, 3, 6, 9), Choice((Bound(3, 2, None, 0),), True, False)),
    "additive": (torch.full((6, 9), -math.inf).triu(1), Choice((Bound(1, 0, None, 0),), 0.0, -math.inf)),
    "additive, the lowest value": (torch.full((6, 9), torch.finfo(torch.bfloat16).min, dtype=torch.bfloat16).triu(1),
                                   Choice((Bound(1, 0, None, 0),), 0.0, torch.finfo(torch.bfloat16).min)),
    "true": (torch.ones(2, 1, 6, 9, dtype=torch.bool), Affine(True, (0, 0, 0, 0))),
    "zero": (torch.zeros(6, 9), Affine(0.0, (0, 0))),
    "positions": (torch.arange(3, 12).expand(2, 9), Affine(3, (0, 1))),
    "positions of two dimensions": (COLUMN * 2 + ROW * -3 + 7, Affine(7, (-3, 2))),
    "positions as floats": (torch.arange(4.0), Affine(0, (1,))),
    "one element": (torch.tensor([[7]]), Affine(7, (0, 0))),
    "no elements": (torch.zeros(0, 4), Affine(0, (0, 0))),
    "blocks": (COLUMN // 3 == ROW // 3, None),
    "three values": (torch.tensor([0, 1, 3]), None),
    "not a number": (torch.tensor([math.nan, 1.0]), None),
    "a hole": (torch.tensor([1, 1, 0, 0, 1, 0]).bool(), None),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name):
    tensor, form = FORMS[name]
    assert closed_form(tensor) == form


@pytest.mark.parametrize("name", [n for n, (_, form) in FORMS.items() if form is not None])
def test_what_a_form_computes(name):
    tensor, form = FORMS[name]
    builder = Builder((), (), torch.device("cpu"))
    made = emit(Call(builder, None, {}, ((tuple(tensor.shape), Dtype.of_torch(tensor.dtype)),)), form)
    result, = reference(builder.program((made,)), (), {})
    assert torch.equal(result.to(tensor.dtype), tensor)


def packed(x):
    """A causal mask within sequences of a batch, found from positions, as model code does: here there is one sequence."""
    position = torch.arange(x.shape[-2])[None]
    sequence = (torch.diff(position, prepend=position[:, :1] - 1, dim=-1) != 1).cumsum(-1)
    mask = position[0][None] <= position[0][:, None]
    mask = mask & (sequence[0][torch.arange(5)][None] == sequence[0][torch.arange(5)][:, None])
    return F.scaled_dot_product_attention(x, x, x, mask[None].expand(2, 5, 5))


def buckets(x, table):
    """Rows of a table by the logarithm of a distance."""
    distance = (torch.arange(5)[:, None] - torch.arange(5)[None]).abs()
    return x + table[(torch.log(distance.float() + 1) / math.log(2)).to(torch.int64)]


def everything(x):
    mask = torch.ones(5, 5, dtype=torch.bool).cumsum(0) > 0
    return F.scaled_dot_product_attention(x, x, x, mask)


def blocks(x):
    return torch.where((torch.arange(5).cumsum(0) % 3 < 1)[:, None], x, 0)


def written(x):
    """What laws understand already stays as it is written."""
    return x + torch.full((5, 5), -math.inf).triu(1), x * (torch.arange(5) * 0.5).sin()


DRAWN = torch.Generator().manual_seed(0)
X = torch.randn(2, 5, 4, generator=DRAWN)
PROGRAMS = {
    "packed": (packed, (X,), """\
x: f32[2,5,4] = input
arange: i64[5] = arange start=0 step=1
reshape: i64[1,5,1] = reshape arange
arange_1: i64[5] = arange start=0 step=1
reshape_1: i64[1,1,5] = reshape arange_1
le: b8[1,5,5] = le reshape_1 reshape
expand: b8[2,5,5] = expand le
scaled_dot_product_attention: f32[2,5,4] = scaled_dot_product_attention x x x expand is_causal=False scale=0.5 enable_gqa=False
return scaled_dot_product_attention"""),
    "buckets": (buckets, (torch.randn(5, 5, 3, generator=DRAWN), torch.randn(4, 3, generator=DRAWN)), """\
x: f32[5,5,3] = input
table: f32[4,3] = input
_to_copy_1: i64[5,5] = parameter 'constant._to_copy_1'
"""),
    "everything": (everything, (X,), """\
x: f32[2,5,4] = input
scaled_dot_product_attention: f32[2,5,4] = scaled_dot_product_attention x x x None is_causal=False scale=0.5 enable_gqa=False
return scaled_dot_product_attention"""),
    "blocks": (blocks, (X,), """\
x: f32[2,5,4] = input
unsqueeze: b8[5,1] = parameter 'constant.unsqueeze'
where: f32[2,5,4] = where unsqueeze x 0.0
return where"""),
    "written": (written, (torch.randn(5, 5, generator=DRAWN),), """\
x: f32[5,5] = input
full: f32[5,5] = full value=-inf
triu: f32[5,5] = triu full diagonal=1
add: f32[5,5] = add x triu
arange: i64[5] = arange start=0 step=1
cast: f32[5] = cast arange
mul: f32[5] = mul cast 0.5
sin: f32[5] = sin mul
mul_1: f32[5,5] = mul x sin
return add mul_1"""),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    program, inputs, text = PROGRAMS[name]
    captured = capture_module(program, inputs)
    found = "\n".join(line.split("  #")[0] for line in str(captured.program).splitlines())
    assert found.startswith(text) if text.endswith("\n") else found == text
    results = reference(captured.program, captured.inputs, captured.parameters)
    eager = captured.eager(*captured.inputs)
    for y64, mine, user in zip(results, eager, program(*inputs) if name == "written" else (program(*inputs),), strict=True):
        assert torch.equal(mine, user) and torch.allclose(y64.to(mine.dtype), mine)
