"""Torch IR: the user's program as PyTorch operators, functional and in order, shapes and dtypes known.

    Program = inputs, parameters, nodes, outputs, writes
    Node    = name, op, arguments, shape, dtype, source        name = op(arguments)
    op      = the operator's public name: "softmax", "linear", "scaled_dot_product_attention" ..: OPERATORS has all
    operand: Arg (an input, a parameter or an earlier node), a Python number, None, or a tuple of these (cat, index)
    option:  a number, bool, None, Dtype, str, or a tuple of these

Arguments are bound: each has its name, and defaults are filled in, so a reader of the IR never needs torch's schema.
In-place operators, aliases and no-op wrappers (clone, detach, contiguous, dropout in evaluation mode) are gone, and
synonyms have one spelling (OPERATORS lists it). Promotion is explicit: all operands of a pointwise operator have one
dtype, with "cast" nodes where PyTorch converts; a number is a float where that dtype is floating, else an int or a
bool, and is not rounded to a 16-bit dtype. Dimensions are counted from 0, slices lie within their dimension.

The text form holds all of it but the values of parameters; parse(str(program)) gives an equal program. Operands stand
bare, in order; options have their names:

    x: bf16[1,32,64] = input
    norm_weight: bf16[64] = parameter 'norm.weight'
    rms_norm: bf16[1,32,64] = rms_norm x norm_weight dims=(2,) eps=1e-06  # <-c>:1: norm(torch.randn(1, 32, 64))
    return rms_norm

A value that is written back to an input or a parameter stands before the return: `x <- add`.
"""
from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from deplodock.errors import TorchIRSyntaxError
from deplodock.ir.dtype import Dtype

_UNARY = """neg abs sign reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh
            tanh asinh acosh atanh sigmoid erf erfc lgamma floor ceil round trunc isnan isinf bitwise_not relu silu
            cast reshape expand""".split()
_BINARY = """add sub mul div floor_divide trunc_divide remainder fmod pow atan2 hypot copysign maximum minimum eq ne
             lt le bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift""".split()
_FOLDS = "sum mean prod amax amin any all argmax argmin".split()

OPERATORS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    op: (tuple(operands.split()), tuple(options.split())) for op, operands, options in (
        *((op, "x", "") for op in _UNARY),
        *((op, "a b", "") for op in _BINARY),
        *((op, "x", "dims keepdim") for op in _FOLDS),
        ("where", "cond a b", ""),
        ("gelu", "x", "approximate"),
        ("softplus", "x", "beta threshold"),
        ("leaky_relu", "x", "negative_slope"),
        ("elu", "x", "alpha scale input_scale"),
        ("softmax", "x", "dim"),
        ("log_softmax", "x", "dim"),
        ("layer_norm", "x weight bias", "dims eps"),
        ("rms_norm", "x weight", "dims eps"),
        ("matmul", "a b", ""),
        ("addmm", "input a b", "beta alpha"),
        ("linear", "x weight bias", ""),
        ("einsum", "xs", "equation"),
        ("scaled_dot_product_attention", "q k v mask", "is_causal scale enable_gqa"),
        ("conv", "x weight bias", "stride padding dilation groups"),
        ("conv_transpose", "x weight bias", "stride padding dilation groups"),
        ("max_pool", "x", "kernel stride padding dilation"),
        ("max_pool_index", "x", "kernel stride padding dilation"),
        ("avg_pool", "x", "kernel stride padding counted divisor"),
        ("adaptive_avg_pool", "x", "size"),
        ("adaptive_max_pool", "x", "size"),
        ("adaptive_max_pool_index", "x", "size"),
        ("upsample_nearest", "x", "maps"),
        ("upsample_linear", "x", "maps"),
        ("embedding", "weight indices", ""),
        ("gather", "x index", "dim"),
        ("index", "x indices", ""),
        ("permute", "x", "dims"),
        ("slice", "x", "dim start stop step"),
        ("select", "x", "dim index"),
        ("flip", "x", "dims"),
        ("roll", "x", "shifts dims"),
        ("pad", "x", "pads mode value"),
        ("unfold", "x", "dim size step dilation"),
        ("fold", "x", "kernel_size dilation padding stride"),
        ("diagonal", "x", "offset dim1 dim2"),
        ("as_strided", "x", "strides offset"),
        ("cat", "xs", "dim"),
        ("slice_scatter", "x src", "dim start stop step"),
        ("diagonal_scatter", "x src", "offset dim1 dim2"),
        ("triu", "x", "diagonal"),
        ("tril", "x", "diagonal"),
        ("full", "", "value"),
        ("arange", "", "start step"),
    )}
