"""uint16, uint32 and uint64: what PyTorch has of them, to the last value; the rest is a named error."""
from __future__ import annotations

import pytest
import torch

import deplodock
from deplodock.errors import WrongDtype

DTYPES = [torch.uint16, torch.uint32, torch.uint64]


def program(a, b, x):
    top = torch.iinfo(a.dtype).max
    return (a * b, a * 3, (a * b).double(), (a * b).long() // 3, a / b, a.float() + x, (x * 1e3).to(a.dtype),
            a.to(torch.uint8), b.to(torch.int16), a.bool(), a == b, a == top, torch.full_like(a, top), a & b, a ^ b,
            torch.where(a == b, a, b), torch.cat([a, b])[::2], a.sum(), a.prod(0), a.any(1), a.floor())


def arguments(dtype: torch.dtype):
    top = torch.iinfo(dtype).max
    a = torch.tensor([[0, 1, top, top - 1], [top // 2 + 1, top // 2, 77, 5]], dtype=dtype)
    b = torch.tensor([[top, 1, top, 2], [top // 2 + 1, 3, top - 5, 5]], dtype=dtype)
    return a, b, torch.tensor([[0.0, 1.5, 1e-4, 3.0], [0.5, 0.6, 0.7, 8.0]])


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_pytorch_has(dtype, tmp_path):
    given = arguments(dtype)
    compiled = deplodock.compile(program, given)
    results = [compiled(*given)]
    if dtype == torch.uint64:
        compiled.save(tmp_path / "saved")
        results.append(deplodock.load(tmp_path / "saved")(*given))
    for got in results:
        for y, want in zip(got, program(*given), strict=True):
            assert y.dtype == want.dtype
            torch.testing.assert_close(y, want, rtol=1e-7, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_it_has_not(dtype):
    a, b, _ = arguments(dtype)
    for f in (lambda: a + b, lambda: a < b):
        with pytest.raises(NotImplementedError):
            f()
    for g in (lambda a, b: a + b, lambda a, b: a < b, lambda a, b: a.amax(0)):
        with pytest.raises(WrongDtype, match="is torch.uint"):
            deplodock.compile(g, (a, b))
