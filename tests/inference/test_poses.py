"""Everybody in their box, on one picture, and in COCO's form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError
from halfmask.inference.people_given import read_poses
from halfmask.inference.poses import coco_body, draw_people, place_people


class Brightest:
    """A stand-in that puts all joints on the brightest pixel of a crop."""

    words, skeleton, input_size, calibrated = "a stand-in", MPII, (64, 48), True

    def __call__(self, crops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        flat = crops.sum(1).reshape(len(crops), -1).argmax(1)
        points = np.stack([flat % 48, flat // 48], 1).astype(float)
        return np.repeat(points[:, None], 16, 1), np.tile(np.linspace(0.1, 0.9, 16), (len(crops), 1))


def picture() -> np.ndarray:
    image = np.zeros((120, 200, 3), np.uint8)
    image[39:42, 49:52], image[79:82, 149:152] = 255, 255
    return image


def test_each_is_placed_in_pixels_of_the_picture() -> None:
    people = place_people(Brightest(), picture(), [(30, 20, 40, 50), (130, 60, 40, 50), None], [0.5, 0.25, 1.0])
    assert np.allclose(people[0].joints, (50, 40), atol=2) and np.allclose(people[1].joints, (150, 80), atol=2)
    assert people[1].box_score == 0.25 and people[0].score == pytest.approx(0.5)
    assert place_people(Brightest(), picture(), []) == []


@pytest.mark.parametrize("box", [(200.0, 0, 10, 10), (-20.0, 5, 20, 10), (0.0, 130, 10, 10)])
def test_a_box_outside_of_the_picture_is_refused(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(HalfmaskError, match="outside the image, which has 200×120 pixels"):
        place_people(Brightest(), picture(), [(0, 0, 5, 5), box])


def test_more_people_than_are_looked_at_at_once() -> None:
    assert len(place_people(Brightest(), picture(), [(float(x), 0.0, 30.0, 60.0) for x in range(70)])) == 70


def test_cocos_form_is_read_again(tmp_path: Path) -> None:
    people = place_people(Brightest(), picture(), [(30, 20, 40, 50), (130, 60, 40, 50)])
    body = coco_body("a.jpg", (200, 120), people, Brightest())
    (tmp_path / "a.json").write_text(json.dumps(body))
    given = read_poses(tmp_path / "a.json", ["a.jpg"])["a.jpg"]
    assert given.size == (200, 120) and given.boxes == [(30, 20, 40, 50), (130, 60, 40, 50)]
    assert given.joints[0] is not None and np.allclose(given.joints[0][:, :2], people[0].joints, atol=0.01)
    (first, _) = body["annotations"]
    assert first["keypoints"][2::3] == [1] * 8 + [2] * 8, "what is likelier wrong than right is a guess"
    assert first["score"] == 0.5 and len(first["keypoint_scores"]) == 16 and body["categories"][0]["keypoints"] == list(MPII.names)


def test_everybody_is_drawn_on_one_picture() -> None:
    image = picture()
    people = place_people(Brightest(), image, [(30, 20, 40, 50), (130, 60, 40, 50)])
    drawn = draw_people(image, people, MPII)
    assert drawn.shape == image.shape and (image == picture()).all(), "and the picture itself is left as it is"
    changed = (drawn != image).any(2)
    assert changed[:, :100].any() and changed[:, 100:].any()
