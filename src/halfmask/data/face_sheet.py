"""A picture of some faces of a dataset with their annotations, for whoever holds it."""

from __future__ import annotations

import cv2
import numpy as np

from halfmask.data.crops import box_problem
from halfmask.data.face_files import FaceSet
from halfmask.data.faces import Face, Photograph
from halfmask.report.face_overlay import draw_face
from halfmask.report.overlay import contact_sheet

# How much is shown round a face, as a share of its longer side.
_ROOM = 0.35


def sheet_of_faces(faces: FaceSet, count: int = 12, columns: int = 6, side: int = 224) -> np.ndarray:
    """A picture of faces with their boxes, landmarks and head axes, spread over the dataset: what is wrong shows at a glance."""
    everyone = [(one, face) for photographs in faces.parts.values() for one in photographs for face in one.faces]
    spread = np.unique(np.linspace(0, len(everyone) - 1, min(count, len(everyone))).astype(int))
    drawn = (_pictured(photograph, face, side) for photograph, face in (everyone[place] for place in spread))
    pictures = [picture for picture in drawn if picture is not None]
    columns = max(1, min(columns, len(pictures)))
    blank = np.full((side, side, 3), 255, np.uint8)
    pictures += [blank] * (-len(pictures) % columns or (columns if not pictures else 0))
    rows = [pictures[start : start + columns] for start in range(0, len(pictures), columns)]
    return contact_sheet(rows, [""] * len(rows), [""] * columns)


def _pictured(photograph: Photograph, face: Face, side: int) -> np.ndarray | None:
    """A face with what is round it, drawn over; nothing where it cannot be shown."""
    try:
        image = photograph.read()
    except Exception:
        return None
    rows, columns = image.shape[:2]
    if box_problem(face.box, (rows, columns)):
        return None
    left, top, width, height = face.box
    room = _ROOM * max(width, height)
    x0, y0 = max(0, int(left - room)), max(0, int(top - room))
    cut = image[y0 : min(rows, int(top + height + room) + 1), x0 : min(columns, int(left + width + room) + 1)]
    scale = side / max(cut.shape[:2])
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    shape = (max(1, round(cut.shape[1] * scale)), max(1, round(cut.shape[0] * scale)))
    points = (np.asarray(face.landmarks, float) - [x0, y0] + 0.5) * scale - 0.5
    box = ((left - x0) * scale, (top - y0) * scale, width * scale, height * scale)
    return draw_face(cv2.resize(cut, shape, interpolation=how), points, face.visible, box, face.pose)
