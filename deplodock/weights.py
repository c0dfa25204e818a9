"""Parameters of a saved program: which file holds each, and whether it still does.

A parameter that a safetensors file of the user's holds unchanged stays there; the others are written to a file of the
program's own. A parameter is known by a digest of its bytes, a file by its stamp, which is what the file system says of
it: as long as that is the same the file counts as unchanged, else its bytes are looked at. Digests are kept in the cache,
by stamp, so that a file is hashed once.
"""
from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from deplodock.errors import BadWeights, DamagedProgram, DeplodockError, ToolMissing, WeightsChanged
from deplodock.ir.torch import Value
from deplodock.runtime.cache import Cache, digest

OWN = "parameters.safetensors"
"""The file of the program's own, in its folder."""


def write(folder: Path, values: Sequence[Value], tensors: Mapping[str, torch.Tensor], files: Sequence[Path]) -> dict:
    """Writes those parameters that are in none of the user's files; what the head says of all, and of the files.

    tensors: by name. files: absolute paths. BadWeights for one that is none of safetensors, ToolMissing without that.
    """
    if not values:
        return {"parameters": [], "files": {}}
    stamps = {str(path): _stamp_of_whole(path) for path in files}   # before they are read: what changes later is seen
    places = dict(zip((v.name for v in values), _each(lambda v: _place(v, tensors[v.name], stamps), values)))
    digests = {}
    for file, stamp in stamps.items():
        names = [key for at in places.values() if at and at[0] == file for key in at[1:]]
        digests |= {(file, name): found for name, found in _digests(file, stamp, names).items()}
    kept = _apart({v.name: _as_stored(tensors[v.name], v) for v in values if not places[v.name]})
    if kept:
        from safetensors.torch import save_file
        save_file(kept, folder / OWN)
        stamps[OWN] = _stamp(folder / OWN)
        places |= {name: (OWN, name) for name in kept}
        digests |= {(OWN, name): found for name, found in zip(kept, _each(_digest, kept.values()))}
    entries = [{"name": name, "digest": digests[at], "file": at[0], "tensor": at[1]} for name, at in places.items()]
    return {"parameters": entries, "files": {name: stamps[name] for name in dict.fromkeys(e["file"] for e in entries)}}


def read(folder: Path, head: dict, values: Sequence[Value], device: torch.device) -> dict[str, torch.Tensor]:
    """The parameters by name, on a device. DamagedProgram, or WeightsChanged for the user's files, if one is not what
    it was; ToolMissing without safetensors."""
    facts, tensors = {v.name: v for v in values}, {}
    for name, stamp in head["files"].items():
        path, own = folder / name, name == OWN              # an absolute path stays what it is

        def damaged(why: str) -> DeplodockError:
            return DamagedProgram(folder=folder, file=name, reason=why) if own else WeightsChanged(file=name, reason=why)
        entries = [e for e in head["parameters"] if e["file"] == name]
        try:
            now = _stamp(path)
            found = {} if now == stamp else _digests(str(path), now, [e["tensor"] for e in entries])
            with _open(path) as file:
                for e in entries:
                    if found and found[e["tensor"]] != e["digest"]:
                        raise damaged(f"{e['tensor']} was changed")
                    tensors[e["name"]] = _placed(file.get_tensor(e["tensor"]), facts[e["name"]], device)
        except DeplodockError:
            raise
        except OSError as error:
            raise damaged(f"it cannot be read: {error.strerror or error}") from error
        except Exception as error:                          # safetensors has an exception of its own, and others
            raise damaged(f"{type(error).__name__}: {error}") from error
    return tensors


# ---- files -----------------------------------------------------------------------------------------------------------

