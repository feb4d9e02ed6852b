"""What the certificate of a generator says: ε to one image and to one person, whichever of them it was trained for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from halfmask.data.picture_sets import load_pictures
from halfmask.data.records import Datasets
from halfmask.privacy.accounting import epsilon
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.certificate import Certificate
from halfmask.privacy.spends import Spend, plans_of
from halfmask.tasks.generate import GenerateTask
from halfmask.training.certify import certificate_of
from halfmask.training.config import build_config, load_recipe
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
SMALL = (
    "data.private=48",
    "data.public=52",
    "data.public_skip=0",
    "data.test=0",
    "data.height=32",
    "data.width=32",
    "data.per_subject=4",
    "model.weights=null",
    "model.generator_steps=0",
    "delta=0.001",
    "batch=4",
    "epochs=1",
)
Certified = Callable[..., tuple[Trainer, Certificate]]


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certified:
    """What a run says after a step whose noise came from the secure source."""
    # What all tests of the file spent on their people together is of no interest.
    monkeypatch.setattr("halfmask.privacy.account.total_epsilon", lambda *arguments: 0.0)

    def made(*settings: str, data: Datasets | None = None, **flags: object) -> tuple[Trainer, Certificate]:
        config = build_config(load_recipe("generate/critic"), {"even_so": True, **flags}, [*SMALL, *settings])
        trainer = Trainer(prepare(config, Progress(), data), RunFolder.create(tmp_path / "run", config), Progress())
        trainer.begin()
        trainer.payments.ahead(2, trainer.noised)
        trainer.take_step()
        return trainer, certificate_of(trainer.setup, trainer.noised, trainer.standing, "run")

    return made


def paid_by(trainer: Trainer) -> list[Spend]:
    return [spend for spend in trainer.setup.account.ledger.spends() if spend.run == trainer.standing.run]


def words_of(body: Certificate) -> str:
    (words,) = [line for line in body.public_assumptions if "the promise is to one" in line]
    return words


@pytest.mark.parametrize(("settings", "most"), [((), 4), (("data.pictures_per_subject=4",), 4), (("model.critic=means", "batch=48"), 4)])
def test_an_image_is_promised_something_and_a_person_what_that_is_worth(certified: Certified, settings: tuple[str, ...], most: int) -> None:
    trainer, body = certified(*settings, unit="image")
    own = paid_by(trainer)
    plans = plans_of(own, Adjacency.ZERO_OUT)
    assert [plan.steps for plan in plans] == [2] and own[0].group_sizes["subject"] == 4
    grouped = epsilon([replace(plan, group_size=4) for plan in plans], 1e-3, "rdp")
    assert body.coarser == {"subject": {"most": most, "epsilon": pytest.approx(grouped)}} and body.finer == {}
    assert grouped > 2 * body.epsilon["zero-out"] > 0
    assert "no ε is stated" not in words_of(body) and "--unit subject" in words_of(body)
    assert f"| ε to one subject of up to 4 images | {grouped:.4g} |" in body.to_markdown()


def test_a_person_is_promised_something_and_an_image_of_theirs_what_that_is_worth(certified: Certified) -> None:
    """Without one image a person's gradient is clipped anew, and may point anywhere: an exchange, at twice the sensitivity."""
    trainer, body = certified(unit="subject", batch=3)
    plans = plans_of(paid_by(trainer), Adjacency.REPLACE_ONE)
    assert len(trainer.setup.units) == 12 and body.coarser == {}
    exchanged = epsilon(plans, 1e-3, "pld")
    assert body.finer == {"image": pytest.approx(exchanged)} and exchanged > 1.5 * body.epsilon["zero-out"] > 0
    assert "one person with all of their images" in words_of(body)
    assert f"| ε to one image of a subject | {exchanged:.4g} |" in body.to_markdown()


@pytest.mark.parametrize("method", GenerateTask.methods)
def test_nothing_is_promised_to_whoever_leaves_the_dataset(certified: Certified, method: str) -> None:
    """Their pose would be missed, by a run that reads no picture of theirs as well."""
    _, body = certified("subspace.samples=12", "subspace.dim=2", method=method)
    assert body.epsilon.keys() == {"zero-out", "replace-one"}
    assert "add-remove" not in body.to_markdown()


def test_where_nothing_can_be_stated_words_say_so(certified: Certified) -> None:
    _, body = certified(unit="image", adjacency="replace-one")
    assert body.coarser == {} and "zero-out alone, so no ε is stated" in words_of(body)


def test_an_accountant_without_a_bound_for_exchanges_says_so(certified: Certified) -> None:
    _, body = certified(unit="subject", accountant="rdp", batch=3)
    assert body.finer == {} and "--accountant pld" in words_of(body)


def drawn() -> Datasets:
    return load_pictures(build_config(load_recipe("generate/critic"), {}, list(SMALL)).data)


def test_pictures_on_disk_are_bounded_by_a_setting_alone(certified: Certified) -> None:
    """Four pictures a person is what the records have, which is no bound of the settings."""
    _, silent = certified("data.name=mine", data=drawn(), unit="image")
    assert silent.coarser == {} and "data.pictures_per_subject would" in words_of(silent) and "no ε is stated" in words_of(silent)


@pytest.mark.parametrize(("most", "stated"), [(3, False), (4, True), (9, True)])
def test_a_bound_that_records_break_is_not_believed(certified: Certified, most: int, stated: bool) -> None:
    _, body = certified("data.name=mine", f"data.pictures_per_subject={most}", data=drawn(), unit="image")
    assert {name: each["most"] for name, each in body.coarser.items()} == ({"subject": most} if stated else {})


def test_a_promise_that_is_void_says_nothing_of_other_units(certified: Certified) -> None:
    _, body = certified(unit="subject", insecure_seed=1, batch=3)
    assert (body.coarser, body.finer, body.to_json()["finer"]) == ({}, {}, {}) and "one image" not in body.to_markdown().split("##")[0]
