"""Programs for tests of extraction, extracted from PyTorch text as the pipeline does it, once for a test session."""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from deplodock.capture import capture_code, capture_module
from deplodock.enter import Entered, enter
from deplodock.ir.egraph import EGraph
from deplodock.saturate import saturate
from deplodock.target import target
from extract.extract import Extraction, extract_from
from extract.kernels import BEST


@dataclass(frozen=True, slots=True)
class Saturated:
    entered: Entered
    egraph: EGraph

    def extract(self, numerics: str = "default", gpu: str = "h200", best: int = BEST) -> Extraction:
        return extract_from(self.egraph, self.entered, target(gpu), numerics, best)


@lru_cache(maxsize=None)
def saturated(code: str, numerics: str = "default") -> Saturated:
    """The saturated e-graph of a program given as `-c` would be."""
    return saturate_program(capture_code(code).program, numerics)


@lru_cache(maxsize=None)
def extracted(code: str, numerics: str = "default", gpu: str = "h200") -> Extraction:
    return saturated(code, numerics).extract(numerics, gpu)


@lru_cache(maxsize=None)
def decoder(length: int, dtype: str, numerics: str = "default", attention: str = "eager") -> Saturated:
    """One decoder layer of TinyLlama at its true size."""
    import torch
    from tests.examples.decoder import layer
    module, inputs = layer(length=length, dtype=getattr(torch, dtype), attention=attention)
    return saturate_program(capture_module(module, inputs).program, numerics)


def saturate_program(program, numerics: str) -> Saturated:
    """An e-graph of a captured program."""
    entered = enter(program)
    return Saturated(entered, saturate(entered, numerics).egraph)

