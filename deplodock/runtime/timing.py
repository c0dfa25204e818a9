"""Device and host time of calls on a GPU, several candidates side by side.

A candidate's calls are captured as one CUDA graph, and the replays of all candidates take turns in a shuffled order, so
that drift of the clocks hits all alike; the median counts. `hot` repeats a call on the same tensors; `cold` rotates over
copies that together are three times the L2 cache, so that every call finds its inputs in memory. `host` is what a call
costs the CPU while the GPU keeps up.
"""
from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch

GRAPH_SECONDS = 4e-4
"""Device time of one replay: long beside the few microseconds by which events are off."""
MOST_COPIES = 64


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds per call. host is None where a call cannot be timed on its own."""
    cold: float
    hot: float
    host: float | None


Calls = Sequence[Callable[[], object]]
"""The same computation on different copies of its tensors."""


def copies_for(nbytes: int, device: int = 0) -> int:
    """How many copies of tensors of so many bytes in all a cold measurement rotates over."""
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    return max(2, min(MOST_COPIES, math.ceil(3 * cache / max(nbytes, 1))))


def measure(candidates: Mapping[str, Calls], rounds: int = 11, deadline: float = math.inf) -> dict[str, Times]:
    """Times of each candidate. All must run on torch's current device and allow capture. deadline: on time.monotonic();
    past it the rounds end early, after three at least."""
    hosts = {name: _host(calls[0]) for name, calls in candidates.items()}
    graphs = {}
    for name, calls in candidates.items():
        seconds = _estimate(calls[0])
        repeats = max(1, min(200, math.ceil(GRAPH_SECONDS / seconds)))
        graphs[name, "hot"] = _graph([calls[0]] * repeats)
        graphs[name, "cold"] = _graph(list(calls) * max(1, math.ceil(repeats / len(calls))))
    samples: dict[tuple[str, str], list[float]] = {key: [] for key in graphs}
    order = list(graphs)
    for r in range(rounds + 1):
        if r > 3 and time.monotonic() > deadline:
            break
        random.Random(r).shuffle(order)
        for key in order:
            graph, count = graphs[key]
            samples[key].append(_replay(graph) / count)
    return {name: Times(*(median(samples[name, kind][1:]) for kind in ("cold", "hot")), hosts[name]) for name in candidates}


def _graph(calls: Calls) -> tuple[torch.cuda.CUDAGraph, int]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in dict.fromkeys(calls):           # whatever happens only once happens before the capture
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    return graph, len(calls)


def _replay(graph: torch.cuda.CUDAGraph) -> float:
    """Microseconds of one replay."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def _estimate(call: Callable[[], object]) -> float:
    """Seconds of one call, roughly."""
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 3


def _host(call: Callable[[], object], calls: int = 20, rounds: int = 5) -> float:
    """Microseconds that a call keeps the CPU: a few at a time, so that the queue to the GPU never fills."""
    call()
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - start) / calls * 1e6)
    torch.cuda.synchronize()
    return median(found)
