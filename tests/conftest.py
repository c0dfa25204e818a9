"""What all tests share: golden text, GPU tests only where there is a GPU, the packages of this checkout.

Golden text lies in tests/golden; `pytest --update-golden` writes what the tests have found instead of comparing.
"""
from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


GOLDEN = ROOT / "tests" / "golden"


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


@pytest.fixture
def golden(request):
    """golden(name, text): text must be that of tests/golden/name."""
    def compare(name: str, text: str) -> None:
        path, text = GOLDEN / name, text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.is_file(), f"{path} is missing: pytest --update-golden writes it"
        assert text == path.read_text(), f"{path} differs: pytest --update-golden writes what was found"
    return compare


def has_gpu() -> bool:
    """Whether a CUDA device can be used. Imports torch, so it is asked only when a GPU test was collected."""
    import torch
    return torch.cuda.is_available()


def pytest_collection_modifyitems(config, items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not has_gpu():
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
        config.hook.pytest_deselected(items=marked)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return ROOT
