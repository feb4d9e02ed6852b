"""From pictures to records: opened once, brought to one size, fingerprinted, and kept in private storage, with the joints of each.

Joints that a network finds are kept apart, in the pixels of the picture as it was: another size needs no other look.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice

import cv2
import numpy as np

from halfmask.data.crops import ON_BAD, joints_box
from halfmask.data.files import where_named
from halfmask.data.images import crop_transform
from halfmask.data.keyed import record_id
from halfmask.data.people import UNREADABLE
from halfmask.data.picture_poses import PoseNetwork
from halfmask.data.pictures import NO_ACTION, Picture, PictureRecords, check_size, picture_records
from halfmask.data.prints import fill_prints, print_fields
from halfmask.data.skeleton import MPII
from halfmask.data.store import Draft, cached_by_row
from halfmask.data.threads import in_order
from halfmask.errors import HalfmaskError, unknown_name
from halfmask.privacy.fingerprints import Fingerprints, fingerprint_annotation, fingerprint_name, fingerprint_picture, key, keyed_hash

Report = Callable[[str, int, int], None]

FIT = ("whole", "squeeze", "person")
ANNOTATED = "annotated by the dataset"
_AT_ONCE = 32
_NOTHING = np.zeros(16, np.uint8)
# Part of every key: pictures made by code that fitted them differently are not found again.
_VERSION = 1


def read_pictures(
    pictures: Sequence[Picture],
    actions: tuple[str, ...],
    size: tuple[int, int],
    name: str,
    poses: PoseNetwork | None = None,
    fit: str = "whole",
    least_score: float = 0.0,
    workers: int = 0,
    on_bad: str = "refuse",
    report: Report | None = None,
) -> tuple[PictureRecords, dict[str, int]]:
    """The records of pictures, and how many pictures are none, for each reason.

    Args:
        actions: in the order in which they are counted.
        name: names the dataset in public, and so its records.
        poses: who says where the joints are; None for the pictures' own.
        fit: how a picture is brought to the size: `whole` in its proportions, with its edges drawn out where they differ, `squeeze`, or
            cut round the `person`'s own joints.
        least_score: a joint that the network is less sure of counts as not known.
        on_bad: what to do about a file that cannot be read: `refuse` to go on, or `skip` it.
    """
    check_size(size)
    if on_bad not in ON_BAD:
        raise unknown_name("way to treat bad images (data.on_bad)", on_bad, ON_BAD)
    _check(pictures, actions, name, fit, own=poses is None)
    # Fingerprints lie beside the pictures, and are worth something under the key they were made with alone.
    secret = keyed_hash(b"cache").hex()[:8]
    of_pictures = f"pictures/{name}/{_digest(pictures)}/{_VERSION}/{on_bad}/{cv2.__version__}"
    records_key = f"{of_pictures}/{size[0]}x{size[1]}/{fit}/{secret}"
    arrays = cached_by_row("records", records_key, lambda draft: _write(draft, pictures, size, fit, workers, on_bad, report))
    shown = [pictures[place] for place in arrays["kept"].tolist()]
    if not shown:
        raise HalfmaskError(f"none of the {len(pictures):,} pictures of '{name}' can be read: the dataset is empty")
    if poses is None:
        joints = np.stack([_own(one) for one in shown])
    else:
        found = cached_by_row("poses", f"{of_pictures}/{poses.stamp}", lambda draft: _find_poses(draft, shown, poses, workers, report))
        joints = np.array(found["joints"])
        joints[:, :, 2] = joints[:, :, 2] > least_score
    left_out: dict[str, int] = json.loads(arrays["left_out"].tobytes())
    records = picture_records(
        images=arrays["image"],
        joints=_placed(joints, np.array(arrays["transforms"]), size),
        actions_done=np.array([actions.index(one.action) if one.action in actions else NO_ACTION for one in shown]),
        image_ids=np.array([record_id(name, "image", one.name) >> 1 for one in shown], np.int64),
        subjects=np.array([record_id(name, "subject", one.subject) >> 1 for one in shown], np.int64),
        key=f"{records_key}/{'own' if poses is None else poses.stamp}/{least_score:g}/{','.join(actions)}",
        actions=actions,
        skeleton=MPII,
        poses=ANNOTATED if poses is None else poses.words,
        prints=_prints(arrays, shown, name),
        ids=np.array([record_id(name, one.name) for one in shown], np.uint64),
    )
    return records, left_out


def fitted(image: np.ndarray, size: tuple[int, int], fit: str, joints: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A picture brought to a size (height, width), and the 2×3 map from its pixels to the new ones."""
    rows, columns = image.shape[:2]
    if fit == "person" and joints is not None and (joints[:, 2] > 0).any():
        where = crop_transform(joints_box(joints, joints[:, 2] > 0), size)
        # Cut out first and then made smaller by area: straight from a large picture, most of its pixels would be passed over.
        times = max(1, int(1 / where[0, 0]))
        finer = where * times
        finer[:, 2] += (times - 1) / 2
        cut = cv2.warpAffine(image, finer, (size[1] * times, size[0] * times), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        return cv2.resize(cut, size[::-1], interpolation=cv2.INTER_AREA), where
    scale = min(size[0] / rows, size[1] / columns)
    inner = size if fit == "squeeze" else (max(1, round(rows * scale)), max(1, round(columns * scale)))
    how = cv2.INTER_AREA if inner[0] <= rows and inner[1] <= columns else cv2.INTER_LINEAR
    small = cv2.resize(image, inner[::-1], interpolation=how)
    top, left = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    padded = cv2.copyMakeBorder(small, top, size[0] - inner[0] - top, left, size[1] - inner[1] - left, cv2.BORDER_REPLICATE)
    down, across = inner[0] / rows, inner[1] / columns
    return padded, np.array([[across, 0, left + across / 2 - 0.5], [0, down, top + down / 2 - 0.5]])


def _check(pictures: Sequence[Picture], actions: tuple[str, ...], name: str, fit: str, own: bool) -> None:
    """Refuse what would pass for something else later, in numbers alone."""
    if fit not in FIT:
        raise unknown_name("way to fit pictures (data.fit)", fit, FIT)
    twice = len(pictures) - len({picture.name for picture in pictures})
    if twice:
        raise HalfmaskError(f"{twice:,} pictures of '{name}' have the name of another one: expected a name of its own for each")
    unknown = sum(bool(picture.action) and picture.action not in actions for picture in pictures)
    if unknown:
        raise HalfmaskError(f"{unknown:,} pictures of '{name}' show an action that is none of {', '.join(actions)}: leave them out")
    bare = sum(picture.joints is None for picture in pictures)
    if bare and (own or fit == "person"):
        raise HalfmaskError(
            f"{bare:,} of {len(pictures):,} pictures of '{name}' have no joints of their own: have them found by a network (data.poses="
            "embedded, or the path of a better one), and fit the whole picture (data.fit=whole or squeeze)"
        )


def _write(
    draft: Draft, pictures: Sequence[Picture], size: tuple[int, int], fit: str, workers: int, on_bad: str, report: Report | None
) -> None:
    """Each picture is opened once and its row is written; those that cannot be read are counted, and then refused or taken out."""
    shapes = {"image": (np.uint8, (3, *size)), "transforms": (np.float64, (2, 3))}
    fields = draft.fields(shapes | print_fields(), len(pictures))

    def write(row: int) -> str:
        try:
            image = pictures[row].read()
        except (HalfmaskError, OSError, ValueError):
            return UNREADABLE
        picture, where = fitted(image, size, fit, pictures[row].joints)
        fields["image"][row] = picture.transpose(2, 0, 1)
        fields["transforms"][row] = where
        fill_prints(fields, [row], fingerprint_picture(image))
        return ""

    problems: list[str] = []
    for problem in in_order(write, range(len(pictures)), workers):
        problems.append(problem)
        _tell(report, "opening pictures", len(problems), len(pictures))
    found = Counter(problem for problem in problems if problem)
    if found and on_bad == "refuse":
        # Numbers alone: a file's name can be a person's.
        raise HalfmaskError(
            f"{found[UNREADABLE]:,} of {len(pictures):,} image files cannot be read: restore them ({where_named()}), or leave them out "
            "with data.on_bad=skip"
        )
    kept = np.array([row for row, problem in enumerate(problems) if not problem], np.int64)
    draft.keep(kept)
    draft.save("kept", kept)
    draft.save("left_out", np.frombuffer(json.dumps(dict(found.most_common())).encode(), np.uint8))


def _find_poses(draft: Draft, pictures: Sequence[Picture], poses: PoseNetwork, workers: int, report: Report | None) -> None:
    field = draft.fields({"joints": (np.float32, (len(MPII), 3))}, len(pictures))["joints"]
    done = 0
    opened = in_order(lambda picture: picture.read(), pictures, workers)
    while some := list(islice(opened, _AT_ONCE)):
        for joints in poses(some):
            field[done] = joints
            done += 1
        if report:
            report("finding poses", done, len(pictures))


def _own(picture: Picture) -> np.ndarray:
    assert picture.joints is not None
    known = (picture.joints[:, 2] > 0) & np.isfinite(picture.joints[:, :2]).all(1)
    return np.where(known[:, None], np.column_stack([picture.joints[:, :2], known]), 0)


def _placed(joints: np.ndarray, transforms: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Joints in pixels of the records; zeros for those that are not known, or outside."""
    points = np.einsum("nij,nkj->nki", transforms[:, :, :2], joints[:, :, :2]) + transforms[:, None, :, 2]
    known = (joints[:, :, 2] > 0) & ((points >= -0.5) & (points <= [size[1] - 0.5, size[0] - 0.5])).all(2)
    return np.where(known[:, :, None], np.concatenate([points, known[:, :, None]], 2), 0).astype(np.float32)


def _prints(arrays: dict[str, np.ndarray], shown: Sequence[Picture], name: str) -> Fingerprints:
    """Of the pictures as they were, of their annotations where there are any, and of the subjects: whatever size they are brought to."""
    secret = key()
    subjects = {one: fingerprint_name("subject", f"{name}/{one}", secret) for one in {picture.subject for picture in shown}}
    columns = {
        "annotations": [_NOTHING if one.joints is None else fingerprint_annotation(_own(one), secret) for one in shown],
        "subjects": [subjects[one.subject] for one in shown],
    }
    pictures = {part: arrays[f"print_{part}"] for part in ("exact", "bands", "sealed")}
    return Fingerprints.from_arrays(pictures | {part: np.array(rows, np.uint8).reshape(len(shown), 16) for part, rows in columns.items()})


def _digest(pictures: Sequence[Picture]) -> str:
    """Names these pictures with these joints of these files, for caches: a changed file is looked at again."""
    digest = hashlib.sha256()
    for one in pictures:
        digest.update(f"{one.name!r}|{getattr(one.read, 'stamp', '')}|".encode())
        digest.update(b"" if one.joints is None else np.ascontiguousarray(one.joints, np.float64).tobytes())
    return digest.hexdigest()[:24]


def _tell(report: Report | None, stage: str, done: int, total: int) -> None:
    if report and (done % 50 == 0 or done == total):
        report(stage, done, total)
