"""What people see of actions: classes on pages, frames with answers, labels over a video."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from halfmask.data.clip_frames import fitted, pick
from halfmask.data.clips import records_of_clips
from halfmask.tasks import action
from halfmask.tasks.action import ActionTask
from halfmask.tasks.action_showing import _RIGHT, _WRONG
from halfmask.training.config import build_config, load_recipe

CLASSES = ("dark", "bright")


def task(*changes: str) -> ActionTask:
    return ActionTask(build_config(load_recipe("action/figures"), {}, list(changes)))


class Brightness(nn.Module):
    """Says 'bright' of bright clips."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Identity(), nn.Linear(1, classes))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    batches = []

    def logits(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        batches.append(batch)
        bright = batch["clip"].float().mean((1, 2, 3, 4)) / 255
        return 8 * torch.stack([0.5 - bright, bright - 0.5], 1)

    monkeypatch.setattr(action, "action_logits", logits)
    return batches


def test_shares_of_drawn_people_follow_from_settings_and_those_of_others_are_nobodys() -> None:
    uneven = task("data.balance=0.5").shares()
    assert uneven is not None
    values = list(uneven.values())
    assert sum(values) == pytest.approx(1) and values[1] == pytest.approx(values[0] / 2)
    even = task().shares()
    assert even is not None and len(set(even.values())) == 1
    assert task("data.name=some-folder").shares() is None


def test_answers_are_green_or_red_below_the_frames(seen: list) -> None:
    clips = np.stack([np.full((8, 3, 96, 96), level, np.uint8) for level in (10, 240)])
    one = task()
    records = one.with_tokens(records_of_clips(clips, np.array([0, 0]), None, np.array([0, 1]), "key", CLASSES))
    truth = one.pictures(None, records)
    right, wrong = one.pictures(Brightness(), records)

    def holds(picture: np.ndarray, colour: tuple[int, int, int]) -> bool:
        # Letters have soft edges: near is near enough.
        return bool((np.abs(picture[-24:].astype(int) - colour).max(-1) < 40).any())

    assert holds(right, _RIGHT) and not holds(right, _WRONG)
    assert holds(wrong, _WRONG) and not holds(wrong, _RIGHT)
    assert not holds(truth[0], _RIGHT) and not holds(truth[0], _WRONG) and right.shape == truth[0].shape
    assert (right[:-24] == 10).all() and (wrong[:-24] == 240).all()


def test_a_video_is_cut_and_shrunk_as_clips_of_a_dataset_are(seen: list, tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (20, 50, 70, 3)).astype(np.uint8)
    frames[10:] = frames[10:] // 4
    one = task("data.fit=squeeze")
    one.opened = tmp_path
    (tmp_path / "metrics.json").write_text(json.dumps({"classes": list(CLASSES)}))
    found, drawn = one.predict_video(Brightness(), frames, 10.0, seconds=1.0)
    expected = fitted(frames[:10][pick(10, 8)], 96, "squeeze").transpose(0, 3, 1, 2)
    assert np.array_equal(seen[0]["clip"][0].numpy(), expected)
    assert seen[0]["tokens"].all() and tuple(seen[0]["tokens"].shape[1:]) == one.grid
    assert [run["label"] for run in found["segments"]][-1] == "dark" and len(list(drawn)) == 20
    assert one.summary(found)


def test_a_run_that_nobody_was_judged_in_has_numbered_classes(tmp_path: Path) -> None:
    one = task()
    assert one.class_names(Brightness(3)) == ["class 0", "class 1", "class 2"]
    one.opened = tmp_path
    (tmp_path / "metrics.json").write_text(json.dumps({"classes": list(CLASSES)}))
    assert one.class_names(Brightness(2)) == list(CLASSES)
    assert one.class_names(Brightness(3))[0] == "class 0", "names of other classes are not theirs"
