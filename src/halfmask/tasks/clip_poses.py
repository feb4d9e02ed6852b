"""Poses of people in clips by one of our own pose networks: the joints that avatars are drawn from, where nobody annotated them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from halfmask.data.clips import Film, Take
from halfmask.data.images import crop_picture, to_image
from halfmask.data.mapping import map_joints
from halfmask.data.skeleton import MPII, skeleton_with
from halfmask.errors import HalfmaskError
from halfmask.models.simcc import PoseModel
from halfmask.tasks.pose import predict

EMBEDDED = "embedded"
# A person of fewer pixels shows no joints.
_FEWEST_PIXELS = 24


@dataclass(frozen=True)
class NetworkJoints:
    """What a pose network sees within the box of the person's mask, frame by frame, smoothed over three of them.

    The poses are estimates, and may be wrong; an avatar then does something else than the person did.
    """

    model: PoseModel
    words: str
    device: torch.device | str = "cpu"

    def __call__(self, take: Take, film: Film) -> np.ndarray | None:
        """Joints of the frames in which the mask shows somebody; None if it does in none."""
        assert film.person is not None
        seen = np.flatnonzero(film.person.sum(axis=(1, 2)) >= _FEWEST_PIXELS).tolist()
        if not seen:
            return None
        skeleton = skeleton_with(self.model.joints)
        # The box of one frame shakes with the mask; that of its neighbours too holds still.
        boxes = [_box(np.asarray(film.person[max(0, frame - 1) : frame + 2].any(axis=0))) for frame in seen]
        height, width = self.model.input_size
        crops, maps = zip(
            *(crop_picture(film.frames[frame], box, (height, width)) for frame, box in zip(seen, boxes, strict=True)), strict=True
        )
        pixels = np.ascontiguousarray(np.stack(crops).transpose(0, 3, 1, 2))
        with torch.no_grad():
            points, _ = predict(self.model, pixels, device=self.device, skeleton=skeleton)
        placed = np.stack([to_image(one, transform) for one, transform in zip(points, maps, strict=True)])
        # However unsure the network is: an avatar without a leg is of less use than one with a leg in the wrong place.
        joints, known = map_joints(skeleton, MPII).apply(placed, np.isfinite(placed).all(axis=2))
        found = np.full((len(film.frames), len(MPII), 2), np.nan)
        found[seen] = np.where(known[:, :, None], joints, np.nan)
        return smoothed(found)


def smoothed(joints: np.ndarray) -> np.ndarray:
    """Each joint as the middle one of its places in three frames: a network that confuses two limbs once does not show."""
    padded = np.pad(joints, ((1, 1), (0, 0), (0, 0)), mode="edge")
    three = np.stack([padded[:-2], padded[1:-1], padded[2:]])
    whole = np.isfinite(three).all(axis=(0, 3))
    return np.where(whole[:, :, None], np.median(np.nan_to_num(three), axis=0), joints)


def network_joints(named: str, device: str | None = None) -> NetworkJoints:
    """The network of a run's folder, or `embedded`: the one that comes with the package, which knows drawn people alone."""
    if named == EMBEDDED:
        from halfmask.models.pose import build_model
        from halfmask.training.config import RunConfig

        return NetworkJoints(build_model(RunConfig().model).eval(), "an estimate by the embedded pose network")
    from halfmask.training.runs import open_run

    trained = open_run(Path(named), device)
    if not isinstance(trained.model, PoseModel):
        raise HalfmaskError(f"{named} is a run of the task '{trained.config.task}': poses need a run of the task 'pose'")
    return NetworkJoints(trained.model, "an estimate by a pose network of Halfmask", trained.device)


def _box(mask: np.ndarray) -> tuple[float, float, float, float]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    x, y = float(columns[0]), float(rows[0])
    return x, y, float(columns[-1]) + 1 - x, float(rows[-1]) + 1 - y
