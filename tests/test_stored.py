"""Stored programs come back equal, and a second compilation saturates nothing."""
import math

import pytest

from deplodock.capture import capture_code
from deplodock.cli.stages import text
from deplodock.ir.dtype import f32
from deplodock.ir.index import Axis, index
from deplodock.ir.loop import Buffer, Const, Load
from deplodock.pipeline import compile
from deplodock.runtime.cache import Cache
from deplodock.serial import decode, encode
from deplodock.stored import loadable

CODE = "x = torch.randn(6, 10); F.softmax(x[:, ::2], -1), x.bfloat16() @ torch.randn(10, 4).bfloat16()"


def test_a_program_comes_back_equal():
    made = loadable(compile(capture_code(CODE)))
    again = decode(encode(made))
    assert again == made and again.plan.kernels[0].outs[0].body is made.plan.kernels[0].outs[0].body


@pytest.mark.parametrize("value", [(1, 1.0, True, None, "s"), -math.inf, f32, Const(f32, math.nan), Const(f32, -0.0),
                                   Load(Buffer("a", f32, (Axis("i", 3),), "input"), (index(Axis("i", 3)) // 2,))])
def test_values_come_back_as_they_were(value):
    again = decode(encode(value))
    assert repr(again) == repr(value) and type(again) is type(value)


def test_what_is_no_part_of_a_program_is_refused():
    with pytest.raises(TypeError, match="object"):
        encode((object(),))


def test_the_second_compilation_saturates_nothing(tmp_path):
    store = Cache("program", tmp_path)
    first, second, other = compile(capture_code(CODE)), compile(capture_code(CODE)), compile(capture_code(CODE), numerics="strict")
    made = loadable(first, store)
    assert loadable(second, store) == made and "saturate" in first.seconds
    assert text(second, "cuda") == text(first, "cuda") and not second.seconds
    loadable(other, store)
    assert "saturate" in other.seconds
