"""Extraction: from the e-graph of a program to plans of kernels, the cheapest first.

    candidates   every kernel that is feasible and worth having (extract/kernels.py), at its cost (extract/cost.py)
    cover        the cheapest sets of them that compute the outputs (extract/cover.py)
    plan         the same as plain data: buffers, constants and their kernels, names after the user's program
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Sequence

from deplodock.errors import NoKernel
from deplodock.ir.egraph import EGraph
from deplodock.ir.loop import Buffer, Cast, Fold, Launch, Load, children, dtype, loads, rebuilt
from deplodock.ir.plan import Kernel, Output, Plan
from deplodock.ir.show import Text, counted, signature
from deplodock.ir.term import Term
from deplodock.target import Target
from extract.cost import Cost, cost, size
from extract.cover import Cover, count, cover
from extract.kernels import BEST, Candidate, Search, Statistics, as_spelled, candidates
from extract.naming import identifier, kernel_name, renamed, unique
from extract.program import Program
from extract.structure import folds, tops


class Statement(Protocol):
    """One primitive step of the user's program, as entering it has named it (deplodock/enter.py)."""
    name: str
    launch: Launch
    node: str
    op: str
    source: object


class Result(Protocol):
    tensor: Term


class Entered(Protocol):
    """What extraction reads of an entered program."""
    inputs: tuple[Buffer, ...]
    parameters: tuple[Buffer, ...]
    statements: Sequence[Statement]
    outputs: Sequence[Result]


@dataclass(frozen=True)
class Extraction:
    """plans: best first. candidates: the kernels that plans are made of. covers: the same plans, over candidates."""
    plans: tuple[Plan, ...]
    covers: tuple[Cover, ...]
    candidates: tuple[Candidate, ...]
    program: Program
    entered: Entered
    target: Target
    statistics: Statistics
    refused: frozenset[tuple[str, ...]] = frozenset()
    """Keys of the kernels that `without` has dropped."""

    def fewest(self) -> Plan:
        """The plan of fewest kernels among the candidates, whatever the costs prefer."""
        found = cover(stored(self.program), self.candidates, self.program.rank, 1, count)
        return _Planner(self.program, self.entered, self.target, self.statistics).plan(found[0], self.candidates)

    def without(self, *kernels: str, spelled: bool = False) -> "Extraction":
        """The same, had the kernels of these names in the best plan not been candidates. KeyError if none has such a
        name; NoKernel if nothing else computes what they do, not even as the program itself spells it.

        spelled: no other way than the program's own is left to compute what they do, and what that reads.
        """
        names = [k.name for k in self.plans[0].kernels]
        dropped = {self.covers[0].kernels[names.index(n)] for n in kernels if n in names}
        if not dropped:
            raise KeyError(kernels)
        refused = self.refused | {k.key for k in dropped}
        made = frozenset().union(*(k.names for k in dropped))
        left = [k for k in self.candidates if k not in dropped]
        own = [k for k in as_spelled(self.program, self.target) if k.key not in refused]
        for k in reversed(own):  # what it reads comes before it
            made |= k.need if made & k.names else frozenset()
        known, spelling = {k.key for k in left}, {k.key for k in own}
        more = left + [k for k in own if k.key not in known]
        for found in ([k for k in more if not made & k.names or k.key in spelling] if spelled else left, left, more):
            try:
                return _covered(self.program, tuple(found), self.entered, self.target, self.statistics, refused)
            except NoKernel as error:
                missing = error
        raise missing

    def __str__(self) -> str:
        return report(self)


def extract(saturation, entered: Entered, target: Target, numerics: str = "default") -> Extraction:
    """The cheapest plans of a saturated program on a target, kernels not scheduled yet.

    saturation: has the frozen `egraph`. numerics: under strict no operand is rounded for a tensor core.
    """
    return extract_from(saturation.egraph, entered, target, numerics)


