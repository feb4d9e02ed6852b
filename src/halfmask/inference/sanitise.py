"""Photographs with the people on them replaced by people drawn by a trained generator, in the same pose.

A file is written whole or not at all. One on which somebody could be left by mistake (it cannot be read, the file of boxes does not speak
of it, a box lies outside, joints of somebody are in no box) is not written, and the rest is done.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from halfmask.data.picture_poses import EMBEDDED, PoseNetwork
from halfmask.data.picture_poses import pose_network as open_pose_network
from halfmask.errors import HalfmaskError, unknown_name
from halfmask.inference.finished import CERTIFICATE
from halfmask.inference.generators import PersonGenerator, open_generator
from halfmask.inference.manifest import MANIFEST, Done, Drawn, Manifest, header
from halfmask.inference.originals import Original, check_target, find_originals
from halfmask.inference.people_given import Given, read_boxes, read_poses, with_poses
from halfmask.inference.photographs import open_photograph, packed
from halfmask.inference.repainting import BACKGROUNDS, Fitting, Region, region_of, repaint, whole
from halfmask.privacy.certificate import promise_in
from halfmask.training.outputs import only_one
from halfmask.writing import write_whole, writing

# A share of the box's own width and height, on each side.
MARGIN = 0.1
# The manifest is written anew so often while pictures are being made: a process that is killed leaves one too.
_SECONDS = 5.0
_AT_ONCE = 32


@dataclass(frozen=True)
class Sanitised:
    """What came of it.

    Attributes:
        folder: where the pictures and `manifest.json` are.
        not_done: the names of files that were not written, each with the reason.
        cautions: what whoever hands the pictures on must know.
    """

    folder: Path
    done: tuple[Done, ...]
    not_done: tuple[tuple[str, str], ...]
    cautions: tuple[str, ...]

    @property
    def people(self) -> int:
        """How many were replaced."""
        return sum(len(one.people) for one in self.done)

    @property
    def manifest(self) -> Path:
        """Where it is written down."""
        return self.folder / MANIFEST


def sanitise(
    run: str | Path,
    images: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    boxes: str | Path | None = None,
    poses: str | Path | None = None,
    pose_network: str | None = None,
    background: str = "keep",
    margin: float = MARGIN,
    same_person: bool = False,
    seed: int | None = None,
    overwrite: bool = False,
    device: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Sanitised:
    """Replace the people on photographs by drawn ones in the same pose.

    Args:
        run: the folder of a finished run of the task `generate`.
        images: files and folders; what is below a folder keeps its place.
        boxes: who is where, a CSV (`file,x,y,w,h`) or COCO's JSON. Without it each picture is one person's crop, all of which is replaced.
        poses: joints of people, COCO's JSON with keypoints; what it lacks a network finds.
        pose_network: `embedded`, a run of the task `pose` or a weight file; by default the one that the run's own poses come from.
        background: `keep`, `blur` or `none` of what is outside the boxes.
        margin: how much larger than a box the part that is replaced is on each side, as a share of the box.
        same_person: whether the first person of every picture has one appearance, the second another, and so on (for frames of a film);
            else everybody on every picture has a new one.
        seed: draws the appearances, for tests; by default the operating system does.
        overwrite: whether files of the same names in a folder that holds some already are replaced.

    Raises:
        HalfmaskError: before anything is written, or because nothing can be written any more. Single files that cannot be done are told in
            the answer and in the manifest.
    """
    _check(background, margin, seed)
    given = [Path(one).expanduser() for one in ([images] if isinstance(images, str | Path) else images)]
    folder, target = Path(run).expanduser(), Path(out).expanduser()
    generator = open_generator(folder, device)
    found = find_originals(given)
    held = check_target(target, given, found.originals, folder, overwrite)
    names = [one.name for one in found.originals]
    work = _Work(
        generator,
        open_pose_network(pose_network or generator.task.config.data.poses or EMBEDDED),
        None if boxes is None else read_boxes(Path(boxes).expanduser(), names),
        None if poses is None else read_poses(Path(poses).expanduser(), names),
        background,
        margin,
        _Appearances(generator.latent, same_person, seed),
    )
    cautions = [*generator.cautions]
    if held:
        cautions.append(f"the folder held {held:,} files before: those that the manifest does not name are none of its pictures")
    settings = {
        "margin": margin,
        "poses": {"given": poses is not None, "network": work.network.words},
        "appearances": "one for each place in a picture, the same in all" if same_person else "a new one for each person of each picture",
        "seed": seed,
        "randomness": "a seed, for tests: whoever knows it can draw the same people" if seed is not None else "the operating system's",
        "boxes_given": boxes is not None,
        "other_files_passed_over": found.others,
    }
    with only_one(target):
        with writing(target, "give another --out"):
            target.mkdir(parents=True, exist_ok=True)
        text = _copy_certificate(generator, target)
        about = {"folder": folder.name, "task": "generate", "id": (generator.certificate or {}).get("run")}
        manifest = Manifest(target, header(generator.certificate, text, about, background, settings, cautions), names)
        manifest.not_done += [(one.name, f"its format ({one.path.suffix}) is not supported") for one in found.unsupported]
        _do_all(work, found.originals, target, manifest, progress)
    return Sanitised(target, tuple(manifest.done), tuple(manifest.not_done), tuple(cautions))


def _check(background: str, margin: float, seed: int | None) -> None:
    if background not in BACKGROUNDS:
        raise unknown_name("background (--background)", background, BACKGROUNDS)
    if not (math.isfinite(margin) and 0 <= margin <= 10):
        raise HalfmaskError(f"--margin is {margin:g}: expected a share of the box from 0 to 10; what is replaced is never smaller than it")
    if seed is not None and seed < 0:
        raise HalfmaskError(f"--seed is {seed}: expected a whole number, 0 or more")


def _copy_certificate(generator: PersonGenerator, target: Path) -> str:
    """Put the run's certificate beside the pictures; gives its promise in words. One of another run is not left there."""
    text = ""
    for name in CERTIFICATE:
        source = generator.folder / name
        with writing(target / name, "start again with --overwrite"):
            if generator.certificate is None or not source.is_file():
                (target / name).unlink(missing_ok=True)
                continue
            body = source.read_bytes()
            write_whole(target / name, body)
        if source.suffix == ".md":
            text = promise_in(body.decode())
    return text


