"""deplodock doctor: what is installed, what is missing, and what will not work without it."""
from __future__ import annotations

import click

from deplodock.cli.options import json_option, output_options

PACKAGES = {
    "torch": "nothing works", "numpy": "nothing works", "egglog": "no saturation: only --ir torch and tensor",
    "cuda-core": "no run on a GPU", "cuda-bindings": "no compilation of CUDA", "nvidia-cuda-nvrtc": "no compilation of CUDA",
    "ml-dtypes": "no bf16 in the emulation", "transformers": "no models from folders: pip install deplodock[models]",
    "safetensors": "no weights from files: pip install deplodock[models]", "matplotlib": "no plots: pip install deplodock[plot]",
    "ray": "no tuning on several machines: pip install deplodock[cluster]",
}
"""Packages, and what does not work without each."""
REQUIRED = ("torch", "numpy", "egglog", "cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "ml-dtypes")


@click.command(name="doctor")
@json_option
@output_options
def command(as_json, out):
    """Say what is installed, which GPU, driver and compilers there are, where the caches are, and what will not work.

    Exit code 0 if programs can be compiled and run, on a GPU or on the emulation; 1 if a package they need is missing.
    """
    checks = [*_packages(), *_tools(), _gpu(), _cache()]
    for c in checks:
        mark = {"ok": click.style("ok     ", fg="green"), "missing": click.style("missing", fg="yellow"),
                "broken": click.style("broken ", fg="red")}[c["state"]]
        out.result(f"{mark}  {c['name']:20} {c['found']}" + (f"\n{'':31}{c['then']}" if c["state"] != "ok" and c["then"] else ""))
    out.object("doctor", checks=checks)
    return 1 if any(c["state"] != "ok" and c["name"] in REQUIRED for c in checks) else 0


def _check(name: str, state: str, found: str, then: str = "") -> dict:
    return {"name": name, "state": state, "found": found, "then": then}


def _packages() -> list[dict]:
    import platform
    from importlib import metadata

    from deplodock.version import __version__
    found = [_check("deplodock", "ok", __version__), _check("python", "ok", platform.python_version())]
    for name, then in PACKAGES.items():
        try:
            found.append(_check(name, "ok", metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append(_check(name, "missing", "not installed", then))
    return found


def _tools() -> list[dict]:
    import os
    import shutil

    from deplodock.runtime.compile import find_tool, nvrtc_version, supported_architectures
    found = []
    compiler = os.environ.get("CXX") or "g++"
    path = shutil.which(compiler)
    found.append(_check("C++ compiler", "ok", path) if path else
                 _check("C++ compiler", "missing", f"no {compiler} on PATH", "no emulation: run --device cpu needs it"))
    try:
        archs = supported_architectures()
        found.append(_check("NVRTC", "ok", f"{nvrtc_version()}, sm_{archs[0]} to sm_{archs[-1]}"))
    except Exception as error:                  # whatever keeps the library from loading is the finding
        found.append(_check("NVRTC", "broken", str(error).splitlines()[0], "no compilation of CUDA"))
    path = find_tool("nvdisasm")
    found.append(_check("nvdisasm", "ok", path) if path else
                 _check("nvdisasm", "missing", "not found", "no --ir sass: pip install nvidia-cuda-nvdisasm"))
    return found


def _gpu() -> dict:
    from deplodock.errors import NoGpu
    from deplodock.runtime.launch import require_gpu
    try:
        capability = require_gpu()
    except NoGpu as error:
        return _check("GPU", "missing", error.facts["reason"], "programs run on the emulation only: run --device cpu")
    except ImportError as error:
        return _check("GPU", "broken", str(error), "no run on a GPU")
    import torch
    from cuda.bindings import driver
    version = driver.cuDriverGetVersion()[1]
    return _check("GPU", "ok", f"{torch.cuda.get_device_name()}, compute capability {capability[0]}.{capability[1]}, "
                               f"driver for CUDA {version // 1000}.{version % 1000 // 10}")


def _cache() -> dict:
    import os

    from deplodock.runtime.cache import Cache, default_folder
    folder = default_folder()
    entries = Cache("cubin").entries()
    size = sum(p.stat().st_size for p in entries)
    probe = folder
    while not probe.exists():
        probe = probe.parent
    if not os.access(probe, os.W_OK):
        return _check("cache", "broken", str(folder), "kernels are compiled anew each time: set DEPLODOCK_CACHE")
    return _check("cache", "ok", f"{folder}, {len(entries)} kernels, {size / 1e6:.1f} MB")
