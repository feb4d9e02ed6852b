"""Is a record's loss its own? Where people are coupled, by a layer or by the loss, no clip bounds one of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.pieces import Batch, LossFn, count_records, losses_of, some_records
from halfmask.gradients.rules.embedding import refuse_looking_at_others


def mixes_records(model: nn.Module) -> list[str]:
    """Names of layers whose output for one record depends on others in the batch; none in a model fit for private training."""
    return [name for name, module in model.named_modules() if _mixes(module)]


def _mixes(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        # Without running statistics it takes those of the batch even when not training.
        return module.training or module.running_mean is None
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        # Its statistics are each record's own, but it would keep an average of them, without noise, among the weights.
        return module.training and module.track_running_stats
    return bool(getattr(module, "sees_batches", False))


def refuse_mixing(model: nn.Module) -> None:
    """Refuse a model with such a layer, by name."""
    for module in model.modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.weight.requires_grad:
            refuse_looking_at_others(module.max_norm, module.scale_grad_by_freq)
    mixing = mixes_records(model)
    if mixing:
        raise HalfmaskError(
            f"the layer '{mixing[0]}' normalises by statistics of the batch, which mixes people: freeze it to public statistics "
            "(PublicBatchNorm2d) or use GroupNorm"
        )


@contextmanager
def state_kept(model: nn.Module) -> Iterator[None]:
    """Refuse whatever changes a parameter or a buffer meanwhile: it would carry what was seen of records past the noise."""
    before, values = _state(model), {name: buffer.clone() for name, buffer in model.named_buffers()}
    yield
    changed = sorted(name for name, state in _state(model).items() if before.get(name) != state)
    # What is written through `.data` leaves no other trace.
    changed += [name for name, buffer in model.named_buffers() if not _same(buffer, values.get(name))]
    if changed:
        raise HalfmaskError(
            f"'{changed[0]}' of the model changed while a loss was taken: what the model keeps of records would be released without noise. "
            "Keep layers that gather statistics in evaluation mode, and change no weight or buffer in the loss"
        )


def _state(model: nn.Module) -> dict[str, tuple[int, int]]:
    tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    return {name: (id(tensor), tensor._version) for name, tensor in tensors}


def _same(first: Tensor, second: Tensor | None) -> bool:
    if second is None or first.device.type == "meta":
        return second is not None
    return first.shape == second.shape and bool(((first == second) | ((first != first) & (second != second))).all())


def check_records_apart(model: nn.Module, loss_fn: LossFn, batch: Batch, tolerance: float = 1e-4) -> None:
    """Refuse a loss of one record that changes with the others in its batch: clipping could not bound it.

    Run it on public or random records only.
    """
    count = count_records(batch)
    parameters = [p for p in model.parameters() if p.requires_grad]
    together = losses_of(loss_fn, model, batch)
    for i in range(count):
        alone = loss_fn(model, some_records(batch, slice(i, i + 1))).sum()
        moved = abs(float((together[i] - alone).detach())) / max(1.0, abs(float(alone.detach())))
        # Losses of an untrained network are nearly equal, so that a mean over the batch looks like each of them: its gradient does not.
        if parameters and together.requires_grad:
            with_others = torch.autograd.grad(together[i], parameters, retain_graph=True, materialize_grads=True)
            by_itself = torch.autograd.grad(alone, parameters, materialize_grads=True)
            length = math.sqrt(sum(float(g.double().square().sum()) for g in by_itself))
            apart = math.sqrt(sum(float((a - b).double().square().sum()) for a, b in zip(with_others, by_itself, strict=True)))
            moved = max(moved, 0.1 * apart / max(length, 1e-12)) if apart == apart else math.nan
        if not moved <= tolerance:  # so that NaN, which compares false with everything, does not pass for agreement
            raise HalfmaskError(
                f"the loss of a record changes by {moved:.3g} with the other records in its batch: people are coupled and no clip bounds "
                "one of them. Make every term of the loss, and every layer, depend on its own record alone"
            )