def _do_all(
    work: _Work, originals: Sequence[Original], target: Path, manifest: Manifest, progress: Callable[[int, int], None] | None
) -> None:
    """One after the other; however it ends, the manifest says what is there."""
    written = time.monotonic()
    manifest.write()
    try:
        for number, one in enumerate(originals, 1):
            try:
                body, done = work.sanitised(one)
            except HalfmaskError as error:
                manifest.not_done.append((one.name, str(error)))
            except (cv2.error, MemoryError):
                manifest.not_done.append((one.name, "it is too large, or of a kind that OpenCV cannot work on"))
            else:
                place = target / one.name
                with writing(place, "start again with --overwrite"):
                    place.parent.mkdir(parents=True, exist_ok=True)
                    write_whole(place, body)
                manifest.done.append(done)
            manifest.tried = number
            if progress:
                progress(number, len(originals))
            if time.monotonic() - written > _SECONDS:
                manifest.write()
                written = time.monotonic()
    finally:
        manifest.write()


class _Appearances:
    """Whom pictures show: numbers that an appearance is made of, drawn by the operating system, or for tests by a seed.

    Each is keyed by the picture and the person, so that with a seed a picture's people do not depend on what else is done.
    """

    def __init__(self, latent: int, same: bool, seed: int | None):
        self.latent, self.same = latent, same
        self._entropy = secrets.randbits(128) if seed is None else seed

    def __call__(self, name: str, people: int) -> np.ndarray:
        key = 0 if self.same else 1 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
        rows = [np.random.default_rng([self._entropy, key, number]).standard_normal(self.latent) for number in range(people)]
        return np.array(rows, np.float32).reshape(people, self.latent)


