"""Which files are meant, and that nothing is lost where the new ones go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from halfmask.errors import HalfmaskError
from halfmask.inference.originals import check_target, find_originals, listed


def made(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    made(
        folder / "a.jpg", folder / "day 1/b.PNG", folder / "day 1/deep/ü.jpeg", folder / "notes.txt", folder / "c.heic", folder / "film.mp4"
    )
    return folder


def test_folders_are_looked_through_and_places_below_are_kept(photos: Path) -> None:
    found = find_originals([photos])
    assert [one.name for one in found.originals] == ["a.jpg", "day 1/b.PNG", "day 1/deep/ü.jpeg"]
    assert [one.name for one in found.unsupported] == ["c.heic", "film.mp4"] and found.others == 1
    assert [one.name for one in find_originals([photos / "day 1/b.PNG", photos / "day 1/b.PNG"]).originals] == ["b.PNG"]
    # What is below two folders that are given is one file, and not two.
    assert len(find_originals([photos, photos / "day 1"]).originals) == 3


def test_nothing_to_do_is_told(tmp_path: Path, photos: Path) -> None:
    made(tmp_path / "texts/a.txt")
    for given in ([tmp_path / "texts"], [], [tmp_path / "none.jpg"]):
        with pytest.raises(HalfmaskError, match=r"no images found in .*expected files ending in .bmp"):
            find_originals(given)
    with pytest.raises(HalfmaskError, match=r"c\.heic is in a format that is not supported"):
        find_originals([photos / "c.heic"])
    # Beside others, a file that is not there is listed later on.
    assert len(find_originals([photos / "a.jpg", tmp_path / "none.jpg"]).originals) == 2


def test_two_files_of_one_name_are_refused(tmp_path: Path, photos: Path) -> None:
    made(tmp_path / "others/A.JPG")
    with pytest.raises(HalfmaskError, match="would both be written as"):
        find_originals([photos, tmp_path / "others"])


@pytest.mark.parametrize("place", ["photos", "photos/new", "photos/day 1", "run", "run/new"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_no_original_and_no_run_is_written_into(tmp_path: Path, photos: Path, place: str, overwrite: bool) -> None:
    run = tmp_path / "run"
    made(run / "config.yaml")
    with pytest.raises(HalfmaskError, match="give a folder outside of it"):
        check_target(tmp_path / place, [photos], find_originals([photos]).originals, run, overwrite)


def test_an_original_beside_the_target_is_not_overwritten(tmp_path: Path, photos: Path) -> None:
    given = [photos / "a.jpg"]
    with pytest.raises(HalfmaskError, match=r"a\.jpg would be overwritten"):
        check_target(photos, given, find_originals(given).originals, tmp_path / "run", overwrite=True)
    # Nor through a link.
    os.symlink(photos, tmp_path / "link")
    with pytest.raises(HalfmaskError, match=r"a\.jpg would be overwritten"):
        check_target(tmp_path / "link", given, find_originals(given).originals, tmp_path / "run", overwrite=True)
    # Nor by what is below a folder that is given, in a folder above it.
    made(tmp_path / "x/a.jpg", tmp_path / "x/x/a.jpg")
    given = [tmp_path / "x/x", tmp_path / "x/a.jpg"]
    with pytest.raises(HalfmaskError, match="would both"):
        find_originals(given)


def test_a_folder_that_holds_something_is_left_alone_unless_one_asks(tmp_path: Path, photos: Path) -> None:
    originals, run, out = find_originals([photos]).originals, tmp_path / "run", tmp_path / "out"
    assert check_target(out, [photos], originals, run, overwrite=False) == 0
    out.mkdir()
    assert check_target(out, [photos], originals, run, overwrite=False) == 0
    made(out / "old/b.jpg")
    with pytest.raises(HalfmaskError, match=r"holds 1 file already.*--overwrite"):
        check_target(out, [photos], originals, run, overwrite=False)
    assert check_target(out, [photos], originals, run, overwrite=True) == 1
    with pytest.raises(HalfmaskError, match="which is a file"):
        check_target(out / "old/b.jpg", [photos], originals, run, overwrite=True)


def test_long_lists_are_cut() -> None:
    assert listed(["a", "b"]) == "a, b" and listed(list("abcde")) == "a, b, c and 2 more"
