"""Whether a run is still on its way, or came to nothing. Looks at weights and at public people alone: both are released."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from halfmask.errors import HalfmaskError

# A public loss so many times what it was is one from which no run comes back. A loss may be below 0: one with log-variances is.
_EXPLODED = 10.0


class Diverged(HalfmaskError):
    """A run that came to nothing.

    Attributes:
        advice: what to do about it.
    """

    def __init__(
        self, message: str, advice: str = "Lower the learning rate, or see 'halfmask plan' for what this number of people can bear"
    ):
        super().__init__(message)
        self.advice = advice


def check_course(step: int, weights: Iterable[Tensor], first_loss: float | None, loss: float | None) -> None:
    """Stop a run whose weights or public loss are no longer numbers, or whose loss exploded.

    Args:
        first_loss: of public people before the first step; None where none are watched.
    """
    finite = all(bool(torch.isfinite(weight).all()) for weight in weights)
    if not finite or (loss is not None and not math.isfinite(loss)):
        raise Diverged(f"the weights or the public loss are no longer finite numbers after step {step}")
    if loss is not None and first_loss is not None and loss > first_loss + (_EXPLODED - 1) * abs(first_loss) + _EXPLODED:
        raise Diverged(f"the loss of public people went from {first_loss:.3g} to {loss:.3g} by step {step}")
