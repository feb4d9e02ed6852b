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

from halfmask.data.prints import fingerprints_of
from halfmask.data.records import Datasets
from halfmask.gradients.engine import Batch
from halfmask.tasks.base import task_named
from halfmask.training.config import RunConfig, build_config
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
    names = {name: place for place, name in enumerate(whole.private.ids.tolist())}
    assert len(names) == len(whole.private)
    places = np.array([names[name] for name in setup.private.ids.tolist()])
    return Neighbour(trainer, places, records, batch, unit_index)


def pair_of(config: RunConfig, folder: Path) -> tuple[Neighbour, Neighbour, np.ndarray]:
    """A dataset, the same without the unit in the middle of it, and where the records of that unit were."""
    whole = task_named(config.task)(config).load()
    everyone = np.ones(len(whole.private), bool)
    first = neighbour(config, whole, everyone, folder / "with")
    unit_ids = first.trainer.setup.private.unit_ids(config.unit)
    units = np.unique(unit_ids)
    some = [first.places[unit_ids == unit] for unit in np.roll(units, -(len(units) // 2))]
    gone = next(places for places in some if places.min() > 0 and places.max() < len(everyone) - 1)  # somebody comes before, somebody after
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


# ---- other tasks: clips and regions of faces -----------------------------------------------------------------------------

OTHERS = {
    "action": {
        "data": {"private": 30, "public": 8, "test": 0, "workers": 1},
        "model": {"size": "tiny", "weights": None, "frames": 4, "side": 32},
        "view": {"name": "tokens", "options": {"edges": "cleared"}},
    },
    "face": {"data": {"private": 12, "public": 4, "test": 0, "workers": 1}, "model": {"size": "tiny", "weights": None}},
}
# Under `masked` there is no add-remove: labels and masks of whoever is left out stay where they are, in the exact half.
OF_OTHERS = [
    ("action", "masked", "finetune", "clip", 0, "mean"),
    ("action", "masked", "full", "video", 2, "mean"),
    ("action", "masked", "full", "subject", 0, "sum"),
    ("action", "dpsgd", "finetune", "video", 0, "sum"),
    ("action", "dpsgd", "full", "clip", 2, "mean"),
    ("action", "dpsgd", "top", "subject", 2, "mean"),
    ("face", "dpsgd", "full", "region", 0, "mean"),
    ("face", "dpsgd", "full", "image", 2, "mean"),
    ("face", "dpsgd", "top", "subject", 0, "sum"),
    ("face", "feature", "top", "image", 0, "mean"),
]


@pytest.mark.usefixtures("tiny_mvit", "tiny_hyperface")
@pytest.mark.parametrize(("task", "method", "strategy", "unit", "times", "gradient"), OF_OTHERS)
def test_nobody_else_changes_whatever_is_learnt(
    task: str, method: str, strategy: str, unit: str, times: int, gradient: str, tmp_path: Path
) -> None:
    recipe = OTHERS[task] | {"task": task, "method": method, "strategy": strategy, "epsilon": 5.0, "delta": 1e-3, "epochs": 1}
    config = build_config(
        recipe,
        {"unit": unit, "clip_norm": 1e-4, "batch": 3, "insecure_seed": 1, "even_so": True},
        [
            f"unit_gradient={gradient}",
            "records_per_unit=2",
            f"augment.times={times}",
            "augment.copies=2",
            f"adjacency={'add-remove' if method == 'dpsgd' else 'zero-out'}",
        ],
    )
    first, second, gone = pair_of(config, tmp_path)
    assert_nobody_else_changes(first, second, gone)
    assert (len(gone) == 1) == (unit in ("clip", "region")), "of larger units somebody with several records leaves"
    moved = float((first.clipped_sum() - second.clipped_sum()).norm())
    assert 0.5 * config.clip_norm < moved <= config.clip_norm * (1 + 1e-5)
