from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from halfmask.metrics.pckh import JOINT_GROUPS


@pytest.fixture
def own(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained[0], tmp_path / "copy"))


def test_gives_what_training_gave(halfmask, own) -> None:
    before = (own / "metrics.json").read_text()
    (own / "metrics.json").unlink()
    result = halfmask("evaluate", own)
    assert result.code == 0, result.err
    assert (own / "metrics.json").read_text() == before
    for word in (*(group.capitalize() for group in JOINT_GROUPS), "Mean", "PCKh@0.1", "6 people of figures, test"):
        assert word in result.out
    assert max(map(len, result.out.splitlines()[:-1])) <= 80


def test_views_and_json(halfmask, own) -> None:
    body = json.loads(halfmask("evaluate", own, "--views", "--json").out)
    stored = json.loads((own / "metrics.json").read_text())
    assert body["metrics"] == stored["metrics"] and body["per_joint"] == stored["per_joint"]
    assert body["views"].keys() == body["metrics"].keys() and body["people"] == 6
    assert "Views" in halfmask("evaluate", own, "--views").out


@pytest.mark.parametrize("option", ["--no-flip-test", "--data"])
def test_other_scores_leave_the_stored_ones_alone(halfmask, own, exported, option) -> None:
    (own / "metrics.json").write_text("untouched")
    result = halfmask("evaluate", own, option, *([exported] if option == "--data" else []))
    assert result.code == 0, result.err
    assert (own / "metrics.json").read_text() == "untouched"


def test_opens_no_private_picture(halfmask, own, folder) -> None:
    for picture in (folder / "images/private").iterdir():
        picture.write_bytes(b"unreadable")
    result = halfmask("evaluate", own, "--data", folder)
    assert result.code == 0, result.err


def test_dataset_without_test_split(halfmask, own, folder) -> None:
    path = folder / "annotations.json"
    body = json.loads(path.read_text())
    path.write_text(json.dumps({"records": [r for r in body["records"] if r["split"] != "test"]}))
    assert "no record with split 'test'" in halfmask("evaluate", own, "--data", folder).error
