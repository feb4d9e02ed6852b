"""A whole run as the guest of another home, without a cluster: what it asks, in which order, and what it does where no answer comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from halfmask.privacy.fingerprints import key
from halfmask.privacy.guest import Host, Unreachable, visiting
from halfmask.privacy.ledger import Ledger, ledger_names
from halfmask.privacy.remote import Desk
from halfmask.privacy.sampling import PoissonSampler
from halfmask.privacy.verification import verify_certificate
from halfmask.training.running import run_training
from halfmask.training.sweep import read_certificate


class Line:
    """A line to the host's desk that can be cut: after some payments, nobody answers."""

    def __init__(self, at_home: Any, home: Path, folder: Path, payments: int | None = None):
        self.at_home, self.home, self.left = at_home, home, payments
        self.events: list[str] = []
        with at_home(home):
            self.desk, self.key = Desk(), key()
            self.desk.lend("lease", folder).opened()

    def ask(self, question: str, *about: Any) -> Any:
        if question == "pay" and self.left is not None:
            if self.left == 0:
                raise Unreachable("the line is cut")
            self.left -= 1
        with self.at_home(self.home):
            answer = self.desk.answer("lease", question, *about)
        self.events.append(question)
        return answer.opened()


@pytest.fixture
def lines(tmp_path, monkeypatch, quick_accounting, at_home):
    """Makes lines; the machine that trains has another home, and its coins are heard on the line."""
    monkeypatch.setenv("HALFMASK_HOME", str(tmp_path / "elsewhere"))
    made: list[Line] = []

    def make(payments: int | None = None) -> Line:
        made.append(Line(at_home, tmp_path / "host", tmp_path / "run", payments))
        return made[-1]

    toss = PoissonSampler.draw

    def heard(self: PoissonSampler, *arguments: Any) -> Any:
        made[-1].events.append("coins")
        return toss(self, *arguments)

    monkeypatch.setattr(PoissonSampler, "draw", heard)
    return make


def train(line: Line, config: Any, folder: Path, resume: bool = False) -> None:
    with visiting(Host(line.key, line.ask)):
        run_training(config, folder, resume=resume)


def test_a_guest_pays_before_each_coin_and_is_certified_by_its_host(lines, tiny_config, tmp_path, at_home) -> None:
    line, folder = lines(), tmp_path / "run"
    config = tiny_config("insecure_seed=null", noise_multiplier=3.0, epsilon=9.0, accountant="rdp")
    train(line, config, folder)
    assert line.events.index("begin") < line.events.index("pay") < line.events.index("coins")
    paid = tossed = 0
    for event in line.events:
        paid, tossed = paid + (event == "pay"), tossed + (event == "coins")
        assert tossed <= paid, "a coin before its payment"
    with at_home(tmp_path / "host"):
        (dataset,) = ledger_names()
        certificate = read_certificate(folder)
        assert certificate["dataset_fingerprint"] == dataset and certificate["steps"] == tossed == 2
        assert all(check.passed for check in verify_certificate(folder / "model.safetensors", folder / "certificate.json"))
        # The same people, trained on where the ledger is: one account.
        run_training(config, tmp_path / "local")
        assert ledger_names() == [dataset] and len({spend.run for spend in Ledger(dataset).spends()}) == 2
    there = tmp_path / "elsewhere"
    assert (there / "cache").is_dir() and not (there / "ledgers").exists() and not (there / "fingerprint.key").exists()


@pytest.mark.parametrize("payments", [0, 1])
def test_a_run_that_cannot_reach_its_ledger_stops_before_the_coins(lines, tiny_config, tmp_path, payments, at_home) -> None:
    folder = tmp_path / "run"
    config = tiny_config("insecure_seed=null", noise_multiplier=3.0, epsilon=9.0, accountant="rdp")
    line = lines(payments)
    with pytest.raises(Unreachable, match="the line is cut"):
        train(line, config, folder)
    assert line.events.count("coins") == payments and not (folder / "certificate.json").exists()
    # Once it can be reached again, the run goes on with what it has reserved.
    line.desk.take_back("lease")
    again = lines()
    train(again, config, folder, resume=True)
    assert again.events.count("coins") == 2 - payments and read_certificate(folder)["steps"] == 2
    with at_home(tmp_path / "host"):
        (dataset,) = ledger_names()
        assert sum(spend.steps for spend in Ledger(dataset).spends()) == 2
