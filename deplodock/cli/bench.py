"""run --bench: a program beside eager PyTorch, torch.compile, and torch.compile with max-autotune."""
from __future__ import annotations

from deplodock.runtime.cache import Cache
from deplodock.runtime.place import eager_on
from deplodock.runtime.program import CompiledProgram
from deplodock.runtime.timing import copies_for, measure


def bench(captured, made, inputs, parameters) -> dict[str, dict[str, float | None]]:
    """Candidate -> {"cold", "hot", "host"} in microseconds, measured side by side in this process."""
    import torch
    graph = eager_on(captured, "cuda")
    size = sum(t.untyped_storage().nbytes() for t in (*inputs, *parameters.values()))
    sets = [(inputs, parameters)]
    sets += [([_copy(t) for t in inputs], {n: _copy(t) for n, t in parameters.items()}) for _ in range(copies_for(size) - 1)]
    programs = [CompiledProgram(made, p, "cuda", Cache("cubin")) for _, p in sets]
    compiled = torch.compile(graph, dynamic=False)
    tuned = torch.compile(graph, dynamic=False, mode="max-autotune-no-cudagraphs")

    def calls(f):
        return [lambda i=i, p=p: f(*p.values(), *i) for i, p in sets]

    with torch.no_grad():
        candidates = {"deplodock": [lambda c=c, i=i: c(*i) for c, (i, _) in zip(programs, sets)], "eager": calls(graph),
                      "compile": calls(compiled), "max_autotune": calls(tuned)}
        found = measure(candidates)
    return {name: {"cold": t.cold, "hot": t.hot, "host": t.host} for name, t in found.items()}


def _copy(t):
    """A copy with the same strides and offset."""
    import torch
    storage = t.untyped_storage().clone()
    return torch.empty(0, dtype=t.dtype, device=t.device).set_(storage, t.storage_offset(), t.shape, t.stride())
