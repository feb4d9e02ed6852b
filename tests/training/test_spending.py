"""What a run tells the ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from halfmask.data.pose_records import PoseRecords
from halfmask.data.prints import fingerprints_of
from halfmask.privacy.account import RAW, VIEWS
from halfmask.training.config import RunConfig
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare
from halfmask.training.spending import group_sizes, publications_of, spend_of

pytestmark = pytest.mark.usefixtures("quick_accounting")
Records = Callable[..., PoseRecords]
Build = Callable[..., RunConfig]


def most_in(inner: list[int], outer: list[int]) -> int:
    return max(len({i for i, o in zip(inner, outer, strict=True) if o == one}) for one in outer)


def test_crops_lie_in_images_and_subjects(random_records: Records) -> None:
    images, subjects = [0, 0, 0, 1, 2, 2], [7, 8, 9, 7, 7, 8]
    records = random_records(6, image_ids=images, subjects=subjects)
    assert (
        group_sizes(records, "crop")
        == {"image": 3, "subject": 3}
        == {
            "image": most_in(list(range(6)), images),
            "subject": most_in(list(range(6)), subjects),
        }
    )


def test_images_of_one_subject_lie_in_subjects(random_records: Records) -> None:
    """Counted in images, not in the crops on them."""
    records = random_records(6, image_ids=[0, 0, 1, 2, 3, 3], subjects=[4, 4, 4, 4, 5, 5])
    assert group_sizes(records, "image") == {"subject": 3}
    assert group_sizes(records, "subject") == {}, "a subject is in several images, so in none whole"


def test_units_that_cross_are_not_in_each_other(random_records: Records) -> None:
    """An image of two subjects is part of neither: a bound for one says nothing about the other."""
    records = random_records(4, image_ids=[0, 0, 1, 2], subjects=[1, 2, 1, 2])
    assert group_sizes(records, "image") == {} == group_sizes(records, "subject")


def test_a_subject_with_one_image_lies_in_it(random_records: Records) -> None:
    records = random_records(4, image_ids=[0, 0, 1, 1], subjects=[1, 2, 3, 3])
    assert group_sizes(records, "subject") == {"image": 2}


def test_without_subjects_nothing_is_said_of_them(random_records: Records) -> None:
    assert group_sizes(random_records(4, image_ids=[0, 0, 0, 1]), "crop") == {"image": 3}


@pytest.mark.parametrize("method, source", [("dpsgd", "test"), ("non-private", "none")])
def test_a_spend_is_what_the_run_will_do(method: str, source: str, tiny_config: Build, fresh_home: Path) -> None:
    setup = prepare(tiny_config(method=method, unit="image", batch=4), Progress())
    spend = spend_of(setup, "aa", 3, 5, 0.7, "test", ["one look", "another"])
    assert (spend.first_step, spend.last_step, spend.steps, spend.clip_norm, spend.noise_source) == (3, 7, 5, 0.7, source)
    assert (spend.unit, spend.units, spend.noise_multiplier) == ("image", len(setup.units), setup.noise_multiplier)
    assert spend.expected_batch == pytest.approx(4) and spend.unbounded == "one look; another"
    assert spend.group_sizes == group_sizes(setup.private, "image")
    assert (spend_of(setup, "aa", 0, 1, 0.7, "test").unbounded == "") == (method == "dpsgd")


def test_what_is_taken_to_be_public_is_published(tiny_config: Build, fresh_home: Path) -> None:
    assert publications_of(prepare(tiny_config(method="dpsgd"), Progress())) == []
    (views,) = publications_of(prepare(tiny_config(method="feature"), Progress()))
    assert views.what == VIEWS and "Gaussian blur" in views.words and "keypoints" in views.words and views.records == ()
    assert publications_of(prepare(tiny_config(method="projected"), Progress())) == [], "S_pub of public people is public already"
    setup = prepare(tiny_config("subspace.source=private", method="projected", unit="image", batch=4), Progress())
    (raw,) = publications_of(setup)
    assert raw.what == RAW and setup.basis is not None
    gone, private = ({row.tobytes().hex() for row in fingerprints_of(part).exact} for part in (setup.basis, setup.private))
    assert set(raw.records) == gone and len(gone) > 5 and not private & gone
