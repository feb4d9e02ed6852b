"""Somebody leaves, from the middle: nothing about anybody else changes, and the sum moves by no more than their own clipped share.

This is what add-remove adjacency asks of everything before the noise. A shuffle over all records, a generator that hands its numbers out in
turn, or a choice by position would change those who stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from halfmask.data.datasets import load_datasets
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import Datasets
from halfmask.gradients.engine import Batch
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
Build = Callable[..., RunConfig]


@dataclass
class Neighbour:
    """One of two datasets that differ by a unit, on the way to its clipped sum.

    Attributes:
        places: where each private record was in the whole dataset.
        records: of all units, in the order in which they are shown.
    """

    trainer: Trainer
    places: np.ndarray
    records: np.ndarray
    batch: Batch
    unit_index: torch.Tensor

    @property
    def kept(self) -> np.ndarray:
        """The records that are shown, by their places in the whole dataset."""
        return self.places[self.records]

    def clipped_sum(self) -> torch.Tensor:
        return self.trainer.noised.clipped(self.batch, self.unit_index).flat().double()  # type: ignore[union-attr]


def neighbour(config: RunConfig, whole: Datasets, stay: np.ndarray, folder: Path, step: int = 3) -> Neighbour:
    private = whole.private if stay.all() else whole.private.take(np.flatnonzero(stay))
    data = Datasets(private, whole.public, None, whole.name, fingerprints_of(private))
    setup = prepare(config, Progress(), data)
    trainer = Trainer(setup, RunFolder.create(folder, config), Progress())
    records, unit_index, weight = setup.units.records_of(torch.arange(len(setup.units)))
    batch, unit_index = trainer.noised.shown(setup.private, records, unit_index, weight, step)
    names = {pair: place for place, pair in enumerate(zip(whole.private.image_ids, whole.private.subjects, strict=True))}  # type: ignore[arg-type]
    assert len(names) == len(whole.private)
    places = np.array([names[pair] for pair in zip(setup.private.image_ids, setup.private.subjects, strict=True)])  # type: ignore[arg-type]
    return Neighbour(trainer, places, records, batch, unit_index)


def pair_of(config: RunConfig, folder: Path) -> tuple[Neighbour, Neighbour, np.ndarray]:
    """A dataset, the same without the unit in the middle of it, and where the records of that unit were."""
    whole = load_datasets(config.data, config.model.input_size)
    everyone = np.ones(len(whole.private), bool)
    first = neighbour(config, whole, everyone, folder / "with")
    units = np.unique(first.trainer.setup.private.unit_ids(config.unit))
    leaving = first.trainer.setup.private.unit_ids(config.unit) == units[len(units) // 2]
    gone = first.places[leaving]
    assert gone.min() > 0 and gone.max() < len(everyone) - 1, "somebody comes before, and somebody after"
    everyone[gone] = False
    return first, neighbour(config, whole, everyone, folder / "without"), gone


def settings(times: int, *more: str) -> tuple[str, ...]:
    return (f"augment.times={times}", "augment.copies=3", *more)


# A unit of one crop has one gradient, whether it is called a sum or a mean.
CASES = [
    (unit, times, strategy, gradient)
    for unit in ("crop", "image", "subject")
    for times in (0, 1, 3)
    for strategy in ("top", "full")
    for gradient in (("mean",) if unit == "crop" or times == 1 else ("mean", "sum"))
]


@pytest.mark.parametrize(("unit", "times", "strategy", "gradient"), CASES)
def test_nobody_else_changes_and_the_sum_moves_by_one_share(
    unit: str, times: int, strategy: str, gradient: str, tiny_config: Build, tmp_path: Path
) -> None:
    """With two records of each unit at most, units of images and subjects have more than are shown."""
    config = tiny_config(
        *settings(times, "augment.change.half_body=0.3", "data.private=60", f"unit_gradient={gradient}", "model.norm=group"),
        unit=unit,
        strategy=strategy,
        records_per_unit=2,
        clip_norm=1e-4,
        adjacency="add-remove",
        batch=4,
    )
    first, second, gone = pair_of(config, tmp_path)
    assert_nobody_else_changes(first, second, gone)
    moved = float((first.clipped_sum() - second.clipped_sum()).norm())
    assert 0.5 * config.clip_norm < moved <= config.clip_norm * (1 + 1e-5)


def assert_nobody_else_changes(first: Neighbour, second: Neighbour, gone: np.ndarray) -> None:
    staying = ~np.isin(first.kept, gone)
    assert (~staying).sum() > 0 and np.array_equal(first.kept[staying], second.kept), "the same records of everybody else are kept"
    repeats = len(first.unit_index) // len(first.records)
    rows = torch.from_numpy(np.repeat(staying, repeats))
    assert first.batch.keys() == second.batch.keys()
    for name, shown in first.batch.items():
        assert torch.equal(shown[rows], second.batch[name]), f"{name} of others is shown as it was, to the byte"


@pytest.mark.parametrize("unit", ["crop", "image", "subject"])
@pytest.mark.parametrize("strategy", ["top", "full"])
def test_who_spans_the_subspace_does_not_depend_on_who_stays(unit: str, strategy: str, tiny_config: Build, tmp_path: Path) -> None:
    config = tiny_config(
        *settings(2, "data.private=60", "subspace.source=private", "model.norm=group"),
        method="projected",
        unit=unit,
        strategy=strategy,
        records_per_unit=2,
        clip_norm=1e-4,
        adjacency="add-remove",
        batch=3,
    )
    first, second, gone = pair_of(config, tmp_path)
    mine, theirs = first.trainer.setup.basis, second.trainer.setup.basis
    assert mine is not None and theirs is not None
    for name in ("images", "joints", "labelled", "image_ids", "subjects"):
        assert np.array_equal(getattr(mine, name), getattr(theirs, name)), "S_pub is the same"
    shown = [neighbour.trainer.noised.public_units(basis, 0)[0] for neighbour, basis in ((first, mine), (second, theirs))]
    assert all(torch.equal(shown[0][name], shown[1][name]) for name in shown[0])
    assert_nobody_else_changes(first, second, gone)
    moved = float((first.clipped_sum() - second.clipped_sum()).norm())
    assert 0.5 * config.clip_norm < moved <= config.clip_norm * (1 + 1e-5)
