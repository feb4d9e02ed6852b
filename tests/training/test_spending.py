"""What a run tells the ledger."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from halfmask.data.pose_records import PoseRecords
from halfmask.data.prints import fingerprints_of
from halfmask.errors import HalfmaskError
from halfmask.privacy.account import RAW, VIEWS
from halfmask.privacy.accounting import calibrate
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.ledger import Ledger
from halfmask.training import loop
from halfmask.training.certify import certificate_of
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.private import PrivateHalf
from halfmask.training.progress import Progress
from halfmask.training.running import run_training
from halfmask.training.setup import Setup, prepare
from halfmask.training.spending import Payments, group_sizes, publications_of, spend_of

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
Records = Callable[..., PoseRecords]
Build = Callable[..., RunConfig]


def most_in(inner: list[int], outer: list[int]) -> int:
    return max(len({i for i, o in zip(inner, outer, strict=True) if o == one}) for one in outer)


def test_crops_lie_in_images_and_subjects(random_records: Records) -> None:
    images, subjects = [0, 0, 0, 1, 2, 2], [7, 8, 9, 7, 7, 8]
    records = random_records(6, image_ids=images, subjects=subjects)
    assert (
        group_sizes(records, "crop")
        == {"image": 3, "subject": 3}
        == {
            "image": most_in(list(range(6)), images),
            "subject": most_in(list(range(6)), subjects),
        }
    )


def test_images_of_one_subject_lie_in_subjects(random_records: Records) -> None:
    """Counted in images, not in the crops on them."""
    records = random_records(6, image_ids=[0, 0, 1, 2, 3, 3], subjects=[4, 4, 4, 4, 5, 5])
    assert group_sizes(records, "image") == {"subject": 3}
    assert group_sizes(records, "subject") == {}, "a subject is in several images, so in none whole"


def test_units_that_cross_are_not_in_each_other(random_records: Records) -> None:
    """An image of two subjects is part of neither: a bound for one says nothing about the other."""
    records = random_records(4, image_ids=[0, 0, 1, 2], subjects=[1, 2, 1, 2])
    assert group_sizes(records, "image") == {} == group_sizes(records, "subject")


def test_a_subject_with_one_image_lies_in_it(random_records: Records) -> None:
    records = random_records(4, image_ids=[0, 0, 1, 1], subjects=[1, 2, 3, 3])
    assert group_sizes(records, "subject") == {"image": 2}


def test_without_subjects_nothing_is_said_of_them(random_records: Records) -> None:
    assert group_sizes(random_records(4, image_ids=[0, 0, 0, 1]), "crop") == {"image": 3}


@pytest.mark.parametrize("method, source", [("dpsgd", "test"), ("non-private", "none")])
def test_a_spend_is_what_the_run_will_do(method: str, source: str, tiny_config: Build, fresh_home: Path) -> None:
    setup = prepare(tiny_config(method=method, unit="image", batch=4), Progress())
    spend = spend_of(setup, "aa", 3, 5, 0.7, "test", ["one look", "another"])
    assert (spend.first_step, spend.last_step, spend.steps, spend.clip_norm, spend.noise_source) == (3, 7, 5, 0.7, source)
    assert (spend.unit, spend.units, spend.noise_multiplier) == ("image", len(setup.units), setup.noise_multiplier)
    assert spend.expected_batch == pytest.approx(4) and spend.unbounded == "one look; another"
    assert spend.group_sizes == group_sizes(setup.private, "image")
    assert (spend_of(setup, "aa", 0, 1, 0.7, "test").unbounded == "") == (method == "dpsgd")


def test_what_is_taken_to_be_public_is_published(tiny_config: Build, fresh_home: Path) -> None:
    assert publications_of(prepare(tiny_config(method="dpsgd"), Progress())) == []
    (views,) = publications_of(prepare(tiny_config(method="feature"), Progress()))
    assert views.what == VIEWS and "Gaussian blur" in views.words and "keypoints" in views.words and views.records == ()
    assert publications_of(prepare(tiny_config(method="projected"), Progress())) == [], "S_pub of public people is public already"
    setup = prepare(tiny_config("subspace.source=private", method="projected", unit="image", batch=4), Progress())
    (raw,) = publications_of(setup)
    assert raw.what == RAW and setup.basis is not None
    gone, private = ({row.tobytes().hex() for row in fingerprints_of(part).exact} for part in (setup.basis, setup.private))
    assert set(raw.records) == gone and len(gone) > 5 and not private & gone


# ---- the ledger ----------------------------------------------------------------------------------------------------------


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


def the_ledger_is_ahead(kind: type[Trainer], config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> bool:
    """Whenever a batch or noise is drawn, the ledger has already been charged for this step."""
    ledger_blocks(monkeypatch, block)
    trainer = trainer_for(config, folder, kind)
    ahead: list[bool] = []

    def charged() -> None:
        own = [spend for spend in trainer.setup.account.ledger.spends() if spend.run == trainer.standing.run]
        ahead.append(sum(spend.steps for spend in own) >= trainer.standing.step + 1)

    draw, release = trainer.noised.poisson.draw, trainer.noised.mechanism.release_coordinates
    monkeypatch.setattr(trainer.noised.poisson, "draw", lambda: charged() or draw())
    object.__setattr__(trainer.noised.mechanism, "release_coordinates", lambda *a: charged() or release(*a))
    trainer.train()
    return len(ahead) == 2 * trainer.setup.steps and all(ahead)


class PaysLate(Trainer):
    """After the first step of each block instead of before it."""

    def __init__(self, setup: Setup, folder: RunFolder, progress: Progress):
        super().__init__(setup, folder, progress)
        self.owed = 0
        self.pay = self.payments.ahead
        self.payments.ahead = self._owe  # type: ignore[method-assign]

    def _owe(self, steps: int, half: PrivateHalf) -> None:
        self.owed = steps

    def take_step(self) -> None:
        super().take_step()
        if self.owed:
            self.pay(self.owed, self.noised)
            self.owed = 0


class OneBlock(Payments):
    def ahead(self, steps: int, half: PrivateHalf) -> None:
        if not self.standing.paid:
            super().ahead(steps, half)


class PaysForTheFirstBlockOnly(Trainer):
    def __init__(self, setup: Setup, folder: RunFolder, progress: Progress):
        super().__init__(setup, folder, progress)
        self.payments = OneBlock(setup, self.standing, progress)


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


@pytest.mark.parametrize("part", ["mechanism", "poisson", "engine"])
def test_a_part_of_unknown_make_voids_the_promise(part: str, tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    trainer = trainer_for(secure(tiny_config()), tmp_path / "run")
    assert certificate_of(trainer.setup, trainer.noised, trainer.standing, "run").guarantee == 0
    own = getattr(trainer.noised, part)
    other = object.__new__(type("Other", (type(own),), {}))
    other.__dict__.update(own.__dict__)
    half = replace(trainer.noised, **{part: other})
    assert certificate_of(trainer.setup, half, trainer.standing, "run").guarantee == math.inf


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
