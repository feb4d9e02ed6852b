"""What is meant by what somebody typed, and that nothing is lost where answers are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfmask.errors import HalfmaskError
from halfmask.inference.sources import CAMERA, PICTURE, VIDEO, Source, check_free, find_sources, output_names

ALL = (PICTURE, VIDEO, CAMERA)


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.PNG", "c.mp4", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def test_folders_patterns_files_and_cameras(shots: Path) -> None:
    found = find_sources([shots, shots / "*.jpg", Path("0"), shots / "missing.jpg"], ALL)
    told = [(one.path.name, one.kind) for one in found]
    assert told == [("a.jpg", PICTURE), ("b.PNG", PICTURE), ("c.mp4", VIDEO), ("0", CAMERA), ("missing.jpg", PICTURE)]
    assert found[3].stem == "camera-0"
    assert [one.path.name for one in find_sources([shots / "*"], (VIDEO,))] == ["c.mp4"]


def test_a_file_that_is_called_like_a_camera_or_a_pattern_is_a_file(shots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shots)
    Path("7").write_bytes(b"")
    Path("[x].jpg").write_bytes(b"")
    assert [one.kind for one in find_sources([Path("7"), Path("[x].jpg")], ALL)] == [PICTURE, PICTURE]
    assert find_sources([Path("7")], (PICTURE,))[0].kind == PICTURE


def test_nothing_there(shots: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(HalfmaskError, match="holds no pictures or videos"):
        find_sources([tmp_path / "empty"], ALL)
    with pytest.raises(HalfmaskError, match="holds no pictures"):
        find_sources([tmp_path / "empty"])
    with pytest.raises(HalfmaskError, match="no file fits"):
        find_sources([shots / "*.webp"], ALL)


def test_names_are_kept_apart_and_no_original_is_lost(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("x/a.jpg", "y/a.jpg", "x/a-2.jpg", "z/A.jpg", "b.png", "c.mp4", "c-labels.mp4")]
    sources = [Source(path, VIDEO if path.suffix == ".mp4" else PICTURE) for path in paths]
    names = output_names(sources, tmp_path, (".json", ".png", "-labels.mp4"))
    assert len({name.casefold() for name in names}) == 7
    assert names[4:6] == ["b-2", "c-2"], "b.png and c-labels.mp4 are originals"


def test_what_is_there_is_not_overwritten_unless_that_is_wanted(tmp_path: Path) -> None:
    check_free(tmp_path / "new", ["a"], (".json",), overwrite=False)
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(HalfmaskError, match=r"holds a\.json already.*--overwrite"):
        check_free(tmp_path, ["b", "a"], (".json", ".png"), overwrite=False)
    check_free(tmp_path, ["a"], (".json",), overwrite=True)
    with pytest.raises(HalfmaskError, match="which is a file"):
        check_free(tmp_path / "a.json", ["a"], (".json",), overwrite=True)
