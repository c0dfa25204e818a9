"""Activations: computed in f32 where their operand has 16 bits, and rounded once."""
from __future__ import annotations

from deplodock.capture.build import Call
from deplodock.capture.operators.rows import Constructor, of_floats, rows
from deplodock.errors import TrainingMode
from deplodock.ir.torch import Arg

SELU = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
"""alpha and scale of selu."""


def activation(op: str, *options: str) -> Constructor:
    return lambda c: c(op, c.cast(c["self"], c.dtype), **{o: c[o] for o in options})


def elu_of(c: Call, alpha: float, scale: float = 1.0, input_scale: float = 1.0) -> Arg:
    return c("elu", c.cast(c["self"], c.dtype), alpha=float(alpha), scale=float(scale), input_scale=float(input_scale))


def leaky_relu(c: Call) -> Arg:
    return c("leaky_relu", c["self"], negative_slope=float(c["negative_slope"]))


def rrelu(c: Call) -> Arg:
    """In evaluation: leaky_relu with the middle of its slopes."""
    if c["training"]:
        raise TrainingMode(c.source, found="rrelu in training mode")
    return c("leaky_relu", c["self"], negative_slope=(c["lower"] + c["upper"]) / 2)


def softplus(c: Call) -> Arg:
    return c("softplus", c["self"], beta=float(c["beta"]), threshold=float(c["threshold"]))


def ramp(c: Call) -> Arg:
    """min(max(x + 3, 0), 6)"""
    return c.wide("minimum", c.wide("maximum", c.wide("add", c["self"], 3.0), 0.0), 6.0)


def hardsigmoid(c: Call) -> Arg:
    return c.cast(c.wide("div", ramp(c), 6.0), c.dtype)


def hardswish(c: Call) -> Arg:
    return c.cast(c.wide("div", c.wide("mul", c["self"], ramp(c)), 6.0), c.dtype)


def log_of_sum(c: Call, x: Arg) -> Arg:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)), which no x overflows. Not rounded."""
    return c.wide("add", c.wide("maximum", x, 0.0), c.wide("log1p", c.wide("exp", c.wide("neg", c.wide("abs", x)))))


def mish(c: Call) -> Arg:
    """x tanh(log(1 + exp(x)))"""
    return c.cast(c.wide("mul", c["self"], c.wide("tanh", log_of_sum(c, c["self"]))), c.dtype)


def log_sigmoid(c: Call) -> Arg:
    """-log(1 + exp(-x))"""
    return c.cast(c.wide("neg", log_of_sum(c, c.wide("neg", c["self"]))), c.dtype)


def threshold(c: Call) -> Arg:
    """A value where x is at most the threshold. NaN stays."""
    x = c["self"]
    return c.where(c.test("le", x, c.number(c["threshold"], c.dtype_of(x))), c["value"], x)


def prelu(c: Call) -> Arg:
    """x where it is above 0, else x times the slope of its channel (dimension 1)."""
    x, slope = c["self"], c["weight"]
    rank = len(c.shape_of(x))
    if rank > 1:
        slope = c.reshape(slope, (c.shape_of(slope) or (1,)) + (1,) * (rank - 2))
    elif rank == 0:
        slope = c.reshape(slope, ())
    return c.cast(c.wide("where", c.test("lt", 0.0, x), x, c.wide("mul", x, slope)), c.dtype)


def glu(c: Call) -> Arg:
    """The first half times the sigmoid of the second."""
    x, dim = c["self"], c.dim("dim")
    half = c.shape_of(x)[dim] // 2
    a, b = (c.slice(x, dim, at, at + half, 1) for at in (0, half))
    return c.cast(c.wide("mul", a, c.wide("sigmoid", b)), c.dtype)


ROWS: dict[str, Constructor] = {
    **rows(activation("relu"), "relu"),
    **rows(of_floats(activation("silu")), "silu"),
    **rows(of_floats(activation("gelu", "approximate")), "gelu"),
    **rows(lambda c: elu_of(c, c["alpha"], c["scale"], c["input_scale"]), "elu"),
    **rows(of_floats(lambda c: elu_of(c, c["alpha"], 1.0, 1.0 / c["alpha"])), "celu"),
    **rows(lambda c: elu_of(c, *SELU), "selu"),
    **rows(leaky_relu, "leaky_relu"),
    **rows(of_floats(rrelu), "rrelu"),
    **rows(of_floats(softplus), "softplus"),
    **rows(of_floats(hardsigmoid), "hardsigmoid"),
    **rows(of_floats(hardswish), "hardswish"),
    **rows(of_floats(mish), "mish"),
    **rows(of_floats(log_sigmoid), "log_sigmoid"),
    **rows(threshold, "threshold"),
    **rows(of_floats(prelu), "prelu"),
    **rows(of_floats(glu), "glu"),
}
"""ATen overload -> constructor."""
