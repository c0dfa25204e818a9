"""Builds Torch IR one node at a time. A Call is one ATen operator being turned into nodes."""
from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from deplodock.errors import DataDependentShape, MismatchedDevices, UnsupportedOperator, WrongDtype
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import OPERATORS, Arg, Node, Program, Source, Value

RESERVED = {"None", "True", "False", "inf", "nan", "input", "parameter", "return", *Dtype.__members__}
"""Words that the text of Torch IR reads as something else than a tensor."""
PREDICATES = frozenset("eq ne lt le isnan isinf".split())
"""Operators of Torch IR whose result is b8."""

SIGNED = frozenset("""add sub neg abs sign floor_divide trunc_divide remainder fmod pow maximum minimum lt le bitwise_not
    bitwise_left_shift bitwise_right_shift amax amin argmax argmin matmul addmm linear relu arange""".split())
"""Operators that PyTorch has of no unsigned integers but uint8: those load, store, cast, multiply, and compare equal."""


class Builder:
    """A Torch IR program that grows. Names are unique: values keep theirs, a node is named after its operator."""

    def __init__(self, inputs: tuple[Value, ...], parameters: tuple[Value, ...], device: torch.device):
        self.inputs, self.parameters, self.device = inputs, parameters, device
        self.known: dict[str, Value | Node] = {v.name: v for v in (*inputs, *parameters)}
        self.nodes: list[Node] = []

    def emit(self, op: str, operands: tuple, options: dict, shape: tuple[int, ...], dtype: Dtype,
             source: Source | None) -> Arg:
        """A new node. One without elements computes nothing, so it may be of what its operator cannot compute."""
        if 0 in shape and op != "full":
            zero = False if dtype == Dtype.b8 else 0.0 if dtype.is_float else 0
            return self.emit("full", (), {"value": zero}, shape, dtype, source)
        operand_names, option_names = OPERATORS[op]
        if op in SIGNED:
            for d in (dtype, *(self.known[a.name].dtype for a in operands if isinstance(a, Arg))):
                if d.is_unsigned and d != Dtype.u8:
                    raise WrongDtype(source, name=f"an operand of {op}", dtype=f"torch.{d.torch_name}")
        args = (*zip(operand_names, operands, strict=True), *((name, options.pop(name)) for name in option_names))
        if options:
            raise TypeError(f"{op} has no option {', '.join(options)}")
        node = Node(unique(op, self.known), op, args, shape, dtype, source)
        self.nodes.append(node)
        self.known[node.name] = node
        return Arg(node.name)

    def program(self, outputs: tuple[Arg, ...], writes: tuple[str, ...] = ()) -> Program:
        """The program that returns these, and writes the last of them back, without nodes and values that they do not
        need."""
        needed = {a.name for a in outputs} | set(writes)
        nodes = []
        for node in reversed(self.nodes):
            if node.name in needed:
                nodes.append(node)
                needed.update(reads(node))
        return Program(tuple(v for v in self.inputs if v.name in needed),
                       tuple(v for v in self.parameters if v.name in needed),
                       tuple(reversed(nodes)), tuple(a.name for a in outputs), writes)


def reads(node: Node) -> list[str]:
    """The names of what a node reads."""
    args = [a for _, value in node.args for a in (value if isinstance(value, tuple) else (value,))]
    return [a.name for a in args if isinstance(a, Arg)]


def unique(name: str, taken) -> str:
    """name, or name_1, name_2 ..: the first that is free, of the characters [A-Za-z0-9_]."""
    name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    if not name or name[0].isdigit() or name in RESERVED:
        name = "_" + name
    if name not in taken:
        return name
    return next(n for i in range(1, len(taken) + 2) if (n := f"{name}_{i}") not in taken)


