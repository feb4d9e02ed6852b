"""People planted in the training set are found where nothing hides them, and not where noise does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import halfmask.audit.planted as planted
from halfmask.audit.inversion import FirstLayerNetwork
from halfmask.audit.membership import people_of
from halfmask.audit.planted import audit_planted
from halfmask.audit.shadow import Shadow, trace_shadow
from halfmask.data.export import export_figures
from halfmask.data.pose_records import PoseRecords, mislabelled
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.mechanism import Mechanism
from halfmask.models.pose import build_model
from halfmask.privacy.account import Account
from halfmask.privacy.accounting import calibrate
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.noise import RandomStream, open_stream
from halfmask.tasks.pose import PoseTask, pose_loss
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.runs import TrainedRun, open_run

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
Build = Callable[..., RunConfig]
COUNT = 100


def opened(config: RunConfig, folder: Path) -> TrainedRun:
    """A run of this recipe; what it learnt is no matter here."""
    run = RunFolder.create(folder, config)
    run.save_model(build_model(config.model))
    return open_run(run.path)


def plant(config: RunConfig, count: int = COUNT) -> tuple[PoseRecords, PoseRecords, np.ndarray]:
    members, strangers, _ = people_of(config)
    records = mislabelled(strangers, members, np.random.default_rng(0).permutation(count))
    return members, records, np.random.default_rng(1).random(count) < 0.5


@pytest.fixture
def small(tiny_config: Build, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """A training of one step with everyone in it, by the real engine and mechanism: all that a record can leave behind, in a second.

    The network reads pixels: to a TinyViT with random weights all people are alike.
    """

    def one_step(config: RunConfig, people: PoseRecords, public: Any, absent: Any = None, paid: bool = False) -> Shadow:
        initial = FirstLayerNetwork(16, config.model.input_size)
        model = copy.deepcopy(initial)
        engine = ClippingEngine(model)
        present = np.setdiff1d(np.arange(len(people)), [] if absent is None else absent)
        private = config.method != "non-private"
        sigma = calibrate(config.epsilon, config.delta, 1.0, 1, Adjacency.ZERO_OUT) if private else 0.0
        clipped = engine.clipped_sum(pose_loss, people.batch(present), config.clip_norm)
        mechanism = Mechanism(sigma, config.clip_norm, len(people), open_stream("noise", config.insecure_seed))
        with torch.no_grad():
            for name, part in engine.unflatten(mechanism.release(clipped)).items():
                engine.parameters[name] -= 1e-3 * part
        return Shadow(initial, model, 1, 4 * sigma**2)

    monkeypatch.setattr(planted, "trace_shadow", one_step)
    return tiny_config("data.private=20", f"data.test={COUNT}", epsilon=0.8, delta=1e-5)


# ---- who is planted ------------------------------------------------------------------------------------------------------


def test_a_planted_person_has_anothers_joints_and_a_unit_alone(tiny_config: Build) -> None:
    config = tiny_config("data.test=30")
    members, strangers, _ = people_of(config)
    chosen = np.random.default_rng(0).permutation(30)
    records = mislabelled(strangers, members, chosen)
    assert (records.images == strangers.images[chosen]).all()
    assert (records.joints == strangers.joints[np.roll(chosen, -1)]).all()
    assert not (records.joints == strangers.joints[chosen]).all((1, 2)).any()
    everyone = members.joined(records)
    for unit in ("crop", "image", "subject"):
        ids = everyone.unit_ids(unit)
        assert len(np.unique(ids[len(members) :])) == 30 and not np.isin(ids[len(members) :], ids[: len(members)]).any()


@pytest.mark.parametrize("method", ["dpsgd", "feature"])
def test_whoever_is_out_keeps_their_view_and_adds_nothing(method: str, tiny_config: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config("data.test=20", method=method)
    members, records, _ = plant(config, 20)
    out = len(members) + np.arange(0, 20, 2)
    trainers: list[Trainer] = []
    real = Trainer.train
    monkeypatch.setattr(Trainer, "train", lambda self: trainers.append(self) or real(self))
    shadow = trace_shadow(config, members.joined(records), None, absent=out)
    setup = trainers[0].setup
    assert len(setup.units) == len(setup.private) == 60 and shadow.steps == 3, "they are counted and drawn as ever"
    assert sorted(np.concatenate(setup.units.members).tolist()) == [i for i in range(60) if i not in set(out.tolist())]
    if method == "feature":
        assert setup.private.views is not None and len(setup.private.views) == trainers[0].exact.samplers["view"].records == 60


def test_the_model_does_not_depend_on_whoever_is_out(tiny_config: Build) -> None:
    config = tiny_config("data.test=20")
    members, records, _ = plant(config, 20)
    others = records.changed(joints=records.joints[::-1].copy(), key="others")
    everyone = np.arange(len(members), len(members) + 20)

    def weights(people: PoseRecords, absent: np.ndarray) -> torch.Tensor:
        return torch.cat([p.flatten() for p in trace_shadow(config, members.joined(people), None, absent).model.parameters()])

    assert torch.equal(weights(records, everyone), weights(others, everyone))
    assert not torch.equal(weights(records, everyone[10:]), weights(others, everyone[10:])), "those who are in are read"


# ---- what is found -------------------------------------------------------------------------------------------------------


def test_they_are_found_without_noise_and_not_with_it(small: RunConfig, tmp_path: Path) -> None:
    body, picture = audit_planted(opened(small, tmp_path / "run"), COUNT)
    private, plain = body["results"]
    assert plain["model"] == "non-private" and plain["attacks"]["weights"]["auc"]["low"] > 0.9
    assert plain["lower_bound"] > 0.8, "an attack on the private model that fails means something only if this one works"
    assert private["model"] == "dpsgd" and private["lower_bound"] <= 0.8 and body["passed"]
    assert body["planted"] == COUNT and body["guesses"] == COUNT // 2 and 0 < body["present"] < COUNT
    assert body["not_for_release"] is None and picture is not None and picture.ndim == 3


def test_a_recipe_without_its_noise_is_refuted(small: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RandomStream.gaussian
    monkeypatch.setattr(RandomStream, "gaussian", lambda self, *a: 0 * real(self, *a))
    body, _ = audit_planted(opened(small, tmp_path / "run"), COUNT)
    assert not body["passed"] and body["results"][0]["lower_bound"] > 0.8


def test_bounds_hold_for_scores_that_know_nothing(small: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance guesses prove something in at most one audit of twenty."""
    _, records, _ = plant(small)
    rng = np.random.default_rng(0)
    monkeypatch.setattr(planted, "scores", lambda task, shadow, people: {name: rng.random(COUNT) for name in planted.ATTACKS})
    shadow: Any = Shadow(None, None, 1)  # type: ignore[arg-type]
    bounds = [
        planted._result(PoseTask(small), "dpsgd", 0.8, shadow, records, rng.random(COUNT) < 0.5, 1e-5, 0)["lower_bound"] for _ in range(100)
    ]
    assert sum(bound > 0 for bound in bounds) <= 10 and max(bounds) <= 0.8


