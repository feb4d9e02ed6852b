"""The run folder: only what may leave, written whole."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from halfmask.errors import HalfmaskError
from halfmask.tasks.base import Scores
from halfmask.training.config import RunConfig
from halfmask.training.outputs import LOGGABLE, RunFolder, only_one

PRIVATE = [
    "loss",
    "private_loss",
    "train_loss",
    "norms",
    "gradient_norm",
    "clipped_fraction",
    "nonfinite",
    "batch_size",
    "realised_batch",
    "seconds",
    "duration",
    "time",
    "examples_per_second",
    "insecure_key",
]


def full_disk(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", RunConfig())


@pytest.mark.parametrize("name", PRIVATE)
def test_what_is_private_is_not_logged(folder: RunFolder, name: str) -> None:
    with pytest.raises(HalfmaskError, match=f"may not log {name}"):
        folder.log("epoch", step=3, **{name: 1.0})
    assert not (folder.path / "log.jsonl").exists(), "not even in part"
    assert name not in LOGGABLE


def test_what_is_public_is_logged_a_line_each(folder: RunFolder) -> None:
    folder.log("start", steps=5)
    folder.log("epoch", step=1, public_loss=0.5, epsilon="infinity")
    lines = [json.loads(line) for line in (folder.path / "log.jsonl").read_text().splitlines()]
    assert lines == [
        {"event": "start", "steps": 5},
        {"event": "epoch", "step": 1, "public_loss": 0.5, "epsilon": "infinity"},
    ]


def test_the_list_of_what_may_be_logged_is_this_one() -> None:
    """Growing it is a decision about privacy: make it here too, with the reason in docs/privacy.md."""
    public = {"event", "step", "steps", "epoch", "learning_rate", "trainable_parameters", "interrupted", "test_records"}
    accounted = {"epsilon", "noise_multiplier", "sampling_rate", "expected_batch"}
    on_public_people = {"clip_norm", "public_loss", "subspace_dim", "spectrum", "eigengap", "captured_energy"} | {"subspace_parameters"}
    of_what_was_released = {"private_share", "private_signal", "came_to_nothing"}
    assert public | accounted | on_public_people | of_what_was_released == LOGGABLE


def test_a_run_is_never_overwritten(folder: RunFolder) -> None:
    with pytest.raises(HalfmaskError, match="already holds a run"):
        RunFolder.create(folder.path, RunConfig(batch=3))
    assert (folder.path / "config.yaml").read_text() == RunConfig().to_yaml()


def test_the_model_is_written_whole(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(3, 2)
    folder.save_model(model)
    assert all(torch.equal(t, load_file(folder.path / "model.safetensors")[n]) for n, t in model.state_dict().items())
    before = (folder.path / "model.safetensors").read_bytes()

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(HalfmaskError, match=r"model\.safetensors could not be written: no space is left.*stays on record.*another --out"):
        folder.save_model(nn.Linear(3, 2))
    assert (folder.path / "model.safetensors").read_bytes() == before
    assert not list(folder.path.rglob("*.draft"))


def test_metrics_are_strict_json(folder: RunFolder) -> None:
    folder.save_metrics("pose", "figures", "test", Scores({"PCKh@0.5": 81.23456789}, {"head": math.nan, "neck": 3.0}, "per_joint"))

    def refuse(word: str) -> None:
        raise ValueError(word)

    body = json.loads((folder.path / "metrics.json").read_text(), parse_constant=refuse)
    assert body == {
        "task": "pose",
        "dataset": "figures",
        "split": "test",
        "metrics": {"PCKh@0.5": 81.2346},
        "parts": {"head": None, "neck": 3.0},
        "per_joint": {"head": None, "neck": 3.0},
    }
    folder.save_metrics("ages", "figures", "test", Scores({"loss": 0.5}))
    body = json.loads((folder.path / "metrics.json").read_text())
    assert body == {"task": "ages", "dataset": "figures", "split": "test", "metrics": {"loss": 0.5}, "parts": {}}


def test_tables_of_a_task_stand_beside_its_metrics_and_never_in_their_place(folder: RunFolder) -> None:
    tables = {"confusion": [[3, 1], [0, 2]], "shares": [0.5, math.nan], "metrics": [1], "split": ["train"]}
    folder.save_metrics("action", "figures", "test", Scores({"accuracy": 83.3}, {"walk": 75.0}, tables=tables))
    body = json.loads((folder.path / "metrics.json").read_text())
    assert body["confusion"] == [[3, 1], [0, 2]] and body["shares"] == [0.5, None]
    assert body["metrics"] == {"accuracy": 83.3} and body["split"] == "test"


def test_the_log_is_strict_json_even_when_training_diverges(folder: RunFolder) -> None:
    folder.log("epoch", step=1, public_loss=math.nan)

    def refuse(word: str) -> None:
        raise ValueError(word)

    json.loads((folder.path / "log.jsonl").read_text(), parse_constant=refuse)


def test_checkpoints_are_replaced_whole(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HalfmaskError, match="no checkpoint"):
        folder.load_checkpoint()
    state = {"step": 3, "model": {"w": torch.ones(2)}, "run": "ab"}
    folder.save_checkpoint(state)
    found = folder.load_checkpoint()
    assert found["step"] == 3 and torch.equal(found["model"]["w"], torch.ones(2))

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(HalfmaskError, match=r"state\.pt could not be written: no space is left.*--resume --out"):
        folder.save_checkpoint({"step": 4})
    monkeypatch.undo()
    assert folder.load_checkpoint()["step"] == 3
    assert not list(folder.path.rglob("*.draft"))


def test_a_folder_is_one_folder_however_it_is_spelt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    for other in (Path("run"), tmp_path / "link", tmp_path / "run" / ".." / "run"):
        with only_one(tmp_path / "run"), pytest.raises(HalfmaskError, match="another process"), only_one(other):
            pass
    with only_one(tmp_path / "run"), only_one(tmp_path / "another"):
        pass
