"""Text of Loop IR terms: one line for an expression, a loop nest for a launch."""
from __future__ import annotations

from deplodock.ir.index import Axis, FloorDiv, Gathered, Index, Mod
from deplodock.ir.loop import Buffer, Cast, Const, Fold, Iota, Launch, Load, Op, Ref, RoundTo, Var, children
from deplodock.ir.ops import OPS
from deplodock.ir.term import Term


def show(t: Term) -> str:
    """A term on one line. Launches print whole; a caller that names tensors uses Text."""
    return Text().term(t)


def _names(axes: tuple[Axis, ...] | Var) -> str:
    return f"[{axes.name if isinstance(axes, Var) else ','.join(a.name for a in axes)}]"


def signature(axes: tuple[Axis, ...], d) -> str:
    """`bf16[m:512,k:2048]`: the dtype and shape of a tensor, JAX style."""
    return f"{d}[{','.join(f'{a.name}:{a.extent}' for a in axes)}]"


def counted(n: int, noun: str) -> str:
    """`1 kernel`, `2 kernels`."""
    return f"{n} {noun}{'s' * (n != 1)}"


class Text:
    """Prints terms; `names` gives a name to tensors (or bodies) that then print as that name."""

    def __init__(self, names: dict[Term, str] | None = None):
        self.names = names or {}

    def term(self, t: Term, inside: bool = False) -> str:
        if t in self.names:
            return self.names[t]
        match t:
            case Axis(): return t.name
            case Index(): return self.index(t)
            case FloorDiv(i, n): return f"({self.index(i)})//{n}"
            case Mod(i, n): return f"({self.index(i)})%{n}"
            case Gathered(b, _): return f"int({self.term(b)})"
            case Buffer(): return t.name
            case Launch(axes, body): return f"launch({_names(axes)}, {self.term(body)})"
            case Load(x, Var() as ix): return f"{self.term(x)}[{ix.name}]"
            case Load(x, ix): return f"{self.term(x)}[{','.join(map(self.index, ix))}]"
            case Const(_, v): return f"{v:g}" if isinstance(v, float) else str(v)
            case Iota(i): return self.index(i)
            case Cast(d, b): return f"{d}({self.term(b)})"
            case RoundTo(d, b): return f"round_to({d}, {self.term(b)})"
            case Fold(monoid, axes, bodies, part):
                suffix = f".{part}" if monoid in ("argmax", "argmin", "online") else ""
                return f"{monoid}{suffix}{_names(axes)}({', '.join(map(self.term, bodies))})"
            case Op("neg", (a,)): return f"-{self.term(a, True)}"
            case Op(name, (a, b)) if OPS[name].symbol:
                text = f"{self.term(a, True)} {OPS[name].symbol} {self.term(b, True)}"
                return f"({text})" if inside else text
            case Op(name, args): return f"{name}({', '.join(map(self.term, args))})"
            case Var(): return t.name
            case Ref(): return f"%{t.number}"
        raise TypeError(type(t).__name__)

    def primitive(self, t: Launch) -> str:
        """A launch as a primitive of Tensor IR: `elementwise mul a b`, `reduction sum[k] a[m,k] * b[k,n]`, `index_map a[j]`."""
        root = t.body
        while isinstance(root, Cast) and not isinstance(root.body, Load):
            root = root.body
        match root:
            case Cast(): return f"elementwise cast {self.operand(root)}"
            case Load(): return f"index_map {self.term(root)}"
            case Const(): return f"elementwise {self.term(root)}"
            case Fold(monoid, axes, bodies, part):
                suffix = f".{part}" if monoid in ("argmax", "argmin", "online") else ""
                return f"reduction {monoid}{suffix}{_names(axes)} {', '.join(map(self.term, bodies))}"
            case Op(name, args): return " ".join(["elementwise", name, *(self.operand(a) for a in args)])
        return f"elementwise {self.term(root)}"

    def operand(self, b: Term) -> str:
        """An operand by its name alone where it is read at its own axes; casts are implied."""
        while isinstance(b, (Cast, RoundTo)):
            b = b.body
        if isinstance(b, Load) and b.tensor in self.names:
            if tuple(i.axis for i in b.indices) == b.tensor.axes:
                return self.names[b.tensor]
        return self.term(b).replace(" ", "")

    def index(self, i: Index) -> str:
        if not isinstance(i, Index):
            return self.term(i)
        parts = []
        for atom, c in i.terms:
            a = self.term(atom)
            text = a if abs(c) == 1 else f"{abs(c)}*{a}"
            parts.append(("-" if c < 0 else "+" if parts else "") + text)
        if i.const or not parts:
            parts.append(("+" if i.const >= 0 and parts else "") + str(i.const))
        return "".join(parts)

    def nest(self, name: str, launch: Launch) -> str:
        """A launch as the loops it stands for, one statement a line: the level of a fold is the innermost loop whose axis it
        needs, and folds over the same axes share a loop where neither needs the other."""
        return _Nest(self.names).text(name, launch)


