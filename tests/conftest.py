"""What all tests share: GPU tests are selected only where there is a GPU, and the packages under test are this checkout's."""
from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


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
