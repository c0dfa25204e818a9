"""What the schema of an ATen overload does not say of its arguments, for each row of the capture table that needs it.

A line of DATA: rows of the table, the number of dimensions of the first operand (least, most), and a drawer for each
argument. Arguments without a drawer are drawn by the schema (tests/generated/draw.py): pointwise operators, folds and
most others need no line.
"""
from __future__ import annotations

import math

import torch

from tests.generated.case import DTYPES
from tests.generated.draw import Draw, Drawer, Operand, Refused, call
from tests.generated.windows import convolving, of_windows, several

ANY = (0, 4)


def sizes(d: Draw) -> list[int]:
    return list(d.shape(0, 3))


def dtype(d: Draw) -> torch.dtype:
    return DTYPES[d.dtype]


# ---- views -----------------------------------------------------------------------------------------------------------

def regrouped(d: Draw) -> list[int]:
    """Another shape of as many elements; now and then with a -1."""
    n, shape = math.prod(d.main.shape), []
    rest = n
    for p in (2, 3, 5, 7, 11, 13, 17, 29):
        while rest > 1 and rest % p == 0:
            rest //= p
            if shape and d.chance(0.6):
                at = d.random.randrange(len(shape))
                shape[at] *= p
            else:
                shape.insert(d.random.randint(0, len(shape)), p)
    shape = shape or ([n] if n != 1 else [])
    if n == 0:
        shape = [0, *shape[1:], 3]
    if d.chance(0.3):
        shape.insert(d.random.randint(0, len(shape)), 1)
    if n and shape and d.chance(0.3):
        shape[d.random.randrange(len(shape))] = -1
    return shape


def merged(d: Draw) -> list[int]:
    """The shape with neighbours merged, or 1 put in between: what view can do on most strides."""
    shape = list(d.main.shape)
    if len(shape) > 1 and d.chance():
        at = d.random.randrange(len(shape) - 1)
        shape[at:at + 2] = [shape[at] * shape[at + 1]]
    return [*shape, 1] if d.chance(0.3) else shape


def wider(d: Draw) -> list[int]:
    """A shape to expand to."""
    front = list(d.shape(0, 1))
    return front + [d.random.choice((1, 2, 3)) if n == 1 else d.random.choice((n, -1)) for n in d.main.shape]


def extent(d: Draw, dim: int) -> int:
    return d.main.shape[dim] if d.main.shape else 1


def pieces(d: Draw) -> list[int]:
    """Lengths that add up to the first dimension."""
    left, found = d.main.shape[0], []
    while left > 0:
        found.append(d.random.randint(1, left))
        left -= found[-1]
    return found or [0]


def along_first(d: Draw) -> list[Operand]:
    """Tensors that differ in their first dimension only."""
    x = d.first(1, 3)
    return [x, *(d.of_shape((d.size(), *x.shape[1:])) for _ in range(d.random.randint(0, 3)))]


def chosen_dims(d: Draw) -> list[int]:
    """Dimensions, each once; none where there are none."""
    rank = len(d.main.shape)
    d.chosen = d.random.sample(range(rank), d.random.randint(min(rank, 1), rank))
    return d.chosen


def shifts(d: Draw) -> list[int]:
    return [d.random.randint(-9, 9) for _ in chosen_dims(d)]


def padding(d: Draw) -> list[int]:
    """Of pad and constant_pad_nd: pairs from the last dimension on; of modes that read the tensor, one pair less than it has."""
    d.mode = d.random.choice(("constant", "constant", "reflect", "replicate", "circular"))
    rank = len(d.main.shape)
    pairs = d.random.randint(0, rank) if d.mode == "constant" else max(1, rank - 2)
    low = -1 if d.mode == "constant" else 0
    return [d.random.randint(low, 3) for _ in range(2 * pairs)]


def constant_padding(d: Draw) -> list[int]:
    return [d.random.randint(-1, 3) for _ in range(2 * d.random.randint(0, len(d.main.shape)))]


def window(d: Draw) -> int:
    d.dimension = d.random.randrange(len(d.main.shape))
    return d.dimension


def image(d: Draw) -> Operand:
    """A batch of small images."""
    d.main = d.fresh((*d.random.choice(((), (2,))), d.random.choice((1, 3)), d.random.choice((5, 6, 7)), d.random.choice((5, 8))))
    return d.main


