"""Photographs in, photographs out: nothing of the people in their boxes is left, and what could not be done is told."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import halfmask
from halfmask.data.skeleton import COCO
from halfmask.errors import HalfmaskError
from halfmask.inference import sanitise as module
from halfmask.inference.sanitise import Sanitised, sanitise

pytestmark = pytest.mark.usefixtures("one_thread")
BOXES = {"a.png": [(10, 10, 30, 40), (30, 20, 35, 45)], "b.png": [(50, 5, 20, 20)]}


def noise(seed: int, height: int = 80, width: int = 120) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), pixels)
    return path


def read(path: Path) -> np.ndarray:
    found = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    assert found is not None
    return found


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for seed, name in enumerate(BOXES):
        save(tmp_path / "photos" / name, noise(seed))
    return tmp_path / "photos"


@pytest.fixture
def boxes(tmp_path: Path) -> Path:
    path = tmp_path / "boxes.csv"
    path.write_text("file,x,y,w,h\n" + "".join(f"{name},{','.join(map(str, box))}\n" for name, some in BOXES.items() for box in some))
    return path


@pytest.fixture
def poses(tmp_path: Path) -> Path:
    """Somebody standing in each box, as COCO annotates them."""
    rng = np.random.default_rng(5)
    entries = []
    for image, some in enumerate(BOXES.values()):
        for x, y, width, height in some:
            points = np.column_stack([x + rng.random(17) * width, y + rng.random(17) * height, np.full(17, 2)])
            entries.append({"image_id": image, "category_id": 1, "bbox": [x, y, width, height], "keypoints": points.ravel().tolist()})
    body = {
        "images": [{"id": number, "file_name": name} for number, name in enumerate(BOXES)],
        "annotations": entries,
        "categories": [{"id": 1, "name": "person", "keypoints": list(COCO.names)}],
    }
    path = tmp_path / "poses.json"
    path.write_text(json.dumps(body))
    return path


@pytest.fixture
def do(generator_run: Callable[..., Path], photos: Path, tmp_path: Path) -> Callable[..., Sanitised]:
    run = generator_run()

    def call(out: str = "out", images: Any = None, **options: Any) -> Sanitised:
        return sanitise(run, images or photos, tmp_path / out, **({"seed": 1} | options))

    return call


def manifest_of(folder: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return body


def painted_over(shape: tuple[int, ...], name: str, margin: float = 0.1) -> np.ndarray:
    """Every pixel that a box with its margin touches."""
    inside = np.zeros(shape[:2], bool)
    for x, y, width, height in BOXES[name]:
        top, left = max(0, int(np.floor(y - margin * height))), max(0, int(np.floor(x - margin * width)))
        inside[top : int(np.ceil(y + height + margin * height)), left : int(np.ceil(x + width + margin * width))] = True
    return inside


@pytest.mark.parametrize("background", ["keep", "blur", "none"])
def test_whoever_stands_in_a_box_nothing_of_them_is_left(
    do: Callable[..., Sanitised], photos: Path, boxes: Path, poses: Path, background: str
) -> None:
    """With boxes and joints as they are, all other people in the boxes give the same files, byte for byte."""
    options = {"boxes": boxes, "poses": poses, "background": background}
    done = do("one", **options)
    assert done.people == 3 and not done.not_done
    for name in BOXES:
        before = read(photos / name)
        inside = painted_over(before.shape, name)
        after = read(done.folder / name)
        if background == "keep":
            np.testing.assert_array_equal(after[~inside], before[~inside])
        # Noise hits a drawn colour once in 16 million times.
        assert (after[inside] != before[inside]).any(1).mean() > 0.999
        other = before.copy()
        other[inside] = noise(77)[inside]
        save(photos / name, other)
    again = do("two", **options)
    for name in BOXES:
        assert (again.folder / name).read_bytes() == (done.folder / name).read_bytes()


def test_a_network_tells_the_pose_and_nothing_else(
    do: Callable[..., Sanitised], photos: Path, boxes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a network that sees the same joints in whatever it is shown, other people in the boxes change nothing either."""
    shown: list[np.ndarray] = []

    class Blind:
        words = "nobody"

        def __call__(self, pictures: Any) -> np.ndarray:
            shown.extend(np.array(one) for one in pictures)
            fixed = np.column_stack([np.linspace(1, 20, 16), np.linspace(1, 25, 16), np.ones(16)])
            return np.stack([fixed for _ in pictures])

    monkeypatch.setattr(module, "open_pose_network", lambda named: Blind())
    done = do("one", boxes=boxes)
    # It is shown the regions of the picture as it was, not as it is being painted.
    left, top, width, height = manifest_of(done.folder)["files"][0]["boxes"][1]
    np.testing.assert_array_equal(shown[1], read(photos / "a.png")[top : top + height, left : left + width, ::-1])
    for name in BOXES:
        before = read(photos / name)
        inside = painted_over(before.shape, name)
        before[inside] = 255 - before[inside]
        save(photos / name, before)
    again = do("two", boxes=boxes)
    for name in BOXES:
        assert (again.folder / name).read_bytes() == (done.folder / name).read_bytes()


