"""Scenes: an image before it is drawn, its drawing through a window, and its labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from halfmask.data.figures.actions import ACTIONS, Manner, pose_at
from halfmask.data.figures.camera import Camera
from halfmask.data.figures.draw import CIRCLE, Canvas
from halfmask.data.figures.furniture import Item, bed, chair
from halfmask.data.figures.head import Ball
from halfmask.data.figures.light import Light, shine
from halfmask.data.figures.person import PARTS, draw_person, see_joints
from halfmask.data.figures.rooms import Room
from halfmask.data.figures.skeleton import BED_HEIGHT, Body, pose_body
from halfmask.data.figures.subjects import Look, hsv


@dataclass(frozen=True)
class Figure:
    """One person in one picture, with everything that is known about them."""

    image: np.ndarray
    """uint8 H×W×3, RGB."""
    joints: np.ndarray
    """float32 16×2, pixels (x, y) with pixel centres at whole numbers, in MPII's order."""
    visibility: np.ndarray
    """uint8 16: 0 outside the crop and so unlabelled, 1 labelled but occluded, 2 visible."""
    head_box: np.ndarray
    """float32 (x1, y1, x2, y2) around the head, the measure of PCKh."""
    mask: np.ndarray
    """bool H×W: the pixels where this person is what one sees."""
    action: int
    """Index into ``ACTIONS``."""
    subject: int
    """Unique over all populations."""
    image_id: int
    """Unique over all populations."""
    person: int
    """Which of the image's people this is."""


@dataclass(frozen=True)
class Person:
    """One person of a scene. Their pose is a function of the phase, so a clip needs nothing else."""

    subject: int
    look: Look
    action: int
    phase: float
    manner: Manner
    yaw: float
    place: tuple[float, float]
    props: tuple[float, ...]

    def body(self, advance: float = 0.0) -> Body:
        """Their body, ``advance`` periods of the action later."""
        pose = pose_at(self.action, (self.phase + advance) % 1.0, self.manner)
        return pose_body(self.look.size, pose, self.yaw, self.place)


@dataclass(frozen=True)
class Scene:
    """One image before drawing."""

    image_id: int
    room: Room
    camera: Camera
    light: Light
    people: tuple[Person, ...]
    occluders: tuple[Item, ...]


def draw_scene(scene: Scene, bodies: list[Body], window: tuple[float, float, float], size: tuple[int, int]) -> tuple[Canvas, Camera]:
    """Draw a scene through a window, from the wall forwards."""
    camera = scene.camera.window(*window)
    canvas = Canvas(np.empty((*size, 3), np.uint8))
    scene.room.paint(canvas.image, camera)
    scene.room.items.draw(canvas, camera, None)
    for body in bodies:
        shadow(canvas, camera, body)
    layers: list[tuple[float, Callable[[], None]]] = []
    for k, (person, body) in enumerate(zip(scene.people, bodies, strict=True)):
        layers.append(
            (
                person.place[1],
                lambda k=k, person=person, body=body: _draw_with_props(  # type: ignore[misc]
                    canvas, camera, person, body, PARTS * (k + 1), scene.light.side
                ),
            )
        )
    for item in scene.occluders:
        layers.append((item.z, lambda item=item: item.draw(canvas, camera)))  # type: ignore[misc]
    for _, layer in sorted(layers, key=lambda entry: entry[0]):
        layer()
    shine(canvas.image, scene.light, window)
    return canvas, camera


def annotate(scene: Scene, k: int, body: Body, canvas: Canvas, camera: Camera) -> Figure:
    """Person ``k`` of a drawn scene with their labels, read off the geometry and the marks."""
    joints, depths = camera.project(body.points[:16])
    person = scene.people[k]
    head = Ball(camera, body, person.look).silhouette()
    mark = PARTS * (k + 1)
    return Figure(
        image=canvas.image,
        joints=joints.astype(np.float32),
        visibility=see_joints(canvas.marks, joints, depths, mark),
        head_box=np.concatenate([head.min(axis=0), head.max(axis=0)]).astype(np.float32),
        mask=(canvas.marks // PARTS) == k + 1,
        action=person.action,
        subject=person.subject,
        image_id=scene.image_id,
        person=k,
    )


def shadow(canvas: Canvas, camera: Camera, body: Body) -> None:
    """A soft patch on the floor under the feet."""
    feet = body.points[[0, 5, 6]]
    x, z = float(feet[:, 0].mean()), float(feet[:, 2].mean())
    reach = 0.22 + 0.5 * float(np.ptp(feet[:, 0]))
    ring = np.zeros((len(CIRCLE), 3))
    ring[:, 0] = x + reach * CIRCLE[:, 0]
    ring[:, 2] = z + 0.22 * CIRCLE[:, 1]
    pixels, _ = camera.project(ring)
    if not canvas.outside(pixels):
        canvas.glaze(pixels, (20, 18, 22), 0.35)


def _draw_with_props(canvas: Canvas, camera: Camera, person: Person, body: Body, mark: int, light: float) -> None:
    """Draw a person together with the chair or bed that carries them."""
    action = ACTIONS[person.action]
    u = person.props
    behind: Item | None = None
    p = body.points
    colour = hsv(u[0], 0.1 + 0.3 * u[1], 0.35 + 0.5 * u[2])
    if action == "sit":
        x, z = float(p[6, 0]), float(p[6, 2])
        turn = float(np.rad2deg(np.arctan2(body.pelvis[0, 2], body.pelvis[2, 2])))
        seat = max(0.2, float(p[6, 1]) - 0.085 * person.look.size.height / 1.72)
        lower, behind = chair(x, z, colour, seat, turn)
        lower.draw(canvas, camera, 0)
        away = camera.centre[[0, 2]] - p[6, [0, 2]]
        if float(np.array([np.sin(np.deg2rad(turn)), np.cos(np.deg2rad(turn))]) @ away) >= 0:
            behind.draw(canvas, camera, 0)
            behind = None
    elif action == "lie":
        spine = p[7] - p[6]
        turn = float(np.rad2deg(np.arctan2(-spine[0], -spine[2])))
        middle = p[[0, 5, 6, 9]].mean(axis=0)
        bed(float(middle[0]), float(middle[2]), colour, BED_HEIGHT, turn).draw(canvas, camera, 0)
    draw_person(canvas, camera, body, person.look, mark, light)
    if behind is not None:
        behind.draw(canvas, camera)
