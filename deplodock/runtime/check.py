"""Is what a compiled program computes right? Against the program in float64, and beside eager PyTorch.

Outputs and intermediates are filled with NaN bytes before each call, so that what is never written shows; two calls must
agree bit for bit; inputs must be what they were.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from deplodock.errors import WrongNumbers
from deplodock.ir import torch as torch_ir
from deplodock.reference import Verdict, longest_fold, reference, within_promise
from deplodock.runtime.program import CompiledProgram


@dataclass(frozen=True, slots=True)
class Report:
    """One output: its name (of one that is written back, what it is written to), shape, dtype and verdict, and whether two calls gave the same bits."""
    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    verdict: Verdict
    repeats: bool

    @property
    def ok(self) -> bool:
        return self.verdict.ok and self.repeats

    def error(self) -> WrongNumbers:
        """The error that says what is wrong with it."""
        v = self.verdict
        if not self.repeats:
            found, bound = "two calls with the same inputs gave different bits", "the same bits from every call"
        elif not v.nan_match:
            found, bound = "NaN or infinities where the reference has none, or none where it has them", "NaN as the reference has it"
        elif v.mismatches:
            found, bound = f"{v.mismatches} elements are neither the reference's nor eager's", "discrete results as eager's"
        elif v.rel_err > v.bound:
            found, bound = f"relative error {v.rel_err:.2e}", f"relative error at most {v.bound:.2e} (eager's is {v.eager_rel_err:.2e})"
        else:
            found, bound = f"an element {v.excess:.1f} times as far off as allowed", "no element further off than the promise allows"
        return WrongNumbers(output=self.name, error=found, bound=bound)


def check(compiled: CompiledProgram, program: torch_ir.Program, inputs: Sequence[torch.Tensor],
          parameters: Mapping[str, torch.Tensor], eager: Sequence[torch.Tensor]) -> list[Report]:
    """A report for each output. inputs, parameters and eager's outputs are on the device that the program runs on."""
    before, targets = [t.clone() for t in inputs], compiled.targets(inputs)
    kept = [t.clone() for t in targets]

    def run() -> tuple[torch.Tensor, ...]:
        """One call, after which everything is what it was."""
        results = compiled(*inputs, poison=True)
        for name, t, old, new in zip(program.writes, targets, kept, results[len(program.returned):], strict=True):
            if not _same_bits(t, new):
                raise WrongNumbers(output=name, error="something else was written to it", bound="its new value, written back")
            t.copy_(old)
        return results
    with torch.no_grad():
        first, second = run(), run()
    if not all(map(_same_bits, before, inputs)):
        raise WrongNumbers(output="its inputs", error="an input was written to", bound="inputs that stay as they are")
    exact = reference(program, before, parameters)
    terms = longest_fold(program)
    names = (*program.returned, *program.writes)
    return [Report(name, tuple(y.shape), y.dtype, within_promise(y, y64, e, terms), _same_bits(y, again))
            for name, y, again, y64, e in zip(names, first, second, exact, eager, strict=True)]


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_floating_point():
        kind = {8: torch.int64, 4: torch.int32, 2: torch.int16}[a.element_size()]
        a, b = a.contiguous().view(kind), b.contiguous().view(kind)
    return torch.equal(a, b)
