"""Records and the units that they belong to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from halfmask.data.records import PoseRecords, Units
from halfmask.errors import HalfmaskError

Build = Callable[..., PoseRecords]


def test_a_batch_holds_the_records_asked_for(random_records: Build) -> None:
    records = random_records(6)
    for index in (torch.tensor([4, 1]), np.array([4, 1])):
        batch = records.batch(index)
        assert batch.keys() == {"image", "joints", "labelled"}
        assert batch["image"].dtype == torch.uint8 and batch["labelled"].dtype == torch.bool
        assert np.array_equal(batch["image"].numpy(), records.images[[4, 1]])
        assert np.array_equal(batch["joints"].numpy(), records.joints[[4, 1]])


def test_an_empty_batch_is_possible(random_records: Build) -> None:
    batch = random_records(3).batch(torch.zeros(0, dtype=torch.long))
    assert batch["image"].shape == (0, 3, 64, 48) and batch["joints"].shape == (0, 16, 2)


def test_views_and_features_are_kept_apart_from_images(random_records: Build) -> None:
    records = random_records(4)
    with pytest.raises(HalfmaskError, match="no public view"):
        records.batch(np.array([0]), "view")
    records = replace(records, views=255 - records.images, features={"view": np.arange(4.0)[:, None]})
    assert np.array_equal(records.batch(np.array([2]))["image"].numpy(), records.images[[2]])
    shown = records.batch(np.array([2]), "view")
    assert "image" not in shown and shown["features"].tolist() == [[2.0]]
    bare = replace(records, features={}).batch(np.array([2]), "view")
    assert np.array_equal(bare["image"].numpy(), 255 - records.images[[2]])


def test_taking_some_takes_all_that_is_theirs(random_records: Build) -> None:
    records = replace(random_records(6, subjects=[5, 5, 6, 6, 7, 7]), features={"image": np.ones(6)})
    records = replace(records, views=255 - records.images)
    some = records.take(np.array([3, 0]))
    assert len(some) == 2 and some.subjects is not None and some.subjects.tolist() == [6, 5]
    for name in ("images", "joints", "labelled", "head_boxes", "image_ids", "views"):
        assert np.array_equal(getattr(some, name), getattr(records, name)[[3, 0]]), name
    assert some.features == {}, "features of other records would be read at these indices"
    assert len({records.key, some.key, records.take(np.array([0, 3])).key, records.take(np.array([3])).key}) == 4
    assert some.key == records.take(np.array([3, 0])).key


def test_units_of_records(random_records: Build) -> None:
    records = random_records(4, image_ids=[8, 8, 9, 9], subjects=[1, 2, 2, 1])
    assert records.unit_ids("crop").tolist() == [0, 1, 2, 3]
    assert records.unit_ids("image").tolist() == [8, 8, 9, 9]
    assert records.unit_ids("subject").tolist() == [1, 2, 2, 1]
    with pytest.raises(HalfmaskError, match="needs subject ids"):
        random_records(4).unit_ids("subject")


def test_records_are_grouped_by_unit() -> None:
    ids = np.array([7, 3, 7, 7, 3, 100])
    units = Units(ids, records_per_unit=8)
    assert len(units) == 3
    assert sorted(group.tolist() for group in units.members) == [[0, 2, 3], [1, 4], [5]]


def test_a_large_unit_is_cut_without_looking() -> None:
    ids = np.repeat([0, 1], [50, 3])
    units = Units(ids, records_per_unit=4, seed=1)
    assert [len(group) for group in units.members] == [4, 3]
    assert all((ids[group] == i).all() for i, group in enumerate(units.members))
    again, other = Units(ids, 4, seed=1), Units(ids, 4, seed=2)
    assert units.members[0].tolist() == again.members[0].tolist() != other.members[0].tolist()
    assert units.members[0].tolist() != [0, 1, 2, 3], "the first records of a subject are not a sample"


def test_records_of_chosen_units() -> None:
    units = Units(np.array([7, 3, 7, 7, 3, 100]), records_per_unit=8)
    chosen = torch.tensor([0, 2])
    records, unit_index, weight = units.records_of(chosen)
    assert records.tolist() == [1, 4, 5] and unit_index.tolist() == [0, 0, 2]
    assert weight.tolist() == [0.5, 0.5, 1.0]


def test_nobody_chosen_is_an_empty_batch() -> None:
    records, unit_index, weight = Units(np.arange(3), 1).records_of(torch.zeros(0, dtype=torch.long))
    assert len(records) == len(unit_index) == len(weight) == 0 and records.dtype.kind == "i"


def test_odd_units() -> None:
    assert len(Units(np.zeros(0, int), 3)) == 0
    with pytest.raises(HalfmaskError, match="records_per_unit"):
        Units(np.arange(3), 0)
