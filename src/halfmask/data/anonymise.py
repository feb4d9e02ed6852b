"""Clips in which everybody is somebody who does not exist: segment, inpaint, draw an avatar from the pose, compose.

The result says, pixel by pixel, what is avatar: a pixel counts only if the avatar covers it wholly. Such a pixel is a function of the
joints, of the key, of the size of the frames and of which of them the mask shows somebody in: not of any pixel of the clip. Everything
else, what was filled in and what is blended at the avatar's outline included, comes from the room and stays protected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import cv2
import numpy as np

from halfmask.data.avatar_draw import draw_avatar
from halfmask.data.avatar_joints import NECK, PELVIS, check_joints, stance
from halfmask.data.clips import Film
from halfmask.data.inpainting import Inpaint, grown, inpaint
from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError

Segment = Callable[[Film], np.ndarray]
Pose = Callable[[Film], np.ndarray]
Draw = Callable[[np.ndarray, "str | int", tuple[int, int], np.ndarray], np.ndarray]

# Beyond the person's outline: lenses, resizing and compression smear people over a few pixels.
_MARGIN = 2
# How far from a bone, in metres, a person is looked for even where the mask shows nobody.
_FLESH = 0.14
# And from the joints beyond which there is more: hands, feet, hair.
_BEYOND = {0: 0.26, 5: 0.26, 9: 0.18, 10: 0.2, 15: 0.2}


def own_mask(film: Film) -> np.ndarray:
    """The person as the film itself tells: exact in drawn worlds, and where mask files come with the clips."""
    if film.person is None:
        raise HalfmaskError("a clip has no mask of its person: say where masks come from (files, boxes or motion)")
    return film.person


def no_avatar(joints: np.ndarray, key: str | int, size: tuple[int, int], present: np.ndarray) -> np.ndarray:
    """Draws nobody: people are removed, and that is all."""
    return np.zeros((len(present), *size, 4), np.uint8)


def _anny() -> Draw:
    from importlib.util import find_spec

    from halfmask.data.anny_avatar import draw_anny

    if find_spec("anny") is None:
        raise HalfmaskError("avatars of anny need the package anny: install it with pip install 'halfmask[anny]'")
    return draw_anny


# By name, and made when they are asked for: one may need a package that is not installed.
DRAWERS: dict[str, Callable[[], Draw]] = {"own": lambda: draw_avatar, "anny": _anny, "none": lambda: no_avatar}


@dataclass(frozen=True)
class Pipeline:
    """The parts of an anonymisation, each of which can be replaced.

    Attributes:
        segment: the pixels (F×H×W) that show the person.
        inpaint: fills holes (F×H×W) in frames (F×H×W×3). What it makes of them is protected, so it may look at anything.
        pose: joints (F×16×2, MPII's order, NaN where missing) of a film whose `person` is set. Asked only if no joints are given.
        draw: an avatar from joints, a key, the size of frames, and in which frames somebody is present: F×H×W×4 bytes, as
            `draw_avatar`. It must not look at any pixel of the clip.
        margin: pixels beyond the person's outline that are removed as well, besides those that the film says are blended.
        hide_bones: remove what lies close to the joints in every frame, so that a mask that misses an arm leaves no arm behind: for masks
            that are estimates. Where a frame has joints and no mask at all, that is done in any case.
    """

    segment: Segment = own_mask
    inpaint: Inpaint = inpaint
    pose: Pose | None = None
    draw: Draw = draw_avatar
    margin: int = _MARGIN
    hide_bones: bool = False


@dataclass(frozen=True)
class Stages:
    """What an anonymisation went through, to be looked at: all but `film` shows people or their rooms."""

    mask: np.ndarray
    holes: np.ndarray
    inpainted: np.ndarray
    film: Film


def anonymise(film: Film, joints: np.ndarray | None, key: str | int, pipeline: Pipeline | None = None) -> Film:
    """A film with an avatar in the place of its person.

    Joints that are missing in some frames are put in a straight line between those that have them, and held before the first and after the
    last as long as the mask shows somebody. A frame with neither joints nor a mask gets no avatar. A film of which no joints are known at
    all gets none either: the person is removed, and the mask of what is avatar is empty.

    Args:
        film: it is not changed.
        joints: F×16×2 in pixels, in MPII's order, NaN where missing; None to ask `pipeline.pose`.
        key: names the avatar in public: a clip, a video or a subject. Equal keys look alike.

    Returns:
        A film with `person` the pixels that the avatar covers wholly, and nothing blended inside of them.
    """
    return stages(film, joints, key, pipeline).film


def stages(film: Film, joints: np.ndarray | None, key: str | int, pipeline: Pipeline | None = None) -> Stages:
    """The same, with everything in between."""
    pipeline = pipeline or Pipeline()
    mask = np.asarray(pipeline.segment(film), bool)
    if mask.shape != film.frames.shape[:3]:
        raise HalfmaskError(f"a mask of a person has shape {mask.shape}; expected {film.frames.shape[:3]}, frames by height by width")
    present: np.ndarray = np.any(mask, axis=(1, 2))
    if joints is None and pipeline.pose is None:
        raise HalfmaskError("a clip came without joints, and no `pose` finds them: give joints, or draw nobody with `no_avatar`")
    if joints is None:
        assert pipeline.pose is not None
        joints = pipeline.pose(replace(film, person=mask))
    joints = check_joints(joints, len(film.frames))
    if not present.any() and np.isnan(joints[:, [PELVIS, NECK]]).all():
        raise HalfmaskError("neither a mask nor joints tell where the person of a clip is: nobody could be removed from it")
    holes = grown(mask, film.blended + pipeline.margin)
    doubtful = np.ones_like(present) if pipeline.hide_bones else ~present
    if doubtful.any():
        holes[doubtful] |= near_bones(joints, present, mask.shape[1:])[doubtful]
    inpainted = pipeline.inpaint(film.frames, holes)
    sheets = pipeline.draw(joints, key, (mask.shape[1], mask.shape[2]), present)
    return Stages(mask, holes, inpainted, compose(replace(film, frames=inpainted), sheets, holes))


def compose(film: Film, sheets: np.ndarray, holes: np.ndarray) -> Film:
    """Avatars (F×H×W×4) over frames from which people were removed, leaving `holes` filled."""
    cover = sheets[..., 3]
    covered = cover == 255
    frames = film.frames.copy()
    np.copyto(frames, sheets[..., :3], where=covered[..., None])
    edge = (cover > 0) & ~covered
    rest = 255 - cover[edge].astype(np.uint16)[:, None]
    blend = sheets[..., :3][edge] + (film.frames[edge] * rest + 127) // 255
    frames[edge] = np.minimum(blend, 255).astype(np.uint8)
    # What was filled in was made of everything around it, and so of what the holder protects.
    protected = None if film.protected is None else (film.protected | holes | edge) & ~covered
    return Film(frames, covered, protected, blended=0)


def near_bones(joints: np.ndarray, present: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """What lies so close to the bones (F×H×W) that it would be flesh or clothes."""
    body = stance(joints, present)
    reach = 4.0 * max(size)
    found = np.zeros((len(joints), *size), np.uint8)
    for frame in np.flatnonzero(body.known).tolist():
        points = np.clip(body.joints[frame], -reach, reach)
        width = max(3, round(2 * _FLESH * float(body.scale[frame])))
        whole = np.rint(np.nan_to_num(points)).astype(int).tolist()
        for a, b in MPII.edges:
            if np.isfinite(points[[a, b]]).all():
                cv2.line(found[frame], whole[a], whole[b], 1, width)
        for joint, metres in _BEYOND.items():
            if np.isfinite(points[joint]).all():
                cv2.circle(found[frame], whole[joint], round(metres * float(body.scale[frame])), 1, -1)
    return found.astype(bool)