"""The operators of Torch IR: the names of their operands and of their options.

    cast, reshape, expand    to the dtype or the shape of the node itself
    eq ne lt le              a > b is written lt b a
    bitwise_*                on b8 they are logical; logical_* are these after a cast to b8 (x != 0)
    floor_divide, trunc_divide   a / b rounded down, rounded towards zero; div is true division of floats
    sum .. argmin            over `dims` (all of them where dim was not given); argmax over several is row-major
    layer_norm, rms_norm     over the trailing `dims`; eps is a number
    matmul                   both operands have two or more dimensions; the others broadcast
    addmm                    beta * input + alpha * (a @ b), rounded once; a and b have the same two or three dimensions
    einsum                   equation has letters only, an explicit output, no blanks
    scaled_dot_product_attention   scale is a number; mask (None, b8, or q's dtype) broadcasts to the scores
    embedding, gather        an index outside of its dimension stops the program; so it does in `index`, where
                             negative ones count from the end
    gather                   element (.., i, ..) is x[.., index[.., i, ..], ..]; index_select is one of an expanded index
    index                    x[indices]: an index or None for each of the first dimensions of x; take is one of a flat x
    pad                      pads: (before, after) for each dimension, negative ones cut; mode "constant" (with value),
                             "reflect", "replicate" or "circular"
    unfold                   windows of `size` elements, `dilation` apart, in a new last dimension; fold is F.fold
    as_strided               of x laid out row-major
    *_scatter                x with src in place of what the view of that name shows
    conv .. upsample_*       of one to three dimensions, the trailing ones; padding: (before, after) each of these, so
                             that windows end where the padded tensor does; less than 0 is cut off
    conv_transpose           padding is cut off from the result
    max_pool_index           the row-major index among the pooled dimensions
    avg_pool                 divided by `divisor`, or by how many elements of a window are of x or of the `counted` ones
                             on either side of it
    upsample_*               element p is what x has at (a * p + b) / c, maps = (a, b, c) each: rounded down, or
                             linearly between two
    arange                   start + step * i, along the one dimension of the node
"""


@dataclass(frozen=True, slots=True)
class Source:
    """Where in the user's program something is: file, line (from 1), the line's text; 100 characters of it print."""
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        text = self.text.strip()
        return f"{self.file}:{self.line}" + (f": {text if len(text) <= 100 else text[:98] + '..'}" if text else "")


@dataclass(frozen=True, slots=True)
class Arg:
    """A reference to an input, a parameter or an earlier node, by name."""
    name: str


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that the program is given. `strides` are in elements; `alignment` is that of its base pointer in bytes.

    For a parameter, `path` is its name in the module ("layers.0.weight"). shares: the name of an earlier value whose
    storage this one overlaps, or empty.
    """
    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    alignment: int = 16
    path: str = ""
    shares: str = ""

    @property
    def is_contiguous(self) -> bool:
        return self.strides == contiguous(self.shape)


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    op: str
    args: tuple[tuple[str, object], ...]
    """(parameter name, argument) in the order of the operator's signature."""
    shape: tuple[int, ...]
    dtype: Dtype
    source: Source | None = field(default=None, compare=False)

    def arg(self, name: str):
        """The argument of that name. KeyError if the operator has none such."""
        return dict(self.args)[name]


