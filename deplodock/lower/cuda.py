"""Kernel IR -> CUDA text: one self-contained source for each kernel, and what a launch of it needs.

    Source  = the wrappers that the kernel uses, then the kernel
    wrapper = an item of device.cuh, with the wrappers that it uses in turn: the only text that may hold PTX
    kernel  = extern "C" __global__ void name(pointers, tensor maps) { statements of Kernel IR, as C++ has them }

The source compiles as it stands with nvcc and with NVRTC; the kernel alone, after the host's twin of the wrappers, with a
C++ compiler. The same Kernel IR gives the same bytes.
"""
from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from deplodock.ir.cuda import CudaKernel
from deplodock.ir.expression import Binary, Expr, Int, Name, operands, text
from deplodock.ir.kernel import (STORED, Array, Do, If, Kernel, Let, Loop, Note, Roles, Set, Stmt, Variable, expressions,
                                 walk)
from deplodock.ir.primitive import WGMMA, wgmma
from deplodock.lower.emit import SHARED_ALIGNMENT


def lower_cuda(k: Kernel) -> CudaKernel:
    """The text of a kernel."""
    body = _Text(k).kernel()
    shared = k.shared + SHARED_ALIGNMENT if k.shared else 0     # the base is rounded up to the alignment
    return CudaKernel(k.name, body, wrappers(body), k.grid, k.threads, shared, k.params, k.maps)


class _Text:
    def __init__(self, k: Kernel):
        self.k, self.lines = k, []

    def kernel(self) -> str:
        k = self.k
        args = [f"{'' if p.written else 'const '}{STORED[p.dtype]}* __restrict__ {p.pointer}" for p in k.params]
        args += [f"const __grid_constant__ TensorMap {m.name}" for m in k.maps]
        self.lines += [f"// {line}" for s in k.source for line in s.splitlines()]
        bounds = f"__launch_bounds__({k.threads}, {k.min_blocks})"
        self.lines.append(f'extern "C" __global__ void {bounds} {k.name}({", ".join(args)}) {{')
        used = names_in(k)
        for name, value in self.given():
            if name in used:
                self.lines.append(f"  const int {name} = {value};")
        if k.spans:
            self.lines.append("  const u32 smem = dd_shared();")
            self.lines += [f"  const u32 {s.name} = smem + {s.offset};" for s in k.spans if s.name in used]
        self.block(k.body, "  ")
        self.lines.append("}")
        return "\n".join(self.lines) + "\n"

    def given(self) -> list[tuple[str, str]]:
        """The names that Kernel IR has from the start. A warp's number is passed through a shuffle where roles or
        products of warpgroups depend on it, so that the compiler knows it to be the same in all lanes."""
        warp = "threadIdx.x / 32"
        uniform = any(isinstance(s, Roles) or isinstance(s, Do) and WGMMA.fullmatch(s.call.name)
                      for s in walk(self.k.body))
        return [("thread", "threadIdx.x"), ("lane", "threadIdx.x % 32"),
                ("warp", f"dd_uniform({warp})" if uniform else warp), ("block", "blockIdx.x")]

    def block(self, stmts: tuple[Stmt, ...], pad: str) -> None:
        for s in stmts:
            self.stmt(s, pad)

    def stmt(self, s: Stmt, pad: str) -> None:
        out = self.lines
        match s:
            case Note(t): out.append(f"{pad}// {t}")
            case Let(n, t, v): out.append(f"{pad}const {t} {n} = {text(v)};")
            case Variable(n, t, v): out.append(f"{pad}{t} {n} = {text(v)};")
            case Array(n, t, size): out.append(f"{pad}{t} {n}[{size}];")
            case Set(target, v, op): out.append(f"{pad}{text(target)} {op}= {text(v)};")
            case Do(c): out.append(f"{pad}{text(c)};")
            case If(test, (Set() | Do() as one,)):
                out.append(f"{pad}if ({text(test)})")
                self.stmt(one, pad + "  ")
            case If(test, body):
                out.append(f"{pad}if ({text(test)}) {{")
                self.block(body, pad + "  ")
                out.append(f"{pad}}}")
            case Loop(n, low, high, step, body, unroll):
                if unroll is not None:
                    out.append(f"{pad}#pragma unroll" + ("" if unroll else " 1"))
                by = f"++{n}" if step == Int(1) else f"{n} += {text(step)}"
                braces = len(body) != 1 or not isinstance(body[0], (Set, Do))
                head = f"for (int {n} = {text(low)}; {text(Binary('<', Name(n), high))}; {by})"
                out.append(pad + head + (" {" if braces else ""))
                self.block(body, pad + "  ")
                out += [f"{pad}}}"] if braces else []
            case Roles(n, body, producer):
                out.append(f"{pad}if (thread >= {n}) {{  // the producer")
                self.block(producer, pad + "  ")
                out.append(f"{pad}}} else {{  // the consumers")
                self.block(body, pad + "  ")
                out.append(f"{pad}}}")


