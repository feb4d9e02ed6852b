"""Photographs with faces, and regions of them: what every dataset of faces is read into, and the records of the face task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from halfmask.data.records import Records
from halfmask.data.tables import Arrays, Column
from halfmask.privacy.fingerprints import Fingerprints

UNITS = ("region", "image", "subject")


@dataclass(frozen=True)
class Layout:
    """Which landmarks a dataset has.

    Attributes:
        name: what the layout is called: `aflw21`, `dlib68`, `figures`.
        mirror: the landmark that each becomes in a mirror image.
    """

    name: str
    mirror: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.mirror)


@dataclass(frozen=True)
class Face:
    """One annotated face of a photograph, in its pixels.

    Attributes:
        box: left, top, width, height.
        landmarks: K×2; NaN where nobody annotated one.
        visible: K, whether each landmark can be seen; where a dataset does not say, whether it is annotated.
        pose: roll, pitch, yaw in degrees; NaN where they are not known.
        attribute: 0 or 1; NaN where it is not known.
        subject: who it is, where the dataset tells.
    """

    box: tuple[float, float, float, float]
    landmarks: np.ndarray
    visible: np.ndarray
    pose: np.ndarray
    attribute: float = float("nan")
    subject: str | None = None


@dataclass(frozen=True)
class Photograph:
    """A picture and its faces; the picture is opened when it is asked for.

    Attributes:
        name: names it within its dataset, in public and for good: draws are keyed by it.
        read: gives it, H×W×3 bytes, red first.
    """

    name: str
    read: Callable[[], np.ndarray] = field(repr=False, compare=False)
    faces: tuple[Face, ...]


@dataclass(frozen=True)
class FaceRecords(Records):
    """Regions of photographs: faces, and places where there is none. Made by `face_records`.

    Attributes:
        layout: which landmarks.
        attribute: what the dataset calls its binary attribute; empty where it has none.
    """

    layout: Layout = Layout("none", ())
    attribute: str = ""


def face_records(
    images: Column,
    targets: dict[str, Any],
    truth: dict[str, Any],
    image_ids: np.ndarray,
    key: str,
    layout: Layout,
    attribute: str = "",
    subjects: np.ndarray | None = None,
    prints: Fingerprints | None = None,
    ids: np.ndarray | None = None,
) -> FaceRecords:
    """Records from the arrays of a dataset.

    Args:
        images: regions, bytes N×3×S×S.
        targets: `face` (1 for a face, 0 for none), `landmarks` (N×K×2, as shares of the region from its centre, so from −½ to ½ inside;
            0 where not visible), `visible` (N×K, 0 or 1), `pose` (N×3, roll, pitch and yaw in radians; 0 where unknown), `posed` (whether
            it is known), `attribute` (0 or 1) and `attributed` (whether it is known): float32 all, and nothing but zeros for a region
            without a face.
        truth: `boxes` (N×4, the region in the pixels of its photograph: left, top, width, height), `face_boxes` (N×4, of the face it
            shows; NaN for none), `overlaps` (N, how much of both the two share).
    """
    return FaceRecords(
        private=Arrays({"image": images}),
        targets=Arrays({name: np.asarray(column, np.float32) for name, column in targets.items()}),
        truth=Arrays(truth),
        units={"image": image_ids} | ({} if subjects is None else {"subject": subjects}),
        own_unit="region",
        shown_together=("image",),
        key=key,
        layout=layout,
        attribute=attribute,
        prints=prints,
        ids=ids,  # type: ignore[arg-type]
    )
