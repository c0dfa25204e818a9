"""What a program means, and whether a result is good enough: the reference in float64, and the promise of laws.

reference() evaluates Torch IR with PyTorch in float64; casts between floating dtypes are dropped, constants are as
captured, integers stay what they are until a cast rounds them to floats. A row of scaled_dot_product_attention that its mask
leaves nothing of gives 0, of softmax NaN.

within_promise() compares a result with it: the relative error (Frobenius norm, over finite elements) may be at most the
largest of twice eager's and the dtype's floor: half an ulp in 16 bits, 3e-7 in fp32, 3e-7 * 2^-29 in fp64, and there
2^-53 * sqrt(K) after a fold of K terms. No element may err by more than the largest of four times eager's largest error,
one ulp of the largest value in its row, and the floor times that value. NaN stands where the reference has it.

In fp64 the reference has the precision of what it judges: eager often equals it, and both err. So an error is told from
a wrong result down to the floor only, some 2.5 ulp.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from deplodock import reference_windows
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import Arg, Node, Program

FP32_FLOOR = 3e-7
"""Relative error that is always allowed in fp32: sums in fp32 partials reach it, whatever eager's order gives. 2.5 ulp."""
FP64_FLOOR = FP32_FLOOR * 2 ** -29
"""As many ulp in fp64, whose reference has errors of that size itself."""


# ---- the program in float64 ------------------------------------------------------------------------------------------

def reference(program: Program, inputs: Sequence[torch.Tensor],
              parameters: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """The outputs in float64 (integers and booleans in their own dtype), computed where the inputs are.

    inputs in the order of program.inputs; parameters by name. Raises what PyTorch raises, such as IndexError for an
    index of an embedding that is out of range.
    """
    values = {v.name: _widened(t) for v, t in zip(program.inputs, inputs, strict=True)}
    values |= {v.name: _widened(parameters[v.name]) for v in program.parameters}
    device = next((t.device for t in values.values()), torch.device("cpu"))
    last = {name: i for i, node in enumerate(program.nodes) for name in _reads(node)}
    with torch.no_grad():
        for i, node in enumerate(program.nodes):
            values[node.name] = evaluate(node, values, device)
            for name in _reads(node):
                if last[name] == i and name not in program.outputs:
                    values.pop(name, None)
    return [values[name] for name in program.outputs]


def evaluate(node: Node, values: Mapping[str, torch.Tensor], device: torch.device) -> torch.Tensor:
    """One node in float64."""
    def value(a):
        match a:
            case Arg(name): return values[name]
            case tuple() if any(isinstance(x, Arg) for x in a): return [value(x) for x in a]
        return a
    args = {name: value(a) for name, a in node.args}
    if node.op == "cast" and not args["x"].is_floating_point():
        return args["x"].to(getattr(torch, node.dtype.torch_name)).to(wide_dtype(node.dtype))
    return operate(node.op, args, node.shape, wide_dtype(node.dtype), device)


def operate(op: str, args: dict[str, object], shape: tuple[int, ...], dtype: torch.dtype, device: torch.device,
            meaning: Mapping[str, Callable] | None = None) -> torch.Tensor:
    """An operator of Torch IR on tensors, lists of them and options, by name; shape and dtype are those of its result.

    meaning: a function for each operator, MEANING unless given. Numbers are not rounded to 16 bits.
    """
    kind = next((a.dtype for a in args.values() if isinstance(a, torch.Tensor)), dtype)
    for name in ("a", "b"):
        if isinstance(args.get(name), (bool, int, float)) and (op, name) != ("pow", "b"):
            exact = dtype if op == "where" else kind
            exact = torch.float64 if exact.is_floating_point else exact  # of no dimensions: the result is not widened
            args = {**args, name: torch.tensor(args[name], dtype=exact, device=device)}
    match op:
        case "cast": return args["x"].to(dtype)
        case "reshape": return args["x"].reshape(shape)
        case "expand": return args["x"].expand(shape)
        case "as_strided": return args["x"].contiguous().as_strided(shape, args["strides"], args["offset"])
        case "fold": return F.fold(args.pop("x"), shape[2:], **args)
        case "full": return torch.full(shape, args["value"], dtype=dtype, device=device)
        case "upsample_nearest" | "upsample_linear":
            return reference_windows.upsample(args["x"], args["maps"], shape, op == "upsample_linear").to(dtype)
        case "arange":
            count = torch.arange(shape[0], device=device).to(torch.float64 if dtype.is_floating_point else dtype)
            return (args["start"] + args["step"] * count).to(dtype)
    return (meaning or MEANING)[op](**args).to(dtype)


def wide_dtype(d: Dtype) -> torch.dtype:
    """The torch dtype that stands for d in the reference."""
    return torch.float64 if d.is_float else getattr(torch, d.torch_name)


def _widened(t: torch.Tensor) -> torch.Tensor:
    return t.detach().to(torch.float64) if t.is_floating_point() else t.detach()


def _reads(node: Node) -> set[str]:
    args = [a for _, value in node.args for a in (value if isinstance(value, tuple) else (value,))]
    return {a.name for a in args if isinstance(a, Arg)}


def _unary(f: Callable) -> Callable:
    return lambda x: f(x)


def _binary(f: Callable) -> Callable:
    return lambda a, b: f(a, b)


def _folded(f: Callable) -> Callable:
    return lambda x, dims, keepdim: f(x, dims, keepdim)


def _prod(x, dims, keepdim):
    for d in reversed(dims):
        x = x.prod(d, keepdim=keepdim)
    return x


def _arg(f: Callable) -> Callable:
    def meaning(x, dims, keepdim):
        x = x.to(torch.uint8) if x.dtype == torch.bool else x        # which argmin and argmax of torch do not take
        if len(dims) == 1:
            return f(x, dims[0], keepdim)
        flat = f(x)
        return flat.reshape((1,) * x.ndim) if keepdim else flat
    return meaning


def _layer_norm(x, weight, bias, dims, eps):
    return F.layer_norm(x, [x.shape[d] for d in dims], weight, bias, eps)


def _rms_norm(x, weight, dims, eps):
    y = x * torch.rsqrt(x.square().mean(dims, keepdim=True) + eps)
    return y if weight is None else y * weight


def _addmm(input, a, b, beta, alpha):
    kind = float if a.is_floating_point() else int               # integers wrap around, which floats do not
    product = kind(alpha) * (a @ b)
    return product if beta == 0 else kind(beta) * input + product


def _attention(q, k, v, mask, is_causal, scale, enable_gqa):
    if enable_gqa:
        k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    scores = scale * (q @ k.transpose(-1, -2))
    if is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(), -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    y = torch.softmax(scores, -1) @ v
    return y if mask is None else y.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0)