@dataclass(frozen=True, slots=True)
class Program:
    """outputs: names of what is returned, in order (an input may be returned as it is), then of what is written back.
    writes: the input or the parameter that each of the last outputs is written back to, when all else is done."""
    inputs: tuple[Value, ...]
    parameters: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    writes: tuple[str, ...] = ()

    @property
    def returned(self) -> tuple[str, ...]:
        """The outputs that are returned."""
        return self.outputs[:len(self.outputs) - len(self.writes)]

    @property
    def written(self) -> tuple[str, ...]:
        """The outputs that are written back, in the order of `writes`."""
        return self.outputs[len(self.returned):]

    def __str__(self) -> str:
        lines = [_declaration(v, "input") for v in self.inputs]
        lines += [_declaration(v, "parameter") for v in self.parameters]
        lines += map(_statement, self.nodes)
        lines += [f"{to} <- {value}" for to, value in zip(self.writes, self.written)]
        return "\n".join([*lines, " ".join(["return", *self.returned])])


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of a shape, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


# ---- text ------------------------------------------------------------------------------------------------------------

def _signature(v: Value | Node) -> str:
    return f"{v.name}: {v.dtype}[{','.join(map(str, v.shape))}]"


def _declaration(v: Value, kind: str) -> str:
    words = [_signature(v), "=", kind]
    if v.path:
        words.append(repr(v.path))
    if not v.is_contiguous:
        words.append(f"strides={_text(v.strides)}")
    words += [f"{name}={_text(value)}" for name, value, default in
              (("offset", v.offset, 0), ("alignment", v.alignment, 16)) if value != default]
    if v.shares:
        words.append(f"shares={v.shares}")
    return " ".join(words)


def _statement(n: Node) -> str:
    operands = OPERATORS[n.op][0]
    words = [_text(a) if name in operands else f"{name}={_text(a)}" for name, a in n.args]
    source = f"  # {n.source}" if n.source else ""
    return " ".join([_signature(n), "=", n.op, *words]) + source


def _text(value) -> str:
    """An argument on one word: no blanks outside of strings."""
    match value:
        case Arg(name): return name
        case Dtype(): return str(value)
        case tuple(): return "(" + "".join(_text(v) + "," for v in value) + ")"
        case _: return repr(value)


