"""Schedule laws: the joins that egglog makes are those that enumeration makes; every row offered can be lowered; the index
maps of tiles visit every point once."""
import itertools
from dataclasses import replace

import pytest
import torch

import extract.schedule
from deplodock.capture import capture_code, capture_module
from deplodock.join import Joins
from deplodock.lower.structure import axes_of
from deplodock.lower.kernel import legal
from deplodock.pipeline import Region, compile
from deplodock.target import target
from extract.schedule import DOMAINS, RELATIONS, offers
from extract.shape import Shape
from rules import schedule as laws
from tests.lowering.cases import Case
from tests.lowering.running import cuda, run

PROGRAMS = {
    "points": "F.silu(torch.randn(5, 70)) * torch.randn(5, 70)",
    "rows": "F.rms_norm(torch.randn(9, 130), (130,), torch.randn(130))",
    "whole": "torch.randn(3, 50).sum()",
    "mma": "torch.randn(40, 96).bfloat16() @ torch.randn(96, 72).bfloat16()",
    "fma": "torch.randn(40, 33) @ torch.randn(33, 17)",
    "attention": "F.scaled_dot_product_attention(*(torch.randn(1, 4, 48, 16).half() for _ in range(3)), is_causal=True)",
    "attention to a column": "F.scaled_dot_product_attention(torch.randn(3, 2, 2).half(), torch.randn(3, 8, 2).half(), "
                             "torch.randn(3, 8, 1).half(), is_causal=True)",
    "attention32": "F.scaled_dot_product_attention(*(torch.randn(1, 2, 40, 24) for _ in range(3)))",
    "scores computed again": "(torch.randn(8, 16) @ torch.randn(16, 8) @ torch.randn(8, 13)).softmax(-1)",
}
FACTS = [laws.machine(20_000, 128), laws.product("a", 40, 17, 33, 1, 1, 1, 4), laws.product("b", 96, 200, 64, 2, 1, 2, 2),
         laws.chained("c", 48, 40, 16, 24, 2), laws.chained("d", 48, 40, 16, 24, 4), laws.rows("e", 9, 130, 1, 4),
         laws.points("f", 5, 70, 2), laws.rows("g", 2, 300_000, 0, 4), laws.nest("h", 5)]


def joined() -> Joins:
    joins = Joins((*RELATIONS, *(d.relation for d in DOMAINS)))
    for d in DOMAINS:
        for v in d.values:
            joins.fact(d(v))
    for f in FACTS:
        joins.fact(f)
    joins.run(laws.STEPS)
    return joins


def enumerated() -> dict[str, set]:
    """The same by nested loops in Python."""
    rows: dict[str, set] = {r.name: set() for r in RELATIONS} | {d.name: {(v,) for v in d.values} for d in DOMAINS}
    for f in FACTS:
        rows[f.relation.name].add(f.args)
    for s in laws.STEPS:
        j = s.join()
        bindings = [{}]
        for premise in j.premises:
            bindings = [new for b in bindings for row in rows[premise.relation.name]
                        if (new := bound(premise.args, row, b)) is not None]
        for b in bindings:
            if all(g.value(b) for g in j.guards):
                rows[j.head.relation.name].add(tuple(b[a.op] if a.op in b else a.value(b) for a in j.head.args))
    return rows


def bound(args, row, binding):
    new = dict(binding)
    for a, v in zip(args, row):
        if isinstance(a, int):
            if a != v:
                return None
        elif new.setdefault(a.op, v) != v:
            return None
    return new


def test_egglog_joins_what_enumeration_joins():
    joins, rows = joined(), enumerated()
    for relation in laws.WHOLE:
        assert joins.rows(relation) == sorted(rows[relation.name]), relation.name
        assert rows[relation.name], f"no law adds a row to {relation.name} here"


