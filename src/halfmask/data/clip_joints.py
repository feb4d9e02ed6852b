"""Where the poses of clips come from: the joints that avatars are drawn from.

| file | holds |
|---|---|
| `.csv` | `clip,frame,joint,x,y`: frames counted from 0, joints by name (`r_knee`, `left_wrist`) or by MPII's number |
| `.json` | `{clip: [frame, …]}`, a frame being a list of `[x, y]`, with `null` for a joint or a frame that nobody knows |
| `.npz` | an array for each clip, F×J×2, with NaN for joints that nobody knows |

Joints are in stored pixels, pixel centres at whole numbers. In JSON and NPZ there are 16 in MPII's order, 17 in COCO's or 14 in LSP's; what
a dataset does not have of MPII's is derived or missing. Poses are public, as the certificate says: they are all that an avatar shows.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from halfmask.data.clips import Film, Take
from halfmask.data.files import BadAnnotations, describe, finite_array, read_json, where_named
from halfmask.data.mapping import map_joints
from halfmask.data.skeleton import MPII, SKELETONS, full_name
from halfmask.errors import HalfmaskError

if TYPE_CHECKING:
    from halfmask.data.figures.clips import Clips

_COLUMNS = ("clip", "frame", "joint", "x", "y")
_KINDS = (".csv", ".json", ".npz")
_NUMBERS = {full_name(name): number for number, name in enumerate(MPII.names)} | {str(number): number for number in range(len(MPII))}


class JointSource(Protocol):
    """Gives the joints of a clip.

    Attributes:
        words: where poses come from, in the words of the certificate.
    """

    @property
    def words(self) -> str: ...  # noqa: D102

    def __call__(self, take: Take, film: Film) -> np.ndarray | None:
        """F×16×2 in MPII's order, NaN where missing; None where nothing is known of the clip. The film has its `person`."""


@dataclass(frozen=True)
class DrawnJoints:
    """The exact joints of people who were drawn: of the clips of `figures_clips`, with the same arguments."""

    population: str
    frames: int
    size: int
    seed: int = 0
    words = "exact, of drawn people"

    @cached_property
    def clips(self) -> Clips:
        """The world that they live in."""
        from halfmask.data.figures.clips import CARE_ACTIONS, Clips

        return Clips(self.population, seed=self.seed, size=(self.size, self.size), frames=self.frames, only=CARE_ACTIONS)

    def __call__(self, take: Take, film: Film) -> np.ndarray | None:
        """As the clip was drawn. A drawn clip is a function of its number, which is the end of its name."""
        return self.clips.clip(int(take.name.rsplit("/", 1)[1])).joints.astype(np.float64)


@dataclass(frozen=True)
class FileJoints:
    """Joints that the data holder has, in a file for all clips."""

    path: Path
    words = "joints of the data holder"

    @cached_property
    def clips(self) -> Mapping[str, np.ndarray]:
        """By clip, F×16×2; F may be less than the clip's frames, where nobody is known in the last of them."""
        return read_joints(self.path)

    def __call__(self, take: Take, film: Film) -> np.ndarray | None:
        """Those of the clip. Refused if they are of more frames than it has: they would be another cut's."""
        found = self.clips.get(take.name)
        if found is None:
            return None
        frames = len(film.frames)
        if len(found) > frames:
            raise BadAnnotations(
                f"{self.path}: joints of a clip go on after its last frame: expected those of its own frames ({where_named()})",
                [f"{take.name}: joints of {len(found)} frames, and {frames} frames"],
            )
        joints = np.full((frames, len(MPII), 2), np.nan)
        joints[: len(found)] = found
        return joints


def read_joints(path: Path) -> dict[str, np.ndarray]:
    """The joints of a file by clip: F×16×2 in MPII's order, NaN where missing."""
    if not path.is_file():
        raise HalfmaskError(f"no joints at {path}: give a file ending in {', '.join(_KINDS)}")
    kind = path.suffix.lower()
    if kind not in _KINDS:
        raise HalfmaskError(f"{path} ends in '{path.suffix}': expected joints in a file ending in {', '.join(_KINDS)}")
    return {".csv": _from_csv, ".json": _from_json, ".npz": _from_npz}[kind](path)


