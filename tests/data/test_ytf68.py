"""Frames with 68 landmarks: what a row means, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from halfmask.data.face_files import DLIB68
from halfmask.data.region_records import region_records
from halfmask.data.ytf68 import detect_ytf68, read_ytf68
from halfmask.errors import HalfmaskError

HEADER = ["file", "subject", "video", "gender", "roll_derived", "pitch_derived", "yaw_derived"] + [
    f"{axis}{point}" for point in range(68) for axis in "xy"
]


def landmarks() -> np.ndarray:
    steps = np.arange(68)
    return np.column_stack([20 + 40 * (steps * 7 % 68) / 67, 30 + 50 * steps / 67])


def row(number: int, **changes: str) -> list[str]:
    values = {"file": f"f{number}.jpg", "subject": str(1 + number // 2), "video": "0", "gender": ("female", "male", "")[number % 3]}
    values |= {"roll_derived": "1.5", "pitch_derived": "-10", "yaw_derived": "30"}
    values |= {f"{axis}{point}": f"{value:.2f}" for point, pair in enumerate(landmarks()) for axis, value in zip("xy", pair, strict=True)}
    return [(values | changes)[name] for name in HEADER]


@pytest.fixture
def folder(tmp_path: Path, photo) -> Callable[..., Path]:
    """Six frames of three subjects, or the rows given."""

    def build(rows: list[list[str]] | None = None) -> Path:
        for number in range(6):
            photo(tmp_path / "images" / f"f{number}.jpg", seed=number)
        rows = [row(number) for number in range(6)] if rows is None else rows
        (tmp_path / "labels.csv").write_text("\n".join(",".join(one) for one in [HEADER, *rows]) + "\n")
        return tmp_path

    return build


def test_a_row_is_a_photograph_with_one_face(folder) -> None:
    path = folder()
    assert detect_ytf68(path) and not detect_ytf68(path / "images")
    read = read_ytf68(path)
    assert (read.layout, read.attribute, list(read.parts)) == (DLIB68, "gender", ["all"])
    photographs = read.parts["all"]
    assert [one.name for one in photographs] == [f"f{number}.jpg" for number in range(6)]
    (face,) = photographs[3].faces
    np.testing.assert_allclose(face.landmarks, landmarks(), atol=0.01)
    np.testing.assert_allclose(face.box, (18, 17.5, 44, 65), atol=0.01)
    assert face.visible.all() and face.pose.tolist() == [1.5, -10, 30] and face.subject == "2"
    assert [one.faces[0].attribute for one in photographs[:2]] == [1, 0] and np.isnan(photographs[2].faces[0].attribute)
    assert photographs[0].read().shape == (120, 90, 3)
    records, left_out = region_records(photographs, read.layout, read.attribute, 16, name="ytf68")
    assert not left_out and len(set(records.units["subject"].tolist())) == 3


def test_a_mirror_image_has_the_points_of_the_other_side() -> None:
    mirror = np.array(DLIB68.mirror)
    assert len(DLIB68) == 68 and (mirror[mirror] == np.arange(68)).all()
    middle = [8, 27, 28, 29, 30, 33, 51, 57, 62, 66]
    assert np.flatnonzero(mirror == np.arange(68)).tolist() == middle
    assert mirror[[0, 17, 21, 31, 36, 39, 37, 41, 48, 60, 67]].tolist() == [16, 26, 22, 35, 45, 42, 44, 46, 54, 64, 65]


def test_what_is_empty_is_not_known(folder) -> None:
    (face,) = read_ytf68(folder([row(0, x5="", yaw_derived="")])).parts["all"][0].faces
    assert not face.visible[5] and face.visible.sum() == 67 and np.isnan(face.landmarks[5]).all() and np.isnan(face.pose[2])
    assert np.isfinite(face.box).all()


def test_bad_rows_are_refused_in_numbers(folder) -> None:
    good, secret = row(0), "nobody-knows"
    for bad, told in (
        (row(1, gender=secret), "1 of 2 rows cannot be used: 1 × 'gender' is another word than male, female or nothing"),
        (row(1, x3=secret), "1 × a landmark is neither a number nor empty"),
        (row(1, x3="inf"), "1 × a landmark is neither a number nor empty"),
        (row(1, roll_derived=secret), "1 × an angle is neither a number nor empty"),
        (row(1)[:30], "1 × it has fewer values than the header has names"),
        ([*row(1), secret], "1 × it has more values than the header has names"),
        (row(1, subject=""), "1 × no 'file' or no 'subject'"),
        (row(0, gender="male"), "1 × 'file' is that of another row"),
        (row(1)[:7] + [""] * 136, "1 × no two landmarks are annotated"),
    ):
        with pytest.raises(HalfmaskError) as refused:
            read_ytf68(folder([good, bad]))
        assert told in str(refused.value) and secret not in str(refused.value)
    with pytest.raises(HalfmaskError, match="outside the dataset folder"):
        read_ytf68(folder([row(1, file="../secret.jpg")]))


def test_files_that_are_something_else(folder, tmp_path) -> None:
    with pytest.raises(HalfmaskError, match=r"no file at .*labels\.csv"):
        read_ytf68(tmp_path)
    path = folder([])
    with pytest.raises(HalfmaskError, match="lists no frames"):
        read_ytf68(path)
    (path / "labels.csv").write_text("file,subject\na.jpg,1\n")
    assert not detect_ytf68(path)
    with pytest.raises(HalfmaskError, match="has no column gender, roll_derived, pitch_derived and 137 more"):
        read_ytf68(path)
    (path / "labels.csv").write_bytes(b"\xff\xfe\x00")
    assert not detect_ytf68(path)
    with pytest.raises(HalfmaskError, match="no text in UTF-8"):
        read_ytf68(path)


def test_the_real_frames(shared_data) -> None:
    read = read_ytf68(shared_data("ytf68"))
    photographs = read.parts["all"]
    assert len(photographs) == 3510 and len({one.faces[0].subject for one in photographs}) == 287
    records, left_out = region_records(photographs[:6], read.layout, read.attribute, 32, name="ytf68")
    face = np.asarray(records.targets.columns["face"])
    assert not left_out and 6 <= face.sum() <= 18 and (face == 0).sum() == 18
    assert np.asarray(records.targets.columns["visible"])[face == 1].mean() > 0.8
