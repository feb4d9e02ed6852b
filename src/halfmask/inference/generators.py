"""A run of the task `generate`, opened to draw people with, and what is promised to those it was trained with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halfmask.data.mapping import map_joints
from halfmask.data.skeleton import MPII, skeleton_with
from halfmask.errors import HalfmaskError
from halfmask.inference.manifest import promises
from halfmask.models.posegan import PoseGAN
from halfmask.privacy.verification import verify_certificate
from halfmask.tasks.generate import GenerateTask
from halfmask.training.runs import open_run, read_json

CERTIFICATE = ("certificate.json", "certificate.md")


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
    events = _events(folder)
    # Pre-training on public people writes no noise down, and no certificate.
    private = any("noise_multiplier" in event for event in events)
    stopped = next((bool(event.get("interrupted")) for event in reversed(events) if event.get("event") == "end"), private)
    certificate = read_json(folder / CERTIFICATE[0])
    if stopped or (private and certificate is None):
        raise HalfmaskError(
            f"{folder} is unfinished: its training was stopped, diverged, or is going on. Finish it with 'halfmask train --resume --out "
            f"{folder}', or give a finished run"
        )
    cautions = []
    if certificate is None:
        cautions.append(
            f"the run '{folder.name}' has no certificate: nothing is promised to the people it was trained with, unless all are public"
        )
    else:
        wrong = next(
            (check.found for check in verify_certificate(folder / "model.safetensors", folder / CERTIFICATE[0], True) if not check.passed),
            None,
        )
        if wrong:
            raise HalfmaskError(
                f"the certificate of {folder} is about other weights than those beside it ({wrong}): restore both from one run"
            )
        if not promises(certificate):
            cautions.append(f"the certificate of '{folder.name}' promises nothing to the people it was trained with (ε is infinite)")
    return PersonGenerator(folder, trained.task, trained.model, certificate, tuple(cautions))


def _events(folder: Path) -> list[dict[str, Any]]:
    path = folder / "log.jsonl"
    try:
        return [json.loads(line) for line in path.read_text().splitlines() if line] if path.is_file() else []
    except ValueError:
        raise HalfmaskError(f"{path} cannot be read as a log: expected the file that 'halfmask train' wrote") from None
