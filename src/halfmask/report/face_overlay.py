"""Pictures of faces: boxes, landmarks and the axes of a head, drawn over images."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from halfmask.report import canvas

# Of the palette of Okabe and Ito: apart in lightness as well as in hue.
BOX: canvas.Colour = (240, 228, 66)
SEEN: canvas.Colour = (0, 200, 140)
HIDDEN: canvas.Colour = (213, 94, 0)
_AXES: tuple[canvas.Colour, ...] = ((213, 94, 0), (0, 200, 140), (86, 180, 233))
_OUTLINE: canvas.Colour = (20, 20, 20)


def draw_face(
    image: np.ndarray,
    landmarks: np.ndarray,
    visible: np.ndarray | None = None,
    box: Sequence[float] | None = None,
    pose: np.ndarray | None = None,
    label: str = "",
    scale: float = 1,
) -> np.ndarray:
    """Draw what is known of one face over an image, leaving the image itself unchanged.

    Args:
        image: H×W×3 bytes.
        landmarks: K×2 in pixels of the image; those that are not finite are not drawn.
        visible: K; those below ½ are drawn as hidden.
        box: left, top, width, height; one that is not finite is not drawn.
        pose: roll, pitch and yaw in degrees, drawn as the head's axes from the middle of the box: to its left, down, and out of the face.
        scale: enlarges the picture before drawing, so that lines stay fine on small images.
    """
    picture = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC) if scale != 1 else image.copy()
    size = max(picture.shape[:2])
    thin = max(1, round(size / 220))
    # A network that has gone astray may place points anywhere; OpenCV's integers overflow long before a float does.
    far = 4.0 * size
    if box is not None and not np.isfinite(box).all():
        box = None
    if box is not None:
        left, top, width, height = (float(np.clip(side * scale, -far, far)) for side in box)
        corners = [(left, top), (left + width, top), (left + width, top + height), (left, top + height)]
        for start, end in zip(corners, corners[1:] + corners[:1], strict=True):
            canvas.draw_line(picture, start, end, _OUTLINE, thin + 2)
        for start, end in zip(corners, corners[1:] + corners[:1], strict=True):
            canvas.draw_line(picture, start, end, BOX, thin)
    points = np.asarray(landmarks, float).reshape(-1, 2)
    seen = np.ones(len(points)) if visible is None or not len(visible) else np.asarray(visible, float)
    known = np.isfinite(points).all(1)
    points, seen = np.clip(points[known] * scale, -far, far), seen[known]
    radius = max(1.2, size / 170) * (1.0 if len(points) < 40 else 0.75)
    for (x, y), sure in zip(points, seen, strict=True):
        canvas.draw_dot(picture, (float(x), float(y)), radius + 1, _OUTLINE)
        canvas.draw_dot(picture, (float(x), float(y)), radius, SEEN if sure >= 0.5 else HIDDEN)
    if pose is not None and np.isfinite(pose).all():
        _draw_axes(picture, points, None if box is None else (left, top, width, height), pose, thin + 1)
    if label and box is not None:
        canvas.draw_text(picture, label, (left + 3, top - 4), size=max(0.35, size / 700), colour=BOX)
    return picture


def head_axes(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """Where the head's three axes point on the image, a row each: to the image's right, down, and out of the face.

    Angles in degrees: roll > 0 turns clockwise as seen, pitch > 0 looks down, yaw > 0 looks to the image's left.
    """
    r, p, y = np.deg2rad([roll, pitch, yaw])
    # Right, down and towards the viewer; a head that faces the viewer points along the last.
    turn = np.array([[np.cos(y), 0, -np.sin(y)], [0, 1, 0], [np.sin(y), 0, np.cos(y)]])
    nod = np.array([[1, 0, 0], [0, np.cos(p), np.sin(p)], [0, -np.sin(p), np.cos(p)]])
    tilt = np.array([[np.cos(r), -np.sin(r), 0], [np.sin(r), np.cos(r), 0], [0, 0, 1]])
    axes: np.ndarray = (tilt @ turn @ nod).T
    return axes[:, :2]


def _draw_axes(picture: np.ndarray, points: np.ndarray, box: Sequence[float] | None, pose: np.ndarray, width: int) -> None:
    if box is not None:
        middle = np.array([box[0] + box[2] / 2, box[1] + box[3] / 2])
        length = 0.4 * min(box[2], box[3])
    elif len(points):
        middle, length = points.mean(0), 0.4 * float(np.ptp(points, axis=0).min())
    else:
        return
    for axis, colour in zip(head_axes(*(float(angle) for angle in pose)), _AXES, strict=True):
        end = middle + length * axis
        canvas.draw_line(picture, (float(middle[0]), float(middle[1])), (float(end[0]), float(end[1])), colour, width)
