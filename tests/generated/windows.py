"""Drawers of operators over windows of one to three dimensions: convolutions, pools, interpolation."""
from __future__ import annotations

from tests.generated.draw import Draw, Drawer, Operand, Refused


def several(n: int, *options: int) -> Drawer:
    """A number for each of n dimensions."""
    return lambda d: [d.random.choice(options) for _ in range(n)]


def kernel(n: int, turned: bool = False) -> Drawer:
    """The weight of a convolution, one of the usual numbers of groups; `turned`: of a transposed one."""
    def draw(d: Draw) -> Operand:
        channels = d.main.shape[-n - 1]
        if not channels:
            raise Refused("no channels")
        d.groups = d.random.choice([g for g in (1, 2, channels) if channels % g == 0])
        each, size = d.random.choice((1, 2, 3)), [d.random.choice((1, 2, 3)) for _ in range(n)]
        d.out = d.groups * each
        return d.of_shape((channels, each, *size) if turned else (d.out, channels // d.groups, *size))
    return draw


def convolving(n: int, turned: bool = False) -> dict[str, Drawer]:
    return {"weight": kernel(n, turned), "bias": lambda d: d.of_shape((d.out,)) if d.chance() else None,
            "stride": several(n, 1, 1, 2, 3), "padding": several(n, 0, 1, 2), "dilation": several(n, 1, 1, 2),
            "groups": lambda d: d.groups}


def pooling(n: int) -> dict[str, Drawer]:
    return {"kernel_size": several(n, 2, 3), "stride": several(n, 1, 2, 3), "padding": several(n, 0, 1),
            "dilation": several(n, 1, 1, 2), "ceil_mode": lambda d: d.chance(), "count_include_pad": lambda d: d.chance(),
            "divisor_override": lambda d: d.random.choice((None, 3)), "output_size": several(n, 1, 2, 3, 5)}


def resized(n: int) -> dict[str, Drawer]:
    return {"output_size": several(n, 1, 3, 5, 8), "align_corners": lambda d: d.chance()}


def scaled(n: int) -> dict[str, Drawer]:
    """Either sizes or scales."""
    def size(d: Draw) -> list[int] | None:
        d.sized = several(n, 1, 3, 5, 8)(d) if d.chance() else None
        return d.sized
    return {"output_size": size, "align_corners": lambda d: d.chance(),
            "scale_factors": lambda d: None if d.sized else [d.random.choice((0.6, 1.7, 2.0)) for _ in range(n)]}


def of_windows(n: int) -> tuple:
    linear = {1: "linear1d", 2: "bilinear2d", 3: "trilinear3d"}[n]
    full = (n + 2, n + 2)
    return (
        (f"conv{n}d.default", (n + 1, n + 2), convolving(n)),
        (f"conv{n}d.padding", (n + 1, n + 2), convolving(n) | {"stride": several(n, 1),
                                                              "padding": lambda d: d.random.choice(("same", "valid"))}),
        (f"conv_transpose{n}d.{'default' if n == 1 else 'input'}", (n + 1, n + 2),
         convolving(n, True) | {"output_padding": several(n, 0)}),
        (f"max_pool{n}d.default max_pool{n}d_with_indices.default avg_pool{n}d.default adaptive_avg_pool{n}d.default "
         f"adaptive_max_pool{n}d.default", (n + 1, n + 2), pooling(n)),
        (f"upsample_nearest{n}d.default _upsample_nearest_exact{n}d.default upsample_{linear}.default", full, resized(n)),
        (f"upsample_nearest{n}d.vec _upsample_nearest_exact{n}d.vec upsample_{linear}.vec", full, scaled(n)))