def _from_csv(path: Path) -> dict[str, np.ndarray]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        table = csv.DictReader(file)
        missing = [column for column in _COLUMNS if column not in (table.fieldnames or ())]
        if missing:
            raise HalfmaskError(f"{path} lacks the columns {', '.join(missing)}: expected {', '.join(_COLUMNS)}")
        rows = list(table)
    placed: dict[str, dict[tuple[int, int], np.ndarray]] = {}
    wrong = []
    for number, row in enumerate(rows):
        joint = _NUMBERS.get(full_name((row["joint"] or "").strip()))
        at, point = finite_array(row["frame"], ()), finite_array([row["x"], row["y"]], (2,))
        if joint is None or at is None or point is None or at < 0 or at != int(at):
            wrong.append(f"row {number + 1}, clip {row['clip']}: frame {row['frame']}, joint {row['joint']}, {row['x']}, {row['y']}")
        else:
            placed.setdefault(row["clip"], {})[int(at), joint] = point
    _refuse(path, wrong, len(rows), f"a frame counted from 0, a joint of MPII's ({', '.join(MPII.names)}) and x and y in pixels")
    found = {}
    for clip, points in placed.items():
        found[clip] = np.full((max(frame for frame, _ in points) + 1, len(MPII), 2), np.nan)
        for (frame, joint), point in points.items():
            found[clip][frame, joint] = point
    return found


def _from_json(path: Path) -> dict[str, np.ndarray]:
    body = read_json(path)
    if not isinstance(body, dict):
        raise HalfmaskError(f"{path} holds {describe(body)}: expected {{clip: [frame, …]}}, a frame being a list of [x, y]")
    arrays = {str(clip): _of_lists(frames) for clip, frames in body.items()}
    return _in_order(path, arrays)


def _of_lists(frames: Any) -> np.ndarray | None:
    """Lists of lists with `null` for what is missing, as an array; None if they are anything else."""
    if not isinstance(frames, list):
        return None
    counts = {len(frame) for frame in frames if isinstance(frame, list)}
    if len(counts) != 1:
        return None
    joints = counts.pop()
    nothing = [None, None]
    full = [[nothing if point is None else point for point in (frame or [None] * joints)] for frame in frames]
    try:
        return np.array(full, np.float64)
    except (TypeError, ValueError):
        return None


def _from_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {clip: archive[clip] for clip in archive.files}
    except (OSError, ValueError, EOFError) as error:
        raise HalfmaskError(f"{path} cannot be read as an NPZ archive of numbers ({type(error).__name__}): write it again") from None
    return _in_order(path, arrays)


def _in_order(path: Path, arrays: Mapping[str, np.ndarray | None]) -> dict[str, np.ndarray]:
    """Arrays in any known order of joints as MPII has them."""
    sizes = {len(skeleton): skeleton for skeleton in SKELETONS.values()}
    found, wrong = {}, []
    for clip, array in arrays.items():
        fits = array is not None and array.ndim == 3 and array.shape[2] == 2 and array.shape[1] in sizes and array.dtype.kind in "fiu"
        if array is None or not fits:
            wrong.append(f"{clip}: {'no numbers' if array is None else f'{array.dtype} of shape {array.shape}'}")
            continue
        joints = array.astype(np.float64)
        known: np.ndarray = np.all(np.isfinite(joints), axis=2)
        mapping = map_joints(sizes[joints.shape[1]], MPII)
        placed, labelled = mapping.apply(np.where(known[:, :, None], joints, 0.0), known)
        found[clip] = np.where(labelled[:, :, None], placed, np.nan)
    orders = ", ".join(f"{count} in {skeleton.name}'s order" for count, skeleton in sizes.items())
    _refuse(path, wrong, len(arrays), f"frames × joints × 2 numbers for each, of {orders}", "clips")
    return found


def _refuse(path: Path, wrong: list[str], total: int, expected: str, noun: str = "rows") -> None:
    if wrong:
        raise BadAnnotations(f"{path}: {len(wrong):,} of {total:,} {noun} cannot be used: expected {expected}. Mend them", wrong)
