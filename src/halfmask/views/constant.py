"""Nothing of the image is public: the feature methods become plain private training with public labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfmask.views.base import ImageView


@dataclass(frozen=True)
class Constant(ImageView):
    """The same grey image for everyone."""

    def __call__(self, image: np.ndarray) -> np.ndarray:  # noqa: D102
        return np.full_like(image, 127)

    def describe(self) -> str:  # noqa: D102
        return "nothing of the image (a constant grey)"