def _place(v: Value, t: torch.Tensor, files: Iterable[str]) -> tuple[str, str] | None:
    """The file that holds a parameter, and its name there. Models wrap each other, so either name may have a prefix."""
    if not v.is_contiguous:
        return None
    stored = _as_stored(t, v)
    for path in files:
        with _open(path) as file:
            for key in file.keys():
                named = f".{v.path}".endswith(f".{key}") or f".{key}".endswith(f".{v.path}")
                if named and _equal(file.get_tensor(key), stored):
                    return path, key
    return None


def _stamp(path: Path) -> list[int]:
    """Size in bytes, inode, and the times of the last change of content and of inode in nanoseconds: a tool that sets
    the first time back moves the second."""
    found = path.stat()
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def _stamp_of_whole(path: Path) -> list[int]:
    """The stamp of a file that can be opened. BadWeights if it cannot."""
    try:
        found = _stamp(path)
        with _open(path):
            return found
    except DeplodockError:
        raise
    except Exception as error:                              # safetensors has an exception of its own
        raise BadWeights(file=path, found=getattr(error, "strerror", None) or str(error), expected="a whole safetensors file",
                         advice="check the path, or leave the file out") from error


def _digests(path: str, stamp: list[int], names: Sequence[str]) -> dict[str, str]:
    """Digests of tensors of a file, from the cache if it was hashed when it had this stamp."""
    store, key = Cache("weights"), digest(path, *map(str, stamp))
    known = json.loads(store.get(key) or "{}")
    if new := [name for name in names if name not in known]:
        known |= zip(new, _each(lambda name: _digest(_tensor(path, name)), new))
        store.put(key, json.dumps(known).encode())
    return {name: known[name] for name in names}


def _tensor(path: str, name: str) -> torch.Tensor:
    """A tensor of a file. The file is mapped into memory for as long as the tensor is held, no longer."""
    with _open(path) as file:
        return file.get_tensor(name)


def _open(path):
    """A safetensors file. ToolMissing without the library."""
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise ToolMissing(tool="safetensors", purpose="parameters are kept beside a saved program",
                          advice="install it with `pip install safetensors`") from error
    return safe_open(path, "pt")


# ---- tensors ---------------------------------------------------------------------------------------------------------

def _as_stored(t: torch.Tensor, v: Value) -> torch.Tensor:
    """A parameter as a file holds it, on the CPU: strides that are not row-major become the memory from the first
    element to the last, as it lies."""
    if v.is_contiguous:
        return t.detach().contiguous().cpu()
    span = 0 if 0 in v.shape else 1 + sum((n - 1) * s for n, s in zip(v.shape, v.strides))
    return t.detach().as_strided((span,), (1,)).cpu()


def _placed(t: torch.Tensor, v: Value, device: torch.device) -> torch.Tensor:
    """A parameter as kernels expect it: on the device, aligned, with its strides."""
    t = t.to(device)
    if t.data_ptr() % v.alignment:
        t = t.clone()
    return t.view(v.shape) if v.is_contiguous else t.as_strided(v.shape, v.strides)


def _apart(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors, of which no two share storage: safetensors refuses those."""
    seen: set[int] = set()
    found = {}
    for name, t in tensors.items():
        at = t.untyped_storage().data_ptr()
        found[name] = t.clone() if at in seen else t
        seen.add(at)
    return found


def _bytes(t: torch.Tensor) -> torch.Tensor:
    return t.reshape(-1).view(torch.uint8)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors on the CPU are the same bits: NaN is itself here, and -0.0 is not 0.0."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    pair = _bytes(a), _bytes(b)
    if all(t.nbytes % 8 == 0 and t.storage_offset() % 8 == 0 for t in pair):
        pair = tuple(t.view(torch.int64) for t in pair)     # eight times as fast as bytes
    return torch.equal(*pair)


def _digest(t: torch.Tensor) -> str:
    return hashlib.sha256(_bytes(t).numpy()).hexdigest()


def _each(function: Callable, items: Iterable) -> list:
    """function of each item, in threads: hashing and comparing run without the interpreter's lock."""
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(function, items))
