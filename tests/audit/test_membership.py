"""An attack that finds members where they are remembered, and none where nobody was read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from halfmask.audit.membership import NOT_FOR_RELEASE, audit_model, people_of
from halfmask.errors import HalfmaskError
from halfmask.training.config import RunConfig
from halfmask.training.loop import run_training
from halfmask.training.runs import TrainedRun, open_run

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
Build = Callable[..., RunConfig]


@pytest.fixture
def remembered(tiny_config: Build, tmp_path: Path) -> TrainedRun:
    """Twenty people, read until they are known by heart."""
    config = tiny_config(
        "data.private=20", "data.test=100", "optimiser.name=adamw", "optimiser.learning_rate=0.003", method="non-private", epochs=50, batch=10
    )
    return open_run(run_training(config, tmp_path / "heart"))


def test_what_was_learnt_by_heart_is_found(remembered: TrainedRun) -> None:
    body = audit_model(remembered, shadows=0)
    start, target = body["results"]
    assert start["at_chance"], "weights that saw nobody tell nobody apart"
    assert target["attacks"]["loss"]["auc"]["low"] > 0.8 and not body["at_chance"]
    assert body["epsilon_claimed"] is None and len(body["results"]) == 2


def test_shadows_train_by_the_same_recipe_and_spend_nothing(
    tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    import halfmask.audit.membership as membership

    config = tiny_config("data.test=40", "budget=1.0", epsilon=0.8)
    run = open_run(run_training(config, tmp_path / "run"))
    ledgers = {path: path.read_bytes() for path in fresh_home.rglob("*.jsonl")}
    trained: list[RunConfig] = []
    real = membership.train_shadow
    monkeypatch.setattr(membership, "train_shadow", lambda config, *a: trained.append(config) or real(config, *a))
    body = audit_model(run, shadows=2)
    assert [c.method for c in trained] == ["non-private", "dpsgd", "dpsgd", "non-private", "non-private"]
    assert {path: path.read_bytes() for path in fresh_home.rglob("*.jsonl")} == ledgers
    assert [r["model"] for r in body["results"]][0].startswith("initial weights")
    assert body["results"][1]["attacks"].keys() == {"loss", "likelihood"}
    assert body["epsilon_claimed"] == 0.8 and body["not_for_release"] is None, "figures are nobody"


def test_whoever_left_for_the_subspace_is_no_member(tiny_config: Build) -> None:
    members, strangers, _ = people_of(tiny_config("subspace.source=private", method="projected"))
    assert len(members) == 40 - 16 and len(strangers) == 8


def test_what_cannot_be_compared_is_refused(remembered: TrainedRun) -> None:
    with pytest.raises(HalfmaskError, match="non-private"):
        audit_model(remembered, replace(remembered, config=replace(remembered.config, method="dpsgd")), shadows=0)
    other = replace(remembered.config, data=replace(remembered.config.data, private=21))
    with pytest.raises(HalfmaskError, match="same recipe"):
        audit_model(remembered, replace(remembered, config=other), shadows=0)
    with pytest.raises(HalfmaskError, match="1 shadow"):
        audit_model(remembered, shadows=1)


def test_real_people_are_marked(remembered: TrainedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    import halfmask.audit.membership as membership

    people = people_of(remembered.config)
    monkeypatch.setattr(membership, "people_of", lambda *a: people)
    config = replace(remembered.config, data=replace(remembered.config.data, name="clinic"))
    assert audit_model(replace(remembered, config=config), shadows=0)["not_for_release"] == NOT_FOR_RELEASE
