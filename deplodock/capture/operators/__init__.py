"""The one table from ATen operators to Torch IR, and the constructors it names.

A row is `"softmax.int": softmax`: an overload's name and the function that adds its Torch IR nodes. A constructor gets
a Call, which holds all arguments of the operator's schema by name, defaults filled in, tensors as Arg, and the shape
and the dtype of the result. An operator without a row is decomposed by PyTorch where it can be, else a named error.
"""
from __future__ import annotations

from deplodock.capture.operators import (activations, folds, indexing, losses, made, pointwise, products, views,
                                         windows)
from deplodock.capture.operators.rows import Constructor

TABLE: dict[str, Constructor] = {**pointwise.ROWS, **activations.ROWS, **folds.ROWS, **losses.ROWS, **products.ROWS,
                                **views.ROWS, **indexing.ROWS, **made.ROWS, **windows.ROWS}
"""ATen overload -> constructor."""
