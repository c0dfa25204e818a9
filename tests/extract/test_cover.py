"""The cover against every possible one, and against an integer program."""
from __future__ import annotations

import itertools
import random

import pytest

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis
from deplodock.ir.loop import Buffer
from extract.cover import count, cover, seconds

M = Axis("m", 8)


class Made:
    """A candidate as the cover sees it."""

    def __init__(self, names, need, cost):
        self.names, self.need, self.seconds = frozenset(names), frozenset(need), cost
        self.key = (tuple(sorted(b.name for b in self.names)), tuple(sorted(b.name for b in self.need)), cost)


def graph(seed: int, tensors: int = 7):
    """Random candidates over tensors in program order: each of one or two outputs, reading earlier tensors."""
    rng = random.Random(seed)
    buffers = [Buffer(f"t{i}", Dtype.f32, (M,), "stored") for i in range(tensors)]
    kernels = []
    for i, b in enumerate(buffers):
        for _ in range(rng.randint(1, 3)):
            reads = rng.sample(buffers[:i], min(i, rng.randint(0, 2)))
            kernels.append(Made([b], reads, rng.choice([1.0, 2.0, 3.0, 5.0])))
    for _ in range(3):
        i, j = sorted(rng.sample(range(tensors), 2))
        kernels.append(Made([buffers[i], buffers[j]], rng.sample(buffers[:i], min(i, 1)), rng.choice([2.0, 4.0, 6.0])))
    targets = {buffers[-1], rng.choice(buffers)}
    return buffers, kernels, targets


def is_cover(kernels, targets) -> bool:
    written = frozenset().union(*(k.names for k in kernels))
    return targets <= written and all(k.need <= written for k in kernels)


def exhaustive(kernels, targets, objective=seconds) -> float:
    return min(sum(map(objective, chosen)) for r in range(len(kernels) + 1)
               for chosen in itertools.combinations(kernels, r) if is_cover(chosen, targets))


@pytest.mark.parametrize("seed", range(30))
def test_as_good_as_every_other(seed):
    buffers, kernels, targets = graph(seed, tensors=5)
    rank = {b: i for i, b in enumerate(buffers)}
    best = cover(targets, kernels, rank)[0]
    assert best.optimal and is_cover(best.kernels, targets)
    assert best.total == pytest.approx(exhaustive(kernels, targets))
    fewest = cover(targets, kernels, rank, 1, count)[0]
    assert len(fewest.kernels) == round(exhaustive(kernels, targets, count) - sum(map(seconds, fewest.kernels)))


@pytest.mark.parametrize("seed", range(30, 50))
def test_as_good_as_the_integer_program(seed):
    highspy = pytest.importorskip("highspy")
    buffers, kernels, targets = graph(seed, tensors=12)
    h = highspy.Highs()
    h.silent()
    h.setOptionValue("mip_rel_gap", 1e-9)
    chosen = [h.addBinary(obj=k.seconds) for k in kernels]
    makes = {b: [x for x, k in zip(chosen, kernels) if b in k.names] for b in buffers}
    for b in targets:
        h.addConstr(sum(makes[b]) >= 1)
    for x, k in zip(chosen, kernels):
        for b in k.need:
            h.addConstr(sum(makes[b]) >= x)
    h.minimize()
    best = cover(targets, kernels, {b: i for i, b in enumerate(buffers)})[0]
    assert best.total == pytest.approx(h.getObjectiveValue())


@pytest.mark.parametrize("seed", range(10))
def test_runs_in_an_order_that_works(seed):
    buffers, kernels, targets = graph(seed)
    for plan in cover(targets, kernels, {b: i for i, b in enumerate(buffers)}):
        written = set()
        for k in plan.kernels:
            assert k.need <= written
            written |= k.names


def test_keeps_the_best_few_in_order():
    buffers, kernels, targets = graph(3, tensors=12)
    plans = cover(targets, kernels, {b: i for i, b in enumerate(buffers)}, plans=5)
    totals = [p.total for p in plans]
    assert len(plans) > 2 and totals == sorted(totals)
    assert len({frozenset(map(id, p.kernels)) for p in plans}) == len(plans)
    assert all(p.total == pytest.approx(sum(k.seconds for k in p.kernels)) for p in plans)


def test_outputs_that_straddle_another_kernel():
    """One kernel writes t0 and t2, of which t1 reads t0: it runs first, though its last output is made last."""
    t = [Buffer(f"t{i}", Dtype.f32, (M,), "stored") for i in range(4)]
    both, middle, last = Made([t[0], t[2]], [], 2.0), Made([t[1]], [t[0]], 1.0), Made([t[3]], [t[1], t[2]], 1.0)
    plan, = cover({t[3]}, [last, middle, both], {b: i for i, b in enumerate(t)})
    assert plan.kernels == (both, middle, last) and plan.total == 4.0


def test_a_search_cut_short_says_its_gap():
    """Of three tensors each kernel makes two: one and a half kernels would do."""
    t = [Buffer(f"t{i}", Dtype.f32, (M,), "stored") for i in range(4)]
    kernels = [Made(pair, [], 2.0) for pair in itertools.combinations(t[:3], 2)] + [Made(t[3:], t[:3], 1.0)]
    rank = {b: i for i, b in enumerate(t)}
    best = cover(t[3:], kernels, rank)[0]
    cut = cover(t[3:], kernels, rank, states=1)[0]
    assert best.optimal and best.total == 5.0
    assert is_cover(cut.kernels, set(t[3:])) and not cut.optimal
    assert cut.total * (1 - cut.gap) <= best.total <= cut.total


def test_nothing_to_compute_and_nothing_that_computes_it():
    t = Buffer("t0", Dtype.f32, (M,), "stored")
    assert cover([], [], {})[0].kernels == ()
    assert cover([t], [], {t: 0}) == []
