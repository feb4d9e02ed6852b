"""Records in arrays: the form in which every dataset reaches training."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfmask.data.keyed import ids_of_positions, uniforms
from halfmask.data.skeleton import MPII, Skeleton
from halfmask.errors import HalfmaskError
from halfmask.privacy.fingerprints import Fingerprints

UNITS = ("crop", "image", "subject")


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
class PoseRecords:
    """Person crops with their joints.

    Attributes:
        images: bytes, N×3×H×W, un-augmented crops (the private part of a private record).
        joints: N×J×2 in crop pixels.
        labelled: N×J, whether the joint is annotated inside the crop (it may be occluded).
        head_boxes: N×4 (x1, y1, x2, y2) in crop pixels; the scale of PCKh. NaN where the dataset does not tell.
        image_ids: the image that each crop was cut from.
        subjects: the person on each crop, where the dataset tells.
        key: names this exact set of records in this exact order, for caches and fingerprints.
        views: ψ of every image, bytes, in the images' shape; present once a view was declared, and named by `view_key`.
        features: per source (`image`, `view`): the frozen lower part of a network applied to every record.
        skeleton: what the joints are.
        annotated: N×J, whether the joint is annotated anywhere, which is what benchmarks count; `labelled` if not given.
        unscored: names of joints that were derived from others: something to learn from, nothing to judge by.
        transforms: N×2×3, from image pixels to crop pixels, where predictions must find their way back.
        coco: what OKS-AP needs, for datasets that are scored by it.
        scenes: the kind of picture each record comes from, where the dataset tells.
        copies: the same records, in the same order, each time after another fixed random change, for networks whose lower part is
            computed once: their `features` and joints, not their pixels, show the change.
        prints: fingerprints of the photograph each record was cut from, of its annotation and of its subject.
        ids: 64 bits that name each record in public and stay when others leave: whatever is drawn at random for a record is drawn by
            its id (`halfmask.data.keyed`). Records made in memory, for a test, may do without and are named by their places.
    """

    images: np.ndarray
    joints: np.ndarray
    labelled: np.ndarray
    head_boxes: np.ndarray
    image_ids: np.ndarray
    key: str
    subjects: np.ndarray | None = None
    views: np.ndarray | None = None
    view_key: str = ""
    features: dict[str, np.ndarray] = field(default_factory=dict)
    skeleton: Skeleton = MPII
    annotated: np.ndarray | None = None
    unscored: tuple[str, ...] = ()
    transforms: np.ndarray | None = None
    coco: CocoTruth | None = None
    scenes: np.ndarray | None = None
    copies: tuple[PoseRecords, ...] = ()
    prints: Fingerprints | None = None
    ids: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.ids is None:
            object.__setattr__(self, "ids", ids_of_positions(len(self)))
        if len(self.ids) != len(self):
            raise HalfmaskError(f"{len(self)} records have {len(self.ids)} ids: expected one for each. Choose records with 'take'")

    def __len__(self) -> int:
        return len(self.joints)

    def batch(self, records: Tensor | np.ndarray, source: str = "image", device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """The records at these indices as tensors.

        Args:
            source: `image` for the private part, `view` for the public one.
        """
        index = np.asarray(records)
        batch = {
            "joints": torch.from_numpy(self.joints[index]),
            "labelled": torch.from_numpy(self.labelled[index]),
        }
        if source in self.features:
            batch["features"] = torch.from_numpy(np.ascontiguousarray(self.features[source][index])).float()
        else:
            batch["image"] = torch.from_numpy(np.ascontiguousarray(self._pixels(source)[index]))
        return {name: tensor.to(device) for name, tensor in batch.items()}

    def _pixels(self, source: str) -> np.ndarray:
        if source == "image":
            return self.images
        if self.views is None:
            raise HalfmaskError("these records have no public view: declare one with 'view' in the recipe")
        return self.views

    def take(self, records: np.ndarray) -> PoseRecords:
        """The records at these indices alone. Cached features do not come along."""
        return replace(
            self,
            images=self.images[records],
            joints=self.joints[records],
            labelled=self.labelled[records],
            head_boxes=self.head_boxes[records],
            image_ids=self.image_ids[records],
            subjects=None if self.subjects is None else self.subjects[records],
            views=None if self.views is None else self.views[records],
            features={},
            copies=(),
            annotated=None if self.annotated is None else self.annotated[records],
            transforms=None if self.transforms is None else self.transforms[records],
            coco=None if self.coco is None else self.coco.take(records),
            scenes=None if self.scenes is None else self.scenes[records],
            prints=None if self.prints is None else self.prints.take(records),
            ids=self.ids[records],
            key=f"{self.key}/{_digest(records)}",
        )

    def scored(self) -> np.ndarray:
        """N×J, the joints that a model is judged by: all that somebody annotated, in the crop or not."""
        known = np.asarray(self.labelled if self.annotated is None else self.annotated)
        return known & np.array([name not in self.unscored for name in self.skeleton.names])

    def unit_ids(self, unit: str) -> np.ndarray:
        """The unit that each record belongs to."""
        if unit == "crop":
            return np.arange(len(self))
        if unit == "image":
            return self.image_ids
        if self.subjects is None:
            raise HalfmaskError(
                "the unit 'subject' needs subject ids and this dataset has none: add them, or protect a 'crop' or an 'image'"
            )
        return self.subjects


class Units:
    """The records of each protected unit, at most `records_per_unit` of them.

    Which records of a large unit are kept is decided by numbers that a public seed draws for their ids: never by looking at them, nor at
    any other unit. Somebody who leaves takes nothing but their own records along.

    Args:
        ids: the records' stable public ids; by their places if not given.
    """

    def __init__(self, unit_ids: np.ndarray, records_per_unit: int, seed: int = 0, gradient: str = "mean", ids: np.ndarray | None = None):
        self.gradient = gradient
        if records_per_unit < 1:
            raise HalfmaskError(f"records_per_unit is {records_per_unit}: expected at least 1")
        drawn = uniforms(seed, "records of a unit", 0, ids_of_positions(len(unit_ids)) if ids is None else ids)[:, 0]
        order = np.lexsort((drawn, unit_ids))
        sorted_ids = unit_ids[order]
        starts = np.flatnonzero(np.r_[True, sorted_ids[1:] != sorted_ids[:-1]]) if len(order) else np.zeros(0, int)
        self.members = [np.sort(group[:records_per_unit]) for group in np.split(order, starts[1:])] if len(order) else []

    def __len__(self) -> int:
        return len(self.members)

    def records_of(self, units: Tensor) -> tuple[np.ndarray, Tensor, Tensor]:
        """Records of the chosen units, the unit of each, and the weight of each in its unit's gradient (a mean or a sum)."""
        groups = [self.members[unit] for unit in units.tolist()]
        if not groups:
            return np.zeros(0, dtype=np.int64), torch.zeros(0, dtype=torch.long), torch.zeros(0)
        sizes = torch.tensor([len(group) for group in groups])
        share = 1.0 / sizes if self.gradient == "mean" else torch.ones(len(sizes))
        return np.concatenate(groups), torch.repeat_interleave(units, sizes), torch.repeat_interleave(share, sizes)


def _digest(records: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(records, dtype=np.int64).tobytes()).hexdigest()[:12]