class _Nest:
    def __init__(self, names: dict[Term, str]):
        self.names, self.lines, self.count = names, [], 0

    def text(self, name: str, launch: Launch) -> str:
        self.lines, pad = [f"{name}: {signature(launch.axes, launch.dtype)}"], "  "
        for a in launch.axes:
            self.lines.append(f"{pad}for {a.name} in 0..{a.extent}:  # grid")
            pad += "  "
        known = dict(self.names)
        self.folds((launch.body,), pad, known)
        at = ",".join(a.name for a in launch.axes)
        self.lines.append(f"{pad}{name}[{at}] = {Text(known).term(launch.body)}")
        return "\n".join(self.lines)

    def folds(self, bodies: tuple[Term, ...], pad: str, known: dict[Term, str]) -> None:
        """The loops that bodies need before them; `known` gets the names of the results."""
        found = _outermost(bodies, known)
        for f in found:
            before = tuple(g for g in _outermost(f.bodies, known) if g.free.isdisjoint(f.axes))
            if before:
                self.folds(before, pad, known)
        groups: dict[tuple[Axis, ...], list[Fold]] = {}
        for f in found:
            if f not in known:
                groups.setdefault(f.axes, []).append(f)
        for axes, group in groups.items():
            self.loop(axes, group, pad, known)

    def loop(self, axes: tuple[Axis, ...], group: list[Fold], pad: str, known: dict[Term, str]) -> None:
        states: dict[tuple, str] = {}
        for f in group:
            if (f.monoid, f.bodies) not in states:
                states[f.monoid, f.bodies] = f"r{self.count}"
                self.count += 1
                self.lines.append(f"{pad}{states[f.monoid, f.bodies]} = identity of {f.monoid}")
        inner, within = dict(known), pad
        for a in axes:
            self.lines.append(f"{within}for {a.name} in 0..{a.extent}:")
            within += "  "
        self.folds(tuple(b for f in group for b in f.bodies), within, inner)
        text = Text(inner)
        for (monoid, bodies), state in states.items():
            self.lines.append(f"{within}{state} {monoid}= {', '.join(map(text.term, bodies))}")
        for f in group:
            known[f] = states[f.monoid, f.bodies] + (f".{f.part}" if f.monoid in ("argmax", "argmin", "online") else "")


def _outermost(bodies: tuple[Term, ...], known: dict[Term, str]) -> list[Fold]:
    """The folds in bodies that are in no other fold and not known, in the order of the text."""
    found: dict[Fold, None] = {}
    stack = list(reversed(bodies))
    while stack:
        b = stack.pop()
        if b in known:
            continue
        if isinstance(b, Fold):
            found[b] = None
        else:
            stack.extend(reversed(children(b)))
    return list(found)
