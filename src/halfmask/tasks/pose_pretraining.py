"""How crops of public people are shown in pre-training: changed anew each time, the first of them at half size, some as their views."""

from __future__ import annotations

import torch

from halfmask.data.augment import augment
from halfmask.data.pose_records import PoseRecords
from halfmask.gradients.engine import Batch, ClippingEngine
from halfmask.training.pretrain import PublicPeople
from halfmask.training.setup import Setup


class FromCrops(PublicPeople):
    """For training the whole network. Its changes come from one generator, in turn: nobody here is protected by being drawn apart."""

    def __init__(self, setup: Setup, engine: ClippingEngine):
        super().__init__(setup, engine)
        self.generator = torch.Generator().manual_seed(setup.config.seed + 2)

    def batch(self) -> Batch:  # noqa: D102
        config, people = self.setup.config, self.setup.private
        number, self.batches = self.batches, self.batches + 1
        batch = self._some_as_views(people.batch(self.samplers["view"].draw()))
        if number >= config.pretrain.small_share * self.setup.steps:
            return self._changed(batch)
        # Half-size pixel i covers pixels 2i and 2i + 1, so its centre is 2i + ½. The targets stay those of the whole size.
        batch |= {"image": torch.nn.functional.avg_pool2d(batch["image"].float(), 2), "joints": (batch["joints"] - 0.5) / 2}
        batch = self._changed(batch)
        return batch | {"joints": batch["joints"] * 2 + 0.5}

    def _changed(self, batch: Batch) -> Batch:
        people = self.setup.private
        assert isinstance(people, PoseRecords)
        changed = augment(batch, self.generator, self.setup.config.augment.change, people.skeleton)
        return {name: tensor.to(self.setup.device) for name, tensor in changed.items()}

    def _some_as_views(self, batch: Batch) -> Batch:
        """About `view_share` of the images replaced by their views, before any augmentation, as private views will be."""
        images = batch["image"].numpy().copy()
        chosen = torch.rand(len(images), generator=self.generator) < self.setup.config.pretrain.view_share
        for i in torch.nonzero(chosen).flatten().tolist():
            images[i] = self.setup.view.of({"image": images[i]}).public["image"]
        return batch | {"image": torch.from_numpy(images)}