@dataclass(frozen=True)
class _Work:
    """All that is needed to do one photograph."""

    generator: PersonGenerator
    network: PoseNetwork
    boxes: dict[str, Given] | None
    poses: dict[str, Given] | None
    background: str
    margin: float
    appearances: _Appearances

    def sanitised(self, original: Original) -> tuple[bytes, Done]:
        """The bytes of the new file, and what was done."""
        photograph = open_photograph(original.path)
        picture = photograph.pixels
        regions, joints = self._people(original.name, picture)
        fittings = [Fitting.of(region, picture, self.generator.size, self.generator.task.config.data.fit) for region in regions]
        found = self._found(picture, regions, joints)
        placed = [fitting.placed(pose) for fitting, pose in zip(fittings, found, strict=True)]
        people = []
        if placed:
            drawn = self.generator.draw(np.stack(placed), self.appearances(original.name, len(placed)))
            people = [(one.region, one.back(pixels)) for one, pixels in zip(fittings, drawn, strict=True)]
        body = packed(repaint(picture, people, self.background), original.path.suffix, photograph.grey)
        told = tuple(
            Drawn(region, "network" if given is None else "given", int((pose[:, 2] > 0).sum()))
            for region, given, pose in zip(regions, joints, placed, strict=True)
        )
        return body, Done(original.name, picture.shape[1], picture.shape[0], told, photograph.notes)

    def _people(self, name: str, picture: np.ndarray) -> tuple[list[Region], list[np.ndarray | None]]:
        """Where people are, and their joints where they were given."""
        rows, columns = picture.shape[:2]
        poses = (self.poses or {}).get(name)
        if poses is not None:
            poses.check_size(columns, rows)
        if self.boxes is None:
            if poses is not None and len(poses.boxes) > 1:
                raise HalfmaskError(
                    f"joints of {len(poses.boxes)} people were given for it, and no boxes: without --boxes a picture is one person's crop"
                )
            return [whole(picture)], [poses.joints[0] if poses is not None and poses.joints else None]
        if name not in self.boxes:
            raise HalfmaskError("the file of boxes does not name it: give its boxes, or a line without any to say that nobody is on it")
        given = self.boxes[name]
        given.check_size(columns, rows)
        regions = [region_of(box, picture, self.margin) for box in given.boxes]
        _check_covered(regions, poses)
        return regions, with_poses(given, poses)

    def _found(self, picture: np.ndarray, regions: Sequence[Region], given: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """Everybody's joints in pixels of the picture: those given, or as the network sees them on the picture as it was."""
        asked = [number for number, joints in enumerate(given) if joints is None]
        found: dict[int, np.ndarray] = {}
        for start in range(0, len(asked), _AT_ONCE):
            some = asked[start : start + _AT_ONCE]
            for number, joints in zip(some, self.network([regions[number].of(picture) for number in some]), strict=True):
                region, known = regions[number], joints[:, 2] > self.generator.task.config.data.pose_score
                points = joints[:, :2] + [region.left, region.top]
                found[number] = np.where(known[:, None], np.column_stack([points, known]), 0)
        return [found[number] if joints is None else joints for number, joints in enumerate(given)]


def _check_covered(regions: Sequence[Region], poses: Given | None) -> None:
    """Refuse a photograph on which somebody is, as their joints tell, whom no box covers."""
    left = 0
    for joints in poses.joints if poses is not None else ():
        if joints is None:
            continue
        points = joints[joints[:, 2] > 0, :2]
        covered = np.zeros(len(points), bool)
        for one in regions:
            first, last = np.array([one.left, one.top]), np.array([one.left + one.width, one.top + one.height])
            covered |= ((points > first - 1) & (points < last)).all(1)
        # A joint of somebody may stick out of their box, as a hand does; somebody who is in none sticks out with most of them.
        left += bool(covered.mean() < 0.5)
    if left:
        raise HalfmaskError(f"joints of {left} people were given who are in no box, and would be left on it: give their boxes too")
