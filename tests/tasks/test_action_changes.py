"""Clips after random changes: a list of tokens stays a list of what is public, and of all that is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import halfmask.training.strategy as strategy
from halfmask.models.mvit import PATCH, PATCH_STRIDE
from halfmask.tasks.action import ActionTask
from halfmask.tasks.action_changes import MIDDLE, changed, mirrored_clips, mirrored_joints, mirrored_tokens
from halfmask.tasks.action_settings import ActionShowingConfig
from halfmask.training.config import build_config
from halfmask.training.strategy import with_lower_features
from halfmask.views.tokens import EDGES, FILL, Tokens

FRAMES, SIDE = 4, 32
PUBLIC, PROTECTED = 7, 200


def masks() -> list[np.ndarray]:
    """Single columns, which are what a mirror could get wrong, and blobs."""
    found = []
    for column in range(SIDE):
        hidden = np.zeros((FRAMES, SIDE, SIDE), bool)
        hidden[1, 9, column] = True
        found.append(hidden)
    rng = np.random.default_rng(0)
    for _ in range(12):
        hidden = np.zeros((FRAMES, SIDE, SIDE), bool)
        top, left, start = [*rng.integers(0, SIDE - 2, 2).tolist(), int(rng.integers(0, FRAMES))]
        hidden[start:, top : top + int(rng.integers(1, 20)), left : left + int(rng.integers(1, 30))] = True
        found += [hidden, ~hidden]
    return found


def read_by(clip: np.ndarray, place: tuple[int, ...]) -> np.ndarray:
    """The pixels of T×H×W that a token's patch covers, by its definition: centred on every second frame and every fourth pixel."""
    spans = (
        slice(max(0, step * at - size // 2), step * at + size // 2 + 1) for at, size, step in zip(place, PATCH, PATCH_STRIDE, strict=True)
    )
    return clip[tuple(spans)]


def mirrored(field: np.ndarray, tokens: bool = False) -> np.ndarray:
    return (mirrored_tokens if tokens else mirrored_clips)(torch.from_numpy(field.copy())[None])[0].numpy()


@pytest.mark.parametrize("edges", EDGES)
def test_mirrored_lists_are_of_what_is_public_and_of_all_that_is_not(edges: str) -> None:
    """By brute force over every token of every mask: pixels carry whether they are protected."""
    for hidden in masks():
        clip = np.where(hidden, PROTECTED, PUBLIC).astype(np.uint8)[:, None].repeat(3, 1)
        seen = Tokens(edges).of({"clip": clip, "hidden": hidden})
        assert seen.rest is not None
        shown, whole = mirrored(seen.public["clip"])[:, 0], mirrored(clip)[:, 0]
        public, rest = mirrored(seen.public["tokens"], tokens=True), mirrored(seen.rest["tokens"], tokens=True)
        for place in np.ndindex(public.shape):
            protected = bool((read_by(whole, place) == PROTECTED).any())
            if public[place]:
                assert PROTECTED not in read_by(shown, place), "whatever is listed was cleared before"
                assert edges == "cleared" or not protected, "a token that is public came to straddle the border"
            assert rest[place] or not protected, "a token that sees something protected is missing from the rest"


def test_a_mirrored_clip_is_mirrored_and_moved_by_one() -> None:
    clip = torch.arange(SIDE).expand(1, 1, 1, 1, SIDE)
    assert mirrored_clips(clip).flatten().tolist() == [SIDE - 1, *range(SIDE - 1, 0, -1)]
    joints = torch.zeros(1, 1, 16, 2)
    joints[0, 0, 0] = torch.tensor([0.3, 0.1])
    turned = mirrored_joints(joints)
    assert turned[0, 0, 5].tolist() == pytest.approx([-0.3, 0.1]) and torch.equal(mirrored_joints(turned), joints)


def batch(count: int = 3) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    clips = torch.randint(0, 256, (count, FRAMES, 3, SIDE, SIDE), generator=generator, dtype=torch.uint8)
    clips[:, :, :, :, 20:] = FILL
    tokens = torch.ones(count, 2, 8, 8, dtype=torch.bool)
    tokens[..., 5:] = False
    return {"clip": clips, "tokens": tokens, "label": torch.arange(count)}


def test_changes_are_of_each_record_alone_and_of_all_of_its_frames() -> None:
    before, config = batch(), ActionShowingConfig(light=0.3)
    numbers = torch.rand(3, 3, generator=torch.Generator().manual_seed(1))
    numbers[:, 0] = torch.tensor([0.1, 0.9, 0.4])
    together = changed(before, numbers, config)
    for row in range(3):
        alone = changed({name: value[row : row + 1] for name, value in before.items()}, numbers[row : row + 1], config)
        assert all(torch.equal(alone[name][0], together[name][row]) for name in alone)
    assert torch.equal(together["tokens"][1], before["tokens"][1]) and not torch.equal(together["tokens"][0], before["tokens"][0])
    assert together["clip"].dtype == torch.uint8 and not torch.equal(together["clip"][1], before["clip"][1])
    still = replace(config, light=0.0, mirror=False)
    assert all(torch.equal(changed(before, numbers, still)[name], before[name]) for name in before)


def test_what_was_cleared_stays_cleared_in_any_light() -> None:
    numbers = torch.rand(3, 3, generator=torch.Generator().manual_seed(2))
    lit = changed(batch(), numbers, ActionShowingConfig(light=0.9, mirror=False))["clip"]
    assert MIDDLE == FILL and (lit[..., 20:] == FILL).all() and lit[..., :20].float().std() > 5


def test_a_view_that_is_changed_is_the_view_of_nothing_new() -> None:
    """ψ was computed once, on the clip as it is: changed with protected pixels altered, it is the same bit for bit."""
    clip, other = batch()["clip"].numpy().copy(), batch()["clip"].numpy().copy()
    hidden = np.zeros((FRAMES, SIDE, SIDE), bool)
    hidden[:, 5:, :17] = True
    other[:, :, :, 5:, :17] = 255 - other[:, :, :, 5:, :17]
    numbers = torch.rand(3, 3, generator=torch.Generator().manual_seed(3))
    numbers[:, 0] = torch.tensor([0.1, 0.9, 0.4])
    shown = []
    for clips in (clip, other):
        views = [Tokens().of({"clip": one, "hidden": hidden}).public for one in clips]
        views_batch = {name: torch.from_numpy(np.stack([view[name] for view in views])) for name in views[0]}
        shown.append(changed(views_batch, numbers, ActionShowingConfig()))
    assert all(torch.equal(shown[0][name], shown[1][name]) for name in shown[0])


def test_copies_that_were_lit_or_mirrored_otherwise_are_made_anew(fresh_home: Path, random_clips) -> None:
    """What was computed once is found again by what was done to it."""
    found = {}
    for change in ("augment.light=0.2", "augment.light=0.4", "augment.mirror=false"):
        config = build_config({"task": "action", "model": {"weights": None, "frames": FRAMES, "side": SIDE}}, {}, [change])
        task = ActionTask(config)
        lower = strategy.Lower("means", lambda batch: batch["clip"].float().mean((1, 2, 3)))
        records = task.with_tokens(random_clips(4))
        found[change] = np.array(with_lower_features(records, task, lower, copies=1).copies[0].features["private"])
    one, other, third = found.values()
    assert not np.array_equal(one, other) and not np.array_equal(one, third)
