"""What the people of clips have in their hands: a mug, a telephone, a brush, a box. It counts as room, and not as person."""

from __future__ import annotations

import numpy as np

from halfmask.data.figures.camera import Camera
from halfmask.data.figures.draw import OCCLUDER, Canvas, Colour, capsules, tone
from halfmask.data.figures.performance import Performance
from halfmask.data.figures.skeleton import HEAD, Body
from halfmask.data.figures.subjects import Look

_DARK: Colour = (38.0, 38.0, 44.0)


def draw_held(canvas: Canvas, camera: Camera, act: Performance, body: Body, look: Look, u: float) -> None:
    """Draw what a person holds after a share ``u`` of their clip."""
    held = act.movement.held
    hand, colour = act.hand(body), look.accent
    if held == "box" and act.time(u) < 0.5:  # not yet picked up: it lies where the hand will be
        hand = act.hand(act.lowest(look.size))
        hand = np.array([hand[0], 0.12, hand[2]])
    (spot,), (depth,) = camera.project(hand[None])
    pixel = camera.focal / float(depth)
    if held == "mug":
        corners = np.array([[-0.05, -0.1], [0.05, -0.1], [0.045, 0.03], [-0.045, 0.03]])
        canvas.convex(spot + pixel * corners, colour, OCCLUDER)
        canvas.convex(spot + pixel * corners * [1.0, 0.25] + pixel * np.array([0.0, -0.075]), tone(colour, 0.6), OCCLUDER)
    elif held == "phone":
        (ear,), _ = camera.project(body.points[HEAD][None])
        up = (ear - spot) / max(1.0, float(np.linalg.norm(ear - spot)))
        corners = np.array([[-0.035, -0.09], [0.035, -0.09], [0.035, 0.06], [-0.035, 0.06]])
        lean = 0.25 * float(up[0])
        canvas.convex(spot + pixel * corners @ np.array([[1.0, lean], [-lean, 1.0]]), _DARK, OCCLUDER)
    elif held == "box":
        corners = np.array([[-0.14, -0.1], [0.14, -0.1], [0.14, 0.1], [-0.14, 0.1]])
        canvas.convex(spot + pixel * corners, colour, OCCLUDER)
        canvas.convex(spot + pixel * corners * [1.0, 0.2], tone(colour, 0.7), OCCLUDER)
    else:
        (end,), _ = camera.project((body.points[HEAD] + body.skull[:, 2] * 0.11 - body.skull[:, 1] * 0.05)[None])
        if act.name == "stir":
            end = spot + pixel * np.array([0.02, 0.2])
        width = np.array([max(0.6, 0.012 * pixel)])
        canvas.convex(capsules(spot[None], end[None], width, width)[0][0], colour, OCCLUDER)
