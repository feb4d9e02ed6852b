"""Skeletons: sides, groups and pairs agree with the joints' names."""

from __future__ import annotations

import pytest
from pycocotools.cocoeval import Params

from halfmask.data.figures import FLIP_PAIRS, JOINT_NAMES
from halfmask.data.skeleton import COCO, LSP, MPII, SKELETONS, full_name, skeleton_named, skeleton_with
from halfmask.errors import HalfmaskError


@pytest.mark.parametrize("skeleton", SKELETONS.values(), ids=SKELETONS)
def test_pairs_are_the_two_sides_of_one_joint_and_every_side_has_its_other(skeleton) -> None:
    paired = set()
    for pair in skeleton.flip_pairs:
        assert {skeleton.sides[joint] for joint in pair} == {"left", "right"}
        assert len({full_name(skeleton.names[joint]).split("_", 1)[1] for joint in pair}) == 1
        paired |= set(pair)
    assert paired == {joint for joint, side in enumerate(skeleton.sides) if side != "middle"}
    assert all(0 <= joint < len(skeleton) for edge in skeleton.edges for joint in edge)
    assert {joint for edge in skeleton.edges for joint in edge} == set(range(len(skeleton))), "every joint is drawn with a bone"


def test_the_embedded_world_has_mpiis_joints() -> None:
    assert MPII.names == JOINT_NAMES and MPII.flip_pairs == FLIP_PAIRS


def test_groups_and_halves() -> None:
    assert MPII.groups["knee"] == (1, 4) and MPII.groups["head"] == (9,)
    assert COCO.groups["face"] == (0, 1, 2, 3, 4)
    assert {LSP.names[joint] for joint in range(len(LSP)) if joint not in LSP.upper_body} == {
        *("r_ankle", "r_knee", "r_hip", "l_hip", "l_knee", "l_ankle")
    }
    assert COCO.oks_sigmas == pytest.approx(Params("keypoints").kpt_oks_sigmas.tolist())


def test_joints_are_found_by_either_spelling() -> None:
    assert LSP.index("left_shoulder") == LSP.index("l_shoulder") == 9
    assert COCO.index("r_hip") == COCO.names.index("right_hip")
    with pytest.raises(HalfmaskError, match="no joint 'pelvis'"):
        COCO.index("pelvis")


def test_skeletons_by_name_and_by_number_of_joints() -> None:
    assert skeleton_named("coco") is COCO
    assert [skeleton_with(joints) for joints in (16, 17, 14)] == [MPII, COCO, LSP]
    with pytest.raises(HalfmaskError, match="did you mean 'coco'"):
        skeleton_named("cocoo")
    with pytest.raises(HalfmaskError, match="21 joints"):
        skeleton_with(21)
