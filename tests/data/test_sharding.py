from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import halfmask.data.crops as crops
from halfmask.data.records import Records, Units
from halfmask.data.sharding import Shard, Share, assembled, by_share, placed, told
from halfmask.data.store import let_go
from halfmask.data.viewing import with_view
from halfmask.errors import HalfmaskError
from halfmask.tasks.base import task_named
from halfmask.training.config import RunConfig, build_config
from halfmask.views import make_view

Build = Callable[..., Any]
SIZES = (2, 3)


def loaded(config: RunConfig, size: int = 1) -> list[Records]:
    """What each process opens by itself."""
    found = []
    for rank in range(size):
        task = task_named(config.task)(config)
        task.shard = Shard(rank, size, config.unit == "subject") if size > 1 else None
        found.append(task.load().private)
    return found


def everybody(config: RunConfig, size: int) -> list[Records]:
    """What each process has in the end."""
    local = loaded(config, size)
    heard = [told(one) for one in local]
    return [assembled(one, rank, heard) for rank, one in enumerate(local)]


def config_for(task: str, **more: Any) -> RunConfig:
    small: dict[str, dict[str, Any]] = {
        "pose": {"data": {"private": 12, "public": 2, "test": 2}, "model": {"input_size": [32, 32], "weights": None}},
        "face": {"data": {"private": 6, "public": 2, "test": 2}, "model": {"weights": None}},
        "action": {
            "data": {"private": 6, "public": 2, "test": 2, "missing_classes": "allow"},
            "model": {"frames": 4, "side": 32, "weights": None},
        },
        "generate": {
            "data": {"private": 12, "public": 3, "test": 3, "per_subject": 3, "height": 16, "width": 16},
            "model": {"weights": None},
            "method": "dpsgd",
        },
    }
    return build_config({"task": task, "batch": 2} | small[task] | more, {}, [])


@pytest.mark.parametrize("unit", ["own", "subject"])
@pytest.mark.parametrize("task", ["pose", "face", "action", "generate"])
def test_in_shares_there_are_the_records_that_one_process_would_have(task: str, unit: str) -> None:
    config = config_for(task, **({"unit": "subject"} if unit == "subject" else {}))
    (alone,) = loaded(config)
    for size in SIZES:
        records = everybody(config, size)
        for one in records:
            assert np.array_equal(one.ids, alone.ids) and len(one) == len(alone)
            assert one.units.keys() == alone.units.keys()
            assert all(np.array_equal(one.units[name], alone.units[name]) for name in alone.units)
            assert one.prints is not None and alone.prints is not None and one.prints.dataset == alone.prints.dataset
            rows = np.arange(len(one))
            assert all(np.array_equal(value, alone.targets.rows(rows)[name]) for name, value in one.targets.rows(rows).items())
            assert one.owners is not None and np.array_equal(one.owners, records[0].owners)
        owners, units = records[0].owners, records[0].unit_ids(config.unit)
        assert owners is not None and set(owners) == set(range(size)), "each has something to do"
        assert all(len(set(owners[units == one])) == 1 for one in np.unique(units)), "a unit is with one process"
        for rank, one in enumerate(records):
            here = np.flatnonzero(owners == rank)
            mine, theirs = one.private.rows(here), alone.private.rows(here)
            assert all(np.array_equal(mine[name], theirs[name]) for name in theirs)


