"""ψ of every record: computed once, a few at a time, and kept."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import halfmask.data.store as store
import halfmask.data.viewing as module
from halfmask.data.pose_records import PoseRecords
from halfmask.data.tables import Arrays
from halfmask.data.viewing import look, with_view
from halfmask.errors import HalfmaskError
from halfmask.views import make_view

Build = Callable[..., PoseRecords]


def test_each_record_has_its_own_view_from_a_read_only_file(fresh_home: Path, random_records: Build) -> None:
    records, view = random_records(9), make_view("blur", {})
    shown = with_view(records, view)
    assert shown.view_key == repr(view) and shown.rest is None
    for row in range(9):
        np.testing.assert_array_equal(shown.views[row], look(records, view, row).public["image"])
    assert isinstance(shown.views, np.memmap) and shown.views.mode == "r"
    assert with_view(records.take(np.array([4])), view).views[0].tobytes() == shown.views[4].tobytes()


def test_a_view_that_reads_what_is_not_there_is_refused_and_leaves_nothing(fresh_home: Path, random_records: Build) -> None:
    class Curious(type(make_view("blur", {}))):  # type: ignore[misc]
        reads = ("image", "income")

    with pytest.raises(HalfmaskError, match="the view reads 'income'"):
        with_view(random_records(3), Curious())
    assert not list((fresh_home / "cache" / "views").iterdir())


def test_views_of_many_take_no_more_memory_than_of_few(fresh_home: Path, random_records: Build) -> None:
    view, peaks = make_view("downsample", {}), []
    with_view(random_records(8, key="warm"), view)
    for count in (60, 240):
        records = random_records(count, key=f"{count}")
        tracemalloc.start()
        with_view(records, view)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # A view is 9 KiB: 180 more of them would be 1.6 MiB.
    assert peaks[1] < peaks[0] + 300_000, peaks


def test_what_is_read_on_the_way_is_let_go(fresh_home: Path, random_records: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    records = random_records(20)
    stored = store.cached("records", "images", lambda: {"images": np.array(records.images)})["images"]
    records = replace(records, private=Arrays({"image": stored}))
    heard = []
    monkeypatch.setattr(store, "LET_GO_AFTER", 5 * 10_000)
    monkeypatch.setattr(module, "let_go", lambda *read: heard.append([one for one in read if one is records.private]))
    with_view(records, make_view("blur", {}))
    assert len(heard) == 5 and all(heard), "every five records of some 9,000 bytes, and at the end"
