"""What a Kernel IR program must satisfy, whatever it computes; verify_kernel() raises MalformedKernel for a breach.

    names        defined once in scope, before use; arrays indexed inside, as far as the ranges of indices tell
    calls        of known primitives, with their number of arguments; the registers they move exist and have their type
    memory       spans lie in the allocation, and those that are live together do not overlap; only outputs are written
    meeting      what several threads must reach together stands under control that they agree on
    copies       what cp.async wrote is waited for, and the threads have met, before it is read
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field

from deplodock.ir.expression import (Address, Binary, Call, Element, Expr, Int, MapAddress, Name, Pointer, bounds,
                                     operands, text)
from deplodock.ir.kernel import (Array, Do, If, Kernel, Let, Loop, Roles, Set, Stmt, Variable, bodies, expressions,
                                 walk)
from deplodock.ir.primitive import Parameter, primitive

BYTES = {"int": 4, "u32": 4, "u64": 8, "i64": 8, "float": 4, "double": 8, "i16": 2, "u16": 2, "i8": 1, "u8": 1,
         "bool": 1}
THREAD, WARP, WARPGROUP, BLOCK = range(4)
"""How far threads agree on a value."""
NEEDS = {"thread": THREAD, "warp": WARP, "warpgroup": WARPGROUP, "block": BLOCK}
GIVEN = {"thread": THREAD, "lane": THREAD, "warp": WARP, "block": BLOCK}


class MalformedKernel(ValueError):
    """A Kernel IR program that the compiler should not have made."""


def verify_kernel(k: Kernel) -> None:
    """MalformedKernel if the program breaks a rule of the head of this file."""
    _Names(k).check()
    _Meeting(k).check()
    for body in _role_texts(k):
        _spans(k, body)
        _copies(k, body)


def fail(k: Kernel, what: str) -> None:
    raise MalformedKernel(f"{k.name}: {what}")


# ---- names, arrays, calls --------------------------------------------------------------------------------------------

@dataclass
class _Names:
    k: Kernel
    scopes: list[dict[str, Array | str]] = field(default_factory=list)

    def check(self) -> None:
        k = self.k
        first: dict[str, Array | str] = {n: "int" for n in GIVEN} | {s.name: "u32" for s in k.spans}
        for name, kind in [(p.pointer, "pointer") for p in k.params] + [(m.name, "map") for m in k.maps]:
            if name in first:
                fail(k, f"{name} is defined twice")
            first[name] = kind
        self.scopes = [first]
        self.block(k.body)

    def block(self, stmts: tuple[Stmt, ...], loop: Loop | None = None) -> None:
        self.scopes.append({loop.name: "int"} if loop else {})
        for s in stmts:
            for e in expressions(s):
                self.expression(e, Set if isinstance(s, Set) else None)
            match s:
                case Let(n, t, _) | Variable(n, t, _): self.define(n, t)
                case Array(n): self.define(n, s)
                case Do(c): self.call(c)
                case Set(Name(n, _), _, _) if self.find(n) == "pointer": fail(self.k, f"{n} is no variable")
            for body in bodies(s):
                self.block(body, s if isinstance(s, Loop) else None)
        self.scopes.pop()

    def define(self, name: str, kind: Array | str) -> None:
        if any(name in scope for scope in self.scopes):
            fail(self.k, f"{name} is defined twice")
        self.scopes[-1][name] = kind

    def find(self, name: str) -> Array | str:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        fail(self.k, f"{name} is used before it is defined")

    def expression(self, e: Expr, within=None) -> None:
        match e:
            case Name(n, _):
                if isinstance(self.find(n), Array):
                    fail(self.k, f"{n} is an array")
            case Element(n, i): self.registers(n, i, 1)
            case Pointer(n, _) if self.find(n) != "pointer": fail(self.k, f"{n} is no pointer")
            case MapAddress(n) if self.find(n) != "map": fail(self.k, f"{n} is no tensor map")
            case Call() if e.name.startswith("dd_"): self.call(e)
        for x in operands(e):
            self.expression(x)

    def registers(self, name: str, index: Expr, count: int) -> Array:
        a = self.find(name)
        if not isinstance(a, Array):
            fail(self.k, f"{name} is no array")
        low, high = bounds(index)
        if low < 0 or high + count > a.size:
            fail(self.k, f"{name}[{text(index)}] .. of {count} may lie outside of {a.size} registers")
        return a

    def call(self, c: Call) -> None:
        try:
            p = primitive(c.name)
        except KeyError:
            fail(self.k, f"no primitive is called {c.name}")
        if len(c.args) != len(p.params):
            fail(self.k, f"{text(c)}: {c.name} takes {len(p.params)} arguments")
        if p.template.startswith("int") != (bool(c.template) and isinstance(c.template[0], int)):
            fail(self.k, f"{text(c)}: {c.name} has the template <{p.template}>")
        for arg, param in zip(c.args, p.params):
            self.argument(c, arg, param)

    def argument(self, c: Call, arg: Expr, p: Parameter) -> None:
        if p.is_registers:
            if not isinstance(arg, Address):
                fail(self.k, f"{text(c)}: {p.name} is to be the address of registers")
            a = self.find(arg.array)
            if not isinstance(a, Array):
                fail(self.k, f"{arg.array} is no array")
            count = p.size or 1
            if moved := re.search(r"(?:ldg|stg|lds|sts)(\d+)", c.name):
                count = max(1, int(moved[1]) // BYTES[a.type])
            if c.name == "dd_pin":
                count = c.template[0]
            self.registers(arg.array, arg.index, count)
            wanted = p.type.removeprefix("const ").rstrip("*")
            if wanted != "T" and wanted != a.type:
                fail(self.k, f"{text(c)}: {p.name} is to be {wanted}, and {arg.array} is {a.type}")
        elif "TensorMap" in p.type and not isinstance(arg, MapAddress):
            fail(self.k, f"{text(c)}: {p.name} is to be a tensor map")
        elif p.type in ("void*", "const void*"):
            if not isinstance(arg, Pointer):
                fail(self.k, f"{text(c)}: {p.name} is to be an address in global memory")
            if (p.type == "void*") != (arg.buffer in self.k.written):
                fail(self.k, f"{text(c)}: a kernel reads its inputs and writes its outputs, never the other way round")


# ---- who meets whom --------------------------------------------------------------------------------------------------

class _Meeting:
    def __init__(self, k: Kernel):
        self.k = k
        self.level: dict[str, int] = {**GIVEN, **{s.name: BLOCK for s in k.spans}}

    def check(self) -> None:
        self.block(self.k.body, BLOCK, None)

    def agreed(self, e: Expr) -> int:
        match e:
            case Name(n, _): return self.level.get(n, THREAD)
            case Binary("/", Name("warp"), Int(n)) if n % 4 == 0: return WARPGROUP
            case Element() | Address(): return THREAD
            case Call("dd_shared"): return BLOCK
            case Call("dd_uniform"): return WARP
            case Call(n) if n.startswith("dd_shfl"): return THREAD
        return min([self.agreed(x) for x in operands(e)], default=BLOCK)

    def block(self, stmts: tuple[Stmt, ...], control: int, role: int | None) -> None:
        for s in stmts:                                  # variables change: as far as all their values agree
            if isinstance(s, Set) and isinstance(s.target, Name):
                n = s.target.name
                self.level[n] = min(self.level.get(n, BLOCK), self.agreed(s.value), control)
        for s in stmts:
            match s:
                case Let(n, _, v) | Variable(n, _, v):
                    self.level[n] = min(self.level.get(n, BLOCK) if isinstance(s, Variable) else BLOCK, self.agreed(v))
                case Do(c): self.meets(c, control, role)
                case If(test, body): self.block(body, min(control, self.agreed(test)), role)
                case Loop(n, low, high, step, body, _):
                    self.level[n] = min(map(self.agreed, (low, high, step)))
                    self.block(body, min(control, self.level[n]), role)
                case Roles(n, body, producer):
                    if control != BLOCK or role is not None:
                        fail(self.k, "roles are taken once, by the whole block")
                    self.block(body, BLOCK, n)
                    self.block(producer, BLOCK, self.k.threads - n)
            for e in expressions(s):
                self.inside(e, control, role, s)

    def inside(self, e: Expr, control: int, role: int | None, s: Stmt) -> None:
        if isinstance(e, Call) and e.name.startswith("dd_") and not (isinstance(s, Do) and s.call is e):
            self.meets(e, control, role)
        for x in operands(e):
            self.inside(x, control, role, s)

    def meets(self, c: Call, control: int, role: int | None) -> None:
        scope = primitive(c.name).scope
        if scope == "named":
            threads = c.args[1].value if isinstance(c.args[1], Int) else 0
            whole = role if role is not None else self.k.threads
            need = BLOCK if threads == whole else WARPGROUP if threads == 128 else None
            if need is None:
                fail(self.k, f"{text(c)}: neither {whole} threads nor a warpgroup")
        else:
            need = NEEDS[scope]
            if scope == "block" and role is not None:
                fail(self.k, f"{text(c)} inside a role: the other role never reaches it")
        if control < need:
            fail(self.k, f"{text(c)}: not all threads that must meet there agree on whether they reach it")


# ---- shared memory ---------------------------------------------------------------------------------------------------

def _role_texts(k: Kernel) -> list[tuple[Stmt, ...]]:
    """The program as one role sees it: with roles, the consumers', who read whatever the producer fills."""
    def consumers(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in stmts:
            match s:
                case Roles(_, body, _): out += consumers(body)
                case If(test, body): out.append(If(test, consumers(body)))
                case _: out.append(s)
        return tuple(out)
    return [consumers(k.body)]


def _spans(k: Kernel, body: tuple[Stmt, ...]) -> None:
    """Each span lives from its first mention to its last, and through every loop that mentions it. A condition
    around mentions, as of a part's blocks, makes it no longer."""
    source = _sources(k, body)
    life: dict[str, tuple[int, int]] = {}
    clock = 0

    def live(names: set[str], first: int, last: int) -> None:
        for n in names:
            a, b = life.get(n, (first, last))
            life[n] = (min(a, first), max(b, last))

    def visit(stmts: tuple[Stmt, ...]) -> set[str]:
        nonlocal clock
        seen: set[str] = set()
        for s in stmts:
            clock += 1
            start = clock
            mine = set().union(*(_mentions(e, source) for e in expressions(s)))
            live(mine, start, start)
            for inner in bodies(s):
                mine |= visit(inner)
            if isinstance(s, Loop):
                clock += 1
                live(mine, start, clock)
            seen |= mine
        return seen

    visit(body)
    spans = [s for s in k.spans if s.name in life]
    for s in k.spans:
        if s.offset < 0 or s.offset + s.bytes > k.shared:
            fail(k, f"{s.name} at {s.offset}..{s.offset + s.bytes} lies outside of {k.shared} bytes")
    for i, s in enumerate(spans):
        for t in spans[:i]:
            (a, b), (c, d) = life[s.name], life[t.name]
            if s.offset < t.offset + t.bytes and t.offset < s.offset + s.bytes and a <= d and c <= b:
                fail(k, f"{s.name} and {t.name} overlap in memory while both are in use")


def _sources(k: Kernel, body: tuple[Stmt, ...]) -> dict[str, set[str]]:
    """The spans behind each name."""
    source = {s.name: {s.name} for s in k.spans}
    for s in walk(body):
        if isinstance(s, Let):
            source[s.name] = _mentions(s.value, source)
    return source


def _mentions(e: Expr, source: dict[str, set[str]]) -> set[str]:
    found = set(source.get(e.name, ())) if isinstance(e, Name) else set()
    return found.union(*(_mentions(x, source) for x in operands(e)))


Event = tuple[str, set[str], str, list]
"""("fill" | "wait" | "meet" | "read" | "loop", spans, text of the call, events of a loop)."""


def _copies(k: Kernel, body: tuple[Stmt, ...]) -> None:
    """Spans that cp.async writes: `open` until waited for, then `landed` in this thread only, until the threads meet.

    A span of several slots may be open again, for a later round, while it is read: it was clean in this round before.
    """
    open_: set[str] = set()
    landed: set[str] = set()
    clean: set[str] = set()

    def visit(events: list[Event]) -> None:
        nonlocal open_, landed, clean
        for kind, spans, call_text, inner in events:
            match kind:
                case "fill": open_ |= spans
                case "wait": open_, landed = set(), landed | open_
                case "meet": landed, clean = set(), clean | landed
                case "read":
                    for n in spans & (open_ | landed) - clean:
                        fail(k, f"{call_text} reads {n}, which cp.async fills, " + (
                            "before a wait for it" if n in open_ else "before the threads have met"))
                case "loop":                             # twice: what a round leaves open is open in the next
                    for _ in range(2):
                        if any(e[0] == "wait" for e in inner):
                            clean -= spans
                        visit(inner)

    visit(_events(body, _sources(k, body)))


def _events(stmts: tuple[Stmt, ...], source: dict[str, set[str]]) -> list[Event]:
    """What matters to copies. A loop's spans are those it fills."""
    out: list[Event] = []
    for s in stmts:
        for c in _calls(s):
            if c.name.startswith("dd_copy") or c.name.startswith("dd_cp_async") and c.args:
                out.append(("fill", _mentions(c.args[0], source), "", []))
            elif c.name == "dd_cp_async_wait":
                out.append(("wait", set(), "", []))
            elif c.name in ("dd_sync", "dd_bar"):
                out.append(("meet", set(), "", []))
            elif c.name.startswith(("dd_lds", "dd_ldmatrix", "dd_descriptor")):
                where = c.args[0] if c.name == "dd_descriptor" else c.args[-1]
                out.append(("read", _mentions(where, source), text(c), []))
        for inner in bodies(s):
            events = _events(inner, source)
            if not isinstance(s, Loop) or all(e[0] == "read" for e in events):
                out += events
            else:
                out.append(("loop", _filled(events), "", events))
    return out


def _filled(events: list[Event]) -> set[str]:
    return set().union(*(e[1] for e in events if e[0] in ("fill", "loop")))


def _calls(s: Stmt) -> list[Call]:
    """The calls in a statement's own expressions."""
    found, stack = [], list(expressions(s))
    while stack:
        e = stack.pop()
        if isinstance(e, Call):
            found.append(e)
        stack.extend(operands(e))
    return found
