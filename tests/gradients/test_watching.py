"""Hooks come and go with a pass, whatever happens in it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from halfmask.gradients.engine import ClippingEngine


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_on_a_model(fails: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), nn.Linear(8, 3))

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        out = model(batch).flatten(1).sum(1)
        if fails:
            raise KeyError("a loss of the user's own")
        return out

    switch = torch.backends.mha.get_fastpath_enabled()
    engine = ClippingEngine(model)
    if fails:
        with pytest.raises(KeyError):
            engine.clipped_sum(loss, torch.randn(3, 5, 8), 1.0)
    else:
        engine.clipped_sum(loss, torch.randn(3, 5, 8), 1.0)
    assert hooks(model) == 0 and not any("forward" in vars(module) for module in model.modules())
    assert torch.backends.mha.get_fastpath_enabled() == switch and all(isinstance(p, nn.Parameter) for p in model.parameters())


def test_a_layer_that_was_made_to_return_two_tensors_is_exact_all_the_same() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.layer.register_forward_hook(lambda _m, _i, out: (out, out * 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = self.layer(x)
            return first * second

    torch.manual_seed(0)
    model, x = Model().double(), torch.randn(4, 4, dtype=torch.float64)
    engine = ClippingEngine(model)
    with pytest.warns(UserWarning, match="no fast gradient rule for the way this model uses layer.weight"):
        found = engine.per_record_gradients(lambda m, b: m(b).sum(1), x)
    for i in range(4):
        expected = torch.autograd.grad(model(x[i : i + 1]).sum(), list(model.parameters()))
        assert torch.allclose(found[i], torch.cat([g.flatten() for g in expected]))
