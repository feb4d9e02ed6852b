"""Bounds on the pictures of a person: from settings and from how the world is drawn, and kept to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from halfmask.data.figures_pictures import figures_pictures
from halfmask.data.picture_bounds import bounds_in, refuse_more
from halfmask.data.picture_sets import PictureDataConfig, PictureSplitsConfig, identity_pictures, load_pictures
from halfmask.errors import HalfmaskError


@pytest.mark.parametrize(
    ("unit", "drawn", "said", "expected"),
    [
        ("image", 16, None, {"subject": 16}),
        ("image", 16, 20, {"subject": 16}),
        ("image", 16, 9, {"subject": 9}),
        ("image", None, None, {}),
        ("image", None, 9, {"subject": 9}),
        ("subject", 16, 9, {}),
        ("subject", None, 9, {}),
    ],
)
def test_what_bounds_a_person(unit: str, drawn: int | None, said: int | None, expected: dict[str, int]) -> None:
    assert bounds_in(unit, drawn, said) == expected
    config = PictureDataConfig("mine" if drawn is None else "figures", per_subject=drawn or 16, pictures_per_subject=said)
    assert config.most_in(unit) == expected


@pytest.mark.parametrize("skip", [0, 3])
def test_nobody_of_the_drawn_world_has_more(skip: int) -> None:
    counts = Counter(figures_pictures("private", 30, skip=skip, size=(16, 16), per_subject=4).unit_ids("subject").tolist())
    assert max(counts.values()) == 4


def test_more_than_was_said_is_refused_in_numbers() -> None:
    refuse_more(["ann", "ann", "bob"], 2)
    refuse_more(["ann", "ann", "bob"], None)
    with pytest.raises(
        HalfmaskError, match=r"pictures_per_subject is 1 and 1 private subjects have more pictures, up to 2: raise it"
    ) as said:
        refuse_more(["ann", "ann", "bob"], 1)
    assert "ann" not in str(said.value)


def test_a_bound_is_kept_before_any_picture_is_drawn_or_opened(
    tmp_path: Path, photo, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfmask.data.picture_sets.figures_pictures", lambda *a: pytest.fail("a picture was drawn"))
    with pytest.raises(HalfmaskError, match="up to 8"):
        load_pictures(PictureDataConfig(private=20, public=0, test=0, per_subject=8, pictures_per_subject=7))
    for person, frames in enumerate((3, 6, 9), start=1):
        for frame in range(frames):
            photo(tmp_path / "market" / "bounding_box_train" / f"{person:04}_c1s1_{frame:06}_01.jpg", seed=10 * person + frame)
    splits = PictureSplitsConfig(private="1-2", test="3")
    # Of six pictures two are kept out to be named, and of the test nothing is asked.
    config = PictureDataConfig(str(tmp_path / "market"), height=32, width=16, workers=1, splits=splits, pictures_per_subject=4)
    assert len(load_pictures(config).private) == 2 + 4 and len(identity_pictures(config).known) == 6
    monkeypatch.setattr("halfmask.data.picture_sets.read_pictures", lambda *a: pytest.fail("a picture was opened"))
    with pytest.raises(HalfmaskError, match="is 3 and 1 private subjects have more pictures, up to 4"):
        load_pictures(PictureDataConfig(config.name, height=32, width=16, splits=splits, pictures_per_subject=3))
