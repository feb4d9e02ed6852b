"""Fingerprints that were kept are worth something under the key they were made with alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from halfmask.data.datasets import DataConfig, load_datasets
from halfmask.data.export import export_figures
from halfmask.data.pose_records import PoseRecords
from halfmask.data.prints import fingerprints_of, print_record
from halfmask.data.records import Records
from halfmask.data.tables import Arrays
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


def exact(**fields: np.ndarray) -> bytes:
    return print_record(fields, "", bytes(32))["exact"].tobytes()


def test_a_record_is_the_same_in_another_shape_order_or_precision() -> None:
    """A new budget for whoever reshapes their data would be no budget."""
    x, label = np.random.default_rng(0).normal(size=80).astype(np.float32), np.array(1)
    known = exact(x=x, label=label)
    assert exact(x=x.reshape(8, 10), label=label) == exact(label=label, x=x.astype(np.float64)) == exact(x=x[None]) == known
    small = exact(a=x[:4], b=x[4:6])
    assert exact(b=x[4:6], a=x[:4]) == exact(a=x[:4].reshape(2, 2), b=x[4:6].astype(np.float64)) == small
    assert exact(a=x[:4], b=x[5:7]) != small and exact(x=x + 1) != known


def test_of_fields_as_large_the_one_that_says_most_tells() -> None:
    """Of words and their mask the words, in whatever order they come: masks are alike in many."""
    words = np.random.default_rng(0).integers(0, 9, (2, 70))
    mask = np.ones(70, np.int64)
    assert exact(attention=mask, words=words[0]) == exact(words=words[0], attention=mask * 0)
    assert exact(attention=mask, words=words[0]) != exact(attention=mask, words=words[1])


def records_of(x: np.ndarray, **units: np.ndarray) -> Records:
    return Records(private=Arrays({"x": x}), targets=Arrays({}), units=units, key="one name")


def test_a_name_that_was_given_twice_does_not_serve_for_two_datasets(fresh_home: Path) -> None:
    x = np.random.default_rng(0).normal(size=(4, 80)).astype(np.float32)
    first, second = fingerprints_of(records_of(x)), fingerprints_of(records_of(x + 1))
    assert not np.isin(second.exact.view("V16"), first.exact.view("V16")).any()
    whose = [fingerprints_of(records_of(x, patient=np.array(ids))).subjects for ids in ([0, 0, 1, 1], [0, 1, 2, 3])]
    assert not np.array_equal(whose[0], whose[1]), "nor for two ways to say whose they are"


def test_people_recur_by_their_coarsest_name(fresh_home: Path) -> None:
    """Whoever recurs by it recurs, whichever unit is protected."""
    x = np.random.default_rng(0).normal(size=(4, 80)).astype(np.float32)
    found = fingerprints_of(records_of(x, visit=np.arange(4), patient=np.array([0, 0, 1, 1])))
    assert len(np.unique(found.subjects, axis=0)) == 2
