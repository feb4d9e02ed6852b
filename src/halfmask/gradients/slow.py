"""Per-record gradients of any model, by differentiating one record at a time under `vmap`. Exact, and several times dearer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from halfmask.gradients.terms import Direct, Term


class _LossModule(nn.Module):
    """Lets `functional_call` swap the model's parameters under an arbitrary loss function."""

    def __init__(self, model: nn.Module, loss_fn: Callable[[nn.Module, dict[str, Tensor]], Tensor]):
        super().__init__()
        self.model, self.loss_fn = model, loss_fn

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.loss_fn(self.model, batch)


def slow_terms(
    model: nn.Module,
    parameters: dict[str, nn.Parameter],
    loss_fn: Callable[[nn.Module, dict[str, Tensor]], Tensor],
    batch: dict[str, Tensor],
) -> dict[str, Term]:
    """Per-record gradients by parameter name."""
    module = _LossModule(model, loss_fn)

    def loss_of_one(values: dict[str, Tensor], record: dict[str, Tensor]) -> Tensor:
        one = {key: value.unsqueeze(0) for key, value in record.items()}
        return functional_call(module, values, (one,)).squeeze(0)

    values = {f"model.{name}": p.detach() for name, p in parameters.items()}
    gradients = vmap(grad(loss_of_one), in_dims=(None, 0))(values, batch)
    return {name: Direct(gradients[f"model.{name}"].detach()) for name in parameters}
