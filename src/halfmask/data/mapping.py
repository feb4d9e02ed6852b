"""From one dataset's joints to another's, by name: what makes a model trained on one dataset usable on the other.

A joint is *copied* where both skeletons have it, *derived* where it follows from others by a rule written down here, and *absent*
otherwise. Derived joints are good enough to learn from, and are never scored: nobody annotated them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from halfmask.data.skeleton import Skeleton, full_name

if TYPE_CHECKING:
    # Records are made of torch's tensors, and joints are mapped where there is no torch too.
    from halfmask.data.pose_records import PoseRecords

# Two datasets' words for one point of the body.
_SAME_POINT = {"neck": "upper_neck"}
# The middle of two joints, where a dataset does not annotate the point itself.
DERIVED: dict[str, tuple[str, str]] = {
    "pelvis": ("left_hip", "right_hip"),
    "thorax": ("left_shoulder", "right_shoulder"),
}


@dataclass(frozen=True)
class JointMapping:
    """How each joint of `target` is found in `source`.

    Attributes:
        sources: for each target joint, the source joints it is the mean of: one if copied, two if derived, none if absent.
    """

    source: Skeleton
    target: Skeleton
    sources: tuple[tuple[int, ...], ...]

    @property
    def derived(self) -> tuple[str, ...]:
        """Names of the target joints that nobody annotated."""
        return tuple(name for name, sources in zip(self.target.names, self.sources, strict=True) if len(sources) > 1)

    def apply(self, joints: np.ndarray, labelled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Joints (N×J×2) and labels (N×J) of the source as those of the target; an absent joint is at 0, 0 without a label."""
        count = len(joints)
        placed = np.zeros((count, len(self.target), 2), joints.dtype)
        known = np.zeros((count, len(self.target)), bool)
        for joint, sources in enumerate(self.sources):
            if sources:
                placed[:, joint] = joints[:, list(sources)].mean(1)
                known[:, joint] = labelled[:, list(sources)].all(1)
        return placed, known

    def rows(self) -> list[tuple[str, str, str]]:
        """The table to print: target joint, where it comes from, and how (copied, derived or absent)."""
        rows = []
        for name, sources in zip(self.target.names, self.sources, strict=True):
            found = " + ".join(self.source.names[joint] for joint in sources)
            kind = ("absent", "copied", "derived")[len(sources)]
            rows.append((name, f"mean of {found}" if len(sources) > 1 else found or "–", kind))
        return rows


def map_joints(source: Skeleton, target: Skeleton) -> JointMapping:
    """Find each joint of `target` in `source`."""
    where = {_point(name): joint for joint, name in enumerate(source.names)}
    sources: list[tuple[int, ...]] = []
    for name in target.names:
        point = _point(name)
        if point in where:
            sources.append((where[point],))
        elif all(part in where for part in DERIVED.get(point, ("",))):
            sources.append(tuple(where[part] for part in DERIVED[point]))
        else:
            sources.append(())
    return JointMapping(source, target, tuple(sources))


def with_skeleton(records: PoseRecords, target: Skeleton) -> PoseRecords:
    """The records with their joints as `target` has them. The images stay, so the records' fingerprints do too."""
    if records.skeleton == target:
        return records
    mapping = map_joints(records.skeleton, target)
    joints, labelled = mapping.apply(np.asarray(records.joints), np.asarray(records.labelled))
    annotated = None if records.annotated is None else mapping.apply(np.asarray(records.joints), np.asarray(records.annotated))[1]
    # OKS is defined on the joints that were annotated, not on what was made of them.
    coco = records.coco if target.oks_sigmas and not mapping.derived else None
    return records.changed(
        joints=joints,
        labelled=labelled,
        annotated=annotated,
        skeleton=target,
        unscored=mapping.derived,
        coco=coco,
        key=f"{records.key}/{target.name}",
    )


def _point(name: str) -> str:
    full = full_name(name)
    return _SAME_POINT.get(full, full)
