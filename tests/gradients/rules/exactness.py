"""One record at a time against a rule: shared by the tests of all families."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from halfmask.gradients.engine import ClippingEngine

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}


class Wrapped(nn.Module):
    """A layer whose output a loss can weigh: its own gradient is then anything but uniform."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def _loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return (torch.tanh(model(batch["x"])) * batch["weights"]).flatten(1).sum(1)


def assert_exact(layer: nn.Module, x: Tensor, units: list[int] | None = None, may_be_slow: bool = False) -> None:
    """Clipped sums, norms and per-record gradients of a layer equal those taken one record at a time, without the slow path."""
    model = Wrapped(layer)
    dtype = next(layer.parameters()).dtype
    with torch.no_grad():
        weights = torch.randn_like(model(x), memory_format=torch.contiguous_format)
    batch = {"x": x, "weights": weights * torch.logspace(-1, 1, len(x), dtype=dtype).view(-1, *[1] * (weights.dim() - 1))}
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(len(x)):
        loss = _loss(model, {key: value[i : i + 1] for key, value in batch.items()}).sum()
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, materialize_grads=True)]).double())
    each = torch.stack(rows)
    labels = torch.arange(len(x)) if units is None else torch.tensor(units)
    whole = torch.stack([each[labels == unit].sum(0) for unit in sorted(set(labels.tolist()))])
    norms = whole.norm(dim=1)
    clip = max(float(norms.median()), 1e-3)
    expected = (whole * (clip / norms.clamp(min=clip))[:, None]).sum(0)
    with warnings.catch_warnings():
        warnings.simplefilter("always" if may_be_slow else "error")  # the slow path would be exact too
        engine = ClippingEngine(model)
        found = engine.clipped_sum(_loss, batch, clip, None if units is None else labels)
        separate = engine.per_record_gradients(_loss, batch)
    scale = max(float(expected.abs().max()), 1e-6)
    assert float((found.flat() - expected).abs().max()) / scale < TOLERANCE[dtype]
    assert torch.allclose(found.norms, norms, rtol=TOLERANCE[dtype], atol=1e-9 if dtype == torch.float64 else 1e-6)
    assert float((separate - each).abs().max()) / max(float(each.abs().max()), 1e-6) < TOLERANCE[dtype]
