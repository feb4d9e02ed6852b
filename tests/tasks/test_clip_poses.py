from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from halfmask.data.clips import Film, Take
from halfmask.data.figures.clips import Clips
from halfmask.errors import HalfmaskError
from halfmask.tasks.clip_poses import network_joints, smoothed


def test_the_embedded_network_finds_drawn_people_where_they_are() -> None:
    drawn = Clips("public", size=(120, 120), frames=3).clip(6)
    film = Film(drawn.frames, drawn.person)
    take = Take("a", "walk", lambda: film)
    network = network_joints("embedded")
    found = network(take, film)
    assert found is not None and found.shape == (3, 16, 2)
    apart = np.linalg.norm(found - drawn.joints, axis=2)
    assert np.median(apart) < 5
    hidden = film.person.copy()
    hidden[1] = False
    partly = network(take, Film(film.frames, hidden))
    assert partly is not None and np.isnan(partly[1]).all() and np.isfinite(partly[0]).all()
    assert network(take, Film(film.frames, np.zeros_like(hidden))) is None


def test_one_frame_that_disagrees_with_its_neighbours_does_not_show() -> None:
    joints = np.zeros((5, 16, 2))
    joints[2, 3] = 50
    joints[4, 7] = np.nan
    smooth = smoothed(joints)
    assert smooth[2, 3].tolist() == [0, 0]
    assert np.isnan(smooth[4, 7]).all() and np.isfinite(smooth[3, 7]).all()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match="no run at"):
        network_joints(str(tmp_path / "none"))
