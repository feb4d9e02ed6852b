"""What people see of actions: classes on pages, frames with answers, labels over a video."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from halfmask.data.clip_frames import fitted, pick, windows_of
from halfmask.data.clips import records_of_clips
from halfmask.models.mvit import PATCH, PATCH_STRIDE
from halfmask.tasks import action
from halfmask.tasks.action import ActionTask
from halfmask.tasks.action_showing import _RIGHT, _WRONG, in_tokens
from halfmask.training.config import build_config, load_recipe
from halfmask.views.tokens import FILL

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


def test_of_a_clip_in_part_only_what_its_tokens_see_is_shown() -> None:
    """Whatever else the clip holds: it is not public, or not there."""
    rng = np.random.default_rng(0)
    clips = rng.integers(130, 256, (2, 8, 3, 96, 96), dtype=np.uint8)
    tokens = rng.random((2, 4, 24, 24)) < 0.02
    seen = np.zeros((2, 8, 96, 96), bool)
    for clip, *place in np.argwhere(tokens):
        middle = np.array(place) * PATCH_STRIDE
        frames, rows, columns = (slice(max(0, at - size // 2), at + size // 2 + 1) for at, size in zip(middle, PATCH, strict=True))
        seen[clip, frames, rows, columns] = True
    assert np.array_equal(in_tokens(tokens, clips.shape), seen) and 0.02 < seen.mean() < 0.5
    one = task()
    whole = one.with_tokens(records_of_clips(clips, np.array([0, 1]), None, np.array([0, 1]), "key", CLASSES))
    part = replace(whole, private=whole.private.changed(tokens=tokens))
    painted = replace(whole, private=whole.private.changed(clip=np.where(seen[:, :, None], clips, np.uint8(FILL))))
    drawn, expected = one.pictures(None, part), one.pictures(None, painted)
    assert all(np.array_equal(*pair) for pair in zip(drawn, expected, strict=True))
    assert not np.array_equal(drawn[0], one.pictures(None, whole)[0])


def test_a_video_is_cut_and_shrunk_as_clips_of_a_dataset_are(seen: list, tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (20, 50, 70, 3)).astype(np.uint8)
    frames[10:] = frames[10:] // 4
    one = task("data.fit=squeeze")
    one.opened = tmp_path
    (tmp_path / "metrics.json").write_text(json.dumps({"classes": list(CLASSES)}))
    found, drawn = one.predict_video(Brightness(), frames, 10.0, seconds=1.0)
    expected = fitted(frames[:10][pick(10, 8)], 96, windows_of((8, 50, 70), "squeeze")).transpose(0, 3, 1, 2)
    assert np.array_equal(seen[0]["clip"][0].numpy(), expected)
    assert seen[0]["tokens"].all() and tuple(seen[0]["tokens"].shape[1:]) == one.grid
    assert [run["label"] for run in found["segments"]][-1] == "dark" and len(list(drawn)) == 20
    assert one.summary(found)


def test_where_nobody_says_who_is_where_the_central_square_is_looked_at(seen: list) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (8, 96, 120, 3)).astype(np.uint8)
    task("data.fit=person").predict_video(Brightness(), frames, 8.0, seconds=1.0)
    assert np.array_equal(seen[0]["clip"][0].numpy(), frames[:, :, 12:108].transpose(0, 3, 1, 2))


def test_a_run_that_nobody_was_judged_in_has_numbered_classes(tmp_path: Path) -> None:
    one = task()
    assert one.class_names(Brightness(3)) == ["class 0", "class 1", "class 2"]
    one.opened = tmp_path
    (tmp_path / "metrics.json").write_text(json.dumps({"classes": list(CLASSES)}))
    assert one.class_names(Brightness(2)) == list(CLASSES)
    assert one.class_names(Brightness(3))[0] == "class 0", "names of other classes are not theirs"