@dataclass(frozen=True, slots=True)
class Call:
    """One ATen operator, its arguments by name, tensors as Arg; `outs` are shapes and dtypes of its results.

    Calling it adds a node: c("softmax", x, dim=1). Shape and dtype are the result's unless given.
    """
    builder: Builder
    target: torch._ops.OpOverload
    args: dict[str, object]
    outs: tuple[tuple[tuple[int, ...], Dtype], ...]
    source: Source | None = field(default=None)
    example: torch.Tensor | None = field(default=None)
    """The first operand as the trace has it: its layout in memory."""

    @property
    def op(self) -> str:
        return f"aten.{self.target.__name__}"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.outs[0][0]

    @property
    def dtype(self) -> Dtype:
        return self.outs[0][1]

    def __getitem__(self, name: str):
        return self.args[name]

    def get(self, name: str):
        """An argument, or None where this overload has none such."""
        return self.args.get(name)

    def __call__(self, op: str, *operands, shape: tuple[int, ...] | None = None, dtype: Dtype | None = None,
                 **options) -> Arg:
        shape = self.shape if shape is None else shape
        return self.builder.emit(op, operands, options, shape, dtype or self.dtype, self.source)

    # ---- facts about operands

    def shape_of(self, x: Arg | float) -> tuple[int, ...]:
        return self.builder.known[x.name].shape if isinstance(x, Arg) else ()

    def dtype_of(self, x: Arg) -> Dtype:
        return self.builder.known[x.name].dtype

    def value_of(self, x: Arg | None) -> float | int | bool | None:
        """The number that a tensor is full of, if the program says so."""
        while x is not None and (node := self.builder.known[x.name]):
            match getattr(node, "op", None):
                case "full": return node.arg("value")
                case "expand" | "reshape": x = node.arg("x")
                case _: return None
        return None

    def promoted(self, *operands) -> Dtype:
        """The dtype in which PyTorch combines these: dimensioned tensors before 0-d tensors before numbers."""
        def stand_in(x):
            if not isinstance(x, Arg):
                return x
            dtype = getattr(torch, self.dtype_of(x).torch_name)
            return torch.empty((1,) * min(1, len(self.shape_of(x))), dtype=dtype, device="meta")
        first, *rest = map(stand_in, operands)
        if not rest:
            return self.dtype_of(operands[0])
        for x in rest:
            shape = (1,) * max(getattr(first, "ndim", 0), getattr(x, "ndim", 0))
            first = torch.empty(shape, dtype=torch.result_type(first, x), device="meta")
        return Dtype.of_torch(first.dtype)

    def dim(self, name: str) -> int:
        """A dimension of self, counted from 0."""
        return self[name] % len(self.shape_of(self["self"]))

    def dims(self, dims: int | list[int] | None) -> tuple[int, ...]:
        """Dimensions of self, counted from 0, in order; all of them for None and for an empty list."""
        rank = len(self.shape_of(self["self"]))
        dims = [dims] if isinstance(dims, int) else dims
        return tuple(sorted(d % rank for d in dims)) if dims and rank else tuple(range(rank))

    # ---- small nodes

    def number(self, value: float, dtype: Dtype) -> float | int | bool:
        """A Python number of the kind that dtype calls for."""
        if isinstance(value, complex):
            raise WrongDtype(self.source, name=f"the number {value}", dtype="complex")
        if dtype.is_float:
            return math.nan if value != value else float(value)
        return bool(value) if dtype == Dtype.b8 else int(value)

    def cast(self, x: Arg | float, dtype: Dtype) -> Arg | float:
        if not isinstance(x, Arg):
            return self.number(x, dtype)
        return x if self.dtype_of(x) == dtype else self("cast", x, shape=self.shape_of(x), dtype=dtype)

    def pointwise(self, op: str, *operands, dtype: Dtype | None = None) -> Arg:
        """op of operands converted to dtype, or to that of the result; they broadcast."""
        return self._broadcast(op, [self.cast(x, dtype or self.dtype) for x in operands], self.dtype)

    def wide(self, op: str, *operands) -> Arg:
        """op in the dtype that arithmetic on the result's dtype is done in (f32 for 16-bit floats); a comparison is b8,
        and so is the first operand of `where`."""
        dtype, conditions = self.dtype.compute, operands[:op == "where"]
        converted = [*conditions, *(self.cast(x, dtype) for x in operands[len(conditions):])]
        return self._broadcast(op, converted, Dtype.b8 if op in PREDICATES else dtype)

    def wide_fold(self, op: str, x: Arg, dims: tuple[int, ...], keepdim: bool = False) -> Arg:
        """A fold in that dtype."""
        shape = tuple(1 if d in dims else n for d, n in enumerate(self.shape_of(x)) if keepdim or d not in dims)
        dtype = self.dtype.compute
        return self(op, self.cast(x, dtype), dims=dims, keepdim=keepdim, shape=shape, dtype=dtype)

    def test(self, op: str, *operands) -> Arg:
        """A predicate, in the operands' own dtype, which they have in common."""
        return self._broadcast(op, list(operands), Dtype.b8)

    def where(self, cond: Arg, a, b) -> Arg:
        operands = [self.cast(cond, Dtype.b8), self.cast(a, self.dtype), self.cast(b, self.dtype)]
        return self._broadcast("where", operands, self.dtype)

    def _broadcast(self, op: str, operands: list, dtype: Dtype) -> Arg:
        return self(op, *operands, shape=tuple(torch.broadcast_shapes(*map(self.shape_of, operands))), dtype=dtype)

    def reshape(self, x: Arg, shape: tuple[int, ...]) -> Arg:
        return x if self.shape_of(x) == shape else self("reshape", x, shape=shape, dtype=self.dtype_of(x))

    def expand(self, x: Arg, shape: tuple[int, ...]) -> Arg:
        return x if self.shape_of(x) == shape else self("expand", x, shape=shape, dtype=self.dtype_of(x))

    def slice(self, x: Arg, dim: int, start: int, stop: int, step: int) -> Arg:
        shape = self.shape_of(x)
        if (start, stop, step) == (0, shape[dim], 1):
            return x
        kept = (*shape[:dim], len(range(start, stop, step)), *shape[dim + 1:])
        return self("slice", x, dim=dim, start=start, stop=stop, step=step, shape=kept)

    # ---- errors

    def unsupported(self, what: str) -> UnsupportedOperator:
        return UnsupportedOperator(self.source, op=f"{self.op}, {what}")

    def check_device(self, device: torch.device | None) -> None:
        """Tensors made or moved inside a program must be where its inputs are."""
        if device is not None and torch.device(device).type != self.builder.device.type:
            raise MismatchedDevices(self.source, found=f"inputs on {self.builder.device}, {self.op} on {device}")


def output_facts(value, source: Source | None, op: str) -> tuple[tuple[tuple[int, ...], Dtype], ...]:
    """Shapes and dtypes of what an operator returns, from the fake tensors of the trace."""
    facts = []
    for t in value if isinstance(value, (tuple, list)) else (value,):
        if not isinstance(t, torch.Tensor):
            raise DataDependentShape(source, found=f"{op} gives a Python number that depends on a tensor's values")
        if any(not isinstance(n, int) for n in t.shape):
            raise DataDependentShape(source, found=f"{op} gives a tensor of shape {tuple(t.shape)}")
        if (dtype := Dtype.of_torch(t.dtype)) is None:
            raise WrongDtype(source, name=f"the result of {op}", dtype=t.dtype)
        facts.append((tuple(t.shape), dtype))
    return tuple(facts)
