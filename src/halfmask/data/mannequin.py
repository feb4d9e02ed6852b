"""Avatars of a mesh: a body in three dimensions, put into a pose by its joints in two, and drawn.

How far a limb points towards the camera or away from it is told by how much shorter than itself it looks; which of both, by what bodies do:
knees and elbows bend forwards. A limb is turned, and stretched where the person's is longer, so that its ends are where the joints are.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from halfmask.data.avatar_joints import HEAD_TOP, NECK, PELVIS, THORAX, Stance, stance
from halfmask.data.avatars import Avatar

# From, to, and whether the end is nearer to where the body faces (1), or farther (−1), if the limb looks short.
SEGMENTS: dict[str, tuple[int, int, float]] = {
    "trunk": (PELVIS, THORAX, 1.0),
    "head": (NECK, HEAD_TOP, 1.0),
    "r_thigh": (2, 1, 1.0),
    "r_shin": (1, 0, -1.0),
    "l_thigh": (3, 4, 1.0),
    "l_shin": (4, 5, -1.0),
    "r_upper": (12, 11, 1.0),
    "r_forearm": (11, 10, 1.0),
    "l_upper": (13, 14, 1.0),
    "l_forearm": (14, 15, 1.0),
}
_NAMES = tuple(SEGMENTS)
# Where the depth of a limb's beginning comes from: the end of another limb, or how the body stands.
_HANGS_ON = {"head": "trunk", "r_shin": "r_thigh", "l_shin": "l_thigh", "r_forearm": "r_upper", "l_forearm": "l_upper"}
_TRUNK_METRES = 0.49
_FINE = 2
_REACH = 4.0


@dataclass(frozen=True)
class Mannequin:
    """A body at rest: upright, facing the camera.

    Attributes:
        vertices: V×3: x to the right of the image, y up, z towards the camera; the trunk is 0.49 m long.
        faces: T×3, turning the same way seen from outside.
        weights: V×10, how much of each vertex goes with each of `SEGMENTS`; rows sum to 1.
        joints: 16×3 in MPII's order.
    """

    vertices: np.ndarray
    faces: np.ndarray
    weights: np.ndarray
    joints: np.ndarray


def upright(vertices: np.ndarray, faces: np.ndarray, weights: np.ndarray, joints: np.ndarray) -> Mannequin:
    """A mannequin from a body in any frame and of any size, told by its own joints."""
    up = _unit(joints[THORAX] - joints[PELVIS])
    left = joints[13] - joints[12]
    left = _unit(left - up * float(left @ up))
    frame = np.stack([left, up, np.cross(left, up)])
    size = _TRUNK_METRES / float(np.linalg.norm(joints[THORAX] - joints[PELVIS]))
    placed, origin = (vertices - joints[PELVIS]) @ frame.T * size, joints[PELVIS]
    corners = placed[faces]
    # Twice six times the volume: below zero if faces turn the other way.
    if float(np.einsum("ti,ti->", corners[:, 0], np.cross(corners[:, 1], corners[:, 2]))) < 0:
        faces = faces[:, ::-1]
    return Mannequin(placed, np.ascontiguousarray(faces), weights, (joints - origin) @ frame.T * size)


def draw_mannequin(
    mannequin: Mannequin, avatar: Avatar, joints: np.ndarray, size: tuple[int, int], present: np.ndarray | None = None
) -> np.ndarray:
    """As `halfmask.data.avatar_draw.draw_look`: F×H×W×4 bytes."""
    reach = _REACH * max(size)
    body = stance(np.clip(joints, -reach, reach), np.ones(len(joints), bool) if present is None else present)
    colours = _colours(mannequin, avatar)
    sheets = np.zeros((len(joints), *size, 4), np.uint8)
    for frame in np.flatnonzero(body.known).tolist():
        points, drawn = pose_mesh(mannequin, body, frame)
        sheets[frame] = _render(points, mannequin.faces[drawn], colours[drawn], size, avatar.light)
    return sheets


def pose_mesh(mannequin: Mannequin, body: Stance, frame: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices in one frame (V×3: pixels and, as large, the depth), and which faces belong to limbs whose joints are known."""
    metre, front, turn = max(1.0, float(body.scale[frame])), float(body.front[frame]), float(body.turn[frame])
    yaw = np.array([[front, 0.0, turn], [0.0, 1.0, 0.0], [-turn, 0.0, front]])
    rest, bones = mannequin.vertices @ yaw.T * metre, mannequin.joints @ yaw.T * metre
    ahead = 1.0 if front >= 0 else -1.0
    flat = body.joints[frame] * [1.0, -1.0]
    points = np.zeros_like(rest)
    ends: dict[str, float] = {}
    missing = []
    for number, (name, (first, last, sign)) in enumerate(SEGMENTS.items()):
        start, end = flat[first], flat[last]
        if not np.isfinite([start, end]).all():
            missing.append(number)
            ends[name] = 0.0
            continue
        bone = bones[last] - bones[first]
        length = max(float(np.linalg.norm(bone)), 1e-6)
        across = end - start
        deep = ahead * sign * np.sqrt(max(0.0, length**2 - float(across @ across)))
        target = np.array([across[0], across[1], deep])
        depth = ends[_HANGS_ON[name]] if name in _HANGS_ON else float(bones[first][2] - bones[PELVIS][2])
        ends[name] = depth + deep
        along = bone / length
        longer = max(1.0, float(np.linalg.norm(target)) / length)
        local = rest - bones[first]
        local = local + np.outer(local @ along, along) * (longer - 1.0)
        placed = local @ _rotation(along, _unit(target)).T + [start[0], start[1], depth]
        points += mannequin.weights[:, number, None] * placed
    points[:, 1] *= -1.0
    lost = mannequin.weights[:, missing].sum(axis=1) > 0.02 if missing else np.zeros(len(points), bool)
    return points, ~lost[mannequin.faces].any(axis=1)


