"""Convolutions, pooling and interpolation, compiled and run: windows that stick out, overlap, and have unequal sizes."""
from __future__ import annotations

import pytest

from tests.programs.support import from_code, wrong

PROGRAMS = {
    "convolution": "x = torch.randn(2, 4, 5, 6); F.conv2d(x, torch.randn(3, 4, 3, 3), torch.randn(3), 2, 1), "
                   "F.conv2d(x, torch.randn(8, 1, 3, 2), None, (2, 1), (0, 1), groups=4), "
                   "F.conv1d(x[0], torch.randn(4, 5, 4), padding='same', dilation=2)",
    "block of halves": "x = torch.randn(2, 16, 5, 5).half(); c = nn.Conv2d(16, 16, 3, padding=1).half(); "
                       "p = nn.Conv2d(16, 32, 1).half(); p(F.relu(c(F.relu(x))) + x)",
    "patches": "nn.Conv2d(3, 8, 4, 4)(torch.randn(2, 3, 8, 8)).flatten(2).transpose(1, 2)",
    "transposed": "x = torch.randn(2, 4, 5); F.conv_transpose1d(x, torch.randn(4, 3, 3), torch.randn(3), 2, 1, 1), "
                  "F.conv_transpose2d(x, torch.randn(2, 1, 2, 3), None, (2, 1), dilation=(1, 2), groups=2)",
    "pooling": "x = torch.randn(2, 3, 7, 8); y = x.masked_fill(x > 1.5, float('nan')); "
               "F.max_pool2d(y, 3, 2, 1, return_indices=True), F.avg_pool2d(x, 3, 2, 1, True, False), "
               "F.adaptive_avg_pool2d(x, (3, 5)), F.adaptive_max_pool1d(x[0], 3)",
    "interpolation": "x = torch.randn(2, 3, 5, 4); F.interpolate(x, size=(7, 2)), F.interpolate(x, scale_factor=1.7, "
                     "mode='bilinear'), F.interpolate(x[0], size=7, mode='linear', align_corners=True)",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    x = from_code(PROGRAMS[name])
    assert {r.saturation.stopped for r in x.regions} == {"fixpoint"}
    assert wrong(x) == []


def test_a_convolution_over_one_point_is_a_product_on_tensor_cores():
    x = from_code("nn.Conv2d(32, 16, 1).half()(torch.randn(2, 32, 4, 8).half())")
    (kernel,) = x.plan.kernels
    assert dict(kernel.schedule)["atom"] == "mma"
    assert wrong(x) == []
