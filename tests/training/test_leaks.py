"""What leaves the building: no file of a run changes with private images, but for what noise covers."""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import halfmask.training.running as running
import halfmask.training.setup as preparation
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import PRIVATE, Datasets
from halfmask.privacy.certificate import Certificate
from halfmask.report.model_card import model_card
from halfmask.tasks.pose import PoseTask, pose_loss
from halfmask.training.certify import certificate_of
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.parts import WATCHED
from halfmask.training.progress import Progress
from halfmask.training.public import PublicHalf
from halfmask.training.running import run_training
from halfmask.training.setup import Setup

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
Build = Callable[..., RunConfig]


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def log_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def outputs(config: RunConfig, folder: Path, kind: type[Trainer], blacken: Callable[[np.ndarray], np.ndarray] | None) -> dict[str, bytes]:
    """Every file of a run, the private images replaced, all that is public kept; fingerprints (keyed hashes) blanked."""
    with pytest.MonkeyPatch.context() as patch:
        load, show = PoseTask.load, preparation.with_view
        originals: dict[str, Any] = {}

        def sentinel(task: PoseTask, report: Any = None) -> Datasets:
            data = load(task, report)
            originals["private"] = private = data.private
            if blacken is not None:
                private = private.changed(images=blacken(np.array(private.images)), key="sentinel")  # type: ignore[attr-defined]
                data = replace(data, private=private, fingerprints=fingerprints_of(private))
            return data

        patch.setenv("HALFMASK_HOME", str(folder.parent / f"home of {folder.name}"))
        patch.setattr(PoseTask, "load", sentinel)
        patch.setattr(preparation, "with_view", lambda records, view: replace(records, public=show(originals["private"], view).public))
        patch.setattr(running, "Trainer", kind)
        patch.setattr(running, "certificate_of", getattr(kind, "certify", certificate_of))
        patch.setattr(secrets, "token_hex", lambda count: "ab" * count)
        run_training(config, folder)
    certificate = json.loads((folder / "certificate.json").read_text())
    # Keyed by the home; the date; and the digest of what noise covers.
    ledger, released = certificate["ledger_hash"], certificate["weights_sha256"] if config.method != "public-only" else ""
    blanks = [certificate["dataset_fingerprint"], ledger, ledger[:16], certificate["date"], released, str(folder.name)]
    found = files(folder)
    state = torch.load(folder / "checkpoint" / "state.pt", weights_only=True)
    state["plan"]["dataset"] = state["plan"]["set of annotations"] = "-"
    whole = io.BytesIO()
    torch.save(state, whole)
    found["checkpoint/state.pt"] = whole.getvalue()
    for blank in filter(None, blanks):
        found = {name: body.replace(blank.encode(), b"-") for name, body in found.items()}
    return found


def one_person_black(images: np.ndarray) -> np.ndarray:
    images[3] = 0
    return images


PARTLY = {"model.safetensors", "checkpoint/state.pt", "metrics.json", "log.jsonl", "calibration.json", "model_card.md"}


def nothing_private_leaves(config: RunConfig, folder: Path, kind: type[Trainer] = Trainer) -> bool:
    """Files that no mechanism stands before do not change with the private images; public-only changes nothing at all."""
    first = outputs(config, folder / "as it is", kind, None)
    second = outputs(config, folder / "black", kind, np.zeros_like if config.method == "public-only" else one_person_black)
    free = set() if config.method == "public-only" else PARTLY
    if first.keys() != second.keys() or any(first[name] != second[name] for name in first.keys() - free):
        return False
    for one, other in zip(log_lines(folder / "as it is"), log_lines(folder / "black"), strict=True):
        noised = {"public_loss"} | ({"spectrum", "eigengap", "captured_energy"} if one.get("step") else set())
        if one.keys() != other.keys() or any(one[name] != other[name] for name in one.keys() - (noised if free else set())):
            return False
    return True


