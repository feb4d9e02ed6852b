"""Films and takes: what every dataset of videos is read into, and the records of the action task.

A *film* is what was stored: frames and, for each, which pixels show the person, or which are protected. A *take* is one clip of a dataset
before it is opened. A record is a clip of a fixed number of frames at the network's size, made by `halfmask.data.clip_records`, with
`hidden` beside it: the pixels that anything protected has a part in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from halfmask.data.records import Records
from halfmask.data.tables import Arrays, Column
from halfmask.privacy.fingerprints import Fingerprints

if TYPE_CHECKING:
    from typing_extensions import Self

UNITS = ("clip", "video", "subject")
# What of a clip is protected: all but the person, the person, or what a mask of the data holder's says.
PROTECT = ("background", "person", "mask")


@dataclass(frozen=True)
class Film:
    """A clip as it was stored.

    Attributes:
        frames: F×H×W×3 bytes, red first.
        person: F×H×W, the pixels that show the person, where they are known.
        protected: F×H×W, the pixels that a mask of the data holder's protects, where there is one.
        blended: how many pixels on either side of the person's outline may mix person and background.
        joints: F×16×2 in pixels, in MPII's order, where they are known: of drawn people.
    """

    frames: np.ndarray
    person: np.ndarray | None = None
    protected: np.ndarray | None = None
    blended: int = 1
    joints: np.ndarray | None = None


@dataclass(frozen=True)
class Take:
    """One clip of a dataset; it is opened when it is asked for.

    Attributes:
        name: names it within its dataset, in public and for good: draws are keyed by it.
        label: its class, by name.
        read: gives the film. A `stamp` attribute of it, if there is one, changes when the file does.
        video: the recording it was cut from: clips of one video are one unit `video`.
        subject: who it shows, where the dataset tells.
        group: what a split keeps together besides (a scene), where the dataset tells.
    """

    name: str
    label: str
    read: Callable[[], Film] = field(repr=False, compare=False)
    video: str = ""
    subject: str | None = None
    group: str | None = None


@dataclass(frozen=True)
class ClipSet:
    """The takes of a dataset.

    Attributes:
        name: names the dataset in public.
        classes: in the order in which they are counted.
        splits: the dataset's own division, by part (`train`, `test`, …): the names of its takes; empty where it has none.
        masks: where the masks come from, in the words of the certificate; empty where there are none.
    """

    name: str
    takes: tuple[Take, ...]
    classes: tuple[str, ...]
    splits: Mapping[str, frozenset[str]] = field(default_factory=dict)
    masks: str = ""


@dataclass(frozen=True)
class ClipRecords(Records):
    """Clips of people doing something. Made by `clip_records`.

    Attributes:
        classes: what they may be doing, in the order in which labels count.
        masks: where the masks come from, in the words of the certificate.
        protect: what of a clip is protected: one of `PROTECT`; empty where there are no masks.
    """

    classes: tuple[str, ...] = ()
    masks: str = ""
    protect: str = ""

    def joined(self, other: Self) -> Self:
        """These clips and others, with their masks: a view of both asks for them."""
        return replace(super().joined(other), truth=self.truth.joined(other.truth))


def records_of_clips(
    clips: Column,
    labels: np.ndarray,
    hidden: Column | None,
    videos: np.ndarray,
    key: str,
    classes: tuple[str, ...],
    masks: str = "",
    protect: str = "",
    subjects: np.ndarray | None = None,
    prints: Fingerprints | None = None,
    ids: np.ndarray | None = None,
    joints: Column | None = None,
) -> ClipRecords:
    """Records from the arrays of a dataset.

    Args:
        clips: bytes N×T×3×H×W.
        labels: the number of each clip's class.
        hidden: N×T×H×W, whether anything protected has a part in a pixel. The others are computed from public pixels alone.
        videos, subjects: the unit of each clip, by number.
        joints: N×T×16×2, as shares of the frame from its centre, where they are known: public clips may be pre-trained on by them.
    """
    return ClipRecords(
        private=Arrays({"clip": clips}),
        targets=Arrays({"label": np.asarray(labels, np.int64)}),
        truth=Arrays({name: column for name, column in (("hidden", hidden), ("joints", joints)) if column is not None}),
        units={"video": videos} | ({} if subjects is None else {"subject": subjects}),
        own_unit="clip",
        # Clips of one recording show the same room and the same person.
        shown_together=("video",),
        key=key,
        classes=classes,
        masks=masks,
        protect=protect,
        prints=prints,
        ids=ids,  # type: ignore[arg-type]
    )
