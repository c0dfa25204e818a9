"""Gradients of a compiled graph: the forward pass is compiled, the backward pass runs the graph again in eager mode.

It costs a second forward pass, and the gradients are eager's own, those of gradients too.
"""
from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch


class Recompute(torch.autograd.Function):
    """apply(run, again, differentiable, *args): run(*args), with the gradients of again(*args).

    differentiable: for each output whether it has a gradient.
    """

    @staticmethod
    def forward(ctx, run: Callable, again: Callable, differentiable: tuple[bool, ...], *args):
        ctx.again, ctx.places = again, [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
        ctx.others = [None if isinstance(a, torch.Tensor) else a for a in args]
        ctx.wanted = [args[i].requires_grad for i in ctx.places]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        kinds = sorted({args[i].device.type for i in ctx.places})
        ctx.casts = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]
        outputs = tuple(run(*args))
        ctx.mark_non_differentiable(*(y for y, d in zip(outputs, differentiable) if isinstance(y, torch.Tensor) and not d))
        return outputs

    @staticmethod
    def backward(ctx, *gradients):
        twice = torch.is_grad_enabled()          # the gradients will be differentiated
        args = list(ctx.others)
        inputs = [t.view_as(t) if twice and w else t.detach().requires_grad_(w) for t, w in zip(ctx.saved_tensors, ctx.wanted)]
        for i, t in zip(ctx.places, inputs):
            args[i] = t
        with ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            for kind, enabled, dtype in ctx.casts:
                stack.enter_context(torch.autocast(kind, dtype, enabled))
            outputs = ctx.again(*args)
        pairs = [(y, g) for y, g in zip(outputs, gradients)
                 if isinstance(y, torch.Tensor) and y.requires_grad and g is not None]
        wanted = [t for t in inputs if t.requires_grad]
        result: list = [None] * len(args)
        if pairs and wanted:
            found = iter(torch.autograd.grad([y for y, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True,
                                             create_graph=twice))
            for i, t in zip(ctx.places, inputs):
                result[i] = next(found) if t.requires_grad else None
        return None, None, None, *result
