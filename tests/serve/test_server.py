from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmask.errors import HalfmaskError
from halfmask.serve.folder import ServedFolder
from halfmask.serve.server import ADDRESS, Serving


def test_it_listens_on_this_machine_alone(client: Any) -> None:
    assert ADDRESS == "127.0.0.1"
    (listener,) = client.serving.server.servers[0].sockets
    assert listener.getsockname() == ("127.0.0.1", client.port)


def test_a_port_in_use_is_one_line(runs: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(HalfmaskError, match=f"port {port} of this machine is in use.*--port"):
            Serving(ServedFolder(runs), port)


def test_each_start_has_a_token_of_its_own(tmp_path: Path, serve: Callable[..., Any]) -> None:
    with serve(tmp_path) as one, serve(tmp_path) as two:
        assert one.token != two.token
        assert one.serving.address_with_token == f"http://127.0.0.1:{one.port}/#token={one.token}"
        assert one.token not in one.get("/").body.decode()


def test_a_folder_without_runs_says_so(tmp_path: Path, serve: Callable[..., Any]) -> None:
    with serve(tmp_path) as client:
        assert "holds no runs yet" in client.get("/").body.decode()
        assert client.get("/api/live").json()["runs"] == []
        assert "No run here has released a model yet" in client.get("/look").body.decode()


def test_heads_are_answered_without_bodies(client: Any) -> None:
    answer = client.ask("HEAD", "/first/metrics.json")
    assert (answer.status, answer.body) == (200, b"")
