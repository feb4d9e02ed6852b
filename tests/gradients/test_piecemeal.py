"""One function, or one module, differentiated record by record."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from halfmask.gradients.piecemeal import Unsplittable, function_terms, module_terms


def test_a_function_gives_each_record_its_own_gradient() -> None:
    torch.manual_seed(0)
    x, gradient = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    centres = nn.Parameter(torch.randn(3, 4, dtype=torch.float64))
    ((source, term),) = function_terms(torch.cdist, (x, centres), {}, [centres], gradient, 3)
    assert source is centres
    for i in range(3):
        own = slice(2 * i, 2 * i + 2)
        (expected,) = torch.autograd.grad(torch.cdist(x[own], centres), centres, gradient[own])
        assert torch.allclose(term.direct().gradients[i], expected)


def test_an_output_without_records_first_is_not_split() -> None:
    centres = nn.Parameter(torch.randn(3, 4))
    with pytest.raises(Unsplittable):
        function_terms(torch.cdist, (centres, torch.randn(2, 4)), {}, [centres], torch.randn(3, 2), 2)


class Two(nn.Module):
    """Two outputs, and a table that is everybody's beside what is each record's own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(3, dtype=torch.float64))

    def forward(self, x: Tensor, table: Tensor, more: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return torch.sin(x * self.scale) @ table, x.sum(1) * self.scale.sum() + more["shift"]


def test_a_module_is_given_what_is_everybodys_whole_and_the_rest_in_parts() -> None:
    torch.manual_seed(0)
    module = Two()
    # As many rows in the table as there are records times two: only what is told to carry records is cut.
    x, table = torch.randn(6, 3, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64).T.contiguous()[:3]
    shift = torch.randn(6, dtype=torch.float64)
    gradients: list[Tensor | None] = [torch.randn(6, 3, dtype=torch.float64), torch.randn(6, dtype=torch.float64)]
    bound = {id(x), id(shift)}
    ((source, term),) = module_terms(module, (x, table), {"more": {"shift": shift}}, lambda t: id(t) in bound, [module.scale], gradients, 3)
    assert source is module.scale
    for i in range(3):
        own = slice(2 * i, 2 * i + 2)
        outputs = module(x[own], table, {"shift": shift[own]})
        (expected,) = torch.autograd.grad(outputs, module.scale, [g[own] for g in gradients if g is not None])
        assert torch.allclose(term.direct().gradients[i], expected)
    with pytest.raises(Unsplittable):
        module_terms(module, (x, table), {"more": {"shift": shift}}, lambda t: True, [module.scale], gradients, 4)
