from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from halfmask.data.anonymise import Pipeline, anonymise
from halfmask.data.avatar_joints import stance
from halfmask.data.avatars import AVATARS, avatar_of
from halfmask.data.clips import Film
from halfmask.data.figures.clips import Clips
from halfmask.data.mannequin import SEGMENTS, Mannequin, draw_mannequin, pose_mesh, upright

# Somebody made of rods, in metres, y up, facing the camera.
REST = np.array(
    [
        *([-0.1, -0.83, 0], [-0.1, -0.42, 0], [-0.1, 0, 0], [0.1, 0, 0], [0.1, -0.42, 0], [0.1, -0.83, 0]),
        *([0, 0, 0], [0, 0.49, 0], [0, 0.58, 0], [0, 0.8, 0]),
        *([-0.75, 0.45, 0], [-0.48, 0.45, 0], [-0.19, 0.45, 0], [0.19, 0.45, 0], [0.48, 0.45, 0], [0.75, 0.45, 0]),
    ],
    float,
)


def rods() -> Mannequin:
    vertices, faces, weights = [], [], []
    for number, (first, last, _) in enumerate(SEGMENTS.values()):
        along = REST[last] - REST[first]
        side = np.cross(along, [0, 0, 1.0])
        side *= 0.07 / np.linalg.norm(side)
        deep = np.array([0, 0, 0.07])
        base = len(vertices)
        for end in (REST[first], REST[last]):
            vertices += [end + side + deep, end - side + deep, end - side - deep, end + side - deep]
        for a, b in ((0, 1), (1, 2), (2, 3), (3, 0)):
            faces += [(base + a, base + b, base + b + 4), (base + a, base + b + 4, base + a + 4)]
        weights += [np.eye(len(SEGMENTS))[number]] * 8
    return upright(np.array(vertices), np.array(faces), np.array(weights), REST)


def posed(number: int = 4) -> tuple[Film, np.ndarray]:
    drawn = Clips("private", size=(96, 96), frames=4).clip(number)
    return Film(drawn.frames, drawn.person), drawn.joints.astype(float)


def test_limbs_end_where_the_joints_are() -> None:
    _, joints = posed()
    body = rods()
    marked = replace(body, vertices=np.repeat(body.joints, 1, axis=0), weights=np.zeros((16, 10)))
    for number, (_, last, _) in enumerate(SEGMENTS.values()):
        marked.weights[last, number] = 1.0
    ends = [last for _, last, _ in SEGMENTS.values()]
    points, _ = pose_mesh(replace(marked, faces=np.array([[0, 1, 2]])), stance(joints, np.ones(4, bool)), 1)
    np.testing.assert_allclose(points[ends, :2], joints[1, ends], atol=1e-6)


def test_a_body_in_any_frame_stands_upright() -> None:
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    turn *= np.sign(np.linalg.det(turn))
    one = rods()
    other = upright(3 * one.vertices @ turn.T + 5, one.faces[:, ::-1], one.weights, 3 * one.joints @ turn.T + 5)
    np.testing.assert_allclose(other.vertices, one.vertices, atol=1e-9)
    np.testing.assert_array_equal(other.faces, one.faces)


def test_no_pixel_of_the_clip_has_a_part_in_it() -> None:
    film, joints = posed()
    body = rods()
    pipeline = Pipeline(draw=lambda joints, key, size, present: draw_mannequin(body, avatar_of(key), joints, size, present))
    first = anonymise(film, joints, 3, pipeline)
    other = anonymise(replace(film, frames=255 - film.frames), joints, 3, pipeline)
    assert first.person is not None and first.person.any(axis=(1, 2)).all()
    np.testing.assert_array_equal(first.person, other.person)
    np.testing.assert_array_equal(first.frames[first.person], other.frames[other.person])
    assert (first.person & film.person).sum() > 0.35 * film.person.sum()


def test_a_limb_without_joints_is_not_drawn() -> None:
    _, joints = posed()
    whole = draw_mannequin(rods(), AVATARS[0], joints, (96, 96))
    joints[:, [10, 11]] = np.nan
    without = draw_mannequin(rods(), AVATARS[0], joints, (96, 96))
    assert 0 < (without[..., 3] == 255).sum() < (whole[..., 3] == 255).sum()


def test_bodies_of_anny() -> None:
    pytest.importorskip("anny")
    from halfmask.data.anny_avatar import draw_anny

    film, joints = posed()
    covered = draw_anny(joints, 1, (96, 96))[..., 3] == 255
    assert (covered & film.person).sum() / (covered | film.person).sum() > 0.4
