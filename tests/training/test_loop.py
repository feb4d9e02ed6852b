"""One loop for all methods: what it pays, what it reads, what it writes, and what it must never let out."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import halfmask.training.loop as loop
import halfmask.training.setup as preparation
from halfmask.data.records import Datasets
from halfmask.data.prints import fingerprints_of
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import METHODS
from halfmask.privacy.accounting import calibrate
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.ledger import Ledger
from halfmask.privacy.noise import RandomStream
from halfmask.privacy.sampling import PoissonSampler
from halfmask.tasks.pose import pose_loss
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.running import run_training
from halfmask.training.outputs import LOGGABLE, RunFolder
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
Build = Callable[..., RunConfig]
ALLOWED = {
    "config.yaml",
    "metrics.json",
    "log.jsonl",
    "certificate.json",
    "certificate.md",
    "model.safetensors",
    "checkpoint/state.pt",
}
NOBODY = np.zeros(0, np.int64)
NOISED = [name for name, method in METHODS.items() if method.private == "noised"]


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def log_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def ledger_in(home: Path) -> Ledger:
    """The one ledger of a home that has seen one dataset."""
    names = {path.stem for path in (home / "ledgers").glob("*.jsonl")}
    assert len(names) <= 1
    return Ledger(names.pop() if names else "nothing was spent")


def ledger_blocks(patch: pytest.MonkeyPatch, steps: int) -> None:
    """Let runs write this many steps ahead at once, however short they are."""
    patch.setattr(loop, "_LEDGER_SHARE", 1.0)
    patch.setattr(loop, "_LEDGER_BLOCK", steps)


def secure(config: RunConfig) -> RunConfig:
    """With coins and noise that nobody can repeat: those of a seed have no bound, and the ledger says so."""
    return replace(config, insecure_seed=None)


def trainer_for(config: RunConfig, folder: Path, kind: type[Trainer] = Trainer) -> Trainer:
    return kind(prepare(config, Progress()), RunFolder.create(folder, config), Progress())


# ---- whole runs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs(method: str, tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    config = secure(tiny_config(method=method))
    folder = run_training(config, tmp_path / "run")
    assert files(folder).keys() == ALLOWED
    assert (folder / "config.yaml").read_text() == config.to_yaml()
    certificate = json.loads((folder / "certificate.json").read_text())
    spends = ledger_in(fresh_home).spends()
    assert certificate["steps"] == certificate["planned_steps"] == 2 and certificate["expected_batch"] == 8
    if method == "non-private":
        assert set(certificate["epsilon"].values()) == {"infinity"} and certificate["ledger_total"] == "infinity"
        assert certificate["unaccounted_reads"] and sum(spend.steps for spend in spends) == 2
    elif method == "public-only":
        assert set(certificate["epsilon"].values()) == {0.0} and certificate["ledger_total"] == 0.0
        assert spends == [] and not certificate["unaccounted_reads"]
    else:
        assert 0 < certificate["epsilon"]["zero-out"] <= config.epsilon
        assert certificate["epsilon"]["replace-one"] > certificate["epsilon"]["zero-out"]
        assert ("add-remove" in certificate["epsilon"]) == (method in ("dpsgd", "projected"))
        assert certificate["ledger_total"] == pytest.approx(certificate["epsilon"]["zero-out"], rel=1e-3)
        assert "operating system" in certificate["noise_source"]
        assert sum(spend.steps for spend in spends) == 2 and {spend.sampling_rate for spend in spends} == {0.2}
    trained = load_file(folder / "model.safetensors")
    assert trained.keys() == preparation.build_model(config.model).state_dict().keys()
    assert all(torch.isfinite(tensor).all() for tensor in trained.values())


@pytest.mark.parametrize("method", METHODS)
def test_the_log_carries_public_fields_only(method: str, tiny_config: Build, tmp_path: Path) -> None:
    lines = log_lines(run_training(tiny_config(method=method), tmp_path / "run"))
    assert {line["event"] for line in lines} >= {"start", "epoch", "end"}
    assert all(line.keys() <= LOGGABLE for line in lines)
    assert any(line["event"] == "subspace" for line in lines) == METHODS[method].projected


@pytest.mark.parametrize("strategy", ["top", "finetune", "full", "scratch"])
def test_only_what_a_strategy_trains_changes(strategy: str, tiny_config: Build, tmp_path: Path) -> None:
    config = tiny_config(strategy=strategy)
    trainer = trainer_for(config, tmp_path / "run")
    before = {name: tensor.clone() for name, tensor in trainer.setup.model.state_dict().items()}
    trainer.train()
    changed = {name for name, t in trainer.setup.model.state_dict().items() if not torch.equal(t, before[name])}
    assert changed == set(trainer.engine.parameters), "frozen weights and statistics stay; noise moves all the others"


def test_the_same_seeds_give_the_same_bytes(tiny_config: Build, tmp_path: Path) -> None:
    runs = {
        name: run_training(tiny_config(method="feature-projective", **seeds), tmp_path / name)
        for name, seeds in {
            "a": {},
            "again": {},
            "other noise": {"insecure_seed": 2},
            "other seed": {"seed": 1},
        }.items()
    }
    bytes_of = {name: (folder / "model.safetensors").read_bytes() for name, folder in runs.items()}
    assert bytes_of["a"] == bytes_of["again"]
    assert len(set(bytes_of.values())) == 3


def test_without_a_seed_no_two_runs_are_alike(tiny_config: Build, tmp_path: Path) -> None:
    config = secure(tiny_config())
    first, second = (run_training(config, tmp_path / name) for name in "ab")
    assert (first / "model.safetensors").read_bytes() != (second / "model.safetensors").read_bytes()
    page = (first / "certificate.json").read_text()
    assert "insecure" not in json.loads(page)["noise_source"] and "operating system" in page


def test_runs_on_one_dataset_add_up(tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    totals = []
    for name in ("a", "b"):
        folder = run_training(secure(tiny_config()), tmp_path / name)
        totals.append(json.loads((folder / "certificate.json").read_text())["ledger_total"])
    assert totals[0] < totals[1] < 2 * totals[0]


# ---- a step --------------------------------------------------------------------------------------------------------------


def update_of(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    seen: list[Tensor] = []
    monkeypatch.setattr(trainer, "_apply", lambda update, move=None: seen.append(update))
    if trainer.setup.method.projected and trainer.noised.subspace is None:
        trainer.refresh()
    trainer.take_step()
    return seen[0]


def draws(monkeypatch: pytest.MonkeyPatch, trainer: Trainer, units: list[int]) -> None:
    monkeypatch.setattr(trainer.noised.poisson, "draw", lambda: torch.tensor(units, dtype=torch.long))


def empty_steps_are_noise(kind: type[Trainer], config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """p ≈ 10⁵ coordinates: the spread is right to 2 %."""
    trainer = trainer_for(config, folder, kind)
    draws(monkeypatch, trainer, [])
    update = update_of(trainer, monkeypatch)
    expected = trainer.setup.noise_multiplier * config.clip_norm / 8
    dimensions = trainer.noised.subspace.dimension if trainer.noised.subspace is not None else len(update)
    energy = float(update.double().square().sum()) / dimensions
    wide = 0.02 if trainer.noised.subspace is None else 0.95
    return abs(energy**0.5 / expected - 1) < wide


class SkipsEmptyBatches(Trainer):
    def take_step(self) -> None:
        if not len(self.noised.poisson.draw()):
            self._apply(torch.zeros(self.engine.size))
            return
        super().take_step()


class DividesByTheRealisedBatch(Trainer):
    def take_step(self) -> None:
        realised = max(1, len(self.noised.poisson.draw()))
        self.noised.mechanism = replace(self.noised.mechanism, expected_batch=realised)
        super().take_step()


class TakesNoNoise(Trainer):
    def take_step(self) -> None:
        self.noised.mechanism = replace(self.noised.mechanism, noise_multiplier=0.0)
        super().take_step()


@pytest.mark.parametrize("method", ["dpsgd", "projected"])
def test_an_empty_batch_is_a_step_of_noise(method: str, tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert empty_steps_are_noise(Trainer, tiny_config(method=method), tmp_path / "run", monkeypatch)


@pytest.mark.parametrize("fault", [SkipsEmptyBatches, DividesByTheRealisedBatch, TakesNoNoise])
def test_the_check_of_empty_steps_sees_planted_faults(
    fault: type[Trainer], tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not empty_steps_are_noise(fault, tiny_config(), tmp_path / "run", monkeypatch)


def a_unit_moves_a_step_by_its_share(kind: type[Trainer], config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Two steps with equal noise, with and without one unit, differ by at most C/B̄; and by something."""
    updates = []
    for number, units in enumerate(([0, 1, 2], [0, 2])):
        trainer = trainer_for(config, folder / str(number), kind)
        draws(monkeypatch, trainer, units)
        updates.append(update_of(trainer, monkeypatch).double())
    moved = float((updates[0] - updates[1]).norm())
    return 0 < moved <= config.clip_norm / config.batch * (1 + 1e-4)


