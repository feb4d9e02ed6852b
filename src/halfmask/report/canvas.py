"""The few drawing tools that the pictures of a report share, on plain RGB arrays.

Plotly can only write a PNG by driving a browser, and Matplotlib would be one more heavy dependency; OpenCV is
already here, and its lines and letters are enough.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal

import cv2
import numpy as np

Colour = tuple[int, int, int]
Point = tuple[float, float]
Dash = Literal["solid", "dash", "dot", "dashdot"]

INK: Colour = (34, 34, 34)
FAINT_INK: Colour = (100, 100, 100)
GRID: Colour = (226, 226, 226)
WHITE: Colour = (255, 255, 255)

# Okabe and Ito's palette, which readers with any common colour blindness can tell apart.
PALETTE: tuple[Colour, ...] = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (0, 0, 0),
)

# Lengths of ink and gap, in turn, in pixels.
_DASH_LENGTHS: dict[Dash, tuple[float, ...]] = {
    "solid": (),
    "dash": (10.0, 6.0),
    "dot": (2.5, 5.0),
    "dashdot": (11.0, 5.0, 2.5, 5.0),
}

_FONT = cv2.FONT_HERSHEY_SIMPLEX
# OpenCV takes end points in fixed point; four bits place a line to a sixteenth of a pixel.
_SUBPIXEL_BITS = 4

# OpenCV 4 draws a question mark for any letter beyond ASCII; OpenCV 5 has a real font.
_FONT_HAS_SYMBOLS = int(cv2.__version__.split(".")[0]) >= 5
_ASCII_STAND_INS = str.maketrans({"ε": "epsilon", "±": "+/-", "∞": "inf", "—": "-", "–": "-", "×": "x"})


def blank(width: int, height: int) -> np.ndarray:
    """Start a white picture."""
    return np.full((height, width, 3), 255, dtype=np.uint8)


def text_size(text: str, size: float, weight: int = 1) -> tuple[int, int]:
    """Measure a line of text, so that room can be made for it before it is drawn."""
    (width, height), _ = cv2.getTextSize(_drawable(text), _FONT, size, weight)
    return width, height


def draw_text(
    image: np.ndarray,
    text: str,
    at: Point,
    size: float = 0.5,
    colour: Colour = INK,
    *,
    align: Literal["left", "centre", "right"] = "left",
    weight: int = 1,
) -> None:
    """Write one line with its vertical middle at `at`, which is its left end, centre or right end."""
    drawable = _drawable(text)
    width, _ = text_size(text, size, weight)
    # The height of a capital: letters that hang below the line must not shift the line up.
    (_, capital_height), _ = cv2.getTextSize("H", _FONT, size, weight)
    shift = {"left": 0.0, "centre": width / 2, "right": float(width)}[align]
    origin = (round(at[0] - shift), round(at[1] + 0.4 * capital_height))
    cv2.putText(image, drawable, origin, _FONT, size, colour, weight, cv2.LINE_AA)


def draw_upright(image: np.ndarray, text: str, at: Point, size: float = 0.5, colour: Colour = INK) -> None:
    """Write one line from bottom to top, which OpenCV cannot do itself: `at` is the middle of its upper end."""
    width, height = text_size(text, size)
    line = blank(width + 4, height + 8)
    draw_text(line, text, (2, height / 2 + 3), size, colour)
    turned = np.rot90(line)
    top, left = round(at[1]), round(at[0] - turned.shape[1] / 2)
    space = image[top : top + turned.shape[0], left : left + turned.shape[1]]
    space[:] = np.minimum(space, turned[: space.shape[0], : space.shape[1]])


def draw_line(image: np.ndarray, start: Point, end: Point, colour: Colour, thickness: int = 1, dash: Dash = "solid") -> None:
    """Draw a straight line with smooth edges."""
    draw_path(image, [start, end], colour, thickness, dash)


def draw_path(image: np.ndarray, points: list[Point], colour: Colour, thickness: int = 1, dash: Dash = "solid") -> None:
    """Draw connected lines; a dash pattern runs on around the corners."""
    for start, end in _dashes(points, _DASH_LENGTHS[dash]):
        cv2.line(image, _fixed(start), _fixed(end), colour, thickness, cv2.LINE_AA, _SUBPIXEL_BITS)


def draw_dot(image: np.ndarray, centre: Point, radius: float, colour: Colour) -> None:
    """Draw a filled circle with smooth edges."""
    radius_fixed = round(radius * (1 << _SUBPIXEL_BITS))
    cv2.circle(image, _fixed(centre), radius_fixed, colour, cv2.FILLED, cv2.LINE_AA, _SUBPIXEL_BITS)


def draw_error_bar(image: np.ndarray, low: Point, high: Point, colour: Colour, cap: float = 5.0, thickness: int = 1) -> None:
    """Draw a vertical or horizontal bar with a cap across each end."""
    draw_line(image, low, high, colour, thickness)
    across_x, across_y = (cap, 0.0) if low[0] == high[0] else (0.0, cap)
    for x, y in (low, high):
        draw_line(image, (x - across_x, y - across_y), (x + across_x, y + across_y), colour, thickness)


def fill_box(image: np.ndarray, corner: Point, opposite: Point, colour: Colour, opacity: float = 1.0) -> None:
    """Tint an upright box, letting what is beneath show through."""
    left, right = sorted((round(corner[0]), round(opposite[0])))
    top, bottom = sorted((round(corner[1]), round(opposite[1])))
    beneath = image[max(top, 0) : bottom, max(left, 0) : right]
    beneath[:] = np.round(beneath * (1 - opacity) + np.array(colour) * opacity).astype(np.uint8)


def nice_ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Choose round numbers whose first and last enclose the range."""
    span = max(high - low, 1e-9)
    rough = span / max(about - 1, 1)
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= rough * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    return [round(index * step, 10) for index in range(first, last + 1)]


def _drawable(text: str) -> str:
    return text if _FONT_HAS_SYMBOLS else text.translate(_ASCII_STAND_INS)


def _fixed(point: Point) -> tuple[int, int]:
    return round(point[0] * (1 << _SUBPIXEL_BITS)), round(point[1] * (1 << _SUBPIXEL_BITS))


def _dashes(points: list[Point], lengths: tuple[float, ...]) -> list[tuple[Point, Point]]:
    """Cut a path into the pieces that carry ink."""
    segments = list(itertools.pairwise(points))
    if not lengths:
        return segments
    pieces: list[tuple[Point, Point]] = []
    index, left_of_dash = 0, lengths[0]
    for (x0, y0), (x1, y1) in segments:
        length = math.hypot(x1 - x0, y1 - y0)
        done = 0.0
        while done < length:
            stretch = min(left_of_dash, length - done)
            if index % 2 == 0:
                ends = (done / length, (done + stretch) / length)
                start, end = ((x0 + (x1 - x0) * t, y0 + (y1 - y0) * t) for t in ends)
                pieces.append((start, end))
            done += stretch
            left_of_dash -= stretch
            if left_of_dash <= 1e-9:
                index = (index + 1) % len(lengths)
                left_of_dash = lengths[index]
    return pieces
