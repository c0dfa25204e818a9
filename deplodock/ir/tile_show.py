"""Text of Tile IR: one statement a line, then the layouts of all register tiles."""
from __future__ import annotations

from dataclasses import replace

from deplodock.ir.loop import Const
from deplodock.ir.show import Text, counted
from deplodock.ir.tile import (Access, Assign, Check, Combine, Compare, Convert, Coord, Copy, CopyOut, Exchange, Fill,
                               For, IndexTile, Kernel, LoadGlobal, LoadShared, Map, Mask, Mma, MmaCommit, MmaFence,
                               MmaWait, Operand, Param, Predicate, Promote, Reduce, Reg, SharedTile, Slice, Stmt, Store,
                               StoreShared, defined, dense_strides)


def show_tile(k: Kernel) -> str:
    """The kernel, one statement a line, and its layouts at the end."""
    return _Show().kernel(k)


def show_stmt(s: Stmt) -> str:
    """A statement on one line; of a loop, its head."""
    show = _Show()
    if isinstance(s, For):
        show.block((replace(s, body=()),), "")
        return show.out[0]
    return show.stmt(s)


class _Show:
    def __init__(self):
        self.out: list[str] = []
        self.layouts: dict[str, list[str]] = {}
        self.index = Text().index

    def kernel(self, k: Kernel) -> str:
        self.out.append(f"kernel {k.name}({', '.join(map(self.param, k.params))})")
        extras = [counted(k.warps, "warp") + (" consume, 1 produces" if k.roles else "")]
        extras += [f"persistent {k.persistent}"] if k.persistent else []
        extras += [f"groups of {k.group[1]} {k.group[0]}"] if k.group else []
        extras += [f"{k.min_blocks} blocks an SM"] if k.min_blocks > 1 else []
        self.out.append(f"  {', '.join(extras)}")
        for p in k.parts:
            grid = ", ".join(f"{g.axis.name}: {g.blocks} x {g.tile}{' reversed' if g.reverse else ''}" for g in p.grid)
            self.out.append(f"  grid {grid or '1'}")
            self.out += [f"  once {self.copy(c)}" for c in p.copies]
            self.block(p.body, "  ")
        self.out.append("  layouts")
        self.out += [f"    {', '.join(dict.fromkeys(names))}: {layout}" for layout, names in self.layouts.items()]
        return "\n".join(self.out)

    def param(self, p: Param) -> str:
        dense = dense_strides([a.extent for a in p.buffer.axes])
        shape = ",".join(str(a.extent) for a in p.buffer.axes)
        facts = [f"strides {','.join(map(str, p.strides))}"] if p.strides != dense else []
        facts += [f"aligned {p.alignment}"] if p.alignment != 16 else []
        return f"{p.name}: {p.dtype}[{shape}]" + (f" ({'; '.join(facts)})" if facts else "")

    def block(self, stmts: tuple[Stmt, ...], pad: str) -> None:
        for s in stmts:
            if isinstance(s, For):
                lo, hi = (" ".join(map(self.index, x)) for x in (s.lo, s.hi))
                lo, hi = (f"{f}({t.replace(' ', ', ')})" if len(x) > 1 else t
                          for f, t, x in (("max", lo, s.lo), ("min", hi, s.hi)))
                ring = f" ring {s.stages}" + (f" lag {s.lag}" if s.lag else "") if s.copies else ""
                self.out.append(f"{pad}for {s.var.name} in {lo}..{hi} step {s.step}{ring}:")
                self.out += [f"{pad}  async {self.copy(c)}" for c in s.copies]
                self.block(s.body, pad + "  ")
            else:
                self.out.append(pad + self.stmt(s))
                for r in defined(s):
                    self.layouts.setdefault(str(r.layout), []).append(r.name)

    def new(self, r: Reg) -> str:
        extents = ",".join(f"{a}:{r.layout.extent(a)}" for a in sorted(r.layout.axes))
        return f"{r.name}: {r.dtype}[{extents}]"

    def value(self, x: Reg | Const | Operand) -> str:
        match x:
            case Reg(): return x.name
            case Operand(t, off): return t.name + self.off(off)
        return Text().term(x)

    def off(self, off) -> str:
        return "".join(f" {a}+{o}" for a, o in off if o)

    def compare(self, c: Compare) -> str:
        sign = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}[c.relation]
        return f"{self.index(c.left)} {sign} {self.index(c.right)}"

    def at(self, a: Access) -> str:
        text = f"{a.param.name}[{', '.join(map(self.index, a.indices))}]"
        at = [f"{c.axis.name} {self.coord(c)}" for c in a.coords]
        return text + (f" at {', '.join(at)}" if at else "") + "".join(f" if {self.compare(g)}" for g in a.guards)

    def coord(self, c: Coord) -> str:
        value = c.loaded.name if c.loaded else self.index(c.base + c.off)
        return value + (f" < {c.limit}" if c.limit is not None else "")

    def tile(self, t: SharedTile) -> str:
        sh = t.shape
        dims = ",".join(f"{a}:{n}" for a, n in zip((*sh.row, sh.col), (*sh.spans, sh.cols)))
        return f"{t.name}: shared {t.dtype}[{dims}]" + (f" x{t.stages}" if t.stages > 1 else "")

    def copy(self, c: Copy) -> str:
        return f"{'tma' if c.box else 'copy'} {self.tile(c.dst)} <- {self.at(c.src)}"

    def stmt(self, s: Stmt) -> str:
        v, names = self.value, lambda rs: ", ".join(r.name for r in rs)
        match s:
            case Fill(d, None): return self.new(d)
            case Fill(d, x): return f"{self.new(d)} = {v(x)}"
            case LoadGlobal(d, a): return f"{self.new(d)} = load {self.at(a)}"
            case LoadShared(d, t, off): return f"{self.new(d)} = load.shared {t.name}{self.off(off)}"
            case Copy(): return self.copy(s)
            case IndexTile(d, i, coords):
                at = ", ".join(f"{c.axis.name} {self.coord(c)}" for c in coords)
                return f"{self.new(d)} = index {self.index(i)} at {at}"
            case Predicate(d, where): return f"{self.new(d)} = {' and '.join(map(self.compare, where))}"
            case Map(d, op, srcs, to): return f"{self.new(d)} = {op}{f'.{to}' if to else ''} {', '.join(map(v, srcs))}"
            case Assign(d, op, srcs): return f"{d.name} = {op} {', '.join(map(v, srcs))}"
            case Mask(d, x, where, other, _, whole):
                unless = f"  unless {' and '.join(map(self.compare, whole))}" if whole else ""
                where = " and ".join(map(self.compare, where))
                return f"{self.new(d)} = mask {v(x)} where {where} else {v(other)}{unless}"
            case Slice(d, x, off): return f"{self.new(d)} = slice {x.name}{self.off(off)}"
            case Convert(d, x): return f"{self.new(d)} = convert {x.name}"
            case Exchange(d, x, p): return f"{self.new(d)} = exchange {x.name} over {p}"
            case Check(x, n): return f"check 0 <= {x.name} < {n}"
            case Mma(c, a, b, atom, _, fresh): return f"{c.name} {'=' if fresh else '+='} {atom} {v(a)}, {v(b)}"
            case MmaFence(): return "mma.fence"
            case MmaCommit(): return "mma.commit"
            case MmaWait(n): return f"mma.wait {n}"
            case Reduce(d, m, x, turn):
                on = "".join(f" on warps with bit {b} = {t}" for b, t in turn)
                return f"{names(d)} = reduce.thread {m} {names(x)}{on}"
            case Combine(d, m, axis, lanes, warps):
                over = "".join(f" {kind} {','.join(map(str, bits))}"
                               for kind, bits in (("lanes", lanes), ("warps", warps)) if bits)
                return f"{names(d)} = reduce.{'block' if warps else 'warp'} {m} over {axis}{over}"
            case Promote(a, p, loop, _, every):
                return f"promote {a.name} += {p.name}" + (f" each {every} of {loop.name}" if loop and every > 1 else "")
            case StoreShared(d, x): return f"{self.tile(d)} = store.shared {x.name}"
            case Store(a, x): return f"store {self.at(a)} <- {x.name}"
            case CopyOut(a, t): return f"tma {self.at(a)} <- {t.name}"
        raise TypeError(type(s).__name__)
