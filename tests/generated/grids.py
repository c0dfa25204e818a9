"""Arguments of operators over a grid of one to three dimensions: convolutions, pools, interpolation. As rows.py has them."""
from __future__ import annotations

from tests.generated.draw import Draw, Drawer, Operand

ANY = (0, 4)
EXTENTS = {1: (1, 4, 7, 13), 2: (1, 3, 5, 8), 3: (1, 2, 4)}
"""Sizes of a grid by its dimensions: small enough that the emulation runs a convolution in a second."""


def grid(n: int, channels: tuple[int, ...] = (1, 2, 3, 4), batch: bool = False) -> Drawer:
    """(batch, channels, grid), now and then without the batch unless `batch`."""
    def drawer(d: Draw) -> Operand:
        front = (d.random.choice((1, 2)),) if batch or d.chance(0.7) else ()
        d.main = d.fresh((*front, d.random.choice(channels), *(d.random.choice(EXTENTS[n]) for _ in range(n))))
        return d.main
    return drawer


def each(n: int, *values: int) -> Drawer:
    """One of the values for each dimension of the grid."""
    return lambda d: [d.random.choice(values) for _ in range(n)]


def channels(d: Draw, n: int) -> int:
    return d.main.shape[-n - 1]


def kernel(n: int, transposed: bool = False) -> Drawer:
    """(out, in / groups, window), or (in, out / groups, window) of a transposed convolution."""
    def drawer(d: Draw) -> Operand:
        c = channels(d, n)
        d.groups = d.random.choice([g for g in (1, 1, 2, 3, 4) if c % g == 0])
        many = d.random.choice((1, 2, 3))
        d.out = many * d.groups
        front = (c, many) if transposed else (d.out, c // d.groups)
        return d.of_shape((*front, *(d.random.choice((1, 2, 3)) for _ in range(n))))
    return drawer


def convolution(n: int, transposed: bool = False) -> dict[str, Drawer]:
    return {"weight": kernel(n, transposed), "bias": lambda d: d.of_shape((d.out,)) if d.chance() else None,
            "stride": each(n, 1, 1, 2, 3), "padding": each(n, 0, 0, 1, 2), "dilation": each(n, 1, 1, 2), "groups": lambda d: d.groups}


def either(d: Draw) -> Operand:
    """The weight of `convolution`, transposed or not, over one to three dimensions."""
    d.rank, d.transposed = len(d.main.shape) - 2, d.chance(0.3)
    return kernel(d.rank, d.transposed)(d)


def anywhere(d: Draw) -> Operand:
    return grid(d.random.choice((1, 2, 3)), batch=True)(d)


def repeated(*values: int) -> Drawer:
    return lambda d: [d.random.choice(values) for _ in range(d.rank)]


def pool(n: int) -> dict[str, Drawer]:
    return {"kernel_size": each(n, 2, 3), "stride": lambda d: [] if d.chance() else each(n, 1, 2)(d), "padding": each(n, 0, 1),
            "ceil_mode": lambda d: d.chance()}


def factors(n: int) -> dict[str, Drawer]:
    """Either the size of the result or by how much it is scaled."""
    def size(d: Draw) -> list[int] | None:
        d.sized = d.chance()
        return each(n, 1, 3, 6, 9)(d) if d.sized else None
    return {"output_size": size, "scale_factors": lambda d: None if d.sized else [d.random.choice((2.0, 1.5, 0.5)) for _ in range(n)],
            "align_corners": lambda d: d.chance()}


DATA: tuple[tuple[str, tuple[int, int], dict[str, Drawer]], ...] = tuple(
    line for n, linear in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")) for line in (
        (f"conv{n}d.default", ANY, {"input": grid(n), **convolution(n)}),
        (f"conv{n}d.padding", ANY, {"input": grid(n), **convolution(n), "padding": lambda d: d.random.choice(("same", "valid")),
                                    "stride": each(n, 1)}),
        (f"conv_transpose{n}d.default conv_transpose{n}d.input", ANY,
         {"input": grid(n), **convolution(n, True), "output_padding": each(n, 0)}),
        (f"max_pool{n}d.default max_pool{n}d_with_indices.default", ANY, {"self": grid(n), **pool(n), "dilation": each(n, 1, 2)}),
        (f"avg_pool{n}d.default", ANY, {"self": grid(n), **pool(n), "count_include_pad": lambda d: d.chance()}),
        (f"adaptive_avg_pool{n}d.default adaptive_max_pool{n}d.default _adaptive_avg_pool{n}d.default", ANY,
         {"self": grid(n), "output_size": each(n, 1, 2, 3)}),
        (f"upsample_nearest{n}d.default _upsample_nearest_exact{n}d.default upsample_{linear}.default", ANY,
         {"self": grid(n, batch=True), "output_size": each(n, 1, 3, 6, 9), "align_corners": lambda d: d.chance()}),
        (f"upsample_nearest{n}d.vec _upsample_nearest_exact{n}d.vec upsample_{linear}.vec", ANY, {"input": grid(n, batch=True), **factors(n)}),
    )) + (
    ("convolution.default", ANY,
     {"input": anywhere, "weight": either, "bias": lambda d: d.of_shape((d.out,)) if d.chance() else None, "stride": repeated(1, 1, 2),
      "padding": repeated(0, 1), "dilation": repeated(1, 1, 2), "transposed": lambda d: d.transposed, "output_padding": repeated(0),
      "groups": lambda d: d.groups}),
)
"""rows, dimensions of the first operand, drawers by argument."""
