"""An attack that finds members where they are remembered, and none where nobody was read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import halfmask.audit.membership as membership
from halfmask.audit.membership import NOT_FOR_RELEASE, audit_model, people_of
from halfmask.audit.separation import at_chance, auc, separation
from halfmask.data.datasets import load_datasets
from halfmask.data.figures_records import figures_records
from halfmask.data.pose_records import PoseRecords
from halfmask.errors import HalfmaskError
from halfmask.models.pose import build_model
from halfmask.tasks.pose import predict
from halfmask.training.config import RunConfig
from halfmask.training.outputs import RunFolder
from halfmask.training.running import run_training
from halfmask.training.runs import TrainedRun, open_run

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
Build = Callable[..., RunConfig]


@pytest.fixture
def untrained(tiny_config: Build, tmp_path: Path) -> TrainedRun:
    """A run whose weights are as they were drawn."""
    config = tiny_config("data.private=60", "data.test=100", method="non-private")
    torch.manual_seed(0)
    folder = RunFolder.create(tmp_path / "untrained", config)
    folder.save_model(build_model(config.model))
    return open_run(folder.path)


@pytest.fixture
def remembered(untrained: TrainedRun, monkeypatch: pytest.MonkeyPatch) -> TrainedRun:
    """A model that knows its members by heart: their joints are where it says they are."""
    members, strangers, public = people_of(untrained.config)
    points, _ = predict(untrained.model, members.images, flip_test=False)
    known = members.changed(joints=points.astype(np.float32))
    monkeypatch.setattr(membership, "people_of", lambda *a: (known, strangers, public))
    return untrained


def test_what_is_known_by_heart_is_found(remembered: TrainedRun) -> None:
    body = audit_model(remembered, shadows=0)
    assert [result["model"] for result in body["results"]] == ["initial weights (saw nobody)", "this run: non-private"]
    found = body["results"][1]["attacks"]["loss"]
    assert found["auc"]["low"] > 0.8 and not body["at_chance"]
    assert body["epsilon_claimed"] is None


def test_a_model_that_saw_nobody_tells_nobody_apart(untrained: TrainedRun) -> None:
    """Of forty random divisions of the same people about two are called a leak by 95 % intervals."""
    scores = -membership.losses(untrained.task, untrained.model, figures_records("test", 160, size=untrained.config.model.input_size))
    rng = np.random.default_rng(0)
    divisions = [rng.permutation(scores) for _ in range(40)]
    assert sum(at_chance(separation(mixed[:80], mixed[80:])) for mixed in divisions) >= 34


def test_likelihood_finds_who_the_shadows_say_is_odd(untrained: TrainedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shadows that lower the loss of whoever is in them; a target that does so for its members. Losses alone are useless here."""
    rng, calls = np.random.default_rng(0), iter(range(100))
    people = people_of(untrained.config)
    hard = rng.normal(2, 1, 120)

    def losses(task: object, model: object, records: PoseRecords, *device: object) -> np.ndarray:
        inside = model if isinstance(model, np.ndarray) else np.r_[np.ones(60, bool), np.zeros(60, bool)]
        return np.exp(hard - 0.3 * inside + rng.normal(0, 0.05, 120))

    def shadow(config: RunConfig, private: PoseRecords, public: object) -> np.ndarray:
        next(calls)
        pool = {image.tobytes() for image in np.ascontiguousarray(private.images)}
        everyone = np.concatenate([people[0].images, people[1].images[:60]])
        return np.array([np.ascontiguousarray(image).tobytes() in pool for image in everyone])

    monkeypatch.setattr(membership, "losses", losses)
    monkeypatch.setattr(membership, "train_shadow", shadow)
    found = membership._likelihood_attack(untrained.config, untrained.model, people, 4, 0, lambda text: None)
    assert found["auc"]["low"] > 0.9 and next(calls) == 4
    assert auc(-np.log(losses(None, None, people[0]))[:60], -np.log(losses(None, None, people[0]))[60:]).value < 0.75


def test_shadows_train_by_the_same_recipe_and_spend_nothing(
    tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    # Under a budget, so with a bound: noise from a seed that is written down has none.
    config = replace(tiny_config("data.test=40", "budget=2.0", epsilon=0.8), insecure_seed=None)
    run = open_run(run_training(config, tmp_path / "run"))
    ledgers = {path: path.read_bytes() for path in fresh_home.rglob("*.jsonl")}
    trained: list[RunConfig] = []
    real = membership.train_shadow
    monkeypatch.setattr(membership, "train_shadow", lambda config, *a: trained.append(config) or real(config, *a))
    body = audit_model(run, shadows=2)
    assert [c.method for c in trained] == ["non-private", "dpsgd", "dpsgd", "non-private", "non-private"]
    noises = [config.insecure_seed, *(c.insecure_seed for c in trained[1:3])]
    assert len(set(noises)) == 3, "an attacker does not know the noise of the run"
    assert {path: path.read_bytes() for path in fresh_home.rglob("*.jsonl")} == ledgers
    assert body["results"][0]["model"].startswith("initial weights")
    assert body["results"][1]["attacks"].keys() == {"loss", "likelihood"}
    assert body["epsilon_claimed"] == 0.8 and body["not_for_release"] is None, "figures are nobody"


def test_what_views_and_labels_give_away_is_told_apart(untrained: TrainedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of a feature method may be found by what it never promised to hide: a model without the private images shows how much."""
    trained: list[str] = []
    monkeypatch.setattr(membership, "train_shadow", lambda config, *a: trained.append(config.method) or untrained.model)
    for method, expected in (("dpsgd", ["non-private"]), ("feature", ["non-private", "public-only"])):
        trained.clear()
        body = audit_model(replace(untrained, config=replace(untrained.config, method=method)), shadows=0)
        assert trained == expected and (body["views_alone"] is not None) == ("public-only" in expected)


def test_whoever_left_for_the_subspace_is_no_member(tiny_config: Build, fresh_home: Path) -> None:
    members, strangers, _ = people_of(tiny_config("subspace.source=private", method="projected"))
    everyone = load_datasets(tiny_config().data, (64, 48)).private
    gone = ~np.isin(everyone.ids, members.ids)
    # Sixteen span the subspace, and whoever is on a photograph with one of them left too.
    assert gone.sum() >= 16 and len(strangers) == 8
    assert not np.isin(members.image_ids, everyone.image_ids[gone]).any()


def test_what_cannot_be_compared_is_refused(remembered: TrainedRun) -> None:
    with pytest.raises(HalfmaskError, match="non-private"):
        audit_model(remembered, replace(remembered, config=replace(remembered.config, method="dpsgd")), shadows=0)
    other = replace(remembered.config, data=replace(remembered.config.data, private=21))
    with pytest.raises(HalfmaskError, match="same recipe"):
        audit_model(remembered, replace(remembered, config=other), shadows=0)
    with pytest.raises(HalfmaskError, match="1 shadow"):
        audit_model(remembered, shadows=1)


def test_real_people_are_marked(remembered: TrainedRun) -> None:
    config = replace(remembered.config, data=replace(remembered.config.data, name="clinic"))
    assert audit_model(replace(remembered, config=config), shadows=0)["not_for_release"] == NOT_FOR_RELEASE