def card_is_of_released_files(folder: Path) -> bool:
    """The card of a private run changes with its weights, so it is held against what its other files make."""
    return model_card(folder) == (folder / "model_card.md").read_text()


def calibration_is_of_public_people(config: RunConfig, folder: Path) -> bool:
    """Made again from the released weights and from public people who were set aside."""
    task = PoseTask(config)
    public, wanted = task.load().public, config.subspace.samples
    assert public is not None
    watched = public.take(np.arange(wanted, wanted + min(WATCHED, (len(public) - wanted) // 2)))
    again = task.confidence(task.open(folder / "model.safetensors").eval(), watched)
    return bool(again) and again == json.loads((folder / "calibration.json").read_text())


class PrivateImages(PublicHalf):
    def batch(self) -> dict[str, Tensor]:
        return self.setup.private.batch(self.samplers["view"].draw(), PRIVATE)


class LooksAtPrivateImages(Trainer):
    def __init__(self, setup: Setup, folder: RunFolder, progress: Progress):
        super().__init__(setup, folder, progress)
        self.exact = PrivateImages(setup, self.engine, self.exact.showing)


class LogsThePrivateLoss(Trainer):
    def _end_epoch(self) -> None:
        records = self.setup.private.batch(np.arange(4))
        with torch.no_grad():
            loss = float(pose_loss(self.setup.model, records).mean())
        self.folder.log("epoch", step=self.standing.step, learning_rate=loss)
        super()._end_epoch()


class CertifiesTheLoss(Trainer):
    @staticmethod
    def certify(setup: Setup, *rest: Any) -> Certificate:
        records = setup.private.batch(np.arange(4))
        with torch.no_grad():
            return replace(certificate_of(setup, *rest), clip_norm=float(pose_loss(setup.model, records).mean()))


class WritesAnotherFile(Trainer):
    def train(self) -> None:
        super().train()
        np.save(self.folder.path / "features.npy", np.array(self.setup.private.images))


@pytest.mark.parametrize("method", ["public-only", "dpsgd", "feature-projective"])
@pytest.mark.parametrize("strategy", ["top", "full"])
def test_nothing_private_leaves(method: str, strategy: str, tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    """With group norm, so that an untrained network already tells images apart."""
    config = tiny_config("model.norm=group", method=method, strategy=strategy)
    assert nothing_private_leaves(config, tmp_path)


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("public-only", LooksAtPrivateImages),
        ("public-only", LogsThePrivateLoss),
        ("dpsgd", LogsThePrivateLoss),
        ("dpsgd", CertifiesTheLoss),
        ("dpsgd", WritesAnotherFile),
    ],
)
def test_the_sentinel_sees_planted_leaks(method: str, fault: type[Trainer], tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    config = tiny_config("model.norm=group", method=method, strategy="full")
    assert not nothing_private_leaves(config, tmp_path, fault)


def test_card_and_calibration_follow_from_what_is_released(tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They change with noised weights, as those do, and with nothing else; planted faults are seen."""
    config = tiny_config("model.norm=group", method="dpsgd", strategy="full")
    run = run_training(config, tmp_path / "run")
    assert card_is_of_released_files(run) and calibration_is_of_public_people(config, run)

    with monkeypatch.context() as patch:
        told, wrote = PoseTask.confidence, RunFolder.save_card
        private: list[Any] = []
        patch.setattr(PoseTask, "confidence", lambda task, model, public, device="cpu": told(task, model, private[0], device))
        patch.setattr(running, "certificate_of", lambda setup, *rest: private.append(setup.private) or certificate_of(setup, *rest))

        def talks(folder: RunFolder) -> None:
            wrote(folder)
            with (folder.path / "model_card.md").open("a") as card:
                card.write(f"{np.mean(private[0].images)}\n")

        patch.setattr(RunFolder, "save_card", talks)
        leaky = run_training(config, tmp_path / "leaky")
    assert not card_is_of_released_files(leaky) and not calibration_is_of_public_people(config, leaky)
