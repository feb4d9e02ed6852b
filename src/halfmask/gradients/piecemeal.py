"""Per-record gradients of one function, or of one module, that no rule covers: its own, and nobody else's.

What went in is kept, and what came back; from those the function (the module) is differentiated once for each record. Exact, and slow in
proportion to what that one function costs, not the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from halfmask.gradients.pieces import change_leaves, leaves_of
from halfmask.gradients.terms import Direct, Term


class Unsplittable(Exception):
    """Records do not come first in what went in or came out."""


def function_terms(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    watched: list[Tensor],
    gradient: Tensor,
    records: int,
) -> list[tuple[Tensor, Term]]:
    """The gradients of the watched tensors for each record, from the gradient at the function's output.

    The function is run once, on all records; then, for each record, the gradient of every other record is set to zero. That asks of the
    function no more than that its output has the records first.
    """
    if not gradient.dim() or len(gradient) % records:
        raise Unsplittable(f"output of shape {tuple(gradient.shape)}")
    alone = {id(t): t.detach().requires_grad_() for t in watched}

    def swapped(value: Any) -> Any:
        return alone.get(id(value), value.detach()) if isinstance(value, Tensor) else value

    with torch.enable_grad():
        output = func(*change_leaves(swapped, args), **change_leaves(swapped, kwargs))
    rows: list[tuple[Tensor, ...]] = []
    each = len(gradient) // records
    for i in range(records):
        own = torch.zeros_like(gradient)
        own[i * each : (i + 1) * each] = gradient[i * each : (i + 1) * each]
        rows.append(torch.autograd.grad(output, list(alone.values()), own, retain_graph=True, materialize_grads=True))
    return [(t, Direct(torch.stack(gradients))) for t, gradients in zip(_once(watched), zip(*rows, strict=True), strict=True)]


def module_terms(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    bound: Callable[[Tensor], bool],
    parameters: list[nn.Parameter],
    gradients: list[Tensor | None],
    records: int,
) -> list[tuple[Tensor, Term]]:
    """The gradients of some of a module's parameters for each record, from what it was given and the gradients of what it returned.

    Args:
        bound: whether a tensor among the arguments carries records; others are given to every record as they are.
        gradients: at each tensor of the output that has one, in order.
    """
    for tensor in leaves_of((args, kwargs)):
        if bound(tensor) and (not tensor.dim() or len(tensor) % records):
            raise Unsplittable(f"input of shape {tuple(tensor.shape)}")
    if any(g is not None and (not g.dim() or len(g) % records) for g in gradients):
        raise Unsplittable("output without records first")

    def part(tensor: Tensor, i: int) -> Tensor:
        each = len(tensor) // records
        return tensor[i * each : (i + 1) * each]

    rows: list[tuple[Tensor, ...]] = []
    for i in range(records):

        def own(value: Any, i: int = i) -> Any:
            if not isinstance(value, Tensor):
                return value
            return part(value.detach(), i) if bound(value) else value.detach()

        with torch.enable_grad():
            output = list(leaves_of(module(*change_leaves(own, args), **change_leaves(own, kwargs))))
        pairs = [(o, part(g, i)) for o, g in zip(output, gradients, strict=True) if g is not None and o.requires_grad]
        if any(o.shape != g.shape for o, g in pairs):
            raise Unsplittable("an output whose shape for one record is not its share of the whole")
        found = torch.autograd.grad([o for o, _ in pairs], parameters, [g for _, g in pairs], materialize_grads=True) if pairs else ()
        rows.append(found or tuple(torch.zeros_like(p) for p in parameters))
    return [(p, Direct(torch.stack(each))) for p, each in zip(parameters, zip(*rows, strict=True), strict=True)]


def _once(tensors: Iterable[Tensor]) -> list[Tensor]:
    return list({id(t): t for t in tensors}.values())
