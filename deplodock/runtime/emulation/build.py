"""CUDA text to a program of this machine: the text is compiled unchanged by g++, after host/primitives.h.

The runtime (host/*.cc) is compiled once, in some 7 s; each kernel in 0.2 to 0.5 s, several at once. Object files and linked
programs are cached by what they were made from. Checked programs are compiled with -fsanitize=thread, which makes g++
call a function before each load and store: the runtime defines these functions, libtsan is not linked.
"""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Callable

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
    flags = (*COMMON, *(CHECKED if checked else FAST))
    keys = {name: digest("kernel", _runtime_key(), shared_wrappers(), *flags, name, text) for name, text in kernels.items()}
    key = digest("program", *keys.values())
    executable = store.get(key)
    if executable is None:
        with ThreadPoolExecutor(os.cpu_count()) as pool:         # g++ runs beside the interpreter
            runtime = pool.submit(_runtime, store)
            objects = list(pool.map(lambda name: _kernel(keys[name], name, kernels[name], flags, store), kernels))
        executable = _link([*objects, runtime.result()], ", ".join(kernels))
        store.put(key, executable)
    return Program(executable, {file_name(name): text for name, text in kernels.items()}, checked)


def build_together(kernels: dict[str, str]) -> Program:
    """As build(), checked, with all kernels in one translation unit: half the time of as many units. Only the runtime is cached.
    """
    with tempfile.TemporaryDirectory(prefix="deplodock-") as folder:
        _compile(kernels, (*COMMON, *CHECKED), Path(folder))
        made = (Path(folder) / "out").read_bytes()
    executable = _link([made, _runtime(Cache("emulation"))], ", ".join(kernels))
    return Program(executable, {file_name(name): text for name, text in kernels.items()}, True)


def file_name(kernel: str) -> str:
    """The file that the debug information of a kernel's code names."""
    return f"{kernel}.cu"


def unit_text(kernels: dict[str, str]) -> str:
    """The translation unit of kernels: the host's headers, then each one's text in a file of its own, and its entry."""
    texts = "\n".join(kernels.values())
    widths = sorted({int(n) for n in re.findall(r"\bdd_wgmma_m64n(\d+)k16_", texts)})
    shared = re.findall(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s*)?([\w ]+?)\s+(\w+)\s*\[\s*\]", texts)
    lines = ['#include "primitives.h"', '#include "entry.h"', *(f"EMU_WGMMA_N({n})" for n in widths), shared_wrappers()]
    lines += [f"EMU_SHARED({kind}, {name})" for kind, name in sorted(set(shared))]
    for kernel in kernels:
        lines += [f'#include "{file_name(kernel)}"', f"EMU_KERNEL({kernel})"]
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
    """The path of g++, or of the one that CXX names. ToolMissing if there is none."""
    name = os.environ.get("CXX") or "g++"
    found = shutil.which(name)
    if found is None:
        raise ToolMissing(tool=name, purpose="CUDA kernels are compiled for this machine's CPU (--device cpu)",
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
    """The runtime's object file."""
    def compile_in(folder: Path) -> None:
        _gcc((*COMMON, *RUNTIME, "-c", str(HOST / "runtime.cc"), "-o", "out"), folder, "the runtime")
    return _made(digest("runtime", _runtime_key()), compile_in, store)


def _kernel(key: str, name: str, text: str, flags: tuple[str, ...], store: Cache) -> bytes:
    """The object file of a kernel."""
    return _made(key, lambda folder: _compile({name: text}, flags, folder), store)


def _compile(kernels: dict[str, str], flags: tuple[str, ...], folder: Path) -> None:
    """The object file `out` of kernels, in a folder."""
    for name, text in kernels.items():
        (folder / file_name(name)).write_text(text)
    (folder / "unit.cc").write_text(unit_text(kernels))
    _gcc((*flags, "-I", str(HOST), "-c", "unit.cc", "-o", "out"), folder, ", ".join(kernels))


def _made(key: str, compile_in: Callable[[Path], None], store: Cache) -> bytes:
    """The file `out` that a compilation leaves in an empty folder, from the cache if it is there."""
    made = store.get(key)
    if made is None:
        with tempfile.TemporaryDirectory(prefix="deplodock-") as folder:
            compile_in(Path(folder))
            made = (Path(folder) / "out").read_bytes()
        store.put(key, made)
    return made


def _link(objects: list[bytes], names: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="deplodock-") as folder:
        files = [f"{i}.o" for i in range(len(objects))]
        for file, content in zip(files, objects):
            (Path(folder) / file).write_bytes(content)
        _gcc(("-no-pie", *files, "-o", "out", "-lpthread"), Path(folder), names)
        return (Path(folder) / "out").read_bytes()


def _gcc(arguments: tuple[str, ...], where: Path, names: str) -> None:
    r = subprocess.run((find_compiler(), *arguments), cwd=where, capture_output=True, text=True, timeout=300)
    if r.returncode:
        errors = [line for line in r.stderr.splitlines() if "error" in line or "undefined" in line]
        raise KernelRejected(name=names, arch="the CPU emulation", found="\n".join(errors[:3]) or r.stderr[:500])