def extract_from(egraph: EGraph, entered: Entered, target: Target, numerics: str = "default",
                 best: int = BEST) -> Extraction:
    """As extract(), from an e-graph alone. best: partial bodies kept of each kind."""
    program = Program(egraph, tuple(r.tensor for r in entered.outputs), entered.inputs + entered.parameters,
                      rounds=numerics != "strict")
    search = Search(program, target, best)
    search.run()
    return _covered(program, tuple(candidates(program, search)), entered, target, search.statistics)


def _covered(program: Program, found: tuple[Candidate, ...], entered: Entered, target: Target,
             statistics: Statistics, refused: frozenset[tuple[str, ...]] = frozenset()) -> Extraction:
    covers = tuple(cover(stored(program), found, program.rank))
    planner = _Planner(program, entered, target, statistics)
    if not covers:
        made = frozenset().union(*(k.names for k in found))
        missing = next((b for b in stored(program) if b not in made), program.targets[0])
        raise NoKernel(tensor=planner.name(missing))
    plans = tuple(planner.plan(c, found) for c in covers)
    return Extraction(plans, covers, found, program, entered, target, statistics, refused)


def stored(program: Program) -> list[Buffer]:
    """The targets that some kernel must write: not inputs that are returned as they are, nor tensors without elements.
    """
    return [b for b in dict.fromkeys(program.targets) if b in program.rank and size(b)]


class _Planner:
    """Turns covers into plans: real buffers, constants and the kernels that compute them, names."""

    def __init__(self, program: Program, entered: Entered, target: Target, statistics: Statistics):
        self.program, self.entered, self.target, self.statistics = program, entered, target, statistics
        self.statement: dict[Buffer, Statement] = {}
        for s in entered.statements:
            b = program.buffers.get(program.egraph.number.get(s.launch, -1))
            if b is not None:
                self.statement.setdefault(b, s)

    def plan(self, chosen: Cover, found: Sequence[Candidate]) -> Plan:
        p = self.program
        self.taken = {b.name for b in self.entered.inputs + self.entered.parameters}
        self.kernel_names: set[str] = set()
        self.buffers = dict(p.real)
        for b in dict.fromkeys([*(b for k in chosen.kernels for b in p_order(p, k.names)), *p.targets]):
            self._stored(b)
        self.once: list[Kernel] = []
        self.made: dict[Buffer, Buffer] = {}
        for k in chosen.kernels:
            for b in sorted(k.reads, key=lambda b: b.name):
                if b in p.constants:
                    self._constant(b)
        kernels = tuple(self._kernel(k) for k in chosen.kernels)
        note = "optimal" if chosen.optimal else f"within {chosen.gap:.1%} of the optimum"
        if self.statistics.cut_short:
            note = "the search for candidates was cut short; " + note
        return Plan(self.entered.inputs, self.entered.parameters, tuple(self.once), kernels,
                    tuple(self.buffers[b] for b in p.targets), chosen.optimal,
                    (f"{note} among {len(found)} candidate kernels, under the costs for {self.target.name}",))

    def name(self, b: Buffer) -> str:
        """What the user's program calls a stored tensor."""
        s = self.statement.get(b)
        return identifier(s.name) if s else b.name

    def _stored(self, b: Buffer) -> None:
        if b not in self.buffers:
            self.buffers[b] = Buffer(unique(self.name(b), self.taken), b.dtype, b.axes, b.kind)

    # ---- constants ---------------------------------------------------------------------------------------------------

    def _constant(self, b: Buffer) -> None:
        """The kernel that computes a constant; folds inside folds become constants of their own, so that each is one
        loop nest."""
        if b in self.buffers:
            return
        o = self.program.constants[b]
        body = self._flattened(o.body)
        operands = {l.tensor for l in loads(o.body) if l.tensor in self.program.real}
        largest = max(operands, key=lambda x: (size(x), x.name), default=None)
        name = f"folded_{identifier(self.program.real[largest].name)}" if largest else "folded"
        made = Buffer(unique(name, self.taken), o.buffer.dtype, o.buffer.axes, "constant")
        self.buffers[b] = made
        self._once(Output(made, o.axes, body), f"k_{name}")

    def _flattened(self, body: Term) -> Term:
        below = children(body)
        if isinstance(body, Fold):
            body = rebuilt(body, [self._without_folds(self._flattened(c)) for c in below])
        elif below:
            body = rebuilt(body, map(self._flattened, below))
        return body

    def _without_folds(self, body: Term) -> Term:
        """A body whose folds are read from constants of their own."""
        for f in tops(body):
            axes = tuple(sorted(f.free, key=lambda a: a.name))
            made = Buffer(unique("folded_part", self.taken), dtype(f), axes, "constant")
            self._once(Output(made, axes, f), "k_fold_part")
            body = _replaced(body, f, Load(made, tuple(a + 0 for a in axes)))
        return body

    def _once(self, out: Output, name: str) -> None:
        outs = renamed((out,), self.buffers)
        priced = cost(((frozenset(outs[0].axes), outs[0].body),), size(out.buffer), self.target)
        seconds = priced.seconds if isinstance(priced, Cost) else 0.0
        self.once.append(Kernel(unique(name, self.kernel_names), outs, cost=seconds))

    # ---- kernels -----------------------------------------------------------------------------------------------------

    def _kernel(self, k: Candidate) -> Kernel:
        computed = self._computed(k)
        steps = [(s.op, bool(folds(s.launch.body))) for s in computed if not _moves(s.launch.body)]
        name = unique(kernel_name(steps)[:56], self.kernel_names)
        lines = dict.fromkeys(f"{s.node} = {s.op}" + (f"  # {s.source}" if s.source else "") for s in computed)
        return Kernel(name, renamed(k.outs, self.buffers), cost=k.seconds, source=tuple(lines))

    def _computed(self, k: Candidate) -> list[Statement]:
        """The steps of the user's program that a kernel does, in program order."""
        p = self.program
        found: set[Term] = set()
        stack = [p.source[b] for b in k.names]
        while stack:
            t = stack.pop()
            if t in found:
                continue
            found.add(t)
            for l in loads(t.body):
                number = p.egraph.number.get(l.tensor)
                if isinstance(l.tensor, Launch) and p.buffers.get(number) not in k.reads:
                    stack.append(l.tensor)
        return [s for s in self.entered.statements if s.launch in found]


