"""What the scores of a pose network are worth, told by public people whom it was not trained on."""

from __future__ import annotations

import numpy as np
import torch

from halfmask.data.mapping import with_skeleton
from halfmask.data.pose_records import PoseRecords
from halfmask.data.skeleton import skeleton_with
from halfmask.metrics.calibration import WITHIN, Calibration, fit
from halfmask.metrics.pck import torso_lengths
from halfmask.models.simcc import PoseModel
from halfmask.tasks.pose import predict

# So many people tell a curve of two numbers as well as all would.
_PEOPLE = 400


def calibrate_scores(model: PoseModel, public: PoseRecords, device: torch.device | str = "cpu") -> dict[str, Calibration]:
    """By whether mirror images are looked at too (`flip`) or not (`plain`): averaged logits are less sure, and more often right.

    Args:
        public: people nothing of whom is protected, and on whom nothing was trained: a network is too sure of those it knows.
    """
    own = public.skeleton if model.joints == len(public.skeleton) else skeleton_with(model.joints)
    some = public.take(np.arange(min(_PEOPLE, len(public))))
    assert isinstance(some, PoseRecords)
    images = np.asarray(some.images)
    some = with_skeleton(some, own)
    known, truth = np.asarray(some.scored(), bool), np.asarray(some.joints, np.float64)
    torsos = torso_lengths(truth, known, own)
    counted = known & np.isfinite(torsos)[:, None]
    found = {}
    for name, flip_test in (("plain", False), ("flip", True)):
        placed, scores = predict(model, images, flip_test, device=device, skeleton=own)
        with np.errstate(invalid="ignore"):
            right = np.linalg.norm(placed - truth, axis=2) <= WITHIN * torsos[:, None]
        curve = fit(scores[counted], right[counted])
        if curve is not None:
            found[name] = curve
    return found
