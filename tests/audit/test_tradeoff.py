"""Utility and identity of hidden pictures: the right people on the right side, nothing measured twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from halfmask.audit.tradeoff import Measuring, People, audit_tradeoff, people_of
from halfmask.audit.tradeoff_ways import Way
from halfmask.data.picture_sets import PictureDataConfig, identity_pictures, load_picture_test
from halfmask.data.pictures import NO_ACTION
from halfmask.errors import HalfmaskError
from halfmask.models.judge import Sight

pytestmark = pytest.mark.usefixtures("one_thread")
DRAWN = PictureDataConfig(private=60, public=8, test=10, per_subject=6)


class Blind:
    """A judge that sees the mean colours of a picture, and everybody's joints in the middle: the network itself takes its time."""

    name = "blind"

    def look(self, images: np.ndarray) -> Sight:
        colours = images.reshape(len(images), 3, 4, -1).mean(3).reshape(len(images), -1).astype(np.float32)
        middle = np.tile(np.float32([24, 32]), (len(images), 16, 1))
        return Sight(colours, colours, middle, np.ones((len(images), 16), np.float32))


@pytest.fixture(scope="module")
def people() -> People:
    return people_of(DRAWN)


def measuring(people: People, seed: int = 0) -> Measuring:
    return Measuring(people, seed, 2, judge=Blind())  # type: ignore[arg-type]


def way(name: str, hide, kind: str = "baseline") -> Way:
    return Way(name, "1", kind, name, hide)


RAW = way("raw", lambda images, joints, seed: images, "raw")


def test_who_is_attacked_and_who_is_like_them(people: People) -> None:
    known, asked = people.subjects[people.division.learn], people.subjects[people.division.test]
    assert set(known.tolist()) == set(asked.tolist()) and len(people.division.learn) == 40 and len(people.division.test) == 20
    found = identity_pictures(DRAWN)
    assert np.array_equal(people.images[people.division.test], found.to_name.private.rows(np.arange(20))["image"])
    test = load_picture_test(DRAWN)
    assert people.like_part == "test" and np.array_equal(people.like, test.private.rows(np.arange(10))["image"])
    assert not (people.like[:, None] == people.images[None]).all((2, 3, 4)).any(), "nobody private is shown or held against"


def test_fewer_people_and_some_actions() -> None:
    few = people_of(DRAWN, count=4)
    assert few.division.people == 4 and len(few.images) == 24 and few.key != people_of(DRAWN).key
    one, other = few.action_names[:2]
    some = people_of(DRAWN, actions=[one, other])
    assert some.action_names == (one, other) and (some.actions == NO_ACTION).any() and some.key != people_of(DRAWN).key
    with pytest.raises(HalfmaskError, match="unknown action"):
        people_of(DRAWN, actions=["flying"])
    with pytest.raises(HalfmaskError, match="2 people to be named: expected at least 4"):
        people_of(replace(DRAWN, private=12))


def test_public_people_stand_in_where_nobody_is_set_apart() -> None:
    assert people_of(replace(DRAWN, test=0)).like_part == "public"
    alone = people_of(replace(DRAWN, test=0, public=0))
    assert alone.like_part == "none" and not len(alone.like)
    point = measuring(alone).point(RAW)
    assert set(point["quality"]) == {"pose_kept"}


def test_each_attacker_learns_from_what_they_have(people: People) -> None:
    """A mark of everybody's own in place of the person: of no use to who knows raw pictures, a name to who knows hidden ones."""

    def marked(images: np.ndarray, joints: np.ndarray, seed: int) -> np.ndarray:
        rng = np.random.default_rng(1)
        colours = {one: rng.integers(0, 255, 3) for one in np.unique(people.subjects)}
        return np.stack([np.broadcast_to(colours[one][:, None, None], images.shape[1:]) for one in people.subjects]).astype(np.uint8)

    measured = measuring(people)
    plain, hidden = measured.point(RAW), measured.point(way("marked", marked))
    assert plain["identity"]["raw"] == plain["identity"]["adapted"] and plain["identity"]["raw"]["accuracy"]["value"] > 0.4
    assert hidden["identity"]["adapted"]["accuracy"]["value"] == 1
    assert hidden["identity"]["raw"]["accuracy"]["value"] < 0.4
    nobody = measured.point(way("grey", lambda images, joints, seed: np.full_like(images, 90)))
    assert nobody["identity"]["raw"]["accuracy"]["value"] <= 0.2 and nobody["identity"]["adapted"]["accuracy"]["value"] <= 0.2
    assert nobody["quality"]["frechet_distance"] > plain["quality"]["frechet_distance"]
    assert plain["action"] == plain["action_on_raw"] and plain["action"]["tested_on"] == 60 and plain["seconds"] >= 0


def test_what_was_measured_is_not_measured_again(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = [RAW, way("grey", lambda images, joints, seed: np.full_like(images, 90))]
    kept: list[int] = []
    told: list[str] = []
    first = audit_tradeoff(measuring(people), ways, "figures", None, lambda body: kept.append(len(body["points"])), told.append)
    assert kept == [1, 2] and first["people"] == 10 and first["not_for_release"] is None and first["chance"]["identity"] == 0.1
    known = {point["key"]: point for point in first["points"]}
    monkeypatch.setattr(Measuring, "point", lambda *a: pytest.fail("measured again"))
    again = audit_tradeoff(measuring(people), ways, "figures", known, lambda body: pytest.fail("kept"), told.append)
    assert again == first and told[-1].endswith("(measured before)")
    # The same way under another name is the same.
    assert audit_tradeoff(measuring(people), [replace(RAW, family="bare")], "figures", known)["points"][0]["family"] == "bare"
    for other in (measuring(people, seed=1), measuring(people_of(DRAWN, count=5))):
        with pytest.raises(pytest.fail.Exception, match="measured again"):
            audit_tradeoff(other, ways, "figures", known)
    assert audit_tradeoff(measuring(people), [RAW], "/somewhere/real", known)["not_for_release"]
