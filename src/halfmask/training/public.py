"""The half of a step that is exact: gradients of what is public.

It has randomness of its own and is never told who is in a private batch: an exact gradient of the same people would show the coins.
The one exception, the method as it was published, is a class of its own, and is accounted for as what it is.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from halfmask.data.records import PRIVATE, VIEW
from halfmask.gradients.engine import Batch, ClippingEngine, LossFn
from halfmask.gradients.pieces import count_records
from halfmask.privacy.sampling import PublicSampler
from halfmask.training.setup import Setup
from halfmask.training.showing import Showing


class PublicHalf:
    """Views of the private set, and raw public people in the declared share.

    Attributes:
        loss: of the last batch.
        batches: how many there were so far, of which a step may take several: each shows people changed differently.
    """

    def __init__(self, setup: Setup, engine: ClippingEngine, showing: Showing):
        config = setup.config
        self.setup, self.engine, self.showing, self.loss_fn = setup, engine, showing, setup.task.view_loss
        self.group = setup.group
        self.loss: float | None = None
        self.batches = 0
        self.size = config.public.batch or config.batch
        self.raw_count = round(self.size * config.public.raw_share) if setup.raw_public is not None else 0
        self.samplers = {"view": PublicSampler(len(setup.private), max(1, self.size - self.raw_count), config.seed + 1)}
        if setup.raw_public is not None:
            self.samplers["raw"] = PublicSampler(len(setup.raw_public), max(1, self.raw_count), config.seed + 2)

    def gradient(self) -> Tensor:
        """λ times the exact mean gradient of the next batch."""
        gradient, loss = self.mean_gradient(self.loss_fn, self.batch())
        self.loss = self.loss if loss is None else loss
        return self.setup.config.public.weight * gradient

    def mean_gradient(self, loss_fn: LossFn, batch: Batch | None) -> tuple[Tensor, float | None]:
        """The mean gradient, and the mean loss, of a batch of which each process has its share."""
        records = 0 if batch is None else count_records(batch)
        if batch is None or not records:
            return self.group.mean(torch.zeros(self.engine.size, device=self.setup.device), None, 0)
        return self.group.mean(*self.engine.mean_gradient(loss_fn, batch), records)

    def batch(self) -> Batch | None:
        """This process's share of the next batch; None where that is nothing."""
        setup, parts = self.setup, list[Batch]()
        number, self.batches = self.batches, self.batches + 1
        if self.size > self.raw_count:
            views = self.group.share(self.samplers["view"].draw().numpy(), setup.private.owners)
            parts += self.showing.show(setup.private, views, VIEW, use="public", step=number) if len(views) else []
        if self.raw_count and setup.raw_public is not None:
            changed = 1 if setup.config.augment.public else None
            raw = self.group.share(self.samplers["raw"].draw().numpy())
            parts += self.showing.show(setup.raw_public, raw, PRIVATE, use="public", step=number, times=changed) if len(raw) else []
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]} if parts else None


class SharedBatch(PublicHalf):
    """The published mistake: the views of the very people in the private batch. The accountant was told that sampling hides nobody."""

    rows = np.zeros(0, np.int64)

    def publish(self, rows: np.ndarray) -> None:
        """The records that the private half has drawn."""
        self.rows = rows

    def batch(self) -> Batch | None:
        """Views of those; nothing for an empty batch."""
        return self.setup.private.batch(self.rows, VIEW, self.setup.device) if len(self.rows) else None
