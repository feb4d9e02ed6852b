"""The body, the camera and the marks: geometry that the labels rest on."""

import cv2
import numpy as np
import pytest

from halfmask.data.figures.actions import ACTIONS, draw_manner, pose_at
from halfmask.data.figures.camera import Camera
from halfmask.data.figures.draw import OCCLUDER, Canvas
from halfmask.data.figures.person import PARTS, draw_person, see_joints
from halfmask.data.figures.populations import PRIVATE, PUBLIC, TEST
from halfmask.data.figures.skeleton import Body, Pose, pose_body
from halfmask.data.figures.subjects import Look, draw_look


def look(seed: int = 0) -> Look:
    return draw_look(np.random.default_rng(seed), PUBLIC)


def camera(pitch: float = 0.0) -> Camera:
    # Pixels of a 256×192 window round a person of ordinary height.
    return Camera.look((0.0, 0.85, 0.0), 4.0, pitch, 0.0, 480.0).window(320 - 96, 240 - 128, 1.0)


def standing(yaw: float, arms: tuple[float, ...] = (0, 25, 0, 5, 0)) -> Body:
    pose = Pose()
    pose.limbs[:2] = arms
    pose.limbs[2:] = (0, 6, 0, 2, 0)
    return pose_body(look().size, pose, yaw, (0.0, 0.0))


def render(body: Body) -> tuple[Canvas, np.ndarray, np.ndarray]:
    canvas = Canvas(np.full((256, 192, 3), 90, np.uint8))
    draw_person(canvas, camera(), body, look(), PARTS, 1.0)
    joints, depths = camera().project(body.points[:16])
    return canvas, joints, depths


def test_left_is_the_persons_own_left() -> None:
    front, _ = camera().project(standing(0.0).points[:16])
    back, _ = camera().project(standing(180.0).points[:16])
    for right, left in ((0, 5), (2, 3), (10, 15), (12, 13)):
        assert front[right, 0] < front[left, 0]  # who faces us has the right hand on our left
        assert back[right, 0] > back[left, 0]


def test_upright_order_and_bone_lengths() -> None:
    body, size = standing(30.0), look().size
    y = body.points[:, 1]
    assert y[9] > y[8] > y[7] > y[6] > y[1] > y[0] >= 0
    assert np.isclose(np.linalg.norm(body.points[1] - body.points[0]), size.shin)
    assert np.isclose(np.linalg.norm(body.points[11] - body.points[10]), size.forearm)
    assert abs(y[9] - size.height) < 0.12 * size.height


@pytest.mark.parametrize("action", range(len(ACTIONS)))
def test_actions_are_smooth_and_stay_on_the_ground(action: int) -> None:
    manner = draw_manner(np.random.default_rng(action), 1.0)
    bodies = [pose_body(look().size, pose_at(action, t, manner), 0.0, (0, 0)).points for t in np.linspace(0, 1, 65)]
    steps = np.linalg.norm(np.diff(bodies, axis=0), axis=2)
    assert steps.max() < 0.2  # metres in a 64th of the period
    assert np.allclose(bodies[0], bodies[-1], atol=1e-6)
    assert np.ptp(np.asarray(bodies), axis=0).max() > 0.02
    assert all(points[:16, 1].min() > -0.05 for points in bodies)


def test_free_standing_person_is_all_visible() -> None:
    canvas, joints, depths = render(standing(0.0))
    assert (see_joints(canvas.marks, joints, depths, PARTS) == 2).all()


def test_an_occluder_hides_and_the_edge_unlabels() -> None:
    canvas, joints, depths = render(standing(0.0))
    knee = np.rint(joints[1]).astype(int)
    cv2.rectangle(canvas.marks, (knee - 6).tolist(), (knee + 6).tolist(), OCCLUDER, -1)
    joints[9] = (-3.0, 10.0)
    visibility = see_joints(canvas.marks, joints, depths, PARTS)
    assert visibility[1] == 1 and visibility[9] == 0
    assert (np.delete(visibility, [1, 9]) == 2).all()


def test_far_side_is_hidden_in_profile() -> None:
    canvas, joints, depths = render(standing(90.0, (0, 0, 0, 4, 0)))  # facing our right: the left side is far
    visibility = see_joints(canvas.marks, joints, depths, PARTS)
    assert visibility[12] == 2 and visibility[11] == 2
    assert visibility[13] == 1 and visibility[14] == 1


def test_another_person_hides() -> None:
    canvas, joints, depths = render(standing(0.0))
    draw_person(canvas, camera(), pose_body(look().size, Pose(), 0.0, (0.0, 0.6)), look(1), 2 * PARTS, 1.0)
    visibility = see_joints(canvas.marks, joints, depths, PARTS)
    assert visibility[6] == 1 and visibility[7] == 1


def test_a_high_camera_foreshortens() -> None:
    body = standing(0.0)
    level, _ = camera(0.0).project(body.points[:16])
    steep, _ = camera(45.0).project(body.points[:16])
    assert np.ptp(steep[:, 1]) < 0.85 * np.ptp(level[:, 1])


def test_window_is_a_shift_and_a_scale() -> None:
    points = standing(20.0).points
    whole, _ = camera().project(points)
    part, _ = camera().window(10.0, 20.0, 2.0).project(points)
    assert np.allclose((whole - [10.0, 20.0]) * 2.0, part)


def test_looks_persist_and_differ() -> None:
    assert look(3) == look(3)
    assert look(3) != look(4)


def test_test_people_come_from_the_private_distribution() -> None:
    differing = [name for name in vars(PRIVATE) if getattr(PRIVATE, name) != getattr(TEST, name)]
    assert sorted(differing) == ["index", "name"]
