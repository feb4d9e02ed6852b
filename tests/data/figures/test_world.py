"""The world as its users see it: determinism, labels, populations."""

import time
from collections import Counter

import cv2
import numpy as np
import pytest

from halfmask.data.figures import ACTIONS, FLIP_PAIRS, JOINT_NAMES, POPULATIONS, Figure, World
from halfmask.errors import HalfmaskError


def same(a: Figure, b: Figure) -> bool:
    arrays = ("image", "joints", "visibility", "head_box", "mask")
    numbers = ("action", "subject", "image_id", "person")
    return all(np.array_equal(getattr(a, n), getattr(b, n)) for n in arrays) and all(getattr(a, n) == getattr(b, n) for n in numbers)


@pytest.fixture(scope="module")
def sample() -> dict[str, list[Figure]]:
    return {name: [World(name).figure(*r) for r in World(name).records(60)] for name in ("public", "private")}


def test_names() -> None:
    assert POPULATIONS == ("public", "private", "test")
    assert len(JOINT_NAMES) == 16 and JOINT_NAMES[0] == "r_ankle" and JOINT_NAMES[15] == "l_wrist"
    assert len(ACTIONS) >= 10
    for a, b in FLIP_PAIRS:
        assert JOINT_NAMES[a][2:] == JOINT_NAMES[b][2:] and JOINT_NAMES[a][0] + JOINT_NAMES[b][0] == "rl"


def test_shapes_and_types(sample: dict[str, list[Figure]]) -> None:
    for figure in sample["private"][:5]:
        assert figure.image.shape == (256, 192, 3) and figure.image.dtype == np.uint8
        assert figure.joints.shape == (16, 2) and figure.joints.dtype == np.float32
        assert figure.visibility.shape == (16,) and figure.visibility.dtype == np.uint8
        assert figure.head_box.shape == (4,) and figure.head_box.dtype == np.float32
        assert figure.mask.shape == (256, 192) and figure.mask.dtype == np.bool_


@pytest.mark.parametrize("population", POPULATIONS)
def test_same_bytes_in_any_order(population: str) -> None:
    records = World(population, seed=3).records(70)[-12:]
    forwards = World(population, seed=3)
    first = [forwards.figure(*r) for r in records]
    again = [forwards.figure(*r) for r in records]
    backwards = World(population, seed=3)
    backwards.picture(1)
    reverse = [backwards.figure(*r) for r in reversed(records)][::-1]
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert all(same(a, b) for a, b in zip(first, reverse, strict=True))


def test_other_seed_other_people() -> None:
    assert not np.array_equal(World("public", seed=0).figure(0).image, World("public", seed=1).figure(0).image)


def test_image_does_not_depend_on_the_size_of_other_worlds() -> None:
    small = World("private", size=(128, 96)).figure(5)
    large = World("private").figure(5)
    assert small.image.shape == (128, 96, 3)
    # Pixel centres are at whole numbers, so half the size is (x - 0.5) / 2.
    assert np.allclose((large.joints - 0.5) / 2, small.joints, atol=1e-2)


def test_records_agree_with_people() -> None:
    world = World("private")
    records = world.records(500)
    assert len(records) == 500 and records == world.records(800)[:500]
    per_image = Counter(image for image, _ in records[:-3])
    complete = [image for image in per_image if image < records[-1][0] - 2]
    assert all(per_image[image] == world.people(image) for image in complete)
    counts = np.array([world.people(k) for k in range(2000)])
    assert abs((counts == 2).mean() - 0.25) < 0.04 and abs((counts == 3).mean() - 0.05) < 0.02
    start = time.process_time()
    World("public").records(20_000)
    assert time.process_time() - start < 1.0


def test_subjects_recur_and_populations_share_nobody() -> None:
    seen: dict[str, Counter[int]] = {}
    for name in POPULATIONS:
        world = World(name)
        seen[name] = Counter(world.subject(*r) for r in world.records(1500))
    assert not set(seen["public"]) & set(seen["private"])
    assert not set(seen["private"]) & set(seen["test"])
    assert not set(seen["public"]) & set(seen["test"])
    assert 6.5 < 1500 / len(seen["private"]) < 9.5
    for figure in (World("test").figure(3), World("test").figure(70)):
        assert figure.subject in seen["test"]


