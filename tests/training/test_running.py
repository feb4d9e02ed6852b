"""Whole runs: what they pay, what they write, what they certify, and how they stop and go on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import halfmask.training.loop as loop
import halfmask.training.private as private_half
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import METHODS
from halfmask.models.pose import build_model
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.ledger import Ledger
from halfmask.privacy.sampling import PoissonSampler
from halfmask.tasks.pose import PoseTask
from halfmask.training.config import RunConfig
from halfmask.training.outputs import LOGGABLE
from halfmask.training.progress import Progress
from halfmask.training.running import run_training

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
Build = Callable[..., RunConfig]


ALLOWED = {
    "config.yaml",
    "metrics.json",
    "log.jsonl",
    "certificate.json",
    "certificate.md",
    "model.safetensors",
    "calibration.json",
    "model_card.md",
    "checkpoint/state.pt",
}


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def log_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def ledger_in(home: Path) -> Ledger:
    """The one ledger of a home that has seen one dataset."""
    names = {path.stem for path in (home / "ledgers").glob("*.jsonl")}
    assert len(names) <= 1
    return Ledger(names.pop() if names else "nothing was spent")


def ledger_blocks(patch: pytest.MonkeyPatch, steps: int) -> None:
    """Let runs write this many steps ahead at once, however short they are."""
    patch.setattr(loop, "_LEDGER_SHARE", 1.0)
    patch.setattr(loop, "_LEDGER_BLOCK", steps)


def secure(config: RunConfig) -> RunConfig:
    """With coins and noise that nobody can repeat: those of a seed have no bound, and the ledger says so."""
    return replace(config, insecure_seed=None)


@pytest.mark.parametrize("method", PoseTask.methods)
def test_every_method_runs(method: str, tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    config = secure(tiny_config(method=method))
    folder = run_training(config, tmp_path / "run")
    assert files(folder).keys() == ALLOWED
    assert (folder / "config.yaml").read_text() == config.to_yaml()
    certificate = json.loads((folder / "certificate.json").read_text())
    spends = ledger_in(fresh_home).spends()
    assert certificate["steps"] == certificate["planned_steps"] == 2 and certificate["expected_batch"] == 8
    if method == "non-private":
        assert set(certificate["epsilon"].values()) == {"infinity"} and certificate["ledger_total"] == "infinity"
        assert certificate["unaccounted_reads"] and sum(spend.steps for spend in spends) == 2
    elif method == "public-only":
        # Views and labels were read: whoever is removed from the dataset would be missed.
        assert certificate["epsilon"] == {"zero-out": 0.0, "replace-one": 0.0} and certificate["ledger_total"] == 0.0
        assert spends == [] and not certificate["unaccounted_reads"]
    else:
        assert 0 < certificate["epsilon"]["zero-out"] <= config.epsilon
        assert certificate["epsilon"]["replace-one"] > certificate["epsilon"]["zero-out"]
        assert ("add-remove" in certificate["epsilon"]) == (method in ("dpsgd", "projected"))
        assert certificate["ledger_total"] == pytest.approx(certificate["epsilon"]["zero-out"], rel=1e-3)
        assert "operating system" in certificate["noise_source"]
        assert sum(spend.steps for spend in spends) == 2 and {spend.sampling_rate for spend in spends} == {0.2}
    trained = load_file(folder / "model.safetensors")
    assert trained.keys() == build_model(config.model).state_dict().keys()
    assert all(torch.isfinite(tensor).all() for tensor in trained.values())


@pytest.mark.parametrize("method", PoseTask.methods)
def test_the_log_carries_public_fields_only(method: str, tiny_config: Build, tmp_path: Path) -> None:
    lines = log_lines(run_training(tiny_config(method=method), tmp_path / "run"))
    assert {line["event"] for line in lines} >= {"start", "epoch", "end"}
    assert all(line.keys() <= LOGGABLE for line in lines)
    assert any(line["event"] == "subspace" for line in lines) == METHODS[method].projected


def test_the_same_seeds_give_the_same_bytes(tiny_config: Build, tmp_path: Path) -> None:
    runs = {
        name: run_training(tiny_config(method="feature-projective", **seeds), tmp_path / name)
        for name, seeds in {
            "a": {},
            "again": {},
            "other noise": {"insecure_seed": 2},
            "other seed": {"seed": 1},
        }.items()
    }
    bytes_of = {name: (folder / "model.safetensors").read_bytes() for name, folder in runs.items()}
    assert bytes_of["a"] == bytes_of["again"]
    assert len(set(bytes_of.values())) == 3


def test_without_a_seed_no_two_runs_are_alike(tiny_config: Build, tmp_path: Path) -> None:
    config = secure(tiny_config())
    first, second = (run_training(config, tmp_path / name) for name in "ab")
    assert (first / "model.safetensors").read_bytes() != (second / "model.safetensors").read_bytes()
    page = (first / "certificate.json").read_text()
    assert "insecure" not in json.loads(page)["noise_source"] and "operating system" in page


def test_runs_on_one_dataset_add_up(tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    totals = []
    for name in ("a", "b"):
        folder = run_training(secure(tiny_config()), tmp_path / name)
        totals.append(json.loads((folder / "certificate.json").read_text())["ledger_total"])
    assert totals[0] < totals[1] < 2 * totals[0]


@pytest.mark.parametrize("setting", ["unsafe_diagnostics=true", "declared_reads=[chose the clip norm on private people]"])
def test_an_open_read_voids_the_promise(setting: str, tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    folder = run_training(secure(tiny_config(setting)), tmp_path / "run")
    certificate = json.loads((folder / "certificate.json").read_text())
    assert set(certificate["epsilon"].values()) == {"infinity"} == {certificate["ledger_total"]}
    assert len(certificate["unaccounted_reads"]) == 1
    assert ledger_in(fresh_home).total(1e-3, Adjacency.ZERO_OUT) == math.inf
    unsafe = set(files(folder)) - ALLOWED
    assert unsafe == ({"unsafe_diagnostics.jsonl"} if setting.startswith("unsafe") else set())
    assert all(line.keys() <= LOGGABLE for line in log_lines(folder))


def test_a_broken_ledger_stops_a_run_before_it_spends(
    tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    run_training(tiny_config(), tmp_path / "first")
    path = ledger_in(fresh_home).path
    path.write_text(path.read_text().replace('"units": 40', '"units": 4000'))
    monkeypatch.setattr(PoissonSampler, "draw", lambda self: pytest.fail("a private batch was drawn"))
    with pytest.raises(HalfmaskError, match="changed or cut"):
        run_training(tiny_config(), tmp_path / "second")


def test_progress_is_told_public_things_only(tiny_config: Build, tmp_path: Path) -> None:
    """The screen is an output too: what it shows does not move with a private image, but for what noise covers."""
    told: list[tuple] = []

    class Listener(Progress):
        def step(self, *values: Any) -> None:
            told.append(values)

    run_training(tiny_config("data.private=400", epochs=0.25, batch=8), tmp_path / "run", Listener())
    assert [values[0] for values in told] == list(range(1, 14)) and {values[1] for values in told} == {13}
    shown = [values[3] for values in told if values[3] is not None]
    assert len(shown) == 1 and 0 < shown[0] <= 0.8
    assert all(values[2] is None or math.isfinite(values[2]) for values in told)


# ---- stopping and going on -----------------------------------------------------------------------------------------------


class StopsAt(Progress):
    def __init__(self, step: int):
        self.at = step

    def step(self, step: int, total: int, public_loss: float | None, epsilon: float | None) -> None:
        if step == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("block", [1, 2, 50])
@pytest.mark.parametrize("method", ["feature-projective", "public-only"])
def test_an_interrupted_run_is_complete_and_goes_on(
    method: str,
    block: int,
    tiny_config: Build,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fresh_home: Path,
) -> None:
    ledger_blocks(monkeypatch, block)
    opened = []
    real = private_half.open_stream
    monkeypatch.setattr(private_half, "open_stream", lambda *a: opened.append(a) or real(*a))
    config = tiny_config(method=method, epochs=1)
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_training(config, folder, StopsAt(3))
    assert files(folder).keys() == ALLOWED
    certificate = json.loads((folder / "certificate.json").read_text())
    paid = {1: 3, 2: 4, 50: 5}[block] if method != "public-only" else 3
    assert certificate["steps"] == paid and certificate["planned_steps"] == 5
    assert torch.load(folder / "checkpoint" / "state.pt", weights_only=True)["step"] == 3
    assert log_lines(folder)[-1] == {"event": "end", "step": 3, "interrupted": True}
    before = (folder / "model.safetensors").read_bytes()

    run_training(config, folder, resume=True)
    assert files(folder).keys() == ALLOWED
    certificate = json.loads((folder / "certificate.json").read_text())
    spends = ledger_in(fresh_home).spends()
    assert sum(spend.steps for spend in spends) == (5 if method != "public-only" else 0) and len({s.run for s in spends}) <= 1
    assert certificate["steps"] == 5
    if method != "public-only":
        assert set(certificate["epsilon"].values()) == {"infinity"}, "a seed's noise can be subtracted"
        covered = sorted(step for s in spends for step in range(s.first_step, s.last_step + 1))
        assert covered == list(range(5)), "each step paid for once"
        assert [one[:3] for one in opened[-2:]] == [("coins", 1, paid), ("noise", 1, paid)], "noise that was released is never replayed"
    assert ((folder / "model.safetensors").read_bytes() == before) == (block == 50 and method != "public-only")
    assert log_lines(folder)[-1]["interrupted"] is False


def test_a_resumed_public_run_ends_where_an_unbroken_one_does(tiny_config: Build, tmp_path: Path) -> None:
    config = tiny_config(method="public-only", epochs=1)
    whole = run_training(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_training(config, tmp_path / "broken", StopsAt(2))
    run_training(config, tmp_path / "broken", resume=True)
    assert (tmp_path / "broken/model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_crash_is_paid_for_out_of_the_same_budget(
    tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    """Steps taken after the last checkpoint are lost but spent: going on takes fewer, never more."""
    ledger_blocks(monkeypatch, 1)
    config = tiny_config(epochs=2)
    folder = tmp_path / "run"

    class Crashes(StopsAt):
        def step(self, step: int, total: int, public_loss: float | None, epsilon: float | None) -> None:
            if step == self.at:
                raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        run_training(config, folder, Crashes(8))
    assert torch.load(folder / "checkpoint" / "state.pt", weights_only=True)["step"] == 5
    run_training(config, folder, resume=True)
    certificate = json.loads((folder / "certificate.json").read_text())
    assert sum(spend.steps for spend in ledger_in(fresh_home).spends()) == 10 == certificate["steps"]
    assert torch.load(folder / "checkpoint" / "state.pt", weights_only=True)["step"] == 7


def test_resuming_with_other_settings_is_refused(tiny_config: Build, tmp_path: Path) -> None:
    run_training(tiny_config(), tmp_path / "run")
    with pytest.raises(HalfmaskError, match="other settings"):
        run_training(tiny_config(epsilon=3.0), tmp_path / "run", resume=True)
    with pytest.raises(HalfmaskError, match="already holds a run"):
        run_training(tiny_config(), tmp_path / "run")


def test_resuming_nothing_is_refused(tiny_config: Build, tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError):
        run_training(tiny_config(), tmp_path / "absent", resume=True)
