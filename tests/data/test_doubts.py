from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from halfmask.data.doubts import FAR, ODD_VISIBILITY, TINY, TWICE, doubts_about
from halfmask.data.people import Person

PATH = Path("a.jpg")


def person(**joint: float) -> Person:
    joints = np.tile([20.0, 30.0, 2.0], (16, 1))
    joints[4] = [joint.get("x", 20), joint.get("y", 30), joint.get("v", 2)]
    return Person("a.jpg", PATH, 0, (10, 20, 40, 50), joints, annotation_id=3)


@pytest.mark.parametrize(
    "people, size, reasons",
    [
        ([person()], (100, 80), []),
        ([person(x=1e6)], (100, 80), [FAR]),
        ([person(y=-1e6)], (100, 80), [FAR]),
        # Not labelled, a little outside, or an image that was not opened: nothing to say.
        ([person(x=1e6, v=0)], (100, 80), []),
        ([person(x=100)], (100, 80), []),
        ([person(x=1e6)], None, []),
        ([person()], (1, 1), [TINY]),
        ([person(v=7)], (100, 80), [ODD_VISIBILITY]),
        ([person(), person()], (100, 80), [TWICE]),
        ([person(), person(x=21)], (100, 80), []),
    ],
)
def test_what_had_better_be_looked_at(people, size, reasons) -> None:
    found = doubts_about(people, {PATH: size})
    assert [one.reason for one in found] == reasons


def test_which_joint_it_is() -> None:
    (found,) = doubts_about([person(x=1e6)], {PATH: (100, 80)})
    assert found.image == "a.jpg" and found.detail == "annotation 3, joint 4 at 1e+06, 30 of 80×100"