def _gather(x, index, dim):
    """Unsigned integers as signed ones of the same bits, which torch gathers."""
    signed = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}.get(x.dtype, x.dtype)
    return torch.gather(x.view(signed), dim, index.long()).view(x.dtype)


def _index(x, indices):
    return x[tuple(slice(None) if i is None else i.long() for i in indices)]


def _pad(x, pads, mode, value):
    if mode == "constant":
        return F.pad(x, [n for pair in reversed(pads) for n in pair], value=value)
    for dim, (before, after) in enumerate(pads):
        n, at = x.shape[dim], torch.arange(-before, x.shape[dim] + after, device=x.device)
        at = {"reflect": n - 1 - (n - 1 - at.abs()).abs(), "replicate": at.clamp(0, n - 1), "circular": at % n}[mode]
        x = x.index_select(dim, at)
    return x


def _unfold(x, dim, size, step, dilation):
    return x.unfold(dim, (size - 1) * dilation + 1, step)[..., ::dilation]


def _slice(x, dim, start, stop, step):
    return x[(slice(None),) * dim + (slice(start, stop, step),)]


MEANING: dict[str, Callable] = {
    **{op: _unary(getattr(torch, op)) for op in """neg abs sign reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10
        log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc lgamma floor ceil round trunc
        isnan isinf bitwise_not relu""".split()},
    **{op: _binary(getattr(torch, op)) for op in """add sub mul div floor_divide remainder fmod pow atan2 hypot copysign
        maximum minimum eq ne lt le bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift""".split()},
    "trunc_divide": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "where": lambda cond, a, b: torch.where(cond, a, b),
    "silu": lambda x: F.silu(x),
    "gelu": lambda x, approximate: F.gelu(x, approximate=approximate),
    "softplus": lambda x, beta, threshold: F.softplus(x, beta, threshold),
    "leaky_relu": lambda x, negative_slope: F.leaky_relu(x, negative_slope),
    "elu": lambda x, alpha, scale, input_scale: scale * torch.where(x > 0, x, alpha * torch.expm1(input_scale * x)),
    **{op: _folded(getattr(torch, op)) for op in "sum mean amax amin any all".split()},
    "prod": _prod,
    "argmax": _arg(torch.argmax),
    "argmin": _arg(torch.argmin),
    "softmax": lambda x, dim: torch.softmax(x, dim),
    "log_softmax": lambda x, dim: torch.log_softmax(x, dim),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "matmul": _binary(torch.matmul),
    "addmm": _addmm,
    "linear": lambda x, weight, bias: F.linear(x, weight, bias),
    "einsum": lambda xs, equation: torch.einsum(equation, *xs),
    "scaled_dot_product_attention": _attention,
    **reference_windows.MEANING,
    "embedding": lambda weight, indices: weight[indices],
    "gather": _gather,
    "index": _index,
    "permute": lambda x, dims: x.permute(dims),
    "slice": _slice,
    "select": lambda x, dim, index: x.select(dim, index),
    "flip": lambda x, dims: x.flip(dims),
    "roll": lambda x, shifts, dims: x.roll(shifts, dims),
    "pad": _pad,
    "unfold": _unfold,
    "diagonal": lambda x, offset, dim1, dim2: x.diagonal(offset, dim1, dim2),
    "slice_scatter": lambda x, src, dim, start, stop, step: x.slice_scatter(src, dim, start, stop, step),
    "diagonal_scatter": lambda x, src, offset, dim1, dim2: x.diagonal_scatter(src, offset, dim1, dim2),
    "cat": lambda xs, dim: torch.cat(xs, dim),
    "triu": lambda x, diagonal: x.triu(diagonal),
    "tril": lambda x, diagonal: x.tril(diagonal),
}
"""Torch IR operator -> its meaning on float64 tensors, arguments by name."""


