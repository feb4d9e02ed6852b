"""Changes of a region take what is known of its face along."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from halfmask.data.faces import FaceRecords, Layout
from halfmask.tasks.face_changes import NUMBERS, changed
from halfmask.tasks.face_settings import FaceShowingConfig

STILL = FaceShowingConfig(shift=0.0, scale=0.0, light=0.0, mirror=False)


def spot(x: float, y: float) -> dict[str, torch.Tensor]:
    """A region with a bright spot where its one landmark is."""
    grid = (torch.arange(64) + 0.5) / 64 - 0.5
    bright = 255 * torch.exp(-((grid[None, :] - x) ** 2 + (grid[:, None] - y) ** 2) / (2 * 0.03**2))
    return {
        "image": bright.round().to(torch.uint8).expand(1, 3, 64, 64),
        "landmarks": torch.tensor([[[x, y]]]),
        "visible": torch.ones(1, 1),
        "pose": torch.tensor([[0.1, 0.2, 0.3]]),
    }


def brightest(batch: dict[str, torch.Tensor]) -> np.ndarray:
    weights = batch["image"][0, 0].double() ** 4
    grid = (torch.arange(64, dtype=torch.double) + 0.5) / 64 - 0.5
    return np.array([float((weights.sum(0) * grid).sum() / weights.sum()), float((weights.sum(1) * grid).sum() / weights.sum())])


def test_nothing_changes_where_nothing_is_asked() -> None:
    batch = spot(0.1, -0.2)
    found = changed(batch, torch.full((1, NUMBERS), 0.9), STILL, Layout("one", (0,)))
    assert all(torch.equal(found[name], batch[name]) for name in batch)


def test_a_landmark_stays_on_what_it_marks() -> None:
    settings = FaceShowingConfig(shift=0.1, scale=0.2, light=0.0)
    rng = torch.Generator().manual_seed(0)
    for _ in range(20):
        found = changed(spot(0.12, -0.2), torch.rand(1, NUMBERS, generator=rng), settings, Layout("one", (0,)))
        assert np.abs(brightest(found) - found["landmarks"][0, 0].numpy()).max() < 0.01


def test_a_mirror_swaps_sides_and_turns_roll_and_yaw(random_faces: Callable[..., FaceRecords]) -> None:
    records = random_faces()
    batch = records.batch(np.arange(3))
    numbers = torch.full((3, NUMBERS), 0.5)
    numbers[:, 0] = 0.1
    found = changed(batch, numbers, FaceShowingConfig(shift=0, scale=0, light=0), records.layout)
    assert torch.equal(found["image"], batch["image"].flip(-1))
    assert torch.equal(found["visible"], batch["visible"][:, [1, 0, 2, 4, 3]])
    assert torch.allclose(found["landmarks"][..., 0], -batch["landmarks"][:, [1, 0, 2, 4, 3], 0])
    assert torch.allclose(found["pose"], batch["pose"] * torch.tensor([-1.0, 1.0, -1.0]))
    again = changed(found, numbers, FaceShowingConfig(shift=0, scale=0, light=0), records.layout)
    assert all(torch.allclose(again[name].float(), batch[name].float()) for name in batch)


def test_a_landmark_that_leaves_is_not_visible() -> None:
    numbers = torch.full((1, NUMBERS), 0.9999)
    found = changed(spot(-0.45, 0.0), numbers, FaceShowingConfig(shift=0.2, scale=0, light=0, mirror=False), Layout("one", (0,)))
    assert float(found["visible"][0, 0]) == 0 and float(found["landmarks"].abs().sum()) == 0


def test_each_record_has_its_own_numbers(random_faces: Callable[..., FaceRecords]) -> None:
    records, settings = random_faces(), FaceShowingConfig()
    batch = records.batch(np.arange(6))
    numbers = torch.rand(6, NUMBERS, generator=torch.Generator().manual_seed(1))
    whole = changed(batch, numbers, settings, records.layout)
    alone = changed({name: value[2:3] for name, value in batch.items()}, numbers[2:3], settings, records.layout)
    assert all(torch.equal(whole[name][2:3], alone[name]) for name in batch)
