"""Views that compute an index, and what is written to views, all the way through the compiler: copies are exact."""
import pytest

from tests.programs.support import from_code, wrong

PROGRAMS = {
    "pads": """x = torch.randn(2, 3, 5, 4)
F.pad(x, (1, 2, 0, 1), value=2.), F.pad(x, (2, 1, 3, 2), "reflect"), F.pad(x, (1, 5, -1, 3), "replicate"), \
F.pad(x, (4, 1, 2, 5), "circular"), F.pad(x.roll((1, 2), (1, 3)).flip(0, 2)[0], (1, 1), "reflect").sum(-1)""",
    "windows": """x = torch.randn(2, 3, 6, 5); y = torch.randn(1, 12, 12)
F.unfold(x, 2, dilation=2, padding=1, stride=(2, 1)), x.unfold(2, 3, 2).amax(-1), F.fold(y, (4, 5), (2, 2)), \
F.fold(y, (4, 7), (2, 2), dilation=(1, 2), padding=1, stride=(2, 2)), x.diagonal(-1, 2, 3), x.as_strided((2, 3), (1, 4), 5)""",
    "writes": """x = torch.randn(4, 6); i = torch.tensor([2, -1]); y = x.clone()
y[:, 1] = 3; y[1:3] += 1; y.diagonal().zero_(); y[::2, 0] = 7; y.t()[0] = x[:, 1]; y[:2, 2:4].copy_(x[2:, :2])
y, y.index_fill(0, i, 5.), F.one_hot(i + 1, 4), torch.diag_embed(x[0, :3], 1)""",
    "strides": """x = torch.randn(6, 8)[1:, ::2].t(); z = torch.randn(4, 1).expand(4, 5); s = torch.randn(3, 5).flip(1)
x + z, x.flip(0)[:3] * s, F.pad(z, (1, 1), "reflect") + x.reshape(20)[:7], torch.cat([x, z[::3]]).roll(3)""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_views(name):
    assert wrong(from_code(PROGRAMS[name])) == []
