"""Clips: one person doing one thing before a fixed camera, in a room that tells something about what it is.

Clip number i of a population is a pure function of (seed, population, i), the size and the number of frames, as the pictures of
:mod:`~halfmask.data.figures.world` are, from random streams of its own. Two or three clips in a row are cut from one *video*: the same
subject in the same room before the same camera. Subjects come back in about three videos.

The person's mask is exact: a pixel of it all of whose neighbours belong to it too has nothing of the room in it, so that changing the room
changes no bit of it. What a person holds, sits or lies on counts as room.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

import cv2
import numpy as np

from halfmask.data.figures.camera import Camera
from halfmask.data.figures.carried import draw_held
from halfmask.data.figures.draw import Canvas
from halfmask.data.figures.furniture import Group, Item, chair
from halfmask.data.figures.layers import Layer, compose, draw_layer
from halfmask.data.figures.light import STEPS, Grain, Light, brightness, draw_light
from halfmask.data.figures.movements import CARE_ACTIONS, MOVEMENTS
from halfmask.data.figures.performance import Performance, draw_performance
from halfmask.data.figures.person import PARTS, draw_person, see_joints
from halfmask.data.figures.places import PLACES, ROOMS, TYPICAL, build_place
from halfmask.data.figures.populations import BY_NAME, POPULATIONS, within
from halfmask.data.figures.rooms import Room, piece
from halfmask.data.figures.scene import shadow
from halfmask.data.figures.skeleton import Body
from halfmask.data.figures.subjects import Look, draw_look
from halfmask.data.figures.world import keep
from halfmask.errors import HalfmaskError, unknown_name

__all__ = ["CARE_ACTIONS", "MOVEMENTS", "PLACES", "Clips", "DrawnClip"]

_VIDEOS = (3,) * 14 + (2,) * 11
_BLOCK = sum(_VIDEOS)
"""Clips that share a pool of people: they recur, yet clip i does not depend on how many are drawn."""
_POOL = 8
_SPAN = 100_000_000
"""Ids of population k start at k times this."""

# The first number of a random stream's key says what it is for; pictures and close-ups use the numbers below 32.
_LAYOUT, _SUBJECT, _ROOM, _VIDEO, _CLIP, _GRAIN, _NOISE = range(32, 39)


@dataclass(frozen=True)
class DrawnClip:
    """One clip, with everything that is known about it."""

    frames: np.ndarray
    """uint8 F×H×W×3, RGB."""
    person: np.ndarray
    """bool F×H×W: the pixels where the person is what one sees. Their outermost pixels may be mixed with what is beside them."""
    joints: np.ndarray
    """float32 F×16×2, pixels (x, y) with pixel centres at whole numbers, in MPII's order."""
    visibility: np.ndarray
    """uint8 F×16: 0 outside the frame, 1 occluded, 2 visible."""
    action: str
    place: str
    """The kind of the room."""
    subject: int
    video: int
    room: int
    look: Look
    """What the person looks like."""


@dataclass(frozen=True)
class _Layout:
    """Who, where and what, for a block of clips."""

    videos: np.ndarray
    """Of each clip, counted within the block."""
    subjects: np.ndarray
    """Of each video, counted within the block."""
    rooms: np.ndarray
    actions: np.ndarray


@dataclass(frozen=True)
class _Video:
    """What the clips of one video share besides subject and room."""

    camera: Camera
    window: tuple[float, float, float]
    light: Light
    spot: tuple[float, float]