def test_every_law_fires_and_names_its_equation():
    hits = joined().hits
    assert set(hits) == {s.name for s in laws.STEPS} and all(hits.values()), hits
    assert all(s.equation for s in laws.STEPS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_offered_schedules_can_be_lowered(name):
    """Legality is in the guards: of the rows offered for a kernel, none is refused."""
    compilation = compile(capture_code(PROGRAMS[name]), target("h200")).region
    (kernel,) = compilation.extraction.plans[0].kernels
    shape = Shape.of(axes_of(kernel, compilation.facts), kernel.name)
    joins = Joins((*RELATIONS, *(d.relation for d in DOMAINS)))
    for d in DOMAINS:
        for v in d.values:
            joins.fact(d(v))
    joins.fact(laws.machine(target("h200").shared, 128))
    joins.fact(shape.fact)
    joins.run(laws.STEPS)
    rows = [(r, row) for r in laws.WHOLE for row in joins.rows(r)]
    assert rows
    refused = {}
    for relation, row in rows[::max(1, len(rows) // 40)]:
        reason = legal(replace(kernel, schedule=shape.knobs(relation, row)), compilation.facts)
        if reason:
            refused[row] = reason
    assert not refused, refused


def region_of(code: str) -> Region:
    return compile(capture_code(code), target("h200")).region


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_kernel_that_no_other_law_serves_computes_a_point_a_thread(name):
    """Whatever its loops are: products, chains of them, rows."""
    region = region_of(PROGRAMS[name])
    (kernel,) = region.extraction.plans[0].kernels
    found = offers(region.extraction.plans[0], region.facts, region.target, plain=True)[kernel.name]
    assert found and {o.family for o in found} == {"serial"}
    assert all(legal(replace(kernel, schedule=o.knobs), region.facts) is None for o in found)
    if name in ("rows", "fma", "attention to a column"):
        assert wrong(kernel, found[0].knobs, region.facts) == []


def test_the_pipeline_falls_back_to_it(monkeypatch):
    """Where no other schedule can be lowered: here, none with vectors."""
    monkeypatch.setattr(extract.schedule, "_spread", lambda *of: lambda knobs: not any("vec" in k for k, _ in knobs))
    kernels = region_of(PROGRAMS["rows"]).plan.kernels
    assert {knob.split(".")[0] for k in kernels for knob, _ in k.schedule} == {"tile", "lanes"}


@pytest.mark.parametrize("code", ["torch.randn(300_000).sum()", "torch.randn(2, 300_000).softmax(-1)",
                                  "torch.randn(2, 1_000_000).var(-1)"])
def test_rows_longer_than_a_block_keeps_are_read_in_chunks(code):
    region = region_of(code)
    folds = [k for k in region.plan.kernels if Shape.of(axes_of(k, region.facts), k.name).fact.relation is laws.rows]
    assert folds and all(dict(k.schedule)[n] < 300_000 for k in folds for n, _ in k.schedule if n.startswith("tile.k"))


def test_kernels_of_constants_have_one_too(monkeypatch):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.v = torch.nn.Parameter(torch.randn(300_000)), torch.nn.Parameter(torch.randn(6, 7))

        def forward(self, x):
            return x * self.w.sum() + (self.v @ self.v.T).sum()
    monkeypatch.setattr(extract.schedule, "_spread", lambda *of: lambda knobs: not any("vec" in k for k, _ in knobs))
    once = compile(capture_module(Scaled(), (torch.randn(3),)), target("h200")).plan.once
    assert once and all(k.schedule for k in once)


def test_chunks_of_rows_add_up():
    region = region_of("torch.randn(3, 700).softmax(-1).square().sum(-1)")
    (kernel,) = region.extraction.plans[0].kernels
    shape = Shape.of(axes_of(kernel, region.facts), kernel.name)
    assert wrong(kernel, shape.knobs(laws.row_chunks, (kernel.name, 2, 32, 4)), region.facts) == []


def wrong(kernel, knobs, facts) -> list[str]:
    """What an emulated kernel gets wrong under a schedule."""
    case = Case(replace(kernel, schedule=knobs), facts)
    return run(case, cuda(case))


def test_tiles_visit_every_point_once():
    """blockify and chunk_k: i = io·b + ii under the guard i < n, for every extent and tile."""
    for n, b in itertools.product(range(1, 41), range(1, 17)):
        points = [io * b + ii for io in range(-(-n // b)) for ii in range(b) if io * b + ii < n]
        assert points == list(range(n))


def test_register_tiles_cover_a_block():
    """register_tile: rows a·4 lanes·warps + .., a bijection onto the tile."""
    for fm, wm in itertools.product((1, 2, 4, 8), (1, 2, 4)):
        rows = sorted(r * 4 * wm + w * 4 + l for r in range(fm) for w in range(wm) for l in range(4))
        assert rows == list(range(fm * 4 * wm))
