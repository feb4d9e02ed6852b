"""From what was computed of parameters back to them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from halfmask.gradients.derived import Derived, lookup_term, roots
from halfmask.gradients.terms import Direct
from halfmask.gradients.uses import Lookup


class Cube(torch.autograd.Function):
    """Cannot be differentiated for several at once."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if float(gradient.sum()) == 0.123:  # looks at values, which nothing that goes over several at once can
            raise AssertionError
        return gradient * 3 * x**2


@pytest.mark.parametrize("one_by_one", [False, True])
def test_gradients_of_all_units_go_back_and_add_up(one_by_one: bool) -> None:
    torch.manual_seed(0)
    p, q = (nn.Parameter(torch.randn(3, dtype=torch.float64)) for _ in range(2))
    idle = nn.Parameter(torch.ones(2))
    first, second = (Cube.apply(p) if one_by_one else p**3), torch.outer(p, q)
    derived = Derived([p, q, idle])
    gradients = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 3, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    derived.add(first, Direct(gradients[0]))
    derived.add(second, Direct(gradients[1]))
    derived.add(first, Direct(gradients[2]))
    found = {id(parameter): term.direct().gradients for parameter, term in derived.terms()}
    assert id(idle) not in found
    for i in range(4):
        expected = (gradients[0] + gradients[2])[i] * 3 * p.detach() ** 2 + gradients[1][i] @ q.detach()
        assert torch.allclose(found[id(p)][i], expected) and torch.allclose(found[id(q)][i], gradients[1][i].T @ p.detach())


@pytest.mark.parametrize("own_rows", [False, True])
def test_rows_of_a_table_keep_to_their_records(own_rows: bool) -> None:
    table = nn.Parameter(torch.randn(5, 2, dtype=torch.float64))
    indices = torch.tensor([[1, 4, 0], [1, 1, 2]]) if own_rows else torch.tensor([1, 4, 1])
    gradient = torch.randn(2, 3, 2, dtype=torch.float64)
    found = lookup_term(Lookup(table, indices, 4), gradient, 2, own_rows).direct().gradients
    for i in range(2):
        rows = nn.functional.embedding(indices[i] if own_rows else indices, table, padding_idx=4)
        assert torch.allclose(found[i], torch.autograd.grad(rows, table, gradient[i])[0])


def test_roots_are_the_parameters_something_was_computed_from() -> None:
    p, q, r = (nn.Parameter(torch.ones(2)) for _ in range(3))
    assert roots(p.exp() * q) == {id(p), id(q)} and roots(r) == {id(r)}
