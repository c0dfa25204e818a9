"""Tensor IR: whole tensors, as Torch operators and as the three primitives that they are made of.

    Tensor = Named(name, shape, dtype)                 an input, a parameter, or the result of an earlier statement
           | Operator(name, arguments)                 a Torch operator, its arguments as ir.torch.OPERATORS has them,
                                                       or a part of one's definition
           | Elementwise(f, (operand ..))              f of ir/ops.py at each point; operands broadcast as in PyTorch
           | Convert(tensor, dtype)                    elementwise too: a change of dtype
           | Reduction(monoid, dims, tensor, part)     reduced dimensions stay, with extent 1
           | IndexMap(tensor, shape, (index ..))       element (i0, i1 ..) is tensor[index ..]; see places()
           | Elements(axes, body)                      each element as a body of Loop IR, one axis for each dimension

An operand is a tensor or a Python number. Elementwise operands have one dtype (`where`: after its first, which is b8);
on 16-bit floats arithmetic runs in f32 and the result is rounded once, so is a Reduction. Terms are hash-consed like
those of Loop IR, and a law's variable may stand for a tensor: shapes are derived, and only asked of ground terms.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Callable

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis, Index, index
from deplodock.ir.loop import Body, Buffer, Launch, RoundTo, cast, const, dtype, fold, load, op
from deplodock.ir.ops import OPS
from deplodock.ir.term import Term

Shape = tuple[int, ...]

DISCRETE = frozenset("floordiv truncdiv remainder fmod copysign sign floor ceil round trunc eq ne lt le isnan isinf".split())
"""Pointwise operators whose results jump: their 16-bit operands are rounded again in every numerics mode."""
RESULT = {"cast": ("dtype",), "reshape": ("shape",), "expand": ("shape",), "full": ("shape", "dtype"),
          "arange": ("shape", "dtype")}
"""Torch operators that take the shape or the dtype of their result as arguments, after those of ir.torch.OPERATORS."""
SELECTING = frozenset(("where",))
"""Pointwise operators that only choose among their operands: they run in the operands' own dtype."""


class TensorOperators:
    """Infix forms for definitions: `a * b` is Elementwise("mul", (a, b)); b may be a number."""

    def __add__(self, o): return Elementwise("add", (self, o))
    def __radd__(self, o): return Elementwise("add", (o, self))
    def __sub__(self, o): return Elementwise("sub", (self, o))
    def __mul__(self, o): return Elementwise("mul", (self, o))
    def __rmul__(self, o): return Elementwise("mul", (o, self))
    def __truediv__(self, o): return Elementwise("div", (self, o))
    def __rsub__(self, o): return Elementwise("sub", (o, self))
    def __rtruediv__(self, o): return Elementwise("div", (o, self))
    def __neg__(self): return Elementwise("neg", (self,))


@dataclass(frozen=True, eq=False, repr=False)
class TensorTerm(Term, TensorOperators):
    """Base of the terms that only Tensor IR has."""

    @property
    def free(self) -> frozenset[Axis]:
        """Tensors are closed."""
        return frozenset()

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}({', '.join(str(getattr(self, f.name)) for f in fields(self))})"

    __repr__ = __str__


@dataclass(frozen=True, eq=False, repr=False)
class Named(TensorTerm):
    name: str
    shape: Shape
    dtype: Dtype


@dataclass(frozen=True, eq=False, repr=False)
class Operator(TensorTerm):
    name: str
    args: tuple


@dataclass(frozen=True, eq=False, repr=False)
class Elementwise(TensorTerm):
    f: str
    args: tuple

    @property
    def shape(self) -> Shape:
        return broadcast(*(shape(a) for a in self.args if isinstance(a, Term)))

    @property
    def operand(self) -> Dtype:
        """The dtype of the operands: that of the tensors among them, else of the numbers."""
        values = self.args[1:] if self.f in SELECTING else self.args
        tensors = [dtype(a) for a in values if isinstance(a, Term)]
        if len(set(tensors)) > 1:
            raise TypeError(f"the operands of {self.f} have different dtypes: {', '.join(tensors)}")
        return tensors[0] if tensors else number_dtype(values)

    @property
    def dtype(self) -> Dtype:
        return Dtype.b8 if OPS[self.f].result == "b8" else self.operand


@dataclass(frozen=True, eq=False, repr=False)
class Convert(TensorTerm):
    arg: Term
    dtype: Dtype

    @property
    def shape(self) -> Shape:
        return shape(self.arg)


