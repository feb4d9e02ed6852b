"""Dividing by image: ranges, official splits, and nobody in two parts."""

from __future__ import annotations

import pytest

from halfmask.data.coco import read_coco
from halfmask.data.lsp import read_lsp
from halfmask.data.splits import SplitsConfig, choose, divide
from halfmask.errors import HalfmaskError


def numbers(part) -> list[int]:
    return [person.image_id for person in part.people]


def test_ranges_of_images(lsp_folder) -> None:
    parts = divide(read_lsp(lsp_folder(6)), SplitsConfig(private="3-5", public="1", tuning="2", test="6"))
    assert {name: numbers(part) for name, part in parts.items()} == {"private": [3, 4, 5], "public": [1], "test": [6], "tuning": [2]}
    assert numbers(divide(read_lsp(lsp_folder(6)), SplitsConfig(private="5,1-2"))["private"]) == [1, 2, 5]


def test_ranges_count_images_and_not_the_people_who_are_left(lsp_folder) -> None:
    import numpy as np

    flags = np.ones((6, 14))
    flags[1] = 0
    part = divide(read_lsp(lsp_folder(6, flags=flags)), SplitsConfig(private="2-4"))["private"]
    assert numbers(part) == [3, 4] and len(part.left_out) == 1 and len(part.images) == 3


def test_official_splits_serve_where_nothing_is_said(coco_folder) -> None:
    read = read_coco(coco_folder())
    parts = divide(read, SplitsConfig())
    assert {name: numbers(part) for name, part in parts.items()} == {"private": [11, 11, 12, 13], "test": [21, 22]}
    assert parts["test"].truth is not None and set(parts["test"].truth) == set(parts["test"].images)


def test_images_named_for_one_part_leave_the_official_split_of_another(coco_folder) -> None:
    parts = divide(read_coco(coco_folder()), SplitsConfig(public="train:1-1,val:2"))
    assert {name: numbers(part) for name, part in parts.items()} == {"private": [12, 13], "test": [21], "public": [11, 11, 22]}
    assert numbers(divide(read_coco(coco_folder()), SplitsConfig(private="train:1-1,3"))["private"]) == [11, 11, 13]


@pytest.mark.parametrize(
    "splits, message",
    [
        ({"private": "1-4", "test": "4-6"}, r"gives 1 images to both 'private' and 'test': nobody can be in two parts"),
        ({"private": "0-4"}, r"data\.splits\.private asks for the images 0 to 4 of 'all', which has 6"),
        ({"test": "5-7"}, "asks for the images 5 to 7"),
        ({"test": "5-2"}, "asks for the images 5 to 2"),
        ({"public": "first"}, r"data\.splits\.public is 'first': expected images such as '1-100' of 6"),
        ({"public": "train:1-2"}, "or one of the dataset's own splits: all"),
        ({"public": "1-2-3"}, "is '1-2-3'"),
        ({"public": ""}, "is ''"),
    ],
)
def test_splits_that_are_refused(lsp_folder, splits, message) -> None:
    with pytest.raises(HalfmaskError, match=message):
        divide(read_lsp(lsp_folder(6)), SplitsConfig(**splits))


def test_a_bare_range_needs_to_know_of_what(coco_folder) -> None:
    with pytest.raises(HalfmaskError, match="expected images such as 'train:1-100'"):
        divide(read_coco(coco_folder()), SplitsConfig(public="1-2"))


def test_another_dataset_for_one_part(coco_folder, lsp_folder) -> None:
    assert numbers(choose(read_coco(coco_folder()), "public", None)) == [11, 11, 12, 13]
    assert numbers(choose(read_lsp(lsp_folder(6)), "public", "2-3")) == [2, 3]
