"""Runs launches in a process of their own, over NumPy arrays or tensors of PyTorch, and brings back what they found."""
from __future__ import annotations

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Collection, Mapping, Sequence

import numpy as np

from deplodock.runtime.emulation.build import Program, build
from deplodock.runtime.emulation.launch import Launch, script
from deplodock.runtime.emulation.report import Fault, error, read_faults

TIME_LIMIT = 300.0
"""Seconds. A kernel that takes longer is most likely one that never ends."""
ALIGNMENT = 256
"""Bytes. A buffer's address is that of its array modulo this, so that a kernel that expects too much is found out."""
_TIME_TO_REPORT = 2.0
"""Seconds that a program has, when its time is up, to say where it is."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """One launch: its time in seconds, and the loads and stores that were checked."""
    kernel: str
    seconds: float
    accesses: int


def emulate(kernels: Mapping[str, str], launches: Sequence[Launch], arrays: Mapping[str, Any], *,
            undefined: Collection[str] = (), checked: bool = True, seed: int = 0, workers: int | None = None,
            timeout: float = TIME_LIMIT, program: Program | None = None) -> tuple[Statistics, ...]:
    """Compiles kernels (name to CUDA text) and runs launches one after another; arrays are read and written in place.

    arrays: a NumPy array or a CPU tensor for each buffer that a launch names, in row-major order. undefined: the buffers
    that hold nothing yet; to read what no kernel wrote there is a fault. checked: races, bounds, initialisation and the
    rest are checked; otherwise only results are computed, some five times as fast. seed: 0 runs threads in order, any
    other number in a random order of its own. workers: host threads, by default one per core. timeout: seconds. program: the kernels, built already,
    perhaps among others.

    Raises EmulationFault, with all faults in its `faults`, if any was found; arrays then hold what was computed.
    """
    program = program or build(kernels, checked)
    memories = {name: memory_of(a) for name, a in arrays.items()}
    for name in undefined:
        memories[name][...] = 0xFF           # NaN, and -1
    with tempfile.TemporaryDirectory(prefix="deplodock-", dir=_folder_for(memories)) as data, \
            tempfile.TemporaryDirectory(prefix="deplodock-") as place:
        executable = Path(place) / "program"
        executable.write_bytes(program.executable)
        executable.chmod(0o700)
        numbers = {name: i for i, name in enumerate(memories)}
        bytewise = any(_element(a) == 1 for a in arrays.values()) or any("dd_sts1(" in k for k in kernels.values())
        grain = 0 if bytewise else 1         # log2 of the bytes that may be written apart in shared memory
        workers = workers or max(1, len(os.sched_getaffinity(0)) // max(launch.cluster for launch in launches))
        lines = [f"options {int(checked)} {seed} {workers} {grain}"]
        offsets = [memory.ctypes.data % ALIGNMENT for memory in memories.values()]
        for name, memory in memories.items():
            file, offset = f"{data}/{numbers[name]}", offsets[numbers[name]]
            with open(file, "wb") as out:
                out.write(bytes(offset))
                memory.tofile(out)
            lines.append(f"buffer {file} {offset} {memory.nbytes} {min(_element(arrays[name]), 4)} {int(name not in undefined)}")
        (Path(place) / "script").write_text("\n".join(lines + script(tuple(launches), numbers)) + "\n")
        code, out, err = _run((str(executable), f"{place}/script"), timeout)
        faults = read_faults(err, executable, program.sources, list(memories))
        for number in map(int, re.findall(r"^WRITTEN (\d+)$", out, flags=re.M)):
            memory = memories[list(memories)[number]]
            memory[...] = np.fromfile(f"{data}/{number}", dtype=np.uint8, offset=offsets[number])
    started = re.findall(r"^START (\d+)$", out, flags=re.M)
    last = launches[int(started[-1])].kernel if started else "-"
    faults += _ending(code, err, last, timeout, bool(faults))
    if faults:
        raise error(faults)
    return tuple(Statistics(launches[int(i)].kernel, float(s), int(n))
                 for i, s, n in re.findall(r"^END (\d+) ([\d.]+) (\d+)$", out, flags=re.M))


def memory_of(array: Any) -> np.ndarray:
    """The bytes of an array or CPU tensor, as a view: from its first element to its last, in the order of memory."""
    if not isinstance(array, np.ndarray):
        import torch
        span = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.stride())) if array.numel() else 0
        return array.detach().as_strided((span,), (1,)).view(torch.uint8).numpy()
    if not array.flags.c_contiguous:
        raise ValueError("an array of NumPy must be contiguous")
    return array.reshape(-1).view(np.uint8)


def _element(array: Any) -> int:
    """Bytes of an element."""
    return array.itemsize if isinstance(array, np.ndarray) else array.element_size()


def _folder_for(memories: Mapping[str, np.ndarray]) -> str | None:
    """Where the buffers' files go: shared memory, if there is room; else the usual folder for temporary files."""
    try:
        room = os.statvfs("/dev/shm")
    except OSError:
        return None
    enough = room.f_bavail * room.f_frsize > 2 * sum(m.nbytes for m in memories.values())
    return "/dev/shm" if enough and os.access("/dev/shm", os.W_OK) else None


def _run(command: tuple[str, ...], timeout: float) -> tuple[int | None, str, str]:
    """Exit code (None: out of time), standard output, standard error."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace") as child:
        try:
            out, err = child.communicate(timeout=timeout)
            return child.returncode, out, err
        except subprocess.TimeoutExpired:
            child.terminate()
            try:
                out, err = child.communicate(timeout=_TIME_TO_REPORT)
            except subprocess.TimeoutExpired:
                child.kill()
                out, err = child.communicate()
            return None, out, err
        except BaseException:
            child.kill()
            raise


def _ending(code: int | None, err: str, kernel: str, timeout: float, told: bool) -> list[Fault]:
    """The fault that the way a program ended is, where it said nothing itself."""
    if code is None and not told:
        return [Fault("timeout", kernel, f"it did not end within {timeout:g} s")]
    if code in (0, 3, None):
        return []
    return [Fault("crash", kernel, f"the emulation ended with exit code {code}: {err[-300:].strip()}")]