class DoesNotClip(Trainer):
    def take_step(self) -> None:
        real = self.engine.clipped_sum
        clip_norm = self.noised.mechanism.clip_norm
        self.engine.clipped_sum = lambda *a: replace(real(*a[:2], 1e9, *a[3:]), clip_norm=clip_norm)  # type: ignore[method-assign]
        super().take_step()


class ClipsRecordsApart(Trainer):
    def take_step(self) -> None:
        real = self.engine.clipped_sum
        self.engine.clipped_sum = lambda loss, batch, clip, units, chunk: real(  # type: ignore[method-assign]
            loss, batch | {"weight": torch.ones(len(units))}, clip, None, chunk
        )
        super().take_step()


@pytest.mark.parametrize("unit", ["crop", "image", "subject"])
@pytest.mark.parametrize("method", NOISED)
def test_a_unit_moves_a_step_by_no_more_than_its_share(
    unit: str, method: str, tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config("clip_norm=0.01", unit=unit, method=method, batch=4)
    assert a_unit_moves_a_step_by_its_share(Trainer, config, tmp_path, monkeypatch)


@pytest.mark.parametrize("fault", [DoesNotClip, DividesByTheRealisedBatch, ClipsRecordsApart])
def test_the_check_of_shares_sees_planted_faults(
    fault: type[Trainer], tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config("clip_norm=0.01", unit="subject", batch=4)
    assert not a_unit_moves_a_step_by_its_share(fault, config, tmp_path, monkeypatch)


@pytest.mark.parametrize("unit", ["crop", "image", "subject"])
def test_coins_are_tossed_for_units(unit: str, tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_for(tiny_config(unit=unit, batch=4), tmp_path / "run")
    private = trainer.setup.private
    units = np.unique(private.unit_ids(unit))
    assert trainer.noised.poisson.units == len(units) == len(trainer.setup.units)
    assert trainer.noised.poisson.expected_batch == pytest.approx(4) == trainer.noised.mechanism.expected_batch
    seen: list[Any] = []
    real = trainer.engine.clipped_sum
    monkeypatch.setattr(trainer.engine, "clipped_sum", lambda *a: seen.append(a) or real(*a))
    draws(monkeypatch, trainer, [1, 3])
    trainer.take_step()
    _, batch, clip_norm, unit_index, _ = seen[0]
    members = [trainer.setup.units.members[i] for i in (1, 3)]
    assert clip_norm == trainer.setup.config.clip_norm == trainer.noised.mechanism.clip_norm
    assert unit_index.tolist() == [1] * len(members[0]) + [3] * len(members[1])
    assert torch.equal(batch["joints"], torch.from_numpy(private.joints[np.concatenate(members)]))
    for group in members:
        assert len(set(private.unit_ids(unit)[group].tolist())) == 1


def test_the_public_half_is_exact_and_weighed(tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    updates = []
    for weight in (0.0, 1.0, 3.0):
        trainer = trainer_for(tiny_config(f"public.weight={weight}", method="feature"), tmp_path / str(weight))
        updates.append(update_of(trainer, monkeypatch))
    again = trainer_for(tiny_config(method="feature"), tmp_path / "again")
    gradient, _ = again.engine.mean_gradient(pose_loss, again._public_records(NOBODY))
    assert torch.allclose(updates[1] - updates[0], gradient, atol=1e-6)
    assert torch.allclose(updates[2] - updates[0], 3 * gradient, atol=1e-5)


def test_a_loss_that_couples_people_is_refused_before_anything_is_spent(
    tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    def coupled(model: Any, batch: dict[str, Tensor]) -> Tensor:
        return pose_loss(model, batch) * batch["labelled"].sum()

    monkeypatch.setattr(loop, "pose_loss", coupled)
    config = tiny_config()
    trainer = trainer_for(config, tmp_path / "run")
    monkeypatch.setattr(trainer.noised.poisson, "draw", lambda: pytest.fail("a private batch was drawn"))
    with pytest.raises(HalfmaskError, match="coupled"):
        trainer.train()
    assert trainer.setup.account.ledger.spends() == []


# ---- public batches ------------------------------------------------------------------------------------------------------


def public_batches_are_independent(trainer: Trainer) -> bool:
    """N=40, B̄=8, 2000 steps: 3200 shared people expected, standard deviation 51; ±4.9 of them."""
    shared = sum(int(torch.isin(trainer.noised.poisson.draw(), trainer.view_sampler.draw()).sum()) for _ in range(2000))
    return abs(shared - 3200) < 248


def test_public_batches_are_independent_of_private_coins(tiny_config: Build, tmp_path: Path) -> None:
    for number, seeds in enumerate(({}, {"seed": 7, "insecure_seed": 7}, {"seed": 6, "insecure_seed": 7})):
        trainer = trainer_for(tiny_config("public.raw_share=0", method="feature", **seeds), tmp_path / str(number))
        assert public_batches_are_independent(trainer)


def test_the_check_sees_shared_coins(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(tiny_config(method="feature"), tmp_path / "run")
    trainer.view_sampler = PoissonSampler(40, 0.2, RandomStream.seeded("coins", 1))  # type: ignore[assignment]
    assert not public_batches_are_independent(trainer)


def test_public_batches_do_not_move_with_the_private_coins(tiny_config: Build, tmp_path: Path) -> None:
    batches = []
    for insecure_seed in (1, 2):
        trainer = trainer_for(tiny_config(method="feature", insecure_seed=insecure_seed), tmp_path / str(insecure_seed))
        trainer.train()
        batches.append(trainer.view_sampler.draw().tolist())
    assert batches[0] == batches[1]


def test_streams_for_coins_and_noise_are_apart(tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    real = loop.open_stream
    monkeypatch.setattr(loop, "open_stream", lambda *a: opened.append(a) or real(*a))
    trainer_for(tiny_config(), tmp_path / "run")
    assert opened == [("coins", 1, 0), ("noise", 1, 0)]


@pytest.mark.parametrize(("share", "views", "raw"), [(0.0, 8, 0), (0.5, 4, 4), (1.0, 0, 8)])
def test_public_batches_hold_views_and_raw_people_in_the_declared_share(
    share: float, views: int, raw: int, tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(f"public.raw_share={share}", method="public-only", strategy="full")
    trainer = trainer_for(config, tmp_path / "run")
    batch = trainer._public_records(NOBODY)["image"].numpy()
    setup = trainer.setup
    assert setup.private.views is not None and setup.raw_public is not None
    known = {np.array(v).tobytes(): "view" for v in setup.private.views}
    known |= {np.array(i).tobytes(): "raw" for i in setup.raw_public.images}
    kinds = [known[np.ascontiguousarray(image).tobytes()] for image in batch]
    assert (kinds.count("view"), kinds.count("raw")) == (views, raw)


def test_a_shared_batch_is_accounted_as_visible(tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    """The published mistake can be repeated, at its true price: more noise, and views of the very people in the batch."""
    apart = prepare(tiny_config(method="feature"), Progress())
    trainer = trainer_for(tiny_config("public.shared_batch=true", method="feature", strategy="full"), tmp_path / "run")
    setup = trainer.setup
    assert setup.plan is not None and setup.plan.visible_batches and not apart.plan.visible_batches  # type: ignore[union-attr]
    assert setup.noise_multiplier > 1.2 * apart.noise_multiplier
    batch = trainer._public_records(np.array([3, 5]))
    assert batch is not None and setup.private.views is not None
    assert np.array_equal(batch["image"].numpy(), setup.private.views[[3, 5]])
    assert trainer._public_records(NOBODY) is None
    trainer.train()
    assert {spend.visible_batches for spend in trainer.setup.account.ledger.spends()} == {True}


# ---- reads outside the mechanism -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["unsafe_diagnostics=true", "declared_reads=[chose the clip norm on private people]"])
def test_an_open_read_voids_the_promise(setting: str, tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    folder = run_training(secure(tiny_config(setting)), tmp_path / "run")
    certificate = json.loads((folder / "certificate.json").read_text())
    assert set(certificate["epsilon"].values()) == {"infinity"} == {certificate["ledger_total"]}
    assert len(certificate["unaccounted_reads"]) == 1
    assert ledger_in(fresh_home).total(1e-3, Adjacency.ZERO_OUT) == math.inf
    unsafe = set(files(folder)) - ALLOWED
    assert unsafe == ({"unsafe_diagnostics.jsonl"} if setting.startswith("unsafe") else set())
    assert all(line.keys() <= LOGGABLE for line in log_lines(folder))


@pytest.mark.parametrize("part", ["mechanism", "poisson", "engine"])
def test_a_part_of_unknown_make_voids_the_promise(part: str, tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    trainer = trainer_for(secure(tiny_config()), tmp_path / "run")
    assert trainer.certificate().guarantee == 0
    own = getattr(trainer, part)
    other = object.__new__(type("Other", (type(own),), {}))
    other.__dict__.update(own.__dict__)
    setattr(trainer, part, other)
    assert trainer.certificate().guarantee == math.inf


def test_a_budget_is_refused_before_the_first_step(
    tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    run_training(secure(tiny_config("budget=2.0")), tmp_path / "first")
    trainer = trainer_for(secure(tiny_config(epsilon=1.9)), tmp_path / "second")
    monkeypatch.setattr(trainer.noised.poisson, "draw", lambda: pytest.fail("a private batch was drawn"))
    before = trainer.setup.account.ledger.spends()
    with pytest.raises(HalfmaskError, match="budget"):
        trainer.train()
    assert trainer.setup.account.ledger.spends() == before


# ---- the ledger ----------------------------------------------------------------------------------------------------------


def the_ledger_is_ahead(kind: type[Trainer], config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> bool:
    """Whenever a batch or noise is drawn, the ledger has already been charged for this step."""
    ledger_blocks(monkeypatch, block)
    trainer = trainer_for(config, folder, kind)
    ahead: list[bool] = []

    def charged() -> None:
        own = [spend for spend in trainer.setup.account.ledger.spends() if spend.run == trainer.standing.run]
        ahead.append(sum(spend.steps for spend in own) >= trainer.standing.step + 1)

    draw, release = trainer.noised.poisson.draw, trainer.noised.mechanism.release
    monkeypatch.setattr(trainer.noised.poisson, "draw", lambda: charged() or draw())
    object.__setattr__(trainer.noised.mechanism, "release", lambda *a: charged() or release(*a))
    trainer.train()
    return len(ahead) == 2 * trainer.setup.steps and all(ahead)


class PaysLate(Trainer):
    owed = 0

    def _pay_ahead(self, steps: int) -> None:
        self.owed = steps

    def take_step(self) -> None:
        super().take_step()
        if self.owed:
            super()._pay_ahead(self.owed)
            self.owed = 0


class PaysForTheFirstBlockOnly(Trainer):
    def _pay_ahead(self, steps: int) -> None:
        if not self.standing.paid:
            super()._pay_ahead(steps)


@pytest.mark.parametrize("block", [1, 2, 50])
@pytest.mark.parametrize("method", ["dpsgd", "feature-projective"])
def test_the_ledger_is_written_before_each_step(
    method: str,
    block: int,
    tiny_config: Build,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fresh_home: Path,
) -> None:
    config = tiny_config(method=method, epochs=1)
    assert the_ledger_is_ahead(Trainer, config, tmp_path / "run", monkeypatch, block)


@pytest.mark.parametrize("fault", [PaysLate, PaysForTheFirstBlockOnly])
def test_the_check_of_the_ledger_sees_planted_faults(
    fault: type[Trainer],
    tiny_config: Build,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fresh_home: Path,
) -> None:
    assert not the_ledger_is_ahead(fault, tiny_config(epochs=1), tmp_path / "run", monkeypatch, 2)


def test_a_step_that_fails_has_been_paid_for(tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path) -> None:
    trainer = trainer_for(secure(tiny_config()), tmp_path / "run")
    monkeypatch.setattr(trainer.noised.poisson, "draw", lambda: (_ for _ in ()).throw(RuntimeError("power cut")))
    with pytest.raises(RuntimeError, match="power cut"):
        trainer.train()
    (spend,) = trainer.setup.account.ledger.spends()
    assert spend.first_step == 0 and spend.steps >= 1 and (spend.units, spend.clip_norm) == (40, 0.1)
    assert spend.noise_multiplier == trainer.setup.noise_multiplier == trainer.noised.mechanism.noise_multiplier
    assert 0 < trainer.setup.account.ledger.total(1e-3, Adjacency.ZERO_OUT) < math.inf


@pytest.mark.parametrize("unit", ["subject", "image"])
@pytest.mark.parametrize("method", ["dpsgd", "feature-projective"])
def test_the_ledger_is_told_of_units_not_of_records(
    unit: str, method: str, tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    """Units have several records each: a rate of batch / records would be too small, and so would be ε."""
    config = tiny_config(unit=unit, method=method, batch=3)
    private = prepare(config, Progress()).data.private
    units = len(set((private.subjects if unit == "subject" else private.image_ids).tolist()))  # type: ignore[union-attr]
    assert 3 < units < len(private)
    steps = math.ceil(config.epochs * units / 3)
    sigma = calibrate(config.epsilon, config.delta, 3 / units, steps, Adjacency.ZERO_OUT, config.accountant)
    run_training(config, tmp_path / "run")
    spends = ledger_in(fresh_home).spends()
    assert sum(spend.steps for spend in spends) == steps
    for spend in spends:
        assert (spend.unit, spend.units, spend.expected_batch) == (unit, units, pytest.approx(3))
        assert spend.sampling_rate == pytest.approx(3 / units, rel=1e-12)
        assert spend.noise_multiplier == pytest.approx(sigma, rel=1e-12)
    certificate = json.loads((tmp_path / "run/certificate.json").read_text())
    assert certificate["sampling_rate"] == pytest.approx(3 / units, rel=1e-12)
    assert certificate["noise_multiplier"] == pytest.approx(sigma, rel=1e-12)


def test_a_broken_ledger_stops_a_run_before_it_spends(
    tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    run_training(tiny_config(), tmp_path / "first")
    path = ledger_in(fresh_home).path
    path.write_text(path.read_text().replace('"units": 40', '"units": 4000'))
    monkeypatch.setattr(PoissonSampler, "draw", lambda self: pytest.fail("a private batch was drawn"))
    with pytest.raises(HalfmaskError, match="changed or cut"):
        run_training(tiny_config(), tmp_path / "second")


# ---- stopping and going on -----------------------------------------------------------------------------------------------


class StopsAt(Progress):
    def __init__(self, step: int):
        self.at = step

    def step(self, step: int, total: int, public_loss: float | None, epsilon: float | None) -> None:
        if step == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("block", [1, 2, 50])
@pytest.mark.parametrize("method", ["feature-projective", "public-only"])
def test_an_interrupted_run_is_complete_and_goes_on(
    method: str,
    block: int,
    tiny_config: Build,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fresh_home: Path,
) -> None:
    ledger_blocks(monkeypatch, block)
    opened = []
    real = loop.open_stream
    monkeypatch.setattr(loop, "open_stream", lambda *a: opened.append(a) or real(*a))
    config = tiny_config(method=method, epochs=1)
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_training(config, folder, StopsAt(3))
    assert files(folder).keys() == ALLOWED
    certificate = json.loads((folder / "certificate.json").read_text())
    paid = {1: 3, 2: 4, 50: 5}[block] if method != "public-only" else 3
    assert certificate["steps"] == paid and certificate["planned_steps"] == 5
    assert torch.load(folder / "checkpoint" / "state.pt", weights_only=True)["step"] == 3
    assert log_lines(folder)[-1] == {"event": "end", "step": 3, "interrupted": True}
    before = (folder / "model.safetensors").read_bytes()

    run_training(config, folder, resume=True)
    assert files(folder).keys() == ALLOWED
    certificate = json.loads((folder / "certificate.json").read_text())
    spends = ledger_in(fresh_home).spends()
    assert sum(spend.steps for spend in spends) == (5 if method != "public-only" else 0) and len({s.run for s in spends}) <= 1
    assert certificate["steps"] == 5
    if method != "public-only":
        assert set(certificate["epsilon"].values()) == {"infinity"}, "a seed's noise can be subtracted"
        covered = sorted(step for s in spends for step in range(s.first_step, s.last_step + 1))
        assert covered == list(range(5)), "each step paid for once"
        assert opened[-2:] == [("coins", 1, paid), ("noise", 1, paid)], "noise that was released is never replayed"
    assert ((folder / "model.safetensors").read_bytes() == before) == (block == 50 and method != "public-only")
    assert log_lines(folder)[-1]["interrupted"] is False


def test_a_resumed_public_run_ends_where_an_unbroken_one_does(tiny_config: Build, tmp_path: Path) -> None:
    config = tiny_config(method="public-only", epochs=1)
    whole = run_training(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_training(config, tmp_path / "broken", StopsAt(2))
    run_training(config, tmp_path / "broken", resume=True)
    assert (tmp_path / "broken/model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_crash_is_paid_for_out_of_the_same_budget(
    tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    """Steps taken after the last checkpoint are lost but spent: going on takes fewer, never more."""
    ledger_blocks(monkeypatch, 1)
    config = tiny_config(epochs=2)
    folder = tmp_path / "run"

    class Crashes(StopsAt):
        def step(self, step: int, total: int, public_loss: float | None, epsilon: float | None) -> None:
            if step == self.at:
                raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        run_training(config, folder, Crashes(8))
    assert torch.load(folder / "checkpoint" / "state.pt", weights_only=True)["step"] == 5
    run_training(config, folder, resume=True)
    certificate = json.loads((folder / "certificate.json").read_text())
    assert sum(spend.steps for spend in ledger_in(fresh_home).spends()) == 10 == certificate["steps"]
    assert torch.load(folder / "checkpoint" / "state.pt", weights_only=True)["step"] == 7


def test_resuming_with_other_settings_is_refused(tiny_config: Build, tmp_path: Path) -> None:
    run_training(tiny_config(), tmp_path / "run")
    with pytest.raises(HalfmaskError, match="other settings"):
        run_training(tiny_config(epsilon=3.0), tmp_path / "run", resume=True)
    with pytest.raises(HalfmaskError, match="already holds a run"):
        run_training(tiny_config(), tmp_path / "run")


def test_resuming_nothing_is_refused(tiny_config: Build, tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError):
        run_training(tiny_config(), tmp_path / "absent", resume=True)


# ---- what leaves the building --------------------------------------------------------------------------------------------


def outputs(config: RunConfig, folder: Path, kind: type[Trainer], blacken: Callable[[np.ndarray], np.ndarray] | None) -> dict[str, bytes]:
    """Every file of a run, the private images replaced, all that is public kept; fingerprints (keyed hashes) blanked."""
    with pytest.MonkeyPatch.context() as patch:
        load, show = preparation.load_datasets, preparation.with_view
        originals: dict[str, Any] = {}

        def sentinel(*arguments: Any) -> Datasets:
            data = load(*arguments)
            originals["private"] = data.private
            if blacken is not None:
                private = replace(data.private, images=blacken(np.array(data.private.images)), key="sentinel")
                data = replace(data, private=private, fingerprints=fingerprints_of(private))
            return data

        patch.setenv("HALFMASK_HOME", str(folder.parent / f"home of {folder.name}"))
        patch.setattr(preparation, "load_datasets", sentinel)
        patch.setattr(
            preparation,
            "with_view",
            lambda records, view: replace(records, views=show(originals["private"], view).views),
        )
        patch.setattr(loop, "Trainer", kind)
        patch.setattr(loop.secrets, "token_hex", lambda count: "ab" * count)
        run_training(config, folder)
    certificate = json.loads((folder / "certificate.json").read_text())
    # Keyed by the home; the date; and the digest of what noise covers.
    ledger, released = certificate["ledger_hash"], certificate["weights_sha256"] if config.method != "public-only" else ""
    blanks = [certificate["dataset_fingerprint"], ledger, ledger[:16], certificate["date"], released, str(folder.name)]
    found = files(folder)
    state = torch.load(folder / "checkpoint" / "state.pt", weights_only=True)
    state["plan"]["dataset"] = state["plan"]["set of annotations"] = "-"
    whole = io.BytesIO()
    torch.save(state, whole)
    found["checkpoint/state.pt"] = whole.getvalue()
    for blank in filter(None, blanks):
        found = {name: body.replace(blank.encode(), b"-") for name, body in found.items()}
    return found


def one_person_black(images: np.ndarray) -> np.ndarray:
    images[3] = 0
    return images


PARTLY = {"model.safetensors", "checkpoint/state.pt", "metrics.json", "log.jsonl"}


def nothing_private_leaves(config: RunConfig, folder: Path, kind: type[Trainer] = Trainer) -> bool:
    """Files that no mechanism stands before do not change with the private images; public-only changes nothing at all."""
    first = outputs(config, folder / "as it is", kind, None)
    second = outputs(config, folder / "black", kind, np.zeros_like if config.method == "public-only" else one_person_black)
    free = set() if config.method == "public-only" else PARTLY
    if first.keys() != second.keys() or any(first[name] != second[name] for name in first.keys() - free):
        return False
    for one, other in zip(log_lines(folder / "as it is"), log_lines(folder / "black"), strict=True):
        noised = {"public_loss"} | ({"spectrum", "eigengap", "captured_energy"} if one.get("step") else set())
        if one.keys() != other.keys() or any(one[name] != other[name] for name in one.keys() - (noised if free else set())):
            return False
    return True


class LooksAtPrivateImages(Trainer):
    def _public_records(self, private_batch: np.ndarray) -> dict[str, Tensor]:
        return self.setup.private.batch(self.view_sampler.draw(), "image")


class LogsThePrivateLoss(Trainer):
    def _end_epoch(self) -> None:
        records = self.setup.private.batch(np.arange(4))
        with torch.no_grad():
            loss = float(pose_loss(self.setup.model, records).mean())
        self.folder.log("epoch", step=self.standing.step, learning_rate=loss)
        super()._end_epoch()


class CertifiesTheLoss(Trainer):
    def certificate(self, weights_sha256: str = "") -> Any:
        records = self.setup.private.batch(np.arange(4))
        with torch.no_grad():
            return replace(super().certificate(weights_sha256), clip_norm=float(pose_loss(self.setup.model, records).mean()))


class WritesAnotherFile(Trainer):
    def train(self) -> None:
        super().train()
        np.save(self.folder.path / "features.npy", np.array(self.setup.private.images))


@pytest.mark.parametrize("method", ["public-only", "dpsgd", "feature-projective"])
@pytest.mark.parametrize("strategy", ["top", "full"])
def test_nothing_private_leaves(method: str, strategy: str, tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    """With group norm, so that an untrained network already tells images apart."""
    config = tiny_config("model.norm=group", method=method, strategy=strategy)
    assert nothing_private_leaves(config, tmp_path)


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("public-only", LooksAtPrivateImages),
        ("public-only", LogsThePrivateLoss),
        ("dpsgd", LogsThePrivateLoss),
        ("dpsgd", CertifiesTheLoss),
        ("dpsgd", WritesAnotherFile),
    ],
)
def test_the_sentinel_sees_planted_leaks(method: str, fault: type[Trainer], tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    config = tiny_config("model.norm=group", method=method, strategy="full")
    assert not nothing_private_leaves(config, tmp_path, fault)


def test_the_public_loss_is_that_of_watched_public_people(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(tiny_config(), tmp_path / "run")
    trainer.train()
    watched = trainer.setup.watched
    assert watched is not None
    with torch.no_grad():
        expected = float(pose_loss(trainer.setup.model, watched.batch(np.arange(len(watched)))).mean())
    (line,) = [line for line in log_lines(tmp_path / "run") if line["event"] == "epoch"]
    assert line["public_loss"] == pytest.approx(expected, rel=1e-5)


def test_progress_is_told_public_things_only(tiny_config: Build, tmp_path: Path) -> None:
    """The screen is an output too: what it shows does not move with a private image, but for what noise covers."""
    told: list[tuple] = []

    class Listener(Progress):
        def step(self, *values: Any) -> None:
            told.append(values)

    run_training(tiny_config("data.private=400", epochs=0.25, batch=8), tmp_path / "run", Listener())
    assert [values[0] for values in told] == list(range(1, 14)) and {values[1] for values in told} == {13}
    shown = [values[3] for values in told if values[3] is not None]
    assert len(shown) == 1 and 0 < shown[0] <= 0.8
    assert all(values[2] is None or math.isfinite(values[2]) for values in told)
