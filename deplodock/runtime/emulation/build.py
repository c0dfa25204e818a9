"""CUDA text to a program of this machine: the text is compiled unchanged by g++, after host/primitives.h.

The runtime (host/*.cc) is compiled once and cached as an object file; kernels, several to a translation unit, take about
0.2 s and are cached by what they were made from. Checked programs are compiled with -fsanitize=thread, which makes g++
call a function before each load and store: the runtime defines these functions, libtsan is not linked.
"""
from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from deplodock.errors import KernelRejected, ToolMissing
from deplodock.lower.cuda import header
from deplodock.runtime.cache import Cache, digest

HOST = Path(__file__).parent / "host"
COMMON = ("-std=c++17", "-fno-pie", "-fno-extern-tls-init", "-ftls-model=local-exec", "-fno-strict-aliasing", "-w")
"""A kernel's shared memory is the executable's thread-local storage, at addresses that are known when it is linked."""
KERNELS = ("-g1", "-gdwarf-4", "-fstack-clash-protection")
"""Lines for reports (addr2line mixes up the files of DWARF 5); a large frame runs into the guard page, not over it."""
CHECKED = ("-O1", *KERNELS, "-fsanitize=thread", "-fsanitize=bounds", "--param", "tsan-instrument-func-entry-exit=0")
FAST = ("-O2", *KERNELS, "-fno-optimize-sibling-calls")
RUNTIME = ("-O3", "-march=native")


@dataclass(frozen=True, slots=True)
class Program:
    """An executable that holds kernels. sources: file name to text, for the lines that reports quote."""
    executable: bytes
    sources: dict[str, str]
    checked: bool


def build(kernels: dict[str, str], checked: bool = True, store: Cache | None = None) -> Program:
    """Compiles kernels: name to CUDA text, without the wrappers of lower/device.cuh, which the host has its own of.

    checked: whether loads and stores are instrumented. KernelRejected if g++ refuses the text, ToolMissing without g++.
    """
    store = store or Cache("emulation")
    sources = {f"{name}.cu": text for name, text in kernels.items()}
    unit = unit_text(sources)
    flags = (*COMMON, *(CHECKED if checked else FAST))
    key = digest("program", _runtime_key(), *flags, unit, *(part for item in sources.items() for part in item))
    executable = store.get(key)
    if executable is None:
        executable = _compile(sources, unit, flags, store)
        store.put(key, executable)
    return Program(executable, sources, checked)


def _compile(sources: dict[str, str], unit: str, flags: tuple[str, ...], store: Cache) -> bytes:
    with tempfile.TemporaryDirectory(prefix="deplodock-") as folder:
        where = Path(folder)
        for name, text in sources.items():
            (where / name).write_text(text)
        (where / "unit.cc").write_text(unit)
        (where / "runtime.o").write_bytes(_runtime(store))
        names = ", ".join(name.removesuffix(".cu") for name in sources)
        _gcc((*flags, "-I", str(HOST), "-c", "unit.cc", "-o", "unit.o"), where, names)
        _gcc(("-no-pie", "unit.o", "runtime.o", "-o", "program", "-lpthread"), where, names)
        return (where / "program").read_bytes()


def unit_text(sources: dict[str, str]) -> str:
    """The translation unit: the host's headers, the kernels' files, the table of their entries."""
    texts = "\n".join(sources.values())
    widths = sorted({int(n) for n in re.findall(r"\bdd_wgmma_m64n(\d+)k16_", texts)})
    shared = sorted(set(re.findall(r"extern\s+__shared__[^;]*?(\w+)\s*\[\s*\]", texts)))
    entries = ", ".join(f"EMU_ENTRY({name.removesuffix('.cu')})" for name in sources)
    lines = ['#include "primitives.h"', *(f"EMU_WGMMA_N({n})" for n in widths), shared_wrappers()]
    lines += [f'#include "{name}"' for name in sources]
    lines += ['#include "entry.h"', *(f"EMU_SHARED({name})" for name in shared), f"EMU_ENTRIES({entries})"]
    return "\n".join(lines) + "\n"


@cache
def shared_wrappers() -> str:
    """The wrappers of lower/device.cuh that are plain C++ and that the host has not in its own way."""
    own = set(re.findall(r"\b(dd_\w+)\(", (HOST / "primitives.h").read_text()))
    own |= {f"dd_{kind}{n}" for kind in ("ldg", "stg", "lds", "sts") for n in (1, 2, 4, 8, 16)}      # written by macros
    _, items = header()
    return "\n".join(text for names, text in items if "asm" not in text and "TensorMap" not in names and not names & own)


# ---- the compiler ----------------------------------------------------------------------------------------------------

@cache
def find_compiler() -> str:
    """The path of g++. ToolMissing if there is none."""
    found = shutil.which("g++")
    if found is None:
        raise ToolMissing(tool="g++", purpose="CUDA kernels are compiled for this machine's CPU (--device cpu)",
                          advice="install g++ 10 or newer, with binutils")
    return found


@cache
def _runtime_key() -> str:
    """Changes with the runtime's text, the compiler, and the processor that the runtime was compiled for."""
    version = subprocess.run((find_compiler(), "--version"), capture_output=True, text=True, timeout=60).stdout
    cpu = re.search(r"^flags.*$", Path("/proc/cpuinfo").read_text(), flags=re.M)
    texts = [f.read_bytes() for f in sorted(HOST.iterdir())]
    return digest(version, cpu[0] if cpu else "", *COMMON, *RUNTIME, *texts)


def _runtime(store: Cache) -> bytes:
    key = digest("runtime", _runtime_key())
    made = store.get(key)
    if made is None:
        with tempfile.TemporaryDirectory(prefix="deplodock-") as folder:
            _gcc((*COMMON, *RUNTIME, "-c", str(HOST / "runtime.cc"), "-o", "runtime.o"), Path(folder), "the runtime")
            made = (Path(folder) / "runtime.o").read_bytes()
        store.put(key, made)
    return made


def _gcc(arguments: tuple[str, ...], where: Path, names: str) -> None:
    r = subprocess.run((find_compiler(), *arguments), cwd=where, capture_output=True, text=True, timeout=300)
    if r.returncode:
        errors = [line for line in r.stderr.splitlines() if "error" in line or "undefined" in line]
        raise KernelRejected(name=names, arch="the CPU emulation", found="\n".join(errors[:3]) or r.stderr[:500])
