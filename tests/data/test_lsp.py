"""LSP and LSPET: two shapes of one matrix, with opposite meanings of the flag."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.io

from halfmask.data.lsp import detect_lsp, read_lsp
from halfmask.data.people import NO_JOINT
from halfmask.errors import HalfmaskError


def test_lspet_flag_zero_is_missing_and_its_garbage_is_not_in_the_box(lsp_folder, person) -> None:
    flags = np.ones((3, 14))
    flags[1, 4] = 0
    joints = np.stack([person(14)] * 3)
    joints[1, 4] = (-4000, 9000)
    read = read_lsp(lsp_folder(3, flags=flags, joints=joints))
    assert read.format == "lspet" and list(read.parts) == ["all"]
    whole, part, _ = read.parts["all"].people
    np.testing.assert_allclose(whole.box, (20, 20, 40, 80))
    np.testing.assert_allclose(part.box, whole.box, atol=1e-9)
    assert part.joints[4, 2] == 0 and part.joints[:, 2].sum() == 2 * 13
    assert [one.image_id for one in read.parts["all"].people] == [1, 2, 3]
    assert part.path.name == "im00002.jpg" and part.path.is_file()


def test_classic_lsp_flag_one_is_occluded_and_all_joints_count(lsp_folder) -> None:
    flags = np.zeros((3, 14))
    flags[1, 4] = 1
    read = read_lsp(lsp_folder(3, classic=True, flags=flags))
    assert read.format == "lsp"
    assert read.parts["all"].people[1].joints[:, 2].tolist() == [2, 2, 2, 2, 1, *[2] * 9]
    assert read.parts["all"].people[1].path.name == "im0002.jpg"


def test_the_meaning_can_be_forced_against_the_shape(lsp_folder) -> None:
    flags = np.ones((2, 14))
    flags[0, :3] = 0
    folder = lsp_folder(2, classic=True, flags=flags)
    assert (read_lsp(folder, "lspet").parts["all"].people[0].joints[:, 2] > 0).sum() == 11
    assert (read_lsp(folder).parts["all"].people[0].joints[:, 2] > 0).sum() == 14


def test_the_two_thousand_of_lsp_are_divided_by_their_authors(lsp_folder, person) -> None:
    folder = lsp_folder(2, classic=True)
    matrix = np.concatenate([np.stack([person(14)] * 2000), np.zeros((2000, 14, 1))], -1)
    scipy.io.savemat(folder / "joints.mat", {"joints": matrix.transpose(2, 1, 0)})
    parts = read_lsp(folder).parts
    assert {name: len(part.people) for name, part in parts.items()} == {"train": 1000, "test": 1000}
    assert parts["test"].images[0] == "im1001.jpg"


def test_someone_without_a_labelled_joint_is_left_out_and_still_counted_as_an_image(lsp_folder) -> None:
    flags = np.ones((3, 14))
    flags[1] = 0
    part = read_lsp(lsp_folder(3, flags=flags)).parts["all"]
    assert len(part.people) == 2 and len(part.images) == 3
    assert [(one.image, one.reason) for one in part.left_out] == [("im00002.jpg", NO_JOINT)]


def test_what_is_refused(lsp_folder, tmp_path) -> None:
    assert not detect_lsp(tmp_path)
    with pytest.raises(HalfmaskError, match=r"has no joints\.mat"):
        read_lsp(tmp_path)
    folder = lsp_folder(2)
    assert detect_lsp(folder)
    scipy.io.savemat(folder / "joints.mat", {"joints": np.zeros((5, 3, 7))})
    with pytest.raises(HalfmaskError, match=r"'joints' is 5×3×7.*expected numbers, 14×3×N"):
        read_lsp(folder)
    scipy.io.savemat(folder / "joints.mat", {"poses": np.zeros(3)})
    with pytest.raises(HalfmaskError, match="has no variable 'joints' among its 1: expected one"):
        read_lsp(folder)
    (folder / "joints.mat").write_bytes(b"MATLAB? no")
    with pytest.raises(HalfmaskError, match=r"joints\.mat cannot be read as a MATLAB file"):
        read_lsp(folder)


def test_the_real_sample(shared_data) -> None:
    part = read_lsp(shared_data("lspet")).parts["all"]
    assert len(part.images) == len(part.people) == 6000
    labelled = np.array([(one.joints[:, 2] > 0).sum() for one in part.people])
    assert labelled.min() >= 12 and labelled.max() == 14
    missing = np.array([one.joints[one.joints[:, 2] == 0, :2].min(initial=np.inf) for one in part.people])
    left = np.array([one.box[0] for one in part.people])
    assert (missing < left).any(), "garbage far to the left of people did not stretch their boxes"
