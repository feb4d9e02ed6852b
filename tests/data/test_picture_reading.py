"""From pictures to records: one size, joints that follow, fingerprints of what was there, and each file opened once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.data.face_files import ImageFile
from halfmask.data.overlaps import find_overlaps
from halfmask.data.people import UNREADABLE
from halfmask.data.picture_reading import ANNOTATED, FIT, fitted, read_pictures
from halfmask.data.pictures import Picture
from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError

pytestmark = pytest.mark.usefixtures("fresh_home")
SIZE = (32, 16)


def joints_at(*points: tuple[float, float]) -> np.ndarray:
    joints = np.zeros((len(MPII), 3))
    for row, point in enumerate(points):
        joints[row] = (*point, 1)
    return joints


@pytest.fixture
def pictures(tmp_path: Path, photo) -> list[Picture]:
    """Six photographs of 120×90 of three people."""
    found = []
    for number in range(6):
        photo(tmp_path / f"f{number}.png", seed=number)
        joints = joints_at((10 + number, 20), (60, 100), (500, 20))
        found.append(Picture(f"f{number}", ImageFile(tmp_path / f"f{number}.png"), f"p{number // 2}", ("walk", "sit")[number % 2], joints))
    return found


class Fixed:
    """A network that says the same of everybody, and remembers how many it saw."""

    stamp, words = "fixed", "made up"

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, some) -> np.ndarray:
        self.seen += len(some)
        return np.stack([joints_at((45, 60), (30, 30)) * [1, 1, 0.5] for _ in some]).astype(np.float32)


def test_pictures_become_records(pictures) -> None:
    records, left_out = read_pictures(pictures, ("walk", "sit"), SIZE, "made")
    assert len(records) == 6 and not left_out and records.size == SIZE and records.poses == ANNOTATED
    assert records.targets.columns["action"].tolist() == [0, 1, 0, 1, 0, 1]
    assert len(np.unique(records.unit_ids("subject"))) == 3 and len(np.unique(records.unit_ids("image"))) == 6
    joints = records.targets.columns["joints"]
    assert joints[:, :3, 2].tolist() == [[1, 1, 0]] * 6 and not joints[:, 2:].any(), "what is outside is not known"
    # 120×90 in 32×16 is 21×16, in the middle: 5 rows above.
    np.testing.assert_allclose(joints[0, 0, :2], [(10.5) * 16 / 90 - 0.5, 20.5 * 21 / 120 - 0.5 + 5], atol=1e-5)


@pytest.mark.parametrize("fit", FIT)
def test_a_joint_stays_on_what_it_is_on(fit: str) -> None:
    """A bright spot and a joint on it, before and after."""
    image = np.zeros((160, 120, 3), np.uint8)
    cv2.circle(image, (70, 90), 7, (255, 255, 255), -1)
    joints = joints_at((70, 90), (40, 30), (90, 140))
    picture, where = fitted(image, (64, 32), fit, joints)
    assert picture.shape == (64, 32, 3)
    light = picture[:, :, 0].astype(float)
    rows, columns = np.mgrid[:64, :32]
    centre = np.array([(light * columns).sum(), (light * rows).sum()]) / light.sum()
    np.testing.assert_allclose(where[:, :2] @ [70, 90] + where[:, 2], centre, atol=0.15)
    if fit == "person":
        assert light.sum() > 1.5 * fitted(image, (64, 32), "whole")[0][:, :, 0].sum(), "nearer"


def test_files_are_opened_once_and_poses_found_once(pictures, monkeypatch) -> None:
    opened, network, told = [], Fixed(), []
    real = ImageFile.__call__
    monkeypatch.setattr(ImageFile, "__call__", lambda self: opened.append(self.path.name) or real(self))
    bare = [replace(one, joints=None) for one in pictures]
    records, _ = read_pictures(bare, ("walk", "sit"), SIZE, "made", network, report=lambda stage, done, total: told.append(stage))
    assert len(opened) == 12 and network.seen == 6 and set(told) == {"opening pictures", "finding poses"}
    assert records.poses == "made up"
    again, _ = read_pictures(bare, ("walk", "sit"), SIZE, "made", network)
    assert len(opened) == 12 and again.key == records.key and (again.targets.columns["joints"] == records.targets.columns["joints"]).all()
    larger, _ = read_pictures(bare, ("walk", "sit"), (64, 32), "made", network)
    assert len(opened) == 18 and network.seen == 6, "another size needs no other look"
    np.testing.assert_allclose(larger.targets.columns["joints"][:, 0, 0], 45.5 * 32 / 90 - 0.5, atol=1e-4)
    unsure, _ = read_pictures(bare, ("walk", "sit"), SIZE, "made", network, least_score=0.6)
    assert not unsure.targets.columns["joints"].any() and unsure.key != records.key
    other = Fixed()
    other.stamp = "retrained"
    read_pictures(bare, ("walk", "sit"), SIZE, "made", other)
    assert other.seen == 6, "another network looks for itself"
    # A changed file is read again.
    cv2.imwrite(str(pictures[0].read.path), np.zeros((100, 90, 3), np.uint8))
    read_pictures(bare, ("walk", "sit"), SIZE, "made", network)
    assert network.seen == 12


def test_copies_are_recognised_mirrored_or_resized(pictures, tmp_path) -> None:
    records, _ = read_pictures(pictures, ("walk", "sit"), SIZE, "made")
    copies = []
    for number, change in enumerate((lambda one: one[:, ::-1], lambda one: cv2.resize(one, None, fx=2, fy=2))):
        image = cv2.imread(str(pictures[number].read.path))
        cv2.imwrite(str(tmp_path / f"copy{number}.png"), change(image))
        copies.append(Picture(f"c{number}", ImageFile(tmp_path / f"copy{number}.png"), f"stranger{number}", joints=joints_at((1, 1))))
    other, _ = read_pictures(copies, (), (64, 48), "other")
    (found,) = find_overlaps(records.prints, {"copies": other.prints})
    assert found.pictures == 2 and found.subjects == 0
    moved, _ = read_pictures(pictures, ("walk", "sit"), (64, 48), "made", fit="squeeze")
    assert (moved.prints.exact == records.prints.exact).all() and (moved.ids == records.ids).all()
    assert find_overlaps(records.prints, {"same": moved.prints})[0].subjects == 6


def test_unreadable_files_are_counted_and_never_named(pictures) -> None:
    pictures[2].read.path.write_bytes(b"no picture")
    pictures[5].read.path.unlink()
    with pytest.raises(HalfmaskError, match=r"2 of 6 image files cannot be read.*data.on_bad=skip") as told:
        read_pictures(pictures, ("walk", "sit"), SIZE, "made")
    assert "f2" not in str(told.value) and "f5" not in str(told.value)
    network = Fixed()
    records, left_out = read_pictures(pictures, ("walk", "sit"), SIZE, "made", network, on_bad="skip")
    assert len(records) == 4 and left_out == {UNREADABLE: 2} and network.seen == 4
    assert records.targets.columns["action"].tolist() == [0, 1, 1, 0] and len(records.prints) == 4
    for one in pictures:
        one.read.path.write_bytes(b"")
    with pytest.raises(HalfmaskError, match="none of the 6 pictures"):
        read_pictures(pictures, ("walk", "sit"), SIZE, "made", on_bad="skip")


def test_what_would_pass_for_something_else_is_refused(pictures) -> None:
    bare = [replace(pictures[0], joints=None), *pictures[1:]]
    for some, changes, told in (
        ([*pictures, pictures[0]], {}, "1 pictures of 'made' have the name of another"),
        (pictures, {"actions": ("walk",)}, "3 pictures of 'made' show an action"),
        (bare, {}, "1 of 6 pictures.*data.poses"),
        (bare, {"poses": Fixed(), "fit": "person"}, "1 of 6 pictures"),
        (pictures, {"fit": "person-"}, "did you mean 'person'"),
        (pictures, {"on_bad": "skipp"}, "did you mean 'skip'"),
        (pictures, {"size": (30, 16)}, "multiples of 16"),
    ):
        with pytest.raises(HalfmaskError, match=told):
            read_pictures(some, **({"actions": ("walk", "sit"), "size": SIZE, "name": "made"} | changes))
