"""Random chains of views between products and reductions: however dimensions factor, the program keeps its meaning."""
import math
import random

import numpy as np
import pytest
import torch

from deplodock.enter import enter
from deplodock.ir.dtype import f32
from deplodock.ir.meaning import Meaning
from deplodock.ir.torch import Arg, Node, Program, Value, contiguous
from deplodock.reference import reference

SIZES = (1, 2, 3, 4, 6, 8, 12)


class Drawing:
    """A program that grows by one random operator at a time."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        shapes = [tuple(self.random.choices(SIZES, k=self.random.randint(1, 3))) for _ in range(2)]
        self.inputs = tuple(Value(f"x{i}", f32, s, contiguous(s)) for i, s in enumerate(shapes))
        self.shapes = {v.name: v.shape for v in self.inputs}
        self.nodes: list[Node] = []

    def program(self, steps: int) -> Program:
        while len(self.nodes) < steps:
            op = self.random.choice((self.reshape, self.reshape, self.permute, self.slice, self.slice, self.cat,
                                     self.expand, self.select, self.matmul, self.fold, self.add, self.tril))
            op(self.random.choice(list(self.shapes)))
        return Program(self.inputs, (), tuple(self.nodes), tuple(n.name for n in self.nodes[-2:]))

    def put(self, op: str, shape, **args) -> None:
        if math.prod(shape) <= 3000 and len(shape) <= 5:
            node = Node(f"{op}_{len(self.nodes)}", op, tuple(args.items()), tuple(shape), f32)
            self.nodes.append(node)
            self.shapes[node.name] = node.shape

    def reshape(self, x: str) -> None:
        """Splits the elements at random into factors."""
        rest, shape = math.prod(self.shapes[x]), []
        while rest > 1 and len(shape) < 4:
            shape.append(self.random.choice([d for d in range(1, rest + 1) if rest % d == 0]))
            rest //= shape[-1]
        self.put("reshape", (*shape, rest), x=Arg(x))

    def permute(self, x: str) -> None:
        dims = list(range(len(self.shapes[x])))
        self.random.shuffle(dims)
        self.put("permute", [self.shapes[x][d] for d in dims], x=Arg(x), dims=tuple(dims))

    def slice(self, x: str) -> None:
        if not (shape := list(self.shapes[x])):
            return
        dim = self.random.randrange(len(shape))
        start = self.random.randint(0, shape[dim])
        stop, step = self.random.randint(start, shape[dim]), self.random.randint(1, 2)
        shape[dim] = len(range(start, stop, step))
        self.put("slice", shape, x=Arg(x), dim=dim, start=start, stop=stop, step=step)

    def select(self, x: str) -> None:
        if not (shape := list(self.shapes[x])) or not min(shape):
            return
        dim = self.random.randrange(len(shape))
        self.put("select", shape[:dim] + shape[dim + 1:], x=Arg(x), dim=dim, index=self.random.randrange(shape[dim]))

    def cat(self, x: str) -> None:
        """x with tensors that agree with it in all dimensions but one."""
        if not (shape := self.shapes[x]):
            return
        dim = self.random.randrange(len(shape))
        rest = shape[:dim] + shape[dim + 1:]
        fits = [n for n, s in self.shapes.items() if len(s) == len(shape) and s[:dim] + s[dim + 1:] == rest]
        names = [x, *self.random.choices(fits, k=self.random.randint(1, 2))]
        total = sum(self.shapes[n][dim] for n in names)
        self.put("cat", (*shape[:dim], total, *shape[dim + 1:]), xs=tuple(map(Arg, names)), dim=dim)

    def expand(self, x: str) -> None:
        shape = [self.random.choice(SIZES) if n == 1 else n for n in self.shapes[x]]
        self.put("expand", (self.random.choice(SIZES[:3]), *shape), x=Arg(x))

    def matmul(self, x: str) -> None:
        fits = [n for n, s in self.shapes.items() if len(self.shapes[x]) >= 2 <= len(s) and s[-2] == self.shapes[x][-1]
                and (len(s) == 2 or s[:-2] == self.shapes[x][:-2])]
        if fits:
            other = self.random.choice(fits)
            self.put("matmul", (*self.shapes[x][:-1], self.shapes[other][-1]), a=Arg(x), b=Arg(other))

    def fold(self, x: str) -> None:
        if self.shapes[x]:
            dim = self.random.randrange(len(self.shapes[x]))
            self.put("sum", self.shapes[x][:dim] + self.shapes[x][dim + 1:], x=Arg(x), dims=(dim,), keepdim=False)

    def add(self, x: str) -> None:
        other = self.random.choice([n for n, s in self.shapes.items() if s == self.shapes[x]])
        self.put("add", self.shapes[x], a=Arg(x), b=Arg(other))

    def tril(self, x: str) -> None:
        if len(self.shapes[x]) >= 2:
            self.put("tril", self.shapes[x], x=Arg(x), diagonal=self.random.randint(-2, 2))


@pytest.mark.parametrize("seed", range(150))
def test_views_keep_their_meaning(seed):
    program = Drawing(seed).program(10)
    generator = torch.Generator().manual_seed(seed)
    values = [torch.randn(v.shape, generator=generator) for v in program.inputs]
    entered = enter(program)
    meaning = Meaning({b: v.numpy().reshape([a.extent for a in b.axes]) for b, v in zip(entered.inputs, values)})
    for result, wide in zip(entered.outputs, reference(program, values, {}), strict=True):
        assert tuple(math.prod(a.extent for a in d) for d in result.dims) == tuple(wide.shape)
        value = meaning.tensor(result.tensor).reshape(wide.shape)
        np.testing.assert_allclose(value, wide.numpy(), rtol=1e-9, atol=1e-9)
    extents = {a.base for t in (*entered.inputs, *entered.launches) for a in t.axes}
    assert len({a.name for a in extents}) == len(extents)
    for t in entered.launches:
        assert len({a.name for a in t.axes}) == len(t.axes) and t.body.free <= set(t.axes)
        assert all(a.extent != 1 for a in t.axes)
