"""What may be seen without spending budget.

A view is a map ψ from an image to what is declared public about it. It is computed once, on the un-augmented crop, and ends in a
declared lossy step: a blur in real arithmetic can be undone, so "another image with the same view" only exists after rounding.
How much a view gives away is for measuring, not for assuming.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class View(ABC):
    """A public feature map ψ."""

    @abstractmethod
    def __call__(self, image: np.ndarray) -> np.ndarray:
        """ψ(image): bytes H×W×3 in, bytes H×W×3 out."""

    @abstractmethod
    def describe(self) -> str:
        """One line for the certificate: what exactly is public."""
