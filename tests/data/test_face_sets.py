"""Parts of face datasets: who is in each, what each opens, and what is learnt only if asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest

import halfmask.data.face_files as files
from halfmask.data.face_sets import (
    FaceDataConfig,
    FaceSplitsConfig,
    detect_face_format,
    load_face_test,
    load_faces,
    load_public_faces,
    read_faces,
)
from halfmask.data.faces import Face, Layout, Photograph
from halfmask.data.overlaps import check_overlaps
from halfmask.data.people import MISSING
from halfmask.errors import HalfmaskError
from halfmask.settings import check_settings

SIZE = 16
SUBJECTS = ("9", "10", "2", "1", "30", "10")
LANDMARKS = np.column_stack([20 + 40 * (np.arange(68) * 7 % 68) / 67, 30 + 50 * np.arange(68) / 67])


def write_ytf68(folder: Path, photo: Callable[..., None]) -> Path:
    """Six frames of five subjects."""
    columns = ["file", "subject", "video", "gender", "roll_derived", "pitch_derived", "yaw_derived"]
    lines = [",".join([*columns, *(f"{axis}{point}" for point in range(68) for axis in "xy")])]
    for number, subject in enumerate(SUBJECTS):
        photo(folder / "images" / f"f{number}.jpg", seed=number)
        lines.append(",".join([f"f{number}.jpg", subject, "0", "male", "0", "10", "-5", *map(str, LANDMARKS.ravel())]))
    (folder / "labels.csv").write_text("\n".join(lines))
    return folder


@pytest.fixture
def frames(tmp_path: Path, photo, fresh_home) -> FaceDataConfig:
    folder = write_ytf68(tmp_path / "frames", photo)
    return FaceDataConfig(name=str(folder), splits=FaceSplitsConfig(private="3-4", public="1", tuning="2", test="5"), workers=2)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The photographs that were opened, each once."""
    names: list[str] = []
    real = files.read_image
    monkeypatch.setattr(files, "read_image", lambda path: names.append(path.name) or real(path))
    return names


def units(records, unit: str) -> int:
    return len(set(records.units[unit].tolist()))


def test_parts_by_subject_in_the_order_of_their_numbers(frames, opened) -> None:
    told: list[str] = []
    data = load_faces(frames, SIZE, lambda stage, done, total: told.append(stage))
    assert data.public is not None and data.test is not None and data.tuning is not None and data.basis is None
    assert units(data.private, "subject") == 2 and units(data.private, "image") == 3, "the third and the fourth are 9 and 10"
    assert units(data.public, "image") == units(data.test, "image") == units(data.tuning, "image") == 1
    assert len({*data.private.units["subject"], *data.public.units["subject"], *data.test.units["subject"]}) == 4
    assert data.private.prints is not None and data.public.prints is not None
    assert check_overlaps(data.private.prints, {"public": data.public.prints}, "subject") == []
    assert "finding regions of private photographs" in told and not data.left_out
    opened.clear()
    load_faces(frames, SIZE)
    assert not opened
    load_faces(frames, (24, 24))
    assert sorted(opened) == [f"f{number}.jpg" for number in range(6)]


def test_judging_and_pretraining_open_no_private_photograph(frames, opened) -> None:
    load_face_test(frames, SIZE)
    assert set(opened) == {"f4.jpg"}
    opened.clear()
    public, tuning = load_public_faces(frames, SIZE)
    assert set(opened) == {"f3.jpg", "f2.jpg"} and tuning is not None and units(public, "subject") == 1


def test_the_attribute_is_learnt_only_if_asked_for(frames) -> None:
    silent, learnt = load_face_test(frames, SIZE), load_face_test(replace(frames, attribute=True), SIZE)
    assert silent.attribute == "" and not np.asarray(silent.targets.columns["attributed"]).any()
    assert learnt.attribute == "gender" and np.asarray(learnt.targets.columns["attributed"]).any()
    np.testing.assert_array_equal(silent.ids, learnt.ids)


def test_what_is_refused(frames, tmp_path) -> None:
    with pytest.raises(HalfmaskError, match=r"data\.splits\.private asks for the subjects 1 to 9 of 'all', which has 5"):
        load_faces(replace(frames, splits=FaceSplitsConfig(private="1-9")), SIZE)
    with pytest.raises(HalfmaskError, match=r"gives 1 subjects to both 'private' and 'test'"):
        load_faces(replace(frames, splits=FaceSplitsConfig(private="1-3", test="3")), SIZE)
    with pytest.raises(HalfmaskError, match=r"nobody in its part 'private'.*divided into all \(5 subjects\): say who is who"):
        load_faces(replace(frames, splits=FaceSplitsConfig(test="3")), SIZE)
    with pytest.raises(HalfmaskError, match="nobody in its part 'test'"):
        load_face_test(replace(frames, splits=FaceSplitsConfig()), SIZE)
    with pytest.raises(HalfmaskError, match="nobody in its part 'public'"):
        load_public_faces(replace(frames, splits=FaceSplitsConfig()), SIZE)
    with pytest.raises(HalfmaskError, match="square, and 24×16 was asked for"):
        load_face_test(frames, (24, 16))
    with pytest.raises(HalfmaskError, match=r"unknown format of faces 'ytf'.*did you mean 'ytf68'"):
        read_faces(tmp_path, "ytf")
    (tmp_path / "empty").mkdir()
    with pytest.raises(HalfmaskError, match="is in no known format of faces"):
        detect_face_format(tmp_path / "empty")
    with pytest.raises(HalfmaskError, match="no dataset at"):
        load_faces(FaceDataConfig(name="nowhere"), SIZE)
    check_settings(frames, "data.")
    with pytest.raises(HalfmaskError, match="format of faces"):
        check_settings(replace(frames, format="mpii"), "data.")


