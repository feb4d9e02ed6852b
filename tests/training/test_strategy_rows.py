"""Features are written by row: the same bytes as if they were made whole, in as little memory for many people as for few."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import halfmask.data.store as store
import halfmask.training.strategy as module
from halfmask.data.pose_records import PoseRecords
from halfmask.tasks.base import Batch, Lower
from halfmask.tasks.pose import PoseTask
from halfmask.training.config import RunConfig
from halfmask.training.strategy import with_lower_features

Build = Callable[..., PoseRecords]


def _lower(loud: frozenset[int] = frozenset()) -> Lower:
    """Means of squares of pixels; of some people, who are known by their first pixel, too large for half precision."""

    def features(batch: Batch) -> torch.Tensor:
        pixels = batch["image"].float()
        found = torch.nn.functional.avg_pool2d(pixels, 8) / 3
        factor = torch.tensor([1e4 if int(one) in loud else 1.0 for one in pixels[:, 0, 0, 0]])
        return found * factor[:, None, None, None]

    return Lower(f"means {sorted(loud)}", features)


def _numbered(records: PoseRecords) -> PoseRecords:
    """Nobody's first pixel is another's."""
    images = np.array(records.images)
    images[:, 0, 0, 0] = np.arange(len(images))
    return records.changed(images=images)


@pytest.mark.parametrize("loud", [frozenset(), {0}, {40}, {5, 70}, {79}], ids=["nobody", "the first", "a later one", "two", "the last"])
def test_the_same_bytes_as_made_whole(fresh_home: Path, random_records: Build, tiny_config: Callable[..., RunConfig], loud) -> None:
    records, lower = _numbered(random_records(80)), _lower(frozenset(loud))
    found = with_lower_features(records, PoseTask(tiny_config()), lower).features["private"]
    exact = lower.features({"image": torch.from_numpy(np.array(records.images))})
    # Each record by itself: in half precision where that holds it. All of them are kept in what the widest needs.
    whole = [one if int(place) in loud else one.half().float() for place, one in enumerate(exact)]
    expected = torch.stack(whole).numpy()
    assert found.dtype == (np.float32 if loud else np.float16) and isinstance(found, np.memmap) and found.mode == "r"
    assert found.astype(np.float32).tobytes() == expected.tobytes()
    assert not loud or np.isfinite(found).all()


def test_features_of_many_take_no_more_memory_than_of_few(
    fresh_home: Path, random_records: Build, tiny_config: Callable[..., RunConfig]
) -> None:
    task, peaks = PoseTask(tiny_config()), []
    wide = Lower("wide", lambda batch: torch.ones(len(batch["image"]), 4096))
    with_lower_features(random_records(32, key="warm"), task, wide)
    for count in (64, 256):
        records = random_records(count, key=f"{count}")
        tracemalloc.start()
        with_lower_features(records, task, wide)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # 8 KiB each: 192 more of them would be 1.5 MiB.
    assert peaks[1] < peaks[0] + 100_000, peaks


def test_what_is_read_on_the_way_is_let_go(
    fresh_home: Path, random_records: Build, tiny_config: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = replace(random_records(200))
    heard = []
    monkeypatch.setattr(store, "LET_GO_AFTER", 64 * 9_360)
    monkeypatch.setattr(module, "let_go", lambda *read: heard.append(records.private in read))
    with_lower_features(records, PoseTask(tiny_config()), _lower())
    assert heard == [True] * 4, "every 64 of 200, and at the end"
