"""`halfmask audit`: what it prints, writes and exits with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import halfmask.audit.mechanism as mechanism
from halfmask.audit import inversion, views
from halfmask.audit.one_run import Guesses
from halfmask.models.pose import build_model
from halfmask.privacy.noise import RandomStream

pytestmark = pytest.mark.usefixtures("quick_accounting")


def test_the_mechanism_passes(halfmask: Callable[..., Any], tmp_path: Path) -> None:
    result = halfmask("audit", "mechanism", "--method", "dpsgd", "--epsilon", 1, "--out", tmp_path / "a")
    assert result.code == 0 and "pass" in result.out and "FAIL" not in result.out
    body = json.loads((tmp_path / "a" / "mechanism.json").read_text())
    assert body["passed"] and 0 <= body["methods"][0]["lower_bound"] < 1
    assert "cannot see" in result.out and (tmp_path / "a" / "index.html").is_file()


def test_a_fault_ends_with_another_code(halfmask: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RandomStream.gaussian
    monkeypatch.setattr(RandomStream, "gaussian", lambda self, *a: 0 * real(self, *a))
    monkeypatch.setattr(mechanism, "_SAMPLED_STEPS", 100)
    result = halfmask("audit", "mechanism", "--method", "dpsgd", "--out", tmp_path / "a", "--json")
    assert result.code == 1
    found = json.loads(result.out)["methods"][0]
    assert found["lower_bound"] > 3
    assert "noise-variance" in [check["check"] for check in found["checks"] if not check["passed"]]


def test_masks_are_audited_by_recipe(halfmask: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import halfmask.audit.mask_clips as mask_clips

    monkeypatch.setattr(mask_clips, "CLIPS", 3)
    small = ("--set", "model.weights=null", "--set", "model.frames=2", "--set", "model.side=32")
    result = halfmask("audit", "masks", "action/figures", *small, "--out", tmp_path)
    assert result.code == 0 and "absent tokens are" in result.out and "FAIL" not in result.out, result.err
    assert json.loads((tmp_path / "masks.json").read_text())["protects"] == "background" and (tmp_path / "index.html").is_file()
    monkeypatch.setattr(mask_clips, "protected_of", lambda film, protect, margin: film.person | True)
    broken = halfmask("audit", "masks", "action/figures", *small, "--out", tmp_path)
    assert broken.code == 1 and "FAIL" in broken.out, "everything was to be protected, and a part was public"
    refused = halfmask("audit", "masks", "pose/figures", "--out", tmp_path)
    assert refused.code != 0 and "no mask in method" in refused.err


def test_a_run_is_attacked_by_its_path_alone(
    halfmask: Callable[..., Any], trained: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import halfmask.audit.membership as membership

    run = Path(shutil.copytree(trained[0], tmp_path / "run"))
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"]["test"] = 20
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    monkeypatch.setattr(membership, "train_shadow", lambda config, members, public: build_model(config.model))
    result = halfmask("audit", run, "--shadows", 0)
    assert result.code == 0, result.err
    assert "AUC (95 %)" in result.out and "Promised: ε = 0.8" in result.out
    body = json.loads((run / "audit" / "model.json").read_text())
    assert body["results"][0]["model"] == "initial weights (saw nobody)", "figures are nobody, so it may stand beside the run"


def test_findings_about_real_people_stay_out_of_the_run(
    halfmask: Callable[..., Any],
    trained: tuple[Path, Any],
    exported: Path,
    shared_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import halfmask.audit.membership as membership

    run = Path(shutil.copytree(trained[0], tmp_path / "clinic"))
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"]["name"] = str(exported)
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    before = sorted(path.name for path in run.rglob("*"))
    monkeypatch.setattr(membership, "train_shadow", lambda config, members, public: build_model(config.model))
    monkeypatch.setattr(membership, "separation", lambda *a: {"members": 1, "strangers": 1, "auc": {"value": 0.5, "low": 0.4, "high": 0.6}})
    assert "inside the run's folder" in halfmask("audit", "model", run, "--shadows", 0, "--out", run / "audit").error
    result = halfmask("audit", "model", run, "--shadows", 0)
    assert result.code == 0, result.err
    assert "not for release" in result.out and "for the data holder" in result.err
    assert sorted(path.name for path in run.rglob("*")) == before
    assert "no ε covers" in (shared_home / "audits" / "clinic" / "model.json").read_text()


def test_planted_people_are_looked_for(
    halfmask: Callable[..., Any], trained: tuple[Path, Any], exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import halfmask.audit.planted as planted

    run = Path(shutil.copytree(trained[0], tmp_path / "run"))
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"]["test"] = 40
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    rates = np.linspace(0, 1, 40)

    def scores(task: Any, shadow: Any, people: Any) -> dict[str, np.ndarray]:
        return {"loss": rates, "weights": rates}

    monkeypatch.setattr(planted, "scores", scores)
    monkeypatch.setattr(planted, "trace_shadow", lambda *a, **k: planted.Shadow(None, None, 3))  # type: ignore[arg-type]
    result = halfmask("audit", run, "--canaries", 40)
    assert result.code == 0 and "40 people with another's joints" in " ".join(result.out.split()), result.err
    body = json.loads((run / "audit" / "planted.json").read_text())
    assert body["planted"] == 40 and (run / "audit" / "planted.png").is_file()
    assert "planted people be found" in (run / "audit" / "index.html").read_text()
    monkeypatch.setattr(planted, "guess", lambda scores, present, made: Guesses(40, made, made))
    refuted = halfmask("audit", run, "--canaries", 40)
    assert refuted.code == 1 and "FAIL feature-projective: ε = 0.8 was claimed" in " ".join(refuted.out.split())
    assert "at least 40" in halfmask("audit", run, "--canaries", 10).error
    config["data"]["name"] = str(exported)
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    assert "--spend" in halfmask("audit", run, "--canaries", 40).error


def test_inversion_and_views_write_their_pages(halfmask: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inversion, "SIZE", (48, 32))
    monkeypatch.setattr(inversion.FirstLayerNetwork.__init__, "__defaults__", ((48, 32), 0))
    monkeypatch.setattr(views, "QUICK", views.Effort(60, 4, 2, 0, 0))
    first = halfmask("audit", "inversion", "--epsilons", "0.8", "--people", 1, "--out", tmp_path)
    second = halfmask("audit", "view", "--view", "constant", "--quick", "--out", tmp_path)
    assert first.code == second.code == 0, first.err + second.err
    assert (tmp_path / "inversion.png").is_file() and "clipped, no noise" in first.out and "constant" in second.out
    page = (tmp_path / "index.html").read_text()
    assert "can a person be drawn again" in page and "what does ψ give away" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mechanism", "--method", "dpsdg"), "did you mean 'dpsgd'"),
        (("mechanism", "--method", "non-private"), "no mechanism"),
        (("mechanism", "--epsilon", "-1"), "epsilon is -1"),
        (("mechanism", "--set", "batch=1"), "canaries can be sent through"),
        (("mechanism", "--method", "dpsgd", "--set", "private.residual=true"), "use feature"),
        (("model", "nowhere"), "no run at nowhere"),
        (("nowhere",), "no run at nowhere"),
        (("view", "--view", "blurr"), "blur"),
        (("inversion", "--epsilons", "x"), "--epsilons"),
    ],
)
def test_mistakes_are_one_line(halfmask: Callable[..., Any], arguments: tuple[str, ...], words: str) -> None:
    assert words in halfmask("audit", *arguments).error


def test_views_of_your_own_people(halfmask, folder, tmp_path, monkeypatch, shared_home) -> None:
    path = folder / "annotations.json"
    body = json.loads(path.read_text())
    for number, record in enumerate(one for one in body["records"] if one["split"] == "private"):
        record["subject"] = f"jane-{number % 3}"
    path.write_text(json.dumps(body))
    monkeypatch.setattr("halfmask.audit.views.QUICK", replace(views.QUICK, crops=20, subjects=3, restorer_steps=2))
    monkeypatch.chdir(tmp_path)
    result = halfmask("audit", "view", "--data", folder, "--view", "constant", "--quick")
    assert result.code == 0, result.err
    assert "reads private people" in result.err and "not for release" in result.out
    found = shared_home / "audits" / f"view-{folder.name}"
    written = json.loads(next(found.glob("*.json")).read_text())
    assert written["dataset"] == folder.name and written["subjects"] == 3 and written["not_for_release"]
    # Neither in the working folder nor readable by others, and nobody is named.
    assert not (tmp_path / "audits").exists() and next(found.glob("*.json")).stat().st_mode & 0o077 == 0
    assert "jane" not in json.dumps(written)
    assert "does not say who is who" in halfmask("audit", "view", "--data", _nameless(folder), "--quick").error


def _nameless(folder: Path) -> Path:
    path = folder / "annotations.json"
    body = json.loads(path.read_text())
    for record in body["records"]:
        record.pop("subject", None)
    path.write_text(json.dumps(body))
    return folder