class Clips:
    """The clips of one population.

    ``seed`` makes another world with other people; ``size`` is the (height, width) of the frames, ``frames`` their number. ``balance`` is 0
    if all actions are equally common; else each is that much rarer than the one before it (0.2: by a fifth). ``tells`` is the probability
    that an action of the private building is done where it is typically done, and not just anywhere. ``only`` names the movements that are
    performed, where not all that the population knows are.
    """

    def __init__(
        self,
        population: str,
        seed: int = 0,
        size: tuple[int, int] = (96, 96),
        frames: int = 8,
        balance: float = 0.0,
        tells: float = 0.8,
        only: tuple[str, ...] | None = None,
    ) -> None:
        if population not in BY_NAME:
            raise unknown_name("population", population, POPULATIONS)
        if frames < 1 or min(size) < 8:
            raise HalfmaskError(f"clips of {frames} frames of {size[0]}×{size[1]} cannot be drawn: at least 1 frame of 8×8 is needed.")
        if not 0.0 <= balance < 1.0 or not 0.0 <= tells <= 1.0:
            raise HalfmaskError(f"balance is {balance} and tells is {tells}: balance must be at least 0 and below 1, tells from 0 to 1.")
        for name in only or ():
            if name not in MOVEMENTS:
                raise unknown_name("movement", name, MOVEMENTS)
        self.population = BY_NAME[population]
        self.seed, self.frames = int(seed), int(frames)
        self.size = (int(size[0]), int(size[1]))
        self.classes: tuple[str, ...] = only or (MOVEMENTS if population == "public" else CARE_ACTIONS)
        self.places: tuple[str, ...] = PLACES[population]
        shares = (1.0 - balance) ** np.arange(len(self.classes))
        self._joint = _joint(self.classes, self.places, shares / shares.sum(), tells if population != "public" else 0.0)
        self._layouts: OrderedDict[int, _Layout] = OrderedDict()
        self._looks: OrderedDict[int, Look] = OrderedDict()
        self._rooms: OrderedDict[int, Room] = OrderedDict()
        self._videos: OrderedDict[int, _Video] = OrderedDict()
        self._grain: Grain | None = None

    # ---- who does what where -----------------------------------------------------------------------------

    def action_of(self, index: int) -> str:
        """What is done in clip number ``index``, without drawing it."""
        return self.classes[self.label_of(index)]

    def label_of(self, index: int) -> int:
        """The same as a number: its place in ``classes``."""
        return int(self._layout(index).actions[index % _BLOCK])

    def video_of(self, index: int) -> int:
        """The video that the clip is cut from; unique over all populations."""
        return self._id(index, len(_VIDEOS), int(self._layout(index).videos[index % _BLOCK]))

    def subject_of(self, index: int) -> int:
        """Whom the clip shows; unique over all populations."""
        layout = self._layout(index)
        return self._id(index, _POOL, int(layout.subjects[layout.videos[index % _BLOCK]]))

    def room_of(self, index: int) -> int:
        """The number of the room, from 0 to ``ROOMS`` − 1 in each building."""
        layout = self._layout(index)
        return int(layout.rooms[layout.videos[index % _BLOCK]])

    def place_of(self, index: int) -> str:
        """The kind of the room."""
        return self.places[self.room_of(index) % len(self.places)]

    def _id(self, index: int, per_block: int, number: int) -> int:
        return self.population.index * _SPAN + index // _BLOCK * per_block + number

    def _rng(self, purpose: int, *key: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence((self.seed, purpose, *key))))

    def _layout(self, index: int) -> _Layout:
        if index < 0:
            raise IndexError(f"clips are counted from 0, so there is no clip {index}")
        block = index // _BLOCK

        def make() -> _Layout:
            rng = self._rng(_LAYOUT, self.population.index, block)
            count = len(_VIDEOS)
            videos = np.repeat(np.arange(count), rng.permutation(_VIDEOS))
            subjects = rng.permutation(np.arange(count) % _POOL)
            # First where, then what is done there: together they are as common as if what came first.
            kinds = np.searchsorted(np.cumsum(self._joint.sum(axis=0)), rng.random(count), side="right").clip(max=len(self.places) - 1)
            rooms = kinds + len(self.places) * rng.integers(0, ROOMS // len(self.places), count)
            done = np.cumsum(self._joint / self._joint.sum(axis=0), axis=0)[:, kinds[videos]]
            actions = (rng.random(_BLOCK) >= done).sum(axis=0).clip(max=len(self.classes) - 1)
            return _Layout(videos, subjects, rooms, actions)

        return keep(self._layouts, block, make, 4096)

    # ---- the scene ---------------------------------------------------------------------------------------

    def look_of(self, index: int) -> Look:
        """What the person of a clip looks like."""
        subject = self.subject_of(index)
        return keep(self._looks, subject, lambda: draw_look(self._rng(_SUBJECT, subject), self.population), 512)

    def _room(self, number: int) -> Room:
        if not 0 <= number < ROOMS:
            raise IndexError(f"a building has {ROOMS} rooms, so no room {number}")
        kind = self.places[number % len(self.places)]
        return keep(self._rooms, number, lambda: build_place(self._rng(_ROOM, self.population.building, number), kind), ROOMS)

    def _video(self, index: int) -> _Video:
        video, tall = self.video_of(index), self.look_of(index).size.height

        def make() -> _Video:
            p, rng = self.population, self._rng(_VIDEO, self.video_of(index))
            spot = (within(rng, (-1.2, 1.2)), within(rng, (-0.15, 0.15)))
            pitch, distance = 0.6 * within(rng, p.pitch), within(rng, p.distance)
            camera = Camera.look((spot[0], 0.85, spot[1]), distance, pitch, 0.5 * float(rng.normal(0.0, p.roll)), 170.0 * distance)
            ends, _ = camera.project(np.array([[spot[0], 0.0, spot[1]], [spot[0], tall, spot[1]]]))
            share, foot = within(rng, (0.75, 0.85)), within(rng, (0.94, 0.98))
            high, wide = self.size
            scale = share * high / float(ends[0, 1] - ends[1, 1])
            x = float(ends[:, 0].mean()) + 4.0 * float(rng.normal()) - (wide - 1) / 2 / scale
            window = (x, float(ends[0, 1]) - foot * high / scale, scale)
            return _Video(camera, window, replace(draw_light(rng, p), blur=0.0), spot)

        return keep(self._videos, video, make, 64)

    def performance_of(self, index: int) -> Performance:
        """How the person of a clip does what they do: their body at every moment follows from it."""
        rng = self._rng(_CLIP, self.population.index, index)
        video = self._video(index)
        place = (video.spot[0] + float(rng.normal(0.0, 0.05)), video.spot[1] + float(rng.normal(0.0, 0.05)))
        return draw_performance(rng, self.action_of(index), 0.7 * self.population.manner, place)

    # ---- drawing -----------------------------------------------------------------------------------------

    def clip(self, index: int, room: int | None = None, person: bool = True, look: Look | None = None) -> DrawnClip:
        """Draw a clip; as it would be in another ``room`` or with somebody of another ``look``, or without the ``person``."""
        number = self.room_of(index) if room is None else room
        look = self.look_of(index) if look is None else look
        where, video, act = self._room(number), self._video(index), self.performance_of(index)
        camera = video.camera.window(*video.window)
        furniture, occluder = self._things(index, where, act, look)
        background = _paint(where, furniture, video, self.size)
        front = draw_layer(self.size, lambda canvas: occluder.draw(canvas, camera)) if occluder else None
        lit = brightness(video.light, video.window, self.size)
        grain, rng = self._noise(), self._rng(_NOISE, self.population.index, index)

        frames = np.empty((self.frames, *self.size, 3), np.uint8)
        masks = np.zeros((self.frames, *self.size), bool)
        joints = np.zeros((self.frames, 16, 2), np.float32)
        visibility = np.zeros((self.frames, 16), np.uint8)
        for k in range(self.frames):
            image = frames[k]
            image[:] = background
            u = k / max(1, self.frames - 1)
            if person:
                body = act.body(look.size, u)
                if act.movement.support != "bed" or act.time(u) < 0.5:
                    shadow(Canvas(image), camera, body)
                marks = compose(image, self._figure(act, body, look, camera, video.light, u), front)
                masks[k] = marks // PARTS == 1  # neither what they hold nor what stands before them
                pixels, depths = camera.project(body.points[:16])
                joints[k], visibility[k] = pixels, see_joints(marks, pixels, depths, PARTS)
            elif front is not None:
                front.over(image)
            cv2.multiply(image, lit, dst=image, scale=1.0 / STEPS)
            grain.add(rng, image, video.light)
        place = self.places[number % len(self.places)]
        action, subject = self.action_of(index), self.subject_of(index)
        return DrawnClip(frames, masks, joints, visibility, action, place, subject, self.video_of(index), number, look)

    def _figure(self, act: Performance, body: Body, look: Look, camera: Camera, light: Light, u: float) -> list[Layer]:
        """The person and what they hold, each on a layer of its own, from the back to the front."""
        layers = [draw_layer(self.size, lambda canvas: draw_person(canvas, camera, body, look, PARTS, light.side), True)]
        if act.movement.held:
            held = draw_layer(self.size, lambda canvas: draw_held(canvas, camera, act, body, look, u))
            _, (hand, chest) = camera.project(np.stack([act.hand(body), body.points[7]]))
            layers.insert(0 if hand > chest + 0.1 else 1, held)
        return layers

    def _things(self, index: int, room: Room, act: Performance, look: Look) -> tuple[Group, Item | None]:
        """What stands about for this clip: what carries the person, something beside them, something before them."""
        rng = self._rng(_CLIP, self.population.index, index, 1)
        u = rng.random(4)
        colour = room.colours[int(u[0] * len(room.colours))]
        items = list(act.furniture(look.size, colour))
        side = 1.0 if u[1] < 0.5 else -1.0
        if u[2] < 0.35:  # something that nobody uses, so that furniture alone does not tell what is done
            x = act.place[0] + side * within(rng, (0.5, 1.0))
            if rng.random() < 0.5:
                items[:0] = chair(x, -0.7, colour, 0.45, float(rng.uniform(-80.0, 80.0)))
            else:
                items.insert(0, piece(rng, {"table": 1.0, "cabinet": 1.0, "post": 0.5}, x, -0.8, room.colours, 0.9))
        if u[3] >= 0.5 * self.population.occlusion:
            return Group(tuple(items)), None
        x, z = act.place[0] + side * within(rng, (0.2, 0.7)), act.place[1] + within(rng, (0.6, 0.9))
        return Group(tuple(items)), piece(rng, {"table": 1.0, "cabinet": 1.0, "rail": 1.0}, x, z, room.colours, 0.6)

    def _noise(self) -> Grain:
        if self._grain is None:
            self._grain = Grain(self._rng(_GRAIN, self.population.index, *self.size), self.size)
        return self._grain


def _joint(classes: tuple[str, ...], places: tuple[str, ...], shares: np.ndarray, tells: float) -> np.ndarray:
    """How common each class (row) is at each place (column)."""
    where = np.full((len(classes), len(places)), 1.0 / len(places))
    if tells > 0:
        own = np.array([[action in TYPICAL.get(place, ()) for place in places] for action in classes], float)
        at_home = own.any(axis=1)  # the others are done anywhere
        where[at_home] = (1 - tells) * where[at_home] + tells * own[at_home] / own[at_home].sum(axis=1, keepdims=True)
    joint: np.ndarray = shares[:, None] * where
    return joint


def _paint(room: Room, furniture: Group, video: _Video, size: tuple[int, int]) -> np.ndarray:
    """The room without anybody, at twice its size and averaged: tiles and folds are finer than the pixels."""
    x, y, scale = video.window
    camera = video.camera.window(x - 0.25 / scale, y - 0.25 / scale, 2.0 * scale)
    canvas = Canvas(np.empty((2 * size[0], 2 * size[1], 3), np.uint8))
    room.paint(canvas.image, camera)
    room.items.draw(canvas, camera, None)
    furniture.draw(canvas, camera, None)
    small: np.ndarray = cv2.resize(canvas.image, size[::-1], interpolation=cv2.INTER_AREA)
    return small
