"""Drawn pictures: one person each, the same at every size, and with their joints where they are."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.data.figures import ACTIONS, JOINT_NAMES, World
from halfmask.data.figures_pictures import Album, figures_pictures
from halfmask.data.figures_records import figures_records
from halfmask.data.pictures import PictureRecords
from halfmask.errors import HalfmaskError


@pytest.fixture(scope="module")
def some() -> PictureRecords:
    return figures_pictures("private", 12, per_subject=5)


def test_a_picture_is_one_persons(some) -> None:
    assert (len(some), some.size, some.joint_names, some.actions) == (12, (64, 48), JOINT_NAMES, ACTIONS)
    batch = some.batch(np.arange(12))
    assert batch["image"].shape == (12, 3, 64, 48) and str(batch["image"].dtype) == "torch.uint8"
    assert batch["joints"].shape == (12, 16, 3) and str(batch["joints"].dtype) == "torch.float32"
    assert str(batch["action"].dtype) == "torch.int64" and batch["action"].min() >= 0 and batch["action"].max() < len(ACTIONS)
    assert some.unit_names() == ["image", "subject"]
    assert np.unique(some.unit_ids("subject"), return_counts=True)[1].tolist() == [5, 5, 2]
    assert len(np.unique(some.unit_ids("image"))) == 12
    world = Album("private", per_subject=5)
    assert all(world.people(image) == 1 for image in range(200))
    assert np.isfinite(some.truth.columns["head_boxes"]).all()


def test_unknown_joints_are_zeros_and_known_ones_inside(some) -> None:
    many = figures_pictures("private", 60)
    joints = many.targets.columns["joints"]
    known = joints[:, :, 2] > 0
    assert 0 < (~known).sum() < known.sum() and set(np.unique(joints[:, :, 2])) == {0, 1}
    assert not joints[~known].any()
    assert (joints[known][:, :2] >= -0.5).all() and (joints[known][:, :2] <= [47.5, 63.5]).all()


def test_joints_are_where_they_are_drawn(some) -> None:
    """A picture of twice the size shows the same person with joints in twice as many pixels."""
    large = figures_pictures("private", 12, per_subject=5, size=(128, 96))
    small, wide = some.targets.columns["joints"], large.targets.columns["joints"]
    both = (small[:, :, 2] > 0) & (wide[:, :, 2] > 0)
    np.testing.assert_allclose((wide[both][:, :2] + 0.5) / 2 - 0.5, small[both][:, :2], atol=1e-4)
    halved = large.private.columns["image"].reshape(12, 3, 64, 2, 48, 2).mean((3, 5))
    assert np.abs(halved - some.private.columns["image"]).max() <= 1.01
    # Head boxes in the same pixels as joints.
    neck, top = (JOINT_NAMES.index(name) for name in ("upper_neck", "head_top"))
    head = some.truth.columns["head_boxes"][:, [1, 3]].mean(1)
    standing = both[:, neck] & both[:, top] & (small[:, top, 1] < small[:, neck, 1] - 3)
    assert standing.sum() > 3 and (head[standing] < small[standing][:, neck, 1] + 2).all()


def test_pictures_are_known_by_name_at_every_size(some) -> None:
    large = figures_pictures("private", 12, per_subject=5, size=(128, 96))
    assert (large.prints.exact == some.prints.exact).all() and (large.prints.subjects == some.prints.subjects).all()
    assert (large.ids == some.ids).all() and len(set(some.ids.tolist())) == 12
    for other in (figures_pictures("test", 12, per_subject=5), figures_pictures("private", 12, seed=1, per_subject=5)):
        assert not (set(map(bytes, other.prints.exact)) & set(map(bytes, some.prints.exact)))
        assert not (set(map(bytes, other.prints.subjects)) & set(map(bytes, some.prints.subjects)))
    # Nor are they the people of the pose figures.
    pose = figures_records("private", 4, size=(64, 48))
    assert not (set(map(bytes, pose.prints.subjects)) & set(map(bytes, some.prints.subjects)))
    subject = int(pose.subjects[0])
    assert Album("private")._look(subject) != World("private")._look(subject)


def test_what_is_drawn_does_not_depend_on_what_was_drawn_before(some) -> None:
    later = figures_pictures("private", 4, skip=6, per_subject=5)
    assert (later.private.columns["image"] == some.private.columns["image"][6:10]).all()
    assert (later.ids == some.ids[6:10]).all() and (later.unit_ids("subject") == some.unit_ids("subject")[6:10]).all()


def test_actions_that_are_named_are_done_equally_often() -> None:
    found = figures_pictures("private", 40, actions=("sit", "walk"))
    assert found.actions == ("sit", "walk")
    counts = np.bincount(found.targets.columns["action"], minlength=2)
    assert counts.sum() == 40 and counts.min() > 10
    with pytest.raises(HalfmaskError, match=r"sitt.*sit"):
        figures_pictures("private", 4, actions=("sitt",))


def test_sides_are_multiples_of_16() -> None:
    with pytest.raises(HalfmaskError, match=r"60×48.*multiples of 16"):
        figures_pictures("private", 4, size=(60, 48))
