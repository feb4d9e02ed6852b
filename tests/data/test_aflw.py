"""AFLW's database and its JSON form: what is there, what is absent, and what is spoilt."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halfmask.data.aflw import AFLW21, detect_aflw, read_aflw
from halfmask.data.aflw_json import AFLW19, detect_aflw_json, read_aflw_json
from halfmask.data.people import NO_AREA
from halfmask.data.region_records import region_records
from halfmask.errors import HalfmaskError

SECRET = "jane-roe"
SCHEMA = """
CREATE TABLE Faces (face_id INTEGER PRIMARY KEY AUTOINCREMENT, file_id TEXT NOT NULL, db_id TEXT NOT NULL);
CREATE TABLE FaceImages (image_id INTEGER PRIMARY KEY, db_id TEXT, file_id TEXT, filepath TEXT, bw INTEGER, width INTEGER, height INTEGER);
CREATE TABLE FaceRect (face_id INTEGER, x INTEGER, y INTEGER, w INTEGER, h INTEGER, annot_type_id INTEGER, upsample INTEGER);
CREATE TABLE FacePose (face_id INTEGER, roll REAL, pitch REAL, yaw REAL, annot_type_id INTEGER, upsample INTEGER);
CREATE TABLE FeatureCoords (face_id INTEGER, feature_id INTEGER, x REAL, y REAL, annot_type_id INTEGER, upsample INTEGER);
CREATE TABLE FeatureCoordTypes (feature_id INTEGER PRIMARY KEY, descr TEXT, code TEXT, x REAL, y REAL, z REAL);
CREATE TABLE FaceMetaData (face_id INTEGER, sex TEXT, occluded INTEGER, glasses INTEGER, bw INTEGER, annot_type_id INTEGER,
    upsample INTEGER);
