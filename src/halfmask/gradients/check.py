"""Does the engine give what differentiating one record at a time gives? For a model of the user's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import Batch, ClippingEngine, LossFn, check_records_apart
from halfmask.gradients.pieces import count_records, some_records

# What counts as agreement: the largest difference beside the largest number of the reference, in the model's own precision.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


@dataclass(frozen=True)
class Agreement:
    """The worst relative error of each parameter's clipped sum, and of the norms.

    Attributes:
        tolerance: what is allowed in the model's precision.
        path: `fast`, `mixed` or `slow`: whether rules covered the model.
        slow: what no rule covers, and what is done about it.
        slow_seconds: what of a clipped sum went into each of those; empty where the whole model is slow.
        seconds: what a clipped sum of the batch takes.
        plain_seconds: what a plain gradient of the batch takes.
    """

    errors: dict[str, float]
    norms: float
    tolerance: float
    path: str
    slow: dict[str, str]
    slow_seconds: dict[str, float]
    seconds: float
    plain_seconds: float

    @property
    def agrees(self) -> bool:
        """Whether everything is within the tolerance."""
        return all(error <= self.tolerance for error in (self.norms, *self.errors.values()))


def check_model(model: nn.Module, loss_fn: LossFn, batch: Batch) -> Agreement:
    """Compare the engine with gradients taken one record at a time; the clip norm is their median, so that half are clipped.

    The errors are relative to the largest number of the reference, but not below a millionth of the largest in the whole gradient:
    some parameters (the bias of attention keys, for one) have a gradient that is zero but for rounding.
    """
    count = count_records(batch)
    if count < 2:
        raise HalfmaskError(f"the batch holds {count} record: give at least 2, so that one could show in another's gradient")
    engine = ClippingEngine(model)
    check_records_apart(model, loss_fn, batch)
    parameters = list(engine.parameters.values())
    rows = []
    for i in range(count):
        loss = loss_fn(model, some_records(batch, slice(i, i + 1))).sum()
        rows.append([g.double() for g in torch.autograd.grad(loss, parameters, materialize_grads=True)])
    norms = torch.stack([torch.stack([g.square().sum() for g in row]).sum().sqrt() for row in rows])
    clip_norm = float(norms.median())
    if not clip_norm > 0:
        raise HalfmaskError("most gradients are zero: there is nothing to compare. Give records that the loss depends on")
    clipped = engine.clipped_sum(loss_fn, batch, clip_norm)
    factors = (clip_norm / norms).clamp(max=1)
    sums = [torch.stack([f * row[j] for f, row in zip(factors, rows, strict=True)]).sum(0) for j in range(len(parameters))]
    floor = 1e-6 * max(float(total.abs().max()) for total in sums)
    errors = {
        name: float((clipped.sums[name] - total).abs().max()) / max(float(total.abs().max()), floor)
        for name, total in zip(engine.parameters, sums, strict=True)
    }
    tolerance = TOLERANCE.get(parameters[0].dtype, 1e-2)
    plain = _least_seconds(lambda: engine.mean_gradient(loss_fn, batch))
    seconds = _least_seconds(lambda: engine.clipped_sum(loss_fn, batch, clip_norm))
    away = float(((clipped.norms - norms).abs() / norms.clamp(min=1e-30)).max())
    return Agreement(errors, away, tolerance, engine.path, dict(engine.slow), engine.slow_seconds, seconds, plain)


def _least_seconds(work: Callable[[], object], times: int = 3) -> float:
    """The least of a few tries: other work on the machine only ever adds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)
