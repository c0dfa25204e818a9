"""The search for candidates: what it leaves out costs nothing, and what laws make takes part."""
from __future__ import annotations

import pytest

import extract.kernels
import extract.program
from deplodock.errors import NoKernel
from deplodock.ir.dtype import bf16, f32
from deplodock.ir.index import Axis
from deplodock.ir.loop import Buffer, Launch, cast, fold, load
from deplodock.target import target
from extract import check
from extract.cover import count, cover
from extract.extract import stored
from extract.kernels import Search, as_spelled, candidates
from extract.program import Program
from tests.extract.handmade import Handmade
from tests.extract.support import saturated
from tests.extract.test_suite import PROGRAMS

H200 = target("h200")
M, N, K = Axis("m", 64), Axis("n", 48), Axis("k", 4096)


class Everything(Program):
    """A program every tensor of which may be stored."""

    def _storable(self):
        return set(self.own)


class Thorough(Search):
    """A search that drops no body because another is better."""

    @staticmethod
    def beats(*_):
        return False


@pytest.mark.parametrize("name", [
    "pointwise", "silu_mul", "matmul_add", "silu_mul_matmul", "rms_norm", "layer_norm", "softmax", "two_products",
    "residual", "column_scale", "two_outputs", "self_attention"])
def test_an_exhaustive_search_finds_nothing_cheaper(name, monkeypatch):
    """Every tensor may be stored, every class may be read from every tensor that holds it, and no body is dropped."""
    s = saturated(PROGRAMS[name])
    usual = s.extract()
    monkeypatch.setattr(extract.program, "LEAVES", 99)
    e = s.entered
    program = Everything(s.egraph, tuple(r.tensor for r in e.outputs), e.inputs + e.parameters, rounds=True)
    search = Thorough(program, H200, best=10_000)
    search.run()
    found = candidates(program, search)
    assert len(found) >= len(usual.candidates)
    best = cover(stored(program), found, program.rank)[0]
    assert best.total == pytest.approx(usual.covers[0].total, rel=1e-9)


def test_a_launch_that_a_law_made_is_a_candidate():
    """Row sums in two steps: partial sums over chunks, which the program does not have, and their sum."""
    chunk, rest = Axis("k.0", 64), Axis("k.1", 64)
    x = Buffer("x", f32, (M, chunk, rest), "input")
    total = Launch((M,), fold("sum", (chunk, rest), (load(x, M, chunk, rest),)))
    part = Launch((M, chunk), fold("sum", (rest,), (load(x, M, chunk, rest),)))
    h = Handmade()
    h.add(total)
    h.add(part)
    h.equal(total.body, fold("sum", (chunk,), (load(part, M, chunk),)))
    program = Program(h.freeze(made=[part]), (total,), (x,))
    assert [program.rank[b] for b in program.own] == sorted(program.rank[b] for b in program.own)
    search = Search(program, H200)
    search.run()
    found = candidates(program, search)
    partial = next(b for b in program.own if b not in program.targets)
    assert any(partial in k.need for k in found) and any(partial in k.names for k in found)
    source = check.source(program)
    assert check.wrong_candidates(source, found, check.arguments(source)) == []


def test_a_cast_down_and_up_again_is_not_a_way_to_compute_a_value():
    """Where cast(f32, cast(bf16, b)) = b, a class holds both: no candidate rounds what it needs not."""
    x, w = Buffer("x", bf16, (M, K), "input"), Buffer("w", bf16, (N, K), "input")
    product = fold("sum", (K,), (cast(f32, load(x, M, K)) * cast(f32, load(w, N, K)),))
    y = Launch((M, N), cast(bf16, product))
    z = Launch((M, N), cast(bf16, cast(f32, load(y, M, N)) + cast(f32, load(y, M, N))))
    h = Handmade()
    h.add(z)
    h.equal(cast(f32, load(y, M, N)), product)
    program = Program(h.freeze(), (z,), (x, w), rounds=True)
    search = Search(program, H200)
    search.run()
    found = candidates(program, search)
    assert not any("bf16(" in str(o.body)[5:] for k in found for o in k.outs)
    fewest = cover(stored(program), found, program.rank, 1, count)[0]
    assert len(fewest.kernels) == 1


@pytest.mark.parametrize("code", [
    "x, y = torch.randn(13, 29), torch.randn(13, 29); v = F.layer_norm(x, [29]); v, F.softmax((v - y) * (v - y), 0)[2:]"])
def test_a_kernel_reads_a_tensor_wherever_it_needs_its_values(code):
    """Where exp(s - max s) has its s from a stored tensor here, and computes it again there, their roundings show."""
    x = saturated(code).extract()
    norm, = (b for b in stored(x.program) if x.program.source[b].body.free == frozenset(b.axes) and b.axes[0].extent == 13)
    given = next(b for b, real in x.program.real.items() if real.name == "x")
    reading = [k for k in x.candidates if norm in k.need]
    assert reading and not any(given in k.reads for k in reading)


@pytest.mark.parametrize("limit, combinations", [("COMBINATIONS", 0), ("COMBINATIONS", 20), ("COMBINATIONS", 200), ("BODIES", 50)])
@pytest.mark.parametrize("program", ["mlp", "rotary"])
def test_a_search_cut_short_still_covers_and_says_so(monkeypatch, program, limit, combinations):
    monkeypatch.setattr(extract.kernels, limit, combinations)
    s = saturated(PROGRAMS[program])
    x = s.extract()
    assert "cut short" in x.plans[0].notes[0]
    source = check.source(x.program)
    assert check.wrong_outputs(source, x.covers[0].kernels, check.arguments(source)) == []


def test_a_kernel_that_cannot_be_scheduled_is_left_out():
    x = saturated(PROGRAMS["two_products"]).extract()
    first = x.plans[0].kernels[0].name
    other = x.without(first)
    assert len(other.candidates) == len(x.candidates) - 1
    assert other.covers[0].total >= x.covers[0].total
    with pytest.raises(KeyError):
        x.without("k_nothing_of_that_name")


def test_what_the_program_spells_is_left_when_nothing_else_is():
    x = saturated(PROGRAMS["two_products"]).extract()
    own = {k.key for k in as_spelled(x.program, x.target)}
    with pytest.raises(NoKernel) as error:
        while True:
            x = x.without(*(k.name for k in x.plans[0].kernels))
            assert not x.refused & {k.key for k in x.candidates}
    assert own & {k.key for k in x.covers[0].kernels}
    assert "no kernel computes" in str(error.value)


def test_only_what_the_program_spells_is_left_of_what_has_no_schedule():
    x = saturated("torch.randn(6, 8).softmax(-1) @ torch.randn(8, 5)").extract()
    own = {k.key for k in as_spelled(x.program, x.target)}
    (kernel,) = x.plans[0].kernels
    assert x.covers[0].kernels[0].key not in own
    only = x.without(kernel.name, spelled=True)
    assert len(only.covers[0].kernels) > 1 and {k.key for k in only.covers[0].kernels} <= own