def _render(points: np.ndarray, faces: np.ndarray, colours: np.ndarray, size: tuple[int, int], light: float) -> np.ndarray:
    """Faces from the farthest to the nearest, on a sheet twice as fine."""
    corners = points[faces] * [1.0, -1.0, 1.0]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.maximum(np.linalg.norm(normals, axis=1), 1e-9)
    shown = normals[:, 2] > 0
    shade = 0.58 + 0.42 * np.clip(normals @ _unit(np.array([-0.5 * light, 0.6, 0.7])) / length, 0.0, 1.0)
    order = np.flatnonzero(shown)
    order = order[np.argsort(corners[order, :, 2].mean(axis=1), kind="stable")]
    fine = np.zeros((size[0] * _FINE, size[1] * _FINE, 4), np.uint8)
    pixels = np.rint(((points[faces[order], :2] + 0.5) * _FINE - 0.5) * 16).astype(np.int32)
    paint = np.concatenate([colours[order] * shade[order, None], np.full((len(order), 1), 255.0)], axis=1).tolist()
    for shape, colour in zip(pixels, paint, strict=True):
        cv2.fillConvexPoly(fine, shape, colour, cv2.LINE_8, 4)
    # A pixel is covered wholly if all of its parts are: their mean is 255 then, and below otherwise.
    parts = fine.reshape(size[0], _FINE, size[1], _FINE, 4).astype(np.uint16)
    return (parts.sum(axis=(1, 3)) // _FINE**2).astype(np.uint8)


def _colours(mannequin: Mannequin, avatar: Avatar) -> np.ndarray:
    """The colour of each face (T×3): skin, hair and the avatar's clothes, plain."""
    middles = mannequin.vertices[mannequin.faces].mean(axis=1)
    part = mannequin.weights[mannequin.faces].mean(axis=1).argmax(axis=1)
    colours = np.tile(np.array(avatar.skin, float), (len(middles), 1))
    for number, (name, (first, last, _)) in enumerate(SEGMENTS.items()):
        start, bone = mannequin.joints[first], mannequin.joints[last] - mannequin.joints[first]
        share = (middles - start) @ bone / float(bone @ bone)
        mine = part == number
        if name == "trunk":
            colours[mine & (share < 0.97)] = avatar.top.colour
            colours[mine & (share < 0.12)] = avatar.bottom.colour
        elif name == "head" and avatar.hair_style != "bald":
            behind = (middles - start)[:, 2] < 0.02
            colours[mine & ((share > 0.72) | (behind & (share > 0.05)))] = avatar.hair
        elif name[2:] in ("upper", "forearm"):
            colours[mine & (share < avatar.sleeve - (name[2:] == "forearm"))] = avatar.top.colour
        elif name[2:] in ("thigh", "shin"):
            colours[mine & (share < max(avatar.leg, avatar.skirt) - (name[2:] == "shin"))] = avatar.bottom.colour
            if name[2:] == "shin":
                colours[mine & (share > 0.97)] = avatar.shoes
    return colours


def _rotation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The smallest turn from one unit vector to another."""
    axis, cosine = np.cross(a, b), float(a @ b)
    if cosine < -0.9999:
        # Half a turn about any axis across.
        across = _unit(np.cross(a, [0.0, 0.0, 1.0] if abs(a[2]) < 0.9 else [1.0, 0.0, 0.0]))
        half: np.ndarray = 2 * np.outer(across, across) - np.eye(3)
        return half
    skew = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    turn: np.ndarray = np.eye(3) + skew + skew @ skew / (1.0 + cosine)
    return turn


def _unit(vector: np.ndarray) -> np.ndarray:
    unit: np.ndarray = vector / max(float(np.linalg.norm(vector)), 1e-9)
    return unit
