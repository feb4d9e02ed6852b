"""Finding faces in a photograph, with a stand-in for the network that calls bright things faces."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import pytest
import torch

from halfmask.errors import HalfmaskError
from halfmask.models.hyperface import SHAPES, Shape
from halfmask.tasks.face_finding import find_faces, overlap

ALL = ("detection", "landmarks", "visibility", "pose", "attribute")


@dataclass
class Bright:
    """Says `face` of a region that is bright for the greater part, with the corners of what is bright for landmarks."""

    subtasks: tuple[str, ...] = ALL
    looks: int = 0
    shape: Shape = SHAPES["small"]

    def __call__(self, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.looks += 1
        assert pixels.dtype == torch.uint8 and pixels.shape[1:] == (3, 64, 64)
        bright = (pixels.float().mean(1) > 170).numpy()
        share = bright.mean((1, 2))
        corners = np.zeros((len(bright), 2, 2), np.float32)
        for row, one in enumerate(bright):
            if one.any():
                down, right = np.flatnonzero(one.any(1)), np.flatnonzero(one.any(0))
                corners[row] = [[right[0], down[0]], [right[-1] + 1, down[-1] + 1]]
        said = {
            "detection": torch.from_numpy(200 * (share - 0.6)),
            "landmarks": torch.from_numpy(corners / 64 - 0.5),
            "visibility": torch.full((len(bright), 2), 1.3),
            "pose": torch.full((len(bright), 3), np.pi / 6),
            "attribute": torch.full((len(bright),), -800.0),
        }
        return {name: said[name] for name in self.subtasks}


def photograph(*boxes: tuple[int, int, int, int]) -> np.ndarray:
    """Bright boxes before a dark pattern."""
    coarse = np.random.default_rng(0).integers(0, 70, (12, 15, 3), dtype=np.uint8)
    image = cv2.resize(coarse, (150, 120), interpolation=cv2.INTER_CUBIC)
    for left, top, width, height in boxes:
        image[top : top + height, left : left + width] = (235, 225, 215)
    return image


def test_many_regions_of_a_face_are_one_face() -> None:
    model = Bright()
    (face,) = find_faces(model, photograph((40, 30, 40, 50)))  # type: ignore[arg-type]
    assert face.score > 0.99 and model.looks >= 3, "proposals, the likely ones, and those cut anew round the landmarks"
    np.testing.assert_allclose(face.landmarks, [[39.5, 29.5], [79.5, 79.5]], atol=1.5)
    left, top, *_ = face.box
    assert left == pytest.approx(38, abs=3) and top < 26, "a forehead is added above"
    assert (face.visible == 1).all() and face.pose == pytest.approx([30, 30, 30], abs=1e-4) and face.attribute == 0
    body = face.to_json()
    assert set(body) == {"box", "score", "landmarks", "pose", "attribute"} and set(body["pose"]) == {"roll", "pitch", "yaw"}
    assert len(body["landmarks"]) == 2 and set(body["landmarks"][0]) == {"x", "y", "visible"}


def test_two_faces_are_two_and_the_surest_comes_first() -> None:
    found = find_faces(Bright(), photograph((10, 40, 30, 40), (100, 35, 36, 48)))  # type: ignore[arg-type]
    assert len(found) == 2 and sorted(round(face.box[0] / 90) for face in found) == [0, 1]
    assert found[0].score >= found[1].score
    assert overlap(np.array(found[0].box), np.array([found[1].box]))[0] < 0.3


def test_nothing_is_found_where_nobody_is() -> None:
    for image in (photograph(), np.zeros((60, 60, 3), np.uint8), np.full((10, 90, 3), 255, np.uint8)):
        assert find_faces(Bright(), image) == []  # type: ignore[arg-type]


def test_boxes_lie_inside_the_photograph() -> None:
    image = photograph((0, 0, 40, 50), (115, 75, 35, 45))
    found = find_faces(Bright(), image)  # type: ignore[arg-type]
    assert len(found) == 2
    for face in found:
        left, top, width, height = face.box
        assert left >= 0 and top >= 0 and left + width <= 150 and top + height <= 120 and min(width, height) >= 16


def test_a_given_box_is_taken_as_it_is() -> None:
    image, model = photograph((40, 30, 40, 50)), Bright()
    (face,) = find_faces(model, image, box=(30.25, 20.0, 60.5, 70.0))  # type: ignore[arg-type]
    assert face.box == (30.25, 20.0, 60.5, 70.0) and model.looks == 1
    np.testing.assert_allclose(face.landmarks, [[39.5, 29.5], [79.5, 79.5]], atol=1.5)
    (nobody,) = find_faces(model, image, box=(0, 0, 20, 20))  # type: ignore[arg-type]
    assert nobody.score < 0.01, "somebody is said to be there; how sure the network is, is told all the same"
    (cut,) = find_faces(model, image, box=(-10, 100, 60, 90))  # type: ignore[arg-type]
    assert cut.box == (0, 100, 50, 20)
    assert len(find_faces(model, image, box=(149.8, 3, 0.1, 0.1))) == 1, "a box within a pixel is that pixel"  # type: ignore[arg-type]


@pytest.mark.parametrize("box", [(150, 0, 20, 20), (0, -30, 20, 20), (10, 10, float("nan"), 5)])
def test_a_box_with_nothing_of_the_photograph_is_refused(box) -> None:
    with pytest.raises(HalfmaskError, match="expected one inside its 150×120 pixels"):
        find_faces(Bright(), photograph(), box=box)  # type: ignore[arg-type]


def test_tasks_that_the_network_lacks_are_not_told() -> None:
    image = photograph((40, 30, 40, 50))
    (face,) = find_faces(Bright(("detection", "pose")), image)  # type: ignore[arg-type]
    assert set(face.to_json()) == {"box", "score", "pose"} and len(face.landmarks) == len(face.visible) == 0
    (face,) = find_faces(Bright(("landmarks",)), image, box=(30, 20, 60, 70))  # type: ignore[arg-type]
    assert face.score == 1 and [point["visible"] for point in face.to_json()["landmarks"]] == [1, 1]
