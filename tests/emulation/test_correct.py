"""Correct kernels compute the right values, and no check reports anything, in any schedule."""
import pytest

from deplodock.lower.cuda import wrappers
from deplodock.runtime.compile import compile_cuda
from tests.emulation.cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_right_and_silent_in_every_schedule(name):
    for seed in range(4):
        assert CASES[name].run(seed=seed) <= CASES[name].tolerance


@pytest.mark.parametrize("name", CASES)
def test_right_without_checks(name):
    assert CASES[name].run(checked=False) <= CASES[name].tolerance


@pytest.mark.parametrize("name", CASES)
def test_is_cuda(name):
    """The same text, after the device's half of the primitives, is a kernel to NVRTC."""
    text = CASES[name].text
    assert compile_cuda(name, wrappers(text) + text, "sm_90a").code
