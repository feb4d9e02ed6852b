"""The world: which people an image shows, and the drawing of their crops.

Nothing is stored. Image number i of a population is a pure function of (seed, population, i): its people,
room, camera and light come from random streams keyed by whole numbers, so that it does not matter what was
drawn before, in which order or by which process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from halfmask.data.figures.actions import ACTIONS, Manner, draw_manner, pose_at
from halfmask.data.figures.camera import PICTURE, Camera
from halfmask.data.figures.draw import Canvas
from halfmask.data.figures.furniture import Item, bed, chair
from halfmask.data.figures.head import Ball
from halfmask.data.figures.light import Grain, Light, draw_light, shine
from halfmask.data.figures.person import PARTS, draw_person, see_joints
from halfmask.data.figures.populations import BY_NAME, POPULATIONS, choose, within
from halfmask.data.figures.rooms import Room, build_room, furnish
from halfmask.data.figures.skeleton import BED_HEIGHT, Body, pose_body
from halfmask.data.figures.subjects import Look, draw_look, hsv
from halfmask.errors import unknown_name

BLOCK = 64
"""Images that share a pool of subjects: people recur, yet image i does not depend on how many are drawn."""

_SPAN = 100_000_000
"""Ids of population k start at k times this."""

# The first number of a random stream's key says what it is for.
_LAYOUT, _SUBJECT, _ROOM, _SCENE, _CROP, _GRAIN, _CLIP = range(7)

T = TypeVar("T")


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
class _Person:
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
        pose = pose_at(self.action, (self.phase + advance) % 1.0, self.manner)
        return pose_body(self.look.size, pose, self.yaw, self.place)


@dataclass(frozen=True)
class _Scene:
    """One image before drawing."""

    image_id: int
    room: Room
    camera: Camera
    light: Light
    people: tuple[_Person, ...]
    occluders: tuple[Item, ...]


@dataclass(frozen=True)
class _Layout:
    """Who and where, for a block of images."""

    counts: np.ndarray
    subjects: np.ndarray
    rooms: np.ndarray


class World:
    """The people of one population.

    ``seed`` makes another world with other people; ``size`` is the (height, width) of the crops.
    """

    def __init__(self, population: str, seed: int = 0, size: tuple[int, int] = (256, 192)) -> None:
        if population not in BY_NAME:
            raise unknown_name("population", population, POPULATIONS)
        self.population = BY_NAME[population]
        self.seed = int(seed)
        self.size = (int(size[0]), int(size[1]))
        self._layouts: OrderedDict[int, _Layout] = OrderedDict()
        self._looks: OrderedDict[int, Look] = OrderedDict()
        self._rooms: OrderedDict[int, Room] = OrderedDict()
        self._scenes: OrderedDict[int, _Scene] = OrderedDict()
        self._grain: dict[tuple[int, int], Grain] = {}

    # ---- who is where ------------------------------------------------------------------------------------

    def people(self, image: int) -> int:
        """How many people image number ``image`` shows, without drawing it."""
        return int(self._layout(image // BLOCK).counts[image % BLOCK])

    def records(self, count: int) -> list[tuple[int, int]]:
        """The first ``count`` (image, person) pairs, image by image."""
        pairs: list[tuple[int, int]] = []
        block = 0
        while len(pairs) < count:
            for offset, n in enumerate(self._layout(block).counts.tolist()):
                pairs.extend((block * BLOCK + offset, person) for person in range(n))
            block += 1
        return pairs[:count]

    def subject(self, image: int, person: int = 0) -> int:
        """The id of a person of an image, without drawing it."""
        if not 0 <= person < self.people(image):
            raise IndexError(f"image {image} has {self.people(image)} people, so no person {person}")
        local = int(self._layout(image // BLOCK).subjects[image % BLOCK, person])
        return self.population.index * _SPAN + local

    def _rng(self, purpose: int, *key: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence((self.seed, purpose, *key))))

    def _layout(self, block: int) -> _Layout:
        def make() -> _Layout:
            p = self.population
            rng = self._rng(_LAYOUT, p.index, block)
            counts = 1 + np.searchsorted(np.cumsum(p.people)[:2], rng.random(BLOCK), side="right")
            mean = sum(k * share for k, share in enumerate(p.people, start=1))
            pool = max(4, round(BLOCK * mean / p.images_per_subject))
            subjects = block * pool + rng.permuted(np.tile(np.arange(pool), (BLOCK, 1)), axis=1)[:, :3]
            return _Layout(counts, subjects, rng.integers(0, p.rooms, BLOCK))

        return _keep(self._layouts, block, make, 4096)

    def _look(self, subject: int) -> Look:
        return _keep(
            self._looks, subject, lambda: draw_look(self._rng(_SUBJECT, subject), self.population), 512
        )

    def _room(self, number: int) -> Room:
        building = self.population.building
        return _keep(
            self._rooms, number, lambda: build_room(self._rng(_ROOM, building, number), self.population), 64
        )

    # ---- the scene ---------------------------------------------------------------------------------------

    def _scene(self, image: int) -> _Scene:
        def make() -> _Scene:
            index = self.population.index
            room = int(self._layout(image // BLOCK).rooms[image % BLOCK])
            subjects = [self.subject(image, k) for k in range(self.people(image))]
            rng = self._rng(_SCENE, index, image)
            return self._compose(rng, index * _SPAN + image, room, subjects)

        return _keep(self._scenes, image, make, 8)

    def _compose(
        self, rng: np.random.Generator, image_id: int, room_number: int, subjects: list[int]
    ) -> _Scene:
        """Draw everything about an image that is not fixed by its subjects and its room."""
        p = self.population
        room = self._room(room_number)
        people: list[_Person] = []
        first_side = 1.0 if rng.random() < 0.5 else -1.0
        for k, subject in enumerate(subjects):
            x = float(rng.normal(0.0, 0.12))
            z = float(rng.uniform(-0.15, 0.15))
            if k:
                x += first_side * (1.0 if k == 1 else -1.0) * within(rng, (0.35, 1.0))
                z = float(rng.uniform(-0.8, 0.35))
            facing = rng.random() < p.frontal
            yaw = float(rng.normal(0.0, 38.0)) if facing else float(rng.uniform(0.0, 360.0))
            action = ACTIONS.index(choose(rng, p.actions))
            phase = float(rng.random())
            props = tuple(rng.random(4).tolist())
            look = self._look(subject)
            people.append(
                _Person(subject, look, action, phase, draw_manner(rng, p.manner), yaw, (x, z), props)
            )
        pitch = within(rng, p.pitch)
        distance = within(rng, p.distance)
        roll = float(rng.normal(0.0, p.roll))
        middle = float(np.mean([person.place[0] for person in people]))
        camera = Camera.look((middle, 0.85, 0.0), distance, pitch, roll, 170.0 * distance)
        occluders = []
        for person in people:
            if rng.random() >= p.occlusion:
                continue
            x = person.place[0] + float(rng.normal(0.0, 0.28))
            z = person.place[1] + within(rng, (0.5, 0.95))
            occluders.append(furnish(rng, room.kind, x, z, room.colours))
        return _Scene(image_id, room, camera, draw_light(rng, p), tuple(people), tuple(occluders))

    def _box(self, scene: _Scene, bodies: list[Body], rng: np.random.Generator) -> tuple[float, float, float]:
        """The window (x, y, scale) a detector would cut round one person, seen in the given poses."""
        p = self.population
        pixels, _ = scene.camera.project(np.concatenate([body.points[:16] for body in bodies]))
        low, high = pixels.min(axis=0), pixels.max(axis=0)
        height, width = self.size
        tall = max(float(high[1] - low[1]), float(high[0] - low[0]) * height / width) * 1.25
        centre = (low + high) / 2
        jitter = rng.normal(0.0, 1.0, 3)
        u = rng.random(2)
        tall *= float(np.exp(p.box_scale * np.clip(jitter[2], -2, 2)))
        centre = centre + np.clip(jitter[:2], -2, 2) * p.box_shift * tall
        if u[0] < p.cut:  # a box that misses the feet, the head or an arm
            tall *= 0.62 + 0.2 * u[1]
            centre = centre + np.array([0.1, 0.16]) * jitter[:2].clip(-1, 1) * tall
        scale = height / tall
        return (
            float(centre[0]) - (width - 1) / 2 / scale,
            float(centre[1]) - (height - 1) / 2 / scale,
            scale,
        )

    # ---- drawing -----------------------------------------------------------------------------------------

    def _draw(
        self, scene: _Scene, bodies: list[Body], window: tuple[float, float, float], size: tuple[int, int]
    ) -> tuple[Canvas, Camera]:
        """Draw a scene through a window, from the wall forwards."""
        camera = scene.camera.window(*window)
        canvas = Canvas(np.empty((*size, 3), np.uint8))
        scene.room.paint(canvas.image, camera)
        scene.room.items.draw(canvas, camera, 0)
        for body in bodies:
            _shadow(canvas, camera, body)
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

    def _figure(self, scene: _Scene, k: int, body: Body, canvas: Canvas, camera: Camera) -> Figure:
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

    def _noise(self, size: tuple[int, int]) -> Grain:
        if size not in self._grain:
            self._grain[size] = Grain(self._rng(_GRAIN, self.population.index, *size), size)
        return self._grain[size]

    def figure(self, image: int, person: int = 0) -> Figure:
        """Draw one person's crop of an image."""
        self.subject(image, person)  # refuses a person who is not there
        scene = self._scene(image)
        bodies = [one.body() for one in scene.people]
        rng = self._rng(_CROP, self.population.index, image, person)
        window = self._box(scene, [bodies[person]], rng)
        canvas, camera = self._draw(scene, bodies, window, self.size)
        self._noise(self.size).add(rng, canvas.image, scene.light)
        return self._figure(scene, person, bodies[person], canvas, camera)

    def picture(self, image: int, size: tuple[int, int] = PICTURE) -> tuple[np.ndarray, list[Figure]]:
        """Draw a whole image; its figures are annotated in picture coordinates and share the picture."""
        scene = self._scene(image)
        bodies = [one.body() for one in scene.people]
        scale = min(size[0] / PICTURE[0], size[1] / PICTURE[1])
        window = (
            (PICTURE[1] - 1) / 2 - (size[1] - 1) / 2 / scale,
            (PICTURE[0] - 1) / 2 - (size[0] - 1) / 2 / scale,
            scale,
        )
        canvas, camera = self._draw(scene, bodies, window, size)
        self._noise(size).add(self._rng(_CROP, self.population.index, image, 99), canvas.image, scene.light)
        return canvas.image, [self._figure(scene, k, body, canvas, camera) for k, body in enumerate(bodies)]

    def clip(self, index: int, frames: int = 16, size: tuple[int, int] | None = None) -> list[Figure]:
        """One subject performing one action over one period, before a fixed camera.

        The window holds still and is big enough for the whole movement. Subjects come from the same pools as
        those of the images, and actions take turns so that all of them are equally common.
        """
        size = self.size if size is None else (int(size[0]), int(size[1]))
        p = self.population
        rng = self._rng(_CLIP, p.index, index)
        block, offset = divmod(index, BLOCK)
        layout = self._layout(block)
        subject = p.index * _SPAN + int(layout.subjects[offset, 0])
        scene = self._compose(rng, p.index * _SPAN + _SPAN // 2 + index, int(layout.rooms[offset]), [subject])
        person = scene.people[0]
        action = int(self._rng(_CLIP, p.index, index, 1).integers(len(ACTIONS)))
        person = _Person(
            person.subject,
            person.look,
            action,
            person.phase,
            person.manner,
            person.yaw,
            person.place,
            person.props,
        )
        scene = _Scene(scene.image_id, scene.room, scene.camera, scene.light, (person,), scene.occluders)
        bodies = [person.body(k / max(1, frames)) for k in range(frames)]
        x, y, scale = self._box(scene, bodies, rng)
        zoom = min(size[0] / self.size[0], size[1] / self.size[1])
        window = (x, y, scale * zoom)
        figures = []
        for body in bodies:
            canvas, camera = self._draw(scene, [body], window, size)
            self._noise(size).add(rng, canvas.image, scene.light)
            figures.append(self._figure(scene, 0, body, canvas, camera))
        return figures


def _keep(store: OrderedDict[int, T], key: int, make: Callable[[], T], most: int) -> T:
    """Look up or make; forget the oldest. What is kept can always be made again, so this changes nothing."""
    if key in store:
        store.move_to_end(key)
        return store[key]
    value = store[key] = make()
    if len(store) > most:
        store.popitem(last=False)
    return value


def _shadow(canvas: Canvas, camera: Camera, body: Body) -> None:
    """A soft patch on the floor under the feet."""
    feet = body.points[[0, 5, 6]]
    x, z = float(feet[:, 0].mean()), float(feet[:, 2].mean())
    reach = 0.22 + 0.5 * float(np.ptp(feet[:, 0]))
    angle = np.linspace(0.0, 2 * np.pi, 14, endpoint=False)
    ring = np.zeros((14, 3))
    ring[:, 0] = x + reach * np.cos(angle)
    ring[:, 2] = z + 0.22 * np.sin(angle)
    pixels, _ = camera.project(ring)
    if not canvas.outside(pixels):
        canvas.glaze(pixels, (20, 18, 22), 0.35)


def _draw_with_props(
    canvas: Canvas, camera: Camera, person: _Person, body: Body, mark: int, light: float
) -> None:
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
