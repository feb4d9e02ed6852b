"""Face close-ups: what they show, where they say it is, and that they are the same whenever they are drawn."""

import pickle
from collections import Counter

import numpy as np
import pytest

from halfmask.data.faces import Face, Photograph
from halfmask.data.figures import POPULATIONS, World
from halfmask.data.figures.closeups import ATTRIBUTE, FACE_LAYOUT, LANDMARK_NAMES, _compose, _features, closeups
from halfmask.data.figures.faceshape import View, inside, rotation
from halfmask.data.figures.populations import BY_NAME
from halfmask.data.figures.portrait import Expression, Portrait
from halfmask.errors import HalfmaskError

AT = {name: k for k, name in enumerate(LANDMARK_NAMES)}
CALM = Expression(mouth=0.0, smile=0.0, eyes=1.0, brows=0.0, frown=0.0, gaze=(0.0, 0.0))


@pytest.fixture(scope="module")
def sample() -> dict[str, list[Photograph]]:
    return {name: closeups(name, 256) for name in POPULATIONS}


def bare() -> int:
    """A subject of whose face hair hides nothing."""
    return next(
        k for k in range(99) if _features(0, "public", k).look.hair_style in ("bald", "short") and not _features(0, "public", k).fringe
    )


def portrait(roll: float = 0.0, pitch: float = 0.0, yaw: float = 0.0) -> Portrait:
    view = View(rotation(roll, pitch, yaw), 9.0, 40.0, np.array([80.0, 80.0]))
    return Portrait(_features(0, "public", bare()), CALM, view)


def same(a: Face, b: Face) -> bool:
    return (
        a.box == b.box
        and (a.subject, a.attribute) == (b.subject, b.attribute)
        and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("landmarks", "visible", "pose"))
    )


def test_layout() -> None:
    assert ATTRIBUTE == "glasses"
    assert FACE_LAYOUT.name == "figures" and len(FACE_LAYOUT) == len(LANDMARK_NAMES) == 21
    swap = {"left": "right", "right": "left"}
    for k, partner in enumerate(FACE_LAYOUT.mirror):
        assert FACE_LAYOUT.mirror[partner] == k
        assert LANDMARK_NAMES[partner] == "_".join(swap.get(word, word) for word in LANDMARK_NAMES[k].split("_"))


def test_what_a_photograph_holds(sample: dict[str, list[Photograph]]) -> None:
    for photograph in sample["private"][:12]:
        (face,) = photograph.faces
        image = photograph.read()
        assert image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3
        assert all(140 <= side <= 180 for side in image.shape[:2])
        assert face.landmarks.shape == (21, 2) and face.landmarks.dtype == np.float32
        assert face.visible.shape == (21,) and face.visible.dtype == np.bool_
        assert face.pose.shape == (3,) and face.attribute in (0.0, 1.0)
        left, top, width, height = face.box
        assert left >= 0 and top >= 0 and left + width <= image.shape[1] and top + height <= image.shape[0]


def test_faces_are_of_all_sizes_and_turned_all_ways(sample: dict[str, list[Photograph]]) -> None:
    faces = [photograph.faces[0] for photographs in sample.values() for photograph in photographs]
    tall = np.array([face.box[3] for face in faces])
    assert tall.min() > 38 and tall.max() < 116 and np.ptp(tall) > 40
    roll, pitch, yaw = np.abs([face.pose for face in faces]).max(axis=0)
    assert 20 < roll <= 30 and 20 < pitch <= 30 and 60 < yaw <= 75
    assert np.median(np.abs([face.pose[2] for face in faces])) < 35


@pytest.mark.parametrize("population", POPULATIONS)
def test_same_bytes_in_any_order(population: str) -> None:
    first = closeups(population, 6, seed=3, skip=60)
    images = [photograph.read() for photograph in first]
    for k in (5, 0, 3):
        (again,) = closeups(population, 1, seed=3, skip=60 + k)
        assert again.name == first[k].name and same(again.faces[0], first[k].faces[0])
        assert np.array_equal(again.read(), images[k])
        assert np.array_equal(pickle.loads(pickle.dumps(first[k])).read(), images[k])


def test_other_numbers_seeds_and_populations_are_other_pictures() -> None:
    others = [*closeups("public", 2), *closeups("public", 1, seed=1), *closeups("private", 1), *closeups("test", 1)]
    assert len({photograph.name for photograph in others}) == len(others)
    assert len({photograph.read().tobytes() for photograph in others}) == len(others)


def test_the_pose_figures_do_not_notice() -> None:
    before = World("public").figure(1)
    closeups("public", 1)[0].read()
    assert np.array_equal(before.image, World("public").figure(1).image)


def test_subjects_recur_and_are_of_one_population(sample: dict[str, list[Photograph]]) -> None:
    subjects = {name: Counter(p.faces[0].subject for p in photographs) for name, photographs in sample.items()}
    for counts in subjects.values():
        assert all(6 <= n <= 8 for n in counts.values())
    assert sum(len(counts) for counts in subjects.values()) == len(set().union(*subjects.values()))
    assert next(iter(subjects["test"])).startswith("figures-faces/test/0/")


