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

from halfmask.data.figures.actions import ACTIONS, draw_manner
from halfmask.data.figures.camera import PICTURE, Camera
from halfmask.data.figures.light import Grain, draw_light
from halfmask.data.figures.populations import BY_NAME, POPULATIONS, choose, within
from halfmask.data.figures.rooms import Room, build_room, furnish
from halfmask.data.figures.scene import Figure, Person, Scene, annotate, draw_scene
from halfmask.data.figures.skeleton import Body
from halfmask.data.figures.subjects import Look, draw_look
from halfmask.errors import unknown_name

BLOCK = 64
"""Images that share a pool of subjects: people recur, yet image i does not depend on how many are drawn."""

_SPAN = 100_000_000
"""Ids of population k start at k times this."""

# The first number of a random stream's key says what it is for.
_LAYOUT, _SUBJECT, _ROOM, _SCENE, _CROP, _GRAIN = range(6)

T = TypeVar("T")


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
        self._scenes: OrderedDict[int, Scene] = OrderedDict()
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

        return keep(self._layouts, block, make, 4096)

    def _look(self, subject: int) -> Look:
        return keep(self._looks, subject, lambda: draw_look(self._rng(_SUBJECT, subject), self.population), 512)

    def _room(self, number: int) -> Room:
        building = self.population.building
        return keep(self._rooms, number, lambda: build_room(self._rng(_ROOM, building, number), self.population), 64)

    # ---- the scene ---------------------------------------------------------------------------------------

    def _scene(self, image: int) -> Scene:
        def make() -> Scene:
            index = self.population.index
            room = int(self._layout(image // BLOCK).rooms[image % BLOCK])
            subjects = [self.subject(image, k) for k in range(self.people(image))]
            rng = self._rng(_SCENE, index, image)
            return self._compose(rng, index * _SPAN + image, room, subjects)

        return keep(self._scenes, image, make, 8)

    def _compose(
        self,
        rng: np.random.Generator,
        image_id: int,
        room_number: int,
        subjects: list[int],
    ) -> Scene:
        """Draw everything about an image that is not fixed by its subjects and its room."""
        p = self.population
        room = self._room(room_number)
        people: list[Person] = []
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
            if ACTIONS[action] == "lie":  # beds stand across the view: end-on, nobody could find the joints
                yaw = float(rng.normal(90.0 if yaw % 360 < 180 else -90.0, 28.0))
            phase = float(rng.random())
            props = tuple(rng.random(4).tolist())
            look = self._look(subject)
            people.append(Person(subject, look, action, phase, draw_manner(rng, p.manner), yaw, (x, z), props))
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
            occluders.append(furnish(rng, room.kind, x, z, room.colours, tallest=0.75))
        return Scene(image_id, room, camera, draw_light(rng, p), tuple(people), tuple(occluders))

    def _box(
        self, scene: Scene, bodies: list[Body], size: tuple[int, int], rng: np.random.Generator, cut: float
    ) -> tuple[float, float, float]:
        """The window (x, y, scale) a detector would cut round one person, seen in the given poses.

        ``cut`` is the probability of a bad box, one that misses part of the person.
        """
        p = self.population
        pixels, _ = scene.camera.project(np.concatenate([body.points[:16] for body in bodies]))
        low, high = pixels.min(axis=0), pixels.max(axis=0)
        height, width = size
        tall = max(float(high[1] - low[1]), float(high[0] - low[0]) * height / width) * 1.25
        centre = (low + high) / 2
        jitter = rng.normal(0.0, 1.0, 3)
        u = rng.random(2)
        tall *= float(np.exp(p.box_scale * np.clip(jitter[2], -2, 2)))
        centre = centre + np.clip(jitter[:2], -2, 2) * p.box_shift * tall
        if u[0] < cut:  # a box that misses the feet, the head or an arm
            tall *= 0.62 + 0.2 * u[1]
            centre = centre + np.array([0.1, 0.16]) * jitter[:2].clip(-1, 1) * tall
        scale = height / tall
        return (
            float(centre[0]) - (width - 1) / 2 / scale,
            float(centre[1]) - (height - 1) / 2 / scale,
            scale,
        )

    # ---- drawing -----------------------------------------------------------------------------------------

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
        window = self._box(scene, [bodies[person]], self.size, rng, self.population.cut)
        canvas, camera = draw_scene(scene, bodies, window, self.size)
        self._noise(self.size).add(rng, canvas.image, scene.light)
        return annotate(scene, person, bodies[person], canvas, camera)

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
        canvas, camera = draw_scene(scene, bodies, window, size)
        self._noise(size).add(self._rng(_CROP, self.population.index, image, 99), canvas.image, scene.light)
        return canvas.image, [annotate(scene, k, body, canvas, camera) for k, body in enumerate(bodies)]


def keep(store: OrderedDict[int, T], key: int, make: Callable[[], T], most: int) -> T:
    """Look up or make; forget the oldest. What is kept can always be made again, so this changes nothing."""
    if key in store:
        store.move_to_end(key)
        return store[key]
    value = store[key] = make()
    if len(store) > most:
        store.popitem(last=False)
    return value
