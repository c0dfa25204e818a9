"""Correct kernels compute the right values, and no check reports anything, in any schedule."""
import pytest

from tests.emulation.cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_right_and_silent_in_every_schedule(name):
    for seed in range(4):
        assert CASES[name].run(seed=seed) <= CASES[name].tolerance


@pytest.mark.parametrize("name", CASES)
def test_right_without_checks(name):
    assert CASES[name].run(checked=False) <= CASES[name].tolerance