@dataclass(frozen=True, eq=False, repr=False)
class Reduction(TensorTerm):
    monoid: str
    dims: tuple[int, ...]
    arg: Term
    part: int

    @property
    def shape(self) -> Shape:
        return tuple(1 if d in self.dims else n for d, n in enumerate(shape(self.arg)))

    @property
    def dtype(self) -> Dtype:
        return Dtype.i64 if self.monoid in ("argmax", "argmin") and self.part == 1 else dtype(self.arg)


@dataclass(frozen=True, eq=False, repr=False)
class IndexMap(TensorTerm):
    arg: Term
    shape: Shape
    indices: tuple[Index, ...]

    @property
    def dtype(self) -> Dtype:
        return dtype(self.arg)


@dataclass(frozen=True, eq=False, repr=False)
class Elements(TensorTerm):
    axes: tuple[Axis, ...]
    body: Body

    @property
    def shape(self) -> Shape:
        return tuple(a.extent for a in self.axes)

    @property
    def dtype(self) -> Dtype:
        return dtype(self.body)


Tensor = Named | Operator | Elementwise | Convert | Reduction | IndexMap | Elements


# ---- facts of ground tensors -----------------------------------------------------------------------------------------

def shape(t: Term) -> Shape:
    """The extents of a tensor's dimensions (loop.dtype gives the dtype)."""
    return tuple(a.extent for a in t.axes) if isinstance(t, (Launch, Buffer)) else t.shape


def broadcast(*shapes: Shape) -> Shape:
    """The shape that shapes broadcast to, as in PyTorch."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(next((n for n in ns if n != 1), 1) for ns in zip(*padded))


def number_dtype(values) -> Dtype:
    """The dtype of a tensor made of numbers alone: PyTorch's default for the widest of their kinds."""
    kinds = {type(v) for v in values}
    return Dtype.f32 if float in kinds else Dtype.i64 if int in kinds else Dtype.b8


def places(dims: Shape, names: str = "") -> tuple[Axis, ...]:
    """An axis for each dimension, in order. `names`: what to call them, one letter each; i0, i1 .. without."""
    return tuple(Axis(names[d] if names else f"i{d}", n) for d, n in enumerate(dims))


# ---- builders, in which definitions are written ----------------------------------------------------------------------

class _Operators:
    """Any attribute is the function that makes the operator of that name."""

    def __getattr__(self, name: str) -> Callable[..., Operator]:
        return lambda *args: Operator(name, args)


torch_op = _Operators()
"""Operators of Torch IR: torch_op.softmax(x, dim) is Operator("softmax", (x, dim))."""
part = _Operators()
"""Operators that only definitions use, as the parts of a larger one."""


def elementwise(f: str, *args) -> Elementwise:
    return Elementwise(f, args)


def exp(x: Tensor) -> Elementwise: return Elementwise("exp", (x,))
def log(x: Tensor) -> Elementwise: return Elementwise("log", (x,))
def rsqrt(x: Tensor) -> Elementwise: return Elementwise("rsqrt", (x,))
def sigmoid(x: Tensor) -> Elementwise: return Elementwise("sigmoid", (x,))
def where(cond: Tensor, a, b) -> Elementwise: return Elementwise("where", (cond, a, b))


def to(x: Tensor, d: Dtype) -> Tensor:
    """x as dtype d; x itself where it is that already."""
    return x if dtype(x) == d else Convert(x, d)


def wide(x: Tensor) -> Tensor:
    """x in the dtype that arithmetic on it runs in: f32 for 16-bit floats."""
    return to(x, dtype(x).compute)


def like(x: Tensor, t: Tensor) -> Convert:
    """t rounded to the dtype of x (t may hold operators, whose dtype is not known yet)."""
    return Convert(t, dtype(x))


def reduce(monoid: str, x: Tensor, dims: int | tuple[int, ...], part: int = 0) -> Reduction:
    """A reduction over dims, which stay with extent 1."""
    return Reduction(monoid, (dims,) if isinstance(dims, int) else dims, x, part)


def sum(x: Tensor, dims: int | tuple[int, ...]) -> Reduction: return reduce("sum", x, dims)
def amax(x: Tensor, dims: int | tuple[int, ...]) -> Reduction: return reduce("max", x, dims)


def mean(x: Tensor, dims: int | tuple[int, ...]) -> Elementwise:
    """The sum over dims, then its quotient by their number: two steps, as PyTorch's own decomposition has them."""
    r = reduce("sum", x, dims)
    return r / float(math.prod(shape(x)[d] for d in r.dims))