def columns(d: Draw) -> Operand:
    """What col2im adds up to images of 5 x 6, windows of 2 x 3."""
    d.step, d.around = d.random.choice((1, 2)), d.random.choice((0, 1))
    blocks = ((5 + 2 * d.around - 2) // d.step + 1) * ((6 + 2 * d.around - 3) // d.step + 1)
    d.main = d.fresh((*d.random.choice(((), (2,))), 12, blocks))
    return d.main


PAIR = {"kernel_size": lambda d: d.random.choice(([2, 3], [1, 1], [3, 3])), "dilation": lambda d: d.random.choice(([1, 1], [2, 1])),
        "padding": lambda d: d.random.choice(([0, 0], [1, 2])), "stride": lambda d: d.random.choice(([1, 1], [2, 3]))}


def strided(d: Draw) -> list[int]:
    """Of as_strided: a window of memory, rows of which overlap. The operand is contiguous, so its memory is its elements."""
    d.window = d.random.choice(((2, 3), (1, 2), (3, 1)))
    return [d.random.choice((1, 2, 3)), d.random.choice((1, 2, 4))]


def contiguous(d: Draw) -> Operand:
    d.layouts, before = False, d.layouts
    d.main = d.fresh((d.random.choice((13, 17, 29)),))
    d.layouts = before
    return d.main


def selected(d: Draw) -> Operand:
    d.at = d.random.randrange(len(d.main.shape))
    return d.of_shape(d.main.shape[:d.at] + d.main.shape[d.at + 1:])


def sliced(d: Draw) -> Operand:
    d.at = d.random.randrange(len(d.main.shape))
    n = d.main.shape[d.at]
    d.slice = d.random.choice((0, 1, None)), d.random.choice((None, max(n - 1, 1))), d.random.choice((1, 2))
    return d.of_shape(tuple(len(range(*slice(*d.slice).indices(m))) if i == d.at else m for i, m in enumerate(d.main.shape)))


def on_diagonal(d: Draw) -> Operand:
    d.offset = d.random.randint(-2, 2)
    rows, columns = d.main.shape[:2]
    return d.of_shape((*d.main.shape[2:], max(0, min(rows + min(d.offset, 0), columns - max(d.offset, 0)))))


# ---- products --------------------------------------------------------------------------------------------------------

def second(d: Draw) -> Operand:
    """What a tensor is multiplied with by matmul: a vector, a matrix, a batch."""
    k, batch = d.main.shape[-1], d.main.shape[:-2]
    batch = tuple(1 if d.chance(0.3) else n for n in batch[d.random.randint(0, len(batch)):])
    return d.of_shape(d.random.choice([(k,), (k, d.size()), (*batch, k, d.size())]))


def weight(d: Draw) -> Operand:
    d.width = d.random.choice(SIZES_OF_KEYS)
    return d.of_shape((d.width, d.main.shape[-1]))


def last(*more: int) -> Drawer:
    """(last dimension of the first operand, any)"""
    return lambda d: d.of_shape((*d.main.shape[:-2][:len(more)], d.main.shape[-1], d.size()))


def bias(batched: bool) -> tuple[tuple[int, int], dict[str, Drawer]]:
    """self, first, second of addmm and baddbmm: the first operand of the call is the one that is added."""
    names = ("batch1", "batch2") if batched else ("mat1", "mat2")

    def left(d: Draw) -> Operand:
        d.depth = d.size()
        return d.of_shape((*d.main.shape[:-1], d.depth))
    return ((3, 3) if batched else (2, 2)), {
        names[0]: left, names[1]: lambda d: d.of_shape((*d.main.shape[:-2], d.depth, d.main.shape[-1])),
        "beta": lambda d: d.random.choice((0, 1, 2)), "alpha": lambda d: d.random.choice((1, 3))}


def equation(d: Draw) -> str:
    x = d.first(2, 3)
    options = ["ij,kj->ki", "ij,ij->", "ij->ji", "ij->", "...i,ki->k...", "ij,ij->ij"] if len(x.shape) == 2 else \
        ["bij,bkj->bik", "bij,bij->b", "bij->jb", "bij,kj->bki", "...j,...j->...", "bij,bik->jk"]
    d.equation = d.random.choice(options)
    return d.equation


def einsum_operands(d: Draw) -> list[Operand]:
    left, arrow, _ = d.equation.partition("->")
    terms, x = left.split(","), d.main
    names = terms[0].replace("...", "uvw"[:len(x.shape) - len(terms[0].replace("...", ""))])
    known, found = dict(zip(names, x.shape)), [x]
    for t in terms[1:]:
        letters = t.replace("...", "uvw"[:len(x.shape) - 1])
        shape = tuple(known.setdefault(l, 0) or known.update({l: d.size()}) or known[l] for l in letters)
        found.append(d.of_shape(shape))
    return found


def keys(d: Draw) -> Operand:
    *batch, _, width = d.main.shape
    d.keys, d.causal, d.gqa = d.random.choice(SIZES_OF_KEYS), d.chance(0.3), False
    if batch and batch[-1] and batch[-1] % 2 == 0 and d.chance():  # PyTorch 2.11 dies of no heads in groups
        d.gqa, batch = True, [*batch[:-1], batch[-1] // 2]
    d.batch = tuple(batch)
    return d.of_shape((*batch, d.keys, width))


SIZES_OF_KEYS = (1, 3, 8, 13, 33)


def attention_mask(d: Draw) -> Operand | None:
    if d.causal or d.chance():
        return None
    shape = d.random.choice([(), d.main.shape[:-2]]) + (d.main.shape[-2], d.keys)
    return d.fresh(shape, "b8") if d.chance() else d.fresh(shape, values="mask")


# ---- indexing --------------------------------------------------------------------------------------------------------

def along(d: Draw) -> int:
    d.along = d.random.randrange(len(d.main.shape))
    return d.along - d.random.choice((0, len(d.main.shape)))


def gathering(d: Draw) -> Operand:
    shape = tuple(d.size() if i == d.along else d.random.randint(1, max(n, 1)) for i, n in enumerate(d.main.shape))
    return d.fresh(shape, "i64", f"index {d.main.shape[d.along]}")


def selecting(d: Draw) -> Operand:
    return d.fresh((d.size(),), d.random.choice(("i64", "i32")), f"index {d.main.shape[d.along]}")


def indices(d: Draw) -> list[Operand | None]:
    """Tensors that broadcast with each other, negative ones among them, for some of the dimensions."""
    shape, found = d.shape(0, 2), []
    for n in d.main.shape[:d.random.randint(1, len(d.main.shape))]:
        found.append(d.fresh(shape[d.random.choice((0, 0, len(shape))):], "i64", f"index {d.random.choice((n, -n))}")
                     if d.chance(0.7) else None)
    return found if any(found) else [d.fresh(shape, "i64", f"index {d.main.shape[0]}")]


# ---- norms and losses of channels and classes ------------------------------------------------------------------------

def channel(name: str, values: str = "") -> Drawer:
    """A vector of one value for each channel (dimension 1)."""
    needed = name.startswith("running")
    return lambda d: d.of_shape((d.main.shape[1],), values=values) if needed or d.chance(0.7) else None


AFFINE = {name: channel(name) for name in ("weight", "bias")}
STATISTICS = {"running_mean": channel("running_mean"), "running_var": channel("running_var", "positive")}
MOMENTUM = {"momentum": lambda d: 0.1, "eps": lambda d: 1e-5}


def first(values: str, dtype: str = "") -> Drawer:
    """The first operand, of these values."""
    def draw(d: Draw) -> Operand:
        d.main = d.fresh(d.shape(0, 3), dtype, values)
        return d.main
    return draw


def divisor_of_channels(d: Draw) -> int:
    return d.random.choice([n for n in range(1, d.main.shape[1] + 1) if d.main.shape[1] % n == 0] or [1])


def reduction(d: Draw) -> int:
    return d.random.randrange(3)


LOSS = {"target": lambda d: d.of_shape(d.main.shape), "reduction": reduction}
PROBABILITY = LOSS | {"target": lambda d: d.of_shape(d.main.shape, values="unit"),
                      "weight": lambda d: d.beside(d.main.shape, values="positive") if d.chance() else None}


def classes(d: Draw) -> int:
    return d.main.shape[min(1, len(d.main.shape) - 1)]


def class_of_each(d: Draw) -> Operand:
    """A class for each place of the first operand, whose classes are dimension 1, or 0 where that is all it has."""
    if 0 in d.main.shape:
        raise Refused("a loss of no classes, or of no places")
    return d.fresh(d.main.shape[:1] * (len(d.main.shape) > 1) + d.main.shape[2:], "i64", f"index {classes(d)}")


CLASSES = {"target": class_of_each, "reduction": reduction, "ignore_index": lambda d: d.random.choice((-100, 0, 1)),
           "weight": lambda d: d.of_shape((classes(d),), values="positive") if d.chance() else None}


def class_or_probability(d: Draw) -> Operand:
    return class_of_each(d) if d.chance(0.6) else d.of_shape(d.main.shape, values="unit")


# ---- the table -------------------------------------------------------------------------------------------------------

def normalized(d: Draw) -> list[int]:
    d.normalized = d.main.shape[d.random.randrange(len(d.main.shape)):]
    return list(d.normalized)


def scale(d: Draw) -> Operand | None:
    return d.of_shape(d.normalized) if d.chance(0.7) else None


def correction(d: Draw) -> int | None:
    return d.random.choice((0, 1, 2, None))


def converted(d: Draw) -> torch.dtype:
    """What a tensor may be converted to. Of floats that an integer does not hold, C++ says nothing: no unsigned ones."""
    floating = DTYPES[d.first().dtype].is_floating_point
    names = [n for n, t in DTYPES.items() if not floating or t.is_floating_point or t == torch.bool or not d.special and t.is_signed]
    return DTYPES[d.random.choice(names)]


NONZERO = {"other": lambda d: d.beside(d.main.shape, values="divisor")}
NONZERO_NUMBER = {"other": lambda d: d.random.choice((2, 3, -5))}
def shifted(d: Draw) -> Operand:
    """What PyTorch traces a shift of: it runs one of booleans, but has no meta function of it."""
    if d.first().dtype == "b8":
        raise Refused("a shift of booleans")
    return d.main


SHIFT = {"self": shifted, "other": lambda d: d.beside(d.main.shape, dtype=d.main.dtype, values="index 7")}
SHIFT_NUMBER = {"self": shifted, "other": lambda d: d.random.randrange(7)}
MADE = {"dtype": dtype}


def step(d: Draw) -> float:
    """Half a step is none in integers: PyTorch 2.11 divides by it and dies."""
    return d.random.choice((1, 2, 3, 0.5) if dtype(d).is_floating_point else (1, 2, 3))


def low(d: Draw) -> float:
    """The lower bound of hardtanh; no unsigned integer takes a negative one."""
    d.low = d.random.choice((0, 0.5, 1) if d.main.dtype.startswith("u") else (-1.0, -2.5, 0, 1))
    return d.low


BOUNDS = {"min_val": low, "max_val": lambda d: d.low + d.random.choice((0, 0.75, 2))}
"""F.hardtanh and PyTorch's traces refuse bounds in the wrong order, which the kernel takes."""

DATA: tuple[tuple[str, tuple[int, int], dict[str, Drawer]], ...] = (
    # pointwise
    ("div.Tensor remainder.Tensor fmod.Tensor floor_divide.default", ANY, NONZERO),
    ("div.Scalar remainder.Scalar fmod.Scalar floor_divide.Scalar", ANY, NONZERO_NUMBER),
    ("div.Tensor_mode", ANY, NONZERO | {"rounding_mode": lambda d: d.random.choice((None, "floor", "trunc"))}),
    ("div.Scalar_mode", ANY, NONZERO_NUMBER | {"rounding_mode": lambda d: d.random.choice((None, "floor", "trunc"))}),
    ("remainder.Scalar_Tensor", ANY, {"self": lambda d: d.number(), "other": lambda d: d.fresh(d.shape(), values="divisor")}),
    ("pow.Scalar", ANY, {"self": lambda d: d.random.choice((2, 0.5, 3)), "exponent": lambda d: d.first()}),
    ("pow.Tensor_Tensor", ANY, {"exponent": lambda d: d.beside(d.main.shape, values="positive")}),
    ("pow.Tensor_Scalar", ANY, {"exponent": lambda d: d.random.choice((0, 1, 2, 3, 0.5, -1, -2, 1.7, 4))}),
    ("bitwise_left_shift.Tensor __lshift__.Tensor bitwise_right_shift.Tensor __rshift__.Tensor", ANY, SHIFT),
    ("bitwise_left_shift.Tensor_Scalar __lshift__.Scalar bitwise_right_shift.Tensor_Scalar __rshift__.Scalar", ANY, SHIFT_NUMBER),
    ("where.self where.ScalarOther where.ScalarSelf where.Scalar", ANY,
     {"condition": lambda d: d.beside(d.first().shape, dtype="b8"), "self": lambda d: d.main}),
    ("where.ScalarSelf where.Scalar", ANY,
     {"condition": lambda d: d.beside(d.shape(), dtype="b8"), "self": lambda d: d.number(),
      "other": lambda d: d.fresh(d.givens[-1].shape)}),
    ("where.Scalar", ANY, {"condition": lambda d: d.beside(d.shape(), dtype="b8"), "self": lambda d: d.number(), "other": lambda d: d.number()}),
    ("masked_fill.Tensor", ANY, {"value": lambda d: d.fresh((), d.main.dtype)}),
    ("round.decimals", ANY, {"decimals": lambda d: d.random.choice((-1, 0, 1, 2))}),
    ("threshold.default", ANY, {"threshold": lambda d: d.number(), "value": lambda d: d.number()}),
    ("hardtanh.default", ANY, BOUNDS),
    ("prelu.default", ANY, {"weight": lambda d: d.of_shape(d.first().shape[1:2] if d.chance() else (1,))}),
    ("glu.default", (1, 4), {"dim": lambda d: d.dim()}),
    ("one_hot.default", (0, 3), {"self": first("index 5", "i64"), "num_classes": lambda d: d.random.choice((5, 7))}),
    ("gelu.default", ANY, {"approximate": lambda d: d.random.choice(("none", "tanh"))}),
    ("_to_copy.default", ANY, {"dtype": converted}),
    ("copy.default", ANY, {"src": lambda d: d.beside(d.main.shape)}),
    ("_assert_tensor_metadata.default", ANY, {"dtype": lambda d: DTYPES[d.main.dtype]}),
    # folds
    ("prod.dim_int any.dim all.dim max.dim min.dim softmax.int log_softmax.int", ANY, {"dim": lambda d: d.dim()}),
    ("var.correction std.correction var_mean.correction std_mean.correction", ANY, {"correction": correction}),
    ("linalg_vector_norm.default", ANY, {"ord": lambda d: d.random.choice((0, 1, 2, 3, -1, 0.5, math.inf, -math.inf))}),
    ("dist.default", ANY, {"other": lambda d: d.of_shape(d.main.shape), "p": lambda d: d.random.choice((0, 1, 2, 3, math.inf))}),
    ("cdist.default", (2, 3), {"x2": lambda d: d.of_shape((*d.main.shape[:-2], d.size(), d.main.shape[-1])),
                               "p": lambda d: d.random.choice((0.0, 1.0, 2.0, 3.0))}),
    ("layer_norm.default rms_norm.default", (1, 4), {"normalized_shape": normalized, "weight": scale, "bias": scale}),
    ("group_norm.default", (2, 4), AFFINE | {"num_groups": divisor_of_channels}),
    ("instance_norm.default", (3, 4), AFFINE | MOMENTUM | {
        "running_mean": lambda d: None, "running_var": lambda d: None, "use_input_stats": lambda d: True, "cudnn_enabled": lambda d: False}),
    ("_native_batch_norm_legit_no_training.default", (2, 4), AFFINE | STATISTICS | MOMENTUM),
    ("_native_batch_norm_legit.no_stats", (2, 4), AFFINE | MOMENTUM | {"training": lambda d: True}),
    ("mse_loss.default l1_loss.default smooth_l1_loss.default huber_loss.default kl_div.default", ANY, LOSS),
    ("binary_cross_entropy.default", ANY, {"self": first("unit")} | PROBABILITY),
    ("binary_cross_entropy_with_logits.default", ANY, PROBABILITY),
    ("nll_loss_nd.default", (1, 4), CLASSES),
    ("cross_entropy_loss.default", (1, 4), CLASSES | {
        "target": class_or_probability, "label_smoothing": lambda d: d.random.choice((0.0, 0.2))}),
    # products
    ("matmul.default", (1, 4), {"other": second}),
    ("mm.default", (2, 2), {"mat2": last()}),
    ("bmm.default", (3, 3), {"mat2": last(0)}),
    ("mv.default", (2, 2), {"vec": lambda d: d.of_shape(d.main.shape[-1:])}),
    ("dot.default", (1, 1), {"tensor": lambda d: d.of_shape(d.main.shape)}),
    ("linear.default", (1, 4), {"weight": weight, "bias": lambda d: d.of_shape((d.width,)) if d.chance() else None}),
    ("addmm.default", *bias(False)),
    ("baddbmm.default", *bias(True)),
    ("einsum.default", (2, 3), {"equation": equation, "tensors": einsum_operands}),
    ("scaled_dot_product_attention.default", (3, 4),
     {"key": keys, "value": lambda d: d.of_shape((*d.batch, d.keys, d.random.choice((1, 4, 5, 8, 16)))), "attn_mask": attention_mask,
      "is_causal": lambda d: d.causal, "scale": lambda d: d.random.choice((None, 0.3)), "enable_gqa": lambda d: d.gqa}),
    ("embedding.default", (2, 2), {"indices": lambda d: d.fresh(d.shape(0, 3), "i64", f"index {d.main.shape[0]}")}),
    # indexing
    ("gather.default", (1, 4), {"dim": along, "index": gathering}),
    ("index_select.default", (1, 4), {"dim": along, "index": selecting}),
    ("index.Tensor", (1, 4), {"indices": indices}),
    # views
    ("view.default _unsafe_view.default", ANY, {"size": lambda d: merged(d) if d.chance() else regrouped(d)}),
    ("unsqueeze.default", ANY, {"dim": lambda d: d.random.randint(-len(d.main.shape) - 1, len(d.main.shape))}),
    ("permute.default", ANY, {"dims": lambda d: d.random.sample(range(len(d.main.shape)), len(d.main.shape))}),
    ("t.default", (0, 2), {}),
    ("expand.default", ANY, {"size": wider}),
    ("slice.Tensor", (1, 4), {"start": lambda d: d.random.choice((None, 0, 1, -3, 40)), "end": lambda d: d.random.choice((None, 5, -1, 99)),
                              "step": lambda d: d.random.choice((1, 1, 2, 3))}),
    ("split.Tensor", (1, 4), {"split_size": lambda d: d.random.choice((1, 2, 5))}),
    ("split_with_sizes.default", (1, 4), {"split_sizes": pieces, "dim": lambda d: 0}),
    ("select.int", (1, 4), {"dim": lambda d: 0, "index": lambda d: d.random.randrange(-d.main.shape[0], d.main.shape[0])}),
    ("cat.default", (1, 3), {"tensors": along_first, "dim": lambda d: d.random.choice((0, -len(d.main.shape)))}),
    ("stack.default", (0, 3), {"dim": lambda d: d.random.randint(-len(d.main.shape) - 1, len(d.main.shape))}),
    ("repeat.default", (0, 3), {"repeats": lambda d: [d.random.choice((1, 2, 3)) for _ in range(len(d.main.shape) + d.random.randrange(2))]}),
    ("repeat_interleave.self_int", (0, 3), {"repeats": lambda d: d.random.choice((0, 1, 2, 3))}),
    ("flip.default", ANY, {"dims": chosen_dims}),
    ("roll.default", ANY, {"shifts": shifts, "dims": lambda d: d.chosen}),
    ("pad.default", (1, 4), {"pad": padding, "mode": lambda d: d.mode, "value": lambda d: d.random.choice((None, 2.0)) if d.mode == "constant" else None}),
    ("constant_pad_nd.default", ANY, {"pad": constant_padding}),
    ("unfold.default", (1, 4), {"dimension": window, "size": lambda d: d.random.randint(0, d.main.shape[d.dimension]),
                                "step": lambda d: d.random.choice((1, 2, 3))}),
    ("im2col.default", ANY, {"self": image, **PAIR}),
    ("col2im.default", ANY, {"self": columns, "output_size": lambda d: [5, 6], "kernel_size": lambda d: [2, 3], "dilation": lambda d: [1, 1],
                             "padding": lambda d: [d.around] * 2, "stride": lambda d: [d.step] * 2}),
    ("diagonal.default", (2, 4), {"offset": lambda d: d.random.randint(-2, 2), "dim1": lambda d: 0, "dim2": lambda d: d.random.choice((1, -1))}),
    ("as_strided.default", ANY, {"self": contiguous, "size": strided, "stride": lambda d: list(d.window),
                                 "storage_offset": lambda d: d.random.choice((None, 0, 2))}),
    ("slice_scatter.default", (1, 4), {"src": sliced, "dim": lambda d: d.at, "start": lambda d: d.slice[0], "end": lambda d: d.slice[1],
                                       "step": lambda d: d.slice[2]}),
    ("select_scatter.default", (1, 4), {"src": selected, "dim": lambda d: d.at, "index": lambda d: d.random.randrange(-1, d.main.shape[d.at])}),
    ("diagonal_scatter.default", (2, 4), {"src": on_diagonal, "offset": lambda d: d.offset}),
    ("index_fill.int_Scalar index_fill.int_Tensor", (1, 4), {"dim": along, "index": selecting, "value": lambda d: d.number()}),
    ("index_fill.int_Tensor", (1, 4), {"dim": along, "index": selecting, "value": lambda d: d.fresh((), d.main.dtype)}),
    ("one_hot.default", ANY, {"self": lambda d: d.fresh(d.shape(0, 2), "i64", "index 5"), "num_classes": lambda d: d.random.choice((5, 6))}),
    # windows
    *of_windows(1), *of_windows(2), *of_windows(3),
    ("convolution.default", (4, 4), convolving(2) | {"transposed": lambda d: False, "output_padding": several(2, 0)}),
    # made
    ("full.default", ANY, MADE | {"size": sizes}),
    ("zeros.default ones.default", ANY, MADE | {"size": sizes}),
    ("new_full.default new_zeros.default new_ones.default", ANY, {"size": sizes}),
    ("scalar_tensor.default", ANY, MADE | {"s": lambda d: d.number()}),
    ("arange.default", ANY, MADE | {"end": lambda d: d.random.choice((0, 1, 7, 13.5, 30))}),
    ("arange.start", ANY, MADE | {"start": lambda d: d.random.choice((-3, 0, 2)), "end": lambda d: d.random.choice((2, 7, 11))}),
    ("arange.start_step", ANY, MADE | {"start": lambda d: d.random.choice((-3, 0, 9)), "end": lambda d: d.random.choice((9, 17, 30)),
                                       "step": step}),
    ("eye.default", ANY, MADE | {"n": lambda d: d.size()}),
    ("eye.m", ANY, MADE | {"n": lambda d: d.size(), "m": lambda d: d.size()}),
    ("triu.default tril.default", (2, 4), {"diagonal": lambda d: d.random.randint(-3, 3)}),
)
"""rows, dimensions of the first operand, drawers by argument. A later line of a row goes before an earlier one."""

DRAWERS: dict[str, tuple[tuple[int, int], dict[str, Drawer]]] = {
    name: (rank, drawers) for names, rank, drawers in DATA for name in names.split()}

DISCRETE = set("""sign sgn signbit copysign angle floor ceil trunc round remainder fmod floor_divide div.Tensor_mode
    div.Scalar_mode eq ne lt le gt ge argmax argmin max.dim min.dim isnan isinf isfinite any all logical_and logical_or
    logical_xor logical_not _to_copy max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d""".split())
"""Rows (or operators, for all their overloads) whose result jumps: in compositions they read what is exact."""

FIRST_IN_16_BITS = frozenset(("_native_batch_norm_legit.no_stats",))
"""Rows that a case reads but the first result of where it is of 16 bits. The others, statistics, are f32 on CUDA and as PyTorch
traces them, and so are ours; eager on the CPU rounds them to the dtype of the weight."""


def drawn(row: str, d: Draw) -> str:
    """The text of a call of a row. Refused where nothing is known of an argument."""
    rank, drawers = DRAWERS.get(row, (ANY, {}))
    text = call(row, d, rank, drawers)
    return f"{text}[0]" if row in FIRST_IN_16_BITS and d.main.dtype in ("f16", "bf16") else text