INSERT INTO FaceImages VALUES (1, 'flickr', 'a.jpg', '0/a.jpg', 0, 90, 120), (2, 'flickr', 'b.jpg', '2/b.jpg', 0, 90, 120);
INSERT INTO FaceImages VALUES (3, 'flickr', 'c.jpg', '2/c.jpg', 0, 90, 120);
INSERT INTO Faces VALUES (11, 'a.jpg', 'flickr'), (12, 'b.jpg', 'flickr'), (13, 'b.jpg', 'flickr'), (14, 'b.jpg', 'flickr');
INSERT INTO FaceRect VALUES (11, 20, 30, 40, 45, 1, 0), (12, 5, 5, 30, 30, 1, 0);
INSERT INTO FacePose VALUES (11, 0.1, -0.2, 1.5707963267948966, 1, 0);
INSERT INTO FaceMetaData VALUES (11, 'f', 0, 1, 0, 1, 0), (12, 'm', 0, 0, 0, 1, 0), (13, NULL, 0, 0, 0, 1, 0);
"""


@pytest.fixture
def aflw(tmp_path: Path, photo) -> Callable[..., Path]:
    """Three photographs (two faces without a rectangle on the second, nobody on the third), and whatever else is done to them."""

    def build(more: str = "", place: str = "data") -> Path:
        for number, name in enumerate(("0/a.jpg", "2/b.jpg", "2/c.jpg")):
            photo(tmp_path / place / "flickr" / name, seed=number)
        path = tmp_path / place / "aflw.sqlite"
        path.unlink(missing_ok=True)
        database = sqlite3.connect(path)
        database.executescript(SCHEMA)
        for face, features in ((11, range(1, 22)), (12, (1, 15, 21, 23)), (13, range(1, 22)), (14, (1, 2))):
            rows = [(face, feature, 22.0 + feature, 40.0 + 2 * feature % 30, 1, 0) for feature in features if (face, feature) != (11, 13)]
            database.executemany("INSERT INTO FeatureCoords VALUES (?, ?, ?, ?, ?, ?)", rows)
        database.executescript(more)
        database.close()
        return tmp_path

    return build


def test_the_database(aflw) -> None:
    read = read_aflw(aflw())
    assert (read.format, read.layout, read.attribute) == ("aflw", AFLW21, "sex")
    photographs = read.parts["all"]
    assert [(one.name, len(one.faces)) for one in photographs] == [("0/a.jpg", 1), ("2/b.jpg", 3), ("2/c.jpg", 0)]
    (face,) = photographs[0].faces
    assert face.box == (20, 30, 40, 45) and face.attribute == 1 and face.subject is None
    np.testing.assert_allclose(face.pose, np.degrees([0.1, -0.2, np.pi / 2]))
    assert face.visible.sum() == 20 and not face.visible[12] and np.isnan(face.landmarks[12]).all()
    np.testing.assert_allclose(face.landmarks[1], (24, 44))
    second, third, fourth = photographs[1].faces
    assert second.visible.sum() == 3 and second.attribute == 0 and np.isnan(second.pose).all()
    assert np.isfinite(third.box).all() and np.isnan(third.attribute), "a rectangle from its landmarks"
    assert np.isnan(fourth.box).all() and np.isnan(fourth.attribute)
    assert photographs[1].read().shape == (120, 90, 3)
    records, left_out = region_records(photographs, read.layout, read.attribute, 16, name="aflw")
    assert left_out == {NO_AREA: 1} and len(set(records.units["image"].tolist())) == 3 and "subject" not in records.units


def test_the_database_may_lie_beside_the_photographs(aflw, tmp_path) -> None:
    assert not detect_aflw(tmp_path)
    folder = aflw(place=".")
    assert detect_aflw(folder) and read_aflw(folder).parts["all"][0].read().shape == (120, 90, 3)


@pytest.mark.parametrize("layout", [AFLW21, AFLW19], ids=lambda layout: layout.name)
def test_mirror_images(layout) -> None:
    mirror = np.array(layout.mirror)
    assert (mirror[mirror] == np.arange(len(layout))).all() and (mirror == np.arange(len(layout))).sum() == 3


@pytest.mark.parametrize(
    ("spoilt", "told"),
    [
        (f"UPDATE FaceMetaData SET sex = '{SECRET}'", "3 of 4 faces cannot be used: 3 × 'sex' is another word than m, f or nothing"),
        (f"UPDATE FaceRect SET x = '{SECRET}'", "2 × its rectangle is a list of 4 things, expected four finite numbers"),
        (f"UPDATE FacePose SET yaw = '{SECRET}'", "1 × its pose is"),
        (f"UPDATE FeatureCoords SET x = '{SECRET}' WHERE face_id = 12 AND feature_id = 1", "1 × a landmark is"),
        ("UPDATE FeatureCoords SET x = NULL WHERE face_id = 12 AND feature_id = 1", "1 × a landmark is"),
        (f"UPDATE Faces SET file_id = '{SECRET}.jpg' WHERE face_id = 11", "1 × its photograph is not in FaceImages"),
        (f"UPDATE FaceImages SET filepath = '../{SECRET}.jpg' WHERE image_id = 1", "names an image outside the dataset folder"),
        ("DROP TABLE FacePose", "has no table FacePose: expected the database that comes with AFLW"),
        ("ALTER TABLE FaceMetaData RENAME COLUMN sex TO age", "has no column sex in its table FaceMetaData"),
        ("DELETE FROM FaceImages; DELETE FROM Faces", "lists no photographs: the dataset is empty"),
    ],
    ids=range(10),
)
def test_a_spoilt_database(aflw, spoilt: str, told: str) -> None:
    with pytest.raises(HalfmaskError) as refused:
        read_aflw(aflw(spoilt))
    assert told in str(refused.value) and SECRET not in str(refused.value) and "\n" not in str(refused.value)


def test_what_is_no_database_and_photographs_that_are_not_there(aflw, tmp_path) -> None:
    with pytest.raises(HalfmaskError, match="holds no AFLW database"):
        read_aflw(tmp_path)
    folder = aflw()
    path = folder / "data/aflw.sqlite"
    whole = path.read_bytes()
    for damaged in (b"", b"no database at all, but long enough to look at", whole[:5000], whole[:4000] + b"\xff" * (len(whole) - 4000)):
        path.write_bytes(damaged)
        with pytest.raises(HalfmaskError, match=r"cannot be read as an SQLite database|has no table"):
            read_aflw(folder)
    path.write_bytes(whole)
    (folder / "data/flickr").rename(folder / "elsewhere")
    with pytest.raises(HalfmaskError, match=r"none of the 3 photographs that .* names is there: expected them below"):
        read_aflw(folder)


def entry(number: int, **changes: Any) -> dict[str, Any]:
    points = [value for point in range(19) for value in (20 + point, 40 + point % 7, 1)]
    return {"id": number, "image_id": number, "keypoints": points, "bbox": [15.0, 30.0, 40.0, 45.0]} | changes


@pytest.fixture
def aflw_json(tmp_path: Path, photo) -> Callable[..., Path]:
    def build(annotations: list[Any] | None = None, name: str = "annotations/face_landmarks_aflw_train.json") -> Path:
        images = [{"id": number, "file_name": f"image{number}.jpg"} for number in (1, 2)]
        for image in images:
            photo(tmp_path / "images" / str(image["file_name"]))
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"images": images, "annotations": annotations or [entry(1)]}))
        return tmp_path

    return build


def test_json(aflw_json, tmp_path) -> None:
    assert not detect_aflw_json(tmp_path)
    points = entry(1)["keypoints"]
    points[5] = 0
    folder = aflw_json([entry(1, keypoints=points)])
    aflw_json(name="test_aflw.json")
    read = read_aflw_json(folder)
    assert read.layout == AFLW19 and read.attribute == "" and sorted(read.parts) == ["test", "train"]
    first, second = read.parts["train"]
    assert first.faces[0].visible.sum() == 18 and np.isnan(first.faces[0].landmarks[1]).all() and second.faces == ()
    assert first.faces[0].box == (15, 30, 40, 45) and np.isnan(first.faces[0].pose).all() and np.isnan(first.faces[0].attribute)
    assert first.read().shape == (120, 90, 3)


def test_spoilt_json(aflw_json, tmp_path) -> None:
    with pytest.raises(HalfmaskError, match="holds no JSON file of faces"):
        read_aflw_json(tmp_path)
    for bad, told in (
        (entry(2, keypoints=[1, 2]), "1 of 2 annotations cannot be used: 1 × 'keypoints' is a list of 2 numbers, expected 57"),
        (entry(2, bbox=[SECRET, 1, 2, 3]), "1 × 'bbox' is a list of 4 things"),
        (entry(2, image_id=SECRET), "1 × 'image_id' is that of no image"),
        (entry(2, image_id=[SECRET]), "1 × 'image_id' is that of no image"),
        (SECRET, "1 × found a text"),
    ):
        with pytest.raises(HalfmaskError) as refused:
            read_aflw_json(aflw_json([entry(1), bad]))
        assert told in str(refused.value) and SECRET not in str(refused.value)
    aflw_json()
    with pytest.raises(HalfmaskError, match="hold the split 'train'"):
        read_aflw_json(aflw_json(name="train.json"))


def test_the_real_sample(shared_data) -> None:
    folder = shared_data("format_samples/aflw")
    assert detect_aflw_json(folder)
    read = read_aflw_json(folder)
    photographs = read.parts["test"]
    assert [one.name for one in photographs] == ["image04476.jpg", "image22568.jpg"]
    left, right = (photographs[1].faces[0].landmarks[list(points), 0].mean() for points in ((0, 6, 12, 15), (5, 11, 14, 17)))
    assert left < right
    records, left_out = region_records(photographs, read.layout, read.attribute, 32, name="aflw-json")
    face = np.asarray(records.targets.columns["face"])
    assert not left_out and face.sum() >= 2 and not np.asarray(records.targets.columns["posed"]).any()
