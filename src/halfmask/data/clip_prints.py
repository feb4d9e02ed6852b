"""What a film is known again by."""

from __future__ import annotations

import hashlib
import hmac

import cv2
import numpy as np

from halfmask.privacy.fingerprints import fingerprint_picture, key

# Sketches look at pictures of 72 pixels squared; frames larger than this add nothing to one.
_SIDE = 144
_FRAMES = 64


def film_print(frames: np.ndarray, secret: bytes | None = None) -> dict[str, np.ndarray]:
    """One row of fingerprints (`exact`, `bands`, `sealed`) of a film, F×H×W×3 bytes."""
    secret = secret or key()
    exact = hmac.new(secret, f"film {frames.shape}".encode(), hashlib.sha256)
    for frame in frames:
        exact.update(np.ascontiguousarray(frame).data)
    return fingerprint_picture(summary(frames), secret) | {"exact": np.frombuffer(exact.digest()[:16], np.uint8)}


def summary(frames: np.ndarray) -> np.ndarray:
    """A picture of the film as a whole, H×W×3 bytes."""
    some = frames[np.unique(np.linspace(0, len(frames) - 1, min(len(frames), _FRAMES)).round().astype(int))]
    height, width = some.shape[1:3]
    scale = min(1.0, _SIDE / min(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    grey = np.stack([cv2.resize(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), size, interpolation=cv2.INTER_AREA) for frame in some])
    middle = grey[len(grey) // 2]
    return np.repeat(middle[..., None], 3, 2)