def _moves(body: Term) -> bool:
    """Whether a step only moves data, or changes its dtype."""
    return isinstance(body.body if isinstance(body, Cast) else body, Load)


def p_order(p: Program, buffers) -> list[Buffer]:
    return sorted(buffers, key=lambda b: p.rank[b])


def _replaced(body: Term, old: Term, new: Term) -> Term:
    if body is old:
        return new
    below = children(body)
    return rebuilt(body, [_replaced(c, old, new) for c in below]) if below else body


def report(x: Extraction) -> str:
    """What the best plan runs: each kernel with its estimate and what bounds it, what it reads, and what it computes.
    """
    plan, chosen = x.plans[0], x.covers[0]
    text = Text()
    total = f"{chosen.total * 1e6:.1f} us estimated on {x.target.name}"
    lines = [f"{counted(len(plan.kernels), 'kernel')}, {total}; {'; '.join(plan.notes)}"]
    for k, c in zip(plan.kernels, chosen.kernels):
        how = "one block sweeps each row" if c.cost.sweep is not None else "one block a tile"
        reads = ", ".join(b.name for b in k.reads)
        lines.append(f"{k.name}: {k.cost * 1e6:.1f} us, bound by {c.cost.bound}, {how}; reads {reads}")
        lines += _outputs(k, text)
    for k in plan.once:
        lines += [f"once {k.name}:", *_outputs(k, text)]
    if len(x.covers) > 1:
        others = ", ".join(f"{counted(len(c.kernels), 'kernel')} in {c.total * 1e6:.1f} us" for c in x.covers[1:])
        lines.append(f"next best: {others}")
    return "\n".join(lines)


def _outputs(k: Kernel, text: Text) -> list[str]:
    return [f"  {o.buffer.name}: {signature(o.axes, o.buffer.dtype)} = {text.term(o.body)}" for o in k.outs]
