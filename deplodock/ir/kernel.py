"""Kernel IR: the program of one thread of a block.

    Kernel  = name, params, maps, grid, threads, min_blocks, shared, ranges, mbarriers, body
    Param   = name, pointer, dtype, written            a buffer in global memory
    Map     = name, buffer, dims, strides, box, swizzle             a tensor map: how bulk copies see a buffer
    Span    = name, offset, bytes                      a range of shared memory; Name(name) is its address, a u32
    Stmt    = Let(name, type, value)                   a value that never changes
            | Variable(name, type, value)              one that does: positions in rings, phases
            | Array(name, type, size)                  registers
            | Set(target, value, op)                   target = value, or target op= value; a Name or an Element
            | Do(call)                                 a primitive, for its effect
            | Loop(name, low, high, step, body, unroll)
            | If(test, body)
            | Roles(consumers, body, producer)         the first `consumers` threads run body, the rest producer
            | Note(text)                               where the statements that follow come from

Param and Map are those of ir/cuda.py, expressions those of ir/expression.py, primitives those of ir/primitive.py. Types are
the names of C types: int, u32, u64, i64, float, double, i16, i8, u8, bool. 16-bit floats are held in pairs in a u32.
`thread`, `lane`, `warp` and `block` are there from the start: the place of the thread in its block and in its warp, of the
warp in its block, of the block in the grid. Shared memory is addressed by byte, an mbarrier by the address of its 8 bytes;
the phase of a ring is a Variable, flipped as its position wraps.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator

from deplodock.ir.cuda import Map, Param
from deplodock.ir.dtype import Dtype
from deplodock.ir.expression import Call, Element, Expr, Int, Name, text

CTYPE = {Dtype.f64: "double", Dtype.f32: "float", Dtype.i64: "i64", Dtype.i32: "int", Dtype.i16: "i16",
         Dtype.i8: "i8", Dtype.u64: "u64", Dtype.u32: "u32", Dtype.u16: "u16", Dtype.u8: "u8", Dtype.b8: "bool"}
"""The C type of a value of a dtype; 16-bit floats compute in f32 and are held in pairs."""
STORED = {**CTYPE, Dtype.f16: "u16", Dtype.bf16: "u16"}
"""The C type of an element in memory."""


def register_type(d: Dtype) -> str:
    """The C type of an array of registers that holds values of a dtype."""
    return "u32" if d.is_16bit else CTYPE[d]


def registers(d: Dtype, n: int) -> int:
    """Elements of that array for n values."""
    return (n + 1) // 2 if d.is_16bit else n


@dataclass(frozen=True, slots=True)
class Span:
    name: str
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Let:
    name: str
    type: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    type: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Array:
    name: str
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class Set:
    target: Name | Element
    value: Expr
    op: str = ""


@dataclass(frozen=True, slots=True)
class Do:
    call: Call


@dataclass(frozen=True, slots=True)
class Loop:
    """unroll: True: whole; False: not at all; None: as the compiler thinks."""
    name: str
    low: Expr
    high: Expr
    step: Expr
    body: tuple[Stmt, ...]
    unroll: bool | None = None


@dataclass(frozen=True, slots=True)
class If:
    test: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Roles:
    consumers: int
    body: tuple[Stmt, ...]
    producer: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Note:
    text: str


Stmt = Let | Variable | Array | Set | Do | Loop | If | Roles | Note


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    params: tuple[Param, ...]
    maps: tuple[Map, ...]
    grid: int
    """Blocks; the grid has one dimension, which the body takes apart."""
    threads: int
    min_blocks: int
    """Blocks that should fit on a multiprocessor at once, for the register budget."""
    shared: int
    """Bytes of dynamic shared memory from its first multiple of 1024 on."""
    spans: tuple[Span, ...]
    body: tuple[Stmt, ...]
    source: tuple[str, ...] = ()
    """Where the kernel came from in the user's program."""

    @property
    def written(self) -> frozenset[str]:
        return frozenset(p.pointer for p in self.params if p.written)


def bodies(s: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The lists of statements inside a statement."""
    match s:
        case Loop(_, _, _, _, body, _) | If(_, body): return (body,)
        case Roles(_, body, producer): return body, producer
    return ()


def expressions(s: Stmt) -> tuple[Expr, ...]:
    """The expressions directly in a statement, without those of statements inside it."""
    match s:
        case Let(_, _, v) | Variable(_, _, v): return (v,)
        case Set(target, v, _): return (target, v)
        case Do(c): return (c,)
        case Loop(_, low, high, step, _, _): return low, high, step
        case If(test, _): return (test,)
    return ()


def walk(stmts: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, in the order of the text."""
    for s in stmts:
        yield s
        for body in bodies(s):
            yield from walk(body)


def show(k: Kernel) -> str:
    """The text form: one statement a line, blocks by indentation."""
    params = ", ".join(f"{p.pointer}: {p.dtype}" + (" out" if p.written else "") for p in k.params)
    lines = [f"kernel {k.name}({params})",
             f"  grid {k.grid}, block {k.threads}, shared {k.shared} bytes"]
    lines += [f"  from {s}" for s in k.source]
    lines += [f"  map {m.name} of {m.buffer}: {m.dtype}{list(m.dims)} box {list(m.box)} swizzle {m.swizzle}"
              for m in k.maps]
    lines += [f"  shared {s.name}: {s.offset}..{s.offset + s.bytes}" for s in k.spans]
    _show(k.body, lines, "  ")
    return "\n".join(lines)


def _show(stmts: tuple[Stmt, ...], out: list[str], pad: str) -> None:
    for s in stmts:
        match s:
            case Note(t): out.append(f"{pad}# {t}")
            case Let(n, t, v): out.append(f"{pad}{n}: {t} = {text(v)}")
            case Variable(n, t, v): out.append(f"{pad}var {n}: {t} = {text(v)}")
            case Array(n, t, size): out.append(f"{pad}{n}: {t}[{size}]")
            case Set(target, v, op): out.append(f"{pad}{text(target)} {op}= {text(v)}")
            case Do(c): out.append(f"{pad}{text(c)}")
            case Loop(n, low, high, step, body, unroll):
                how = {True: "  # unrolled", False: "  # not unrolled", None: ""}[unroll]
                by = "" if step == Int(1) else f" step {text(step)}"
                out.append(f"{pad}for {n} in {text(low)}..{text(high)}{by}:{how}")
                _show(body, out, pad + "  ")
            case If(test, body):
                out.append(f"{pad}if {text(test)}:")
                _show(body, out, pad + "  ")
            case Roles(n, body, producer):
                out.append(f"{pad}role of threads {n}..: produce")
                _show(producer, out, pad + "  ")
                out.append(f"{pad}role of threads ..{n}: consume")
                _show(body, out, pad + "  ")
