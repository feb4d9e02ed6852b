"""Public clips in pre-training: whole, or one side of their mask; nobody private is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import halfmask.data.clip_sets as clip_sets
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippingEngine
from halfmask.tasks.action import action_logits
from halfmask.tasks.action_pretraining import FromClips, joint_losses, last_grid, movements_of
from halfmask.training.config import RunConfig, build_config
from halfmask.training.pretrain import _prepare, pretrain
from halfmask.training.progress import Progress
from halfmask.views.tokens import FILL

pytestmark = pytest.mark.usefixtures("one_thread", "tiny_mvit")


@pytest.fixture(autouse=True)
def few_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clip_sets, "_JUDGED", 4)


def config_of(*assignments: str) -> RunConfig:
    recipe = {
        "task": "action",
        "strategy": "full",
        "batch": 6,
        "epochs": 0.5,
        "model": {"size": "tiny", "weights": None, "frames": 4, "side": 64},
        "data": {"public": 12, "labels": "action-and-place", "workers": 1},
        "augment": {"light": 0.0, "mirror": False},
        "optimiser": {"name": "sgd", "learning_rate": 0.01},
    }
    return build_config(recipe, {}, list(assignments))


def batches(config: RunConfig, count: int = 4) -> tuple[Any, list[dict[str, torch.Tensor]]]:
    setup = _prepare(config, Progress())
    half = FromClips(setup, ClippingEngine(setup.model))
    return setup, [half.batch() for _ in range(count)]


def test_some_clips_are_shown_as_one_side_of_their_mask() -> None:
    _, whole = batches(config_of())
    assert all(batch["tokens"].all() for batch in whole)
    _, parts = batches(config_of("pretrain.view_share=0.5", "pretrain.rest_share=0.5"))
    tokens = torch.cat([batch["tokens"] for batch in parts])
    clips = torch.cat([batch["clip"] for batch in parts])
    partial = ~tokens.flatten(1).all(1)
    # A person so small that no patch lies on them alone is shown in the room: a side without any token teaches nothing.
    assert partial.float().mean() > 0.4 and tokens.flatten(1).any(1).all()
    cleared = (clips == FILL).all(2).flatten(1).float().mean(1)[partial]
    assert (cleared > 0.02).all(), "what is not shown is taken out before any patch is formed"
    # Now the person alone, now the room alone.
    assert cleared.min() < 0.4 < 0.6 < cleared.max()
    _, some = batches(config_of("pretrain.view_share=0.5"))
    share = (~torch.cat([batch["tokens"] for batch in some]).flatten(1).all(1)).float().mean()
    assert 0.1 < share < 0.9


def test_somebody_cut_out_of_their_room_is_asked_for_what_they_do_alone() -> None:
    config = config_of("pretrain.view_share=1", "view.name=tokens", "view.options={edges: cleared}")
    setup = _prepare(config, Progress())
    half = FromClips(setup, ClippingEngine(setup.model))
    batch = half.batch()
    assert batch["cut out"].any() and half.movements is not None
    with torch.no_grad():
        scores = action_logits(setup.model, batch)
        losses = half._loss(setup.model, batch)
    for row in range(len(losses)):
        alike = half.movements == half.movements[batch["label"][row]]
        named = scores[row].softmax(0)[alike].sum() if batch["cut out"][row] else scores[row].softmax(0)[batch["label"][row]]
        torch.testing.assert_close(losses[row], -named.log())
    assert movements_of(["walk", "run"]) is None


def test_joints_are_asked_of_the_tokens_where_they_lie() -> None:
    """A network that says exactly where joints are has no loss but that of its certainty; one that is off in a cell has half a cell's."""
    setup = _prepare(config_of("pretrain.joints=1"), Progress())
    model = setup.model
    grid = last_grid(model)
    joints = torch.rand(1, 4, 16, 2, generator=torch.Generator().manual_seed(0)) * 0.98 - 0.49
    places = (joints + 0.5) * torch.tensor([grid.columns, grid.rows])
    said = torch.zeros(1, grid.frames, grid.rows * grid.columns, 2, 16, 3)
    for frame, joint in np.ndindex(4, 16):
        column, row = places[0, frame, joint].floor().long().tolist()
        cell = row * grid.columns + column
        said[0, frame // 2, cell, frame % 2, joint, 0] = 100.0
        said[0, frame // 2, cell, frame % 2, joint, 1:] = places[0, frame, joint] - places[0, frame, joint].floor() - 0.5
    features = torch.cat([torch.zeros(1, 1 + grid.total, 96), torch.ones(1, 1 + grid.total, 1)], -1)

    class Says(torch.nn.Module):
        def forward(self, _tokens: torch.Tensor) -> torch.Tensor:
            return said.reshape(1, grid.total, -1)

    model.joints = Says()
    assert float(joint_losses(model, features, joints)) < 1e-5
    assert float(joint_losses(model, features, joints.flip(3))) > 1
    features[:, 1:, -1] = 0
    assert float(joint_losses(model, features, joints)) == 0


def test_draws_are_the_same_again() -> None:
    config = config_of("pretrain.view_share=0.5", "augment.mirror=true", "augment.light=0.2")
    one, other = batches(config)[1], batches(config)[1]
    assert all(torch.equal(a[name], b[name]) for a, b in zip(one, other, strict=True) for name in a)


def test_pretraining_opens_nobody_private_and_leaves_weights_to_begin_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    honest = clip_sets.figures_clips
    monkeypatch.setattr(clip_sets, "figures_clips", lambda population, *rest: asked.append(population) or honest(population, *rest))
    folder = pretrain(config_of("pretrain.view_share=0.5"), tmp_path / "run")
    assert set(asked) == {"public"}
    state = load_file(folder / "model.safetensors")
    classes = len(state["head.1.bias"])
    assert classes > 12 and all(torch.isfinite(value).all() for value in state.values())
    assert not (folder / "certificate.json").exists()


def test_joints_are_placed_besides_where_they_are_known(tmp_path: Path) -> None:
    setup, (batch, *_) = batches(config_of("pretrain.joints=1"))
    assert batch["joints"].shape[1:] == (4, 16, 2) and setup.model.joints is not None
    assert np.isfinite(batch["joints"].numpy()).all()
    folder = pretrain(config_of("pretrain.joints=1", "pretrain.view_share=0.3"), tmp_path / "run")
    opened = setup.task.open(folder / "model.safetensors")
    assert opened.joints is None, "a model that is opened tells actions"


def test_labels_of_pretraining_are_refused_where_private_clips_are() -> None:
    from halfmask.training.setup import prepare

    with pytest.raises(HalfmaskError, match="classes for pre-training"):
        prepare(config_of("method=public-only"), Progress())
