from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import method_named
from halfmask.tasks.base import Task, task_named
from halfmask.training.config import RunConfig
from halfmask.training.distributed import Group
from halfmask.training.progress import Progress
from halfmask.training.shares import loaded_in_shares

Build = Callable[..., Any]


class Two(Group):
    """Two processes, of which this one is the first and never meets the other."""

    size, sharded = 2, True


class Unshared(Task):
    def loss(self, model: Any, batch: Any) -> Any:
        return None


def refused(config: RunConfig, task: Task | None = None, given: Any = None) -> str:
    with pytest.raises(HalfmaskError) as error:
        loaded_in_shares(config, method_named(config.method), task or task_named(config.task)(config), given, Progress(), Two())
    return str(error.value)


def test_what_needs_everybody_in_one_process_is_refused(tiny_config: Build) -> None:
    assert "subspace.views" in refused(tiny_config("subspace.views=4", method="feature-projective"))
    assert "subspace.source=private" in refused(tiny_config("subspace.source=private", method="projected"))
    assert "rehearsal" in refused(tiny_config("rehearsal=true", method="feature"))


def test_datasets_that_cannot_be_shared_are_refused(tiny_config: Build) -> None:
    config = tiny_config()
    assert "leave --shard-private out" in refused(config, Unshared(config))
    assert "leave --shard-private out" in refused(config, given=object())


def run(out: Path, settings: list[str], homes: list[Path], *more: str) -> list[subprocess.CompletedProcess[str]]:
    """One process for each home, all of one run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "halfmask", "train", "--out", str(out), *settings, *more]
    started = []
    for rank, home in enumerate(homes):
        place = {"RANK": str(rank), "WORLD_SIZE": str(len(homes)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        environment = os.environ | {"HALFMASK_HOME": str(home), "OMP_NUM_THREADS": "1"} | (place if len(homes) > 1 else {})
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    ended = [(one, one.communicate(timeout=300)) for one in started]
    return [subprocess.CompletedProcess(command, one.returncode, *said) for one, said in ended]


def test_two_machines_with_homes_of_their_own_open_their_shares_and_pay_from_one_account(lsp_folder: Build, tmp_path: Path) -> None:
    folder = lsp_folder(count=9)
    settings = [
        *("--method", "feature", "--epochs", "0.5", "--batch", "4", "--insecure-seed", "1", "--accountant", "rdp", "--even-so"),
        *("--delta", "1e-3", "--data", str(folder), "--strategy", "top"),
        *(
            "--set",
            "data.splits.private=1-7",
            "--set",
            "data.splits.test=8-9",
            "--set",
            "model.weights=null",
            "--set",
            "public.raw_share=0",
        ),
        *("--set", "model.input_size=[64, 48]"),
    ]
    homes = [tmp_path / name for name in ("root", "other")]
    both = run(tmp_path / "both", settings, homes, "--shard-private")
    assert [one.returncode for one in both] == [0, 0], [one.stderr for one in both]
    assert not both[1].stdout and not both[1].stderr.strip(), "one speaks for all"
    (alone,) = run(tmp_path / "alone", settings, [tmp_path / "root"])
    assert alone.returncode == 0, alone.stderr
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("both", "alone")]
    assert all(np.allclose(weights[0][name], weights[1][name], atol=1e-6) for name in weights[0])
    certificates = [json.loads((tmp_path / name / "certificate.json").read_text()) for name in ("both", "alone")]
    assert certificates[0]["dataset_fingerprint"] == certificates[1]["dataset_fingerprint"], "one account, however it is opened"
    assert list((homes[0] / "ledgers").glob("*.jsonl")) and not list(homes[1].rglob("*.jsonl")), "root alone has a ledger"
    assert not (homes[1] / "fingerprint.key").exists(), "and fingerprints are under its key"
