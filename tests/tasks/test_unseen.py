"""A task that nobody has seen goes the whole way by the same commands as any other: pre-trained, trained, scored, audited, compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import cv2
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

import halfmask
from halfmask.cli.app import app
from halfmask.metrics import names
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
    metrics: ClassVar[Mapping[str, halfmask.MetricInfo]] = {
        "error": halfmask.MetricInfo("Error", unit="years", higher_is_better=False, digits=2),
        "within a year": halfmask.MetricInfo("Within a year", unit="%", digits=1),
    }

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
        errors = self.loss(model, batch).detach().sqrt()
        return halfmask.Scores({"error": float(errors.mean()), "within a year": 100 * float((errors < 1).float().mean())})

    def predict(self, model: nn.Module, image: np.ndarray, *args: object, **kwargs: object) -> tuple[dict, np.ndarray]:
        seen = torch.from_numpy(image.reshape(-1)[:8].astype(np.float32) / 255)
        return {"age": round(float(model(seen)), 3)}, 255 - image

    def summary(self, found: Mapping[str, object]) -> str:
        return f"{found['age']} years"


def people(count: int, seed: int) -> halfmask.Records:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 8)).astype(np.float32)
    age = x @ np.linspace(-1, 1, 8, dtype=np.float32)
    # Two records of each person; nobody is in two populations.
    return halfmask.Records.of_arrays({"x": x}, {"age": age}, {"person": 10_000 * seed + np.arange(count) // 2})


@pytest.fixture
def ages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quick_accounting: None, fresh_home: Path) -> Iterator[Path]:
    monkeypatch.setattr(base, "_TASKS", dict(base._TASKS))
    monkeypatch.setattr(names, "_DECLARED", dict(names._DECLARED))
    halfmask.register(Ages)
    recipe = tmp_path / "ages.yaml"
    recipe.write_text(RECIPE)
    yield recipe


def call(*arguments: str) -> dict:
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_whole_way(ages: Path, tmp_path: Path) -> None:
    run, before = tmp_path / "run", tmp_path / "before"
    public = call("pretrain", str(ages), "--out", str(before), "--epochs", "20")
    assert public["metrics"]["split"] == "public" and public["metrics"]["metrics"]["error"] < 0.9
    printed = CliRunner().invoke(app, ["pretrain", str(ages), "--out", str(tmp_path / "again"), "--epochs", "2"], catch_exceptions=False)
    assert printed.exit_code == 0 and " years   Within a year " in printed.stdout and "model.weights" not in printed.stdout

    trained = call("train", str(ages), "--out", str(run))
    certificate = trained["certificate"]
    assert certificate["unit"] == "person" and certificate["units"] == 150
    assert certificate["epsilon"]["zero-out"] == pytest.approx(4, abs=0.01)
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["task"] == "ages" and metrics["metrics"]["error"] < 0.9, "better than telling everybody the mean"

    scored = call("evaluate", str(run))
    assert scored["metrics"] == metrics["metrics"]

    cv2.imwrite(str(tmp_path / "face.png"), np.full((4, 4, 3), 100, np.uint8))
    found = call("predict", str(run), str(tmp_path / "face.png"), "--out", str(tmp_path / "found"))
    assert found["failed"] == 0 and found["predictions"][0]["age"] == json.loads((tmp_path / "found" / "face.json").read_text())["age"]
    assert int(cv2.imread(str(tmp_path / "found" / "face.png"))[0, 0, 0]) == 155, "its own drawing"

    attacked = call("audit", "model", str(run), "--shadows", "0", "--out", str(tmp_path / "attacked"))
    assert [row["model"].split(",")[0] for row in attacked["results"][1:]] == ["this run: dpsgd", "non-private"]

    audited = call("audit", "mechanism", str(run), "--out", str(tmp_path / "audits"))
    assert audited["passed"] and audited["task"] == "ages" and len(audited["checks"]) == 10

    methods = "non-private,public-only,feature-projective"
    chosen = ["--methods", methods, "--set", "subspace.samples=20", "--set", "subspace.dim=4"]
    compared = call("compare", str(ages), "--out", str(tmp_path / "compared"), *chosen)
    assert [row["method"] for row in compared["summary"]] == methods.split(",")
    assert all("error" in row and "within a year" in row for row in compared["summary"])
    page = (tmp_path / "compared" / "index.html").read_text()
    assert '<th scope="col">Error (years) ↓</th><th scope="col">Within a year</th>' in page and "the lower, the better" in page
    assert all(f'<option value="{metric}">' in page for metric in ("error", "within a year")), "each metric can be drawn"
    assert {path.name for path in (tmp_path / "compared").glob("*.png")} == {"accuracy.png", "accuracy-within-a-year.png"}
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


def test_what_it_cannot_do_is_refused_in_a_line(ages: Path, tmp_path: Path) -> None:
    class Silent(Ages):
        predict = halfmask.Task.predict

    halfmask.register(Silent)
    run = tmp_path / "run"
    call("train", str(ages), "--out", str(run))
    cv2.imwrite(str(tmp_path / "face.png"), np.full((4, 4, 3), 100, np.uint8))
    for arguments, words in (
        (["predict", str(run), str(tmp_path / "face.png"), "--out", str(tmp_path / "found")], "nothing to say of a single picture"),
        (["evaluate", str(run), "--data", "elsewhere"], "has a dataset of its own"),
        (["evaluate", str(run), "--boxes", "boxes.json"], "without a detector's boxes"),
        (["pretrain", str(ages), "--set", "pretrain.top=true", "--out", str(tmp_path / "top")], "knows no strategy 'top'"),
    ):
        result = CliRunner().invoke(app, arguments)
        assert isinstance(result.exception, halfmask.HalfmaskError) and words in str(result.exception)
    assert not (tmp_path / "found").exists()


def test_people_of_it_who_are_protected_are_not_pretrained_on(ages: Path, tmp_path: Path) -> None:
    call("train", str(ages), "--out", str(tmp_path / "run"))

    class Turned(Ages):
        def load(self, report: object = None) -> halfmask.Datasets:
            return halfmask.Datasets(people(60, 2), people(300, 1), people(50, 3), "ages")

    halfmask.register(Turned)
    result = CliRunner().invoke(app, ["pretrain", str(ages), "--out", str(tmp_path / "before")])
    assert isinstance(result.exception, halfmask.HalfmaskError) and "whom an account here protects" in str(result.exception)


def test_planted_records_have_anothers_targets_and_units_alone(ages: Path) -> None:
    members, strangers, chosen = people(20, 1), people(12, 3), np.random.default_rng(0).permutation(12)
    planted = Ages(None).mislabelled(strangers, members, chosen)
    every = np.arange(12)
    assert (planted.batch(every)["x"] == strangers.batch(chosen)["x"]).all()
    assert (planted.batch(every)["age"] == strangers.batch(np.roll(chosen, -1))["age"]).all()
    persons = members.joined(planted).unit_ids("person")
    assert len(np.unique(persons[20:])) == 12 and not np.isin(persons[20:], persons[:20]).any()
    bare = halfmask.Records.of_arrays({"x": np.zeros((4, 8), np.float32)})
    with pytest.raises(halfmask.HalfmaskError, match="have none"):
        Ages(None).mislabelled(bare, bare, np.arange(4))


def test_planted_records_of_it_are_looked_for(ages: Path, tmp_path: Path) -> None:
    call("train", str(ages), "--out", str(tmp_path / "run"))
    body = call("audit", "model", str(tmp_path / "run"), "--canaries", "40", "--spend", "--out", str(tmp_path / "planted"))
    assert body["planted_are"] == "records with another's targets" and body["planted"] == 40 and body["passed"]
    assert "40 records with another's targets were planted" in (tmp_path / "planted" / "index.html").read_text().replace("&#x27;", "'")
