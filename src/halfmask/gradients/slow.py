"""Per-record gradients of any model, by differentiating one record at a time. Exact, and several times dearer.

Under `vmap` all records are differentiated alike in one go. Not every network bears it (one that looks at values to decide what to do,
or draws random numbers, does not); a plain loop over records is borne by all.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from halfmask.gradients.pieces import Batch, LossFn, change_leaves, count_records, losses_of, some_records
from halfmask.gradients.terms import Direct, Term


class _LossModule(nn.Module):
    """Lets `functional_call` swap the model's parameters under an arbitrary loss function."""

    def __init__(self, model: nn.Module, loss_fn: LossFn):
        super().__init__()
        self.model, self.loss_fn = model, loss_fn

    def forward(self, batch: Batch) -> Tensor:
        return self.loss_fn(self.model, batch)


def slow_terms(model: nn.Module, parameters: dict[str, nn.Parameter], loss_fn: LossFn, batch: Batch) -> dict[str, Term]:
    """Per-record gradients by parameter name, under `vmap`."""
    module = _LossModule(model, loss_fn)

    def loss_of_one(values: dict[str, Tensor], record: Batch) -> Tensor:
        one = change_leaves(lambda tensor: tensor.unsqueeze(0), record)
        return functional_call(module, values, (one,)).squeeze(0)

    values = {f"model.{name}": p.detach() for name, p in parameters.items()}
    gradients = vmap(grad(loss_of_one), in_dims=(None, 0))(values, batch)
    return {name: Direct(gradients[f"model.{name}"].detach()) for name in parameters}


def looped_terms(model: nn.Module, parameters: dict[str, nn.Parameter], loss_fn: LossFn, batch: Batch) -> dict[str, Term]:
    """The same, one record after another."""
    rows = []
    for i in range(count_records(batch)):
        loss = losses_of(loss_fn, model, some_records(batch, slice(i, i + 1))).sum()
        rows.append(torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True))
    return {name: Direct(torch.stack(each)) for name, each in zip(parameters, zip(*rows, strict=True), strict=True)}
