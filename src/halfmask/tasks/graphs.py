"""Networks as they are handed on: what comes before and after them is part of the graph, so that a program needs to know neither.

Bytes go in; what comes out is in pixels, chances and degrees. Each is an ordinary module, so that another runtime's answers can be held
against its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.data.figures import World
from halfmask.data.heatmaps import pose_heatmaps
from halfmask.data.skeleton import skeleton_with
from halfmask.metrics.calibration import SMALLEST, WITHIN, Calibration
from halfmask.models.hyperface import HyperFace
from halfmask.models.mvit import MViT
from halfmask.models.posegan import PoseGAN
from halfmask.models.simcc import PoseModel, decode, flip_back
from halfmask.tasks.answers import Graph

Pairs = tuple[tuple[int, int], ...]


class PoseGraph(nn.Module):
    """Crops in (N×3×H×W bytes, red first); joints in pixels of the crop (N×J×2) and their scores (N×J) out.

    Args:
        mirrored: joints that change places in a mirror image, if the network is to look at that too; it then takes twice as long.
        curve: slope and intercept of the calibration; without one, scores are the network's own.
    """

    def __init__(self, model: PoseModel, mirrored: Pairs | None = None, curve: tuple[float, float] | None = None):
        super().__init__()
        self.model, self.mirrored, self.curve = model, mirrored, curve

    def logits(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Before a bin is chosen."""
        x_logits, y_logits = self.model(image)
        if self.mirrored is None:
            return x_logits, y_logits
        x_mirror, y_mirror = self.model(image.flip(-1))
        x_mirror, y_mirror = flip_back(x_mirror, y_mirror, self.mirrored, self.model.bins_per_pixel)
        return (x_logits + x_mirror) / 2, (y_logits + y_mirror) / 2

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        joints, scores = decode(*self.logits(image), self.model.bins_per_pixel)
        if self.curve is not None:
            slope, intercept = self.curve
            scores = torch.sigmoid(slope * torch.log(scores.clamp(min=SMALLEST)) + intercept)
        return joints, scores

    @torch.no_grad()
    def undecided(self, image: Tensor, joints: Tensor, gap: float = 1e-4) -> Tensor:
        """Which joints (N×J), placed there by somebody else, are as good as ours: both bins of both axes are as likely, up to rounding.

        The chance of neighbouring bins is nearly the same at the top. Where it is the same to the last digits, another order of the same
        sums chooses the other bin.
        """
        as_good = torch.ones(joints.shape[:2], dtype=torch.bool)
        for axis, logits in enumerate(self.logits(image)):
            bins = (joints[..., axis] * self.model.bins_per_pixel).round().long().clamp(0, logits.shape[-1] - 1)
            there = logits.gather(-1, bins[..., None])[..., 0]
            as_good &= logits.max(-1).values - there < gap
        return as_good


class FaceGraph(nn.Module):
    """Square regions in (N×3×S×S bytes); one output for each task out, in chances, pixels of the region and degrees."""

    def __init__(self, model: HyperFace):
        super().__init__()
        self.model = model

    def forward(self, region: Tensor) -> tuple[Tensor, ...]:  # noqa: D102
        side = self.model.shape.input_size
        said = self.model(region)
        ready = {
            "detection": torch.sigmoid,
            "attribute": torch.sigmoid,
            "landmarks": lambda points: (points + 0.5) * side - 0.5,
            "visibility": lambda shares: shares.clamp(0, 1),
            "pose": torch.rad2deg,
        }
        return tuple(ready[name](said[name]) for name in self.model.subtasks)


class ActionGraph(nn.Module):
    """Clips in (N×T×3×H×W bytes); a chance for each class out."""

    def __init__(self, model: MViT):
        super().__init__()
        self.model = model

    def forward(self, clip: Tensor) -> Tensor:  # noqa: D102
        # Imported here because poses are exported without ever looking at actions.
        from halfmask.tasks.action import prepared

        scores: Tensor = self.model(prepared(clip))
        return scores.softmax(-1)


class GeneratorGraph(nn.Module):
    """Poses (N×J×3: x and y in pixels, 1 if known) and noise (N×latent) in; pictures (N×3×H×W bytes, red first) out."""

    def __init__(self, model: PoseGAN, spread: float):
        super().__init__()
        self.generator, self.size, self.spread = model.generator, (model.height, model.width), spread

    def forward(self, joints: Tensor, noise: Tensor) -> Tensor:  # noqa: D102
        pictures = self.generator(noise, pose_heatmaps(joints, self.size, self.spread))
        return ((pictures + 1) * 127.5).round().clamp(0, 255).byte()