def test_without_boxes_a_picture_is_replaced_whole(do: Callable[..., Sanitised], photos: Path) -> None:
    done = do()
    for name in BOXES:
        before, after = read(photos / name), read(done.folder / name)
        assert after.shape == before.shape and (after != before).any(2).mean() > 0.999
    files = manifest_of(done.folder)["files"]
    assert [one["boxes"] for one in files] == [[[0, 0, 120, 80]]] * 2 and [one["poses"] for one in files] == [["network"]] * 2


def test_names_places_sizes_and_formats_stay(do: Callable[..., Sanitised], tmp_path: Path) -> None:
    folder = tmp_path / "many"
    for number, name in enumerate(("a.jpg", "day 1/ü b.PNG", "day 1/deep/c.webp", "d.tiff", "e.bmp")):
        save(folder / name, noise(number, 20 + number, 31 + number))
    save(folder / "grey.png", noise(9)[:, :, 0])
    done = do(images=folder)
    assert not done.not_done
    for path in (one for one in folder.rglob("*") if one.is_file()):
        new = done.folder / path.relative_to(folder)
        assert read(new).shape == read(path).shape and new.read_bytes()[:3] == path.read_bytes()[:3]
    assert not list(done.folder.rglob("*.draft"))


def test_nothing_but_pixels_goes_out_and_a_turned_photograph_is_upright(do: Callable[..., Sanitised], tmp_path: Path) -> None:
    """Metadata of a camera: an orientation, and where it was."""
    place = b"52.5200 north, 13.4050 east"
    entries = struct.pack("<HHII", 0x0112, 3, 1, 6) + struct.pack("<HHII", 0x010E, 2, len(place) + 1, 38)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 2) + entries + struct.pack("<I", 0) + place + b"\0"
    plain = save(tmp_path / "camera/a.jpg", noise(0)).read_bytes()
    (tmp_path / "camera/a.jpg").write_bytes(plain[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + plain[2:])
    (tmp_path / "boxes.csv").write_text("a.jpg,70,100,10,20\n")
    # Displayed, it is 80 wide and 120 high: the box is inside.
    done = do(images=tmp_path / "camera", boxes=tmp_path / "boxes.csv")
    assert read(done.folder / "a.jpg").shape == (120, 80, 3) and manifest_of(done.folder)["files"][0]["size"] == [80, 120]
    body = (done.folder / "a.jpg").read_bytes()
    assert place not in body and b"Exif" not in body and place.decode() not in (done.folder / "manifest.json").read_text()


def test_what_is_in_the_manifest(do: Callable[..., Sanitised], boxes: Path, poses: Path, tmp_path: Path) -> None:
    done = do(boxes=boxes, poses=poses)
    body = manifest_of(done.folder)
    assert body["finished"] is True and body["waiting"] == [] and body["not_done"] == []
    assert body["run"]["id"] == "ab12" and body["halfmask"] == halfmask.__version__ and body["seed"] == 1
    assert body["certificate"]["epsilon"] == {"zero-out": 0.9, "replace-one": 1.7} and body["certificate"]["delta"] == 1e-5
    assert "0.9" in body["certificate"]["text"]
    assert any("people of the training set" in line for line in body["statement"])
    assert body["files"][0]["name"] == "a.png" and body["files"][0]["size"] == [120, 80] and body["files"][0]["people"] == 2
    assert body["files"][0]["boxes"][0] == [7, 6, 36, 48]
    assert body["files"][0]["poses"] == ["given", "given"] and min(body["files"][0]["joints_known"]) >= 12
    for name in ("certificate.json", "certificate.md"):
        assert (done.folder / name).read_bytes() == (tmp_path / "drawn" / name).read_bytes()
    # It goes out with the pictures, and says nothing of where the originals are.
    assert str(tmp_path) not in (done.folder / "manifest.json").read_text()


def test_no_seed_is_written_down_unless_one_was_given(do: Callable[..., Sanitised]) -> None:
    body = manifest_of(do(seed=None).folder)
    assert body["seed"] is None and body["randomness"] == "the operating system's"


def test_a_certificate_of_another_run_does_not_stay(do: Callable[..., Sanitised], generator_run: Callable[..., Path], photos: Path) -> None:
    folder = do().folder
    done = sanitise(generator_run("public", certified=False), photos, folder, overwrite=True)
    assert not (folder / "certificate.json").exists() and not (folder / "certificate.md").exists()
    body = manifest_of(folder)
    assert body["certificate"] is None and "There is no ε here" in body["statement"][0]
    assert any("no certificate" in line for line in done.cautions) and done.cautions == tuple(body["cautions"])


def test_somebody_new_each_time_and_the_same_for_a_seed(do: Callable[..., Sanitised], photos: Path) -> None:
    """Both files show the same noise, so that poses are the same: what differs is whom they show."""
    save(photos / "b.png", read(photos / "a.png"))
    one, same, free, other = do("one"), do("same"), do("free", seed=None), do("other", seed=None)
    pictures = [read(done.folder / name) for done in (one, free, other) for name in BOXES]
    for number, first in enumerate(pictures):
        for second in pictures[number + 1 :]:
            assert (first != second).mean() > 0.1
    np.testing.assert_array_equal(read(one.folder / "b.png"), read(same.folder / "b.png"))
    # A picture's people do not depend on what else is done.
    np.testing.assert_array_equal(read(do("alone", images=[photos / "b.png"]).folder / "b.png"), read(one.folder / "b.png"))


@pytest.mark.parametrize("seed", [None, 1])
def test_one_appearance_for_all_files_of_a_call(do: Callable[..., Sanitised], photos: Path, tmp_path: Path, seed: int | None) -> None:
    save(photos / "b.png", read(photos / "a.png"))
    (tmp_path / "two.csv").write_text("".join(f"{name},{x},5,30,60\n" for name in BOXES for x in (5, 70)))
    done = do(boxes=tmp_path / "two.csv", same_person=True, seed=seed)
    np.testing.assert_array_equal(read(done.folder / "a.png"), read(done.folder / "b.png"))
    # Two people on one picture are two all the same.
    appearances = module._Appearances(8, True, seed)
    assert not np.allclose(*appearances("a.png", 2))
    np.testing.assert_array_equal(appearances("a.png", 2), appearances("b.png", 2))


def test_unreadable_files_are_listed_and_the_rest_is_done(do: Callable[..., Sanitised], photos: Path, tmp_path: Path) -> None:
    (photos / "aa.jpg").write_bytes(b"\xff\xd8 no picture")
    (photos / "film.mp4").write_bytes(b"film")
    (photos / "notes.txt").write_bytes(b"notes")
    os.symlink(photos / "gone.png", photos / "link.png")
    done = do()
    assert [one.name for one in done.done] == ["a.png", "b.png"]
    assert sorted(name for name, _ in done.not_done) == ["aa.jpg", "film.mp4", "link.png"]
    body = manifest_of(done.folder)
    assert [(one["name"], one["reason"]) for one in body["not_done"]] == list(done.not_done) and body["finished"] is True
    assert body["other_files_passed_over"] == 1
    assert sorted(path.name for path in done.folder.iterdir()) == ["a.png", "b.png", "certificate.json", "certificate.md", "manifest.json"]


@pytest.mark.parametrize(
    "line,reason",
    [
        ("b.png,500,5,20,20", "outside the picture of 120×80"),
        (None, "the file of boxes does not name it"),
    ],
)
def test_a_file_on_which_somebody_might_be_left_is_not_written(
    do: Callable[..., Sanitised], tmp_path: Path, line: str | None, reason: str
) -> None:
    (tmp_path / "some.csv").write_text("a.png,10,10,30,40\n" + (f"b.png,5,5,9,9\n{line}\n" if line else ""))
    done = do(boxes=tmp_path / "some.csv")
    assert [one.name for one in done.done] == ["a.png"] and not (done.folder / "b.png").exists()
    assert done.not_done[0][0] == "b.png" and reason in done.not_done[0][1]


def test_nobody_on_it_is_said_by_an_empty_line(do: Callable[..., Sanitised], photos: Path, tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("a.png,10,10,30,40\nb.png,,,,\n")
    done = do(boxes=tmp_path / "some.csv")
    np.testing.assert_array_equal(read(done.folder / "b.png"), read(photos / "b.png"))
    assert [len(one.people) for one in done.done] == [1, 0]


def test_joints_of_somebody_who_is_in_no_box(do: Callable[..., Sanitised], tmp_path: Path, poses: Path) -> None:
    (tmp_path / "some.csv").write_text("a.png,10,10,30,40\nb.png,50,5,20,20\n")
    done = do(boxes=tmp_path / "some.csv", poses=poses)
    assert [one.name for one in done.done] == ["b.png"]
    assert "joints of 1 people were given who are in no box" in done.not_done[0][1]


def test_joints_of_several_people_need_boxes(do: Callable[..., Sanitised], poses: Path) -> None:
    done = do(poses=poses)
    assert [one.name for one in done.done] == ["b.png"] and done.done[0].people[0].poses == "given"
    assert "joints of 2 people were given for it, and no boxes" in done.not_done[0][1]


def test_boxes_of_a_picture_of_another_size(do: Callable[..., Sanitised], tmp_path: Path, poses: Path) -> None:
    body = json.loads(poses.read_text())
    body["images"][0] |= {"width": 80, "height": 120}
    (tmp_path / "sized.json").write_text(json.dumps(body))
    for options in ({"boxes": tmp_path / "sized.json"}, {"poses": tmp_path / "sized.json", "boxes": poses}):
        done = do(**options, overwrite=True)
        assert [one.name for one in done.done] == ["b.png"] and "80×120" in done.not_done[0][1]


def test_after_an_interrupt_what_is_done_is_there_and_told(
    do: Callable[..., Sanitised], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: int, total: int) -> None:
        assert total == 2
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        do(progress=stop)
    body = manifest_of(tmp_path / "out")
    assert body["finished"] is False and [one["name"] for one in body["files"]] == ["a.png"] and body["waiting"] == ["b.png"]
    assert (tmp_path / "out/a.png").is_file() and not (tmp_path / "out/b.png").exists()
    # In the middle of a picture too.
    monkeypatch.setattr(module, "repaint", lambda *given: stop(1, 2))
    with pytest.raises(KeyboardInterrupt):
        do("middle")
    body = manifest_of(tmp_path / "middle")
    assert body["finished"] is False and body["files"] == [] and body["waiting"] == ["a.png", "b.png"]


def test_a_disk_that_is_full_ends_it_with_one_line(do: Callable[..., Sanitised], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.write_whole

    def full(path: Path, body: bytes) -> None:
        if path.name == "b.png":
            raise OSError(28, "No space left on device", str(path))
        real(path, body)

    monkeypatch.setattr(module, "write_whole", full)
    with pytest.raises(HalfmaskError, match=r"b\.png could not be written: no space is left"):
        do()
    assert manifest_of(tmp_path / "out")["waiting"] == ["b.png"]


def test_originals_and_what_is_there_already_stay(do: Callable[..., Sanitised], photos: Path) -> None:
    before = {path.name: path.read_bytes() for path in photos.iterdir()}
    for out in ("photos", "photos/new"):
        with pytest.raises(HalfmaskError, match="give a folder outside of it"):
            do(out, overwrite=True)
    with pytest.raises(HalfmaskError, match="would be overwritten"):
        do("photos", images=[photos / "a.png"], overwrite=True)
    assert {path.name: path.read_bytes() for path in photos.iterdir()} == before
    folder = do().folder
    first = (folder / "a.png").read_bytes()
    with pytest.raises(HalfmaskError, match="--overwrite"):
        do(seed=2)
    assert (folder / "a.png").read_bytes() == first
    done = do(seed=2, overwrite=True)
    assert (folder / "a.png").read_bytes() != first and "held 5 files before" in done.cautions[0]


def test_how_pictures_were_fitted_in_training(generator_run: Callable[..., Path], photos: Path, boxes: Path, tmp_path: Path) -> None:
    """Proportions differ from the boxes', so that to squeeze them is another picture."""
    folders = [generator_run(fit, f"data.fit={fit}") for fit in ("whole", "squeeze")]
    pictures = [read(sanitise(run, photos, tmp_path / f"{run.name}-out", boxes=boxes, seed=1).folder / "a.png") for run in folders]
    assert (pictures[0] != pictures[1]).any()


@pytest.mark.parametrize(
    "options,message",
    [
        ({"background": "kept"}, "unknown background .* did you mean 'keep'"),
        ({"margin": -0.1}, "--margin is -0.1"),
        ({"margin": float("nan")}, "--margin is nan"),
        ({"seed": -1}, "--seed is -1"),
        ({"boxes": "none.csv"}, "none.csv cannot be read"),
        ({"poses": "none.json"}, "none.json cannot be read"),
        ({"pose_network": "none.safetensors"}, "none.safetensors"),
        ({"images": ["none.jpg"]}, "no images found"),
    ],
)
def test_what_is_asked_wrongly_is_refused_before_anything_is_written(
    do: Callable[..., Sanitised], tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(HalfmaskError, match=message):
        do(**options)
    assert not (tmp_path / "out").exists()


def test_as_a_function_of_the_library() -> None:
    assert halfmask.sanitise is sanitise
