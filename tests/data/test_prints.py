"""Fingerprints that were kept are worth something under the key they were made with alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from halfmask.data.datasets import DataConfig, load_datasets
from halfmask.data.export import export_figures
from halfmask.data.pose_records import PoseRecords
from halfmask.data.prints import fingerprints_of
from halfmask.privacy.fingerprints import Fingerprints


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_they_are_made_anew_under_another_key(
    where: str, random_records: Callable[..., PoseRecords], tmp_path: Path, fresh_home: Path
) -> None:
    """Old ones would be strangers to every ledger that is written from now on: the same people, a fresh budget."""
    if where == "folder":
        export_figures(tmp_path / "people", {"private": 4})

    def prints() -> Fingerprints:
        if where == "memory":
            return fingerprints_of(random_records(4))
        return load_datasets(DataConfig(name=str(tmp_path / "people")), (64, 48)).fingerprints

    before = prints()
    assert np.array_equal(prints().exact, before.exact), "they are kept"
    (fresh_home / "fingerprint.key").unlink()
    after = prints()
    assert not np.isin(after.exact.view("V16"), before.exact.view("V16")).any()
    assert after.in_pictures_of(prints()).all(), "and their sketches can be opened"
