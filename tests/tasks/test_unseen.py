"""A task that nobody has seen goes the whole way: trained, scored, audited, compared, put on a page, by the same commands as any other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

import halfmask
from halfmask.cli.app import app
from halfmask.tasks import base
from halfmask.training.config import build_config
from halfmask.training.running import run_training

RECIPE = """
# How old is somebody, by eight numbers?
task: ages
method: dpsgd
strategy: full
unit: person
epsilon: 4
delta: 1.0e-4
clip_norm: 1.0
batch: 40
epochs: 6
even_so: true
data: {name: ages}
optimiser: {name: sgd, learning_rate: 0.5, momentum: 0.5}
"""


@dataclass(frozen=True)
class Rounded(halfmask.View):
    """Whole numbers are public."""

    reads = ("x",)

    def of(self, record: Mapping[str, np.ndarray]) -> halfmask.Seen:
        return halfmask.Seen({"x": record["x"].round()})

    def describe(self) -> str:
        return "the eight numbers, rounded"


class Ages(halfmask.Task):
    name = "ages"
    units = ("record", "person")

    def load(self, report: object = None) -> halfmask.Datasets:
        return halfmask.Datasets(people(300, 1), people(60, 2), people(50, 3), "ages")

    def view(self) -> halfmask.View:
        return Rounded()

    def build(self, data: halfmask.Datasets) -> nn.Module:
        return nn.Linear(8, 1)

    def open(self, weights: Path) -> nn.Module:
        model = nn.Linear(8, 1)
        model.load_state_dict(load_file(weights))
        return model

    def loss(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return (model(batch["x"])[:, 0] - batch["age"]).square()

    def score(self, model: nn.Module, records: halfmask.Records, *args: object, **kwargs: object) -> halfmask.Scores:
        batch = records.batch(np.arange(len(records)))
        return halfmask.Scores({"error in years": float(self.loss(model, batch).detach().sqrt().mean())})


def people(count: int, seed: int) -> halfmask.Records:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 8)).astype(np.float32)
    age = x @ np.linspace(-1, 1, 8, dtype=np.float32)
    # Two records of each person; nobody is in two populations.
    return halfmask.Records.of_arrays({"x": x}, {"age": age}, {"person": 10_000 * seed + np.arange(count) // 2})


@pytest.fixture
def ages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quick_accounting: None, fresh_home: Path) -> Iterator[Path]:
    monkeypatch.setattr(base, "_TASKS", dict(base._TASKS))
    halfmask.register(Ages)
    recipe = tmp_path / "ages.yaml"
    recipe.write_text(RECIPE)
    yield recipe


def call(*arguments: str) -> dict:
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_whole_way(ages: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained = call("train", str(ages), "--out", str(run))
    certificate = trained["certificate"]
    assert certificate["unit"] == "person" and certificate["units"] == 150
    assert certificate["epsilon"]["zero-out"] == pytest.approx(4, abs=0.01)
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["task"] == "ages" and metrics["metrics"]["error in years"] < 0.9, "better than telling everybody the mean"

    scored = call("evaluate", str(run))
    assert scored["metrics"] == metrics["metrics"]

    audited = call("audit", "mechanism", str(run), "--out", str(tmp_path / "audits"))
    assert audited["passed"] and audited["task"] == "ages" and len(audited["checks"]) == 10

    methods = "non-private,public-only,feature-projective"
    chosen = ["--methods", methods, "--set", "subspace.samples=20", "--set", "subspace.dim=4"]
    compared = call("compare", str(ages), "--out", str(tmp_path / "compared"), *chosen)
    assert [row["method"] for row in compared["summary"]] == methods.split(",")
    assert all("error in years" in row for row in compared["summary"])
    page = (tmp_path / "compared" / "index.html").read_text()
    assert "Error in years" in page or "error in years" in page
    assert "the eight numbers, rounded" in page, "what is public is told by the task's own view"
    assert "percentages" not in page and not (tmp_path / "compared" / "overlays.png").exists()


def test_a_unit_it_has_not_is_refused(ages: Path) -> None:
    with pytest.raises(halfmask.HalfmaskError, match="unit"):
        build_config({"task": "ages"}, {"unit": "crop"}, [])


def test_a_coupled_loss_of_it_is_refused_before_anything_is_read(ages: Path, tmp_path: Path, fresh_home: Path) -> None:
    class Coupled(Ages):
        def loss(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            losses = super().loss(model, batch)
            return losses - losses.mean() / 2

    halfmask.register(Coupled)
    import yaml

    with pytest.raises(halfmask.HalfmaskError, match="coupled"):
        run_training(build_config(yaml.safe_load(RECIPE), {}, []), tmp_path / "run")
    assert not any(path.read_text().count('"spend"') for path in fresh_home.rglob("*.jsonl"))
