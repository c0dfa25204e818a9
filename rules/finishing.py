"""Laws that finish a chosen kernel. They are applied to its ground terms (extract/kernels.py), never saturated: in the
e-graph, where a rounding that may go is equal to no rounding, they would say nothing."""
from __future__ import annotations

from deplodock.facts import of_dtype, sixteen_bit
from deplodock.ir.dtype import Dtype
from deplodock.ir.loop import Body, Cast
from deplodock.law import Axes, law, reduce, rewrite

f32 = Dtype.f32


@law("contracts")
def round_operand(a: Body, w: Body, k: Axes, d: Dtype):
    """Σₖ a·cast(f32, w) = Σₖ cast(f32, cast(d, a))·cast(f32, w)   when a is f32 and w is d, which has 16 bits"""
    return rewrite(reduce("sum", k, a * Cast(f32, w))).to(
        reduce("sum", k, Cast(f32, Cast(d, a)) * Cast(f32, w)), of_dtype(a, f32), of_dtype(w, d), sixteen_bit(d))
