"""Pictures of one person each, with their pose: what every dataset of the task `generate` is read into, and its records.

A generator is told a pose and draws somebody in it, so a picture's joints are public here and its pixels are what is protected. A picture
shows one person alone: then it belongs to them, and a promise about subjects is about all that is seen of somebody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from halfmask.data.records import Records
from halfmask.data.skeleton import MPII, Skeleton
from halfmask.data.tables import Arrays, Column
from halfmask.errors import HalfmaskError
from halfmask.privacy.fingerprints import Fingerprints

if TYPE_CHECKING:
    from typing_extensions import Self

UNITS = ("image", "subject")
# In the place of an action where nobody says what is done.
NO_ACTION = -1
# Networks that halve a picture four times need sides of which that leaves whole numbers.
STEP = 16


@dataclass(frozen=True)
class PictureRecords(Records):
    """Pictures of one person each; made by `picture_records`.

    Attributes:
        skeleton: what the joints are.
        actions: what people may be doing, in the order in which `action` counts; empty where the dataset knows none.
        poses: where the joints come from, in the words of the certificate.
    """

    skeleton: Skeleton = MPII
    actions: tuple[str, ...] = ()
    poses: str = ""

    @property
    def joint_names(self) -> tuple[str, ...]:
        """What the joints are called, in their order."""
        return self.skeleton.names

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the pictures."""
        height, width = self.private.shapes()["image"][1][1:]
        return int(height), int(width)

    def joined(self, other: Self) -> Self:
        """These pictures and others, which have the same joints and actions."""
        if (self.joint_names, self.actions) != (other.joint_names, other.actions):
            raise HalfmaskError("two sets of pictures have other joints or actions than each other: expected the same, to be joined")
        return replace(super().joined(other), truth=self.truth.joined(other.truth))


def picture_records(
    images: Column,
    joints: np.ndarray,
    actions_done: np.ndarray,
    image_ids: np.ndarray,
    subjects: np.ndarray,
    key: str,
    actions: tuple[str, ...] = (),
    skeleton: Skeleton = MPII,
    poses: str = "",
    head_boxes: np.ndarray | None = None,
    prints: Fingerprints | None = None,
    ids: np.ndarray | None = None,
) -> PictureRecords:
    """Records from the arrays of a dataset.

    Args:
        images: bytes N×3×H×W.
        joints: N×J×3: x and y in pixels of the picture, with centres of pixels at whole numbers, and 1 if the joint is known; else all
            three are 0.
        actions_done: N, the number of each picture's action; `NO_ACTION` where it is not known.
        image_ids, subjects: the units of each picture, by number.
        head_boxes: N×4 (x1, y1, x2, y2) in pixels of the picture, the scale of PCKh; NaN where not known.
    """
    return PictureRecords(
        private=Arrays({"image": images}),
        targets=Arrays({"joints": np.asarray(joints, np.float32), "action": np.asarray(actions_done, np.int64)}),
        truth=Arrays({} if head_boxes is None else {"head_boxes": head_boxes}),
        units={"image": image_ids, "subject": subjects},
        own_unit="image",
        key=key,
        skeleton=skeleton,
        actions=actions,
        poses=poses,
        prints=prints,
        ids=ids,  # type: ignore[arg-type]
    )


def check_size(size: tuple[int, int]) -> None:
    """Refuse pictures that a network cannot halve as often as it does."""
    if any(side < STEP or side % STEP for side in size):
        raise HalfmaskError(
            f"pictures of {size[0]}×{size[1]} (data.height × data.width) were asked for: expected multiples of {STEP}, at least {STEP}"
        )


@dataclass(frozen=True)
class Picture:
    """A picture of one person, opened when it is asked for.

    Attributes:
        name: names it within its dataset, in public and for good.
        read: gives it, H×W×3 bytes, red first; its `stamp`, if it has one, changes when the picture does.
        subject: who it shows.
        action: what they are doing; empty where nobody says.
        joints: J×3 in its own pixels, the third 1 for a joint that is known; None where nobody annotated any.
    """

    name: str
    read: Callable[[], np.ndarray] = field(repr=False, compare=False)
    subject: str
    action: str = ""
    joints: np.ndarray | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class PictureSet:
    """What a folder of pictures says, none of them opened.

    Attributes:
        pictures: in the order of their names, everybody's together.
        actions: in the order in which they are counted; empty where the dataset knows none.
        usual: how the dataset is divided where nothing is said: parts, and which of its subjects, counted from 1.
        left_out: how many files are no picture, for each reason.
    """

    format: str
    folder: Path
    pictures: tuple[Picture, ...]
    actions: tuple[str, ...] = ()
    usual: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def subjects(self) -> tuple[str, ...]:
        """Everybody, in the order that ranges count in."""
        return tuple(sorted({picture.subject for picture in self.pictures}, key=by_number))


def by_number(name: str) -> list[tuple[int, str]]:
    """Sorts names by the numbers in them: frame 9 comes before frame 10.

    >>> sorted(["b10", "b9", "a"], key=by_number)
    ['a', 'b9', 'b10']
    """
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name) if part]
