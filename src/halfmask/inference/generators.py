"""A run of the task `generate`, opened to draw people with, and what is promised to those it was trained with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halfmask.data.mapping import map_joints
from halfmask.data.skeleton import MPII, skeleton_with
from halfmask.errors import HalfmaskError
from halfmask.inference.finished import certificate_of_finished
from halfmask.inference.manifest import promises
from halfmask.models.posegan import PoseGAN
from halfmask.tasks.generate import GenerateTask
from halfmask.training.runs import open_run


@dataclass(frozen=True)
class PersonGenerator:
    """Draws people in given poses.

    Attributes:
        folder: that of the run.
        certificate: what the run's certificate says; None if it has none.
        cautions: what whoever uses it must know.
    """

    folder: Path
    task: GenerateTask
    model: PoseGAN
    certificate: dict[str, Any] | None
    cautions: tuple[str, ...]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of what is drawn."""
        return self.model.height, self.model.width

    @property
    def latent(self) -> int:
        """How many numbers an appearance is drawn from."""
        return self.model.shape.latent

    def draw(self, joints: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """People in the poses of N×16×3 MPII joints in pixels of what is drawn, from N×latent numbers: N×H×W×3 bytes, red first."""
        target = skeleton_with(self.model.joints)
        if target is not MPII:
            points, known = map_joints(MPII, target).apply(joints[:, :, :2], joints[:, :, 2] > 0)
            joints = np.concatenate([points, known[:, :, None]], 2)
        drawn = self.task.generated(self.model, torch.from_numpy(joints).float(), noise=torch.from_numpy(noise).float())
        return drawn.transpose(0, 2, 3, 1)


def open_generator(folder: Path, device: str | None = None) -> PersonGenerator:
    """Open a finished run; what is no generator, not finished or no longer what its certificate speaks of is refused."""
    trained = open_run(folder, device)
    if not isinstance(trained.task, GenerateTask) or not isinstance(trained.model, PoseGAN):
        raise HalfmaskError(
            f"{folder} is a run of the task '{trained.config.task}', which draws nobody: expected one of the task 'generate', such as "
            "'halfmask train generate/figures' writes"
        )
    weights = trained.model.generator.parameters()
    if not all(bool(tensor.isfinite().all()) for tensor in weights):
        raise HalfmaskError(f"the weights of {folder} are not finite numbers: its training diverged, so it cannot draw anybody")
    skeleton_with(trained.model.joints)
    certificate = certificate_of_finished(folder)
    cautions = []
    if certificate is None:
        cautions.append(
            f"the run '{folder.name}' has no certificate: nothing is promised to the people it was trained with, unless all are public"
        )
    elif not promises(certificate):
        cautions.append(f"the certificate of '{folder.name}' promises nothing to the people it was trained with (ε is infinite)")
    return PersonGenerator(folder, trained.task, trained.model, certificate, tuple(cautions))
