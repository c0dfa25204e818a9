"""What Torch operators are made of: one table over the files of definitions.

Applied once, in Python, to ground terms while a program is entered (deplodock/enter.py): a law is called with the
operator's own operands and options by name (`shape` and `dtype` are the result's), and applies where its left side is
the operator. Each step of a definition becomes a launch of its own, so that an operator and its spelled-out form enter
as the same launches. On 16-bit floats definitions of several steps compute in f32 and round once, at the end.
"""
from __future__ import annotations

from deplodock.law import Law
from rules import attention_def, gather_def, pointwise_def, product_def, reduction_def, view, window_def

DEFINITIONS: dict[str, tuple[Law, ...]] = {**pointwise_def.DEFINITIONS, **reduction_def.DEFINITIONS,
                                           **product_def.DEFINITIONS, **attention_def.DEFINITIONS, **view.DEFINITIONS,
                                           **gather_def.DEFINITIONS, **window_def.DEFINITIONS}
"""The laws that have an operator as their left side, in the order in which they are tried: operators of Torch IR, and
those that only definitions use."""
