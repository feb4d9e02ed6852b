"""A run that comes to nothing stops, gives back what it did not spend, and tells the truth about what it did."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from halfmask.privacy.ledger import Ledger
from halfmask.privacy.verification import verify_certificate
from halfmask.training.config import RunConfig
from halfmask.training.course import Diverged
from halfmask.training.running import run_training

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread", "fresh_home")
Build = Callable[..., RunConfig]


def absurd(tiny_config: Build, *assignments: str, rate: float = 30.0, **flags: object) -> RunConfig:
    """Two epochs of five steps at a rate from which no network comes back."""
    config = tiny_config(f"optimiser.learning_rate={rate}", "optimiser.schedule=constant", *assignments, epochs=2, **flags)
    return replace(config, insecure_seed=None)


def certificate_of(folder: Path) -> dict:
    checks = verify_certificate(folder / "model.safetensors", folder / "certificate.json")
    assert all(check.passed for check in checks), [check for check in checks if not check.passed]
    return json.loads((folder / "certificate.json").read_text())


@pytest.mark.parametrize(
    "assignments, rate, reason",
    [((), 30.0, "the loss of public people went from"), (("data.public=0", "private.weight=1e9"), 1e37, "no longer finite")],
    ids=["by the loss of public people", "by the weights alone"],
)
def test_it_stops_and_gives_back_what_is_left(
    assignments: tuple[str, ...], rate: float, reason: str, tiny_config: Build, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Diverged, match=reason) as stopped:
        run_training(absurd(tiny_config, *assignments, rate=rate), folder)
    assert "5 of 10 steps were not spent" in str(stopped.value) and "learning rate" in str(stopped.value)
    body = certificate_of(folder)
    assert (body["steps"], body["planned_steps"]) == (5, 10)
    ledger = Ledger(body["dataset_fingerprint"])
    assert sum(spend.steps for spend in ledger.spends()) == 5 == sum(spend.steps for spend in ledger.committed())
    (line,) = ledger.lines("release")
    assert line["unspent_steps"] == 5 and line["run"] == body["run"]
    last = json.loads((folder / "log.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "end" and last["interrupted"] is True, "it is not done, and no table takes it for done"


def test_it_costs_less_than_the_whole(tiny_config: Build, tmp_path: Path) -> None:
    with pytest.raises(Diverged):
        run_training(absurd(tiny_config), tmp_path / "run")
    assert 0 < certificate_of(tmp_path / "run")["epsilon"]["zero-out"] < 0.79


def test_a_run_that_read_nothing_private_has_nothing_to_give_back(tiny_config: Build, tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="nothing private was spent"):
        run_training(absurd(tiny_config, method="public-only"), tmp_path / "run")
    assert certificate_of(tmp_path / "run")["epsilon"]["zero-out"] == 0


def test_an_ordinary_run_is_left_alone(tiny_config: Build, tmp_path: Path) -> None:
    folder = run_training(absurd(tiny_config, rate=0.01), tmp_path / "run")
    assert certificate_of(folder)["steps"] == 10 and not Ledger(certificate_of(folder)["dataset_fingerprint"]).lines("release")
