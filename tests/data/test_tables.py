"""Tables: some rows of large fields, joined or fetched one by one, are what an array would give, and are read when they are wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halfmask.data.tables import Arrays, FromDataset, Joined, JoinedColumn, Rows, Table, chosen
from halfmask.errors import HalfmaskError

# A row of these is as large as a small picture.
LARGE = np.arange(10 * 3 * 16 * 12, dtype=np.float32).reshape(10, 3, 16, 12)
SMALL = np.arange(10 * 4).reshape(10, 4)
SOME = np.array([7, 2, 2, 9])
KEYS: dict[str, Any] = {
    "one": 2,
    "one of numpy's": np.int64(1),
    "the last": -1,
    "a slice": slice(1, 3),
    "backwards": slice(None, None, -1),
    "an array": np.array([3, 0, 3]),
    "negative numbers": np.array([-1, 0]),
    "flags": np.array([True, False, False, True]),
    "nobody": np.zeros(0, np.int64),
    "inside one": (1, 0, slice(2, 5)),
    "inside several": (slice(0, 2), 1),
    "inside chosen ones": (np.array([3, 1]), slice(None), 4),
    "everything of some": (np.array([3, 1]), ...),
}


class Counting:
    """A column that tells how many rows were read of it."""

    def __init__(self, array: np.ndarray):
        self.array, self.read = array, 0
        self.shape, self.dtype = array.shape, array.dtype

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, key: Any) -> Any:
        found = self.array[key]
        self.read += 1 if found.ndim < self.array.ndim else len(found)
        return found


class Items:
    """A map-style dataset that tells which of its items were fetched."""

    def __init__(self, count: int):
        self.count = count
        self.fetched: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, item: int) -> tuple[np.ndarray, int]:
        assert type(item) is int, "not every dataset knows numpy's numbers"
        self.fetched.append(item)
        return LARGE[item], item * item


def fields(item: tuple[np.ndarray, int]) -> dict[str, np.ndarray]:
    return {"image": item[0], "label": np.int64(item[1])}  # type: ignore[dict-item]


def same(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found, expected)
    assert np.shape(found) == np.shape(expected) and np.asarray(found).dtype == np.asarray(expected).dtype


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_some_rows_are_indexed_as_an_array_of_them_is(key: Any) -> None:
    same(Rows(LARGE, SOME)[key], LARGE[SOME][key])


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_joined_rows_are_indexed_as_one_array_of_all_is(key: Any) -> None:
    same(JoinedColumn([LARGE[:3], LARGE[6:7]])[key], np.concatenate([LARGE[:3], LARGE[6:7]])[key])


def test_columns_pass_for_arrays() -> None:
    for column, expected in ((Rows(LARGE, SOME), LARGE[SOME]), (JoinedColumn([LARGE[:3], LARGE[6:8]]), LARGE[[0, 1, 2, 6, 7]])):
        assert (len(column), column.shape, column.dtype) == (len(expected), expected.shape, expected.dtype)
        same(np.asarray(column), expected)
        same(np.stack(list(column)), expected)
        same(np.asarray(column, np.float64), expected.astype(np.float64))
    assert Rows(LARGE, SOME).ndim == 4


def test_joined_columns_of_two_kinds_hold_the_numbers_of_both() -> None:
    joined = JoinedColumn([np.array([[300.25]]), np.array([[1]], np.uint8)])
    assert joined.dtype == np.float64 and joined[:].tolist() == [[300.25], [1.0]]


def test_some_of_some_rows_are_rows_of_the_first_column() -> None:
    column = Counting(LARGE)
    twice = Rows(Rows(column, SOME), np.array([3, 0]))
    assert twice.column is column and twice.rows.tolist() == [9, 7], "one step to the data, however often some were taken"
    assert column.read == 0
    same(twice[1], LARGE[7])
    assert column.read == 1


def test_joining_and_choosing_read_nothing() -> None:
    first, second = Counting(LARGE), Counting(LARGE + 1)
    joined = Rows(JoinedColumn([first, second]), np.array([11, 3]))
    assert first.read == second.read == 0 and joined.shape == (2, 3, 16, 12)
    same(joined[0], LARGE[1] + 1)
    assert (first.read, second.read) == (0, 1), "only the one that was asked for"


def test_large_rows_are_not_copied_and_small_ones_are() -> None:
    large, small = chosen(LARGE, SOME), chosen(SMALL, SOME)
    assert isinstance(large, Rows) and np.shares_memory(large.column, LARGE)  # type: ignore[arg-type]
    assert isinstance(small, np.ndarray) and not np.shares_memory(small, SMALL)
    same(small, SMALL[SOME])
    # Rows of 1023 and of 1024 bytes: the size counts, not the number of values.
    assert isinstance(chosen(np.zeros((2, 1023), np.uint8), SOME[:0]), np.ndarray)
    assert isinstance(chosen(np.zeros((2, 128), np.float64), SOME[:0]), Rows)


def test_a_table_of_arrays() -> None:
    table = Arrays({"image": LARGE, "label": SMALL})
    assert len(table) == 10 and table.shapes() == {"image": (np.float32, (3, 16, 12)), "label": (SMALL.dtype, (4,))}
    rows = table.rows(SOME)
    for name, array in (("image", LARGE), ("label", SMALL)):
        same(rows[name], array[SOME])
        assert rows[name].flags.c_contiguous and not np.shares_memory(rows[name], array), "a batch may be written on"
    with pytest.raises(HalfmaskError, match=r"'image': 10, 'label': 9.*one row of each for every record"):
        Arrays({"image": LARGE, "label": SMALL[:9]})
    assert len(Arrays({})) == 0 and Arrays({}).rows(SOME) == {}


def test_rows_that_lie_otherwise_come_out_in_order() -> None:
    turned = LARGE.transpose(0, 2, 3, 1)
    assert Arrays({"image": turned}).rows(SOME)["image"].flags.c_contiguous


def test_other_columns_under_some_names() -> None:
    table = Arrays({"image": LARGE, "label": SMALL})
    other = table.changed(label=None, mask=LARGE > 3)
    assert set(other.columns) == {"image", "mask"} and set(table.columns) == {"image", "label"}
    with pytest.raises(HalfmaskError, match="different lengths"):
        table.changed(label=SMALL[:2])


def test_taking_of_a_table_copies_no_picture() -> None:
    column = Counting(LARGE)
    twice = Arrays({"image": column, "label": SMALL}).take(SOME).take(np.array([3, 1]))
    assert column.read == 0 and len(twice) == 2
    rows = twice.rows(np.array([1, 0]))
    assert column.read == 2
    same(rows["image"], LARGE[[2, 9]])
    same(rows["label"], SMALL[[2, 9]])


def test_a_mapped_file_stays_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", LARGE)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    taken = Arrays({"image": mapped}).take(SOME)
    assert taken.columns["image"].column is mapped  # type: ignore[attr-defined]
    same(taken.rows(np.arange(4))["image"], LARGE[SOME])


def test_joined_arrays_keep_what_both_have_and_copy_no_picture() -> None:
    first, second = Counting(LARGE), Counting(LARGE + 1)
    joined = Arrays({"image": first, "label": SMALL, "mask": SMALL}).joined(Arrays({"label": -SMALL, "image": second}))
    assert first.read == second.read == 0 and len(joined) == 20
    assert list(joined.shapes()) == ["image", "label"]
    rows = joined.rows(np.array([12, 3]))
    assert (first.read, second.read) == (1, 1)
    same(rows["image"], np.stack([LARGE[2] + 1, LARGE[3]]))
    same(rows["label"], np.stack([-SMALL[2], SMALL[3]]))
    same(joined.take(np.array([12, 3])).take(np.array([1])).rows(np.array([0]))["image"], LARGE[3:4])


def test_items_of_a_dataset_are_fetched_when_they_are_asked_for() -> None:
    dataset = Items(10)
    table = FromDataset(dataset, fields)
    twice = table.take(SOME).take(np.array([3, 0]))
    assert (len(table), len(twice)) == (10, 2) and dataset.fetched == []
    rows = twice.rows(np.array([1, 0, 1]))
    assert dataset.fetched == [7, 9, 7], "each as often as it was asked for, and nobody else"
    same(rows["image"], LARGE[[7, 9, 7]])
    assert rows["label"].tolist() == [49, 81, 49]
    assert twice.shapes() == {"image": (np.float32, (3, 16, 12)), "label": (np.int64, ())}


def test_no_item_of_a_dataset_is_an_empty_batch() -> None:
    rows = FromDataset(Items(10), fields).rows(np.zeros(0, np.int64))
    assert rows["image"].shape == (0, 3, 16, 12) and rows["label"].shape == (0,) and rows["label"].dtype == np.int64


def joined() -> Table:
    first = Arrays({"image": LARGE, "label": np.arange(10), "mask": SMALL})
    return first.joined(FromDataset(Items(10), fields))


def test_tables_of_different_kinds_are_joined() -> None:
    table = joined()
    assert isinstance(table, Joined) and len(table) == 20 and list(table.shapes()) == ["image", "label"]
    rows = table.rows(np.array([19, 4, 10, 9, 4]))
    assert rows.keys() == {"image", "label"} and rows["label"].tolist() == [81, 4, 0, 9, 4], "in the order asked for"
    same(rows["image"], LARGE[[9, 4, 0, 9, 4]])
    assert table.rows(np.zeros(0, np.int64))["image"].shape == (0, 3, 16, 12)


def test_some_of_joined_tables() -> None:
    some = joined().take(np.array([3, 15, 11])).take(np.array([2, 1]))
    assert len(some) == 2 and some.rows(np.array([0, 1]))["label"].tolist() == [1, 25]
    assert some.joined(Arrays({"label": np.array([70])})).rows(np.array([2, 0]))["label"].tolist() == [70, 1]


def test_joined_tables_are_asked_only_for_what_is_wanted() -> None:
    dataset = Items(10)
    table = Arrays({"image": LARGE, "label": np.arange(10)}).joined(FromDataset(dataset, fields)).take(np.array([2, 13]))
    assert dataset.fetched == []
    table.rows(np.array([1]))
    # The first item tells the shapes of all.
    assert 3 in dataset.fetched and set(dataset.fetched) <= {0, 3}
