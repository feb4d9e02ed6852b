"""Rehearsals: nothing private is in them, and nothing is spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halfmask.data.pose_records import PoseRecords
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import Datasets
from halfmask.data.rehearsal import rehearsal_of
from halfmask.data.viewing import with_view
from halfmask.errors import HalfmaskError
from halfmask.training.config import RunConfig
from halfmask.training.running import run_training
from halfmask.training.runs import read_json
from halfmask.views import ImageView, make_view

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread", "fresh_home")
Build = Callable[..., RunConfig]


def dataset(random_records: Callable[..., PoseRecords], subjects: list[int] | None = None) -> Datasets:
    private = random_records(36, subjects=subjects, key="private", seed=1)
    parts = [random_records(12, key=key, seed=seed) for seed, key in ((2, "public"), (3, "test"), (4, "basis"))]
    return Datasets(private, parts[0], parts[1], "some", fingerprints_of(private), basis=parts[2])


def test_images_are_views_and_the_test_is_set_apart(random_records: Callable[..., PoseRecords]) -> None:
    data, view = dataset(random_records), make_view("blur", {})
    rehearsed = rehearsal_of(data, view)
    assert rehearsed.test is not None and rehearsed.public is not None and rehearsed.basis is not None
    assert (len(rehearsed.private), len(rehearsed.test)) == (32, 4)
    assert not np.intersect1d(rehearsed.private.image_ids, rehearsed.test.image_ids).size
    views = with_view(data.private, view).views
    assert views is not None
    for part in (rehearsed.private, rehearsed.test):
        assert np.array_equal(part.images, views[part.image_ids])
        assert not (part.images == data.private.images[part.image_ids]).all((1, 2, 3)).any()
        assert np.array_equal(part.joints, data.private.joints[part.image_ids]) and part.views is None
    assert not np.array_equal(rehearsed.public.images, data.public.images)  # type: ignore[union-attr]
    assert rehearsed.private.key != data.private.key and "rehearsal" in rehearsed.name


def test_it_is_a_function_of_views(random_records: Callable[..., PoseRecords]) -> None:
    """Other images with the same views, the same rehearsal."""

    class Grey(ImageView):
        def __call__(self, image: np.ndarray) -> np.ndarray:
            return np.full_like(image, 128)

        def describe(self) -> str:
            return "grey"

    data = dataset(random_records)
    other = replace(data, private=data.private.changed(images=255 - data.private.images, key="other"))
    mine, theirs = (rehearsal_of(one, Grey()) for one in (data, other))
    assert np.array_equal(mine.private.images, theirs.private.images) and mine.fingerprints == theirs.fingerprints


def test_a_subject_is_on_one_side(random_records: Callable[..., PoseRecords]) -> None:
    rehearsed = rehearsal_of(dataset(random_records, [i % 12 for i in range(36)]), make_view("blur", {}))
    assert rehearsed.test is not None and rehearsed.test.subjects is not None and rehearsed.private.subjects is not None
    assert set(rehearsed.test.subjects) == {8} and 8 not in set(rehearsed.private.subjects)
    with pytest.raises(HalfmaskError, match="one in 9"):
        rehearsal_of(dataset(random_records, [i % 3 for i in range(36)]), make_view("blur", {}))


def test_nothing_is_spent(tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paid = []
    monkeypatch.setattr("halfmask.privacy.account.Account.pay", lambda self, spend: paid.append(spend))
    folder = run_training(tiny_config("rehearsal=true", method="feature-projective"), tmp_path / "run")
    certificate = read_json(folder / "certificate.json")
    assert certificate is not None and not paid
    assert "rehearsal" in certificate["public_assumptions"][0]
    assert "rehearsal" in (read_json(folder / "metrics.json") or {})["dataset"]
    run_training(tiny_config(method="feature-projective"), tmp_path / "real")
    assert paid, "a run on images pays"


@pytest.mark.parametrize("method", ["dpsgd", "projected", "non-private"])
def test_only_where_views_are_public(tiny_config: Build, method: str) -> None:
    with pytest.raises(HalfmaskError, match="to be public"):
        tiny_config("rehearsal=true", method=method)
