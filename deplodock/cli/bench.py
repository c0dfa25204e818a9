"""run --bench: a program beside eager PyTorch, torch.compile, and torch.compile with max-autotune."""
from __future__ import annotations

from deplodock.runtime.cache import Cache
from deplodock.runtime.program import CompiledProgram
from deplodock.runtime.timing import copies_for, measure


def bench(captured, made) -> dict[str, dict[str, float | None]]:
    """Candidate -> {"cold", "hot", "host"} in microseconds, measured side by side in this process.

    captured: a Captured on a GPU; made: the Loadable of it.
    """
    import torch
    size = sum(t.untyped_storage().nbytes() for t in (*captured.inputs, *captured.parameters.values()))
    sets = [captured, *(captured.to("cpu").to("cuda") for _ in range(copies_for(size) - 1))]
    programs = [CompiledProgram(made, c.parameters, "cuda", Cache("cubin")) for c in sets]
    compiled = torch.compile(captured.graph, dynamic=False)
    tuned = torch.compile(captured.graph, dynamic=False, mode="max-autotune-no-cudagraphs")

    def calls(f):
        return [lambda c=c: f(*c.parameters.values(), *c.inputs) for c in sets]

    with torch.no_grad():
        found = measure({
            "deplodock": [lambda p=p, c=c: p(*c.inputs) for p, c in zip(programs, sets)],
            "eager": calls(captured.graph), "compile": calls(compiled), "max_autotune": calls(tuned)})
    return {name: {"cold": t.cold, "hot": t.hot, "host": t.host} for name, t in found.items()}
