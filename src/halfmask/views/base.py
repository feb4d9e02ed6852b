"""What may be seen without spending budget.

A view is a map ψ from a record to what is declared public about it. It is computed once, on the record as it is, never on a changed one,
and ends in a declared lossy step: a blur in real arithmetic can be undone, so "another image with the same view" only exists after
rounding. How much a view gives away is for measuring, not for assuming.

A view says which fields of a record it reads (pixels, labels, a mask), and returns the public ones. Where it divides a record in two, as a
mask does, it returns the rest besides: what stays private, and what the private half of a step is then shown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class Seen:
    """A record through a view.

    Attributes:
        public: the fields that are public.
        rest: the fields that stay private, where the view divides a record; None where the whole record does.
    """

    public: dict[str, np.ndarray]
    rest: dict[str, np.ndarray] | None = None


@dataclass(frozen=True)
class View(ABC):
    """A public feature map ψ.

    Attributes:
        reads: the fields of a record that it looks at; it is handed no others.
        keeps: fields of the private part that belong to the rest as they are: they are not stored a second time.
        may_divide: whether it can divide a record in two, as masked methods ask.
    """

    reads: ClassVar[tuple[str, ...]] = ("image",)
    keeps: ClassVar[tuple[str, ...]] = ()
    may_divide: ClassVar[bool] = False

    @abstractmethod
    def of(self, record: Mapping[str, np.ndarray]) -> Seen:
        """ψ of a record, by the fields that it reads."""

    @abstractmethod
    def describe(self) -> str:
        """One line for the certificate: what exactly is public."""


@dataclass(frozen=True)
class ImageView(View):
    """A view that is a picture in the place of a picture."""

    @abstractmethod
    def __call__(self, image: np.ndarray) -> np.ndarray:
        """ψ(image): bytes H×W×3 in, bytes H×W×3 out."""

    def of(self, record: Mapping[str, np.ndarray]) -> Seen:
        """ψ of the picture that a record holds, 3×H×W."""
        return Seen({"image": self(np.ascontiguousarray(record["image"].transpose(1, 2, 0))).transpose(2, 0, 1)})
