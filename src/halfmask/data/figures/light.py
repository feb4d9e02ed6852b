"""Light and lens: what happens to the colours between the scene and the file."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from halfmask.data.figures.camera import PICTURE
from halfmask.data.figures.populations import Population, within

STEPS = 128.0
_ACROSS, _DOWN = (np.arange(12) + 0.5) / 12, (np.arange(16) + 0.5) / 16
"""Where the light is computed, as shares of the image; it is smooth enough to be interpolated between."""


@dataclass(frozen=True)
class Light:
    """The light of one image. All crops of the image share it."""

    gain: float
    tint: tuple[float, float, float]
    slope: tuple[float, float]
    """How much brighter it gets over half a picture, to the right and downwards."""
    bar: tuple[float, float, float, float]
    """A soft shadow across the picture: angle, place, width, depth."""
    noise: float
    blur: float

    @property
    def side(self) -> float:
        """+1 if the right of the image is in shade."""
        return 1.0 if self.slope[0] <= 0 else -1.0


def draw_light(rng: np.random.Generator, population: Population) -> Light:
    """Draw the light of an image."""
    r, g, b = population.tints[int(rng.integers(len(population.tints)))]
    amount = within(rng, (0.3, 1.0))
    steep = within(rng, population.gradient)
    sign = 1.0 if rng.random() < 0.5 else -1.0
    return Light(
        gain=within(rng, population.gain),
        tint=(1 + (r - 1) * amount, 1 + (g - 1) * amount, 1 + (b - 1) * amount),
        slope=(sign * steep, 0.3 * steep * float(rng.normal())),
        bar=(
            float(rng.uniform(0, np.pi)),
            float(rng.uniform(-0.8, 0.8)),
            float(rng.uniform(0.1, 0.4)),
            1.2 * steep * float(rng.random()),
        ),
        noise=within(rng, population.noise),
        blur=within(rng, population.blur),
    )


def shine(image: np.ndarray, light: Light, window: tuple[float, float, float]) -> None:
    """Light an image in place. ``window`` is its (x, y, scale) in the picture."""
    height, width = image.shape[:2]
    cv2.multiply(image, brightness(light, window, (height, width)), dst=image, scale=1.0 / STEPS)


def brightness(light: Light, window: tuple[float, float, float], size: tuple[int, int]) -> np.ndarray:
    """How bright each pixel is lit, in steps of ``1 / STEPS``: what a fixed camera needs only once."""
    height, width = size
    x, y, scale = window
    h, w = PICTURE
    across = ((_ACROSS * (width / scale) + x) / (w / 2) - 1.0)[None, :]
    down = ((_DOWN * (height / scale) + y) / (h / 2) - 1.0)[:, None]
    field = 1.0 + light.slope[0] * across + light.slope[1] * down
    angle, place, wide, deep = light.bar
    distance = (np.cos(angle) * across + np.sin(angle) * down - place) / wide
    field = np.clip(field - deep * np.exp(-(distance**2)), 0.25, 1.8) * light.gain
    coloured = np.clip(field[..., None] * np.asarray(light.tint) * STEPS, 0, 255).astype(np.uint8)
    full: np.ndarray = cv2.resize(coloured, (width, height), interpolation=cv2.INTER_LINEAR)
    return full


class Grain:
    """Sensor noise from a bank: drawing it anew for each crop would cost more than drawing the people."""

    DEVIATION = 32.0

    def __init__(self, rng: np.random.Generator, size: tuple[int, int]) -> None:
        bank = rng.standard_normal((size[0] + 64, size[1] + 64, 3), dtype=np.float32) * self.DEVIATION + 128.0
        self.bank = np.clip(np.rint(bank), 0, 255).astype(np.uint8)

    def add(self, rng: np.random.Generator, image: np.ndarray, light: Light) -> None:
        """Blur and roughen an image in place, as a lens and a sensor do."""
        height, width = image.shape[:2]
        if light.blur > 0.25:
            cv2.GaussianBlur(image, (0, 0) if light.blur > 0.9 else (5, 5), light.blur, dst=image)
        dy, dx = rng.integers(0, 64, 2).tolist()
        weight = light.noise / self.DEVIATION
        grain = self.bank[dy : dy + height, dx : dx + width]
        cv2.addWeighted(image, 1.0, grain, weight, -128.0 * weight, dst=image)
