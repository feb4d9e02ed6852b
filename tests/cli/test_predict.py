from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from halfmask.cli.predict import parse_box
from halfmask.data.figures import JOINT_NAMES
from halfmask.data.images import crop_transform, to_image
from halfmask.errors import HalfmaskError
from halfmask.inference import detection
from halfmask.inference.detection import Detected
from halfmask.tasks import pose
from halfmask.tasks.action_video import annotate, label_over_time, summary_of
from halfmask.tasks.base import Task
from halfmask.training import runs


def picture(path: Path, height: int = 80, width: int = 120) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3)).astype(np.uint8)
    assert cv2.imwrite(str(path), pixels)
    return path


WHOLE = ("--people", "whole")


def test_writes_joints_and_a_drawing_of_the_picture(halfmask, trained, tmp_path) -> None:
    image = picture(tmp_path / "in/a.jpg")
    result = halfmask("predict", trained[0], image, "--out", tmp_path / "out", *WHOLE)
    assert result.code == 0, result.err
    body = json.loads((tmp_path / "out/a.json").read_text())
    (one,) = body["annotations"]
    assert body["images"][0] == {"id": 1, "file_name": "a.jpg", "width": 120, "height": 80}
    assert body["categories"][0]["keypoints"] == list(JOINT_NAMES) and len(one["keypoints"]) == 48 and len(one["keypoint_scores"]) == 16
    drawing = cv2.imread(str(tmp_path / "out/a.png"))
    assert drawing.shape == (80, 120, 3)
    assert str(image) in result.out and "1 person" in result.out
    assert "1 pictures with 1 people in" in result.err and "pictures and" in result.err, "and how quick it was"


def test_several_people_in_boxes_of_a_file(halfmask, trained, tmp_path) -> None:
    for name in ("a.jpg", "b.jpg"):
        picture(tmp_path / "in" / name)
    (tmp_path / "boxes.csv").write_text("file,x,y,w,h\na.jpg,10,10,40,60\na.jpg,60,5,30,70\nb.jpg,,,,\n")
    result = halfmask("predict", trained[0], tmp_path / "in", "--out", tmp_path / "out", "--boxes", tmp_path / "boxes.csv")
    assert result.code == 0, result.err
    boxes = [one["bbox"] for one in json.loads((tmp_path / "out/a.json").read_text())["annotations"]]
    assert boxes == [[10, 10, 40, 60], [60, 5, 30, 70]] and json.loads((tmp_path / "out/b.json").read_text())["annotations"] == []
    again = halfmask("predict", trained[0], tmp_path / "in", "--out", tmp_path / "again", "--boxes", tmp_path / "out/a.json")
    assert again.code == 2 and "does not name" in again.err and "1 of 2 pictures" in again.err, "what it writes, it reads"
    assert json.loads((tmp_path / "again/a.json").read_text())["annotations"][1]["bbox"] == [60, 5, 30, 70]


def test_people_are_found_on_whole_photographs(halfmask, trained, tmp_path, monkeypatch) -> None:
    asked = []

    def two(way, network, film):
        asked.append((way, film))
        return lambda image: [Detected((5, 5, 40, 60), 0.8), Detected((60, 5, 40, 60), 0.3)]

    monkeypatch.setattr(detection, "finder", two)
    result = halfmask("predict", trained[0], picture(tmp_path / "a.jpg"), film(tmp_path / "b.avi", 3), "--out", tmp_path / "out")
    assert result.code == 0, result.err
    assert asked == [("auto", False), ("auto", True)] and "2 people, mean scores" in result.out
    assert [one["box_score"] for one in json.loads((tmp_path / "out/a.json").read_text())["annotations"]] == [0.8, 0.3]
    assert len(list((tmp_path / "out/b-frames").glob("*.json"))) == 3 and list((tmp_path / "out").glob("b-people.*"))
    assert "4 pictures with 8 people" in result.err and "files: 2 of 2" in result.err


def test_nothing_is_overwritten_silently(halfmask, trained, tmp_path) -> None:
    image = picture(tmp_path / "a.jpg")
    ask = ("predict", trained[0], image, "--out", tmp_path / "out", *WHOLE)
    assert halfmask(*ask).code == 0
    (tmp_path / "out/a.json").write_text("mine")
    assert "a.json, a.png already" in halfmask(*ask).error and (tmp_path / "out/a.json").read_text() == "mine"
    assert halfmask(*ask, "--overwrite").code == 0 and (tmp_path / "out/a.json").read_text() != "mine"


