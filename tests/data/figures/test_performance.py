"""Movements and how they are performed: smooth, on the ground, and some of them others backwards."""

from dataclasses import replace

import numpy as np
import pytest

from halfmask.data.figures.movements import MOVEMENTS, TABLE
from halfmask.data.figures.performance import Performance, draw_performance
from halfmask.data.figures.populations import PUBLIC
from halfmask.data.figures.subjects import draw_look

SIZE = draw_look(np.random.default_rng(0), PUBLIC).size


def performed(name: str, seed: int = 0) -> Performance:
    return draw_performance(np.random.default_rng(seed), name, 0.8, (0.0, 0.0))


@pytest.mark.parametrize("name", MOVEMENTS)
def test_smooth_and_on_the_ground(name: str) -> None:
    for seed in range(3):
        points = np.stack([performed(name, seed).body(SIZE, u).points for u in np.linspace(0, 1, 101)])
        assert np.linalg.norm(np.diff(points, axis=0), axis=2).max() < 0.25  # metres in a hundredth of the clip
        assert points[:, :16, 1].min() > -0.05
        assert np.ptp(points[:, :16], axis=0).max() > 0.1
        assert np.abs(points[:, 6, [0, 2]]).max() < 1.2  # nobody leaves the frame


@pytest.mark.parametrize(("there", "back"), [("sit_down", "stand_up"), ("lie_down", "get_up"), ("pick_up", "put_down")])
def test_one_way_pairs_are_each_other_backwards(there: str, back: str) -> None:
    one = replace(performed(there), phase=0.1, pace=0.8)
    other = replace(one, name=back)
    for u in np.linspace(0, 1, 9).tolist():
        assert np.allclose(one.body(SIZE, u).points, other.body(SIZE, 1 - u).points, atol=1e-9)
    assert not np.allclose(one.body(SIZE, 0.3).points, other.body(SIZE, 0.3).points, atol=0.05)


def test_walking_backwards_is_walking_in_reverse() -> None:
    one = performed("walk")
    other = replace(one, name="walk_backwards", phase=one.phase + one.pace)
    for u in (0.0, 0.4, 1.0):
        assert np.allclose(one.body(SIZE, u).points, other.body(SIZE, 1 - u).points, atol=1e-9)


def test_where_people_end_up() -> None:
    for seed in range(6):
        sit, lie, pick = (performed(name, seed) for name in ("sit_down", "lie_down", "pick_up"))
        first, last = sit.body(SIZE, 0.0).points, sit.body(SIZE, 1.0).points
        assert last[6, 1] < 0.7 * first[6, 1] and abs(first[[0, 5]] - last[[0, 5]]).max() < 0.2  # the feet stay
        last = lie.body(SIZE, 1.0).points
        assert np.ptp(last[[0, 5, 6, 7, 9], 1]) < 0.5 and np.ptp(last[[0, 9], 0]) > 1.0  # flat, across the view
        middle = pick.time(pick.phase + 0.5 * pick.pace)
        assert middle == pytest.approx(0.5) and pick.hand(pick.lowest(SIZE))[1] < 0.45


def test_walkers_get_somewhere() -> None:
    for name in ("walk", "run", "walk_backwards"):
        act = performed(name)
        step = act.body(SIZE, 1.0).points[6] - act.body(SIZE, 0.0).points[6]
        ahead = step[0] * np.sin(np.deg2rad(act.yaw)) + step[2] * np.cos(np.deg2rad(act.yaw))
        assert 0.4 < abs(ahead) <= 0.95 and (ahead < 0) == (name == "walk_backwards")


def test_who_sits_or_lies_has_something_to_do_it_on() -> None:
    for name in MOVEMENTS:
        assert bool(performed(name).furniture(SIZE, (9.0, 9.0, 9.0))) == bool(TABLE[name].support)
