"""Targets by name."""
from __future__ import annotations

import pytest

from deplodock.errors import UnknownTarget
from deplodock.target import DEFAULTS, TARGETS, target


@pytest.mark.parametrize("name, arch, gpu", [
    ("h200", "sm_90a", "h200"), ("H200", "sm_90a", "h200"), ("sm_90a", "sm_90a", "h200"), ("sm_90", "sm_90", "h200"),
    ("sm_80", "sm_80", "a100"), ("a100", "sm_80", "a100")])
def test_a_gpu_or_an_architecture(name, arch, gpu):
    found = target(name)
    assert (found.arch, found.name) == (arch, gpu)


def test_every_default_exists():
    assert set(DEFAULTS.values()) <= set(TARGETS)


def test_a_target_that_does_not_exist():
    with pytest.raises(UnknownTarget) as error:
        target("h900")
    assert error.value.exit_code == 2
    assert "h900" in str(error.value) and "h200" in str(error.value) and "sm_80" in str(error.value)


def test_figures_are_within_reach_of_each_other():
    for t in TARGETS.values():
        assert t.mma > t.fma32 > t.vector > t.special and t.bandwidth > 1e11 and t.shared < 228 * 1024
