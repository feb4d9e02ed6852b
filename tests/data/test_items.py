"""Datasets of strangers: who is whom in them, and that items stay what they were when they were accounted for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from halfmask.data.items import form_of, read_items
from halfmask.errors import HalfmaskError

pytestmark = pytest.mark.usefixtures("fresh_home")


class Rows(list[Any]):
    """A dataset that somebody may change."""


def rows(count: int = 6, size: int = 80, **more: Any) -> Rows:
    random = torch.Generator().manual_seed(0)
    return Rows({"x": torch.randn(size, generator=random), "label": index % 2} | more for index in range(count))


@pytest.mark.parametrize("unit", ["image", "crop", "clip", "video", "region"])
def test_a_unit_that_is_told_by_its_content_is_no_id(unit: str) -> None:
    """Otherwise two records of one person that look different would pass for two units, whatever their id says."""
    with pytest.raises(HalfmaskError, match=f"call the field '{unit}_id', say"):
        read_items(rows(**{unit: 3}), unit, "the private dataset")


def test_a_field_called_record_is_not_overlooked() -> None:
    """Whoever has such a field means it; the unit of that name would be each item alone."""
    with pytest.raises(HalfmaskError, match="rename the field"):
        read_items(rows(record=3), "record", "the private dataset")


def test_the_same_record_twice_is_one_unit() -> None:
    data = rows()
    data.append(data[2] | {"label": 1 - data[2]["label"]})
    units = read_items(data, "record", "the private dataset")[0].unit_ids("record")
    assert units[6] == units[2] and len(np.unique(units)) == 6, "also with another label"
    with pytest.raises(HalfmaskError, match="the same record is 2 times in the private dataset and records_per_unit is 1"):
        read_items(data, "record", "the private dataset", most=1)


def test_small_records_that_are_equal_are_no_sign_of_one_person() -> None:
    answers = Rows({"x": torch.tensor([index % 2, 1]), "label": 0} for index in range(40))
    assert len(np.unique(read_items(answers, "record", "the private dataset", most=8)[0].unit_ids("record"))) == 40


@pytest.mark.parametrize("change", [{"x": torch.zeros(80)}, {"label": 7}, {"patient": "somebody else"}])
def test_an_item_that_changes_later_is_refused_when_it_is_fetched(change: dict[str, Any]) -> None:
    data = rows(patient="p1")
    records, _ = read_items(data, "patient", "the private dataset")
    some = records.take(np.array([4, 1]))
    some.private.rows(np.array([0, 1]))
    data[4] = data[4] | change
    for fetch in (some.private, some.take(np.array([0])).private):
        with pytest.raises(HalfmaskError, match="item 4 of the private dataset is no longer what it was"):
            fetch.rows(np.array([0]))
    assert len(some.private.rows(np.array([1]))["x"]) == 1, "others are as they were"


def test_a_dataset_that_fills_the_same_memory_for_every_item_gives_each_its_own() -> None:
    class Reused:
        def __init__(self) -> None:
            self.memory = np.zeros(80, np.float32)

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> dict[str, Any]:
            self.memory[:] = index
            return {"x": self.memory}

    records, _ = read_items(Reused(), "record", "the private dataset")
    assert records.private.rows(np.array([3, 1]))["x"][:, 0].tolist() == [3, 1]


def test_a_form_without_one_of_its_fields() -> None:
    form = form_of({"x": torch.zeros(2), "who": {"patient": 3, "visit": 1}})
    assert (
        form.without("who.patient") == {"x": "x", "who": {"visit": "who.visit"}} == form_of({"x": torch.ones(2), "who": {"visit": 2}}).build
    )
    assert form_of((torch.zeros(2), 1, "p1")).without("2") == ("0", "1")
    assert form.together({"x": torch.zeros(3, 2), "who.visit": torch.ones(3)})["who"]["patient"] is None
