"""Every kind of program of the suite keeps the promise: in all dtypes, at odd sizes, over memory of every layout."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from deplodock.reference import reference
from deplodock.runtime.program import CompiledProgram, Loadable
from tests.programs.support import DTYPES, FUNCTIONS, KINDS, arguments, broken, normal, program

PRIMES = {
    "matmul": [(2, 17, 13), (13, 31)],
    "matmul_add": [(2, 17, 13), (13, 31), (2, 17, 31)],
    "rmsnorm": [(2, 5, 37), (37,)],
    "softmax": [(1, 3, 5, 13)],
    "silu_mul": [(1, 7, 37)] * 2,
    "silu_mul_matmul": [(1, 7, 37), (1, 7, 37), (37, 11)],
    "sdpa": [(1, 6, 13, 8), (1, 2, 13, 8), (1, 2, 13, 8)],
    "naive_attn": [(1, 3, 13, 8)] * 3,
}
"""Small primes: no tile divides anything, rows are not aligned."""

RAGGED = {
    "matmul": [(1, 65, 129), (129, 72)],
    "matmul_add": [(1, 65, 129), (129, 72), (1, 65, 72)],
    "rmsnorm": [(1, 3, 2049), (2049,)],
    "softmax": [(1, 3, 2, 1031)],
    "silu_mul": [(1, 3, 1031)] * 2,
    "silu_mul_matmul": [(1, 65, 129), (1, 65, 129), (129, 72)],
    "sdpa": [(2, 3, 70, 20), (2, 1, 70, 20), (2, 1, 70, 20)],
    "naive_attn": [(2, 2, 70, 24)] * 3,
}
"""Several tiles and chunks of depth, the last of each in part."""

ONES = {
    "matmul": [(1, 1, 1), (1, 1)],
    "matmul_add": [(1, 1, 1), (1, 1), (1, 1, 1)],
    "rmsnorm": [(1, 1, 1), (1,)],
    "softmax": [(1, 1, 1, 1)],
    "silu_mul": [(1, 1, 1)] * 2,
    "silu_mul_matmul": [(1, 1, 1), (1, 1, 1), (1, 1)],
    "sdpa": [(1, 1, 1, 1)] * 3,
    "naive_attn": [(1, 1, 1, 1)] * 3,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shapes", [PRIMES, RAGGED], ids=["primes", "ragged"])
def test_sizes(shapes, kind, dtype):
    assert broken(FUNCTIONS[kind], arguments(kind, shapes[kind], dtype)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_one_element(kind):
    assert broken(FUNCTIONS[kind], arguments(kind, ONES[kind], "bf16")) == []


@pytest.mark.parametrize("kind, dtype", [*((k, "bf16") for k in KINDS), ("softmax", "f32"), ("sdpa", "f32"), ("naive_attn", "f16")])
def test_strict(kind, dtype):
    assert broken(FUNCTIONS[kind], arguments(kind, PRIMES[kind], dtype), "strict") == []


TWICE = {
    "chain": (lambda a, b, c: a @ b @ c, [(24, 16), (16, 8), (8, 13)]),
    "deep chain": (lambda a, b, c: a @ b @ c, [(24, 16), (16, 40), (40, 13)]),
    "sum": (lambda a, b: a + b, [(24, 13), (24, 13)]),
    "sum of products": (lambda a, b, c, d: a @ b @ c + a @ b @ d, [(24, 16), (16, 8), (8, 13), (8, 13)]),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_weight_that_is_one_is_one(name):
    """Scores that are computed twice, for their maximum and for the result, are the same bits: large ones cancel."""
    scores, shapes = TWICE[name]
    tensors = [90 * normal(*s, seed=i) for i, s in enumerate(shapes)]
    x = program(lambda *given: scores(*given).softmax(-1), tensors)
    assert len(x.plan.kernels) == 1, "no scores are computed twice"
    compiled = CompiledProgram(Loadable(x.torch, x.plan, x.cuda, x.target.arch), x.captured.parameters, "cpu")
    (y,), (exact,) = compiled(*x.captured.inputs), reference(x.torch, x.captured.inputs, x.captured.parameters)
    ones = exact > 1 - 1e-9
    assert ones.sum() >= 3
    assert (y[ones] == 1).all()


# ---- nothing at all ----------------------------------------------------------------------------------------------------

EMPTY = {
    "matmul rows": ("matmul", [(1, 0, 5), (5, 3)]),
    "matmul depth": ("matmul", [(1, 4, 0), (0, 3)]),
    "matmul_add depth": ("matmul_add", [(1, 4, 0), (0, 3), (1, 4, 3)]),
    "matmul_add columns": ("matmul_add", [(1, 4, 5), (5, 0), (1, 4, 0)]),
    "rmsnorm rows": ("rmsnorm", [(0, 5), (5,)]),
    "rmsnorm columns": ("rmsnorm", [(3, 0), (0,)]),
    "softmax rows": ("softmax", [(0, 5)]),
    "softmax columns": ("softmax", [(3, 0)]),
    "silu_mul": ("silu_mul", [(3, 0)] * 2),
    "silu_mul_matmul depth": ("silu_mul_matmul", [(3, 0), (3, 0), (0, 4)]),
    "sdpa batch": ("sdpa", [(0, 2, 5, 4)] * 3),
    "sdpa rows": ("sdpa", [(1, 2, 0, 4)] * 3),
    "sdpa keys": ("sdpa", [(1, 2, 3, 4), (1, 2, 0, 4), (1, 2, 0, 4)]),
    "naive_attn rows": ("naive_attn", [(1, 2, 0, 4)] * 3),
}


@pytest.mark.parametrize("name", EMPTY)
def test_axes_of_no_elements(name):
    kind, shapes = EMPTY[name]
    dtype = list(DTYPES)[list(EMPTY).index(name) % 3]
    tensors = [normal(*s, dtype=dtype) for s in shapes]
    if kind == "naive_attn":
        tensors.append(normal(0, 0, dtype=dtype))
    assert broken(FUNCTIONS[kind], tensors) == []


# ---- one number ------------------------------------------------------------------------------------------------------

SCALARS = {
    "silu_mul": (FUNCTIONS["silu_mul"], [(), ()]),
    "softmax": (FUNCTIONS["softmax"], [()]),
    "dot": (lambda a, b: (a * a) @ (b * b), [(7,), (7,)]),
    "scaled": (lambda x, s: F.softmax(x * s, -1), [(3, 7), ()]),
    "attention": (lambda q, k, v, s: F.softmax(q @ k.transpose(-1, -2) * s, -1) @ v, [(2, 13, 8)] * 3 + [()]),
}


@pytest.mark.parametrize("name", SCALARS)
def test_tensors_of_no_dimensions(name):
    function, shapes = SCALARS[name]
    dtype = list(DTYPES)[list(SCALARS).index(name) % 3]
    assert broken(function, [normal(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes)]) == []


# ---- layouts of memory -----------------------------------------------------------------------------------------------

def _heads(x):
    """[batch, length, heads, size] as attention reads it."""
    return x.transpose(1, 2)


LAYOUTS = {
    "transposed": ("matmul", lambda n: (n(1, 40, 17).transpose(1, 2), n(33, 40).t())),
    "offset": ("matmul", lambda n: (n(1, 18, 41)[:, 1:, 1:], n(41, 33)[1:])),
    "offset evenly": ("matmul", lambda n: (n(1, 18, 48)[:, 1:, 8:], n(41, 40)[1:, 8:])),
    "strided": ("matmul", lambda n: (n(1, 34, 82)[:, ::2, 1::2], n(82, 33)[::2])),
    "expanded": ("matmul", lambda n: (n(1, 1, 40).expand(3, 17, 40), n(40, 1).expand(40, 33))),
    "bias": ("matmul_add", lambda n: (n(1, 17, 40), n(40, 33), n(33).expand(1, 17, 33))),
    "transposed addend": ("matmul_add", lambda n: (n(1, 17, 40), n(40, 33), n(33, 17, 1).permute(2, 1, 0))),
    "transposed rows": ("rmsnorm", lambda n: (n(1, 37, 19).transpose(1, 2), n(74)[::2])),
    "offset rows": ("rmsnorm", lambda n: (n(1, 19, 38)[..., 1:], n(1).expand(37))),
    "transposed softmax": ("softmax", lambda n: (n(3, 37, 19).transpose(1, 2),)),
    "cut softmax": ("softmax", lambda n: (n(3, 19, 39)[:, 1:, 1:-1],)),
    "one row many times": ("softmax", lambda n: (n(3, 1, 37).expand(3, 5, 37),)),
    "one value many times": ("softmax", lambda n: (n(3, 5, 1).expand(3, 5, 37),)),
    "transposed silu": ("silu_mul", lambda n: (n(37, 19).t(), n(19, 37))),
    "offset silu": ("silu_mul", lambda n: (n(19, 38)[:, 1:], n(1, 37).expand(19, 37))),
    "transposed mlp": ("silu_mul_matmul", lambda n: (n(37, 19).t(), n(19, 38)[:, 1:], n(23, 37).t() * 37 ** -0.5)),
    "heads inside": ("sdpa", lambda n: (_heads(n(1, 13, 4, 8)), _heads(n(1, 13, 2, 8)), _heads(n(1, 13, 2, 8)))),
    "packed heads": ("sdpa", lambda n: map(_heads, n(1, 13, 8, 8).split([4, 2, 2], 2))),
    "shared heads": ("sdpa", lambda n: (n(2, 4, 13, 8), n(1, 1, 13, 8).expand(2, 1, 13, 8), n(1, 1, 13, 8).expand(2, 4, 13, 8)[:, :1])),
    "transposed keys": ("naive_attn", lambda n: (n(1, 2, 13, 8), n(1, 2, 8, 13).transpose(2, 3), n(1, 2, 13, 9)[..., 1:],
                                                 n(1, 13).expand(13, 13))),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name, dtype):
    kind, tensors = LAYOUTS[name]
    seeds = iter(range(9))
    given = tensors(lambda *shape: normal(*shape, dtype=dtype, seed=next(seeds)))
    assert broken(FUNCTIONS[kind], tuple(given)) == []


def test_slices_of_one_tensor_within_the_program():
    assert broken(lambda y: F.silu(y[..., :37]) * y[..., 37:], [normal(19, 74, dtype="bf16")]) == []


def test_one_tensor_as_two_inputs():
    x = normal(2, 13, 13, dtype="f16")
    assert broken(lambda a, b: F.softmax(a @ b.transpose(1, 2), -1) @ a, [x, x]) == []
    assert torch.equal(x, normal(2, 13, 13, dtype="f16"))
