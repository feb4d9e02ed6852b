"""Person crops with their joints: the records of the pose task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from halfmask.data.records import Records
from halfmask.data.skeleton import MPII, Skeleton
from halfmask.data.tables import Arrays, Column
from halfmask.privacy.fingerprints import Fingerprints

if TYPE_CHECKING:
    from typing_extensions import Self

UNITS = ("crop", "image", "subject")

# What a crop's columns are called, and where they lie.
_PLACES = {
    "images": ("private", "image"),
    "views": ("public", "image"),
    "joints": ("targets", "joints"),
    "labelled": ("targets", "labelled"),
    "head_boxes": ("truth", "head_boxes"),
    "annotated": ("truth", "annotated"),
    "transforms": ("truth", "transforms"),
    "scenes": ("truth", "scenes"),
}
_UNITS = {"image_ids": "image", "subjects": "subject"}


@dataclass(frozen=True)
class CocoTruth:
    """What OKS-AP asks beyond crops: it is scored on whole images, with people whom no record shows.

    Attributes:
        image_ids, annotation_ids, box_scores: of each record; a detected box has annotation 0.
        images: every image that is scored.
        annotations: every annotation of those images, as COCO writes them.
        detected: whether the boxes come from a detector, so that one person may have several.
    """

    image_ids: np.ndarray
    annotation_ids: np.ndarray
    box_scores: np.ndarray
    images: tuple[int, ...]
    annotations: tuple[dict[str, Any], ...]
    detected: bool = False

    def take(self, records: np.ndarray) -> CocoTruth:
        """The truth for these records alone: their images, and of annotated people only those taken."""
        images = frozenset(self.image_ids[records].tolist())
        people = frozenset(self.annotation_ids[records].tolist())
        kept = (one for one in self.annotations if one["image_id"] in images and (self.detected or one["id"] in people))
        return replace(
            self,
            image_ids=self.image_ids[records],
            annotation_ids=self.annotation_ids[records],
            box_scores=self.box_scores[records],
            images=tuple(image for image in self.images if image in images),
            annotations=tuple(kept),
        )


@dataclass(frozen=True)
class PoseRecords(Records):
    """Person crops with their joints; made by `pose_records`, and under other columns by `changed`.

    Attributes:
        skeleton: what the joints are.
        unscored: names of joints that were derived from others: something to learn from, nothing to judge by.
        coco: what OKS-AP needs, for datasets that are scored by it.
    """

    skeleton: Skeleton = MPII
    unscored: tuple[str, ...] = ()
    coco: CocoTruth | None = None

    @property
    def images(self) -> Any:
        """Bytes, N×3×H×W, un-augmented crops (the private part of a private record)."""
        return self._column("images")

    @property
    def views(self) -> Any:
        """ψ of every image, bytes, in the images' shape; None before a view was declared."""
        return self._column("views")

    @property
    def joints(self) -> np.ndarray:
        """N×J×2 in crop pixels."""
        return self._column("joints")

    @property
    def labelled(self) -> np.ndarray:
        """N×J, whether the joint is annotated inside the crop (it may be occluded)."""
        return self._column("labelled")

    @property
    def head_boxes(self) -> np.ndarray:
        """N×4 (x1, y1, x2, y2) in crop pixels; the scale of PCKh. NaN where the dataset does not tell."""
        return self._column("head_boxes")

    @property
    def annotated(self) -> np.ndarray | None:
        """N×J, whether the joint is annotated anywhere, which is what benchmarks count; `labelled` if None."""
        return self._column("annotated")

    @property
    def transforms(self) -> np.ndarray | None:
        """N×2×3, from image pixels to crop pixels, where predictions must find their way back."""
        return self._column("transforms")

    @property
    def scenes(self) -> np.ndarray | None:
        """The kind of picture each record comes from, where the dataset tells."""
        return self._column("scenes")

    @property
    def image_ids(self) -> np.ndarray:
        """The image that each crop was cut from."""
        return self.units["image"]

    @property
    def subjects(self) -> np.ndarray | None:
        """The person on each crop, where the dataset tells."""
        return self.units.get("subject")

    def _column(self, name: str) -> Any:
        place, column = _PLACES[name]
        table = getattr(self, place)
        return None if table is None else table.columns.get(column)

    def take(self, records: np.ndarray) -> Self:  # noqa: D102
        return replace(super().take(records), coco=None if self.coco is None else self.coco.take(np.asarray(records)))

    def joined(self, other: Self) -> Self:  # noqa: D102
        return replace(super().joined(other), coco=None, truth=self.truth.joined(other.truth))

    def changed(self, **columns: Any) -> Self:
        """These records with other columns (`images`, `joints`, `subjects`, …); whatever else is named is a field of the records."""
        tables: dict[str, dict[str, Any]] = {}
        units = dict(self.units)
        others = {}
        for name, value in columns.items():
            if name in _PLACES:
                place, column = _PLACES[name]
                tables.setdefault(place, {})[column] = value
            elif name in _UNITS:
                units[_UNITS[name]] = value
            else:
                others[name] = value
        found: dict[str, Any] = {}
        for place, values in tables.items():
            table = (getattr(self, place) or Arrays({})).changed(**values)
            found[place] = None if place == "public" and not table.columns else table
        return replace(self, units={name: ids for name, ids in units.items() if ids is not None}, **found, **others)

    def scored(self) -> np.ndarray:
        """N×J, the joints that a model is judged by: all that somebody annotated, in the crop or not."""
        known = np.asarray(self.labelled if self.annotated is None else self.annotated)
        return known & np.array([name not in self.unscored for name in self.skeleton.names])


def pose_records(
    images: Column,
    joints: np.ndarray,
    labelled: np.ndarray,
    head_boxes: np.ndarray,
    image_ids: np.ndarray,
    key: str,
    subjects: np.ndarray | None = None,
    skeleton: Skeleton = MPII,
    annotated: np.ndarray | None = None,
    transforms: np.ndarray | None = None,
    coco: CocoTruth | None = None,
    scenes: np.ndarray | None = None,
    prints: Fingerprints | None = None,
    ids: np.ndarray | None = None,
) -> PoseRecords:
    """Records from the arrays of a dataset; what each is, `PoseRecords` says."""
    truth = {"head_boxes": head_boxes, "annotated": annotated, "transforms": transforms, "scenes": scenes}
    units = {"image": image_ids} | ({} if subjects is None else {"subject": subjects})
    return PoseRecords(
        private=Arrays({"image": images}),
        targets=Arrays({"joints": joints, "labelled": labelled}),
        truth=Arrays({name: column for name, column in truth.items() if column is not None}),
        units=units,
        own_unit="crop",
        shown_together=("image",),
        key=key,
        skeleton=skeleton,
        coco=coco,
        prints=prints,
        ids=ids,  # type: ignore[arg-type]
    )


def mislabelled(strangers: PoseRecords, members: PoseRecords, chosen: np.ndarray) -> PoseRecords:
    """The chosen strangers, each with the joints of the next, as units of their own after all members."""
    crops, poses = strangers.take(chosen), strangers.take(np.roll(chosen, -1))
    # Numbers above everyone's: whatever the unit is, a planted person shares it with nobody.
    own = np.arange(len(chosen))
    subjects = None if members.subjects is None else int(members.subjects.max()) + 1 + own
    return crops.changed(
        joints=poses.joints,
        labelled=poses.labelled,
        head_boxes=poses.head_boxes,
        annotated=poses.annotated,
        image_ids=int(members.image_ids.max()) + 1 + own,
        subjects=subjects,
        coco=None,
        transforms=None,
        key=f"{crops.key}/mislabelled",
    )
