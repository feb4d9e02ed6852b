"""Folders with a file of landmarks beside each photograph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from halfmask.data.face_files import DLIB68
from halfmask.data.landmark_files import detect_landmark_files, read_landmark_files
from halfmask.data.people import MISSING
from halfmask.data.region_records import region_records
from halfmask.errors import HalfmaskError


def points(count: int = 68) -> str:
    return "\n".join(f"{21 + 40 * (point * 7 % 68) / 67:.3f} {31 + 50 * point / 67:.3f}" for point in range(count))


def pts(body: str | None = None, count: object = 68) -> str:
    return f"version: 1\nn_points:  {count}\n{{\n{points() if body is None else body}\n}}\n"


@pytest.fixture
def folder(tmp_path: Path, photo) -> Callable[..., Path]:
    def build(last: str | None = None) -> Path:
        for number, name in enumerate(("lfpw/one.jpg", "lfpw/two.png", "three.jpg")):
            photo(tmp_path / name, seed=number)
            (tmp_path / name).with_suffix(".pts").write_text(pts())
        if last is not None:
            (tmp_path / "three.pts").write_text(last)
        return tmp_path

    return build


def test_photographs_with_landmarks_counted_from_one(folder, tmp_path) -> None:
    assert not detect_landmark_files(tmp_path)
    path = folder()
    assert detect_landmark_files(path)
    read = read_landmark_files(path)
    assert read.layout == DLIB68 and read.attribute == ""
    photographs = read.parts["all"]
    assert [one.name for one in photographs] == ["lfpw/one.jpg", "lfpw/two.png", "three.jpg"]
    (face,) = photographs[1].faces
    np.testing.assert_allclose(face.landmarks[0], (20, 30))
    np.testing.assert_allclose(face.box, (18, 17.5, 44, 65), atol=0.01)
    assert face.visible.all() and np.isnan(face.pose).all() and np.isnan(face.attribute) and face.subject is None
    records, left_out = region_records(photographs, read.layout, "", 16, name="landmark-files")
    assert not left_out and not np.asarray(records.targets.columns["posed"]).any()
    (path / "three.jpg").unlink()
    records, left_out = region_records(read_landmark_files(path).parts["all"], read.layout, "", 16, on_bad="skip")
    assert left_out == {MISSING: 1} and len(set(records.units["image"].tolist())) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (pts(points(67)), "it has not 68 points of two finite numbers"),
        (pts(points(67) + "\nnan 3"), "it has not 68 points of two finite numbers"),
        (pts(points(51), 51), "n_points is not 68"),
        (pts(points(67) + "\njane roe"), "a landmark is no number"),
        ("version: 1\n" + points(), "no list of points in braces"),
        ("", "no list of points in braces"),
        ("jané", "it cannot be read as text"),
    ],
    ids=range(7),
)
def test_spoilt_files_are_refused_in_numbers(folder, text: str, told: str) -> None:
    with pytest.raises(HalfmaskError) as refused:
        read_landmark_files(folder(text))
    message = str(refused.value)
    assert f"1 of 3 landmark files cannot be used: 1 × {told}" in message and "three" not in message and "jan" not in message


def test_folders_without(folder, tmp_path) -> None:
    with pytest.raises(HalfmaskError, match=r"holds no \.pts files"):
        read_landmark_files(tmp_path)
    path = folder()
    for image in [*path.rglob("*.jpg"), *path.rglob("*.png")]:
        image.unlink()
    with pytest.raises(HalfmaskError, match=r"none of the 3 \.pts files"):
        read_landmark_files(path)