def test_wrong_ways_to_say_where_people_are(halfmask, trained, tmp_path) -> None:
    image = picture(tmp_path / "a.jpg")
    ask = ("predict", trained[0], image, "--out", tmp_path / "out")
    outside = halfmask(*ask, "--box", "200,0,10,10")
    assert outside.code == 2 and "outside the image, which has 120×80 pixels" in outside.err and not (tmp_path / "out/a.json").exists()
    assert "both say where people are" in halfmask(*ask, "--box", "1,1,5,5", "--boxes", image).error
    assert "way to find people" in halfmask(*ask, "--people", "radar").error
    (tmp_path / "boxes.csv").write_text("other.jpg,1,2,3,4\n")
    assert "not among the images given" in halfmask(*ask, "--boxes", tmp_path / "boxes.csv").error
    films = ("predict", trained[0], film(tmp_path / "b.avi"), "--out", tmp_path / "out", "--boxes", tmp_path / "boxes.csv")
    assert "--boxes names pictures" in halfmask(*films).error


@pytest.mark.parametrize("box", [None, "20,10,60,50"])
def test_coordinates_are_those_of_the_image(halfmask, trained, tmp_path, monkeypatch, box) -> None:
    """A stand-in finds the brightest pixel of the crop; in the answer it is where it was in the image."""
    dark = np.zeros((80, 120, 3), np.uint8)
    cv2.circle(dark, (50, 33), 2, (255, 255, 255), -1)
    cv2.imwrite(str(tmp_path / "dot.png"), dark)

    def brightest(model, images, flip_test=True, batch=64, device="cpu"):
        bright = np.argwhere(images[0].astype(int).sum(0) > 600).mean(0)[::-1]
        return np.tile(bright, (1, 16, 1)), np.ones((1, 16))

    monkeypatch.setattr(pose, "predict", brightest)
    options = WHOLE if box is None else ["--box", box]
    assert halfmask("predict", trained[0], tmp_path / "dot.png", "--out", tmp_path / "out", *options).code == 0
    (one,) = json.loads((tmp_path / "out/dot.json").read_text())["annotations"]
    assert one["keypoints"][0] == pytest.approx(50, abs=0.7) and one["keypoints"][1] == pytest.approx(33, abs=0.7)


def test_flip_test_can_be_left_out(halfmask, trained, tmp_path, monkeypatch) -> None:
    seen = []

    def remember(model, images, flip_test=True, batch=64, device="cpu"):
        seen.append(flip_test)
        return np.zeros((1, 16, 2)), np.zeros((1, 16))

    monkeypatch.setattr(pose, "predict", remember)
    image = picture(tmp_path / "a.jpg")
    halfmask("predict", trained[0], image, "--out", tmp_path / "o", *WHOLE)
    halfmask("predict", trained[0], image, "--out", tmp_path / "o", *WHOLE, "--overwrite", "--no-flip-test")
    assert seen == [True, False]


def test_to_image_undoes_the_crop() -> None:
    transform = crop_transform((10, 20, 300, 120), (256, 192))
    points = np.random.default_rng(1).uniform(0, 400, (16, 2))
    crop = points @ transform[:, :2].T + transform[:, 2]
    np.testing.assert_allclose(to_image(crop, transform), points, atol=1e-9)


def test_folders_and_equal_names(halfmask, trained, tmp_path) -> None:
    for name in ("one/a.jpg", "two/a.jpg", "two/a.png", "two/b.jpg"):
        picture(tmp_path / name, height=40 if name.startswith("one") else 60)
    (tmp_path / "two/notes.txt").write_text("no picture")
    result = halfmask("predict", trained[0], tmp_path / "one/a.jpg", tmp_path / "two", "--out", tmp_path / "out", "--json", *WHOLE)
    assert result.code == 0, result.err
    written = {path.stem for path in (tmp_path / "out").glob("*.json")}
    assert sorted(written) == ["a", "a-2", "a-3", "b"]
    assert len(list((tmp_path / "out").glob("*.png"))) == 4
    assert len(json.loads(result.out)["predictions"]) == 4


def test_a_picture_is_never_overwritten(halfmask, trained, tmp_path) -> None:
    image = picture(tmp_path / "a.png")
    before = image.read_bytes()
    assert halfmask("predict", trained[0], image, "--out", tmp_path, *WHOLE).code == 0
    assert image.read_bytes() == before and (tmp_path / "a-2.png").is_file()


def test_corrupt_picture_does_not_stop_the_others(halfmask, trained, tmp_path) -> None:
    good, bad = picture(tmp_path / "good.jpg"), tmp_path / "bad.jpg"
    bad.write_bytes(b"\xff\xd8 no picture")
    result = halfmask("predict", trained[0], bad, tmp_path / "none.jpg", good, "--out", tmp_path / "out", *WHOLE)
    assert result.code == 2 and "Traceback" not in result.err
    assert f"error: {bad} cannot be read as an image" in result.err
    assert f"error: no image at {tmp_path / 'none.jpg'}" in result.err
    assert "2 of 3 pictures" in result.err
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == ["good.json", "good.png"]


