"""How good generated pictures are: how near their distribution is to real ones, and whether they show the pose that was asked for.

Distances are taken in what the shipped pose network sees (`models.judge`), not in the network for photographs of anything that is
customary: numbers are comparable among themselves, for as many pictures and the same judge, and with nobody else's. The judge stands
beside every number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from halfmask.errors import HalfmaskError
from halfmask.metrics.names import MetricInfo
from halfmask.metrics.pckh import JOINT_NAMES, head_size, pckh
from halfmask.models.judge import Judge, Sight, check_pictures, shipped_judge

METRICS = {
    "frechet_distance": MetricInfo("Fréchet distance", higher_is_better=False, digits=3),
    "generated_precision": MetricInfo("precision of samples", "%", digits=1),
    "generated_recall": MetricInfo("recall of samples", "%", digits=1),
    "pose_kept": MetricInfo("pose kept (PCKh@0.5)", "%", digits=1),
}
# Added to the variances, so that a direction in which pictures do not differ at all has a root that numbers can hold.
_REGULAR = 1e-6
_NEIGHBOURS = 3
# Rows of distances at once.
_CHUNK = 1024


@dataclass(frozen=True)
class PictureScores:
    """Numbers about generated pictures.

    Attributes:
        metrics: by the names of `METRICS`.
        judge: the network that looked.
        generated, real: how many pictures of each; distances shrink with more, so that only equal numbers compare.
    """

    metrics: dict[str, float]
    judge: str
    generated: int
    real: int

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {"metrics": dict(self.metrics), "judge": self.judge, "generated": self.generated, "real": self.real}


def judge_generated(
    generated: np.ndarray,
    real: np.ndarray,
    joints: np.ndarray | None = None,
    head_boxes: np.ndarray | None = None,
    neighbours: int = _NEIGHBOURS,
    judge: Judge | None = None,
) -> PictureScores:
    """All metrics of generated pictures, bytes N×3×H×W.

    Args:
        real: pictures of people like those that should be drawn, bytes M×3×H×W. Those of the test part: distance to the private ones
            themselves would be a read of them that nobody accounts for.
        joints: the poses that were asked for, N×16×3 (x, y, whether it is there) in MPII's order, in pixels of the generated pictures.
        head_boxes: as for `pose_kept`.
    """
    judge = judge or shipped_judge()
    check_pictures(generated, "generated pictures")
    check_pictures(real, "real pictures")
    seen, wanted = judge.look(generated), judge.look(real)
    precise, complete = precision_and_recall(seen.features, wanted.features, neighbours)
    metrics = {
        "frechet_distance": frechet_distance(seen.features, wanted.features),
        "generated_precision": 100 * precise,
        "generated_recall": 100 * complete,
    }
    if joints is not None:
        metrics["pose_kept"] = pose_kept(seen, joints, head_boxes)
    return PictureScores(metrics, judge.name, len(generated), len(real))


def frechet_distance(first: np.ndarray, second: np.ndarray) -> float:
    """The squared Fréchet distance of two sets of features (N×F, M×F), each taken as a normal distribution (Heusel et al., 2017).

    |m₁ − m₂|² + tr(S₁ + S₂ − 2 (S₁^½ S₂ S₁^½)^½): the symmetric form has real roots, whatever rounding does.
    """
    _check_features(first, second, 2)
    first, second = first.astype(np.float64), second.astype(np.float64)
    regular = _REGULAR * np.eye(first.shape[1])
    one, other = (np.atleast_2d(np.cov(features, rowvar=False)) + regular for features in (first, second))
    root = _root(one)
    between = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ other @ root), 0.0)).sum()
    gap = first.mean(0) - second.mean(0)
    return max(0.0, float(gap @ gap + np.trace(one) + np.trace(other) - 2 * between))


def precision_and_recall(generated: np.ndarray, real: np.ndarray, neighbours: int = _NEIGHBOURS) -> tuple[float, float]:
    """The share of generated pictures among the real ones, and of real ones among the generated (Kynkäänniemi et al., 2019).

    A picture is among a set if it is nearer to one of the set than that one's `neighbours`-th nearest in the set is.
    """
    _check_features(generated, real, neighbours + 1)
    generated, real = generated.astype(np.float64), real.astype(np.float64)
    return _among(generated, real, neighbours), _among(real, generated, neighbours)


def pose_kept(seen: Sight, joints: np.ndarray, head_boxes: np.ndarray | None = None) -> float:
    """PCKh@0.5 of the joints that the judge finds in pictures against those that were asked for, in percent.

    Args:
        head_boxes: N×4 in pixels of the pictures. Where there is none (or NaN), head sizes are the distance from neck to top of the head;
            people who have neither are not counted.
    """
    if joints.shape != (len(seen.joints), len(JOINT_NAMES), 3):
        raise HalfmaskError(
            f"the poses asked for have shape {joints.shape}: expected ({len(seen.joints)}, {len(JOINT_NAMES)}, 3) as x, y and whether the "
            "joint is there, in MPII's order, which is the judge's"
        )
    there = joints[..., 2] > 0
    top, neck = JOINT_NAMES.index("head_top"), JOINT_NAMES.index("upper_neck")
    sizes = np.where(there[:, top] & there[:, neck], np.linalg.norm(joints[:, top, :2] - joints[:, neck, :2], axis=1), np.nan)
    if head_boxes is not None:
        by_box = head_size(head_boxes)
        sizes = np.where(np.isfinite(by_box), by_box, sizes)
    usable = np.isfinite(sizes) & (sizes > 0)
    counted = there & usable[:, None]
    return pckh(seen.joints, joints[..., :2], counted, np.where(usable, sizes, 1.0)).mean


def _root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def _among(some: np.ndarray, others: np.ndarray, neighbours: int) -> float:
    # The nearest of a picture in its own set is itself.
    reach = np.concatenate([np.partition(rows, neighbours, 1)[:, neighbours] for rows in _distances(others, others)])
    return float(np.concatenate([(rows <= reach).any(1) for rows in _distances(some, others)]).mean())


def _distances(some: np.ndarray, others: np.ndarray) -> list[np.ndarray]:
    """Squared distances, by stretches of rows. By differences, not by products: equal pictures are at 0 and not at a rounding error."""
    found = []
    for start in range(0, len(some), _CHUNK):
        rows = some[start : start + _CHUNK]
        found.append(np.stack([((others - row) ** 2).sum(1) for row in rows]))
    return found


def _check_features(first: np.ndarray, second: np.ndarray, least: int) -> None:
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1] or min(len(first), len(second)) < least:
        raise HalfmaskError(
            f"features have shapes {first.shape} and {second.shape}: expected at least {least} pictures in each set, and as many features"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise HalfmaskError("features are not finite: the pictures came from a generator that diverged, there is nothing to judge")
