"""MPII: centre and scale, counting from one, head boxes, and the original release."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.io

from halfmask.data.images import crop_transform
from halfmask.data.mpii import detect_mpii, person_box, read_mpii
from halfmask.data.people import NO_JOINT
from halfmask.errors import HalfmaskError


def test_people_splits_images_and_head_boxes(mpii_folder) -> None:
    read = read_mpii(mpii_folder())
    assert {name: len(part.people) for name, part in read.parts.items()} == {"train": 3, "val": 2}
    train, val = read.parts["train"].people, read.parts["val"].people
    assert train[0].image_id == train[1].image_id != train[2].image_id and val[0].image_id not in {one.image_id for one in train}
    assert all(one.path.is_file() for one in (*train, *val))
    assert [one.head_box for one in train] == [None] * 3
    assert [one.head_box for one in val] == [(30.0, 20.0, 42.0, 36.0), (10.0, 10.0, 13.0, 14.0)]


def test_coordinates_count_from_one(mpii_folder, person) -> None:
    np.testing.assert_allclose(read_mpii(mpii_folder()).parts["train"].people[0].joints[:, :2], person(16))


def test_the_crop_is_the_customary_one() -> None:
    """Worked by hand: the centre moved down by 15 × scale, 200 × 1.25 × scale pixels across the crop's width."""
    centre, scale = np.array([300.0, 200.0]), 1.6
    transform = crop_transform(person_box(centre, scale), (256, 192))
    middle = transform[:, :2] @ [300.0, 200.0 + 24.0] + transform[:, 2]
    np.testing.assert_allclose(middle, [95.5, 127.5])
    assert 192 / transform[0, 0] / 192 == pytest.approx(200 * 1.25 * 1.6 / 192)


def test_joints_that_are_not_visible_are_not_labelled(mpii_folder) -> None:
    flags = [1] * 15 + [0]
    assert read_mpii(mpii_folder(joints_vis=flags)).parts["train"].people[0].joints[:, 2].tolist() == [2] * 15 + [0]
    part = read_mpii(mpii_folder(joints_vis=[0] * 16)).parts["train"]
    assert not part.people and [one.reason for one in part.left_out] == [NO_JOINT] * 3 and part.images == ("a.jpg", "b.jpg")


def test_both_splits_again_in_one_file_are_not_read_twice(mpii_folder) -> None:
    folder = mpii_folder()
    everyone = [entry for split in ("train", "valid") for entry in json.loads((folder / f"annot/{split}.json").read_text())]
    (folder / "annot/trainval.json").write_text(json.dumps(everyone))
    assert set(read_mpii(folder).parts) == {"train", "val"}
    assert len(read_mpii(folder, ("annot/trainval.json",)).parts["all"].people) == 5


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"scale": 0}, "3 of 3 people cannot be used: 3 × 'scale' is not above 0"),
        ({"center": [1]}, "'center' is a list of 1 number, expected two finite numbers"),
        ({"joints": [[0, 0]] * 14}, "'joints' is a list of 14 lists, expected 16×2 finite numbers"),
        ({"joints_vis": [1]}, "'joints_vis' is a list of 1 number, expected 16 finite numbers"),
        ({"scale": "large"}, "'scale' is a text, expected a finite number above 0"),
    ],
)
def test_people_that_are_refused(mpii_folder, changes, message) -> None:
    with pytest.raises(HalfmaskError, match=message):
        read_mpii(mpii_folder(**changes))