def test_it_repeats_and_its_noise_is_not_the_runs(tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = opened(tiny_config("data.test=40"), tmp_path / "run")
    configs: list[RunConfig] = []
    real = planted.trace_shadow
    monkeypatch.setattr(planted, "trace_shadow", lambda config, *a, **k: configs.append(config) or real(config, *a, **k))
    assert audit_planted(run, 40)[0] == audit_planted(run, 40)[0]
    assert configs[0].insecure_seed not in (None, run.config.insecure_seed)


# ---- what it costs -------------------------------------------------------------------------------------------------------


def test_too_few_are_refused(small: RunConfig, tmp_path: Path) -> None:
    run = opened(small, tmp_path / "run")
    with pytest.raises(HalfmaskError, match="at least 40"):
        audit_planted(run, 39)
    with pytest.raises(HalfmaskError, match=f"at most {COUNT}"):
        audit_planted(run, COUNT + 1)


def test_real_people_cost_their_budget(tiny_config: Build, tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export_figures(tmp_path / "clinic", {"private": 20, "public": 20, "test": 40}, seed=1)
    config = tiny_config(f"data.name={tmp_path / 'clinic'}", epsilon=0.8)
    run = opened(config, tmp_path / "run")
    with pytest.raises(HalfmaskError, match=r"another ε = 0\.8 of"):
        audit_planted(run, 40)
    with pytest.raises(HalfmaskError, match="no budget covers"):
        audit_planted(replace(run, config=replace(config, method="non-private")), 40, spend=True)
    assert not list(fresh_home.rglob("ledgers/*.jsonl"))
    accounts: list[Account] = []
    real = Account.pay
    monkeypatch.setattr(Account, "pay", lambda self, spend: accounts.append(self) or real(self, spend))
    body, picture = audit_planted(run, 40, spend=True)
    assert picture is None and body["not_for_release"] and [r["model"] for r in body["results"]] == ["dpsgd"]
    (ledger,) = fresh_home.rglob("ledgers/*.jsonl")
    spends = accounts[0].spends()
    assert spends and ledger.read_text() and all(s.noise_source != "none" and "seed" not in s.noise_source for s in spends)
