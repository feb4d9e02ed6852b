"""The run folder: the only place through which anything of a run leaves.

Everything written here is released, so it must be public, differentially private, or noised and accounted. The private loss, gradient
norms, the share clipped, counts of non-finite values, realised batch sizes and durations (which follow batch sizes) are none of these:
`log` refuses any field that is not on its list.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

from halfmask.errors import HalfmaskError
from halfmask.privacy.certificate import Certificate
from halfmask.privacy.guest import host
from halfmask.privacy.home import folder_lock
from halfmask.tasks.base import Scores
from halfmask.training.config import RunConfig
from halfmask.writing import append_line, write_whole, writing

# What a log line may carry, and why: planned parameters, ε and the number of test records are public; losses here are on public people;
# a basis is made of public gradients alone.
LOGGABLE = frozenset(
    {
        "event",
        "step",
        "steps",
        "epoch",
        "epsilon",
        "public_loss",
        "learning_rate",
        "noise_multiplier",
        "sampling_rate",
        "expected_batch",
        "test_records",
    }
    | {
        "subspace_dim",
        "spectrum",
        "eigengap",
        "captured_energy",
        "subspace_parameters",
        "private_share",
        "private_signal",
        "trainable_parameters",
        "interrupted",
        "came_to_nothing",
        "clip_norm",
    }
)
CALIBRATION = "calibration.json"
CARD = "model_card.md"
# What `metrics.json` says of every task: no table of a task's own takes the place of any of it.
_TAKEN = frozenset({"task", "dataset", "split", "metrics", "parts"})


class RunFolder:
    """Writes a run's released files, each of them whole or not at all."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> RunFolder:
        """Start a new run folder; one that holds a run already is never overwritten."""
        check_folder(path, config, resume=False)
        folder = cls(path)
        with folder._writing("config.yaml") as place:
            path.mkdir(parents=True, exist_ok=True)
            write_whole(place, config.to_yaml().encode())
        return folder

    def log(self, event: str, **values: Any) -> None:
        """Append a line to `log.jsonl`."""
        forbidden = values.keys() - LOGGABLE
        if forbidden:
            raise HalfmaskError(f"a run may not log {', '.join(sorted(forbidden))}: it is not public (see halfmask.training.outputs)")
        with self._writing("log.jsonl") as path:
            append_line(path, json.dumps({"event": event} | {name: _no_nan(value) for name, value in values.items()}, allow_nan=False))

    def log_unsafe(self, **values: Any) -> None:
        """Append private values to `unsafe_diagnostics.jsonl`. The run that calls this has no guarantee, and its certificate says so."""
        with self._writing("unsafe_diagnostics.jsonl") as path:
            append_line(path, json.dumps(values))

    @staticmethod
    def packed(model: nn.Module) -> bytes:
        """The released weights as a file's bytes, whose SHA-256 a certificate is written about before they are put in place."""
        return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()})

    def save_weights(self, body: bytes) -> None:
        """Put packed weights in their place: after their certificate, so that none ever stands beside weights of more steps."""
        with self._writing("model.safetensors") as path:
            write_whole(path, body)

    def save_model(self, model: nn.Module) -> None:
        """Weights that nothing is certified about: those of public people alone."""
        self.save_weights(self.packed(model))

    def withdraw(self) -> None:
        """Take back what was said about the weights so far: a run that goes on will say something else."""
        for name in ("certificate.json", "certificate.md", "metrics.json", CALIBRATION, CARD):
            with self._writing(name) as path:
                path.unlink(missing_ok=True)

    def save_metrics(self, task: str, dataset: str, split: str, scores: Scores) -> None:
        """`metrics.json`; the split must be a public one."""
        body = {"task": task, "dataset": dataset, "split": split} | scores_body(scores)
        with self._writing("metrics.json") as path:
            write_whole(path, (json.dumps(body, indent=2) + "\n").encode())

    def save_calibration(self, body: Mapping[str, Any]) -> None:
        """`calibration.json`: what scores are worth, by public people alone; none where a task or its public people have nothing to say."""
        if body:
            with self._writing(CALIBRATION) as path:
                write_whole(path, (json.dumps(body, indent=2) + "\n").encode())

    def save_card(self) -> None:
        """`model_card.md`, made of the files that are in the folder already: it says nothing that was not released."""
        # Pages are the report's, which is not needed to train.
        from halfmask.report.model_card import model_card

        with self._writing(CARD) as path:
            write_whole(path, model_card(self.path).encode())

    def save_certificate(self, certificate: Certificate) -> None:
        """`certificate.json` and `certificate.md`."""
        with self._writing("certificate.json"):
            certificate.write(self.path)

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Weights, optimiser state and public sampler: all of it post-processing or public. Replaced whole, never half-written."""
        body = io.BytesIO()
        torch.save(state, body)
        with self._writing("checkpoint/state.pt") as path:
            path.parent.mkdir(exist_ok=True)
            write_whole(path, body.getbuffer())

    @contextmanager
    def _writing(self, name: str) -> Iterator[Path]:
        """The place of a file, and what to say if it cannot be written."""
        goes_on = (self.path / "checkpoint" / "state.pt").is_file()
        then = f"go on with 'halfmask train --resume --out {self.path}'" if goes_on else "start again with another --out"
        with writing(self.path / name, then):
            yield self.path / name

    def load_checkpoint(self) -> dict[str, Any]:
        """The last checkpoint."""
        path = self.path / "checkpoint" / "state.pt"
        if not path.is_file():
            raise HalfmaskError(f"{self.path} has no checkpoint to continue from: start a new run with another --out")
        return torch.load(path, map_location="cpu", weights_only=True)


class Unwritten(RunFolder):
    """The folder of a run, to a process of it that writes nothing there: another one does."""

    def log(self, event: str, **values: Any) -> None:  # noqa: D102
        pass


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Keeps a second process off a run's folder.

    The lock lies in private storage: a run folder holds what is released, and nothing else.
    """
    if host() is not None:
        # Whoever sent this run out holds the folder for it, in the home that everybody else who might want it looks into.
        yield
        return
    lock = folder_lock(path)
    try:
        yield
    finally:
        lock.release()


def check_folder(path: Path, config: RunConfig, resume: bool) -> None:
    """Refuse to overwrite a run, or to continue one under other settings."""
    settings = path / "config.yaml"
    if not resume:
        if settings.exists():
            raise HalfmaskError(f"{path} already holds a run: choose another --out, or continue it with --resume")
    elif not settings.is_file():
        raise HalfmaskError(f"{path} holds no run to go on with: it has no config.yaml")
    elif settings.read_text() != config.to_yaml():
        raise HalfmaskError(f"{path} was started with other settings: resume with the ones in its config.yaml")


def _no_nan(value: Any) -> Any:
    """JSON has no NaN or infinity; training that diverged is no reason for a log that cannot be read."""
    if isinstance(value, list):
        return [_no_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def scores_body(scores: Scores) -> dict[str, Any]:
    """Scores as a file holds them: the parts also under a task's own word for them, and a task's tables as they stand."""
    parts = _rounded(scores.parts)
    body = {"metrics": _rounded(scores.metrics), "parts": parts} | ({scores.table: parts} if scores.table else {})
    return body | {name: _no_nan(list(table)) for name, table in scores.tables.items() if name not in _TAKEN}


def _rounded(values: dict[str, float]) -> dict[str, float | None]:
    """JSON has no NaN: a joint that was never annotated has no score."""
    return {name: None if value != value else round(float(value), 4) for name, value in values.items()}
