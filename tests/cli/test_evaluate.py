from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from halfmask.cli.evaluate import choose_data
from halfmask.data.splits import SplitsConfig
from halfmask.errors import HalfmaskError
from halfmask.metrics.pckh import JOINT_GROUPS
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.ledger import Ledger


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
    assert body["metrics"] == stored["metrics"] and body["per_joint"] == stored["per_joint"] == stored["parts"] == body["parts"]
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


@pytest.fixture
def protected(halfmask, recipe, folder, tmp_path, fresh_home, quick_accounting) -> tuple[Path, Ledger]:
    """A run on the private people of a folder, who are then to be scored as its test people; and their ledger."""
    out, flags = tmp_path / "private", ("--method", "dpsgd", "--data", folder, "--batch", 4)
    assert halfmask("train", recipe, *flags, "--out", out).code == 0
    path = folder / "annotations.json"
    body = json.loads(path.read_text())
    for record in body["records"]:
        record["split"] = {"private": "test", "test": "private"}.get(record["split"], record["split"])
    path.write_text(json.dumps(body))
    return out, Ledger(json.loads((out / "certificate.json").read_text())["dataset_fingerprint"])


def test_private_people_are_not_scored(halfmask, protected) -> None:
    out, ledger = protected
    before, metrics = ledger.path.read_bytes(), (out / "metrics.json").read_bytes()
    result = halfmask("evaluate", out)
    assert "10 of the 10 records to score on show people whom an account here protects" in result.error and "--even-so" in result.error
    assert "PCKh" not in result.out and (out / "metrics.json").read_bytes() == metrics, "no score was told"
    assert ledger.path.read_bytes() == before and ledger.total(1e-5, Adjacency.ZERO_OUT) < 1


def test_even_so_ends_their_account(halfmask, protected) -> None:
    out, ledger = protected
    result = halfmask("evaluate", out, "--even-so")
    assert result.code == 0 and "PCKh" in result.out and "ε = ∞" in result.err
    (read,) = [spend for spend in ledger.spends() if spend.unbounded]
    assert read.method == "read" and "scored openly" in read.unbounded
    assert ledger.total(1e-5, Adjacency.ZERO_OUT) == math.inf
    (book,) = json.loads(halfmask("ledger", "show", "--json").out)
    assert book["total"] == "infinity" and "scored openly" in book["no_bound"]


@dataclass(frozen=True)
class Faces:
    """Another task's data: some of the settings that people with joints have."""

    name: str = "figures"
    test: int = 100
    format: str | None = None
    splits: SplitsConfig = field(default_factory=SplitsConfig)
    attribute: str = ""


def test_data_of_any_task_that_has_splits_can_be_chosen() -> None:
    own = Faces("clinic", 0, "aflw", SplitsConfig(test="1-10"), "glasses")
    assert choose_data("face", own) == own
    assert choose_data("face", own, images="11-20") == Faces("clinic", 0, "aflw", SplitsConfig(test="11-20"), "glasses")
    assert choose_data("face", own, data="elsewhere") == Faces("elsewhere", 0, None, SplitsConfig(), "glasses"), (
        "files are the dataset's own"
    )
    assert choose_data("face", own, data="figures").test == 100
    with pytest.raises(HalfmaskError, match="the task 'face' has a dataset of its own, without a detector's boxes"):
        choose_data("face", own, boxes="found.json")
