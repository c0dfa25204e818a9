"""What running needs of a compilation, and the cache of programs that were compiled before."""
from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

from deplodock.pipeline import Compilation, Region
from deplodock.runtime.cache import Cache, digest
from deplodock.runtime.program import Loadable
from deplodock.serial import decode, encode

def loadable(compilation: Compilation, store: Cache | None = None) -> Loadable:
    """What running needs of a compilation. With a cache: taken from there if the same was compiled before, kept there if not."""
    if store:
        restore(compilation, store)
    made = Loadable(compilation.torch, compilation.plan, compilation.cuda, compilation.target.arch)
    if store and "regions" in vars(compilation):
        if len(compilation.parts) > 1:
            for r in compilation.regions:
                if "saturation" in vars(r):
                    store.put(_key(r), encode(Loadable(r.torch, r.plan, r.cuda, r.target.arch)).encode())
        store.put(_key(compilation), encode(made).encode())
    return made


def restore(compilation: Compilation, store: Cache) -> bool:
    """Gives a compilation the plan and the CUDA of an equal one from the cache, so that nothing is saturated for them;
    whether there is one. If not, as much for those of its regions that were compiled before.

    Equal: the same Torch IR (which holds shapes, strides, alignments), target, numerics, and compiler.
    """
    if compilation.groups or "plan" in vars(compilation):
        return False
    if _restored(compilation, store):
        return True
    if len(compilation.parts) > 1:
        for r in compilation.regions:
            if "plan" not in vars(r):
                _restored(r, store)
    return False


def _restored(x: Compilation | Region, store: Cache) -> bool:
    known = store.get(_key(x))
    if known is not None:
        made = decode(known.decode())
        vars(x).update(plan=made.plan, cuda=made.kernels)
    return known is not None


def _key(x: Compilation | Region) -> str:
    whole = f"whole={x.whole}" if isinstance(x, Compilation) else f"region={x.number}"
    return digest(str(x.torch), whole, x.target.name, x.numerics, compiler())


@cache
def compiler() -> str:
    """A digest of the compiler itself: its sources, and the version of egglog, on which what is found may depend."""
    h = hashlib.sha256(metadata.version("egglog").encode())
    here = Path(__file__).resolve().parents[1]
    for package in ("deplodock", "rules", "extract"):
        for path in sorted((here / package).rglob("*")):
            if path.suffix in (".py", ".cuh"):
                h.update(str(path.relative_to(here)).encode() + b"\0" + path.read_bytes())
    return h.hexdigest()
