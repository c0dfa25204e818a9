"""CUDA text to machine code: NVRTC, for an explicit architecture, with no GPU needed.

A cubin is emitted, never PTX alone: NVRTC may be newer than the driver, which then cannot translate its PTX, while it
loads a cubin of the same major version. NVRTC is called through cuda.bindings: cuda.core would ask the driver for its
version before it returns PTX, and there may be no driver.
"""
from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from deplodock.errors import KernelRejected, ToolMissing
from deplodock.runtime.cache import Cache, digest

OPTIONS = ("-std=c++17", "-default-device", "--no-cache", "--ptxas-options=-v")
"""NVRTC's own cache is off: what it holds comes without ptxas' words on registers and spills."""


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code of one kernel. `stack` and `spills` are bytes per thread, `log` what the compiler said.

    fresh: whether NVRTC ran for it, rather than the cache.
    """
    name: str
    arch: str
    code: bytes
    ptx: str
    log: str
    registers: int = 0
    stack: int = 0
    spills: int = 0
    fresh: bool = False

    @property
    def complaints(self) -> tuple[str, ...]:
        """Lines of the log that mean slow code: C75xx (wgmma serialised), spills, a stack frame."""
        lines = [line.strip() for line in self.log.splitlines() if re.search(r"\bC75\d\d\b", line)]
        if self.spills or self.stack:
            lines.append(f"{self.spills} bytes of spills, {self.stack} bytes of stack")
        return tuple(lines)


@cache
def nvrtc_version() -> str:
    from cuda.bindings import nvrtc
    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


def supported_architectures() -> tuple[int, ...]:
    """Compute capabilities that NVRTC makes code for: 80, 86, 90 .."""
    from cuda.bindings import nvrtc
    return tuple(nvrtc.nvrtcGetSupportedArchs()[1])


def compile_cuda(name: str, source: str, arch: str, store: Cache | None = None) -> Cubin:
    """The kernel `name` of a CUDA source, compiled for an architecture such as "sm_90a".

    KernelRejected if NVRTC refuses it. store: where finished kernels are kept; None compiles anew.
    """
    key = digest("cubin", nvrtc_version(), arch, *OPTIONS, name, source)
    if store is not None and (entry := store.get(key)) is not None:
        return _unpack(entry)
    made = _nvrtc(name, source, arch)
    if store is not None:
        store.put(key, _pack(made))
    return made


def compile_all(kernels: list[tuple[str, str]], arch: str, store: Cache | None = None) -> list[Cubin]:
    """compile_cuda for (name, source) pairs, in parallel: NVRTC runs without the interpreter's lock."""
    if len(kernels) < 2:
        return [compile_cuda(name, source, arch, store) for name, source in kernels]
    with ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(lambda k: compile_cuda(*k, arch, store), kernels))


def _nvrtc(name: str, source: str, arch: str) -> Cubin:
    from cuda.bindings import nvrtc

    def read(size, get) -> bytes:
        error, count = size(program)
        data = bytes(count)
        get(program, data)
        return data

    _, program = nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, None, None)
    options = [option.encode() for option in (f"-arch={arch}", *OPTIONS)]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).rstrip(b"\0\n ").decode(errors="replace")
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        nvrtc.nvrtcDestroyProgram(program)
        raise KernelRejected(name=name, arch=arch, found=_first_errors(log) or error.name)
    code = read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    ptx = read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX).rstrip(b"\0").decode()
    nvrtc.nvrtcDestroyProgram(program)

    def number(pattern: str) -> int:
        return max(map(int, re.findall(pattern, log)), default=0)

    return Cubin(name, arch, code, ptx, log, number(r"Used (\d+) registers"), number(r"(\d+) bytes stack frame"),
                 number(r"(\d+) bytes spill stores"), True)


def _first_errors(log: str, count: int = 3) -> str:
    lines = [line.strip() for line in log.splitlines() if "error" in line]
    return "\n            ".join(lines[:count])


def _pack(cubin: Cubin) -> bytes:
    ptx = cubin.ptx.encode()
    head = {"name": cubin.name, "arch": cubin.arch, "log": cubin.log, "registers": cubin.registers, "stack": cubin.stack,
            "spills": cubin.spills, "ptx": len(ptx)}
    return json.dumps(head).encode() + b"\n" + ptx + cubin.code


def _unpack(entry: bytes) -> Cubin:
    head, _, rest = entry.partition(b"\n")
    facts = json.loads(head)
    split = facts.pop("ptx")
    return Cubin(**facts, ptx=rest[:split].decode(), code=rest[split:], fresh=False)


def find_tool(name: str) -> str | None:
    """The path of a program of the CUDA toolkit (nvdisasm): on PATH, or in an installed nvidia package."""
    if found := shutil.which(name):
        return found
    for folder in map(Path, sys.path):
        for path in sorted(folder.glob(f"nvidia/*/bin/{name}")):
            return str(path)
    return None


def sass(cubin: Cubin) -> str:
    """The machine code as text, from nvdisasm (cuobjdump would call it as well). ToolMissing if it is not there."""
    tool = find_tool("nvdisasm")
    if tool is None:
        raise ToolMissing(tool="nvdisasm", purpose="machine code is printed",
                          advice="install it with `pip install nvidia-cuda-nvdisasm`, or print --ir ptx")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin.code)
        file.flush()
        return subprocess.run([tool, "--print-code", file.name], check=True, capture_output=True, text=True, timeout=60).stdout