# ---- the promise -----------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Verdict:
    """How a result compares with the reference, and what the promise allows.

    rel_err, eager_rel_err: ||y - y64|| / ||y64|| over finite elements (the absolute norm where ||y64|| is 0); bound: on
    rel_err; max_abs_err: of one element; excess: the largest ratio of an element's error to its own bound; nan_match:
    NaN and infinities stand where the reference has them, or where eager has (an overflow in 16 bits on the way);
    mismatches: elements of an integer or boolean result that are neither the reference's nor eager's.
    """
    rel_err: float
    eager_rel_err: float
    bound: float
    max_abs_err: float
    excess: float
    nan_match: bool
    mismatches: int

    @property
    def ok(self) -> bool:
        return self.rel_err <= self.bound and self.excess <= 1 and self.nan_match and not self.mismatches


def error(y: torch.Tensor, y64: torch.Tensor) -> float:
    """||y - y64|| / ||y64|| over elements finite in both; ||y - y64|| where ||y64|| is 0."""
    mask = torch.isfinite(y) & torch.isfinite(y64)
    y, y64 = y.to(torch.float64)[mask], y64.to(torch.float64)[mask]
    norm, difference = torch.linalg.vector_norm(y64).item(), torch.linalg.vector_norm(y - y64).item()
    return difference / norm if norm else difference