def test_files_that_are_refused(mpii_folder, tmp_path) -> None:
    with pytest.raises(HalfmaskError, match="holds no MPII annotations"):
        read_mpii(tmp_path / "mpii")
    folder = mpii_folder()
    (folder / "annot/other_train.json").write_bytes((folder / "annot/train.json").read_bytes())
    with pytest.raises(HalfmaskError, match=r"both hold the split 'train': choose with data\.annotations"):
        read_mpii(folder)
    (folder / "annot/other.json").write_text('{"images": []}')
    with pytest.raises(HalfmaskError, match=r"other\.json is an object of 1 field: expected MPII's list"):
        read_mpii(folder, ("annot/other.json",))
    (folder / "annot/other_train.json").unlink()
    scipy.io.savemat(folder / "annot/mpii_gt_val.mat", {"headboxes_src": np.zeros((2, 2, 7))})
    with pytest.raises(HalfmaskError, match=r"has 7 people and valid\.json has 2"):
        read_mpii(folder)
    scipy.io.savemat(folder / "annot/mpii_gt_val.mat", {"headboxes_src": np.zeros((3, 7))})
    with pytest.raises(HalfmaskError, match="expected 2×2×N"):
        read_mpii(folder)


def write_release(folder, person, photo) -> None:
    """The structure of `mpii_human_pose_v1_u12_1.mat`, small."""

    def points(hidden: int | None) -> dict:
        listed = [j for j in range(16) if j != 3]
        return {
            "point": np.array(
                [(x + 1, y + 1, j, 0 if j == hidden else 1) for j, (x, y) in enumerate(person(16)) if j in listed],
                dtype=[("x", "f8"), ("y", "f8"), ("id", "f8"), ("is_visible", "f8")],
            )
        }

    def rect(hidden: int | None) -> dict:
        head = {"x1": 31.0, "y1": 21.0, "x2": 43.0, "y2": 37.0}
        return head | {"annopoints": points(hidden), "scale": 0.4, "objpos": {"x": 41.0, "y": 61.0}}

    two = np.empty(2, object)
    two[:] = [rect(5), rect(None)]
    images = [
        {"image": {"name": "a.jpg"}, "annorect": two},
        {"image": {"name": "b.jpg"}, "annorect": {"x1": 1.0, "y1": 1.0, "x2": 5.0, "y2": 5.0}},
        {"image": {"name": "c.jpg"}, "annorect": {"scale": 1.0, "objpos": {"x": 9.0, "y": 9.0}}},
    ]
    annolist = np.empty(3, object)
    annolist[:] = images
    folder.mkdir()
    scipy.io.savemat(folder / "mpii_human_pose_v1_u12_1.mat", {"RELEASE": {"annolist": annolist, "img_train": np.array([1, 1, 0])}})
    for name in "abc":
        photo(folder / "images" / f"{name}.jpg")


def test_the_original_release(tmp_path, person, photo) -> None:
    folder = tmp_path / "release"
    write_release(folder, person, photo)
    assert detect_mpii(folder)
    part = read_mpii(folder).parts["train"]
    assert part.images == ("a.jpg", "b.jpg"), "people of the official test images have no joints"
    first, second = part.people
    assert first.image_id == second.image_id and first.head_box == (30.0, 20.0, 42.0, 36.0)
    assert first.joints[3, 2] == 0 and first.joints[5, 2] == 1 and second.joints[5, 2] == 2
    np.testing.assert_allclose(np.delete(first.joints[:, :2], 3, 0), np.delete(person(16), 3, 0))
    assert first.box == pytest.approx(person_box(np.array([40.0, 60.0]), 0.4))
    assert [(one.image, one.reason) for one in part.left_out] == [("b.jpg", NO_JOINT)]
    scipy.io.savemat(folder / "mpii_human_pose_v1_u12_1.mat", {"RELEASE": {"annolist": np.zeros(0)}})
    with pytest.raises(HalfmaskError, match="has no RELEASE with 'annolist' and 'img_train'"):
        read_mpii(folder)


def test_the_real_sample(shared_data) -> None:
    part = read_mpii(shared_data("format_samples/mpii")).parts["test"]
    assert len(part.people) == 5 and all(one.path.is_file() for one in part.people)
    for one in part.people:
        x, y, width, height = one.box
        points = one.joints[one.joints[:, 2] > 0, :2]
        grown = np.array([x - width / 8, y - height / 8, x + 9 * width / 8, y + 9 * height / 8])
        assert (points > grown[:2]).all() and (points < grown[2:]).all()
