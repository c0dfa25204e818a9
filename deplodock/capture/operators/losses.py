"""Losses: each computed in f32 where its operands have 16 bits, and rounded once, after its mean or sum."""
from __future__ import annotations

from typing import Callable

import torch

from deplodock.capture.build import Call
from deplodock.capture.operators.activations import log_of_sum
from deplodock.capture.operators.rows import Constructor, of_floats, rows
from deplodock.errors import WrongDtype
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import Arg

NONE, MEAN, SUM = range(3)
"""ATen's numbers of reductions."""


def reduced(c: Call, loss: Arg) -> Arg:
    """Each loss, their mean, or their sum, as the operator was asked."""
    if c["reduction"] == NONE:
        return c.cast(loss, c.dtype)
    return c.cast(c.wide_fold("mean" if c["reduction"] == MEAN else "sum", loss, every(c, loss)), c.dtype)


def every(c: Call, x: Arg) -> tuple[int, ...]:
    return tuple(range(len(c.shape_of(x))))


def of_difference(loss: Callable[[Call, Arg], Arg]) -> Constructor:
    """A loss of input - target."""
    return lambda c: reduced(c, loss(c, c.wide("sub", c["self"], c["target"])))


def l1(c: Call) -> Arg:
    """|input - target|. Integers have it in the dtype they have in common, where it may wrap around, whatever their sum is in."""
    if c.dtype.is_float:
        return of_difference(absolute)(c)
    x, target = c["self"], c["target"]
    options = dict(shape=tuple(torch.broadcast_shapes(c.shape_of(x), c.shape_of(target))), dtype=c.promoted(x, target))
    d = c("sub", *(c.cast(t, options["dtype"]) for t in (x, target)), **options)
    return reduced(c, c("abs", d, **options))


def square(c: Call, d: Arg) -> Arg:
    return c.wide("mul", d, d)


def absolute(c: Call, d: Arg) -> Arg:
    return c.wide("abs", d)


def smooth_l1(c: Call, d: Arg) -> Arg:
    """d^2 / 2 beta where |d| < beta, else |d| - beta / 2."""
    beta, size = float(c["beta"]), absolute(c, d)
    if beta == 0:
        return size
    near = c.wide("div", c.wide("mul", square(c, d), 0.5), beta)
    return c.wide("where", c.wide("lt", size, beta), near, c.wide("sub", size, 0.5 * beta))


def huber(c: Call, d: Arg) -> Arg:
    """d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2)."""
    delta, size = float(c["delta"]), absolute(c, d)
    far = c.wide("mul", c.wide("sub", size, 0.5 * delta), delta)
    return c.wide("where", c.wide("le", size, delta), c.wide("mul", square(c, d), 0.5), far)


def weighted(c: Call, loss: Arg) -> Arg:
    return loss if c["weight"] is None else c.wide("mul", loss, c["weight"])


def binary_cross_entropy(c: Call) -> Arg:
    """-(t log x + (1 - t) log(1 - x)), each logarithm at least -100."""
    x, t = c.wide("sub", c["self"], 0.0), c["target"]
    yes = c.wide("maximum", c.wide("log", x), -100.0)
    no = c.wide("maximum", c.wide("log1p", c.wide("neg", x)), -100.0)
    loss = c.wide("sub", c.wide("mul", c.wide("sub", t, 1.0), no), c.wide("mul", t, yes))
    return reduced(c, weighted(c, loss))


def binary_cross_entropy_with_logits(c: Call) -> Arg:
    """(1 - t) x + q softplus(-x), q = 1 + (p - 1) t for a weight p of the positives."""
    x, t = c["self"], c["target"]
    soft = log_of_sum(c, c.wide("neg", x))
    if c["pos_weight"] is not None:
        soft = c.wide("mul", soft, c.wide("add", c.wide("mul", c.wide("sub", c["pos_weight"], 1.0), t), 1.0))
    return reduced(c, weighted(c, c.wide("add", c.wide("mul", c.wide("sub", 1.0, t), x), soft)))


def kl_div(c: Call) -> Arg:
    """t (log t - x), 0 where t is; of log t, exp(t) (t - x)."""
    x, t = c["self"], c["target"]
    if c["log_target"]:
        return reduced(c, c.wide("mul", c.wide("exp", t), c.wide("sub", t, x)))
    entropy = c.wide("where", c.wide("eq", t, 0.0), 0.0, c.wide("mul", t, c.wide("log", t)))
    return reduced(c, c.wide("sub", entropy, c.wide("mul", t, x)))


# ---- losses of classes -----------------------------------------------------------------------------------------------

def nll_loss(c: Call) -> Arg:
    return of_classes(c, c["self"], class_dim(c, c["self"]), 0.0)


