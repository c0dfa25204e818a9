"""Convolutions, pooling and interpolation.

Padding is a pair for each dimension, so that its windows end where the padded tensor does: what ceil_mode and
output_padding do is in these pairs.
"""
from __future__ import annotations

from fractions import Fraction

import torch

from deplodock.capture.build import Call
from deplodock.capture.operators.rows import Constructor, rows, same_dtype
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import Arg

LARGEST = 1 << 30
"""Indices are computed in 32 bits."""


def each(value, n: int) -> tuple[int, ...]:
    """A number for each of n dimensions, given as one for all or as a list."""
    value = [value] if isinstance(value, int) else list(value)
    return tuple(value * n if len(value) == 1 else value)


def batched(c: Call, x: Arg, n: int) -> Arg:
    """x with a batch dimension before channels and n further ones."""
    shape = c.shape_of(x)
    return c.reshape(x, (1, *shape)) if len(shape) == n + 1 else x


def whole(c: Call, n: int) -> tuple[int, ...]:
    """The shape of the result with a batch dimension."""
    return c.shape if len(c.shape) == n + 2 else (1, *c.shape)


# ---- convolutions ----------------------------------------------------------------------------------------------------

def convolution(c: Call) -> Arg:
    name = "input" if "input" in c.args else "self"
    x, weight = c[name], c["weight"]
    same_dtype(c, x, weight, c["bias"])
    n = len(c.shape_of(weight)) - 2
    x, kernel = batched(c, x, n), c.shape_of(weight)[2:]
    stride, dilation = each(c["stride"], n), each(c["dilation"], n)
    options = dict(stride=stride, dilation=dilation, groups=c["groups"])
    given, out = c.shape_of(x)[2:], whole(c, n)
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    if c.get("output_padding") is not None and c.get("transposed") is not False:
        pads = tuple((lo, (h - 1) * s + span - m - lo) for lo, h, s, span, m in
                     zip(each(c["padding"], n), given, stride, spans, out[2:]))
        return c.reshape(c("conv_transpose", x, weight, c["bias"], padding=pads, shape=out, **options), c.shape)
    padding = c["padding"]
    match padding:
        case "valid": lows = (0,) * n
        case "same": lows = tuple((span - 1) // 2 for span in spans)
        case _: lows = each(padding, n)
    return c.reshape(c("conv", x, weight, c["bias"], padding=pairs(lows, given, out[2:], stride, spans), shape=out,
                       **options), c.shape)


def pairs(lows, given, out, stride, spans) -> tuple[tuple[int, int], ...]:
    """Padding before, and after as far as the last window reaches; less than none where it ends before the tensor."""
    return tuple((lo, (m - 1) * s + span - h - lo) for lo, h, m, s, span in zip(lows, given, out, stride, spans))


# ---- pooling ---------------------------------------------------------------------------------------------------------

def window(c: Call, n: int) -> dict:
    kernel = each(c["kernel_size"], n)
    stride = each(c["stride"], n) if c["stride"] else kernel
    dilation = each(c["dilation"], n) if c.get("dilation") is not None else (1,) * n
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    padding = pairs(each(c["padding"], n), c.shape_of(c["self"])[-n:], c.shape[-n:], stride, spans)
    return dict(kernel=kernel, stride=stride, padding=padding, dilation=dilation)


def averaged(c: Call, x: Arg) -> Arg:
    """x, unless it is of integers: PyTorch rounds their averages as each operator sees fit, and has few of them on CUDA."""
    if not c.dtype_of(x).is_float and 0 not in c.shape:
        raise c.unsupported("of integers")
    return x


def max_pool(n: int) -> Constructor:
    return lambda c: c("max_pool", c["self"], **window(c, n))


def max_pool_with_indices(n: int) -> Constructor:
    def construct(c: Call) -> tuple[Arg, Arg]:
        options = window(c, n)
        return c("max_pool", c["self"], **options), c("max_pool_index", c["self"], **options, dtype=Dtype.i64)
    return construct


def avg_pool(n: int) -> Constructor:
    def construct(c: Call) -> Arg:
        options = window(c, n)
        options.pop("dilation")
        counts = each(c["padding"], n) if c["count_include_pad"] else (0,) * n
        return c("avg_pool", averaged(c, c["self"]), **options, counted=tuple((p, p) for p in counts),
                 divisor=c.get("divisor_override"))
    return construct


def adaptive_avg_pool(n: int) -> Constructor:
    return lambda c: c("adaptive_avg_pool", averaged(c, c["self"]), size=c.shape[-n:])


def adaptive_max_pool(n: int) -> Constructor:
    def construct(c: Call) -> tuple[Arg, Arg]:
        return (c("adaptive_max_pool", c["self"], size=c.shape[-n:]),
                c("adaptive_max_pool_index", c["self"], size=c.shape[-n:], dtype=Dtype.i64))
    return construct


# ---- interpolation ---------------------------------------------------------------------------------------------------

def scales(c: Call, n: int) -> list[float | None]:
    """How many times as long as before each dimension becomes, where that is given and not the ratio of sizes."""
    if "scale_factors" in c.args:
        return list(c["scale_factors"] or [None] * n)
    return [c["scales"]] if n == 1 and "scales" in c.args else [c.get(f"scales_{x}") for x in "dhw"[3 - n:]]


def ratio(given: int, out: int, scale: float | None) -> Fraction:
    """Elements of the operand for each of the result."""
    if scale is None or scale <= 0:
        return Fraction(given, out)
    return (1 / Fraction(scale)).limit_denominator(max(1, LARGEST // (4 * (out + 1) * (given + 1))))


def source(c: Call) -> Arg:
    return c["input"] if "input" in c.args else c["self"]


def nearest(n: int, exact: bool) -> Constructor:
    """The operator itself, run on the numbers of elements, says which it takes: it counts in floats of 32 bits."""
    probe = torch.ops.aten._upsample_nearest_exact1d if exact else torch.ops.aten.upsample_nearest1d

    def along(c: Call, given: int, out: int, scale: float | None) -> tuple[int, int, int]:
        numbers = torch.arange(given, dtype=torch.float64).reshape(1, 1, given)
        taken = probe(numbers, [out], scale).flatten().long().tolist()
        r = ratio(given, out, scale)
        a, b, d = (2 * r.numerator, r.numerator, 2 * r.denominator) if exact else (r.numerator, 0, r.denominator)
        for k, off in ((1, 0), (out + 1, -1), (out + 1, 1)):  # where a quotient is whole, floats may be just below it
            found = a * k, b * k + off, d * k
            if [(found[0] * i + found[1]) // found[2] for i in range(out)] == taken:
                return found
        raise c.unsupported(f"a scale of {scale} from {given} to {out} elements")

    def construct(c: Call) -> Arg:
        x = source(c)
        sizes = zip(c.shape_of(x)[2:], c.shape[2:], scales(c, n))
        return c("upsample_nearest", x, maps=tuple(along(c, *s) for s in sizes))
    return construct


def linear(n: int) -> Constructor:
    def along(given: int, out: int, scale: float | None, corners: bool) -> tuple[int, int, int]:
        if corners:
            return (given - 1, 0, out - 1) if out > 1 else (0, 0, 1)
        r = ratio(given, out, scale)
        return 2 * r.numerator, r.numerator - r.denominator, 2 * r.denominator

    def construct(c: Call) -> Arg:
        x = averaged(c, source(c))
        sizes = zip(c.shape_of(x)[2:], c.shape[2:], scales(c, n))
        return c("upsample_linear", x, maps=tuple(along(*s, c["align_corners"]) for s in sizes))
    return construct


LINEAR = {1: "upsample_linear1d upsample_linear1d.vec", 2: "upsample_bilinear2d.vec",
          3: "upsample_trilinear3d upsample_trilinear3d.vec"}

ROWS: dict[str, Constructor] = {
    **rows(convolution, "conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding convolution "
                        "conv_transpose1d conv_transpose2d.input conv_transpose3d.input"),
    **{k: v for n in (1, 2, 3) for k, v in {
        **rows(max_pool(n), f"max_pool{n}d"),
        **rows(max_pool_with_indices(n), f"max_pool{n}d_with_indices"),
        **rows(avg_pool(n), f"avg_pool{n}d"),
        **rows(adaptive_avg_pool(n), f"adaptive_avg_pool{n}d"),
        **rows(adaptive_max_pool(n), f"adaptive_max_pool{n}d"),
        **rows(nearest(n, False), f"upsample_nearest{n}d upsample_nearest{n}d.vec"),
        **rows(nearest(n, True), f"_upsample_nearest_exact{n}d _upsample_nearest_exact{n}d.vec"),
        **rows(linear(n), LINEAR[n]),
    }.items()},
}
"""ATen overload -> constructor."""
