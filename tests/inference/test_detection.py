"""Finding people: each once, inside the picture, by OpenCV's detector or by the pose network."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.data.images import read_image
from halfmask.inference.detection import ByNetwork, Detected, Hog, inside, one_of_many, windows

PHOTOGRAPHS = Path(__file__).parents[3] / "shared" / "data" / "lspet" / "images"


def test_one_of_many_keeps_the_surest_of_those_that_share_a_person() -> None:
    found = [Detected((0, 0, 100, 200), 0.5), Detected((5, 5, 100, 200), 0.9), Detected((300, 0, 50, 100), 0.1)]
    assert one_of_many(found) == [found[1], found[2]] and one_of_many([]) == []


def test_boxes_are_cut_to_the_picture() -> None:
    found = inside([Detected((-10, -10, 50, 50), 0.5), Detected((95, 10, 50, 20), 0.5), Detected((200, 200, 9, 9), 0.5)], (100, 100, 3))
    assert [one.box for one in found] == [(0, 0, 40, 40), (95, 10, 5, 20)]


@pytest.mark.parametrize("shape", [(480, 640, 3), (640, 200, 3), (40, 40, 3)])
def test_windows_cover_the_picture_in_the_networks_aspect_ratio(shape: tuple[int, int, int]) -> None:
    boxes = np.array(windows(shape, (256, 192), (1.0, 0.5)))
    assert np.allclose(boxes[:, 2] / boxes[:, 3], 0.75)
    covered = np.zeros(shape[:2], bool)
    for x, y, width, height in boxes:
        covered[max(0, int(y)) : int(np.ceil(y + height)), max(0, int(x)) : int(np.ceil(x + width))] = True
    assert covered.all()


def test_the_network_finds_whom_it_is_sure_of() -> None:
    """A stand-in that is sure where the middle of its crop is bright: it finds the bright one of two."""
    picture = np.zeros((200, 300, 3), np.uint8)
    cv2.rectangle(picture, (200, 60), (250, 140), (255, 255, 255), -1)

    def look(crops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        middle = crops[:, :, 24:40, 18:30].mean((1, 2, 3)) / 255
        corners = np.array([[10.0, 10], [38, 54]])
        return np.tile(corners, (len(crops), 1, 1)), np.repeat(middle[:, None], 2, 1)

    found = ByNetwork(look, (64, 48), surest=0.6)(picture)
    assert found and all(one.box[0] + one.box[2] / 2 > 150 for one in found), found
    assert ByNetwork(look, (64, 48), surest=0.6)(np.zeros_like(picture)) == []


@pytest.mark.parametrize("shape", [(1, 1, 3), (20, 500, 3), (3000, 40, 3)])
def test_odd_pictures_show_nobody(shape: tuple[int, int, int]) -> None:
    assert Hog()(np.full(shape, 127, np.uint8)) == []


@pytest.mark.skipif(not PHOTOGRAPHS.is_dir(), reason="the photographs are not here")
def test_opencvs_detector_finds_somebody_on_some_photographs() -> None:
    """On a grey field of twice the size: athletes' photographs are cut closely."""
    found = 0
    for number in range(1, 13):
        photograph = read_image(PHOTOGRAPHS / f"im{number:05d}.jpg")
        rows, columns = photograph.shape[:2]
        picture = cv2.copyMakeBorder(photograph, rows // 2, rows // 2, columns // 2, columns // 2, cv2.BORDER_REPLICATE)
        found += bool(Hog()(picture))
    assert found >= 2
