"""Face close-ups: the head and shoulders of one person before a room, to train networks that look at faces.

Photograph number n of a population is a pure function of (seed, population, n), as the pose figures are, from random
streams of its own: what is drawn here changes nothing there. Its annotation follows from geometry alone; the picture
is drawn when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from halfmask.data.faces import Face, Layout, Photograph
from halfmask.data.figures.camera import PICTURE, Camera
from halfmask.data.figures.draw import Canvas, Colour, mix
from halfmask.data.figures.facedraw import draw_portrait
from halfmask.data.figures.faceshape import FOREHEAD, Shape, View, inside, rotation
from halfmask.data.figures.held import Part, hold
from halfmask.data.figures.light import Grain, Light, draw_light, shine
from halfmask.data.figures.populations import BY_NAME, POPULATIONS, Population, within
from halfmask.data.figures.portrait import LANDMARK_NAMES, MIRROR, Expression, Features, Portrait
from halfmask.data.figures.rooms import Room, build_room
from halfmask.data.figures.subjects import draw_look, hsv
from halfmask.errors import unknown_name

__all__ = ["ATTRIBUTE", "FACE_LAYOUT", "LANDMARK_NAMES", "closeups"]

FACE_LAYOUT = Layout("figures", MIRROR)
ATTRIBUTE = "glasses"

_BLOCK = 64
"""Photographs that share a pool of people, so that people recur whatever the number of photographs drawn."""
_POOL = 9
_WITH_GLASSES = 4
"""Of each pool: the attribute is as common in a small dataset as in a big one."""

# The first number of a random stream's key says what it is for; the pose figures use the numbers below 16.
_LAYOUT, _SUBJECT, _ROOM, _PICTURE, _GRAIN, _NOISE = range(16, 22)

_HALF_FACE = 0.11
"""Metres."""
_SIDES = (140, 180)
_TALL = (45.0, 110.0)
_HELD = 0.15


@dataclass(frozen=True)
class _Manner:
    """How people of a population hold their heads: deviations in degrees, and how far they look down on average."""

    yaw: float
    pitch: float
    roll: float
    bowed: float
    turned: float
    """Share of heads turned by any angle alike."""


_MANNERS = {"public": _Manner(26.0, 10.0, 9.0, 0.0, 0.15), "private": _Manner(30.0, 12.0, 11.0, 4.0, 0.25)}
_MANNERS["test"] = _MANNERS["private"]


def _rng(seed: int, purpose: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, purpose, *key))))


@lru_cache(maxsize=256)
def _layout(seed: int, index: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Who each photograph of a block shows, and which of the pool wear glasses."""
    rng = _rng(seed, _LAYOUT, index, block)
    people = rng.permutation(np.arange(_BLOCK) % _POOL)
    return people, rng.permutation(_POOL) < _WITH_GLASSES


@lru_cache(maxsize=64)
def _room(seed: int, name: str, number: int) -> Room:
    population = BY_NAME[name]
    return build_room(_rng(seed, _ROOM, population.building, number), population)


@lru_cache(maxsize=8)
def _grain(seed: int, index: int) -> Grain:
    return Grain(_rng(seed, _GRAIN, index), (_SIDES[1], _SIDES[1]))


@lru_cache(maxsize=512)
def _features(seed: int, name: str, number: int) -> Features:
    """The face of one subject."""
    population = BY_NAME[name]
    rng = _rng(seed, _SUBJECT, population.index, number)
    look = draw_look(rng, population)
    block, place = divmod(number, _POOL)
    look = replace(look, glasses=bool(_layout(seed, population.index, block)[1][place]))
    u = rng.random(16)
    fringe: tuple[float, float] | None = None
    if look.hair_style in ("short", "long", "curly", "bun") and u[0] < 0.45:
        low, high = 0.22 + 0.2 * u[1], 0.5 + 0.2 * u[2]
        fringe = (low, high) if u[3] < 0.5 else (high, low)
    return Features(
        look=look,
        shape=Shape.of(0.9 + 0.18 * u[4], 0.84 + 0.3 * u[5], 0.95 + 0.1 * u[6]),
        eye_gap=0.27 + 0.6 * (look.eye_gap - 0.3),
        eye_width=0.125 + 0.03 * u[7],
        eye_height=0.075 + 6.0 * (look.eye_size - 0.011),
        brow_arch=0.015 + 0.05 * u[8],
        nose_width=0.11 + 0.08 * (look.nose - 0.7),
        nose_length=0.1 + 0.1 * u[9],
        nose_out=0.2 + 0.16 * u[10],
        mouth_width=0.21 + 0.6 * (look.mouth - 0.16),
        lip=0.6 + 0.9 * u[11],
        ear=0.8 + 0.4 * u[12],
        fringe=fringe,
        locks=look.hair_style == "long" and bool(u[13] < 0.6),
        frame=(0.19 + 0.03 * u[14], 0.12 + 0.08 * u[15], (2.0, 2.0, 3.5, 5.0)[int(rng.integers(4))]),
        frame_colour=_frame_colour(rng, look.skin),
        mole=None if rng.random() < 0.7 else (float(rng.uniform(-0.42, 0.42)), float(rng.uniform(-0.75, -0.1))),
    )