def within_promise(y: torch.Tensor, y64: torch.Tensor, eager: torch.Tensor, terms: int = 1) -> Verdict:
    """Judges a result y against the reference y64, given what eager PyTorch computes in y's dtype, all on one device.

    terms: of the longest fold in the program (longest_fold), which the bound of fp64 depends on. Raises ValueError if
    shapes or dtypes differ.
    """
    if y.shape != y64.shape or y.shape != eager.shape or y.dtype != eager.dtype:
        raise ValueError(f"expected {eager.dtype}{list(y64.shape)}, as eager gives, got {y.dtype}{list(y.shape)}")
    if not y.is_floating_point():
        wrong = int(((y != y64) & (y != eager)).sum())
        return Verdict(0.0, 0.0, 0.0, 0.0, 0.0, True, wrong)
    eps = torch.finfo(y.dtype).eps
    floor = _floor(y.dtype, terms)
    eager_rel_err = error(eager, y64)
    finite = torch.isfinite(y64) & torch.isfinite(y64.to(y.dtype))
    as_reference = (torch.isnan(y) == torch.isnan(y64)) & (torch.isfinite(y) == finite)
    as_eager = ~torch.isfinite(y) & ~torch.isfinite(eager) & (torch.isnan(y) == torch.isnan(eager))
    nan_match = bool((as_reference | as_eager).all())
    off = _distance(y, y64, finite)
    slack = 4 * _largest(_distance(eager, y64, finite))
    largest = _largest_of_row(y64, finite)
    allowed = torch.maximum(_ulp(largest, eps), floor * largest).clamp(min=slack)
    ratio = torch.where(off > 0, off / allowed, 0.0)
    return Verdict(error(y, y64), eager_rel_err, max(2 * eager_rel_err, floor), _largest(off), _largest(ratio),
                   nan_match, 0)


def _largest(t: torch.Tensor) -> float:
    return t.amax().item() if t.numel() else 0.0


def _distance(y: torch.Tensor, y64: torch.Tensor, finite: torch.Tensor) -> torch.Tensor:
    """|y - y64| where both are finite, else 0."""
    return torch.where(finite & torch.isfinite(y), (y.to(torch.float64) - y64).abs(), 0.0)


def _floor(dtype: torch.dtype, terms: int) -> float:
    """The relative error that is allowed however little eager errs, after folds of so many terms."""
    match dtype:
        case torch.float32: return FP32_FLOOR
        case torch.float64: return max(FP64_FLOOR, math.sqrt(terms) * 2 ** -53)
    return torch.finfo(dtype).eps / 2


def _largest_of_row(y64: torch.Tensor, finite: torch.Tensor) -> torch.Tensor:
    """The largest finite magnitude in each row (along the last dimension)."""
    rows = torch.where(finite, y64.abs(), 0.0)
    return rows.amax(-1, keepdim=True) if rows.ndim and rows.numel() else rows


def _ulp(x: torch.Tensor, eps: float) -> torch.Tensor:
    """One ulp at a magnitude, of a dtype with that eps."""
    _, exponent = torch.frexp(x)
    return torch.ldexp(torch.full_like(x, eps), exponent - 1)


def longest_fold(program: Program) -> int:
    """The number of terms of the longest sum, mean, product or normalisation in a program; 1 if it has none."""
    shapes = {v.name: v.shape for v in (*program.inputs, *program.parameters, *program.nodes)}
    return max((_terms(node, shapes) for node in program.nodes), default=1)


def _terms(node: Node, shapes: Mapping[str, tuple[int, ...]]) -> int:
    args = dict(node.args)

    def size(name: str, *dims: int) -> int:
        return math.prod(shapes[args[name].name][d] for d in dims)
    match node.op:
        case "matmul" | "addmm": return size("a", -1)
        case "linear": return size("x", -1)
        case "einsum":
            left, _, right = args["equation"].partition("->")
            sizes = {l: n for t, x in zip(left.split(","), args["xs"]) for l, n in zip(t, shapes[x.name])}
            return math.prod(n for l, n in sizes.items() if l not in right)
        case "scaled_dot_product_attention": return max(size("q", -1), size("k", -2))
        case "fold": return math.prod(args["kernel_size"])
        case "softmax" | "log_softmax": return size("x", args["dim"])
        case "conv" | "conv_transpose": return math.prod(shapes[args["weight"].name][1:])
        case "avg_pool": return math.prod(args["kernel"])
    return size("x", *args["dims"]) if "dims" in args and node.op not in ("permute", "flip", "roll") else 1
