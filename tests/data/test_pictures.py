"""Records of pictures: what a batch holds, and what may be joined."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.data.pictures import NO_ACTION, PictureRecords, check_size, picture_records
from halfmask.data.prints import fingerprints_of
from halfmask.data.skeleton import LSP
from halfmask.errors import HalfmaskError


def made(count: int = 4, actions: tuple[str, ...] = (), **changes: object) -> PictureRecords:
    rng = np.random.default_rng(count)
    return picture_records(
        images=rng.integers(0, 256, (count, 3, 32, 16), dtype=np.uint8),
        joints=np.ones((count, 16, 3)),
        actions_done=np.full(count, NO_ACTION),
        image_ids=np.arange(count),
        subjects=np.arange(count) // 2,
        key=f"made/{count}",
        actions=actions,
        **changes,
    )


def test_a_batch_has_pictures_joints_and_actions() -> None:
    records = made()
    batch = records.batch(np.array([2, 0]))
    assert {name: tuple(value.shape) for name, value in batch.items()} == {"image": (2, 3, 32, 16), "joints": (2, 16, 3), "action": (2,)}
    assert batch["action"].tolist() == [-1, -1] and str(batch["joints"].dtype) == "torch.float32"
    assert records.size == (32, 16) and records.unit_names() == ["image", "subject"]
    assert records.take(np.array([3])).unit_ids("subject").tolist() == [1]
    assert isinstance(records.take(np.array([3])), PictureRecords) and records.take(np.array([3])).actions == records.actions


def test_what_is_joined_has_the_same_joints_and_actions() -> None:
    both = made(4).joined(made(6))
    assert len(both) == 10 and len(fingerprints_of(both)) == 10 and both.joint_names == made().joint_names
    for other in (made(4, actions=("walk",)), made(4, skeleton=LSP)):
        with pytest.raises(HalfmaskError, match="other joints or actions"):
            made(4).joined(other)


@pytest.mark.parametrize("size", [(60, 48), (64, 40), (0, 16), (8, 16)])
def test_sizes_that_cannot_be_halved_are_refused(size) -> None:
    with pytest.raises(HalfmaskError, match="multiples of 16"):
        check_size(size)
    check_size((64, 48))
