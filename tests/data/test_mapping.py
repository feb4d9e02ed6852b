"""From one dataset's joints to another's: by name, derived ones told apart."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.data.mapping import map_joints, with_skeleton
from halfmask.data.skeleton import COCO, LSP, MPII, SKELETONS


def test_coco_to_mpii_joint_by_joint() -> None:
    rows = {joint: (source, how) for joint, source, how in map_joints(COCO, MPII).rows()}
    assert rows["r_ankle"] == ("right_ankle", "copied") and rows["l_wrist"] == ("left_wrist", "copied")
    assert rows["pelvis"] == ("mean of left_hip + right_hip", "derived")
    assert rows["thorax"] == ("mean of left_shoulder + right_shoulder", "derived")
    assert rows["head_top"] == rows["upper_neck"] == ("–", "absent")
    assert list(rows) == list(MPII.names)


def test_lsp_to_mpii_lacks_nothing() -> None:
    mapping = map_joints(LSP, MPII)
    assert [how for _, _, how in mapping.rows()].count("copied") == 14
    assert mapping.derived == ("pelvis", "thorax")
    assert dict((joint, source) for joint, source, _ in mapping.rows())["upper_neck"] == "neck"


def test_a_derived_joint_is_the_middle_and_needs_both() -> None:
    joints = np.zeros((2, 17, 2), np.float32)
    joints[:, COCO.index("left_hip")], joints[:, COCO.index("right_hip")] = (10, 20), (30, 60)
    labelled = np.ones((2, 17), bool)
    labelled[1, COCO.index("left_hip")] = False
    placed, known = map_joints(COCO, MPII).apply(joints, labelled)
    np.testing.assert_allclose(placed[0, MPII.index("pelvis")], [20, 40])
    assert known[:, MPII.index("pelvis")].tolist() == [True, False]
    assert not known[:, MPII.index("head_top")].any()


@pytest.mark.parametrize("skeleton", SKELETONS.values(), ids=SKELETONS)
def test_there_and_back_keeps_what_both_have(skeleton) -> None:
    joints = np.random.default_rng(0).random((3, len(skeleton), 2))
    there, known = map_joints(skeleton, MPII).apply(joints, np.ones((3, len(skeleton)), bool))
    back, still = map_joints(MPII, skeleton).apply(there, known)
    assert still.sum() >= 3 * 12
    np.testing.assert_array_equal(back[still], joints[still])


def test_records_change_their_joints_and_nothing_else(random_records) -> None:
    records = random_records(4)
    lsp = with_skeleton(records, LSP)
    np.testing.assert_array_equal(lsp.joints[:, LSP.index("l_knee")], records.joints[:, MPII.index("l_knee")])
    assert lsp.skeleton is LSP and lsp.joints.shape == (4, 14, 2) and lsp.images is records.images and lsp.key != records.key
    again = with_skeleton(lsp.changed(annotated=lsp.labelled), MPII)
    assert again.unscored == ("pelvis", "thorax") and again.labelled[:, MPII.index("pelvis")].all()
    assert not again.scored()[:, MPII.index("pelvis")].any() and again.scored()[:, 0].all()
    assert with_skeleton(records, MPII) is records
