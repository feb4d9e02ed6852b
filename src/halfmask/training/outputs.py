"""The run folder: the only place through which anything of a run leaves.

Everything written here is released, so it must be public, differentially private, or noised and accounted. The private loss, gradient
norms, the share clipped, counts of non-finite values, realised batch sizes and durations (which follow batch sizes) are none of these:
`log` refuses any field that is not on its list.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors.torch import save_file
from torch import nn

from halfmask.errors import HalfmaskError
from halfmask.privacy.certificate import Certificate
from halfmask.privacy.home import private_folder
from halfmask.training.config import RunConfig

# What a log line may carry, and why: planned parameters and ε are public; losses here are on public people; a basis is made of
# public gradients alone.
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
        "clip_norm",
    }
)


class RunFolder:
    """Writes a run's released files."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> RunFolder:
        """Start a new run folder; one that holds a run already is never overwritten."""
        check_folder(path, config, resume=False)
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.yaml").write_text(config.to_yaml())
        return cls(path)

    def log(self, event: str, **values: Any) -> None:
        """Append a line to `log.jsonl`."""
        forbidden = values.keys() - LOGGABLE
        if forbidden:
            raise HalfmaskError(f"a run may not log {', '.join(sorted(forbidden))}: it is not public (see halfmask.training.outputs)")
        with (self.path / "log.jsonl").open("a") as file:
            file.write(json.dumps({"event": event} | {name: _no_nan(value) for name, value in values.items()}, allow_nan=False) + "\n")

    def log_unsafe(self, **values: Any) -> None:
        """Append private values to `unsafe_diagnostics.jsonl`. The run that calls this has no guarantee, and its certificate says so."""
        with (self.path / "unsafe_diagnostics.jsonl").open("a") as file:
            file.write(json.dumps(values) + "\n")

    def draft_model(self, model: nn.Module) -> str:
        """Write the weights beside their place, and return the SHA-256 of the file: what a certificate is then written about."""
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
        save_file(state, self._draft)
        return hashlib.sha256(self._draft.read_bytes()).hexdigest()

    def release_model(self) -> None:
        """Put the drafted weights in their place: after their certificate, so that none ever stands beside weights of more steps."""
        os.replace(self._draft, self.path / "model.safetensors")

    def save_model(self, model: nn.Module) -> None:
        """Weights that nothing is certified about: those of public people alone."""
        self.draft_model(model)
        self.release_model()

    @property
    def _draft(self) -> Path:
        return self.path / "model.safetensors.draft"

    def withdraw(self) -> None:
        """Take back what was said about the weights so far: a run that goes on will say something else."""
        for name in ("certificate.json", "certificate.md", "metrics.json"):
            (self.path / name).unlink(missing_ok=True)

    def save_metrics(self, task: str, dataset: str, split: str, metrics: dict[str, float], per_joint: dict[str, float]) -> None:
        """`metrics.json`; the split must be a public one."""
        body = {
            "task": task,
            "dataset": dataset,
            "split": split,
            "metrics": _rounded(metrics),
            "per_joint": _rounded(per_joint),
        }
        (self.path / "metrics.json").write_text(json.dumps(body, indent=2) + "\n")

    def save_certificate(self, certificate: Certificate) -> None:
        """`certificate.json` and `certificate.md`."""
        certificate.write(self.path)

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Weights, optimiser state and public sampler: all of it post-processing or public. Replaced whole, never half-written."""
        folder = self.path / "checkpoint"
        folder.mkdir(exist_ok=True)
        draft = folder / "state.pt.draft"
        with draft.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, folder / "state.pt")

    def load_checkpoint(self) -> dict[str, Any]:
        """The last checkpoint."""
        path = self.path / "checkpoint" / "state.pt"
        if not path.is_file():
            raise HalfmaskError(f"{self.path} has no checkpoint to continue from: start a new run with another --out")
        return torch.load(path, map_location="cpu", weights_only=True)


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Keeps a second process off a run's folder. The lock lies in private storage: a run folder holds what is released, and nothing else."""
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    lock = FileLock(private_folder("locks") / f"{name}.lock", timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout:
        raise HalfmaskError(f"another process is at work on {path}: wait for it, or stop it first") from None
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


def _rounded(values: dict[str, float]) -> dict[str, float | None]:
    """JSON has no NaN: a joint that was never annotated has no score."""
    return {name: None if value != value else round(float(value), 4) for name, value in values.items()}