def _frame_colour(rng: np.random.Generator, skin: Colour) -> Colour:
    """A colour that can be told from the skin: dark, or pale on dark skin, or bright."""
    plain: Colour = (36.0, 34.0, 40.0) if sum(skin) > 330 else (222.0, 214.0, 196.0)
    return mix(plain, hsv(float(rng.random()), 0.85, 0.55 if sum(skin) > 330 else 0.95), 0.6 * float(rng.random()))


@dataclass(frozen=True)
class _Closeup:
    """A photograph before it is drawn."""

    size: tuple[int, int]
    room: int
    camera: Camera
    light: Light
    sun: np.ndarray
    portrait: Portrait
    pose: tuple[float, float, float]
    held: list[Part]
    visible: np.ndarray
    subject: int


def _bell(rng: np.random.Generator, mean: float, deviation: float, most: float) -> float:
    """A normal draw, drawn again while it is out of reach."""
    while True:
        value = float(rng.normal(mean, deviation))
        if abs(value) <= most:
            return value


def _expression(rng: np.random.Generator) -> Expression:
    u = rng.random(5)
    return Expression(
        mouth=float(u[0]) if u[1] < 0.4 else 0.0,
        smile=float(rng.uniform(-0.5, 1.0)),
        eyes=0.0 if u[2] < 0.07 else 0.65 + 0.4 * float(u[3]),
        brows=float(np.clip(rng.normal(0.0, 0.6), -0.6, 1.2)),
        frown=float(max(0.0, u[4] - 0.5)) * 2.0,
        gaze=(float(np.clip(rng.normal(0.0, 0.5), -1, 1)), float(np.clip(rng.normal(0.0, 0.5), -1, 1))),
    )


def _place(rng: np.random.Generator, shape: Shape, turn: np.ndarray, distance: float, size: tuple[int, int]) -> View:
    """Where a head is in a picture of that (height, width), and how big: anywhere, as long as the face is all in it."""
    trial = View(turn, distance, 100.0, np.zeros(2))
    spread = trial.project(shape.skin[shape.skin[:, 1] < FOREHEAD])
    reach = 12.0  # ears and the nose stick out
    low, high = spread.min(axis=0) - reach, spread.max(axis=0) + reach
    tall = _TALL[0] + (_TALL[1] - _TALL[0]) * float(rng.beta(1.6, 1.9))
    margin = 3.0
    room = np.array([size[1], size[0]]) - 2 * margin
    factor = min(tall / float(high[1] - low[1] - 2 * reach), float((room / (high - low)).min()))
    free = room - factor * (high - low)
    return View(turn, distance, 100.0 * factor, margin - factor * low + free * rng.beta(1.7, 1.7, 2))


def _uncovered(portrait: Portrait, things: list[Part]) -> np.ndarray:
    """Which landmarks can still be seen behind what is held before them."""
    covered = [any(inside(pixel, outline) for outline, _ in things) for pixel in portrait.landmarks]
    seen: np.ndarray = portrait.visible & ~np.array(covered)
    return seen


