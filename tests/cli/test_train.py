from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from halfmask.privacy.ledger import Ledger
from halfmask.training import loop, running

FILES = {"config.yaml", "metrics.json", "log.jsonl", "certificate.json", "certificate.md", "model.safetensors", "checkpoint"} | {
    "calibration.json",
    "model_card.md",
}


def test_writes_the_run_folder_and_a_summary(trained) -> None:
    out, result = trained
    assert result.code == 0, result.err
    assert {path.name for path in out.iterdir()} == FILES
    assert "PCKh@0.5" in result.out and "PCKh@0.1" in result.out
    assert "ε = 0.8   δ = 1e-05   (zero-out, one crop of 40)" in result.out
    assert str(out / "certificate.md") in result.out
    assert "training: 3 of 3  public loss" in result.err


def test_flags_reach_the_settings(trained, recipe) -> None:
    out, _ = trained
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert (config["method"], config["seed"], config["batch"]) == ("feature-projective", 3, 8)


def test_every_flag_has_its_field(halfmask, recipe, monkeypatch, tmp_path) -> None:
    seen = {}

    def note_config(config, out, progress, resume, joining):
        seen["config"] = config
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "run_training", note_config)
    flags = "--method dpsgd --epsilon 0.3 --delta 1e-6 --clip 0.7 --strategy full --epochs 2 --batch 5 --adjacency replace-one"
    flags += " --unit image --accountant pld --seed 9 --insecure-seed 4 --data some/folder --device cpu --threads 1"
    result = halfmask("train", recipe, *flags.split(), "--set", "optimiser.learning_rate=0.25", "--set", "batch=6", "--out", tmp_path / "r")
    assert result.code == 130
    c = seen["config"]
    assert (c.method, c.epsilon, c.delta, c.clip_norm, c.strategy, c.epochs) == ("dpsgd", 0.3, 1e-6, 0.7, "full", 2)
    assert (c.adjacency, c.unit, c.accountant, c.seed, c.insecure_seed) == ("replace-one", "image", "pld", 9, 4)
    assert (c.data.name, c.data.private, c.device, c.optimiser.learning_rate) == ("some/folder", 40, "cpu", 0.25)
    assert c.batch == 6, "--set wins over flags"


def test_json_is_all_there_is_on_standard_output(halfmask, recipe, tmp_path) -> None:
    result = halfmask("train", recipe, "--method", "public-only", "--out", tmp_path / "r", "--json")
    body = json.loads(result.out)
    assert result.code == 0 and body["run"] == str(tmp_path / "r")
    assert body["certificate"]["epsilon"]["zero-out"] == 0
    assert "pckh@0.5" in body["metrics"]["metrics"]


def test_default_folder_names_recipe_and_method(halfmask, recipe, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert halfmask("train", recipe, "--method", "non-private").code == 0
    (made,) = (tmp_path / "runs").iterdir()
    assert made.name.startswith("tiny-non-private-2")


def test_interrupt_leaves_an_honest_folder_that_resumes(halfmask, recipe, tmp_path, monkeypatch) -> None:
    out = tmp_path / "r"
    steps = []
    real = loop.Trainer.take_step

    def stop_before_the_second(trainer):
        if len(steps) == 1:
            steps.append("stopped")
            raise KeyboardInterrupt
        steps.append("taken")
        real(trainer)

    monkeypatch.setattr(loop.Trainer, "take_step", stop_before_the_second)
    result = halfmask("train", recipe, "--method", "dpsgd", "--out", out)
    assert result.code == 130
    assert f"halfmask train --resume --out {out}" in result.err and "Traceback" not in result.err
    assert {path.name for path in out.iterdir()} == FILES
    before = json.loads((out / "certificate.json").read_text())
    assert before["steps"] == 2 and before["planned_steps"] == 3, "one step taken, one paid for"

    result = halfmask("train", "--resume", "--out", out)
    assert result.code == 0, result.err
    after = json.loads((out / "certificate.json").read_text())
    assert after["steps"] == 3 and after["epsilon"]["zero-out"] <= 0.8
    spends = Ledger(after["dataset_fingerprint"]).spends()
    assert sum(spend.steps for spend in spends if spend.run == spends[-1].run) == 3


def test_interrupt_before_the_first_step_leaves_nothing(halfmask, recipe, tmp_path, monkeypatch) -> None:
    def stop(config, progress, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "prepare", stop)
    result = halfmask("train", recipe, "--out", tmp_path / "r")
    assert result.code == 130 and "nothing was spent" in result.err
    assert not (tmp_path / "r").exists()


def test_a_mended_command_may_use_the_same_folder(halfmask, recipe, tmp_path) -> None:
    out = tmp_path / "r"
    assert "the batch is 41" in halfmask("train", recipe, "--method", "dpsgd", "--batch", 41, "--out", out).error
    assert not out.exists()


def test_resume_refuses_other_settings(halfmask, trained, tmp_path) -> None:
    out = Path(shutil.copytree(trained[0], tmp_path / "r"))
    assert "started with other settings" in halfmask("train", "--resume", "--out", out, "--epsilon", 0.9).error
    assert "add --out" in halfmask("train", "--resume").error
    assert "no config.yaml" in halfmask("train", "--resume", "--out", tmp_path / "none").error


@pytest.mark.parametrize("method", ["dpsgd", "feature"])
def test_trains_on_a_folder_by_subject(halfmask, recipe, exported, tmp_path, method) -> None:
    out = tmp_path / "r"
    result = halfmask("train", recipe, "--data", exported, "--method", method, "--unit", "subject", "--batch", 2, "--out", out)
    assert result.code == 0, result.err
    assert json.loads((out / "certificate.json").read_text())["unit"] == "subject"
    assert json.loads((out / "metrics.json").read_text())["dataset"] == str(exported)


def test_a_hopeless_plan_is_refused_and_leaves_no_trace(halfmask, recipe, tmp_path, fresh_home, quick_accounting) -> None:
    start = ("train", recipe, "--method", "dpsgd", "--out", tmp_path / "r", "--set", "even_so=false")
    error = halfmask(*start).error
    assert "this plan cannot work" in error and "--even-so" in error and "--method projected" in error
    assert not (tmp_path / "r").exists()
    assert not [path for path in fresh_home.rglob("*") if path.suffix in (".jsonl", ".records") or path.name == "index"]
    result = halfmask("train", recipe, "--method", "dpsgd", "--out", tmp_path / "r", "--even-so")
    assert result.code == 0 and "warning: 40 crops" in result.err, "what was refused is still said"