_LINE = re.compile(r"(\w+): (\w+)\[([\d,]*)\] = (\w+)(.*)")
_SOURCE = re.compile(r"#\s+(.*?):(\d+)(?:: (.*))?")
_WORD = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[(),=]|[^\s(),='"#]+|\#.*)""")
_LITERALS = {"None": None, "True": True, "False": False, "inf": math.inf, "-inf": -math.inf, "nan": math.nan,
             **{d.value: d for d in Dtype}}


def parse(text: str, file: str = "<torch ir>") -> Program:
    """The inverse of str(program). Blank lines and lines that are only a comment are skipped.

    Raises TorchIRSyntaxError, which names the line, for text that str(program) does not print.
    """
    values: dict[str, list[Value]] = {"input": [], "parameter": []}
    nodes, outputs, writes, known = [], None, {}, {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        reader = _Reader(line, Source(file, number, line), known)
        if outputs is not None:
            raise reader.error("statements after return")
        if line.split()[0] == "return":
            outputs = tuple(reader.reference(name).name for name in line.split("#")[0].split()[1:])
            continue
        if line.split()[1:2] == ["<-"]:
            to, value = reader.write()
            writes[to] = value
            continue
        made = reader.statement()
        if made.name in known:
            raise reader.error(f"{made.name} is defined twice")
        known[made.name] = made
        (nodes if isinstance(made, Node) else values[reader.kind]).append(made)
    if outputs is None:
        raise TorchIRSyntaxError(file, reason="the last line must be `return` and the names of the outputs")
    return Program(tuple(values["input"]), tuple(values["parameter"]), tuple(nodes), (*outputs, *writes.values()),
                   tuple(writes))


class _Reader:
    """Reads one statement."""

    def __init__(self, line: str, where: Source, known: dict[str, Value | Node]):
        self.line, self.where, self.known, self.kind = line, where, known, ""
        self.words: list[str] = []

    def error(self, reason: str) -> TorchIRSyntaxError:
        return TorchIRSyntaxError(self.where, reason=reason)

    def write(self) -> tuple[str, str]:
        """What is written to, and the value."""
        words = self.line.split("#")[0].split()
        if len(words) != 3 or not isinstance(self.reference(words[0]), Value):
            raise self.error("expected `x <- value`, where x is an input or a parameter")
        return words[0], self.reference(words[2]).name

    def statement(self) -> Value | Node:
        match = _LINE.fullmatch(self.line.strip())
        if not match:
            raise self.error("expected `name: dtype[shape] = operator arguments`")
        name, dtype, shape, self.kind, rest = match.groups()
        if dtype not in Dtype.__members__:
            raise self.error(f"{dtype} is not a dtype")
        shape = tuple(int(n) for n in shape.split(",") if n)
        self.words = self._split(rest)
        if self.kind in ("input", "parameter"):
            return self.value(name, Dtype(dtype), shape)
        return self.node(name, Dtype(dtype), shape)

    def _split(self, rest: str) -> list[str]:
        words, at = [], 0
        while rest[at:].strip():
            match = _WORD.match(rest, at)
            if not match:
                raise self.error(f"cannot read {rest[at:].strip()!r}")
            words.append(match[1])
            at = match.end()
        return words

    def value(self, name: str, dtype: Dtype, shape: tuple[int, ...]) -> Value:
        facts = {"strides": contiguous(shape)}
        if self.words and self.words[0][0] in "'\"":
            facts["path"] = self.argument()
        while self.words and self.words[0][0] != "#":
            key = self.key()
            if key not in ("strides", "offset", "alignment", "shares"):
                raise self.error(f"an input has no fact called {key}")
            facts[key] = self.reference(self.words.pop(0)).name if key == "shares" else self.argument()
        return Value(name, dtype, shape, **facts)

    def node(self, name: str, dtype: Dtype, shape: tuple[int, ...]) -> Node:
        if self.kind not in OPERATORS:
            raise self.error(f"there is no operator called {self.kind}")
        operands, options = OPERATORS[self.kind]
        args, source = [], None
        for operand in operands:
            args.append((operand, self.argument(operand)))
        for option in options:
            if self.key(option) != option:
                raise self.error(f"{self.kind} takes its options in the order {' '.join(options)}")
            args.append((option, self.argument()))
        if self.words and (found := _SOURCE.fullmatch(self.words[0])):
            source = Source(found[1], int(found[2]), found[3] or "")
        elif self.words:
            raise self.error(f"unexpected {self.words[0]!r}")
        return Node(name, self.kind, tuple(args), shape, dtype, source)

    def key(self, wanted: str = "a fact") -> str:
        if len(self.words) < 2 or self.words[1] != "=":
            raise self.error(f"expected {wanted}=")
        key = self.words.pop(0)
        self.words.pop(0)
        return key

    def argument(self, operand: str = "") -> object:
        """The next argument; where it is an operand, a word that is no literal is the name of a tensor."""
        if not self.words:
            raise self.error(f"expected {operand or 'a value'} at the end of the line")
        word = self.words.pop(0)
        if word == "(":
            items = []
            while self.words and self.words[0] != ")":
                items.append(self.argument(operand))
                if self.words and self.words[0] == ",":
                    self.words.pop(0)
            if not self.words:
                raise self.error("a parenthesis is not closed")
            self.words.pop(0)
            return tuple(items)
        if word[0] in "'\"":
            return word[1:-1].encode().decode("unicode_escape")
        if operand and word in self.known:
            return Arg(word)
        if word in _LITERALS:
            return _LITERALS[word]
        for number in (int, float):
            try:
                return number(word)
            except ValueError:
                continue
        return Arg(self.reference(word).name)

    def reference(self, name: str) -> Value | Node:
        if name not in self.known:
            raise self.error(f"{name} is not defined above this line")
        return self.known[name]
