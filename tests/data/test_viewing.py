"""ψ of every record: of the record as it is, by the fields that a view declares, once; and what a view leaves where it divides records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from halfmask.data.pose_records import PoseRecords
from halfmask.data.records import PRIVATE, REST, VIEW, Records
from halfmask.data.store import cached
from halfmask.data.tables import Arrays, FromDataset
from halfmask.data.viewing import look, with_view
from halfmask.errors import HalfmaskError
from halfmask.tasks.base import task_named
from halfmask.training.config import RunConfig
from halfmask.training.showing import Showing
from halfmask.views import Blur, Seen, View

pytestmark = pytest.mark.usefixtures("fresh_home")
EVERYONE = np.arange(6)


@dataclass(frozen=True)
class Masked(View):
    """What lies under a mask is private, the rest of the picture public; remembers what it was handed."""

    reads: ClassVar[tuple[str, ...]] = ("image", "mask")
    handed: ClassVar[list[set[str]]] = []

    def of(self, record: Mapping[str, np.ndarray]) -> Seen:
        self.handed.append(set(record))
        public = np.where(record["mask"], 0, record["image"])
        return Seen({"image": public, "hidden": record["mask"].mean()}, {"image": record["image"] - public})

    def describe(self) -> str:
        return "what lies outside the mask"


@dataclass(frozen=True)
class Of(View):
    """The declared fields themselves."""

    fields: tuple[str, ...]

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.fields

    def of(self, record: Mapping[str, np.ndarray]) -> Seen:
        return Seen(dict(record))

    def describe(self) -> str:
        return "some fields"


@pytest.fixture
def records() -> Records:
    rng = np.random.default_rng(0)
    Masked.handed.clear()
    return Records(
        private=Arrays({"image": rng.integers(1, 256, (6, 3, 24, 24), dtype=np.uint8), "voice": rng.random((6, 5))}),
        targets=Arrays({"label": np.arange(6)}),
        truth=Arrays({"mask": rng.random((6, 1, 24, 24)) < 0.5, "name": rng.random(6)}),
        units={},
        key="people",
    )


def test_a_view_is_handed_the_fields_it_declares_and_no_others(records: Records) -> None:
    seen = with_view(records, Masked())
    assert len(Masked.handed) >= 6 and all(handed == {"image", "mask"} for handed in Masked.handed)
    assert seen.public is not None and set(seen.public.shapes()) == {"image", "hidden"}


@pytest.mark.parametrize("field", ["image", "voice", "label", "mask", "name"])
def test_any_field_of_a_record_can_be_declared(records: Records, field: str) -> None:
    """Of the private part, the targets and what only scoring asks for."""
    tables = records.private.rows(EVERYONE) | records.targets.rows(EVERYONE) | records.truth.rows(EVERYONE)
    found = with_view(records, Of((field,))).part(VIEW).rows(EVERYONE)
    assert found.keys() == {field} and np.array_equal(found[field], tables[field])


def test_a_field_that_records_do_not_have_is_asked_for_by_name(records: Records) -> None:
    with pytest.raises(HalfmaskError, match="the view reads 'depth', and these records have image, voice, label, mask, name"):
        with_view(records, Of(("image", "depth")))


def test_records_that_lie_in_a_dataset_are_viewed_too(records: Records) -> None:
    """Wherever a field lies, a view reads it."""
    images = records.private.rows(EVERYONE)["image"]
    elsewhere = replace(records, private=FromDataset(images, lambda image: {"image": image}), key="elsewhere")
    for expected, found in zip(*(with_view(one, Masked()).part(VIEW).rows(EVERYONE).values() for one in (records, elsewhere)), strict=True):
        assert np.array_equal(expected, found)


def test_public_and_rest_make_up_the_record_and_are_stored(records: Records) -> None:
    seen = with_view(records, Masked())
    image, mask = records.private.rows(EVERYONE)["image"], records.truth.rows(EVERYONE)["mask"]
    public, rest = seen.part(VIEW).rows(EVERYONE), seen.part(REST).rows(EVERYONE)
    assert np.array_equal(public["image"] + rest["image"], image)
    assert not public["image"][np.broadcast_to(mask, image.shape)].any() and not rest["image"][np.broadcast_to(~mask, image.shape)].any()
    assert np.array_equal(public["hidden"], mask.mean((1, 2, 3))) and set(rest) == {"image"}
    assert seen.private is records.private and seen.view_key == repr(Masked())
    looked = len(Masked.handed)
    again = with_view(records, Masked())
    assert len(Masked.handed) == looked, "computed once"
    assert np.array_equal(again.part(REST).rows(EVERYONE)["image"], rest["image"])
    with_view(replace(records, key="others"), Masked())
    assert len(Masked.handed) > looked, "other people, other views"


def test_with_a_rest_the_private_half_is_shown_the_rest(records: Records) -> None:
    whole, divided = with_view(records, Blur(5, 2.0)), with_view(records, Masked())
    assert (records.shown, whole.shown, divided.shown) == (PRIVATE, PRIVATE, REST)
    rest = divided.part(REST).rows(EVERYONE)["image"]
    shown = divided.batch(EVERYONE, divided.shown)
    assert np.array_equal(shown["image"].numpy(), rest) and "voice" not in shown and shown["label"].tolist() == EVERYONE.tolist()
    assert set(divided.shapes()) == {"image", "label"} and set(records.shapes()) == {"image", "voice", "label"}
    some = divided.take(np.array([4, 1]))
    assert some.shown == REST and np.array_equal(some.batch(np.array([0]), REST)["image"].numpy(), rest[4:5])
    with pytest.raises(HalfmaskError, match="have no rest"):
        whole.batch(EVERYONE, REST)


def test_views_go_when_records_are_joined_or_as_they_were(records: Records) -> None:
    """Neither a view nor a rest of one set stands for another's."""
    seen = with_view(records, Masked())
    for bare in (seen.without_view(), replace(seen, prints=None).joined(replace(seen, key="again"))):
        assert bare.public is None and bare.rest is None and bare.view_key == "" and bare.shown == PRIVATE


