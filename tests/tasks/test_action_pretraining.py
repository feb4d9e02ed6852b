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
from halfmask.tasks.action_pretraining import FromClips
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
    _, parts = batches(config_of("pretrain.view_share=1"))
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
