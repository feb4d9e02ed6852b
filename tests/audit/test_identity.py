"""An attack that finds people whom a network knows, and nobody where it knows members and strangers alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import halfmask.audit.identity as identity
from halfmask.audit.identity import audit_identity
from halfmask.audit.membership import NOT_FOR_RELEASE
from halfmask.data.faces import FaceRecords, Layout, face_records
from halfmask.errors import HalfmaskError
from halfmask.report.audits import audit_sections, write_audit
from halfmask.tasks.face import FaceTask
from halfmask.training.config import build_config
from halfmask.training.runs import TrainedRun

pytestmark = pytest.mark.usefixtures("tiny_hyperface", "one_thread")
Build = Callable[..., FaceRecords]


def faces(subjects: list[int] | None, first: int = 0, key: str = "faces") -> FaceRecords:
    """A photograph for each of these subjects: a region with a face, whose first byte is whose it is, and one without, of nobody."""
    count = 2 * len(subjects or range(24))
    owners = np.repeat(np.arange(24) if subjects is None else subjects, 2) + first
    face = (np.arange(count) % 2 == 0).astype(np.float32)
    images = np.random.default_rng(len(key) + first).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    images[:, 0, 0, 0] = np.where(face > 0, owners, 255)
    nothing = {"landmarks": np.zeros((count, 5, 2)), "visible": np.zeros((count, 5)), "pose": np.zeros((count, 3))}
    scalars = {name: np.zeros(count) for name in ("posed", "attribute", "attributed")}
    boxes = np.tile(np.float32([10, 12, 40, 40]), (count, 1))
    return face_records(
        images=images,
        targets={"face": face} | nothing | scalars,
        truth={"boxes": boxes, "face_boxes": boxes, "overlaps": face},
        image_ids=np.arange(count) // 2 + 1000 * first,
        subjects=None if subjects is None else owners,
        key=f"{key}/{first}/{count}",
        layout=Layout("five", (1, 0, 2, 4, 3)),
    )


class Knows(nn.Module):
    """Knows people below a number by name; of all others it tells noise."""

    def __init__(self, below: int) -> None:
        super().__init__()
        self.below = below


class ByName(FaceTask):
    """Features that are a direction of the subject's own where the network knows them."""

    start = Knows(0)

    def build(self, data: Any) -> Any:
        return self.start

    def features(self, model: nn.Module, batch: Any) -> torch.Tensor:
        assert isinstance(model, Knows)
        images = batch["image"].cpu().numpy()
        rows = []
        for image in images:
            owner = int(image[0, 0, 0])
            assert owner != 255, "a region that shows nobody names nobody"
            seed = owner if owner < model.below else int.from_bytes(image.tobytes()[-8:], "big")
            rows.append(np.random.default_rng(seed).normal(size=32))
        return torch.tensor(np.array(rows), dtype=torch.float32)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., TrainedRun]:
    def build(below: int, method: str = "dpsgd", data: str = "figures") -> TrainedRun:
        recipe = {"task": "face", "method": method, "epsilon": 5.0, "delta": 1e-3, "model": {"weights": None, "size": "tiny"}}
        config = build_config(recipe | {"data": {"name": data}}, {}, [])
        return TrainedRun(tmp_path / "run", config, ByName(config), Knows(below), torch.device("cpu"))

    return build


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Members are subjects 0 to 7 and strangers 100 to 107, each on six photographs, unless others are given."""

    def given(members: FaceRecords | None = None, strangers: FaceRecords | None = None) -> None:
        six = [subject for subject in range(8) for _ in range(6)]
        found = (members or faces(six), strangers or faces(six, first=100), None)
        monkeypatch.setattr(identity, "people_of", lambda *a: found)

    given()
    return given


def test_a_network_that_knows_its_members_is_seen(run, people) -> None:
    body = audit_identity(run(below=50))
    before, after = body["results"]
    assert before["model"].startswith("initial weights") and after["model"] == "this run: dpsgd"
    assert after["members"]["value"] == 1 and after["strangers"]["value"] < 0.4 and before["members"]["value"] < 0.4
    assert body["memory"]["low"] > 0.3 and body["people"] == 8 and body["chance"] == 1 / 8 and body["epsilon_claimed"] == 5


def test_equal_networks_remember_exactly_nothing(run, people, monkeypatch: pytest.MonkeyPatch) -> None:
    assert audit_identity(run(below=0))["memory"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    monkeypatch.setattr(ByName, "start", Knows(200))
    body = audit_identity(run(below=200))
    assert body["results"][1]["members"]["value"] == body["results"][1]["strangers"]["value"] == 1
    assert body["memory"]["value"] == 0, "who knows everybody remembers nobody"


def test_what_the_public_start_knew_is_no_memory(run, people, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ByName, "start", Knows(50))
    assert audit_identity(run(below=50))["memory"]["value"] == 0
    assert audit_identity(run(below=0))["memory"]["high"] < 0, "forgetting members shows as less than nothing"


def test_the_same_seed_gives_the_same_numbers(run, people) -> None:
    first, again = audit_identity(run(below=4), seed=3), audit_identity(run(below=4), seed=3)
    assert first == again and 0 < first["results"][1]["members"]["value"] < 1


def test_a_start_that_is_drawn_is_the_one_that_the_run_had(run, people, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[float] = []
    monkeypatch.setattr(ByName, "build", lambda self, data: drawn.append(float(torch.rand(1))) or self.start)
    opened = run(below=0)
    audit_identity(opened)
    torch.manual_seed(opened.config.seed)
    assert drawn == [float(torch.rand(1))]


def test_datasets_without_subjects_are_refused(run, people) -> None:
    people(members=faces(None))
    with pytest.raises(HalfmaskError, match="the private part of this dataset does not say who is who: naming people needs subject ids"):
        audit_identity(run(below=0))
    people(strangers=faces(None, first=100))
    with pytest.raises(HalfmaskError, match="the test part of this dataset does not say who is who"):
        audit_identity(run(below=0))


def test_too_few_people_with_several_photographs_are_refused(run, people) -> None:
    people(strangers=faces([subject for subject in range(20) for _ in range(6 if subject < 4 else 2)], first=100))
    with pytest.raises(HalfmaskError, match="4 people with several photographs in the smaller group: expected at least 5"):
        audit_identity(run(below=0))
    people(members=faces([subject for subject in range(20) for _ in range(2)]))
    with pytest.raises(HalfmaskError, match="0 people"):
        audit_identity(run(below=0))


def test_groups_of_one_size(run, people) -> None:
    people(strangers=faces([subject for subject in range(6) for _ in range(4)], first=100))
    body = audit_identity(run(below=50))
    assert body["people"] == 6 and body["results"][1]["members"]["value"] == 1


def test_figures_may_be_released_and_nobody_else(run, people, tmp_path: Path) -> None:
    drawn, real = audit_identity(run(below=50)), audit_identity(run(below=50, data="clinic"))
    assert drawn["not_for_release"] is None and real["not_for_release"] == NOT_FOR_RELEASE
    for name, body, released in (("drawn", drawn, 1), ("real", real, 0)):
        page = write_audit(tmp_path / name, body)
        assert len(audit_sections(tmp_path / name)) > 0 if released else audit_sections(tmp_path / name) == []
        text = page.read_text()
        assert "the network knows its members better than strangers" in text and ("Not for release" in text) == (not released)
        kept = json.loads((tmp_path / name / "identity.json").read_text())
        assert kept.pop("date") and kept == body
    assert (tmp_path / "real/identity.json").stat().st_mode & 0o077 == 0


def test_what_is_promised_by_nobody_is_not_claimed(run, people) -> None:
    assert audit_identity(run(below=0, method="non-private"))["epsilon_claimed"] is None
    changed = run(below=0)
    assert audit_identity(replace(changed, config=replace(changed.config, epsilon=2.0)))["epsilon_claimed"] == 2.0