def cross_entropy(c: Call) -> Arg:
    """Of log_softmax over the classes: with a class for each place, or with a probability for each class."""
    x, dim = c["self"], class_dim(c, c["self"])
    wide = c.dtype.compute
    logs = c("log_softmax", c.cast(x, wide), dim=dim, shape=c.shape_of(x), dtype=wide)
    if c.shape_of(c["target"]) != c.shape_of(x) or not c.dtype_of(c["target"]).is_float:
        return of_classes(c, logs, dim, float(c["label_smoothing"]))
    t, smoothing = c["target"], float(c["label_smoothing"])
    if smoothing:
        t = c.wide("add", c.wide("mul", t, 1 - smoothing), smoothing / c.shape_of(x)[dim])
    each = c.wide("neg", c.wide_fold("sum", weighted_classes(c, c.wide("mul", logs, t), dim), (dim,)))
    return reduced(c, each)


def class_dim(c: Call, x: Arg) -> int:
    """The dimension of the classes: the first where there is no batch."""
    return min(1, len(c.shape_of(x)) - 1)


def weighted_classes(c: Call, x: Arg, dim: int) -> Arg:
    """x times the weight of its class."""
    if c["weight"] is None:
        return x
    return c.wide("mul", x, c.reshape(c["weight"], (c.shape_of(x)[dim], *(1,) * (len(c.shape_of(x)) - dim - 1))))


def of_classes(c: Call, logs: Arg, dim: int, smoothing: float) -> Arg:
    """-w[t] log p[t] for the class t of each place, 0 where it is to be ignored; smoothing: the share of the mean over all
    classes. A mean is over the weights of what is not ignored."""
    if (d := c.dtype_of(c["target"])) not in (Dtype.i64, Dtype.u8):
        raise WrongDtype(c.source, name=f"the target of {c.op}", dtype=f"torch.{d.torch_name}",
                         expected="torch.int64 or torch.uint8, which PyTorch has it of", advice="convert it to int64")
    sizes, wide = c.shape_of(logs), c.dtype.compute
    kept = (*sizes[:dim], 1, *sizes[dim + 1:])
    places = (*sizes[:dim], *sizes[dim + 1:])
    t = c.reshape(c["target"], places)
    ignored = c.test("eq", t, c.number(c["ignore_index"], c.dtype_of(t)))
    t = c("where", ignored, 0, t, shape=places, dtype=c.dtype_of(t))

    def at_class(x: Arg) -> Arg:
        found = c("gather", x, c.reshape(t, kept), dim=dim, shape=kept, dtype=c.dtype_of(x))
        return c.wide("where", ignored, 0.0, c.reshape(found, places))
    loss = at_class(c.wide("neg", weighted_classes(c, logs, dim)))
    if c["weight"] is None:
        weights = c.cast(c.test("eq", ignored, False), wide)
    else:
        column = c.reshape(c["weight"], (sizes[dim], *(1,) * (len(sizes) - dim - 1)))
        weights = at_class(c.expand(c.cast(column, wide), sizes))
    if not smoothing:
        return averaged(c, loss, weights)
    spread = c.wide("neg", c.wide_fold("sum", weighted_classes(c, logs, dim), (dim,)))
    spread = c.wide("where", ignored, 0.0, spread)
    share = smoothing / sizes[dim]
    if c["reduction"] != MEAN:
        return reduced(c, c.wide("add", c.wide("mul", loss, 1 - smoothing), c.wide("mul", spread, share)))
    both = c.wide("add", c.wide("mul", loss, 1 - smoothing), c.wide("mul", spread, share))
    return averaged(c, both, weights)


def averaged(c: Call, loss: Arg, weights: Arg) -> Arg:
    if c["reduction"] != MEAN:
        return reduced(c, loss)
    total, count = (c.wide_fold("sum", x, every(c, x)) for x in (loss, weights))
    return c.cast(c.wide("div", total, count), c.dtype)


ROWS: dict[str, Constructor] = {
    **rows(of_difference(square), "mse_loss"),
    **rows(l1, "l1_loss"),
    **rows(of_floats(of_difference(smooth_l1)), "smooth_l1_loss"),
    **rows(of_floats(of_difference(huber)), "huber_loss"),
    **rows(of_floats(binary_cross_entropy), "binary_cross_entropy"),
    **rows(binary_cross_entropy_with_logits, "binary_cross_entropy_with_logits"),
    **rows(kl_div, "kl_div"),
    **rows(nll_loss, "nll_loss_nd"),
    **rows(cross_entropy, "cross_entropy_loss"),
}
"""ATen overload -> constructor."""
