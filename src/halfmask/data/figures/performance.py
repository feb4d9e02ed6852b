"""Performances: a movement done by somebody at some place, as a body at every moment of a clip."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from halfmask.data.figures.actions import Manner, draw_manner, finish
from halfmask.data.figures.draw import Colour
from halfmask.data.figures.furniture import Item, bed, chair
from halfmask.data.figures.movements import TABLE, Movement, blend, lying, sitting
from halfmask.data.figures.populations import within
from halfmask.data.figures.skeleton import BED_HEIGHT, L_HAND, R_HAND, Body, Pose, Proportions, pose_body

_PATH = 0.9
"""Metres that anybody moves at most: whoever walks on leaves the frame."""
_SAT = 0.42
"""The share of lying down after which one sits on the bed."""


@dataclass(frozen=True)
class Performance:
    """How one clip's person does their movement."""

    name: str
    manner: Manner
    yaw: float
    phase: float
    """Where in its cycle the movement begins; for one that goes one way, the share of the clip that passes before it begins."""
    pace: float
    """Cycles in the clip; for a movement that goes one way, the share of the clip that it takes."""
    side: float
    """+1 or −1: to which side the head lies."""
    place: tuple[float, float]

    @property
    def movement(self) -> Movement:
        """What is performed."""
        return TABLE[self.name]

    def time(self, u: float) -> float:
        """Where the movement has got to after a share ``u`` of the clip: cycles, or 0 to 1 for one that goes one way."""
        movement = self.movement
        if movement.cycles is not None:
            return self.phase + (-u if movement.back else u) * self.pace
        s = min(1.0, max(0.0, (u - self.phase) / self.pace))
        s = s * s * (3 - 2 * s)
        return 1.0 - s if movement.back else s

    def body(self, size: Proportions, u: float) -> Body:
        """The body after a share ``u`` of the clip."""
        movement, t = self.movement, self.time(u)
        if movement.support == "bed":
            return self._to_bed(size, t)
        if movement.cycles is None:
            return _on_feet(size, finish(movement.pose(t, self.manner), self.manner), self.yaw, self.place)
        yaw = self.yaw + movement.spin * (t - self.phase)
        path = min(_PATH, movement.speed * self.manner.amplitude * self.pace)
        far = path * (0.5 - u if movement.back else u - 0.5)
        x, z = self.place[0] + far * np.sin(np.deg2rad(yaw)), self.place[1] + far * np.cos(np.deg2rad(yaw))
        return pose_body(size, finish(movement.pose(t % 1.0, self.manner), self.manner), yaw, (float(x), float(z)))

    def _to_bed(self, size: Proportions, s: float) -> Body:
        """Sit down on the edge of the bed, then swing the legs up and lie back."""
        seated = finish(sitting(self.manner), self.manner)
        if s <= _SAT:
            return _on_feet(size, finish(self.movement.pose(s / _SAT, self.manner), self.manner), self.yaw, self.place)
        w = (s - _SAT) / (1 - _SAT)
        flat = finish(lying(self.manner), self.manner)
        start = _on_feet(size, seated, self.yaw, self.place)
        end = pose_body(size, flat, self.yaw + 90 * self.side, (0.0, 0.0))
        hips = start.points[6] + (self._hips_in_bed(size) - start.points[6]) * w
        height = start.points[6, 1] + (end.points[6, 1] - start.points[6, 1]) * w
        body = pose_body(size, replace(blend(seated, flat, w), rest="bed"), self.yaw + 90 * self.side * w, (0.0, 0.0))
        points = body.points + (np.array([hips[0], height, hips[2]]) - body.points[6])
        points[:, 1] += max(0.0, 0.04 - float(points[:, 1].min()))
        return Body(points, body.pelvis, body.chest, body.skull)

    def _hips_in_bed(self, size: Proportions) -> np.ndarray:
        """Where the hips are in the end: further back than on the edge."""
        seated = _on_feet(size, finish(sitting(self.manner), self.manner), self.yaw, self.place)
        angle = np.deg2rad(self.yaw)
        hips: np.ndarray = seated.points[6] - 0.24 * np.array([np.sin(angle), 0.0, np.cos(angle)])
        return hips

    def furniture(self, size: Proportions, colour: Colour) -> tuple[Item, ...]:
        """What carries the person in the end. It is part of the room, and all behind them: nobody sits with their back to the camera."""
        movement = self.movement
        if not movement.support:
            return ()
        seated = _on_feet(size, finish(sitting(self.manner), self.manner), self.yaw, self.place).points[6]
        seat = max(0.2, float(seated[1]) - 0.085 * size.height / 1.72)
        if movement.support == "chair":
            return chair(float(seated[0]), float(seated[2]), colour, seat, self.yaw)
        hips = self._hips_in_bed(size)
        turn = self.yaw + 90 * self.side
        return (bed(float(hips[0]), float(hips[2]), colour, min(seat, BED_HEIGHT), turn),)

    def lowest(self, size: Proportions) -> Body:
        """The body at the turning point of a movement that goes one way: bent down to the floor, if to pick something up."""
        return _on_feet(size, finish(self.movement.pose(0.5, self.manner), self.manner), self.yaw, self.place)

    def hand(self, body: Body) -> np.ndarray:
        """Where the leading hand is."""
        point: np.ndarray = body.points[L_HAND if self.manner.left else R_HAND]
        return point


def _on_feet(size: Proportions, pose: Pose, yaw: float, place: tuple[float, float]) -> Body:
    """A body whose feet, and not its hips, stay at ``place``: who sits down moves backwards."""
    body = pose_body(size, replace(pose, rest="floor"), yaw, (0.0, 0.0))
    feet = body.points[[0, 5]].mean(axis=0)
    return Body(body.points + np.array([place[0] - feet[0], 0.0, place[1] - feet[2]]), body.pelvis, body.chest, body.skull)


def draw_performance(rng: np.random.Generator, name: str, spread: float, place: tuple[float, float]) -> Performance:
    """Draw how somebody does the movement ``name``; ``spread`` scales how far they stray from the textbook."""
    movement = TABLE[name]
    manner = draw_manner(rng, spread)
    u = rng.random(4)
    sign = 1.0 if u[0] < 0.5 else -1.0
    if movement.handed and u[0] < 0.85:  # the hand that matters is mostly on the side of the camera
        sign = -1.0 if manner.left else 1.0
    if movement.support == "bed":
        yaw = sign * 22.0 * float(u[1])
    elif movement.view == "side":  # now and then towards the camera
        yaw = sign * (60.0 + 40.0 * float(u[1])) if u[2] < 0.8 else sign * 30.0 * float(u[1])
    elif movement.view == "turned":
        yaw = sign * (15.0 + 65.0 * float(u[1]))
    else:
        yaw = sign * 45.0 * float(u[1])
    if movement.cycles is not None:
        phase, pace = float(rng.random()), within(rng, movement.cycles)
    else:
        pace = within(rng, (0.62, 0.92))
        phase = within(rng, (0.0, 1.0 - pace))
    if movement.support == "bed":  # the body ends up behind where the feet stood
        place = (place[0], place[1] + 0.1)
    elif movement.support == "chair":
        angle = np.deg2rad(yaw)
        place = (place[0] + 0.2 * float(np.sin(angle)), place[1] + 0.2 * float(np.cos(angle)))
    return Performance(name, manner, yaw, phase, pace, 1.0 if u[3] < 0.5 else -1.0, place)