def pose_graph(model: PoseModel, confidence: Mapping[str, Any], flip_test: bool) -> Graph:
    """Of a pose network, its scores turned into chances where it is known what they are worth."""
    skeleton, height_width = skeleton_with(model.joints), model.input_size
    known = confidence.get("flip" if flip_test else "plain")
    curve = None if known is None else Calibration.from_json(known)
    module = PoseGraph(model, skeleton.flip_pairs if flip_test else None, None if curve is None else (curve.slope, curve.intercept))

    def draw(count: int, seed: int) -> dict[str, Tensor]:
        """Drawn people: what a network says of noise is hardly ever clear-cut."""
        world = World("public", seed=seed, size=(height_width[0], height_width[1]))
        pictures = [world.figure(*who).image.transpose(2, 0, 1) for who in world.records(count)]
        return {"image": torch.from_numpy(np.stack(pictures))}

    facts = {
        "input": "N×3×H×W bytes: crops of one person each, red first, the box grown by a quarter in the network's aspect ratio",
        "input_size": list(height_width),
        "output": "joints: N×J×2, x and y in pixels of the crop; scores: N×J",
        "scores": "uncalibrated" if curve is None else f"chance that a joint is within {WITHIN} torso lengths of its place",
        "calibration": None if curve is None else curve.to_json(),
        "flip_test": flip_test,
        "skeleton": {"name": skeleton.name, "joints": skeleton.names, "flip_pairs": skeleton.flip_pairs, "bones": skeleton.edges},
    }
    return Graph(
        module,
        {"image": torch.zeros(2, 3, *height_width, dtype=torch.uint8)},
        # In pixels; a score is a chance.
        {"joints": 1e-3, "scores": 1e-3},
        facts,
        draw,
        lambda given, found: {"joints": module.undecided(given["image"], found["joints"])[..., None]},
    )


def face_graph(model: HyperFace) -> Graph:
    """Of a network for faces: what it says of a region; which regions to show it is the caller's to choose."""
    side = model.shape.input_size
    words = {
        "detection": "chance that the region shows a face",
        "landmarks": "N×K×2, x and y in pixels of the region",
        "visibility": "N×K, from 0 to 1",
        "pose": "roll, pitch and yaw in degrees",
        "attribute": "chance of the attribute",
    }
    facts = {
        "input": f"N×3×{side}×{side} bytes: square regions, red first",
        "input_size": [side, side],
        "output": {name: words[name] for name in model.subtasks},
    }
    tolerances = {name: 1e-3 if name == "landmarks" else 1e-2 if name == "pose" else 1e-4 for name in model.subtasks}
    example = {"region": torch.zeros(2, 3, side, side, dtype=torch.uint8)}
    return Graph(FaceGraph(model), example, tolerances, facts, lambda count, seed: {"region": _textures((count, 3, side, side), seed)})


def action_graph(model: MViT, classes: Sequence[str]) -> Graph:
    """Of a network for video."""
    shape = (model.frames, 3, model.side, model.side)
    facts = {
        "input": "N×T×3×H×W bytes: frames evenly spread over a window of a video, red first",
        "input_size": list(shape),
        "output": "chances: N×classes",
        "classes": list(classes),
    }
    example = {"clip": torch.zeros(2, *shape, dtype=torch.uint8)}
    return Graph(ActionGraph(model), example, {"chances": 1e-4}, facts, lambda count, seed: {"clip": _textures((count, *shape), seed)})


def generator_graph(model: PoseGAN, spread: float) -> Graph:
    """Of a generator."""
    latent, skeleton = model.shape.latent, skeleton_with(model.joints)

    def draw(count: int, seed: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        points = torch.rand(count, model.joints, 2, generator=generator) * torch.tensor([model.width, model.height])
        known = (torch.rand(count, model.joints, 1, generator=generator) < 0.9).float()
        return {"joints": torch.cat([points, known], -1), "noise": torch.randn(count, latent, generator=generator)}

    facts = {
        "input": "joints: N×J×3, x and y in pixels of the picture and 1 if known; noise: N×latent, standard normal",
        "input_size": [model.height, model.width],
        "output": "picture: N×3×H×W bytes, red first",
        "skeleton": {"name": skeleton.name, "joints": skeleton.names, "bones": skeleton.edges},
    }
    # Bytes: what is rounded may go either way.
    return Graph(GeneratorGraph(model, spread), draw(2, 0), {"picture": 1.0}, facts, draw)


def _textures(shape: tuple[int, ...], seed: int) -> Tensor:
    """Blurred noise, which has edges and areas as pictures have."""
    generator = torch.Generator().manual_seed(seed)
    flat = torch.rand(int(np.prod(shape[:-3])), *shape[-3:], generator=generator)
    soft = F.avg_pool2d(flat, 5, 1, 2)
    return ((soft - soft.amin()) / (soft.amax() - soft.amin()) * 255).to(torch.uint8).view(shape)
