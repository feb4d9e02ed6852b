"""Records and the units that they belong to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from halfmask.data.figures_records import figures_records
from halfmask.data.formats import read_annotations
from halfmask.data.mapping import with_skeleton
from halfmask.data.pose_records import PoseRecords, mislabelled
from halfmask.data.prints import fingerprints_of
from halfmask.data.reading import public_id, read_people
from halfmask.data.records import Datasets, Units
from halfmask.data.rehearsal import rehearsal_of
from halfmask.data.skeleton import COCO
from halfmask.errors import HalfmaskError
from halfmask.views import make_view

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
    with pytest.raises(HalfmaskError, match="have no view: declare a public view"):
        records.batch(np.array([0]), "view")
    records = records.changed(views=255 - records.images, features={"view": np.arange(4.0)[:, None]})
    assert np.array_equal(records.batch(np.array([2]))["image"].numpy(), records.images[[2]])
    shown = records.batch(np.array([2]), "view")
    assert "image" not in shown and shown["features"].tolist() == [[2.0]]
    bare = replace(records, features={}).batch(np.array([2]), "view")
    assert np.array_equal(bare["image"].numpy(), 255 - records.images[[2]])


def test_taking_some_takes_all_that_is_theirs(random_records: Build) -> None:
    records = replace(random_records(6, subjects=[5, 5, 6, 6, 7, 7]), features={"private": np.ones(6)})
    records = records.changed(views=255 - records.images)
    some = records.take(np.array([3, 0]))
    assert len(some) == 2 and some.subjects is not None and some.subjects.tolist() == [6, 5]
    for name in ("images", "joints", "labelled", "head_boxes", "image_ids", "views", "ids"):
        assert np.array_equal(getattr(some, name), getattr(records, name)[[3, 0]]), name
    assert some.features == {}, "features of other records would be read at these indices"
    assert len({records.key, some.key, records.take(np.array([0, 3])).key, records.take(np.array([3])).key}) == 4
    assert some.key == records.take(np.array([3, 0])).key


def test_every_record_has_an_id_that_goes_with_it(random_records: Build) -> None:
    records = random_records(6)
    assert records.ids.dtype == np.uint64 and len(set(records.ids.tolist())) == 6
    assert np.array_equal(records.changed(images=255 - records.images, key="negative").ids, records.ids), "never of pixels"
    named = replace(records, ids=np.array([9, 8, 7, 6, 5, 4], np.uint64))
    assert named.take(np.array([4, 1])).take(np.array([1, 0])).ids.tolist() == [8, 5]
    with pytest.raises(HalfmaskError, match="expected one for each"):
        replace(records, ids=records.ids[:5])


def test_the_id_of_a_photograph_is_its_name_and_box(
    coco_folder: Callable[..., Path], annotation: Callable[..., dict[str, Any]], photo: Callable[..., None], fresh_home: Path
) -> None:
    """Somebody who leaves, other pixels or another size of crop leave it as it is; another box on the same image is another record."""

    def ids(folder: Path, leaving: int | None = None, size: tuple[int, int] = (64, 48)) -> dict[int, int]:
        annotations = read_annotations(folder, "coco")
        part = annotations.parts["train"]
        people = tuple(person for person in part.people if person.annotation_id != leaving)
        records, _ = read_people(annotations, replace(part, people=people), size)
        assert records.coco is not None and records.ids.dtype == np.uint64
        return dict(zip(records.coco.annotation_ids.tolist(), records.ids.tolist(), strict=True))

    boxes = {1: [15.0, 15.0, 50.0, 90.0], 2: [14.0, 15.0, 50.0, 90.0], 3: [15.0, 15.0, 50.0, 90.0], 4: [15.004, 15.0, 50.0, 90.0]}
    body = [annotation(number, image, bbox=boxes[number]) for number, image in ((1, 11), (2, 11), (3, 12), (4, 13))]
    folder = coco_folder(body)
    everyone = ids(folder)
    assert len(set(everyone.values())) == 4, "two on one image, and one box on two images, are told apart"
    assert ids(folder, leaving=2) == {number: value for number, value in everyone.items() if number != 2}
    assert ids(folder, size=(128, 96)) == everyone
    for image in (folder / "train2017").glob("*.jpg"):
        photo(image, seed=99)
    assert ids(folder) == everyone


@pytest.mark.parametrize("name", ["coco_mini", "lspet"])
def test_real_people_are_told_apart_by_their_ids(name: str, shared_data: Callable[[str], Path]) -> None:
    for part in read_annotations(shared_data(name)).parts.values():
        ids = [public_id(person) for person in part.people]
        assert len(set(ids)) == len(ids) > 50


def test_the_id_of_a_figure_is_who_and_where(fresh_home: Path) -> None:
    first = figures_records("private", 8, size=(64, 48))
    later = figures_records("private", 4, skip=3, size=(64, 48))
    assert np.array_equal(first.ids[3:7], later.ids) and len(set(first.ids.tolist())) == 8
    for other in (figures_records("public", 8, size=(64, 48)), figures_records("private", 8, seed=1, size=(64, 48))):
        assert not np.isin(other.ids, first.ids).any()


def test_ids_go_with_records_wherever_they_are_taken(tiny_records: PoseRecords) -> None:
    first, second = tiny_records.take(np.arange(5)), tiny_records.take(np.arange(5, 12))
    assert np.array_equal(second.joined(first).ids, np.r_[tiny_records.ids[5:], tiny_records.ids[:5]])
    assert np.array_equal(mislabelled(tiny_records, first, np.array([7, 2])).ids, tiny_records.ids[[7, 2]])
    assert np.array_equal(with_skeleton(tiny_records, COCO).ids, tiny_records.ids)
    people = tiny_records.changed(subjects=np.arange(12))
    view = make_view("blur", {})
    shown = rehearsal_of(Datasets(people, None, None, "figures", fingerprints_of(people)), view)
    assert shown.test is not None
    places = np.r_[np.delete(np.arange(12), 8), 8]
    assert np.array_equal(np.r_[shown.private.ids, shown.test.ids], tiny_records.ids[places])


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


@pytest.mark.parametrize("records_per_unit", [1, 2, 3])
def test_which_records_of_a_unit_are_kept_depends_on_no_other_unit(records_per_unit: int) -> None:
    """A unit leaves from the middle, and the others are turned round: each keeps the same records, by their ids."""
    rng = np.random.default_rng(0)
    unit_ids, ids = rng.integers(0, 12, 80), rng.integers(0, 2**63, 80).astype(np.uint64)

    def kept(rows: np.ndarray) -> dict[int, set[int]]:
        members = Units(unit_ids[rows], records_per_unit, seed=3, ids=ids[rows]).members
        return {int(unit_ids[rows][group[0]]): set(ids[rows][group].tolist()) for group in members}

    everyone = kept(np.arange(80))
    assert max(len(group) for group in everyone.values()) == records_per_unit
    for leaving in (0, 5, 11):
        left = kept(np.flatnonzero(unit_ids != leaving))
        assert left == {unit: group for unit, group in everyone.items() if unit != leaving}
    assert kept(rng.permutation(80)) == everyone


def test_each_record_of_a_unit_is_as_likely_to_be_kept() -> None:
    """400 units of 5 records, 2 kept: each place is kept 160 times, give or take 4.9 standard deviations of 9.8."""
    ids = np.random.default_rng(1).integers(0, 2**63, 2000).astype(np.uint64)
    members = np.concatenate(Units(np.repeat(np.arange(400), 5), 2, ids=ids).members)
    assert (np.abs(np.bincount(members % 5, minlength=5) - 160) < 48).all()


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
