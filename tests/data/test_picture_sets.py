"""Parts of picture datasets: who is in each, and what each opens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import halfmask.data.face_files as files
from halfmask.data.overlaps import check_overlaps
from halfmask.data.picture_folders import NOT_NAMED_SO
from halfmask.data.picture_sets import (
    PictureDataConfig,
    PictureSplitsConfig,
    identity_pictures,
    load_picture_test,
    load_pictures,
    load_public_pictures,
)
from halfmask.errors import HalfmaskError
from halfmask.settings import check_settings

DRAWN = PictureDataConfig(private=10, public=6, test=5, per_subject=4)


def test_drawn_people_are_in_one_part_each() -> None:
    data = load_pictures(DRAWN)
    assert (len(data.private), len(data.public), len(data.test), data.name) == (10, 6, 5, "figures")
    subjects = [set(part.unit_ids("subject").tolist()) for part in (data.private, data.public, data.test)]
    assert not (subjects[0] & subjects[1] or subjects[0] & subjects[2] or subjects[1] & subjects[2])
    assert len(data.fingerprints) == 10
    assert load_pictures(replace(DRAWN, public=0, test=0)).test is None


def test_whoever_judges_pre_training_is_nobody_who_was_learnt_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmask.data.picture_sets._JUDGED", 9)
    learnt, judged = load_public_pictures(replace(DRAWN, public_skip=1))
    assert len(learnt) == 6 and len(judged) == 9
    assert not set(learnt.unit_ids("subject").tolist()) & set(judged.unit_ids("subject").tolist())
    again = load_pictures(replace(DRAWN, public_skip=1)).public
    assert (again.ids == learnt.ids).all() and not np.isin(learnt.ids, load_pictures(DRAWN).public.ids).all()


def test_the_test_is_loaded_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import halfmask.data.picture_sets as sets

    asked, real = [], sets.figures_pictures
    monkeypatch.setattr(sets, "figures_pictures", lambda population, *rest: asked.append(population) or real(population, *rest))
    assert len(load_picture_test(DRAWN)) == 5 and asked == ["test"]
    load_public_pictures(DRAWN)
    assert set(asked[1:]) == {"public"}


def test_nobody_to_learn_from_or_to_judge_by_is_refused() -> None:
    for change, call, told in (
        ({"private": 0}, load_pictures, "data.private is 0"),
        ({"public": 0}, load_public_pictures, "data.public is 0"),
        ({"test": 0}, load_picture_test, "data.test is 0"),
        ({"height": 50}, load_pictures, "multiples of 16"),
    ):
        with pytest.raises(HalfmaskError, match=told):
            call(replace(DRAWN, **change))
    for bad in ({"height": 50}, {"width": 0}, {"per_subject": 0}, {"name": ""}):
        with pytest.raises(HalfmaskError, match=f"data.{next(iter(bad))} is"):
            check_settings(replace(DRAWN, **bad), "data.")
    check_settings(DRAWN, "data.")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pictures that were opened."""
    names: list[str] = []
    real = files.read_image
    monkeypatch.setattr(files, "read_image", lambda path: names.append(path.name) or real(path))
    return names


@pytest.fixture
def market(tmp_path: Path, photo, fresh_home) -> PictureDataConfig:
    """Five people with 1, 2, 3, 4 and 7 pictures."""
    for person, frames in enumerate((1, 2, 3, 4, 7), start=1):
        for frame in range(frames):
            photo(tmp_path / "market" / "bounding_box_train" / f"{person:04}_c1s1_{frame:06}_01.jpg", seed=10 * person + frame)
    return PictureDataConfig(
        name=str(tmp_path / "market"), height=32, width=16, workers=2, splits=PictureSplitsConfig(public="2", private="1,3-4", test="5")
    )


def subjects(records) -> set[int]:
    return set(records.unit_ids("subject").tolist())


def test_parts_on_disk_are_divided_by_person_and_the_last_pictures_kept_out(market, opened) -> None:
    data = load_pictures(market)
    assert (len(data.public), len(data.private), len(data.test)) == (2, 1 + 2 + 3, 7)
    assert not any(name.endswith(("0003_c1s1_000002_01.jpg", "0004_c1s1_000003_01.jpg")) for name in opened), "kept out of training"
    assert not (subjects(data.private) & subjects(data.public) or subjects(data.private) & subjects(data.test))
    assert check_overlaps(data.private.prints, {"public": data.public.prints, "test": data.test.prints}, "subject") == []
    assert data.private.targets.columns["action"].tolist() == [-1] * 6 and data.private.actions == ()
    assert len(load_pictures(replace(market, named_share=0.0)).private) == 8
    assert "drawn people alone" in data.private.poses


