"""The slow paths: any network, by `vmap` or by a plain loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.slow import looped_terms, slow_terms

PATHS = pytest.mark.parametrize("path", [slow_terms, looped_terms])


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.idle = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


def loss(model: nn.Module, batch: tuple[Tensor, dict[str, Tensor]]) -> Tensor:
    x, more = batch
    return (model(x) * more["w"]).sum(1)


@PATHS
def test_gradients_are_those_of_each_record(path) -> None:
    torch.manual_seed(0)
    model = Scaled().double()
    batch = (torch.randn(4, 3, dtype=torch.float64), {"w": torch.randn(4, 2, dtype=torch.float64)})
    parameters = dict(model.named_parameters())
    terms = path(model, parameters, loss, batch)
    for i in range(4):
        alone = loss(model, (batch[0][i : i + 1], {"w": batch[1]["w"][i : i + 1]})).sum()
        expected = torch.autograd.grad(alone, list(parameters.values()), materialize_grads=True)
        for name, gradient in zip(parameters, expected, strict=True):
            assert torch.allclose(terms[name].direct().gradients[i], gradient, atol=1e-12)


def test_a_loss_that_is_no_loss_of_a_record_is_refused() -> None:
    model = Scaled()
    with pytest.raises(HalfmaskError, match="one value per record"):
        looped_terms(model, dict(model.named_parameters()), lambda m, b: m(b), torch.ones(2, 3))
