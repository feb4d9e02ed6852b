"""Can a person be drawn again from one update?

The network is not the released pose model. It is a small pose network that begins with a fully connected layer, because there the attack is
exact: the gradient of that layer is an outer product of which one factor is the image. It is the worst case an attacker could hope for. The
loss, the clipping engine, the mechanism and its noise are the real ones. The attacker sees the update of a step with one person in it,
knows the network, the clip norm and the noise level, has public people to learn from, and is even *given* the other factor of the product,
which a real one would have to guess from labels and activations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.audit.likeness import psnr, ssim
from halfmask.data.figures_records import figures_records
from halfmask.data.pose_records import PoseRecords
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.mechanism import Mechanism
from halfmask.models.simcc import PoseModel, normalise
from halfmask.privacy.accounting import calibrate
from halfmask.privacy.noise import RandomStream
from halfmask.report.overlay import contact_sheet
from halfmask.tasks.pose import pose_loss

SIZE = (96, 72)
DELTA, CLIP_NORM = 1e-5, 1.0
_HIDDEN, _PUBLIC = 32, 48
# Widths of the blur an attacker may try against noise, in pixels.
_SMOOTHINGS = (0.0, 1.0, 2.0, 4.0, 8.0)

CANNOT_SEE = (
    "other networks: an iterative attack on a TinyViT of 64×48 pixels, cosine matching of all gradients for 300 steps, gave nothing to "
    "recognise, which proves nothing about a better one",
    "many steps on the same person: the ε of a training covers them together, this picture shows one step at that ε",
    "a person whose public view, under a feature method, already shows them",
)


class FirstLayerNetwork(PoseModel):
    """A fully connected layer on the pixels, a smooth bend, and bins for each joint."""

    def __init__(self, joints: int, input_size: tuple[int, int] = SIZE, seed: int = 0):
        nn.Module.__init__(self)
        self.input_size, self.joints, self.bins_per_pixel = input_size, joints, 1
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Linear(3 * input_size[0] * input_size[1], _HIDDEN)
        self.last = nn.Linear(_HIDDEN, joints * sum(input_size))
        for layer in (self.first, self.last):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5, generator=generator)
            nn.init.zeros_(layer.bias)

    def lower(self, images: Tensor) -> Tensor:
        """The pixels themselves."""
        return normalise(images).flatten(1)

    def upper(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits over columns and rows."""
        logits = self.last(F.gelu(self.first(features))).view(len(features), self.joints, -1)
        return logits[..., : self.input_size[1]], logits[..., self.input_size[1] :]


