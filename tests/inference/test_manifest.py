"""The manifest says in plain words whom ε covers, and lists every file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from halfmask import __version__
from halfmask.inference.manifest import MANIFEST, Done, Drawn, Manifest, header, promises, statement
from halfmask.inference.repainting import BACKGROUNDS, Region

CERTIFICATE = {"epsilon": {"zero-out": 0.9}, "adjacency": "zero-out", "delta": 1e-5, "run": "ab12", "unit": "image"}


@pytest.mark.parametrize("background", BACKGROUNDS)
def test_whom_the_promise_covers(background: str) -> None:
    words = " ".join(statement(True, background))
    assert "ε is a promise to the people of the training set" in words
    assert "ε says nothing of the people on these photographs. Of them the output shows the pose, the box" in words
    assert "background" in words and "EXIF" in words and "Whoever is outside the boxes was not replaced" in words
    assert "There is no ε here" in statement(False, background)[0]


def test_backgrounds_are_told_apart() -> None:
    assert len({statement(True, background)[1] for background in BACKGROUNDS}) == 3


def test_a_promise_is_a_number() -> None:
    assert promises(CERTIFICATE)
    for epsilon in ({"zero-out": "infinity"}, {"zero-out": None}, {}):
        assert not promises(CERTIFICATE | {"epsilon": epsilon})
    assert not promises(None)


def test_what_is_written_is_json_with_a_line_for_each_file(tmp_path: Path) -> None:
    top = header(CERTIFICATE, "The promise.", {"folder": "drawn"}, "keep", {"seed": None}, ["look"])
    manifest = Manifest(tmp_path, top, ["ü.jpg", "b.jpg", "c.jpg"])
    manifest.write()
    body = json.loads((tmp_path / MANIFEST).read_text())
    assert body["finished"] is False and body["waiting"] == ["ü.jpg", "b.jpg", "c.jpg"] and body["files"] == [] == body["not_done"]
    people = (Drawn(Region(1, 2, 3, 4), "given", 12), Drawn(Region(5, 6, 7, 8), "network", 16))
    manifest.done.append(Done("ü.jpg", 90, 60, people, ("16 bits a channel became 8",)))
    manifest.not_done.append(("b.jpg", "it is corrupt"))
    manifest.tried = 2
    manifest.write()
    text = (tmp_path / MANIFEST).read_text()
    body = json.loads(text)
    assert body["finished"] is False and body["waiting"] == ["c.jpg"]
    assert body["files"] == [
        {
            "name": "ü.jpg",
            "size": [90, 60],
            "people": 2,
            "boxes": [[1, 2, 3, 4], [5, 6, 7, 8]],
            "poses": ["given", "network"],
            "joints_known": [12, 16],
            "notes": ["16 bits a channel became 8"],
        }
    ]
    assert body["not_done"] == [{"name": "b.jpg", "reason": "it is corrupt"}]
    assert sum("ü.jpg" in line for line in text.splitlines()) == 1
    assert body["certificate"]["epsilon"] == {"zero-out": 0.9} and body["certificate"]["delta"] == 1e-5
    assert body["certificate"]["text"] == "The promise." and body["halfmask"] == __version__ and body["cautions"] == ["look"]
    manifest.tried = 3
    manifest.write()
    assert json.loads((tmp_path / MANIFEST).read_text())["finished"] is True
