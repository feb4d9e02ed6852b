"""How much of what a model learns comes from private people: told from what was released, so that telling costs nothing.

A released gradient is signal plus noise of a known size. What its length exceeds that of the noise by is an estimate of the signal, and a
function of the release alone, which is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass
class Influence:
    """Gathers over some steps, and tells once an epoch.

    Attributes:
        squares, noise: Σ ‖release‖², and what it would be of noise alone.
        public, private: Σ of the lengths of the two halves of the updates.
    """

    squares: float = 0.0
    noise: float = 0.0
    public: float = 0.0
    private: float = 0.0

    def released(self, mean: Tensor, noise: float, numbers: int) -> None:
        """A released mean gradient, with noise of this standard deviation in each of so many numbers."""
        self.squares += float(mean.double().square().sum())
        self.noise += numbers * noise**2

    def halves(self, public: float, private: float) -> None:
        """How long each half of an update was."""
        self.public += public
        self.private += private

    def summary(self) -> dict[str, float]:
        """What there is to tell, and start anew.

        `private_share`: of the length of all updates, that of the noised half (its noise included). `private_signal`: the length of the
        signal in the noised half, in units of its noise's; 0 where no signal is heard.
        """
        found = {}
        if self.public + self.private > 0 and self.private > 0:
            found["private_share"] = self.private / (self.public + self.private)
        if self.noise > 0:
            found["private_signal"] = math.sqrt(max(0.0, self.squares - self.noise) / self.noise)
        self.squares = self.noise = self.public = self.private = 0.0
        return found
