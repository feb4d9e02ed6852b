"""`halfmask sanitise` through the real command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest


@pytest.fixture
def photos(tmp_path: Path, photo: Callable[..., None]) -> Path:
    for seed, name in enumerate(("a.jpg", "day 1/b.jpg")):
        photo(tmp_path / "photos" / name, seed=seed)
    return tmp_path / "photos"


def test_a_folder_is_done(halfmask, generator_run, photos, tmp_path) -> None:
    run, out = generator_run(), tmp_path / "out"
    (tmp_path / "boxes.csv").write_text("file,x,y,w,h\na.jpg,10,10,30,40\na.jpg,40,50,30,40\nday 1/b.jpg,20,20,30,40\n")
    result = halfmask("sanitise", run, photos, "--out", out, "--boxes", tmp_path / "boxes.csv")
    assert result.code == 0, result.err
    assert "2 pictures with 3 people drawn anew" in result.out and "manifest.json" in result.out
    assert "sanitising pictures: 2 of 2" in result.err
    assert cv2.imread(str(out / "day 1/b.jpg")).shape == (120, 90, 3)
    body = json.loads((out / "manifest.json").read_text())
    assert [one["people"] for one in body["files"]] == [2, 1] and body["finished"] and body["seed"] is None
    again = halfmask("sanitise", run, photos, "--out", out)
    assert "--overwrite" in again.error
    assert halfmask("sanitise", run, photos, "--out", out, "--overwrite").code == 0


def test_files_that_could_not_be_done_are_named_and_the_exit_code_says_so(halfmask, generator_run, photos, tmp_path) -> None:
    (photos / "bad.jpg").write_bytes(b"\xff\xd8 no picture")
    result = halfmask("sanitise", generator_run(), photos, "--out", tmp_path / "out")
    assert result.code == 1 and "Traceback" not in result.err
    assert "error: bad.jpg was not done: it cannot be read as an image" in result.err and "error: 1 of 3 files were not done" in result.err
    assert (tmp_path / "out/a.jpg").is_file() and not (tmp_path / "out/bad.jpg").exists()


def test_for_programs(halfmask, generator_run, photos, tmp_path) -> None:
    (photos / "bad.jpg").write_bytes(b"")
    result = halfmask("sanitise", generator_run(certified=False), photos, "--out", tmp_path / "out", "--json")
    body = json.loads(result.out)
    assert result.code == 1 and body["pictures"] == 2 and body["people"] == 2 and body["not_done"][0]["name"] == "bad.jpg"
    assert "warning: the run 'drawn' has no certificate" in result.err


def test_every_option_reaches_the_pictures(halfmask, generator_run, photos, weights, tmp_path) -> None:
    (tmp_path / "boxes.csv").write_text("a.jpg,30,30,30,40\nb.jpg,30,30,30,40\n")
    common = ("sanitise", generator_run(), photos, "--boxes", tmp_path / "boxes.csv", "--seed", 3)
    options = ("--background", "none", "--margin", 0, "--same-person", "--pose-network", weights, "--threads", 1, "--device", "cpu")
    assert halfmask(*common, "--out", tmp_path / "one", *options).code == 0
    body = json.loads((tmp_path / "one/manifest.json").read_text())
    assert body["background"] == "none" and body["margin"] == 0 and body["seed"] == 3 and "the same in all" in body["appearances"]
    assert body["files"][0]["boxes"] == [[30, 30, 30, 40]] and "of Halfmask" in body["poses"]["network"]
    assert np.abs(cv2.imread(str(tmp_path / "one/a.jpg"))[:20].astype(int) - 128).max() < 12


def test_after_ctrl_c_one_is_told_where_it_stands(halfmask, generator_run, photos, tmp_path, monkeypatch) -> None:
    def stop(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("halfmask.cli.console.TerminalProgress.stage", stop)
    result = halfmask("sanitise", generator_run(), photos, "--out", tmp_path / "out")
    assert result.code == 130 and "manifest.json says which pictures are done" in result.err
    assert json.loads((tmp_path / "out/manifest.json").read_text())["waiting"] == ["day 1/b.jpg"]


@pytest.mark.parametrize(
    "arguments,message",
    [
        (("--background", "blurred"), "did you mean 'blur'"),
        (("--boxes", "none.csv"), "none.csv cannot be read"),
        (("--margin", "-1"), "--margin is -1"),
    ],
)
def test_mistakes_are_one_line(halfmask, generator_run, photos, tmp_path, arguments, message) -> None:
    assert message in halfmask("sanitise", generator_run(), photos, "--out", tmp_path / "out", *arguments).error
    assert not (tmp_path / "out").exists()


def test_runs_that_are_none(halfmask, photos, tmp_path) -> None:
    assert "no run at" in halfmask("sanitise", tmp_path / "none", photos, "--out", tmp_path / "out").error


def test_help_says_what_happens_without_boxes(halfmask) -> None:
    words = " ".join(halfmask("sanitise", "--help").out.replace("│", " ").split())
    assert "one person's crop that fills it" in words and "training set" in words
