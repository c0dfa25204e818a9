"""The slab: what is alive together never overlaps, and what is not shares addresses."""
from __future__ import annotations

from hypothesis import given, settings, strategies as st

from deplodock.ir.dtype import Dtype
from deplodock.ir.index import Axis
from deplodock.ir.loop import Buffer, load
from deplodock.ir.plan import Kernel, Output
from deplodock.runtime.memory import ALIGNMENT, plan_slab, size_of


def kernel(name: str, reads: list[Buffer], writes: list[Buffer]) -> Kernel:
    """A kernel of which only what it reads and writes matters: each output is the sum of all inputs."""
    body = load(reads[0], *reads[0].axes)
    for r in reads[1:]:
        body = body + load(r, *r.axes)
    return Kernel(name, tuple(Output(w, w.axes, body) for w in writes))


def buffer(name: str, n: int, kind: str = "stored") -> Buffer:
    return Buffer(name, Dtype.f32, (Axis("n", n),), kind)


def test_a_chain_needs_room_for_two():
    x, *b = buffer("x", 1024, "input"), *(buffer(f"b{i}", 1024) for i in range(6))
    chain = [kernel(f"k{i}", [before], [after]) for i, (before, after) in enumerate(zip([x, *b], b))]
    slab = plan_slab(tuple(chain), frozenset({"b5"}))
    assert slab.size == 2 * 4096
    assert set(slab.places) == set(b[:5])


def test_outputs_and_inputs_are_not_in_the_slab():
    x, y = buffer("x", 8, "input"), buffer("y", 8, "output")
    slab = plan_slab((kernel("k", [x], [y]),), frozenset({"y"}))
    assert slab.places == {} and slab.size == 0


def test_sizes_of_dtypes_and_empty_buffers():
    assert size_of(Buffer("b", Dtype.bf16, (Axis("m", 3), Axis("n", 5)), "stored")) == 30
    assert size_of(Buffer("b", Dtype.f32, (), "stored")) == 4
    assert size_of(Buffer("b", Dtype.f32, (Axis("m", 0),), "stored")) == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5000), st.lists(st.integers(0, 30), max_size=3)), min_size=1, max_size=10))
def test_buffers_alive_together_never_overlap(steps):
    x = buffer("x", 8, "input")
    made: list[Buffer] = []
    kernels = []
    for i, (size, picks) in enumerate(steps):
        out = buffer(f"b{i}", size)
        kernels.append(kernel(f"k{i}", [made[p % len(made)] for p in picks] if made and picks else [x], [out]))
        made.append(out)
    slab = plan_slab(tuple(kernels), frozenset())
    alive: list[set[Buffer]] = []
    for at, k in enumerate(kernels):
        later = {b for q in kernels[at:] for b in q.reads}
        before = {b for q in kernels[:at + 1] for b in q.writes}
        alive.append(before & later | set(k.writes))
    for group in alive:
        spans = sorted((slab.places[b], slab.places[b] + size_of(b)) for b in group)
        assert all(a_end <= b_start for (_, a_end), (b_start, _) in zip(spans, spans[1:]))
    assert all(offset % ALIGNMENT == 0 for offset in slab.places.values())
    assert slab.size >= max(slab.places[b] + size_of(b) for b in made)
