"""Programs that once broke the compiler, each for a reason of its own."""
from __future__ import annotations

import pytest

from tests.programs.support import from_code, wrong

PROGRAMS = {
    # What is stored beside a tile that is filled once lies behind it in shared memory.
    "computed operand": "torch.eye(3) @ torch.randn(3, 3)",
    "layout change": "m = nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 20), nn.GELU()).bfloat16(); "
                     "m(torch.randn(3, 5, 12).bfloat16())",
    # All multiples of 0 are equal: 0 = 0.5 * 0 = (0.5 + 0.5) * 0 = ..
    "zeros": "z = torch.zeros(4, 4); F.softmax(z * 0.5 - z.amax(-1, keepdim=True), -1) @ torch.randn(4, 4)",
    # Rows and columns of a product are several axes each, the innermost shorter than the warps that lie along it.
    "broadcast product": "torch.randn(2, 1, 4, 3) @ torch.randn(5, 3, 2)",
    "broadcast product of halves": "torch.randn(2, 1, 4, 3).half() @ torch.randn(5, 3, 2).half()",
    # Queries, keys and values lie beside each other; a bias comes to the values in the loop over keys, in a tile smaller
    # than a block, whose axes no other tile has together.
    "packed projections": "l, o, x = nn.Linear(12, 36), nn.Linear(12, 12), torch.randn(2, 5, 12); "
                          "q, k, v = (t.reshape(2, 5, 3, 4).transpose(1, 2) for t in l(x).chunk(3, -1)); "
                          "o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 5, 12)) + x",
    # x·(1 + x) would be infinite where x + x·x is NaN.
    "a common factor that is infinite": "x = torch.tensor([-float('inf'), float('inf'), 0, 2]); x + x * x, x - x * 0.5",
    "one query in groups": "F.scaled_dot_product_attention(torch.randn(1, 4, 1, 16).half(), "
                           "*torch.randn(2, 1, 2, 33, 16).half(), enable_gqa=True)",
    # Folds of two results share a loop; inside it lies another that goes by the name of one of theirs.
    "loops of one name": "x, (w, b) = torch.randn(5, 2).double(), torch.randn(2, 2).double(); "
                         "(x < w).any(), F.layer_norm(x, (2,), w, b).amin((1, 0))",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    x = from_code(PROGRAMS[name])
    assert x.region.saturation.stopped == "fixpoint"
    assert wrong(x) == []
