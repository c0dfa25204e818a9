"""Compiled programs as folders: `deplodock compile --save DIR`, `Compiled.save`, `deplodock.load`.

    deplodock.json           format, version of deplodock, how the program is called, where its parameters are, digests
    program.json             the Torch IR, the plan of kernels and buffers, the kernels' text (serial.py)
    NAME.cubin               machine code of a kernel
    parameters.safetensors   parameters that are in no file of the user's, in the layout that kernels expect (weights.py)

Constants that were computed from parameters are computed again when the program is loaded. Loading needs neither egglog
nor the laws, and checks every file.
"""
from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch.utils._pytree import tree_flatten, treespec_dumps, treespec_loads

from deplodock import weights
from deplodock.errors import DamagedProgram, OtherVersion, UnsavableContainer, UsageError
from deplodock.interface import Fact, Interface, bound, plain
from deplodock.runtime.cache import Cache
from deplodock.runtime.compile import Cubin, compile_all
from deplodock.runtime.launch import require_gpu
from deplodock.runtime.program import CompiledProgram, Loadable
from deplodock.serial import decode, encode
from deplodock.version import __version__

FORMAT = 2
HEAD, PROGRAM = "deplodock.json", "program.json"


class Loaded:
    """A program from a folder: called like the module that it was compiled from. BrokenFact for other arguments.

    program: the runtime.program.CompiledProgram; parameters: its tensors by name, which may be written to.
    """

    def __init__(self, made: Loadable, program: CompiledProgram, interface: Interface,
                 signature: inspect.Signature | None, numerics: str, parameters: Mapping[str, torch.Tensor]):
        self.made, self.program, self.interface, self.numerics = made, program, interface, numerics
        self.parameters, self._signature = dict(parameters), signature

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that the program holds beside its parameters, and those of intermediates per stream."""
        return self.program.memory

    def __call__(self, *args, **kwargs):
        given, tree = tree_flatten(bound(self._signature, args, kwargs))
        if broken := self.interface.broken(tree, given):
            raise broken
        return self.interface.returned(self.program(*self.interface.inputs(given)))


def is_saved(path) -> bool:
    """Whether there is a folder of this name that holds a saved program."""
    return (Path(path) / HEAD).is_file()


def was_saved(path) -> bool:
    """Whether there is a folder of this name with something of a saved program in it."""
    return is_saved(path) or (Path(path) / PROGRAM).is_file()


# ---- writing ---------------------------------------------------------------------------------------------------------

def save(folder, made: Loadable, parameters: Mapping[str, torch.Tensor], interface: Interface,
         signature: inspect.Signature | None, numerics: str, files: Sequence = ()) -> None:
    """Writes a program to a folder, whole or not at all; a saved program that is there is replaced.

    parameters: by name, all that the program has. files: safetensors files in which parameters may be found.
    UsageError for a folder with other things in it, UnsavableContainer, KernelRejected, ToolMissing without safetensors.
    """
    folder = Path(folder)
    if folder.exists() and not is_saved(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(title=f"cannot save to {folder}", expected="a new or empty folder, or one with a saved program",
                         found="something else", advice="choose another folder")
    head = {"format": FORMAT, "deplodock": __version__, "arch": made.arch, "numerics": numerics,
            "signature": _signature_out(signature), "interface": _interface_out(interface)}
    live = {k.name: k.source for k in made.kernels if k.grid}
    cubins = compile_all(list(live.items()), made.arch, Cache("cubin"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = folder.with_name(f".{folder.name}.{os.getpid()}")
    new.mkdir()
    try:
        (new / PROGRAM).write_text(encode(made))
        for c in cubins:
            (new / f"{c.name}.cubin").write_bytes(c.code)
        head["resources"] = {c.name: [c.registers, c.stack, c.spills] for c in cubins}
        head["digests"] = {path.name: _digest(path.read_bytes()) for path in sorted(new.iterdir())}
        head |= weights.write(new, made.program.parameters, parameters, [Path(w).resolve() for w in files])
        head["digest"] = _digest(_text(head).encode())
        (new / HEAD).write_text(_text(head))
        if folder.exists():
            old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
            folder.rename(old)
            new.rename(folder)
            shutil.rmtree(old)
        else:
            new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _text(head: dict) -> str:
    return json.dumps(head, indent=1) + "\n"


def _digest(data) -> str:
    return hashlib.sha256(data).hexdigest()


def _signature_out(signature: inspect.Signature | None) -> list | None:
    """Names and kinds of arguments, and their defaults if JSON can hold all of them."""
    if signature is None:
        return None
    parameters = signature.parameters.values()
    held = all(p.default is p.empty or plain(p.default) for p in parameters)
    return [[p.name, int(p.kind), *([p.default] if held and p.default is not p.empty else [])] for p in parameters]


def _interface_out(x: Interface) -> dict:
    leaves = [{"value": encode(leaf)} if not isinstance(leaf, Fact) else
              {"shape": leaf.shape, "dtype": str(leaf.dtype).removeprefix("torch."), "strides": leaf.strides}
              for leaf in x.leaves]
    try:
        trees = {"tree": treespec_dumps(x.tree), "result": treespec_dumps(x.result)}
    except NotImplementedError as error:
        raise UnsavableContainer(found=str(error)) from error
    return {**trees, "leaves": leaves, "positions": x.positions, "absent": x.absent}


# ---- reading ---------------------------------------------------------------------------------------------------------

def load(folder, device: torch.device | str | None = None, constants: int | None = None) -> Loaded:
    """The program of a folder. See deplodock.load."""
    folder = Path(folder)
    head = _head(folder)
    made = decode(_checked(folder, head, PROGRAM).decode())
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device() if torch.cuda.is_available() else 0)
    if device.type == "cuda":
        require_gpu(device.index, made.arch)
    cubins = [Cubin(name, made.arch, _checked(folder, head, f"{name}.cubin"), "", "", *resources)
              for name, resources in head["resources"].items()]
    parameters = weights.read(folder, head, made.program.parameters, device)
    program = CompiledProgram(made, parameters, device, None, constants, cubins)
    return Loaded(made, program, _interface_in(head["interface"], device), _signature_in(head["signature"]),
                  head["numerics"], parameters)


def _head(folder: Path) -> dict:
    try:
        text = (folder / HEAD).read_text()
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError):
            raise UsageError(title=f"no saved program in {folder}", expected="a folder that `deplodock compile --save` wrote",
                             found=f"no readable {HEAD} in it", advice="check the path") from error
        raise DamagedProgram(folder=folder, file=HEAD, reason="it is no text") from error
    try:
        head = json.loads(text)
        version = head["format"], head["deplodock"]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedProgram(folder=folder, file=HEAD, reason="it is truncated, or no JSON object") from error
    if version != (FORMAT, __version__):
        raise OtherVersion(folder=folder, wanted=f"format {FORMAT} of deplodock {__version__}",
                           given=f"format {version[0]} of deplodock {version[1]}")
    digest = head.pop("digest", None)
    if digest != _digest(_text(head).encode()):
        raise DamagedProgram(folder=folder, file=HEAD, reason="it was changed")
    return head


def _checked(folder: Path, head: dict, name: str) -> bytes:
    """The content of a file of the folder. DamagedProgram if it is not what was written."""
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise DamagedProgram(folder=folder, file=name, reason=f"it cannot be read: {error.strerror}") from error
    if _digest(data) != head["digests"].get(name):
        raise DamagedProgram(folder=folder, file=name, reason="it is truncated, or was changed")
    return data


def _signature_in(entries: list | None) -> inspect.Signature | None:
    if entries is None:
        return None
    kinds = {int(kind): kind for kind in inspect._ParameterKind}
    return inspect.Signature([inspect.Parameter(name, kinds[kind], **({"default": rest[0]} if rest else {}))
                              for name, kind, *rest in entries])


def _interface_in(x: dict, device: torch.device) -> Interface:
    leaves = tuple(decode(leaf["value"]) if "value" in leaf else
                   Fact(tuple(leaf["shape"]), getattr(torch, leaf["dtype"]), tuple(leaf["strides"]), device)
                   for leaf in x["leaves"])
    return Interface(treespec_loads(x["tree"]), leaves, tuple(x["positions"]), treespec_loads(x["result"]), tuple(x["absent"]))


def for_inputs(program, result, absent: tuple[int, ...]) -> tuple[Interface, inspect.Signature]:
    """The interface of a program that no module stands for: it is called with its inputs, which have its own names."""
    facts = tuple(Fact(v.shape, getattr(torch, v.dtype.torch_name), v.strides, torch.device("cpu")) for v in program.inputs)
    _, tree = tree_flatten((tuple(range(len(facts))), {}))
    names = [inspect.Parameter(v.name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for v in program.inputs]
    return Interface(tree, facts, tuple(range(len(facts))), result, absent), inspect.Signature(names)