def test_attribute(sample: dict[str, list[Photograph]]) -> None:
    for photographs in sample.values():
        worn: dict[str | None, set[float]] = {}
        for photograph in photographs:
            worn.setdefault(photograph.faces[0].subject, set()).add(photograph.faces[0].attribute)
        assert all(len(values) == 1 for values in worn.values())
        assert 0.35 < np.mean([p.faces[0].attribute for p in photographs[:64]]) < 0.6


def test_a_frontal_face() -> None:
    face = portrait()
    assert face.visible.all()
    left, top, width, height = face.box
    x, y = face.landmarks.T
    assert (x >= left).all() and (x <= left + width).all() and (y >= top).all() and (y <= top + height).all()
    mirror = list(FACE_LAYOUT.mirror)
    assert np.allclose(160.0 - x, x[mirror], atol=1e-6) and np.allclose(y, y[mirror], atol=1e-6)
    assert x[AT["left_ear"]] < x[AT["left_eye_left"]] < x[AT["left_eye_right"]] < x[AT["nose_tip"]] < x[AT["right_eye_left"]]
    assert y[AT["left_brow_centre"]] < y[AT["left_eye_centre"]] < y[AT["nose_tip"]] < y[AT["mouth_centre"]] < y[AT["chin"]]


def test_signs_of_the_pose() -> None:
    ears = [AT["left_ear"], AT["right_ear"]]
    turned = portrait(yaw=30.0).landmarks
    assert turned[AT["nose_tip"], 0] < turned[ears, 0].mean() - 5
    bowed = portrait(pitch=25.0).landmarks
    assert bowed[AT["nose_tip"], 1] > portrait().landmarks[AT["nose_tip"], 1] + 5
    tilted = portrait(roll=20.0).landmarks
    assert tilted[ears[0], 1] < tilted[ears[1], 1] - 5  # clockwise: the picture's left goes up


def test_a_mirror_image_is_the_mirrored_pose() -> None:
    one, other = portrait(12.0, -8.0, 33.0), portrait(-12.0, -8.0, -33.0)
    mirror = list(FACE_LAYOUT.mirror)
    assert np.allclose(one.landmarks * (-1, 1) + (160, 0), other.landmarks[mirror], atol=1e-6)
    assert np.array_equal(one.visible, other.visible[mirror])


@pytest.mark.parametrize(("yaw", "far", "near"), [(70.0, "left", "right"), (-70.0, "right", "left")])
def test_a_profile_hides_its_far_side(yaw: float, far: str, near: str) -> None:
    seen = portrait(yaw=yaw).visible
    assert not seen[AT[f"{far}_ear"]] and not seen[AT[f"{far}_eye_centre"]] and not seen[AT[f"{far}_brow_{far}"]]
    assert seen[AT[f"{near}_ear"]] and seen[AT[f"{near}_eye_centre"]] and seen[AT[f"{near}_brow_{near}"]] and seen[AT["nose_tip"]]


def test_what_is_held_hides_what_it_covers() -> None:
    population = BY_NAME["private"]
    share, hidden = 0, 0
    for number, photograph in enumerate(closeups("private", 200, seed=5)):
        shot = _compose(population, 5, number)
        if not shot.held:
            continue
        share += 1
        face = photograph.faces[0]
        covered = np.array([any(inside(pixel, outline) for outline, _ in shot.held) for pixel in shot.portrait.landmarks])
        assert not face.visible[covered].any()
        assert np.array_equal(face.visible[~covered], shot.portrait.visible[~covered])
        hidden += int(covered.sum())
    assert 0.07 < share / 200 < 0.25 and hidden > 3 * share


def test_a_visible_landmark_is_where_its_feature_is_drawn() -> None:
    """Pupils are dark, and the landmark in the middle of an open eye is upon one; the cheek below is skin."""
    darker = []
    for photograph in closeups("public", 200):
        face = photograph.faces[0]
        shot = _compose(BY_NAME["public"], 0, int(photograph.name.rsplit("/", 1)[1]))
        if abs(face.pose[2]) > 40 or shot.portrait.expression.eyes == 0 or sum(shot.portrait.features.look.skin) < 450:
            continue
        image = photograph.read().astype(float).mean(axis=2)
        for side in ("left", "right"):
            eye, mouth = face.landmarks[AT[f"{side}_eye_centre"]], face.landmarks[AT[f"mouth_{side}"]]
            if face.visible[AT[f"{side}_eye_centre"]] and face.visible[AT[f"mouth_{side}"]]:
                x, y = np.rint(eye).astype(int)
                u, v = np.rint(0.55 * eye + 0.45 * mouth).astype(int)
                darker.append(image[y - 1 : y + 2, x - 1 : x + 2].min() < 0.8 * image[v, u])
    assert len(darker) > 40 and np.mean(darker) > 0.9


def test_unknown_population() -> None:
    with pytest.raises(HalfmaskError, match="population"):
        closeups("nobody", 1)
