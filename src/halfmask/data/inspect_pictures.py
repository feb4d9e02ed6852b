"""A look at a folder of pictures of one person each before anything is trained on it: who is there, how often, and doing what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np

from halfmask.data.face_files import ImageFile
from halfmask.data.inspect import image_cost
from halfmask.data.people import UNREADABLE, LeftOut
from halfmask.data.picture_poses import EMBEDDED, PoseNetwork, pose_network
from halfmask.data.pictures import Picture, PictureSet
from halfmask.data.skeleton import MPII
from halfmask.data.threads import in_order
from halfmask.privacy.fingerprints import fingerprint_picture, key
from halfmask.report.overlay import contact_sheet, draw_skeleton

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PictureInspection:
    """What `halfmask data inspect` found in a folder of pictures.

    Attributes:
        subjects: how many pictures there are of each, the fewest first.
        actions: how many pictures show each.
        sizes: height and width, the most frequent first; empty if images were not opened.
        labelled: of each joint, the share of pictures that have it annotated; empty where nobody annotated any.
        bad: files that cannot be read.
        recurring: pictures that are there a second time, under another subject's name.
        image_cost: what a promise about pictures is worth to a subject, by how many there are of it.
    """

    pictures: PictureSet
    opened: bool
    subjects: tuple[int, ...]
    actions: dict[str, int]
    labelled: dict[str, float]
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)
    bad: tuple[LeftOut, ...] = ()
    recurring: int = 0
    image_cost: dict[int, float] = field(default_factory=dict)

    @property
    def single(self) -> int:
        """People with one picture, whom nobody could know from another one."""
        return sum(count == 1 for count in self.subjects)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "format": self.pictures.format,
            "folder": str(self.pictures.folder),
            "images_opened": self.opened,
            "pictures": sum(self.subjects),
            "subjects": len(self.subjects),
            "pictures_of_a_subject": [self.subjects[0], float(np.median(self.subjects)), self.subjects[-1]],
            "subjects_with_one_picture": self.single,
            "actions": self.actions,
            "sizes": {f"{height}×{width}": count for (height, width), count in self.sizes.items()},
            "joints": self.labelled,
            "left_out": dict(self.pictures.left_out) | ({UNREADABLE: len(self.bad)} if self.bad else {}),
            "recurring_under_another_subject": self.recurring,
            "image_cost": {str(size): round(cost, 3) for size, cost in self.image_cost.items()},
        }


def inspect_pictures(
    pictures: PictureSet, open_images: bool = True, workers: int = 0, progress: Progress | None = None
) -> PictureInspection:
    """Count what a folder holds; with `open_images`, try every file."""
    subjects = tuple(sorted(Counter(picture.subject for picture in pictures.pictures).values()))
    actions = Counter(picture.action for picture in pictures.pictures if picture.action)
    facts = PictureInspection(
        pictures, open_images, subjects, {action: actions[action] for action in pictures.actions}, _labelled(pictures)
    )
    if not open_images:
        return facts
    secret, total = key(), len(pictures.pictures)
    bad: list[LeftOut] = []
    sizes: Counter[tuple[int, int]] = Counter()
    shown: dict[bytes, set[str]] = defaultdict(set)
    for done, (picture, look) in enumerate(
        zip(pictures.pictures, in_order(lambda one: _look(one, secret), pictures.pictures, workers), strict=True), start=1
    ):
        if look is None:
            bad.append(LeftOut(picture.name, UNREADABLE, str(picture.read.path) if isinstance(picture.read, ImageFile) else picture.name))
        else:
            sizes[look[0]] += 1
            shown[look[1]].add(picture.subject)
        if progress and (done % 50 == 0 or done == total):
            progress(done, total)
    return PictureInspection(
        pictures,
        True,
        subjects,
        facts.actions,
        facts.labelled,
        dict(sizes.most_common()),
        tuple(bad),
        sum(len(people) - 1 for people in shown.values()),
        image_cost(total - len(bad), subjects[-1]),
    )


def sheet_of_pictures(
    pictures: PictureSet, count: int = 12, columns: int = 6, height: int = 256, network: PoseNetwork | None = None
) -> np.ndarray:
    """A picture of some people with their joints, spread over the dataset; where nobody annotated them, as a network sees them."""
    everyone = pictures.pictures
    spread = np.unique(np.linspace(0, len(everyone) - 1, min(count, len(everyone))).astype(int))
    opened = [(one, image) for one in (everyone[place] for place in spread) if (image := _read(one)) is not None]
    if network is None and any(one.joints is None for one, _ in opened):
        network = pose_network(EMBEDDED)
    drawn = []
    for one, image in opened:
        joints = network([image])[0] if one.joints is None and network is not None else np.asarray(one.joints)
        drawn.append(draw_skeleton(*_enlarged(image, joints[:, :2], height), joints[:, 2] > 0, skeleton=MPII))
    blank = np.full((height, height * 3 // 4, 3), 255, np.uint8)
    columns = max(1, min(columns, len(drawn)))
    drawn += [blank] * (-len(drawn) % columns or (columns if not drawn else 0))
    rows = [drawn[start : start + columns] for start in range(0, len(drawn), columns)]
    return contact_sheet(rows, [""] * len(rows), [""] * columns)


def _enlarged(image: np.ndarray, points: np.ndarray, height: int) -> tuple[np.ndarray, np.ndarray]:
    scale = height / image.shape[0]
    width = max(1, round(image.shape[1] * scale))
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return cv2.resize(image, (width, height), interpolation=how), (points + 0.5) * [width / image.shape[1], scale] - 0.5


def _read(picture: Picture) -> np.ndarray | None:
    # Whatever is wrong with a file, it is the file's fault: the others are looked at all the same.
    try:
        return picture.read()
    except Exception:
        return None


def _look(picture: Picture, secret: bytes) -> tuple[tuple[int, int], bytes] | None:
    image = _read(picture)
    return None if image is None else ((image.shape[0], image.shape[1]), fingerprint_picture(image, secret)["exact"].tobytes())


def _labelled(pictures: PictureSet) -> dict[str, float]:
    known = [picture.joints[:, 2] > 0 for picture in pictures.pictures if picture.joints is not None]
    if not known:
        return {}
    shares = np.sum(known, axis=0) / len(pictures.pictures)
    return {name: round(float(share), 4) for name, share in zip(MPII.names, shares, strict=True)}
