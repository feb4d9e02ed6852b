"""What a recogniser goes by."""

from __future__ import annotations

import numpy as np
import pytest

import halfmask.audit.looks as looks
from halfmask.audit.looks import Looks, edges, look_at, parts
from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError

pytestmark = pytest.mark.usefixtures("one_thread")
EVERYWHERE = np.ones((1, 16), bool)


def striped(across: bool) -> np.ndarray:
    image = np.full((1, 3, 64, 48), 60, np.uint8)
    rows, columns = np.mgrid[:64, :48]
    image[:, :, (columns if across else rows) // 4 % 2 == 0] = 200
    return image


def test_edges_have_directions_and_an_even_picture_has_none() -> None:
    upright, level = (edges(striped(across)).reshape(9, 16, 12) for across in (True, False))
    assert upright.mean((1, 2)).argmax() == 0 and level.mean((1, 2)).argmax() in (4, 5)
    assert not edges(np.full((1, 3, 64, 48), 90, np.uint8)).any()


def test_sums_that_end_a_rounding_error_below_nought_have_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    """As OpenCV's do, which are kept up while a window moves: rarely, and then nothing could be learnt from the picture."""
    real = looks.cv2.blur
    monkeypatch.setattr(looks.cv2, "blur", lambda *arguments: real(*arguments) - np.float32(1e-6))
    assert np.isfinite(edges(np.full((1, 3, 64, 48), 90, np.uint8))).all()


def test_parts_have_the_colours_of_limbs_and_follow_them() -> None:
    image = np.full((1, 3, 64, 48), 20, np.uint8)
    image[0, 0, 40:, :] = 220
    joints = np.full((1, 16, 2), 24.0)
    joints[0, :, 1] = 10
    dark = parts(image, joints, EVERYWHERE, MPII)
    joints[0, [0, 1], 1] = 60
    limb = MPII.edges.index((1, 0))
    moved = parts(image, joints, EVERYWHERE, MPII).reshape(-1, 3)
    assert np.exp(moved[5 * limb : 5 * limb + 5, 0]) == pytest.approx(228) and np.exp(moved[5 * limb, 1]) == pytest.approx(28)
    assert np.exp(dark.reshape(-1, 3)[5 * limb : 5 * limb + 5, 0]) == pytest.approx(28)
    hidden = EVERYWHERE.copy()
    hidden[0, 0] = False
    unknown = parts(image, joints, hidden, MPII).reshape(-1, 3)
    assert (unknown[5 * limb : 5 * limb + 5] == unknown[-1]).all(), "a limb that is not there has the colour of the picture"


def test_pictures_are_looked_at_with_and_without_their_poses() -> None:
    rng = np.random.default_rng(0)
    image = np.repeat(np.repeat(rng.integers(0, 255, (2, 3, 16, 12), dtype=np.uint8), 4, 2), 4, 3)
    joints = np.concatenate([rng.uniform(5, 43, (2, 16, 2)), np.ones((2, 16, 1))], 2)
    seen = look_at(image, joints)
    assert seen.known_parts is not None and seen.shape.shape == (2, 12 * 208) and len(seen) == 2
    assert seen.knowing_poses().parts is seen.known_parts and not np.array_equal(seen.parts, seen.known_parts)
    assert look_at(image).known_parts is None
    large = np.repeat(np.repeat(image, 2, 2), 2, 3)
    scaled = np.concatenate([(joints[..., :2] + 0.5) * 2 - 0.5, joints[..., 2:]], 2)
    again = look_at(large, scaled)
    assert again.known_parts == pytest.approx(seen.known_parts, abs=1e-5), "poses are in pixels of the pictures they come with"
    one = seen.take(np.array([1]))
    assert isinstance(one, Looks) and np.array_equal(one.parts, seen.parts[1:]) and np.array_equal(one.known_parts, seen.known_parts[1:])


def test_poses_of_another_skeleton_are_refused() -> None:
    image = np.zeros((1, 3, 64, 48), np.uint8)
    with pytest.raises(HalfmaskError, match="mpii"):
        look_at(image, np.zeros((1, 17, 3)))
    with pytest.raises(HalfmaskError, match="uint8"):
        look_at(image.astype(float))
