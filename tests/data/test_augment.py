"""Augmentation: joints move with their pixels, a view gets its image's draw, and half a body is half a body."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import halfmask.tasks.pose_pretraining as pretrain
from halfmask.data.augment import NUMBERS, AugmentConfig, augment, augment_pair, draw
from halfmask.data.skeleton import COCO, LSP, MPII, Skeleton
from halfmask.errors import HalfmaskError
from halfmask.views import make_view

WIDTH, HEIGHT = 96, 128
STILL = {"flip": 0.0, "rotation": 0.0, "scale": 0.0, "shift": 0.0, "colour": False}


def dots(skeleton: Skeleton, joint: int, copies: int = 16) -> dict[str, torch.Tensor]:
    """Pictures of a bright dot at one joint; the others lie far from it and from each other."""
    count = len(skeleton)
    joints = torch.tensor([[20.0 + 14 * (j % 5), 26.0 + 22 * (j // 5)] for j in range(count)])
    y, x = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")
    dot = 255 * torch.exp(-((x - joints[joint, 0]) ** 2 + (y - joints[joint, 1]) ** 2) / 4)
    return {
        "image": dot.expand(copies, 3, HEIGHT, WIDTH).to(torch.uint8),
        "joints": joints.expand(copies, count, 2).clone(),
        "labelled": torch.ones(copies, count, dtype=torch.bool),
    }


def numbers(batch: dict[str, torch.Tensor], seed: int = 0) -> torch.Tensor:
    return torch.rand(len(batch["joints"]), NUMBERS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def centres(images: torch.Tensor) -> torch.Tensor:
    y, x = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")
    light = images.float().mean(1)
    return torch.stack([(light * x).sum((1, 2)), (light * y).sum((1, 2))], -1) / light.sum((1, 2))[:, None]


@pytest.mark.parametrize("skeleton", [MPII, COCO, LSP], ids=lambda skeleton: skeleton.name)
@pytest.mark.parametrize(
    "change",
    [
        {"flip": 1.0},
        {"rotation": 40.0},
        {"scale": 0.3},
        {"shift": 0.1},
        {"half_body": 1.0},
        {"flip": 0.5, "rotation": 15.0, "half_body": 0.5},
    ],
    ids=lambda change: "+".join(change),
)
def test_joints_move_with_their_pixels(skeleton: Skeleton, change: dict[str, float]) -> None:
    checked = 0
    for joint in range(0, len(skeleton), 3):
        batch = dots(skeleton, joint)
        drawn = draw(batch, numbers(batch, joint), AugmentConfig(**(STILL | change)), skeleton)
        moved = drawn.apply(batch)
        partner = {a: b for pair in skeleton.flip_pairs for a, b in (pair, pair[::-1])}.get(joint, joint)
        for i, seen in enumerate(centres(moved["image"])):
            now = partner if drawn.mirrored[i] else joint
            place = moved["joints"][i, now]
            margin = torch.tensor([8.0, 8.0])
            if not ((place > margin) & (place < torch.tensor([WIDTH, HEIGHT]) - 1 - margin)).all():
                continue
            assert (place - seen).norm() < 0.75
            checked += 1
    assert checked > 20


def test_nothing_changes_where_nothing_is_asked_for() -> None:
    batch = dots(MPII, 3)
    same = augment(batch, torch.Generator().manual_seed(0), AugmentConfig(**STILL))
    assert torch.allclose(same["image"], batch["image"].float(), atol=0.05)
    assert torch.allclose(same["joints"], batch["joints"], atol=1e-3) and torch.equal(same["labelled"], batch["labelled"])


def test_the_batch_given_stays_as_it_is() -> None:
    batch = dots(MPII, 3)
    before = {name: tensor.clone() for name, tensor in batch.items()}
    augment(batch, torch.Generator().manual_seed(0), AugmentConfig(half_body=1.0))
    assert all(torch.equal(batch[name], before[name]) for name in before)


def test_half_a_body_keeps_its_own_joints_and_shows_them_larger() -> None:
    batch = dots(MPII, 0, copies=40)
    drawn = draw(batch, numbers(batch), AugmentConfig(**STILL, half_body=1.0))
    upper = set(MPII.upper_body)
    halves = [set(torch.nonzero(kept).flatten().tolist()) for kept in drawn.kept]
    assert {frozenset(half) for half in halves} == {frozenset(upper), frozenset(set(range(16)) - upper)}
    moved = drawn.apply(batch)
    labelled = [set(torch.nonzero(kept).flatten().tolist()) for kept in moved["labelled"]]
    assert labelled == halves, "all of the half is in the picture, and none of the other is labelled"
    size = torch.linalg.det(drawn.turn)
    assert (size <= 1).all() and (size < 0.9).any()


def test_half_a_body_needs_joints_in_both_halves() -> None:
    batch = dots(MPII, 0)
    batch["labelled"][:] = False
    batch["labelled"][:, list(MPII.upper_body)] = True
    drawn = draw(batch, numbers(batch), AugmentConfig(**STILL, half_body=1.0))
    assert drawn.kept.all() and torch.allclose(torch.linalg.det(drawn.turn), torch.ones(16))


def test_a_view_gets_the_draw_of_its_image_and_is_made_before() -> None:
    batch = dots(MPII, 5)
    view = make_view("blur", {})
    views = torch.from_numpy(
        np.stack([view(np.ascontiguousarray(image.permute(1, 2, 0).numpy())).transpose(2, 0, 1) for image in batch["image"]])
    )
    options = AugmentConfig(colour=False, half_body=0.3)
    changed, seen = augment_pair(batch, views, torch.Generator().manual_seed(1), options)
    assert torch.equal(changed["joints"], seen["joints"]) and torch.equal(changed["labelled"], seen["labelled"])
    drawn = draw(batch, numbers(batch, 1), options)
    assert torch.equal(seen["image"], drawn.apply_to_images(views)), "the stored view, moved; not a view of the moved image"
    inside = ((changed["joints"][:, 5] > 20) & (changed["joints"][:, 5] < torch.tensor([WIDTH, HEIGHT]) - 21)).all(1)
    assert inside.sum() > 3
    assert (centres(changed["image"])[inside] - centres(seen["image"])[inside]).norm(dim=1).max() < 3


def test_draws_repeat_with_their_generator_and_pretraining_uses_them() -> None:
    assert pretrain.augment is augment
    one, two, other = (augment(dots(LSP, 2), torch.Generator().manual_seed(seed), skeleton=LSP) for seed in (0, 0, 1))
    assert torch.equal(one["image"], two["image"]) and not torch.equal(one["image"], other["image"])


def test_a_change_is_a_function_of_a_records_own_numbers() -> None:
    """Whoever else is in the batch, and however many."""
    batch, options = dots(MPII, 4, copies=12), AugmentConfig(half_body=0.5)
    drawn = numbers(batch)
    whole = draw(batch, drawn, options).apply(batch)
    for some in (slice(3, 4), slice(5, 12), torch.tensor([8, 2])):
        part = {name: tensor[some] for name, tensor in batch.items()}
        changed = draw(part, drawn[some], options).apply(part)
        assert all(torch.equal(changed[name], whole[name][some]) for name in changed)


def test_every_number_has_a_place_of_its_own() -> None:
    """Each moves the picture, and what is not asked for leaves the rest as it was."""
    batch = dots(MPII, 4, copies=1)
    for number in range(NUMBERS):
        changed = []
        for value in (0.3, 0.7):
            drawn = torch.full((1, NUMBERS), 0.4, dtype=torch.float64)
            drawn[0, number] = value
            changed.append(draw(batch, drawn, AugmentConfig(half_body=0.5)).apply(batch))
        assert any(not torch.equal(changed[0][name], changed[1][name]) for name in changed[0]), number
    plain, coloured = (draw(batch, numbers(batch), AugmentConfig(colour=colour)) for colour in (False, True))
    assert torch.equal(plain.turn, coloured.turn) and torch.equal(plain.centre, coloured.centre)


def test_numbers_that_are_not_one_row_for_each_record_are_refused() -> None:
    batch = dots(MPII, 4, copies=3)
    for shape in ((2, NUMBERS), (3, NUMBERS - 1), (NUMBERS,)):
        with pytest.raises(HalfmaskError, match=f"expected {NUMBERS} for each"):
            draw(batch, torch.rand(shape))


def test_a_probability_of_one_is_certain() -> None:
    batch = dots(MPII, 4, copies=1)
    assert draw(batch, torch.full((1, NUMBERS), 1 - 2.0**-53, dtype=torch.float64), AugmentConfig(flip=1.0)).mirrored.all()


@pytest.mark.parametrize("wrong", [{"flip": 1.5}, {"half_body": -0.1}, {"scale": 1.0}, {"rotation": 200.0}, {"shift": -1.0}])
def test_options_that_are_refused(wrong) -> None:
    with pytest.raises(HalfmaskError, match="augmentation"):
        AugmentConfig(**wrong)