def test_judging_and_pretraining_open_no_private_picture(market, opened) -> None:
    load_picture_test(market)
    load_public_pictures(market)
    assert {name[:4] for name in opened} == {"0005", "0002"}


def test_the_identity_attack_names_other_pictures_of_the_same_people(market) -> None:
    found = identity_pictures(market)
    assert (len(found.known), len(found.to_name), found.too_few) == (6, 2, 1), "of one person there is one picture"
    assert subjects(found.to_name) < subjects(found.known)
    assert not set(found.known.ids.tolist()) & set(found.to_name.ids.tolist())
    assert (found.known.ids == load_pictures(market).private.ids).all()
    for change in ({"named_share": 0.0}, {"splits": PictureSplitsConfig(private="1-2")}):
        with pytest.raises(HalfmaskError, match=r"no private person of .* has a picture to be named"):
            identity_pictures(replace(market, **change))


def test_drawn_people_are_named_by_their_last_pictures() -> None:
    found = identity_pictures(DRAWN)
    # Of 10 pictures four are of the first, four of the second and two of the third.
    assert (len(found.known), len(found.to_name), found.too_few) == (8, 2, 1)
    private = load_pictures(DRAWN).private
    assert (found.to_name.ids == private.ids[[3, 7]]).all()


def test_one_person_with_a_single_picture_can_be_nobody_to_name(market) -> None:
    with pytest.raises(HalfmaskError, match=r"has nobody in its part 'private'.*5 subjects"):
        load_pictures(replace(market, splits=PictureSplitsConfig()))
    with pytest.raises(HalfmaskError, match="nobody can be in two parts"):
        load_pictures(replace(market, splits=PictureSplitsConfig(private="1-3", test="3-5")))
    with pytest.raises(HalfmaskError, match="no dataset at"):
        load_pictures(replace(market, name="nowhere"))


def test_files_of_other_names_are_told(market) -> None:
    (Path(market.name) / "bounding_box_train" / "jane-roe.jpg").write_bytes(b"")
    data = load_pictures(market)
    assert data.left_out == {"files": {NOT_NAMED_SO: 1}} and not any("jane" in line for line in data.remarks())


@pytest.fixture
def care(tmp_path: Path, photo, fresh_home) -> PictureDataConfig:
    """Four people, two activities with joints."""
    for seed, (person, activity) in enumerate((person, activity) for person in "abcd" for activity in ("Drinking water", "phone", "rest")):
        place = tmp_path / "care" / person / activity
        for frame in range(3):
            photo(place / f"RGB_{frame}.png", seed=10 * seed + frame)
        rows = (f"RGB_{frame}.png,{40 + frame},50,30,80" for frame in range(3))
        place.joinpath("joints.csv").write_text("\n".join(["file,head_top_x,head_top_y,pelvis_x,pelvis_y", *rows]))
    splits = PictureSplitsConfig(private="1-3", test="4")
    return PictureDataConfig(
        name=str(tmp_path / "care"), splits=splits, actions=["phone", "drinking water"], height=32, width=32, workers=2
    )


def test_frames_of_some_activities_with_their_own_joints(care) -> None:
    data = load_pictures(care)
    assert data.private.actions == ("phone", "drinking-water") and len(data.private) == 3 * 2 * 2 and len(data.test) == 2 * 3
    assert sorted(set(data.private.targets.columns["action"].tolist())) == [0, 1]
    assert data.private.targets.columns["joints"][:, :, 2].sum(1).tolist() == [2] * 12 and data.private.poses == "annotated by the dataset"
    assert not subjects(data.private) & subjects(data.test)
    known = identity_pictures(care)
    assert sorted(known.to_name.targets.columns["action"].tolist()) == [0, 0, 0, 1, 1, 1], "one of each person's action"
    nearer = load_picture_test(replace(care, fit="person"))
    assert (nearer.private.columns["image"] != data.test.private.columns["image"]).any()
    with pytest.raises(HalfmaskError, match=r"phones.*phone"):
        load_pictures(replace(care, actions=["phones"]))


def test_frames_of_which_some_have_no_joints_are_refused_or_looked_at(care) -> None:
    (Path(care.name) / "a" / "phone" / "joints.csv").unlink()
    with pytest.raises(HalfmaskError, match=r"2 of 12 pictures.*data.poses"):
        load_pictures(care)
    assert load_picture_test(replace(care, poses="embedded")).targets.columns["joints"][:, :, 2].sum() > 12