def test_diverged_model(halfmask, trained, tmp_path) -> None:
    broken = Path(shutil.copytree(trained[0], tmp_path / "broken"))
    state = load_file(broken / "model.safetensors")
    state["head.conv.weight"][0, 0] = float("nan")
    save_file(state, broken / "model.safetensors")
    image = picture(tmp_path / "a.jpg")
    assert "its training diverged" in halfmask("predict", broken, image, "--out", tmp_path / "out").error


def test_boxes() -> None:
    assert parse_box("1,2.5,30,40") == (1, 2.5, 30, 40)
    for wrong in ("1,2,3", "a,b,c,d", "0,0,0,5", "0,0,5,-1", "0,0,nan,5", "0,0,inf,5"):
        with pytest.raises(HalfmaskError, match="--box is"):
            parse_box(wrong)


def film(path: Path, count: int = 20) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10.0, (64, 48))
    for number in range(count):
        writer.write(np.full((48, 64, 3), 12 * number, np.uint8))
    writer.release()
    return path


@pytest.fixture
def watches_videos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that know what to say of videos, and nothing of pictures, under another name than that of poses."""

    def over_time(self, model, frames, fps, device="cpu", seconds=None, report=None):
        classes = ("dark", "bright")

        def classify(clips: np.ndarray) -> np.ndarray:
            bright = clips.reshape(len(clips), -1).mean(1) / 255
            return np.stack([1 - bright, bright], 1)

        found = label_over_time(classify, frames, fps, classes, lambda frame: frame[:8, :8], 4, seconds, report=report)
        return found, annotate(frames, found)

    opened = runs.open_run

    def under_another_name(*arguments):
        found = opened(*arguments)
        return replace(found, config=replace(found.config, task="watching"))

    monkeypatch.setattr(runs, "open_run", under_another_name)
    monkeypatch.setattr(pose.PoseTask, "predict_video", over_time)
    monkeypatch.setattr(pose.PoseTask, "predict", Task.predict)
    monkeypatch.setattr(pose.PoseTask, "summary", lambda self, found: summary_of(found))


@pytest.mark.usefixtures("watches_videos")
def test_labels_over_time_and_a_video_that_shows_them(halfmask, trained, tmp_path) -> None:
    path = film(tmp_path / "in/a.avi")
    result = halfmask("predict", trained[0], path, "--out", tmp_path / "out", "--window", "0.5")
    assert result.code == 0, result.err
    body = json.loads((tmp_path / "out/a.json").read_text())
    assert body["video"] == str(path) and body["frames"] == 20 and body["window_seconds"] == 0.5
    assert [run["label"] for run in body["segments"]] == ["dark", "bright"]
    assert "dark 0.0–" in result.out and "frames drawn" in result.err
    (drawn,) = (tmp_path / "out").glob("a-labels.*")
    capture = cv2.VideoCapture(str(drawn))
    assert int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) == 20 and capture.get(cv2.CAP_PROP_FRAME_WIDTH) >= 480
    assert drawn.name in result.out


@pytest.mark.usefixtures("watches_videos")
def test_a_video_that_cannot_be_read_does_not_stop_the_others(halfmask, trained, tmp_path) -> None:
    good = film(tmp_path / "in/good.avi")
    (tmp_path / "in/bad.mp4").write_bytes(b"no video")
    picture(tmp_path / "in/a.jpg")
    result = halfmask("predict", trained[0], tmp_path / "in", "--out", tmp_path / "out", "--json")
    assert result.code == 2 and "bad.mp4 cannot be read as a video" in result.err and "1 of 2 videos" in result.err
    (one,) = json.loads(result.out)["predictions"]
    assert one["video"] == str(good) and Path(one["drawn"]).is_file()
    assert {path.stem for path in (tmp_path / "out").iterdir()} == {"good", "good-labels"}, "and pictures of the folder are not looked at"


@pytest.mark.usefixtures("watches_videos")
def test_pictures_where_videos_are_wanted(halfmask, trained, tmp_path) -> None:
    assert "is no video, and" in halfmask("predict", trained[0], picture(tmp_path / "a.jpg"), "--out", tmp_path / "out").error
    assert "--window is 0" in halfmask("predict", trained[0], film(tmp_path / "a.avi"), "--out", tmp_path / "out", "--window", "0").error
    (tmp_path / "empty").mkdir()
    assert "holds no videos" in halfmask("predict", trained[0], tmp_path / "empty", "--out", tmp_path / "out").error


def test_a_network_that_nobody_calibrated_says_so(halfmask, trained, tmp_path) -> None:
    bare = Path(shutil.copytree(trained[0], tmp_path / "bare"))
    (bare / "calibration.json").unlink()
    result = halfmask("predict", bare, picture(tmp_path / "a.jpg"), "--out", tmp_path / "out", *WHOLE)
    assert result.code == 0 and "no chances" in result.err
    body = json.loads((tmp_path / "out/a.json").read_text())
    assert body["info"]["scores"] == "uncalibrated" and set(body["annotations"][0]["keypoints"][2::3]) == {2}