def names_in(k: Kernel) -> set[str]:
    """Every scalar name that the body of a kernel mentions."""
    found: set[str] = {"thread"} if any(isinstance(s, Roles) for s in walk(k.body)) else set()

    def visit(e: Expr) -> None:
        if isinstance(e, Name):
            found.add(e.name)
        for x in operands(e):
            visit(x)
    for s in walk(k.body):
        for e in expressions(s):
            visit(e)
    return found


# ---- the wrappers ----------------------------------------------------------------------------------------------------

_DEFINED = re.compile(r"^(?:template <[^>]*> )?DD [\w ]+? (dd_\w+)\(", re.M)
_USED = re.compile(r"\b(?:dd_\w+|TensorMap)\b")


@cache
def header() -> tuple[str, tuple[tuple[frozenset[str], str], ...]]:
    """device.cuh as (what every kernel has, ((names that an item defines, item), ..)); comments between items go."""
    full = (files("deplodock.lower") / "device.cuh").read_text()
    items = [i for i in re.sub(r"^//.*\n", "", full, flags=re.M).split("\n\n") if i.strip()]
    common, rest = items[0].strip("\n"), [i.strip("\n") for i in items[1:]]
    return common, tuple((frozenset(_DEFINED.findall(i)) or frozenset(["TensorMap"]), i) for i in rest)


def wrappers(kernel: str) -> str:
    """The items of device.cuh that a kernel's text uses, those that they use, and its wgmma wrappers."""
    common, items = header()
    used, wanted = set(), set(_USED.findall(kernel))
    while wanted - used:
        used |= wanted
        wanted = {n for defines, item in items if defines & used for n in _USED.findall(item)}
    products: dict[str, set[int]] = {}
    for name, add in sorted(re.findall(r"\b(dd_wgmma_m64n\w+)<([01])>", kernel)):
        products.setdefault(name, set()).add(int(add))
    chosen = [item for defines, item in items if defines & used]
    return "\n\n".join([common, *chosen, *(wgmma_wrapper(n, sorted(adds)) for n, adds in products.items())]) + "\n"


def wgmma_wrapper(name: str, adds: list[int]) -> str:
    """The wrapper of one shape of wgmma, that overwrites (0) or adds (1). What is overwritten is an output only."""
    columns, dtype, a, b = WGMMA.fullmatch(name).groups()
    p, n = wgmma(name), int(columns) // 2
    accs = ", ".join(f"%{i}" for i in range(n))
    if a == "r":
        ins, source = ", ".join(f'"r"(a[{i}])' for i in range(4)), "{" + ", ".join(f"%{n + i}" for i in range(4)) + "}"
        last, majors = n + 4, str(int(b == "t"))
    else:
        ins, source = '"l"(a)', f"%{n}"
        last, majors = n + 1, f"{int(a == 't')}, {int(b == 't')}"
    out = [f"template <int ADD> DD void {name}({p.signature.split('(', 1)[1]};"]
    for add in adds:
        regs = ", ".join(f'"{"+f" if add else "=f"}"(d[{i}])' for i in range(n))
        out.append(
            f"template <> __device__ __forceinline__ void {name}<{add}>({p.signature.split('(', 1)[1]} {{\n"
            f'  asm volatile("{{.reg .pred p; setp.ne.b32 p, {add}, 0; "\n'
            f'    "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{dtype}.{dtype} "\n'
            f'    "{{{accs}}}, {source}, %{last}, p, 1, 1, {majors};}}"\n    : {regs} : {ins}, "l"(b));\n}}')
    return "\n".join(out)
