"""The card says what the files beside it say, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from halfmask.privacy.certificate import Certificate
from halfmask.report.model_card import model_card
from halfmask.training.config import RunConfig
from halfmask.training.outputs import RunFolder

METRICS = {
    "task": "pose",
    "dataset": "people",
    "split": "test",
    "metrics": {"pckh@0.5": 61.25, "pckh@0.5/head": 80.0},
    "parts": {"head_top": 80.0},
}
CURVE = {"slope": 2.0, "intercept": 9.0, "joints": 800, "right": 0.8, "error": 0.021}


def certificate(**changes: Any) -> Certificate:
    body: dict[str, Any] = {
        "method": "feature-projective",
        "unit": "crop",
        "units": 1234,
        "adjacency": "zero-out",
        "epsilon": {"zero-out": 0.8, "replace-one": 1.37},
        "delta": 1e-5,
        "accountant": "pld",
        "noise_multiplier": 1.0,
        "sampling_rate": 0.1,
        "steps": 90,
        "planned_steps": 90,
        "clip_norm": 1.0,
        "expected_batch": 100,
        "public_assumptions": ["ψ of every private record: a blur"],
        "noise_source": "the operating system",
        "ledger_total": 0.8,
        "dataset_fingerprint": "ab",
        "dataset": "people",
        "run": "ab12",
        "run_name": "first",
        "weights_sha256": "c0ffee",
    }
    return Certificate(**body | changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = RunFolder.create(tmp_path / "first", RunConfig())
    run.save_weights(run.packed(torch.nn.Linear(3, 2)))
    run.save_certificate(certificate())
    (run.path / "metrics.json").write_text(json.dumps(METRICS))
    run.save_calibration({"flip": CURVE})
    run.save_card()
    return run.path


def test_data_method_promise_scores_use_and_limits(folder: Path) -> None:
    card = (folder / "model_card.md").read_text()
    for words in (
        "# Model card: first",
        "nano, 8 numbers",
        "1,234 crops",
        "`feature-projective`",
        "90 of 90 planned steps",
        "`c0ffee`",
        "ε = 0.8 (zero-out), 1.37 (replace-one) at δ = 1e-05, to one crop",
        "- ψ of every private record: a blur",
        "| PCKh@0.5 | 61.2 % |",
        "| PCKh@0.5, head | 80.0 % |",
        "| head_top | 80.0 % |",
        "declares no groups",
        "800 joints of public people whom nothing was trained on, 80 % of which were right",
        "off by 2.1 points",
        "## What it is meant for",
        "Not meant for: telling who somebody is",
        "## Limits",
    ):
        assert words in card, words


def test_it_is_made_of_released_files_alone(folder: Path, tmp_path: Path) -> None:
    before = (folder / "model_card.md").read_text()
    copy = tmp_path / "elsewhere" / "first"
    copy.mkdir(parents=True)
    for name in ("config.yaml", "certificate.json", "metrics.json", "calibration.json", "model.safetensors"):
        shutil.copy(folder / name, copy)
    assert model_card(copy) == before


def test_groups_that_the_dataset_declares(folder: Path) -> None:
    groups = [
        {"group": "oil painting", "records": 12, "metric": "ap", "value": 41.5},
        {"group": "garage kits", "records": 3, "metric": "ap", "value": None},
    ]
    (folder / "metrics.json").write_text(json.dumps(METRICS | {"groups": groups}))
    card = model_card(folder)
    assert "| oil painting | 12 | 41.5 % |" in card and "| garage kits | 3 | – |" in card and "declares no groups" not in card


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unaccounted_reads": ["raw private images"]}, "**No privacy guarantee (ε = ∞)**: raw private images"),
        ({"epsilon": {"zero-out": float("inf")}}, "**No privacy guarantee (ε = ∞)**"),
        ({"epsilon": {"zero-out": 0.0}, "method": "public-only"}, "No private part of any record was read"),
        ({"statement": "rehearsal"}, "Nothing: the run was a rehearsal"),
        ({"cautions": ["δ is large"]}, "- **caution**: δ is large"),
        ({"already_public": ["labels"]}, "- labels (by an earlier run)"),
    ],
)
def test_a_promise_is_never_said_to_be_more_than_it_is(folder: Path, changes: dict[str, Any], words: str) -> None:
    RunFolder(folder).save_certificate(certificate(**changes))
    card = model_card(folder)
    assert words in card
    if "ε = ∞" in words or changes.get("statement"):
        assert "ε = 0.8" not in card


def test_pretraining_and_runs_that_nobody_judged(folder: Path) -> None:
    for name in ("certificate.json", "metrics.json", "calibration.json"):
        (folder / name).unlink()
    card = model_card(folder)
    assert "there is no certificate" in card and "Nobody judged it" in card and "What its scores mean" not in card
    assert "nor of what is true of everybody" not in card


def test_a_run_that_goes_on_takes_the_card_back(folder: Path) -> None:
    RunFolder(folder).withdraw()
    assert not (folder / "model_card.md").exists() and not (folder / "calibration.json").exists()


def test_other_networks_are_counted_too(folder: Path) -> None:
    save_file({"a": torch.zeros(3, 4), "b": torch.zeros(())}, folder / "model.safetensors")
    assert "13 numbers" in model_card(folder)