def _compose(population: Population, seed: int, number: int) -> _Closeup:
    """Everything about a photograph but its pixels."""
    rng = _rng(seed, _PICTURE, population.index, number)
    block, place = divmod(number, _BLOCK)
    subject = block * _POOL + int(_layout(seed, population.index, block)[0][place])
    features = _features(seed, population.name, subject)
    manner = _MANNERS[population.name]
    yaw = float(rng.uniform(-75.0, 75.0)) if rng.random() < manner.turned else _bell(rng, 0.0, manner.yaw, 75.0)
    pose = (_bell(rng, 0.0, manner.roll, 30.0), _bell(rng, manner.bowed, manner.pitch, 30.0), yaw)
    expression = _expression(rng)
    size = (int(rng.integers(_SIDES[0], _SIDES[1] + 1)), int(rng.integers(_SIDES[0], _SIDES[1] + 1)))
    distance = within(rng, (0.75, 1.5))
    view = _place(rng, features.shape, rotation(*pose), distance / _HALF_FACE, size)
    portrait = Portrait(features, expression, view)

    focal = view.scale * distance / _HALF_FACE
    target = (float(rng.uniform(-2.3, 2.3)), within(rng, (1.0, 1.7)), 0.0)
    tilt = 0.5 * within(rng, population.pitch)
    camera = Camera.look(target, distance, tilt, float(rng.normal(0.0, population.roll)), focal)
    light = draw_light(rng, population)
    sun = np.array([-light.side * float(rng.uniform(0.1, 1.0)), float(rng.uniform(-0.1, 0.8)), float(rng.uniform(0.35, 1.0))])
    things: list[Part] = []
    visible = portrait.visible
    if rng.random() < _HELD:
        colour = hsv(float(rng.random()), within(rng, population.cloth_saturation), within(rng, population.cloth_value))
        # What hides nearly all of a face is put elsewhere, or away: nobody could label it.
        for _ in range(4):
            attempt = hold(rng, portrait, features.look.skin, colour)
            seen = _uncovered(portrait, attempt)
            if seen.sum() >= 0.4 * portrait.visible.sum():
                things, visible = attempt, seen
                break
    return _Closeup(
        size=size,
        room=int(rng.integers(population.rooms)),
        camera=camera.window((PICTURE[1] - 1) / 2 - float(view.middle[0]), (PICTURE[0] - 1) / 2 - float(view.middle[1]), 1.0),
        light=light,
        sun=sun / np.linalg.norm(sun),
        portrait=portrait,
        pose=pose,
        held=things,
        visible=visible,
        subject=subject,
    )


def _draw(name: str, seed: int, number: int) -> np.ndarray:
    """The pixels of a photograph."""
    population = BY_NAME[name]
    shot = _compose(population, seed, number)
    height, width = shot.size
    canvas = Canvas(np.empty((height, width, 3), np.uint8))
    room = _room(seed, name, shot.room)
    room.paint(canvas.image, shot.camera)
    room.items.draw(canvas, shot.camera, None)
    draw_portrait(canvas, shot.portrait, shot.sun, shot.pose)
    for outline, colour in shot.held:
        canvas.convex(outline, colour)
    scale = max(width / PICTURE[1], height / PICTURE[0])
    shine(canvas.image, shot.light, (0.0, 0.0, scale))
    _grain(seed, population.index).add(_rng(seed, _NOISE, population.index, number), canvas.image, shot.light)
    return canvas.image


def _annotate(population: Population, seed: int, number: int) -> Face:
    shot = _compose(population, seed, number)
    portrait = shot.portrait
    return Face(
        box=portrait.box,
        landmarks=portrait.landmarks.astype(np.float32),
        visible=shot.visible,
        pose=np.array(shot.pose, np.float32),
        attribute=float(portrait.features.look.glasses),
        subject=f"figures-faces/{population.name}/{seed}/{shot.subject}",
    )


def closeups(population: str, count: int, seed: int = 0, skip: int = 0) -> list[Photograph]:
    """Photographs number ``skip`` … ``skip + count − 1`` of a population, each with one face.

    Of ``Face.pose``, in degrees: roll > 0 is a head tilted clockwise in the picture, pitch > 0 one that looks down and
    yaw > 0 one turned towards the left edge of the picture; see ``faceshape.rotation``. In a mirror image roll and yaw
    change their signs, and landmark k becomes landmark ``FACE_LAYOUT.mirror[k]``. Landmarks that cannot be seen are
    given where they would be.
    """
    if population not in BY_NAME:
        raise unknown_name("population", population, POPULATIONS)
    return [
        Photograph(
            name=f"figures-faces/{population}/{seed}/{number}",
            read=partial(_draw, population, seed, number),
            faces=(_annotate(BY_NAME[population], seed, number),),
        )
        for number in range(skip, skip + count)
    ]