def test_nobody_elses_images_are_opened(coco_folder: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = coco_folder()
    config = config_for("pose", data={"name": str(folder), "splits": {"private": "train", "test": "val"}})
    opened: list[list[str]] = []
    real = crops.read_image
    monkeypatch.setattr(crops, "read_image", lambda path: opened[-1].append(Path(path).name) or real(path))
    private = {"000000000011.jpg", "000000000012.jpg", "000000000013.jpg"}
    for rank in range(2):
        opened.append([])
        task = task_named("pose")(config)
        task.shard = Shard(rank, 2)
        task.load()
    seen = [set(names) & private for names in opened]
    assert seen[0] | seen[1] == private and not seen[0] & seen[1] and all(seen)


def test_what_another_process_has_opened_cannot_be_read() -> None:
    one = everybody(config_for("pose"), 2)[0]
    assert one.owners is not None
    here, there = (int(np.flatnonzero(one.owners == rank)[0]) for rank in (0, 1))
    assert one.batch(np.array([here]))["image"].any()
    for rows in (np.array([there]), np.array([here, there])):
        with pytest.raises(HalfmaskError, match="another process"):
            one.batch(rows)
    with pytest.raises(HalfmaskError, match="another process"):
        one.take(np.array([there])).batch(np.array([0]))
    let_go(one.private)


def test_views_are_made_of_ones_own_and_are_those_of_one_process() -> None:
    config = config_for("pose")
    view = make_view("blur", {})
    (alone,) = (with_view(one, view) for one in loaded(config))
    for rank, one in enumerate(everybody(config, 2)):
        seen = by_share(one, rank, lambda part: with_view(part, view))
        assert seen.owners is not None and seen.view_key == alone.view_key
        here = np.flatnonzero(seen.owners == rank)
        assert np.array_equal(seen.batch(here, "view")["image"], alone.batch(here, "view")["image"])
        with pytest.raises(HalfmaskError, match="another process"):
            seen.batch(np.flatnonzero(seen.owners != rank), "view")
    assert by_share(alone, 0, lambda part: part) is alone, "whoever has opened everything is not asked"


def test_units_know_who_has_opened_them_also_after_somebody_left() -> None:
    one = everybody(config_for("pose", unit="image"), 3)[1]
    kept = one.take(np.arange(3, len(one)))
    units = Units(kept.unit_ids("image"), 8, ids=kept.ids, owners=kept.owners)
    assert units.owners is not None and kept.owners is not None and one.owners is not None
    assert np.array_equal(kept.owners, one.owners[3:]), "whoever stays is still with the process that has opened them"
    for number, members in enumerate(units.members):
        assert {int(kept.owners[row]) for row in members} == {int(units.owners[number])}


def test_shares_go_by_name_whatever_the_order_and_are_equal() -> None:
    names = [f"image {number}" for number in range(60)]
    shares = [Shard(rank, 3).mine(names, [None] * 60) for rank in range(3)]
    assert [len(share) for share in shares] == [20] * 3 and sorted(np.concatenate(shares)) == list(range(60))
    turned = Shard(1, 3).mine(names[::-1], [None] * 60)
    assert {names[::-1][place] for place in turned} == {names[place] for place in shares[1]}
    people = Shard(0, 2, by_subject=True).mine(names, ["anna", "ben"] * 30)
    assert len(people) == 30 and len(set(people % 2)) == 1, "all of a person's images are in one share"


def test_what_cannot_be_shared_is_refused() -> None:
    with pytest.raises(HalfmaskError, match="start fewer"):
        Shard(0, 4).mine(["one", "one", "two", "three"], [None] * 4)
    with pytest.raises(HalfmaskError, match="no subject"):
        Shard(0, 2, by_subject=True).mine(["a", "b"], ["anna", None])
    with pytest.raises(HalfmaskError, match="leave --shard-private out"):
        told(Records.of_arrays({"x": np.zeros((3, 2))}))


def test_places_are_those_of_the_sources() -> None:
    records = Records.of_arrays({"x": np.zeros((5, 2))})
    found = placed(records, [70, 80], np.array([70, 70, 80, 70, 80]), np.array([4, 9]))
    assert found.places is not None and found.places.tolist() == [4, 4, 9, 4, 9]


def test_a_share_is_indexed_as_a_column_is() -> None:
    whole = np.arange(24).reshape(6, 2, 2)
    share = Share(whole[[1, 4, 5]], np.array([1, 4, 5]), 6)
    assert len(share) == 6 and share.shape == whole.shape and share.dtype == whole.dtype
    assert np.array_equal(share[4], whole[4]) and np.array_equal(share[[5, 1]], whole[[5, 1]])
    assert np.array_equal(share[4:, 0], whole[4:, 0]) and np.array_equal(share[4, 1], whole[4, 1])
    assert len(share[[]]) == 0
    with pytest.raises(HalfmaskError):
        np.asarray(share)
