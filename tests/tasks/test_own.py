"""A loss, a view and a sample of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from halfmask.data.items import form_of, read_items
from halfmask.data.viewing import look
from halfmask.errors import HalfmaskError
from halfmask.tasks.own import OwnTask, OwnView

pytestmark = pytest.mark.usefixtures("fresh_home")


def items(count: int = 6) -> list[dict[str, Any]]:
    random = torch.Generator().manual_seed(0)
    return [{"x": torch.randn(80, generator=random), "label": index % 2} for index in range(count)]


def test_a_view_that_changes_later_is_refused() -> None:
    """What it shows of a record is declared once; each further showing would be more of it."""
    digits = [0]

    def rounded(item: dict[str, Any]) -> dict[str, Any]:
        return item | {"x": (item["x"] * 10 ** digits[0]).round()}

    data = items()
    records, form = read_items(data, "record", "the private dataset")
    view = OwnView.of_items(rounded, data, form, "the private dataset")
    some = records.take(np.array([3, 5]))
    assert np.array_equal(look(some, view, 1).public["x"], data[5]["x"].round().numpy())
    digits[0] = 2
    with pytest.raises(HalfmaskError, match="no longer what it was"):
        look(some, view, 1)


def test_views_are_known_by_the_place_of_their_item() -> None:
    data = items()
    _, form = read_items(data, "record", "the private dataset")
    view = OwnView.of_items(lambda item: {"x": item["x"].round()}, data, form, "the private dataset")
    with pytest.raises(HalfmaskError, match="no longer what it was"):
        view.of_item(data[1], 0)


@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (3, [3]), (5, [4]), (6, [4, 2]), (20, [4, 4, 4])])
def test_the_users_sample_is_tried_some_at_a_time(count: int, sizes: list[int]) -> None:
    given = items(count)
    task = OwnTask(None, sample=given, form=form_of(given[0]))
    found = task.samples(nn.Linear(80, 2), None)  # type: ignore[arg-type]
    assert [len(batch["x"]) for batch in found] == sizes
    assert torch.equal(found[0]["x"][0], given[0]["x"]) and len({float(batch["x"][0, 0]) for batch in found}) == len(sizes)
