"""Pictures, films and cameras, one after the other: what is written, and what whoever reads it is told."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.data import footage
from halfmask.data.footage import write_video
from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError
from halfmask.inference.detection import Detected
from halfmask.inference.people_given import Given
from halfmask.inference.predicting import Watcher, predict_film, predict_picture
from halfmask.inference.sources import CAMERA, PICTURE, VIDEO, Source


class Sure:
    """A stand-in that is as sure of everything as one asks for."""

    words, skeleton, input_size = "a stand-in", MPII, (64, 48)

    def __init__(self, score: float = 0.8, calibrated: bool = True):
        self.score, self.calibrated = score, calibrated

    def __call__(self, crops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.tile(np.linspace(5, 40, 16)[None, :, None], (len(crops), 1, 2)), np.full((len(crops), 16), self.score)


def two(image: np.ndarray) -> list[Detected]:
    return [Detected((2, 2, 30, 40), 0.9), Detected((40, 2, 20, 40), 0.4)]


@pytest.fixture
def photo(tmp_path: Path) -> Source:
    path = tmp_path / "photo.jpg"
    cv2.imwrite(str(path), np.random.default_rng(0).integers(0, 255, (49, 65, 3)).astype(np.uint8))
    return Source(path, PICTURE)


def test_a_picture_with_two_people(photo: Source, tmp_path: Path) -> None:
    watcher = Watcher(Sure(), detector=two)
    told = predict_picture(watcher, photo, tmp_path, "answer")
    body = json.loads((tmp_path / "answer.json").read_text())
    assert [one["bbox"] for one in body["annotations"]] == [[2, 2, 30, 40], [40, 2, 20, 40]]
    assert body["images"] == [{"id": 1, "file_name": "photo.jpg", "width": 65, "height": 49}] and len(told["people"]) == 2
    assert cv2.imread(str(tmp_path / "answer.png")).shape == (49, 65, 3)
    assert watcher.tally.people == 2 and "1 pictures with 2 people" in watcher.tally.words() and watcher.cautions() == []


def test_boxes_that_were_given_are_used_and_must_fit(photo: Source) -> None:
    name, image = photo.path.as_posix(), np.zeros((49, 65, 3), np.uint8)
    watcher = Watcher(Sure(), boxes={name: Given([(1, 1, 9, 9)], [None])}, detector=two)
    assert [one.box for one in watcher.people(image, name)] == [(1, 1, 9, 9)]
    assert Watcher(Sure(), boxes={name: Given()}).people(image, name) == [], "a line without a box: nobody is on it"
    with pytest.raises(HalfmaskError, match="does not name other"):
        watcher.people(image, "other.jpg")
    with pytest.raises(HalfmaskError, match="said to be of a picture of 10×10"):
        Watcher(Sure(), boxes={name: Given([(1, 1, 9, 9)], [None], (10, 10))}).people(image, name)
    with pytest.raises(HalfmaskError, match="outside the image"):
        Watcher(Sure(), box=(100, 0, 9, 9)).people(image)


def test_without_boxes_or_a_detector_a_picture_is_one_persons_crop() -> None:
    (one,) = Watcher(Sure()).people(np.zeros((49, 65, 3), np.uint8))
    assert one.box is None and one.box_score is None


@pytest.mark.parametrize(
    ("network", "detector", "words"),
    [
        (Sure(0.2), two, "unsure of everybody: of the surest, 20 %"),
        (Sure(0.2, calibrated=False), two, "no chances"),
        (Sure(), lambda image: [], "nobody was found"),
    ],
)
def test_cautions(network: Sure, detector, words: str) -> None:
    watcher = Watcher(network, detector=detector)
    watcher.people(np.zeros((49, 65, 3), np.uint8))
    (caution,) = watcher.cautions()
    assert words in caution


def film(path: Path, count: int = 5) -> Source:
    frames = (np.full((48, 64, 3), 40 * number, np.uint8) for number in range(count))
    return Source(write_video(path, frames, 10.0), VIDEO)


def test_a_film_and_a_json_for_each_frame(tmp_path: Path) -> None:
    heard = []
    told = predict_film(Watcher(Sure(), detector=two), film(tmp_path / "walk"), tmp_path, "walk", report=lambda *at: heard.append(at))
    names = sorted(path.name for path in (tmp_path / "walk-frames").iterdir())
    assert names == [f"{number:06d}.json" for number in range(1, 6)] and told["frames"] == 5 and told["people_in_a_frame"] == 2
    third = json.loads((tmp_path / "walk-frames/000003.json").read_text())
    assert third["images"][0]["seconds"] == 0.2 and third["annotations"][1]["image_id"] == 3
    capture = cv2.VideoCapture(told["drawn"])
    assert int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) == 5
    whole, first = capture.read()
    assert whole and (first > 60).any(), "skeletons on a dark frame"
    assert heard[-1] == ("frames of walk", 5, 5)


class Eye:
    """A camera that shows three frames of an odd size, and is then unplugged or stopped by Ctrl-C."""

    def __init__(self, stopped: bool = False):
        self.left, self.stopped = 3, stopped

    def isOpened(self) -> bool:
        return True

    def get(self, what: int) -> float:
        return 0.0

    def read(self) -> tuple[bool, np.ndarray | None]:
        self.left -= 1
        if self.left < 0 and self.stopped:
            raise KeyboardInterrupt
        return self.left >= 0, np.zeros((47, 63, 3), np.uint8)

    def release(self) -> None:
        pass


@pytest.mark.parametrize("stopped", [False, True])
def test_a_camera_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool) -> None:
    opened, real = [], cv2.VideoCapture

    def capture(which, *rest):
        if isinstance(which, str):
            return real(which, *rest)
        opened.append(which)
        return Eye(stopped)

    monkeypatch.setattr(footage.cv2, "VideoCapture", capture)
    told = predict_film(Watcher(Sure(), detector=two), Source(Path("1"), CAMERA), tmp_path, "camera-1")
    assert opened == [1] and told["camera"] == "1" and told["frames"] == 3 and told["fps"] == footage.USUAL_FPS
    assert len(list((tmp_path / "camera-1-frames").iterdir())) == 3 and Path(told["drawn"]).is_file()


def test_no_camera(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Eye, "isOpened", lambda self: False)
    monkeypatch.setattr(footage.cv2, "VideoCapture", lambda number: Eye())
    with pytest.raises(HalfmaskError, match="no camera 3"):
        predict_film(Watcher(Sure()), Source(Path("3"), CAMERA), tmp_path, "camera-3")
