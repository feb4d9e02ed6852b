"""Random changes to crops that leave the pose true: mirrored, turned, scaled, shifted, tinted, or half a body.

What happens to each record is decided first (`draw`, from numbers it is given), and applied afterwards (`Augmentation.apply`); both are
pure functions of the record and its numbers, so that an image and its public view change alike where they are paired, and nobody's change
depends on who else is in the batch. A view is never made of an augmented image: blurring a crop after
each new turn would publish a new measurement of it every time. ψ is computed once, on the crop as it is; both are augmented afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from halfmask.data.skeleton import MPII, Skeleton
from halfmask.errors import HalfmaskError
from halfmask.settings import check_settings, setting

Batch = dict[str, Tensor]

# Half a body is shown only where it has this many labelled joints, and the other half has some too.
_FEWEST_OF_A_HALF = 4
# Random numbers that decide what happens to a record: mirrored, turned, scaled, shifted (2), brightness, tint (3), half a body, which half.
# Each has its place whether it is used or not, so that asking for one change more leaves the others as they were.
NUMBERS = 11


@dataclass(frozen=True)
class AugmentConfig:
    """How far records are changed."""

    flip: float = setting(0.5, "The probability of mirroring.", at_least=0, at_most=1)
    rotation: float = setting(15.0, "The largest turn in degrees, either way.", at_least=0, at_most=180)
    scale: float = setting(0.15, "The largest change of size, either way, as a share.", at_least=0, below=1)
    shift: float = setting(0.05, "The largest shift, either way, as a share of the crop.", at_least=0, below=1)
    colour: bool = setting(True, "Whether brightness and tint vary.")
    half_body: float = setting(0.0, "The probability of a crop of the upper or the lower half of the body alone.", at_least=0, at_most=1)

    def __post_init__(self) -> None:
        check_settings(self, "augmentation: ")


@dataclass(frozen=True)
class Augmentation:
    """What happens to each record of a batch.

    Attributes:
        mirrored: N, whether the record is mirrored first.
        turn, centre: N×2×2 and N×2: the output's point p (in pixels about the crop's middle) shows the mirrored crop's `turn` p + `centre`.
        kept: N×J, joints that keep their label, in the order after mirroring.
        gain: N×3×1×1, by which colours are multiplied; None to leave them.
    """

    mirrored: Tensor
    turn: Tensor
    centre: Tensor
    kept: Tensor
    gain: Tensor | None
    skeleton: Skeleton

    def apply(self, batch: Batch) -> Batch:
        """The batch after the change."""
        joints, labelled = self.move_joints(batch["joints"], batch["labelled"], *batch["image"].shape[-2:])
        return batch | {"image": self.apply_to_images(batch["image"]), "joints": joints, "labelled": labelled}

    def move_joints(self, joints: Tensor, labelled: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Joints and labels after the change. Joints that leave the picture lose their label."""
        joints, labelled = mirror_joints(joints, labelled, self.mirrored, width, self.skeleton)
        half = torch.tensor([(width - 1) / 2, (height - 1) / 2])
        centred = joints - half - self.centre[:, None]
        joints = torch.linalg.solve(self.turn, centred.transpose(1, 2)).transpose(1, 2) + half
        inside = ((joints >= 0) & (joints <= 2 * half)).all(-1)
        return joints, labelled & inside & self.kept

    def of(self, some: slice | Tensor) -> Augmentation:
        """What happens to some of the records."""
        return Augmentation(
            self.mirrored[some],
            self.turn[some],
            self.centre[some],
            self.kept[some],
            None if self.gain is None else self.gain[some],
            self.skeleton,
        )

    def apply_to_images(self, images: Tensor) -> Tensor:
        """Images (N×3×H×W, bytes or numbers from 0 to 255) after the change: of the records, or of their views."""
        images = images.float()
        count, channels, height, width = images.shape
        images = torch.where(self.mirrored[:, None, None, None], images.flip(-1), images)
        # grid_sample asks where each output pixel comes from, in coordinates from −1 to 1.
        half = torch.tensor([(width - 1) / 2, (height - 1) / 2])
        to_unit = (self.turn * half[None, None, :]) / half[None, :, None]
        theta = torch.cat([to_unit, (self.centre / half)[..., None]], -1)
        grid = torch.nn.functional.affine_grid(theta, [count, channels, height, width], align_corners=True)
        images = torch.nn.functional.grid_sample(images, grid, align_corners=True)
        return images.clamp(0, 255) if self.gain is None else (images * self.gain).clamp(0, 255)


