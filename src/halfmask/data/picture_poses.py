"""Poses of people on pictures, by a pose network: for datasets in which nobody annotated any joint.

What a network sees in a private picture is a function of that picture. The generator's poses are declared public, these as much as any
that somebody annotated, and the certificate says where they come from. They are estimates, and may be wrong: a generator then learns to
draw people whose limbs are elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import cv2
import numpy as np
import torch
import yaml
from torch import Tensor

from halfmask.data.images import crop_transform, to_image
from halfmask.data.mapping import map_joints
from halfmask.data.skeleton import MPII, skeleton_with
from halfmask.errors import HalfmaskError
from halfmask.models.checkpoints import load_into, read_state, weights_digest
from halfmask.models.simcc import PoseModel, decode, flip_back
from halfmask.models.tinyvit import SHAPES

EMBEDDED = "embedded"
# Pictures of people are cut closely. The networks learnt on crops with room round the person: so much is added, in the colours of the edge.
_GROW = 1.1


@dataclass(frozen=True)
class PoseNetwork:
    """A pose network that says where the joints of a person are who fills a picture.

    Attributes:
        words: where the joints come from, in the words of the certificate.
        stamp: changes with the weights, and with how pictures are shown to them.
    """

    model: PoseModel
    words: str

    @property
    def stamp(self) -> str:
        """For caches."""
        return f"{weights_digest(self.model)}/{self.model.input_size}/{_GROW}"

    @torch.no_grad()
    def __call__(self, pictures: Sequence[np.ndarray]) -> np.ndarray:
        """MPII's joints in the pixels of each picture, N×16×3, the third number how sure the network is; 0 for joints it does not know."""
        skeleton, size = skeleton_with(self.model.joints), self.model.input_size
        maps = [crop_transform((0, 0, one.shape[1], one.shape[0]), size, _GROW) for one in pictures]  # type: ignore[arg-type]
        crops = [
            cv2.warpAffine(one, where, size[::-1], flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
            for one, where in zip(pictures, maps, strict=True)
        ]
        pixels = torch.from_numpy(np.ascontiguousarray(np.stack(crops).transpose(0, 3, 1, 2)))
        points, sure = self._look(pixels, skeleton.flip_pairs)
        placed = np.stack([to_image(one, where) for one, where in zip(points, maps, strict=True)])
        # A score is carried over as a point is: of a joint that follows from two, the mean of theirs.
        mapping, everything = map_joints(skeleton, MPII), np.ones(sure.shape, bool)
        joints, known = mapping.apply(placed, everything)
        scores, _ = mapping.apply(np.stack([sure, sure], 2), everything)
        return np.concatenate([np.where(known[:, :, None], joints, 0), (scores[:, :, 0] * known)[:, :, None]], axis=2).astype(np.float32)

    def _look(self, pixels: Tensor, pairs: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, np.ndarray]:
        """Joints and scores, from crops and from their mirror images together."""
        x_logits, y_logits = self.model(pixels)
        x_mirror, y_mirror = self.model(pixels.flip(-1))
        x_back, y_back = flip_back(x_mirror, y_mirror, pairs, self.model.bins_per_pixel)
        x_logits, y_logits = (x_logits + x_back) / 2, (y_logits + y_back) / 2
        points, sure = decode(x_logits, y_logits, self.model.bins_per_pixel)
        return points.numpy(), sure.numpy()


def pose_network(named: str) -> PoseNetwork:
    """The network that comes with the package (`embedded`), of a run of the task `pose`, or of a weight file."""
    if named == EMBEDDED:
        path = Path(str(resources.files("halfmask").joinpath("weights/pose_nano.safetensors")))
        return PoseNetwork(_open(path), "estimates by the embedded pose network, which learnt from drawn people alone")
    path = Path(named).expanduser()
    if path.is_dir():
        path = path / "model.safetensors"
    return PoseNetwork(_open(path), "estimates by a pose network of Halfmask")


def _open(path: Path) -> PoseModel:
    """A whole pose model; what its shapes do not tell stands in `config.yaml` beside it, or is as it is by default."""
    state = read_state(path)
    parts = [state.get(f"head.{name}.weight") for name in ("conv", "x_bins", "y_bins")]
    if any(part is None for part in parts):
        raise HalfmaskError(f"{path} holds no pose network: expected a run of the task 'pose', or the weights of a whole pose model")
    joints, x_bins, y_bins = (part for part in parts if part is not None)
    # A side has as many bins as pixels times bins a pixel; cells are of 8×8 pixels.
    bins = max(1, round(math.sqrt(len(x_bins) * len(y_bins) / (64 * x_bins.shape[1]))))
    size = next((name for name, shape in SHAPES.items() if shape.widths[3] == joints.shape[1]), "nano")
    norm = "batch" if any(name.endswith("running_mean") for name in state) else "group"
    model = PoseModel(size, len(joints), (len(y_bins) // bins, len(x_bins) // bins), _stride(path.parent), norm, bins)
    load_into(model, state, str(path))
    return model.eval()


def _stride(folder: Path) -> int:
    path = folder / "config.yaml"
    try:
        body = yaml.safe_load(path.read_text()) if path.is_file() else {}
    except (OSError, ValueError, yaml.YAMLError):
        raise HalfmaskError(f"{path} cannot be read as settings: expected the file that 'halfmask train' wrote") from None
    model = body.get("model", {}) if isinstance(body, dict) else {}
    return int(model.get("stage4_stride", 2)) if isinstance(model, dict) else 2
