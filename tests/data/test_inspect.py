"""Looking at a dataset: counts, damage, units, and a picture."""

from __future__ import annotations

import numpy as np
import pytest

import halfmask.data.inspect as module
from halfmask.data.coco import read_coco
from halfmask.data.inspect import image_cost, inspect_dataset, sheet_of_people
from halfmask.data.lsp import read_lsp
from halfmask.data.mpii import read_mpii
from halfmask.data.people import CROWD, MISSING, NO_JOINT, OUTSIDE, UNREADABLE
from halfmask.data.skeleton import MPII


def test_people_images_and_units(coco_folder, annotation) -> None:
    train = [annotation(1, 11), annotation(2, 11), annotation(3, 12), annotation(4, 12, iscrowd=1), annotation(5, 12, keypoints=[0] * 51)]
    found = inspect_dataset(read_coco(coco_folder(train)), MPII)
    part = found.parts[0]
    assert (part.name, part.images, part.people, part.images_with_people, part.most_on_one_image) == ("train", 3, 3, 2, 2)
    assert part.people_per_image == {0: 1, 1: 1, 2: 1} and part.subjects is None
    assert part.left_out == {CROWD: 1, NO_JOINT: 1} and part.bad == ()
    assert found.metric == "oks-ap"
    body = found.to_json()
    assert body["format"] == "coco" and body["parts"]["train"]["units"] == {"crop": 3, "image": 2, "subject": None}
    assert {row["joint"]: row["how"] for row in body["mapping"]["joints"]}["pelvis"] == "derived"


def test_damaged_files_are_named_and_their_people_not_counted(lsp_folder) -> None:
    folder = lsp_folder(5)
    (folder / "images/im00002.jpg").unlink()
    path = folder / "images/im00003.jpg"
    path.write_bytes(path.read_bytes()[:300])
    part = inspect_dataset(read_lsp(folder), MPII).parts[0]
    assert part.people == 3 and part.images == 5 and part.people_per_image == {0: 2, 1: 3}
    assert [(one.image, one.reason) for one in part.bad] == [("im00002.jpg", MISSING), ("im00003.jpg", UNREADABLE)]
    quick = inspect_dataset(read_lsp(folder), MPII, open_images=False)
    assert quick.parts[0].people == 5 and quick.parts[0].bad == () and not quick.opened
    assert len(inspect_dataset(read_lsp(folder), MPII).to_json()["parts"]["all"]["bad_files"]) == 2


def test_without_opening_no_image_is_opened(lsp_folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "read_image", lambda path: pytest.fail(f"{path} was opened"))
    inspect_dataset(read_lsp(lsp_folder(3)), MPII, open_images=False)


def test_shares_of_labelled_joints_and_boxes_outside(lsp_folder, person) -> None:
    flags = np.ones((4, 14))
    flags[:3, 2] = 0
    joints = np.stack([person(14)] * 4)
    joints[3] += 5000
    part = inspect_dataset(read_lsp(lsp_folder(4, flags=flags, joints=joints)), MPII).parts[0]
    assert part.labelled["r_hip"] == 0 and part.labelled["l_hip"] == 1 and part.people == 3
    assert [one.reason for one in part.bad] == [OUTSIDE]


def test_mpii_is_scored_by_its_validation_peoples_heads(mpii_folder) -> None:
    folder = mpii_folder()
    assert inspect_dataset(read_mpii(folder), MPII).metric == "pckh"
    (folder / "annot/mpii_gt_val.mat").unlink()
    assert inspect_dataset(read_mpii(folder), MPII, open_images=False).metric == "pck"


def test_what_crop_privacy_is_worth_to_images() -> None:
    cost = image_cost(500, 9)
    assert list(cost) == [1, 2, 3, 4, 5, 6] and 0.7 < cost[1] <= 1
    assert all(cost[k + 1] > cost[k] for k in range(1, 6)) and cost[2] > 2 * cost[1]
    assert image_cost(500, 1) == {} and image_cost(5, 3) == {}


def test_the_picture_shows_everyone_asked_for(coco_folder) -> None:
    read = read_coco(coco_folder())
    wide, tall = sheet_of_people(read, 6, columns=6), sheet_of_people(read, 6, columns=2)
    assert wide.shape[1] > 6 * 192 and wide.shape[0] < 2 * 256 and tall.shape[0] > 3 * 256
    assert wide.dtype == np.uint8 and sheet_of_people(read, 1).shape[1] < 2 * 192


def test_the_picture_leaves_out_whom_it_cannot_open(lsp_folder) -> None:
    folder = lsp_folder(3)
    (folder / "images/im00002.jpg").unlink()
    whole = sheet_of_people(read_lsp(folder), 3)
    assert whole.shape[1] < 3 * 192
