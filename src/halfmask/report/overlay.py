"""Pictures of poses: skeletons drawn over images, and sheets that set methods side by side."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from halfmask.data.skeleton import MPII, Skeleton
from halfmask.errors import HalfmaskError
from halfmask.report import canvas

# Vermilion, sky blue and yellow from the palette of Okabe and Ito: apart in lightness as well as in hue.
RIGHT: canvas.Colour = (213, 94, 0)
LEFT: canvas.Colour = (86, 180, 233)
TRUNK: canvas.Colour = (240, 228, 66)
_OUTLINE: canvas.Colour = (20, 20, 20)

_SIDE_COLOURS = {"right": RIGHT, "left": LEFT, "middle": TRUNK}


def draw_skeleton(
    image_rgb_uint8: np.ndarray,
    joints: np.ndarray,
    labelled: np.ndarray | None = None,
    *,
    scale: float = 1,
    skeleton: Skeleton = MPII,
    thickness: int | None = None,
) -> np.ndarray:
    """Draw a pose over an image, leaving the image itself unchanged.

    Args:
        image_rgb_uint8: H×W×3.
        joints: J×2 in the skeleton's order, in pixels of the image. Joints that are not finite are left out.
        labelled: Which of the joints to draw; all of them when not given.
        scale: Enlarges the picture before drawing, so that lines stay fine on small images.
        skeleton: What the joints are.
        thickness: Of lines, in pixels; by default for a person who fills the picture.
    """
    _check_image(image_rgb_uint8, "the image under a skeleton")
    joints = np.asarray(joints, dtype=np.float64)
    if joints.shape != (len(skeleton), 2):
        raise HalfmaskError(
            f"the joints of one person have shape {joints.shape}; expected ({len(skeleton)}, 2) in the order of {skeleton.name}: "
            "draw one person at a time"
        )
    shown = np.isfinite(joints).all(axis=1)
    if labelled is not None:
        shown &= np.asarray(labelled).astype(bool).reshape(len(skeleton))

    picture = _enlarged(image_rgb_uint8, scale)
    height, width = picture.shape[:2]
    # A diverged model may place joints anywhere; OpenCV's integers overflow long before a float does.
    reach = 4.0 * max(height, width)
    # Pixel centres sit at whole numbers, hence the half-pixel shifts around the enlargement.
    placed = np.clip((np.nan_to_num(joints, posinf=0.0, neginf=0.0) + 0.5) * scale - 0.5, -reach, reach)
    points: list[canvas.Point] = [(float(x), float(y)) for x, y in placed]

    thickness = thickness or max(2, round(max(height, width) / 110))
    outline = thickness + 2 * max(1, round(thickness / 3))
    limbs = [(points[a], points[b], _limb_colour(skeleton, a, b)) for a, b in skeleton.edges if shown[a] and shown[b]]
    dots = [(points[j], _SIDE_COLOURS[side]) for j, side in enumerate(skeleton.sides) if shown[j]]
    for start, end, _ in limbs:
        canvas.draw_line(picture, start, end, _OUTLINE, outline)
    for centre, _ in dots:
        canvas.draw_dot(picture, centre, thickness + (outline - thickness) / 2, _OUTLINE)
    for start, end, colour in limbs:
        canvas.draw_line(picture, start, end, colour, thickness)
    for centre, colour in dots:
        canvas.draw_dot(picture, centre, thickness, colour)
    return picture


def _limb_colour(skeleton: Skeleton, start: int, end: int) -> canvas.Colour:
    """A limb has the colour of its side; one between the sides, or along the middle, that of the trunk."""
    sides = {skeleton.sides[start], skeleton.sides[end]} - {"middle"}
    return _SIDE_COLOURS[sides.pop()] if len(sides) == 1 else TRUNK


def contact_sheet(rows: list[list[np.ndarray]], row_titles: list[str], column_titles: list[str]) -> np.ndarray:
    """Lay pictures out in a titled grid, to compare methods (columns) on the same people (rows).

    Pictures of different sizes are centred in equal cells. Long titles are broken into lines, and a column is
    widened when even one word is wider than its pictures, so that no title is cut.
    """
    _check_grid(rows, row_titles, column_titles)
    cell_height = max(cell.shape[0] for row in rows for cell in row)
    cell_width = max(cell.shape[1] for row in rows for cell in row)
    text = float(np.clip(cell_height / 420, 0.5, 1.1))
    line_height = round(canvas.text_size("H", text)[1] * 1.45)
    gap = max(6, cell_height // 32)

    headings = [_broken_to_width(title, cell_width, text) for title in column_titles]
    sides = [_broken_to_width(title, cell_width, text) for title in row_titles]
    # Two lines of letters must not be taller than the picture they stand beside.
    cell_height = max([cell_height, *(len(lines) * line_height for lines in sides)])
    cell_width = max([cell_width, *(canvas.text_size(line, text)[0] for lines in headings for line in lines)])
    side_width = max((canvas.text_size(line, text)[0] for lines in sides for line in lines), default=0)
    left = gap + (side_width + 2 * gap if side_width else 0)
    top = gap + max((len(lines) for lines in headings), default=0) * line_height + gap // 2

    sheet = canvas.blank(left + len(column_titles) * (cell_width + gap), top + len(rows) * (cell_height + gap))
    for index, lines in enumerate(headings):
        centre_x = left + index * (cell_width + gap) + cell_width / 2
        _draw_lines(sheet, lines, centre_x, top - gap // 2 - len(lines) * line_height, line_height, text, "centre")
    for row_index, (row, lines) in enumerate(zip(rows, sides, strict=True)):
        cell_top = top + row_index * (cell_height + gap)
        title_top = cell_top + (cell_height - len(lines) * line_height) // 2
        _draw_lines(sheet, lines, left - 2 * gap, title_top, line_height, text, "right")
        for column_index, cell in enumerate(row):
            height, width = cell.shape[:2]
            y = cell_top + (cell_height - height) // 2
            x = left + column_index * (cell_width + gap) + (cell_width - width) // 2
            sheet[y : y + height, x : x + width] = cell
    return sheet


def save_png(path: str | Path, image: np.ndarray) -> None:
    """Write an RGB picture, making the folders on the way to it."""
    _check_image(image, "the picture to save")
    path = Path(path)
    _, encoded = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded.tobytes())


def _enlarged(image: np.ndarray, scale: float) -> np.ndarray:
    if not scale > 0:
        raise HalfmaskError(f"the scale of a picture is {scale}; expected a positive number such as 1 or 2: set it so")
    if scale == 1:
        return np.ascontiguousarray(image).copy()
    height, width = image.shape[:2]
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return cv2.resize(np.ascontiguousarray(image), size, interpolation=cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA)


def _broken_to_width(title: str, width: int, text: float) -> list[str]:
    """Break a title between words, or after hyphens, wherever the next piece would not fit."""
    lines: list[str] = []
    for piece in title.replace("-", "-\0").replace(" ", " \0").split("\0"):
        if lines and canvas.text_size((lines[-1] + piece).rstrip(), text)[0] <= width:
            lines[-1] += piece
        else:
            lines.append(piece)
    return [line.rstrip() for line in lines if line.strip()]


def _draw_lines(sheet: np.ndarray, lines: list[str], x: float, top: float, line_height: int, text: float, align: str) -> None:
    for index, line in enumerate(lines):
        middle = top + (index + 0.5) * line_height
        canvas.draw_text(sheet, line, (x, middle), text, align="centre" if align == "centre" else "right")


def _check_image(image: np.ndarray, name: str) -> None:
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
        raise HalfmaskError(
            f"{name} has shape {image.shape} and type {image.dtype}; expected (height, width, 3) of uint8: "
            "convert it to RGB with values from 0 to 255"
        )


def _check_grid(rows: list[list[np.ndarray]], row_titles: list[str], column_titles: list[str]) -> None:
    if not rows or not column_titles:
        raise HalfmaskError(
            f"a contact sheet was given {len(rows)} rows and {len(column_titles)} columns; expected at "
            "least one of each: choose some pictures to show"
        )
    if len(row_titles) != len(rows):
        raise HalfmaskError(
            f"a contact sheet was given {len(rows)} rows and {len(row_titles)} row titles; expected as many "
            "of one as of the other: give an empty title where none is wanted"
        )
    for index, row in enumerate(rows):
        if len(row) != len(column_titles):
            raise HalfmaskError(
                f"row {index} of a contact sheet has {len(row)} pictures for {len(column_titles)} column "
                "titles; expected one picture for each: add the missing pictures or titles"
            )
        for cell in row:
            _check_image(cell, f"a picture in row {index} of a contact sheet")
