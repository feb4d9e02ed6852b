"""A folder of runs that nobody trained, and a real server over it, on this machine's own address."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from halfmask.models.simcc import PoseModel
from halfmask.privacy.certificate import Certificate
from halfmask.serve.folder import ServedFolder
from halfmask.serve.server import Serving
from halfmask.tasks.base import Scores
from halfmask.training.config import build_config
from halfmask.training.outputs import RunFolder

SIZE = (64, 48)


def pose_run(
    path: Path, method: str = "dpsgd", epsilon: float = 0.8, seed: int = 0, steps: int | None = 12, ended: bool = True
) -> RunFolder:
    """The folder of a run on drawn people as it would be left, with weights that nobody trained."""
    model = {"size": "nano", "weights": None, "input_size": list(SIZE)}
    settings = {"method": method, "epsilon": epsilon, "seed": seed, "delta": 1e-3, "even_so": True, "batch": 8, "model": model}
    folder = RunFolder.create(path, build_config(settings | {"data": {"private": 40, "public": 60, "test": 8}}, {}))
    if steps is not None:
        folder.log("start", steps=steps, noise_multiplier=1.1, sampling_rate=0.2, expected_batch=8.0, trainable_parameters=100)
        folder.log("epoch", step=4, epoch=1.0, public_loss=5.5, epsilon=0.3, learning_rate=0.1)
    if ended:
        folder.log("epoch", step=steps, epoch=2.0, public_loss=5.2, epsilon=epsilon, learning_rate=0.05)
        torch.manual_seed(seed)
        weights = folder.packed(PoseModel("nano", 16, SIZE))
        folder.save_certificate(certificate(method, epsilon, path.name, hashlib.sha256(weights).hexdigest()))
        folder.save_weights(weights)
        folder.save_metrics("pose", "figures", "test", Scores({"PCKh@0.5": 60.0 + seed, "PCKh@0.1": 10.0}, {"head": 70.0, "hip": 50.0}))
        folder.log("end", step=steps, interrupted=False)
    return folder


def certificate(method: str, epsilon: float, name: str, weights: str) -> Certificate:
    return Certificate(
        method=method,
        unit="crop",
        units=40,
        adjacency="zero-out",
        epsilon={"zero-out": epsilon, "replace-one": 2 * epsilon},
        delta=1e-3,
        accountant="pld",
        noise_multiplier=1.1,
        sampling_rate=0.2,
        steps=12,
        planned_steps=12,
        clip_norm=1.0,
        expected_batch=8.0,
        public_assumptions=["the number of people"],
        noise_source="aes",
        ledger_total=epsilon,
        dataset_fingerprint="f" * 32,
        dataset="figures",
        run="ab12",
        run_name=name,
        weights_sha256=weights,
    )


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


class Client:
    """Asks a server, politely or not."""

    def __init__(self, serving: Serving):
        self.serving, self.port, self.token = serving, serving.port, serving.token
        self.host, self.origin = f"127.0.0.1:{serving.port}", f"http://127.0.0.1:{serving.port}"

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, path: str, body: Any = b"", **changes: str | None) -> Answer:
        """As the server's own page would; a header that is changed to None is left out."""
        headers = {"Origin": self.origin, "X-Halfmask-Token": self.token} | {
            name.replace("_", "-"): value for name, value in changes.items()
        }
        return self.ask("POST", path, body, {name: value for name, value in headers.items() if value is not None})

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def raw(self, request: bytes, more: Iterable[bytes] = ()) -> Answer:
        """Bytes as they stand, then as many pieces as the server takes before it answers."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            try:
                connection.sendall(request)
                for piece in more:
                    connection.sendall(piece)
            except OSError:
                pass  # it has answered and hung up
            held = b""
            try:
                while piece := connection.recv(65536):
                    held += piece
                    if b"\r\n\r\n" in held:
                        break
            except OSError:
                pass
        return Answer(int(held.split(b" ", 2)[1]) if held else 0, body=held)


@contextmanager
def served(folder: Path) -> Iterator[Client]:
    serving = Serving(ServedFolder(folder), 0)
    thread = threading.Thread(target=serving.run, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not serving.server.started and time.monotonic() < until:
        time.sleep(0.02)
    assert serving.server.started
    try:
        yield Client(serving)
    finally:
        serving.server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that are done, and one that is training."""
    folder = tmp_path_factory.mktemp("served") / "runs"
    pose_run(folder / "first")
    pose_run(folder / "second", "feature-projective", 0.4, seed=1)
    pose_run(folder / "growing", "dpsgd", 0.2, ended=False)
    return folder


@pytest.fixture(scope="module")
def client(runs: Path) -> Iterator[Client]:
    with served(runs) as client:
        yield client


@pytest.fixture
def serve() -> Callable[[Path], Any]:
    return served


@pytest.fixture
def make_run() -> Callable[..., RunFolder]:
    return pose_run


@pytest.fixture(scope="session")
def picture() -> bytes:
    """A photograph of nobody."""
    coarse = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    return cv2.imencode(".png", cv2.resize(coarse, (90, 120), interpolation=cv2.INTER_CUBIC))[1].tobytes()


@pytest.fixture
def awaited() -> Callable[[Any], Any]:
    """The result of a coroutine, in a thread of its own: a browser that is open keeps this one's loop running."""

    def run(coroutine: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, coroutine).result()

    return run