def index_map(x: Tensor, to_shape: Shape, indices: Callable[..., tuple]) -> IndexMap:
    """Element (i0, i1 ..) of the result is x[indices(i0, i1 ..)]."""
    return IndexMap(x, tuple(to_shape), tuple(map(index, indices(*places(to_shape)))))


# ---- elements of tensors, as bodies ----------------------------------------------------------------------------------

def read(x: Tensor, axes: tuple) -> Body:
    """x at the trailing ones of `axes`, index 0 where its extent is 1, in x's own dtype."""
    own = axes[len(axes) - len(shape(x)):]
    return load(x, *(0 if n == 1 else a for n, a in zip(shape(x), own)))


def value(x: Tensor, axes: tuple) -> Body:
    """As read, in the dtype that arithmetic on it runs in."""
    return cast(dtype(x).compute, read(x, axes))


def discrete(x: Tensor, axes: tuple) -> Body:
    """As value, where the reader is discrete: it sees x rounded to its 16-bit dtype."""
    return RoundTo(dtype(x), value(x, axes)) if dtype(x).is_16bit else value(x, axes)


def elementwise_body(f: str, args: tuple, axes: tuple[Axis, ...]) -> Body:
    """The body of Elementwise(f, args) at `axes`, before its result is rounded."""
    term = Elementwise(f, args)
    if f in SELECTING:
        return op(f, *(read(a, axes) if isinstance(a, Term) else const(term.operand, a) for a in args))
    at = discrete if f in DISCRETE else value
    return op(f, *(at(a, axes) if isinstance(a, Term) else number(a, term.operand, f in DISCRETE) for a in args))


def number(v, d: Dtype, rounded: bool) -> Body:
    """A number beside operands of dtype d."""
    c = const(d.compute, v)
    return RoundTo(d, c) if rounded and d.is_16bit else c


def convert_body(x: Tensor, d: Dtype, axes: tuple[Axis, ...]) -> Body:
    """The body of Convert(x, d) at `axes`."""
    return cast(d, value(x, axes) if d.is_float else discrete(x, axes))


def reduction_body(monoid: str, dims: tuple[int, ...], x: Tensor, part: int, axes: tuple[Axis, ...]) -> Body:
    """The body of a Reduction at `axes`, of which those of the reduced dimensions have extent 1."""
    bound = {d: Axis("k" if len(dims) == 1 else f"k{d}", shape(x)[d]) for d in dims}
    at = tuple(bound.get(d, a) for d, a in enumerate(axes))
    body = (discrete if monoid in ("argmax", "argmin") else value)(x, at)
    return fold(monoid, tuple(bound[d] for d in dims), (body,), part)


# ---- contractions: sums of products, in the dtype that arithmetic runs in --------------------------------------------

def matmul(a: Tensor, b: Tensor) -> Elements:
    """a @ b for operands of two or more dimensions, not rounded yet."""
    batch = places(broadcast(shape(a)[:-2], shape(b)[:-2]))
    m, k, n = Axis("m", shape(a)[-2]), Axis("k", shape(a)[-1]), Axis("n", shape(b)[-1])
    return Elements((*batch, m, n), fold("sum", (k,), (value(a, (*batch, m, k)) * value(b, (*batch, k, n)),)))


def linear(x: Tensor, w: Tensor) -> Elements:
    """x @ w.T, the last dimension of both contracted, not rounded yet."""
    rows = places(shape(x)[:-1])
    if rows:
        rows = (*rows[:-1], Axis("m", rows[-1].extent))
    k, n = Axis("k", shape(x)[-1]), Axis("n", shape(w)[0])
    return Elements((*rows, n), fold("sum", (k,), (value(x, (*rows, k)) * value(w, (n, k)),)))


def contract(letters: tuple[str, str], out: str, a: Tensor, b: Tensor) -> Elements:
    """einsum of two operands, a letter for each dimension: sums over the letters that `out` lacks. Not rounded yet."""
    extent = {}
    for text, x in zip(letters, (a, b)):
        for c, n in zip(text, shape(x)):
            extent[c] = n if extent.get(c, 1) == 1 else extent[c]
    axis = {c: Axis(c, n) for c, n in extent.items()}
    bodies = (value(x, tuple(axis[c] for c in text)) for text, x in zip(letters, (a, b)))
    bound = tuple(axis[c] for c in extent if c not in out)
    return Elements(tuple(axis[c] for c in out), fold("sum", bound, (op("mul", *bodies),)))
