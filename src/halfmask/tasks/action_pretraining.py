"""How clips of public people are shown in pre-training: whole, or as one side of their mask alone, changed anew each time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from halfmask.data.clips import ClipRecords
from halfmask.gradients.engine import Batch, ClippingEngine
from halfmask.models.mvit import LAST_BLOCKS, Block, MViT
from halfmask.models.mvit_attention import Grid
from halfmask.tasks.action import lower_features
from halfmask.tasks.action_changes import NUMBERS, changed
from halfmask.training.pretrain import PublicPeople
from halfmask.training.setup import Setup
from halfmask.views.tokens import EDGES, Tokens

# Of the clips that are shown in part, the share at whose border tokens are treated in the other of the two ways.
_OTHER_EDGES = 0.15


class FromClips(PublicPeople):
    """For training the whole network. A network that never saw some tokens alone would make little of them later.

    The other way round, people cut out of their rooms teach how people move within minutes, and whole clips not in an hour: begin with
    parts alone (`view_share: 1`), and go on with both.

    Its draws come from one generator, in turn: nobody here is protected by being drawn apart.
    """

    longest = 1.0

    def __init__(self, setup: Setup, engine: ClippingEngine):
        super().__init__(setup, engine)
        self.generator = torch.Generator().manual_seed(setup.config.seed + 2)
        self.weight = setup.config.pretrain.joints if "joints" in setup.private.truth.shapes() else 0.0
        assert isinstance(setup.private, ClipRecords)
        self.movements = movements_of(setup.private.classes)
        self.loss_fn = self._loss

    def batch(self) -> Batch:  # noqa: D102
        config, people = self.setup.config, self.setup.private
        self.batches += 1
        rows = self.samplers["view"].draw().numpy()
        batch, known = people.batch(rows), people.truth.rows(rows)
        batch["cut out"] = torch.zeros(len(rows), dtype=torch.bool)
        if "hidden" in known:
            batch |= self._some_in_part(batch, known["hidden"])
        if self.weight:
            batch["joints"] = torch.from_numpy(known["joints"])
        numbers = torch.rand(len(rows), NUMBERS, generator=self.generator)
        return {name: tensor.to(self.setup.device) for name, tensor in changed(batch, numbers, config.augment).items()}

    def _loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """What is done, and where; of somebody cut out of their room, what is done alone. And where each joint is in each frame."""
        assert isinstance(model, MViT)
        features = lower_features(model, batch)
        scores = model.upper(features)
        losses = nn.functional.cross_entropy(scores, batch["label"], reduction="none")
        if self.movements is not None:
            alike = self.movements.to(scores.device)
            by_movement = scores[:, None].masked_fill(alike[None] != torch.arange(int(alike.max()) + 1)[:, None], -torch.inf).logsumexp(-1)
            of_movement = nn.functional.cross_entropy(by_movement, alike[batch["label"]], reduction="none")
            losses = torch.where(batch["cut out"], of_movement, losses)
        return losses + self.weight * joint_losses(model, features, batch["joints"]) if self.weight else losses

    def _some_in_part(self, batch: Batch, hidden: np.ndarray) -> Batch:
        """About `view_share` of the clips as their public tokens, and `rest_share` as the tokens of the other side."""
        config = self.setup.config
        clips, tokens = batch["clip"].numpy().copy(), batch["tokens"].numpy().copy()
        draws = torch.rand(len(clips), 2, generator=self.generator)
        asked = EDGES.index(config.view.options.get("edges", EDGES[0]))
        cut_out = torch.zeros(len(clips), dtype=torch.bool)
        for row in torch.nonzero(draws[:, 0] < config.pretrain.view_share + config.pretrain.rest_share).flatten().tolist():
            public = bool(draws[row, 0] < config.pretrain.view_share)
            view = Tokens(EDGES[1 - asked if draws[row, 1] < _OTHER_EDGES else asked])
            seen = view.of({"clip": clips[row], "hidden": hidden[row] if public else ~hidden[row]}).public
            # A side without any token teaches nothing.
            if seen["tokens"].any():
                clips[row], tokens[row], cut_out[row] = seen["clip"], seen["tokens"], public
        return {"clip": torch.from_numpy(clips), "tokens": torch.from_numpy(tokens), "cut out": cut_out}


def movements_of(classes: Sequence[str]) -> Tensor | None:
    """Of classes that name a movement and its place, "walk (street)", the number of the movement; nothing where no class does."""
    names = [name.partition(" (")[0] for name in classes]
    order = list(dict.fromkeys(names))
    return torch.tensor([order.index(name) for name in names]) if len(order) < len(names) else None


def joint_losses(model: MViT, features: Tensor, joints: Tensor) -> Tensor:
    """How far the tokens of each clip are from saying where its joints are.

    Every token is asked, for the frames that it stands for, whether a joint lies in its cell of the frame, against all other cells, and
    where in it. A joint outside the frame, or in a cell whose token is not there, is not asked for.

    Args:
        joints: N×T×J×2, as shares of the frame from its centre.
    """
    assert model.joints is not None
    records, frames, count = joints.shape[:3]
    grid = last_grid(model)
    said = model.joints(features[:, 1:, :-1]).view(records, grid.frames, grid.rows * grid.columns, -1, count, 3)
    # N×T×J×cells×3: a token stands for as many frames as there are for each step in time.
    said = said.permute(0, 1, 3, 4, 2, 5).reshape(records, -1, count, grid.rows * grid.columns, 3)[:, :frames]
    there = features[:, 1:, -1].view(records, grid.frames, 1, -1) > 0.5
    there = there.repeat_interleave(-(-frames // grid.frames), 1)[:, :frames].expand(-1, -1, count, -1)
    places = (joints + 0.5) * joints.new_tensor([grid.columns, grid.rows])
    cells = places.floor()
    inside = ((joints > -0.5) & (joints < 0.5)).all(-1)
    number = (cells[..., 1] * grid.columns + cells[..., 0]).long().clamp(0, grid.rows * grid.columns - 1)
    asked = (inside & there.gather(3, number[..., None])[..., 0]).float()
    scores = said[..., 0].masked_fill(~there, -1e4).log_softmax(-1)
    found = -scores.gather(3, number[..., None])[..., 0]
    within = said[..., 1:].gather(3, number[..., None, None].expand(-1, -1, -1, 1, 2))[..., 0, :]
    off = (within - (places - cells - 0.5)).abs().sum(-1)
    return (asked * (found + off)).sum((1, 2)) / (frames * count)


def last_grid(model: MViT) -> Grid:
    """The tokens before the last blocks."""
    block = model.blocks[-LAST_BLOCKS]
    assert isinstance(block, Block)
    return block.grid
