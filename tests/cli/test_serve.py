from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmask.cli import serve as command


def test_ctrl_c_ends_it_cleanly(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "halfmask", "serve", str(tmp_path), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    ending = threading.Timer(60, process.kill)
    ending.start()
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"serving 0 runs of .* at (http://127\.0\.0\.1:\d+/)#token=\S{32}$", said.strip())
        assert found, said
        with urllib.request.urlopen(found[1], timeout=20) as answer:
            assert answer.status == 200
        # A calculation that would take minutes is under way, and is not waited for.
        plan = "size=100000&batch=50&epochs=100&epsilon=1&delta=1e-7"
        host = found[1].split("/")[2]
        with socket.create_connection(("127.0.0.1", int(host.split(":")[1]))) as asking:
            asking.sendall(f"GET /api/account?{plan} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert asking.recv(15) == b"HTTP/1.1 200 OK"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
    finally:
        ending.cancel()
        process.kill()
    assert process.returncode == 0
    assert "Traceback" not in err and err.rstrip().endswith("stopped") and out == ""


def test_a_port_in_use(halfmask: Callable[..., Any], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = halfmask("serve", tmp_path, "--port", taken.getsockname()[1])
    assert "is in use" in result.error and "--port" in result.error


def test_no_such_folder(halfmask: Callable[..., Any], tmp_path: Path) -> None:
    assert "no folder at" in halfmask("serve", tmp_path / "runs").error


def test_private_storage_is_refused(halfmask: Callable[..., Any], shared_home: Path) -> None:
    assert "private storage" in halfmask("serve", shared_home).error


def test_what_is_not_installed_is_named(halfmask: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = command.find_spec
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "starlette" else real(name))
    result = halfmask("serve", tmp_path)
    assert "Starlette" in result.error and "pip install 'halfmask[serve]'" in result.error


def test_the_browser_is_opened_only_if_asked(halfmask: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("halfmask.serve.server.Serving.run", lambda self: self._socket.close())
    assert halfmask("serve", tmp_path, "--port", 0).code == 0
    assert not opened
    result = halfmask("serve", tmp_path, "--port", 0, "--open")
    assert len(opened) == 1 and opened[0] in result.out.replace("\n", "")