def draw(batch: Batch, uniforms: Tensor, options: AugmentConfig | None = None, skeleton: Skeleton = MPII) -> Augmentation:
    """Decide what happens to each record.

    Only the number of records, their size and, for half bodies, their own joints are looked at.

    Args:
        uniforms: N×`NUMBERS`, uniform from 0 to 1: a record's change is a function of its own row.
    """
    options = options or AugmentConfig()
    if uniforms.shape != (len(batch["joints"]), NUMBERS):
        raise HalfmaskError(
            f"random numbers of shape {tuple(uniforms.shape)} for {len(batch['joints'])} records: expected {NUMBERS} for each"
        )
    joints, labelled = batch["joints"], batch["labelled"]
    count, (height, width) = len(joints), batch["image"].shape[-2:]
    half = torch.tensor([(width - 1) / 2, (height - 1) / 2])
    # Compared in the precision they come in; in single precision the largest would round to 1, and a probability of 1 would miss some.
    mirrored = uniforms[:, 0] < options.flip
    centred = (uniforms[:, 1:5] - 0.5).float()
    angle = centred[:, 0] * (2 * options.rotation * math.pi / 180)
    scale = 1 + centred[:, 1] * (2 * options.scale)
    centre = centred[:, 2:4] * (2 * options.shift) * 2 * half
    gain = None
    if options.colour:
        tint = uniforms[:, 5:9].float()
        gain = ((0.6 + 0.8 * tint[:, :1]) * (0.85 + 0.3 * tint[:, 1:])).reshape(count, 3, 1, 1)
    kept = torch.ones_like(labelled)
    if options.half_body > 0:
        seen, known = mirror_joints(joints, labelled, mirrored, width, skeleton)
        zoom, centre, kept = _half_bodies(seen, known, centre, half, options, skeleton, uniforms[:, 9:11])
        scale = scale * zoom
    cos, sin = angle.cos() * scale, angle.sin() * scale
    turn = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
    return Augmentation(mirrored, turn, centre, kept, gain, skeleton)


def augment(batch: Batch, generator: torch.Generator, options: AugmentConfig | None = None, skeleton: Skeleton = MPII) -> Batch:
    """Draw and apply: image, joints and labels after a random change."""
    return draw(batch, _numbers(batch, generator), options, skeleton).apply({name: batch[name] for name in ("image", "joints", "labelled")})


def augment_pair(
    batch: Batch, views: Tensor, generator: torch.Generator, options: AugmentConfig | None = None, skeleton: Skeleton = MPII
) -> tuple[Batch, Batch]:
    """The records and their public views after the same change.

    Args:
        views: ψ of the un-augmented images, as it was computed and stored once.
    """
    drawn = draw(batch, _numbers(batch, generator), options, skeleton)
    changed = drawn.apply({name: batch[name] for name in ("image", "joints", "labelled")})
    return changed, changed | {"image": drawn.apply_to_images(views)}


def _numbers(batch: Batch, generator: torch.Generator) -> Tensor:
    return torch.rand(len(batch["joints"]), NUMBERS, generator=generator, dtype=torch.float64)


def mirror_joints(joints: Tensor, labelled: Tensor, mirrored: Tensor, width: int, skeleton: Skeleton) -> tuple[Tensor, Tensor]:
    """Joints and labels of mirrored images: the other side of the picture, and the other side of the body."""
    order = torch.arange(len(skeleton))
    for left, right in skeleton.flip_pairs:
        order[left], order[right] = right, left
    swapped = joints[:, order] * joints.new_tensor([-1.0, 1.0]) + joints.new_tensor([width - 1.0, 0.0])
    return torch.where(mirrored[:, None, None], swapped, joints), torch.where(mirrored[:, None], labelled[:, order], labelled)


def _half_bodies(
    joints: Tensor,
    labelled: Tensor,
    centre: Tensor,
    half: Tensor,
    options: AugmentConfig,
    skeleton: Skeleton,
    uniforms: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Zoom (below 1 for a closer look), centre and joints kept, for records of which half a body is shown."""
    upper = torch.zeros(len(skeleton), dtype=torch.bool)
    upper[list(skeleton.upper_body)] = True
    chosen = uniforms[:, 0] < options.half_body
    shows_upper = uniforms[:, 1] < 0.5
    part = torch.where(shows_upper[:, None], upper, ~upper) & labelled
    # The side that was drawn may be out of sight; the other will do.
    other = torch.where(shows_upper[:, None], ~upper, upper) & labelled
    part = torch.where((part.sum(1) < _FEWEST_OF_A_HALF)[:, None], other, part)
    chosen &= (part.sum(1) >= _FEWEST_OF_A_HALF) & (part.sum(1) < labelled.sum(1))
    far = torch.full_like(joints, math.inf)
    low = torch.where(part[..., None], joints, far).amin(1)
    high = torch.where(part[..., None], joints, -far).amax(1)
    # A person's box is shown grown by a quarter; half a body's is grown a little more, for the limbs that hang out of it.
    zoom = (1.5 * (high - low) / (2 * half)).amax(1).clamp(0.25, 1.0)
    zoom = torch.where(chosen, zoom, torch.ones_like(zoom))
    middle = torch.where(chosen[:, None], (low + high) / 2 - half, torch.zeros_like(low))
    kept = torch.where(chosen[:, None], part, torch.ones_like(part))
    return zoom, middle + centre * zoom[:, None], kept