def audit_inversion(
    epsilons: Sequence[float] = (200.0, 8.0, 0.8),
    people: int = 3,
    seed: int = 0,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[dict[str, Any], np.ndarray]:
    """Attack one step on each of a few people of `figures`; the content of the audit's file, and the pictures side by side."""
    if people < 1:
        raise HalfmaskError(f"{people} people to attack: expected at least 1")
    tell("drawing people")
    targets = figures_records("private", people, seed, size=SIZE)
    public = figures_records("public", _PUBLIC, seed, size=SIZE)
    network = FirstLayerNetwork(targets.joints.shape[1], seed=seed)
    attacker = _Attacker(network, public)
    releases: list[tuple[str, float | None, float]] = [("no privacy", None, 0.0), ("clipped, no noise", None, 0.0)]
    releases += [(f"ε = {epsilon:g}", epsilon, calibrate(epsilon, DELTA, 1.0, 1)) for epsilon in epsilons]
    rows = [[_pixels(image)] for image in targets.images]
    columns = []
    for number, (name, epsilon, sigma) in enumerate(releases):
        tell(f"attacking: {name}")
        recipe = attacker.choose(sigma, seed + 1000 * number)
        scores, controls = [], []
        for person in range(people):
            given = _other_factor(network, targets, person)
            update = _update(network, targets, person, sigma, clipped=number > 0, seed=seed + 1000 * number + 100 + person)
            picture = attacker.recover(update, given, recipe)
            rows[person].append(picture)
            scores.append((psnr(picture, rows[person][0]), ssim(picture, rows[person][0])))
            if sigma > 0:
                empty = _update(network, targets, None, sigma, clipped=True, seed=seed + 1000 * number + 500 + person)
                nobody = attacker.recover(empty, given, recipe)
                controls.append((psnr(nobody, rows[person][0]), ssim(nobody, rows[person][0])))
        columns.append(
            {"release": name, "epsilon": epsilon, "noise_multiplier": round(sigma, 4)}
            | _mean_scores(scores)
            | {"without_the_person": _mean_scores(controls) if controls else None}
        )
    trivial = _mean_scores([(psnr(attacker.average, row[0]), ssim(attacker.average, row[0])) for row in rows])
    body = {
        "audit": "inversion",
        "network": f"fully connected first layer of {_HIDDEN} units on {SIZE[0]}×{SIZE[1]} pixels, GELU, one bin per pixel for each joint "
        "(not the released pose model)",
        "people": people,
        "seed": seed,
        "delta": DELTA,
        "clip_norm": CLIP_NORM,
        "columns": columns,
        "average_public_person": trivial,
        "confidence": f"mean over {people} people, one draw of noise each. What the same attacker makes of a step without the person "
        "stands beside it: only what exceeds that was recovered",
        "cannot_see": list(CANNOT_SEE),
    }
    large = [[cv2.resize(cell, None, fx=2, fy=2, interpolation=cv2.INTER_NEAREST) for cell in row] for row in rows]
    return body, contact_sheet(large, [""] * people, ["original", *(name for name, _, _ in releases)])


def _update(network: FirstLayerNetwork, people: PoseRecords, person: int | None, sigma: float, clipped: bool, seed: int) -> Tensor:
    """The first layer's part of what a step over one person, or nobody, releases: hidden × (pixels + 1), the bias last."""
    engine = ClippingEngine(network)
    batch = people.batch(np.array([] if person is None else [person], int))
    if not clipped:
        flat, _ = engine.mean_gradient(pose_loss, batch)
    else:
        mechanism = Mechanism(sigma, CLIP_NORM, 1.0, RandomStream.seeded("noise", seed))
        flat = mechanism.release(engine.clipped_sum(pose_loss, batch, CLIP_NORM))
    gradient = engine.unflatten(flat)
    return torch.cat([gradient["first.weight"], gradient["first.bias"][:, None]], 1).double()


def _other_factor(network: FirstLayerNetwork, people: PoseRecords, person: int) -> Tensor:
    """What came back to the first layer's units: with the image, all of the layer's gradient. The biases' gradient is just that."""
    return F.normalize(_update(network, people, person, 0.0, clipped=False, seed=0)[:, -1], dim=0)


class _Attacker:
    """Knows the network and public people; chooses how to read an update by trying it on them."""

    def __init__(self, network: FirstLayerNetwork, public: PoseRecords):
        self.network, self.public = network, public
        self.average = np.round(public.images.astype(np.float64).mean(0)).astype(np.uint8).transpose(1, 2, 0)
        self._values = normalise(torch.from_numpy(np.array(public.images))).double()

    def choose(self, sigma: float, seed: int) -> tuple[bool, float]:
        """The reading that does best on public people under the same noise."""
        recipes = [(exact, smoothing) for exact in (True, False) for smoothing in _SMOOTHINGS]
        tried = [
            (_update(self.network, self.public, i, sigma, sigma > 0, seed + i), _other_factor(self.network, self.public, i))
            for i in range(4)
        ]

        def score(recipe: tuple[bool, float]) -> float:
            pictures = [self.recover(update, given, recipe) for update, given in tried]
            return float(np.mean([ssim(picture, _pixels(self.public.images[i])) for i, picture in enumerate(pictures)]))

        return max(recipes, key=score)

    def recover(self, update: Tensor, given: Tensor, recipe: tuple[bool, float]) -> np.ndarray:
        """One person's update is an outer product: along the given factor it is (image, 1), up to a number.

        Args:
            recipe: whether that number is read off the bias, exact without noise and worthless with it, or fitted to public people; and
                how much to smooth.
        """
        exact, smoothing = recipe
        direction = F.normalize(given @ update, dim=0)
        values = direction[:-1].view(3, *self.network.input_size)
        if exact:
            scale = float(direction[-1])
            values = values / scale if abs(scale) > 1e-12 else values
        else:
            values = (values - values.mean()) / values.std().clamp(min=1e-12)
            values = values * self._values.std() + self._values.mean()
        picture = _bytes(values)
        return picture if smoothing == 0 else cv2.GaussianBlur(picture, (0, 0), smoothing)


def _bytes(values: Tensor) -> np.ndarray:
    """Undo `normalise`, which is linear in the pixel, and round."""
    shape = (1, 3, 1, 1)
    black, white = normalise(torch.zeros(shape)).double()[0], normalise(torch.full(shape, 255.0)).double()[0]
    pixels = (values - black) / (white - black) * 255
    return np.ascontiguousarray(pixels.nan_to_num().clamp(0, 255).round().byte().numpy().transpose(1, 2, 0))


def _pixels(image: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(image.transpose(1, 2, 0))


def _mean_scores(scores: list[tuple[float, float]]) -> dict[str, Any]:
    # An exact copy has no finite PSNR; 99 dB stands for "every byte right".
    return {
        "psnr": round(float(np.mean([min(99.0, decibels) for decibels, _ in scores])), 2),
        "ssim": round(float(np.mean([likeness for _, likeness in scores])), 4),
    }
