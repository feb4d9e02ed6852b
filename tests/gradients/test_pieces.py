"""A batch in pieces: every unit once, and whole."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from halfmask.errors import HalfmaskError
from halfmask.gradients.pieces import change_leaves, count_records, losses_of, some_records, whole_units


def check_pieces(units: list[int], chunk: int) -> None:
    index = torch.tensor(units, dtype=torch.long)
    batch = {"unit": index, "place": torch.arange(len(units))}
    seen: list[int] = []
    places: list[int] = []
    for piece in whole_units(len(units), index, chunk):
        some = piece.of(batch)
        own = some["unit"].unique_consecutive().tolist()
        assert len(own) == len(set(own)) == piece.units, "a unit's records lie next to each other"
        assert len(some["unit"]) <= chunk or piece.units == 1
        if piece.grouping is None:
            assert piece.units == len(some["unit"])
        else:
            assert [own[u] for u in piece.grouping.unit.tolist()] == some["unit"].tolist()
        seen += own
        places += some["place"].tolist()
    assert sorted(seen) == sorted(set(units)) and sorted(places) == list(range(len(units)))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(-3, 6), max_size=20), st.integers(1, 8))
def test_every_unit_is_in_one_piece(units: list[int], chunk: int) -> None:
    check_pieces(units, chunk)


def test_records_that_are_units_are_cut_as_they_lie() -> None:
    assert [(piece.records, piece.units) for piece in whole_units(7, None, 3)] == [(slice(0, 3), 3), (slice(3, 6), 3), (slice(6, 7), 1)]
    assert [piece.units for piece in whole_units(130, None, None)] == [64, 64, 2]
    assert not list(whole_units(0, None, 3))


def test_a_unit_for_each_record_is_needed() -> None:
    with pytest.raises(HalfmaskError, match="unit numbers"):
        list(whole_units(3, torch.tensor([0, 1]), 2))


def test_a_loss_for_each_record_is_needed() -> None:
    model, batch = torch.nn.Linear(2, 1), {"x": torch.ones(3, 2)}
    assert losses_of(lambda m, b: m(b["x"]).squeeze(1), model, batch).shape == (3,)
    with pytest.raises(HalfmaskError, match="one value per record"):
        losses_of(lambda m, b: m(b["x"]), model, batch)


class Pair(NamedTuple):
    image: torch.Tensor
    label: torch.Tensor


@pytest.mark.parametrize(
    "batch",
    [
        torch.arange(5.0),
        (torch.arange(5.0), [torch.arange(5.0)]),
        {"a": torch.arange(5.0), "b": {"c": (torch.arange(5.0), torch.arange(5.0))}},
        Pair(torch.arange(5.0), torch.arange(5.0)),
    ],
)
def test_batches_of_any_make_are_cut_alike(batch: Any) -> None:
    assert count_records(batch) == 5
    cut = some_records(batch, slice(1, 3))
    assert type(cut) is type(batch) and count_records(cut) == 2
    seen: list[list[float]] = []
    change_leaves(lambda tensor: seen.append(tensor.tolist()), cut)
    assert seen and all(values == [1.0, 2.0] for values in seen)


@pytest.mark.parametrize(
    "batch, words",
    [
        ({}, "holds no tensor"),
        ({"x": None}, r"batch\['x'\] is a NoneType"),
        ((torch.ones(3), 7), r"batch\[1\] is an int"),
        ((torch.ones(3), torch.ones(2, 3)), r"batch\[1\] has 2 rows where batch\[0\] has 3"),
        (torch.tensor(1.0), "a single number"),
    ],
)
def test_what_has_no_row_for_each_record_is_refused(batch: Any, words: str) -> None:
    with pytest.raises(HalfmaskError, match=words):
        count_records(batch)
