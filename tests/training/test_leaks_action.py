"""What leaves the building, of clips: no file of a run changes with protected pixels, but for what noise covers."""

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

import halfmask.training.running as running
from halfmask.data.clips import ClipRecords
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import PRIVATE, REST, Datasets
from halfmask.tasks.action import ActionTask
from halfmask.training.config import RunConfig, build_config
from halfmask.training.loop import Trainer
from halfmask.training.public import PublicHalf
from halfmask.training.running import run_training

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread", "tiny_mvit")
Clips = Callable[..., ClipRecords]
# A mechanism stands before these: they are functions of noised steps.
PARTLY = {"model.safetensors", "checkpoint/state.pt", "metrics.json", "log.jsonl", "model_card.md"}


def config_of(method: str, strategy: str, *assignments: str) -> RunConfig:
    recipe = {
        "task": "action",
        "method": method,
        "strategy": strategy,
        "epsilon": 5.0,
        "delta": 1e-3,
        "batch": 4,
        "epochs": 1,
        "insecure_seed": 1,
        "even_so": True,
        "model": {"size": "tiny", "weights": None, "frames": 4, "side": 32},
        "view": {"name": "tokens"},
        "subspace": {"samples": 4, "dim": 2},
    }
    return build_config(recipe, {}, list(assignments))


def altered(records: ClipRecords) -> ClipRecords:
    """Every protected pixel another one; labels, masks and everything public as they were."""
    rows = np.arange(len(records))
    clips, hidden = records.private.rows(rows)["clip"], records.truth.rows(rows)["hidden"]
    clips = np.where(hidden[:, :, None], 255 - clips, clips)
    return replace(records, private=records.private.changed(clip=clips), key=f"{records.key}/altered", prints=None)  # type: ignore[attr-defined]


def outputs(config: RunConfig, folder: Path, clips: Clips, change: bool, kind: type[Trainer]) -> dict[str, bytes]:
    """Every file of a run; keyed hashes, the date and what is named by noised weights are blanked."""

    def load(task: ActionTask, report: Any = None) -> Datasets:
        private = altered(clips(12)) if change else clips(12)
        parts = [task.with_tokens(part) for part in (private, clips(16, seed=7), clips(4, seed=8))]
        return Datasets(*parts, "clips", fingerprints_of(parts[0]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALFMASK_HOME", str(folder.parent / f"home of {folder.name}"))
        patch.setattr(ActionTask, "load", load)
        patch.setattr(running, "Trainer", kind)
        patch.setattr(secrets, "token_hex", lambda count: "ab" * count)
        run_training(config, folder)
    certificate = json.loads((folder / "certificate.json").read_text())
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    state = torch.load(folder / "checkpoint" / "state.pt", weights_only=True)
    state["plan"]["dataset"] = state["plan"]["set of annotations"] = "-"
    whole = io.BytesIO()
    torch.save(state, whole)
    found["checkpoint/state.pt"] = whole.getvalue()
    released = certificate["weights_sha256"] if config.method != "public-only" else ""
    blanks = (certificate["dataset_fingerprint"], certificate["ledger_hash"], certificate["ledger_hash"][:16], certificate["date"])
    for blank in filter(None, (*blanks, released, folder.name)):
        found = {name: body.replace(blank.encode(), b"-") for name, body in found.items()}
    return found


def nothing_protected_leaves(config: RunConfig, folder: Path, clips: Clips, kind: type[Trainer] = Trainer) -> bool:
    first, second = (outputs(config, folder / name, clips, change, kind) for name, change in (("as it is", False), ("altered", True)))
    free = set() if config.method == "public-only" else PARTLY
    if first.keys() != second.keys() or any(first[name] != second[name] for name in first.keys() - free):
        return False
    logs = ([json.loads(line) for line in (folder / name / "log.jsonl").read_text().splitlines()] for name in ("as it is", "altered"))
    for one, other in zip(*logs, strict=True):
        # Losses of public people under noised weights, and lengths of what the mechanism released.
        noised = {"public_loss", "private_share", "private_signal"} | (
            {"spectrum", "eigengap", "captured_energy"} if one.get("step") else set()
        )
        if one.keys() != other.keys() or any(one[name] != other[name] for name in one.keys() - (noised if free else set())):
            return False
    return True


@pytest.mark.parametrize("strategy", ["finetune", "full"])
@pytest.mark.parametrize(
    ("method", "settings"), [("public-only", ("view.options.edges=cleared",)), ("masked", ()), ("masked-projective", ())]
)
def test_nothing_protected_leaves(method: str, settings: tuple[str, ...], strategy: str, tmp_path: Path, random_clips: Clips) -> None:
    """Under public-only not a bit of anything, weights among them."""
    config = config_of(method, strategy, "augment.times=1", "augment.copies=1", *settings)
    assert nothing_protected_leaves(config, tmp_path, random_clips)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("as it is", "altered")]
    assert (weights[0] == weights[1]) == (method == "public-only"), "what is protected is learnt, through the mechanism"


class ShowsTheRest(PublicHalf):
    def batch(self) -> Any:
        return self.setup.private.batch(self.samplers["view"].draw(), REST if self.setup.private.rest is not None else PRIVATE)


class LearnsExactlyFromTheRest(Trainer):
    def __init__(self, *parts: Any):
        super().__init__(*parts)
        self.exact = ShowsTheRest(self.setup, self.engine, self.exact.showing)


class LogsTheLossOfTheRest(Trainer):
    def _end_epoch(self) -> None:
        with torch.no_grad():
            loss = float(self.setup.task.loss(self.setup.model, self.setup.private.batch(np.arange(4), REST)).mean())
        self.folder.log("epoch", step=self.standing.step, learning_rate=loss)
        super()._end_epoch()


@pytest.mark.parametrize(("method", "fault"), [("public-only", LearnsExactlyFromTheRest), ("masked", LogsTheLossOfTheRest)])
def test_the_sentinel_sees_planted_leaks(method: str, fault: type[Trainer], tmp_path: Path, random_clips: Clips) -> None:
    assert not nothing_protected_leaves(config_of(method, "full"), tmp_path, random_clips, fault)
