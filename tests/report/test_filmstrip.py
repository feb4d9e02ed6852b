"""Filmstrips: which frames, what is tinted, and that nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.report.filmstrip import TINT, filmstrip, sheet, tinted


def film(count: int = 5, height: int = 12, width: int = 16) -> np.ndarray:
    return np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None] * 10 + 40, (count, height, width, 3)).copy()


def cells(strip: np.ndarray, count: int, width: int = 16) -> list[np.ndarray]:
    gap = (strip.shape[1] - count * width) // max(1, count - 1)
    return [strip[:, place * (width + gap) : place * (width + gap) + width] for place in range(count)]


def test_frames_stand_side_by_side_from_the_first_to_the_last() -> None:
    strip = filmstrip(film())
    assert [int(cell[0, 0, 0]) for cell in cells(strip, 5)] == [40, 50, 60, 70, 80]
    assert [int(cell[0, 0, 0]) for cell in cells(filmstrip(film(9), count=3), 3)] == [40, 80, 120]
    assert filmstrip(film(1), count=4).shape == (12, 16, 3)
    assert filmstrip(film(), count=2, height=24).shape[0] == 24 and filmstrip(film(), height=6).shape[0] == 6


def test_hidden_pixels_and_no_others_are_tinted() -> None:
    frames = film()
    hidden = np.zeros(frames.shape[:3], bool)
    hidden[2, 3:7, 5:9] = True
    plain, drawn = cells(filmstrip(frames), 5), cells(filmstrip(frames, hidden), 5)
    for place in range(5):
        np.testing.assert_array_equal((plain[place] != drawn[place]).any(2), hidden[place])
    red, green, blue = drawn[2][4, 6].astype(int)
    assert red > green + 50 and red > blue + 50
    assert (frames == film()).all(), "the frames themselves stay"
    np.testing.assert_array_equal(tinted(frames[0], np.ones((12, 16)), TINT)[0, 0], np.round(40 * 0.45 + np.array(TINT) * 0.55))


@pytest.mark.parametrize("wrong", [film()[0], film().astype(float), film()[:0]])
def test_what_is_no_film_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(HalfmaskError, match="expected \\(frames, height, width, 3\\)"):
        filmstrip(wrong)


@pytest.mark.parametrize("shape", [(4, 12, 16), (5, 12, 15), (12, 16)])
def test_a_mask_of_another_size_or_length_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(HalfmaskError, match="mask of a filmstrip"):
        filmstrip(film(), np.zeros(shape, bool))


def test_a_sheet_holds_every_strip_under_its_title() -> None:
    strips = [filmstrip(film()), filmstrip(film(3, 20, 30))]
    page = sheet(strips, ["a title that is much longer than its strip is wide, and is not cut", ""])
    for strip in strips:
        rows, columns = strip.shape[:2]
        places = [(page[top : top + rows, 8 : 8 + columns] == strip).all() for top in range(len(page) - rows + 1)]
        assert sum(places) == 1
    assert page.shape[1] > 300 and (page[:, -8:] == 255).all(), "the title is on the page, whole"
    assert sheet(strips).shape[0] < page.shape[0]
    with pytest.raises(HalfmaskError, match="2 filmstrips and 1 titles"):
        sheet(strips, ["one"])
    with pytest.raises(HalfmaskError, match="0 filmstrips"):
        sheet([], [])