def test_a_bad_file_is_counted_by_part(frames) -> None:
    (Path(frames.name) / "images/f1.jpg").unlink()
    with pytest.raises(HalfmaskError, match=f"an annotation names {MISSING}"):
        load_faces(frames, SIZE)
    data = load_faces(replace(frames, on_bad="skip"), SIZE)
    assert data.left_out == {"private": {MISSING: 1}} and units(data.private, "image") == 2
    (remark,) = data.remarks()
    assert "f1.jpg" not in remark


def test_without_subjects_it_is_divided_by_photograph(tmp_path, photo) -> None:
    for number in range(4):
        photo(tmp_path / f"p{number}.jpg", seed=number)
        body = "\n".join(f"{x} {y}" for x, y in LANDMARKS)
        (tmp_path / f"p{number}.pts").write_text(f"version: 1\nn_points: 68\n{{\n{body}\n}}\n")
    assert detect_face_format(tmp_path) == "landmark-files"
    data = load_faces(FaceDataConfig(name=str(tmp_path), splits=FaceSplitsConfig(private="2-4", public="1")), SIZE)
    assert data.public is not None and units(data.private, "image") == 3 and data.private.unit_names() == ["region", "image"]


def fake_closeup(population: str, seed: int, number: int) -> np.ndarray:
    coarse = np.random.default_rng([len(population), seed, number]).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    image = cv2.resize(coarse, (90, 90), interpolation=cv2.INTER_NEAREST)
    cv2.ellipse(image, (45, 45), (20, 26), 0, 0, 360, (230, 180, 150), -1)
    return image


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close-ups that take no time to draw."""

    def closeups(population: str, count: int, seed: int = 0, skip: int = 0) -> list[Photograph]:
        points = np.array([[35.0, 40.0], [55.0, 40.0]])

        def face(number: int) -> Face:
            return Face((25.0, 19.0, 40.0, 52.0), points, np.ones(2, bool), np.zeros(3), number % 2, f"faces/{population}/{number // 2}")

        return [
            Photograph(f"faces/{population}/{seed}/{number}", lambda number=number: fake_closeup(population, seed, number), (face(number),))
            for number in range(skip, skip + count)
        ]

    module = ModuleType("halfmask.data.figures.closeups")
    vars(module).update(closeups=closeups, FACE_LAYOUT=Layout("figures", (1, 0)), ATTRIBUTE="glasses")
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_drawn_close_ups(world, fresh_home) -> None:
    config = FaceDataConfig(private=6, public=4, public_skip=2, test=2)
    data = load_faces(config, SIZE)
    assert data.public is not None and data.test is not None and data.tuning is None
    assert units(data.private, "image") == 6 and units(data.private, "subject") == 3 and units(data.public, "image") == 4
    assert data.private.layout.name == "figures" and data.private.attribute == ""
    assert load_face_test(replace(config, attribute=True), SIZE).attribute == "glasses"
    fewer = load_faces(replace(config, private=5), SIZE).private
    assert set(fewer.ids.tolist()) < set(data.private.ids.tolist())
    other = load_faces(config, 24).private
    assert other.prints is not None and data.private.prints is not None
    np.testing.assert_array_equal(other.prints.exact, data.private.prints.exact)
    public, tuning = load_public_faces(config, SIZE)
    assert tuning is None and len(public) == len(data.public)
    for part, load in (("private", load_faces), ("test", load_face_test), ("public", load_public_faces)):
        with pytest.raises(HalfmaskError, match=f"data.{part} is 0"):
            load(replace(config, **{part: 0}), SIZE)


def test_the_real_frames_by_subject(shared_data) -> None:
    config = FaceDataConfig(name=str(shared_data("ytf68")), splits=FaceSplitsConfig(private="61", test="287"), positives=1, negatives=1)
    data = load_faces(config, SIZE)
    assert data.test is not None and units(data.private, "subject") == units(data.test, "subject") == 1
    assert 0 < len(data.private) <= 2 * units(data.private, "image")
