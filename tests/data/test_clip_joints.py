from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from halfmask.data.clip_joints import FileJoints, read_joints
from halfmask.data.clips import Film, Take
from halfmask.errors import HalfmaskError

RNG = np.random.default_rng(0)
JOINTS = RNG.uniform(0, 90, (3, 16, 2)).round(2)
JOINTS[1, 4] = np.nan
FILM = Film(np.zeros((3, 8, 8, 3), np.uint8))


def take(name: str) -> Take:
    return Take(name, "walk", lambda: FILM)


def write_csv(path: Path, *, names: bool) -> Path:
    from halfmask.data.skeleton import MPII, full_name

    lines = ["clip,frame,joint,x,y"]
    for frame, joint in np.ndindex(3, 16):
        if np.isfinite(JOINTS[frame, joint]).all():
            x, y = JOINTS[frame, joint]
            lines.append(f"room/a,{frame},{full_name(MPII.names[joint]) if names else joint},{x},{y}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_json(path: Path) -> Path:
    frames = [[None if np.isnan(point).any() else point.tolist() for point in frame] for frame in JOINTS]
    path.write_text(json.dumps({"room/a": frames}))
    return path


def write_npz(path: Path) -> Path:
    np.savez(path, **{"room/a": JOINTS})
    return path


def test_all_files_say_the_same(tmp_path: Path) -> None:
    for path in (
        write_csv(tmp_path / "a.csv", names=True),
        write_csv(tmp_path / "b.csv", names=False),
        write_json(tmp_path / "c.json"),
        write_npz(tmp_path / "d.npz"),
    ):
        found = FileJoints(path)(take("room/a"), FILM)
        np.testing.assert_array_equal(found, JOINTS, err_msg=path.name)
        assert FileJoints(path)(take("room/b"), FILM) is None


def test_coco_becomes_mpii(tmp_path: Path) -> None:
    coco = RNG.uniform(0, 90, (3, 17, 2))
    coco[0, 11] = np.nan
    np.savez(tmp_path / "coco.npz", a=coco)
    found = read_joints(tmp_path / "coco.npz")["a"]
    np.testing.assert_array_equal(found[:, 10], coco[:, 10])  # right wrists
    np.testing.assert_allclose(found[1, 6], coco[1, 11:13].mean(axis=0))
    assert np.isnan(found[0, [3, 6]]).all() and np.isnan(found[:, 9]).all()


def test_frames_after_the_last_with_joints_are_unknown_and_joints_after_the_last_frame_are_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz")
    longer = FileJoints(path)(take("room/a"), Film(np.zeros((5, 8, 8, 3), np.uint8)))
    assert longer is not None and longer.shape == (5, 16, 2) and np.isnan(longer[3:]).all()
    with pytest.raises(HalfmaskError, match="after its last frame") as error:
        FileJoints(path)(take("room/a"), Film(np.zeros((2, 8, 8, 3), np.uint8)))
    assert "room/a" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("a.csv", "clip,frame,x,y\n", "lacks the columns joint"),
        ("a.csv", "clip,frame,joint,x,y\nanna,0,r_tail,1,2\nanna,0,r_knee,1,2\n", "1 of 2 rows cannot be used"),
        ("a.csv", "clip,frame,joint,x,y\nanna,-1,r_knee,1,2\n", "1 of 1 rows"),
        ("a.csv", "clip,frame,joint,x,y\nanna,0,r_knee,nan,2\n", "1 of 1 rows"),
        ("a.json", "[]", "expected {clip: [frame, …]}"),
        ("a.json", '{"anna": [[[1, 2]]]}', "16 in mpii's order"),
        ("a.json", '{"anna": [[["x", 2], [1, 2]]]}', "1 of 1 clips"),
        ("a.json", '{"anna": 3}', "1 of 1 clips"),
        ("a.npz", "no archive", "cannot be read as an NPZ"),
        ("a.txt", "", "expected joints in a file ending in"),
    ],
)
def test_what_cannot_be_read_is_refused_without_naming_anybody(tmp_path: Path, name: str, body: str, told: str) -> None:
    (tmp_path / name).write_text(body)
    with pytest.raises(HalfmaskError) as error:
        read_joints(tmp_path / name)
    assert told in str(error.value) and "anna" not in str(error.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match="no joints at"):
        read_joints(tmp_path / "a.npz")
