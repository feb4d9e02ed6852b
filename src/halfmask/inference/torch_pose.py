"""The pose network of a run, as torch runs it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from halfmask.data.skeleton import Skeleton, skeleton_with
from halfmask.errors import HalfmaskError
from halfmask.metrics.calibration import Calibration
from halfmask.models.simcc import PoseModel
from halfmask.tasks import pose
from halfmask.training.outputs import CALIBRATION
from halfmask.training.runs import TrainedRun, read_json


@dataclass(frozen=True)
class TorchPose:
    """A pose network in memory.

    Attributes:
        curve: what its scores are worth; None if nobody knows.
        plain_curve: what they are worth without mirror images.
    """

    model: PoseModel
    words: str
    flip_test: bool
    device: torch.device | str
    curve: Calibration | None
    plain_curve: Calibration | None = None

    def plain(self) -> TorchPose:
        """The same without mirror images: half the work."""
        return replace(self, flip_test=False, curve=self.plain_curve)

    @property
    def skeleton(self) -> Skeleton:
        """What its joints are."""
        return skeleton_with(self.model.joints)

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of a crop."""
        height, width = self.model.input_size
        return height, width

    @property
    def calibrated(self) -> bool:
        """Whether its scores are chances."""
        return self.curve is not None

    def __call__(self, crops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Joints in pixels (N×J×2) and scores (N×J) of crops given as bytes (N×3×H×W)."""
        joints, scores = pose.predict(self.model, crops, self.flip_test, device=self.device)
        return joints, scores if self.curve is None else self.curve(scores)


def pose_of_run(trained: TrainedRun, flip_test: bool) -> TorchPose:
    """The network of a run of the task `pose`."""
    if not isinstance(trained.model, PoseModel):
        raise HalfmaskError(f"{trained.folder} is a run of the task '{trained.config.task}': poses need a run of the task 'pose'")
    curves = {name: Calibration.from_json(body) for name, body in (read_json(trained.folder / CALIBRATION) or {}).items()}
    words = f"'{trained.folder.resolve().name}'"
    return TorchPose(trained.model, words, flip_test, trained.device, curves.get("flip" if flip_test else "plain"), curves.get("plain"))