def test_people_of_an_image_are_different_people() -> None:
    world = World("private")
    for image in range(200):
        subjects = [world.subject(image, k) for k in range(world.people(image))]
        assert len(set(subjects)) == len(subjects)


def test_missing_person_is_refused() -> None:
    world = World("private")
    with pytest.raises(IndexError):
        world.figure(0, 3)


def test_outside_means_unlabelled(sample: dict[str, list[Figure]]) -> None:
    outside = 0
    for figure in sample["private"] + sample["public"]:
        x, y = figure.joints.T
        out = (x < -0.5) | (y < -0.5) | (x >= 191.5) | (y >= 255.5)
        assert np.array_equal(out, figure.visibility == 0)
        outside += int(out.sum())
    assert outside > 0


def test_visible_joints_lie_on_the_person(sample: dict[str, list[Figure]]) -> None:
    hits = []
    for figure in sample["private"] + sample["public"]:
        grown = cv2.dilate(figure.mask.astype(np.uint8), np.ones((5, 5), np.uint8))
        for (x, y), v in zip(figure.joints, figure.visibility, strict=True):
            if v == 2:
                hits.append(grown[int(np.clip(round(y), 0, 255)), int(np.clip(round(x), 0, 191))])
    assert np.mean(hits) > 0.99
    shares = [figure.mask.mean() for figure in sample["public"]]
    assert 0.05 < np.mean(shares) < 0.5


def test_private_people_are_more_often_hidden(sample: dict[str, list[Figure]]) -> None:
    hidden = {name: np.mean([(f.visibility == 1).mean() for f in figures]) for name, figures in sample.items()}
    assert 0.02 < hidden["public"] < hidden["private"] < 0.6


def test_head_box_holds_the_head(sample: dict[str, list[Figure]]) -> None:
    for figure in sample["private"] + sample["public"]:
        middle = (figure.joints[8] + figure.joints[9]) / 2
        x1, y1, x2, y2 = figure.head_box
        assert x1 <= middle[0] <= x2 and y1 <= middle[1] <= y2
        assert 4 < x2 - x1 < 160 and 4 < y2 - y1 < 160


def test_public_and_private_look_different(sample: dict[str, list[Figure]]) -> None:
    brightness = {name: np.mean([f.image.mean() for f in figures]) for name, figures in sample.items()}
    assert brightness["public"] > 1.2 * brightness["private"]
    assert {f.action for f in sample["private"]} != {f.action for f in sample["public"]}


def test_all_actions_occur() -> None:
    world = World("private")
    found = {person.action for image in range(400) for person in world._scene(image).people}
    assert found == set(range(len(ACTIONS)))


def test_picture_holds_everybody() -> None:
    world = World("private")
    image = next(k for k in range(100) if world.people(k) == 2)
    picture, figures = world.picture(image)
    assert picture.shape == (480, 640, 3) and len(figures) == 2
    assert not (figures[0].mask & figures[1].mask).any()
    assert figures[0].mask.any() and figures[1].mask.any()
    crop = world.figure(image, 1)
    assert (crop.subject, crop.image_id, crop.person) == (figures[1].subject, figures[1].image_id, 1)
    # The same geometry: crop and picture differ by a shift and a scale.
    a, b = crop.joints - crop.joints.mean(0), figures[1].joints - figures[1].joints.mean(0)
    scale = float((a * b).sum() / (b * b).sum())
    assert np.allclose(a, scale * b, atol=0.1)
    half, _ = world.picture(image, size=(240, 320))
    assert half.shape == (240, 320, 3)


def test_unknown_population() -> None:
    with pytest.raises(HalfmaskError, match="did you mean 'private'"):
        World("privat")


@pytest.mark.alone
def test_speed() -> None:
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        best = 0.0
        for population in ("private", "public", "private"):
            world = World(population)
            records = world.records(120)
            start = time.process_time()  # CPU time of one thread: other programs may hold the core
            for record in records:
                world.figure(*record)
            best = max(best, len(records) / (time.process_time() - start))
    finally:
        cv2.setNumThreads(threads)
    assert best >= 150, f"{best:.0f} crops/s"
