"""What the emulation found: faults, with their place in the emitted CUDA, and what to do about each kind."""
from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from deplodock.errors import DeplodockError, EmulationFault, IndexOutOfRange

ADVICE = {
    "race": "order the two accesses: a barrier that both threads pass, or a wait for the copy, between them",
    "proxy": "let each thread that wrote call dd_fence_async() after its writes and before the barrier",
    "bounds": "correct the index, or guard the access",
    "uninitialised": "write it before it is read, or wait for the copy that does",
    "misaligned": "use a narrower access, or align the address",
    "divergent": "let all threads that the operation names reach the same one",
    "branch": "move the operation out of the branch: all lanes must reach it together",
    "barrier": "give each named barrier one count, a multiple of 32",
    "deadlock": "compare who waits with who should arrive: counts, parities, and branches around barriers",
    "mbarrier": "initialise it once, by one thread, before a barrier; then only arrive and wait",
    "expect_tx": "expect exactly the bytes that the phase's copies bring, before they can land",
    "tma": "check the tensor map, the alignment of the tile, and that the store is waited for",
    "wgmma": "fence before the first product, commit, and wait before its registers or operands are touched",
    "setmaxnreg": "let the budgets of all warpgroups add up to what the block was launched with",
    "global": "launch the reader after the writer, or order them by __threadfence and an atomic on both sides",
    "const": "declare the parameter as written, if it is",
    "trap": "see what the kernel checks there",
    "crash": "look at the address computation of the line",
    "timeout": "look for a loop that does not end, or raise the time limit",
    "launch": "compare the launch with the kernel's parameters",
    "uninstrumented": "use g++ with support for -fsanitize=thread",
}
"""Kinds of fault, and what to do."""


@dataclass(frozen=True, slots=True)
class Fault:
    """kernel and kind always; block (x, y, z), thread, line (from 1) and its text where they are known."""
    kind: str
    kernel: str
    message: str
    block: tuple[int, int, int] | None = None
    thread: int | None = None
    line: int | None = None
    text: str = ""

    @property
    def where(self) -> str:
        parts = [f"kernel {self.kernel}"]
        if self.block is not None:
            parts.append(f"block {','.join(map(str, self.block))}")
        if self.thread is not None:
            parts.append(f"thread {self.thread}")
        if self.line is not None:
            parts.append(f"line {self.line} of its CUDA text: {self.text}")
        return ", ".join(parts)

    def __str__(self) -> str:
        return f"{self.kind}: {self.message} ({self.where})"


def error(faults: list[Fault]) -> DeplodockError:
    """The exception for a list of faults: it is about the first, and has them all in `faults`."""
    first = faults[0]
    if first.kind == "index":                # the caller's mistake, not the kernel's
        return IndexOutOfRange(first.where, found=first.message)
    e = EmulationFault(first.where, kernel=first.kernel, kind=first.kind, found=first.message, advice=ADVICE[first.kind],
                       others=f" ({len(faults) - 1} more)" if len(faults) > 1 else "")
    e.faults = tuple(faults)
    return e


def read_faults(stderr: str, program: Path, sources: dict[str, str], buffers: list[str]) -> list[Fault]:
    """The faults in what an emulated program wrote (host/faults.cc), each once."""
    rows = [line.split("|", 7)[1:] for line in stderr.splitlines() if line.startswith("FAULT|")]
    places = _Places(program, sources, rows)
    faults = []
    for kind, kernel, block, thread, pc, other, message in rows:
        line, text = places.of(pc)
        if kind == "branch" and places.of(pc) == places.of(other):
            continue                         # one line of the text, which g++ wrote out twice
        message = re.sub(r"\{2\}", places.name(other), message)
        message = re.sub(r"\{b(\d+)\}", lambda m: buffers[int(m[1])], message)
        message = re.sub(r"\{([0-9a-f]+)\}", lambda m: places.name(m[1]), message)
        at = tuple(map(int, block.split(","))) if block != "-" else None
        fault = Fault(kind, kernel, message, at, int(thread) if thread != "-" else None, line, text)
        if fault not in faults:
            faults.append(fault)
    return faults


class _Places:
    """Lines of the kernels' text, by the addresses of calls in their code."""

    def __init__(self, program: Path, sources: dict[str, str], rows: list[list[str]]):
        self.sources = {name: text.splitlines() for name, text in sources.items()}
        named = {a for row in rows for a in (row[4], row[5], *re.findall(r"\{([0-9a-f]{5,})\}", row[6]))} - {"0"}
        self.lines = self._look_up(program, sorted(named)) if named else {}

    def _look_up(self, program: Path, addresses: list[str]) -> dict[str, tuple[str, int]]:
        tool = shutil.which("addr2line")
        if tool is None:
            return {}
        calls = [hex(int(a, 16) - 1) for a in addresses]     # a return address lies after its call
        r = subprocess.run((tool, "-a", "-i", "-e", str(program), *calls), capture_output=True, text=True, timeout=60)
        found = {}
        for address, part in zip(addresses, re.split(r"^0x[0-9a-f]+\n", r.stdout, flags=re.M)[1:]):
            for file, line in re.findall(r"^(?:.*/)?([^/\n]+):(\d+)", part, flags=re.M):
                if file in self.sources:     # frames inlined into one another: the innermost in the text
                    found[address] = (file, int(line))
                    break
        return found

    def of(self, address: str) -> tuple[int | None, str]:
        """The line's number and text."""
        if address not in self.lines:
            return None, ""
        file, line = self.lines[address]
        text = self.sources[file]
        return line, text[line - 1].strip() if line <= len(text) else ""

    def name(self, address: str) -> str:
        line, _ = self.of(address)
        return f"line {line}" if line else "an unknown line"
