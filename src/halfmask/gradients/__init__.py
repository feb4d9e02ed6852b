"""The mechanism: clipped sums, the subspace, the one step."""

from halfmask.gradients.engine import ClippedCoordinates, ClippedSum, ClippingEngine, check_records_apart
from halfmask.gradients.mechanism import METHODS, Mechanism
from halfmask.gradients.subspace import Subspace

__all__ = ["METHODS", "ClippedCoordinates", "ClippedSum", "ClippingEngine", "Mechanism", "Subspace", "check_records_apart"]