def test_what_an_earlier_layout_stored_is_not_taken_for_a_view(random_records: Callable[..., PoseRecords]) -> None:
    people, view = random_records(3), Blur(5, 2.0)
    cached("views", f"{people.key}/{view!r}", lambda: {"views": np.zeros_like(people.images)})
    views = with_view(people, view).views
    assert views is not None and np.array_equal(views[2], look(people, view, 2).public["image"])


def test_a_view_is_of_the_record_as_it_is_and_changed_afterwards(
    random_records: Callable[..., PoseRecords], tiny_config: Callable[..., RunConfig]
) -> None:
    """ψ of a changed picture would be another look at the person in every step; what is shown changed is the one view that was stored."""
    view = Blur(9, 3.0)
    people = with_view(random_records(6), view)
    stored = people.part(VIEW).rows(EVERYONE)["image"]
    assert np.array_equal(stored, np.stack([look(people, view, row).public["image"] for row in EVERYONE]))
    config = tiny_config("augment.times=1", strategy="full")
    showing = Showing(config.augment, task_named("pose")(config), seed=3)
    image, shown = showing.show(people, EVERYONE, PRIVATE, VIEW, use="public", step=0, times=1)
    # The same changes, made to the stored views by hand.
    stand_in = people.changed(images=stored)
    (expected,) = showing.show(stand_in, EVERYONE, PRIVATE, use="public", step=0, times=1)
    assert torch.equal(shown["image"], expected["image"])
    anew = torch.stack(
        [torch.from_numpy(view.of({"image": one.round().to(torch.uint8).numpy()}).public["image"].copy()).float() for one in image["image"]]
    )
    assert float((anew - shown["image"]).abs().mean()) > 1, "a view of the changed picture is another picture"
