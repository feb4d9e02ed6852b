"""`halfmask plan`, through the real command: everything is said, nothing is done."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from halfmask.privacy.account import Account
from halfmask.privacy.accounting import calibrate
from halfmask.privacy.ledger import Ledger
from halfmask.training import loop

KEYS = {
    "problems",
    "remarks",
    "dataset",
    "dataset_fingerprint",
    "method",
    "unit",
    "units",
    "private_records",
    "left_out_because_they_recur_in_another_part",
    "public_records",
    "test_records",
    "expected_batch",
    "steps",
    "sampling_rate",
    "epsilon",
    "delta",
    "noise_multiplier",
    "related_datasets",
    "spent_before",
    "signal_at_best",
    "signal_in_a_step",
    "coordinates",
    "suggested_batch",
    "suggested_coordinates",
    "suggested_recipe",
    "budget_left_after",
    "judged_by",
}


@pytest.fixture
def plan(halfmask, recipe, quick_accounting, monkeypatch):
    """Plans, and fails if anything is taken, paid or begun on the way."""

    def look(*arguments: object):
        with monkeypatch.context() as patch:
            for owner, name in ((loop.Trainer, "take_step"), (Account, "begin"), (Account, "pay"), (Ledger, "write")):
                patch.setattr(owner, name, lambda *_, name=name: pytest.fail(f"a plan came to {name}"))
            return halfmask("plan", recipe, *arguments)

    return look


def remembered(home: Path) -> dict[str, bytes]:
    """Everything in a home but caches: ledgers, whom they speak of, what was published."""
    files = (path for path in home.rglob("*") if path.is_file() and "cache" not in path.parts and path.name not in ("lock", "relations"))
    return {str(path.relative_to(home)): path.read_bytes() for path in files}


def test_says_everything_and_leaves_nothing(plan, fresh_home) -> None:
    result = plan("--method", "projected", "--json")
    assert result.code == 0, result.err
    body = json.loads(result.out)
    assert body.keys() == KEYS and not body["problems"]
    assert (body["units"], body["steps"], body["coordinates"], body["public_records"], body["test_records"]) == (40, 3, 8, 40, 6)
    assert body["sampling_rate"] == pytest.approx(0.2) and body["noise_multiplier"] == pytest.approx(calibrate(0.8, 1e-5, 0.2, 3), rel=0.02)
    signal = math.sqrt(3) * 8 / (body["noise_multiplier"] * math.sqrt(8))
    assert body["signal_at_best"] == pytest.approx(signal) and body["signal_in_a_step"] == pytest.approx(signal / math.sqrt(3))
    assert body["spent_before"] == 0 and body["judged_by"] == "its own accountant"
    assert remembered(fresh_home).keys() == {"fingerprint.key"}, "a plan reads"
    shown = plan("--method", "projected")
    assert shown.code == 0 and "nothing stands in its way; nothing was spent" in shown.out and "noise multiplier: " in shown.out


def test_a_hopeless_plan_says_what_would_help(plan, fresh_home) -> None:
    result = plan("--method", "dpsgd", "--set", "even_so=false")
    assert result.code == 2 and "this run would be refused" in result.out
    for words in ("of the noise over the run", "--method projected", "subspace.dim", "--batch", "--epsilon", "more people"):
        assert words in result.out
    body = json.loads(plan("--method", "dpsgd", "--set", "even_so=false", "--json").out)
    assert len(body["problems"]) == 1 and body["suggested_coordinates"] < body["coordinates"] and body["suggested_batch"] >= 8
    assert plan("--method", "dpsgd").code == 0, "with even_so it may be made"
    assert remembered(fresh_home).keys() == {"fingerprint.key"}


def test_people_on_both_sides_are_named(plan, folder, fresh_home) -> None:
    someone = sorted((folder / "images/private").iterdir())[0]
    path = folder / "annotations.json"
    body = json.loads(path.read_text())
    record = next(r for r in body["records"] if r["image"].endswith(someone.name))
    shutil.copy(someone, folder / "images/test/again.png")
    body["records"].append(record | {"image": "images/test/again.png", "split": "test", "id": "again"})
    path.write_text(json.dumps(body))
    result = plan("--method", "dpsgd", "--data", folder, "--batch", 4)
    assert result.code == 2 and "this run would be refused" in result.out and "'test'" in result.out


def test_budgets_and_relatives_are_looked_up(plan, halfmask, recipe, tmp_path, fresh_home) -> None:
    alone = plan("--method", "dpsgd", "--set", "budget=0.5")
    assert alone.code == 2 and "this run alone would cost 0.8" in alone.out
    assert halfmask("train", recipe, "--method", "dpsgd", "--budget", 0.85, "--out", tmp_path / "run").code == 0
    before = remembered(fresh_home)
    result = plan("--method", "dpsgd", "--set", "data.private=30")
    assert result.code == 2 and "the dataset's budget is ε = 0.85" in result.out and "RDP filter" in result.out
    body = json.loads(plan("--method", "dpsgd", "--set", "data.private=30", "--json").out)
    assert body["related_datasets"] == 1 and 0.7 < body["spent_before"] <= 0.81
    assert remembered(fresh_home) == before, "a refusal is not recorded either"
