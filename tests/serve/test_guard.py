from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from halfmask.serve.answers import Refused
from halfmask.serve.guard import Guard, hosts_of, new_token


async def inner(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nobody should come here")


def scope(method: str = "GET", path: str = "/", **headers: str) -> dict[str, Any]:
    pairs = {"host": "127.0.0.1:8765"} | {name.replace("_", "-"): value for name, value in headers.items()}
    raw = [(name.encode(), value.encode()) for name, value in pairs.items()]
    return {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": raw}


GUARD = Guard(inner, hosts_of(8765), "secret")


def test_names_of_this_machine() -> None:
    for host in ("127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765"):
        GUARD.check(scope(host=host))
    assert "127.0.0.1" in hosts_of(80) and "127.0.0.1" not in hosts_of(8080)


def test_a_post_needs_origin_and_token() -> None:
    good = {"origin": "http://localhost:8765", "x_halfmask_token": "secret"}
    GUARD.check(scope("POST", **good))
    for name in good:
        with pytest.raises(Refused):
            GUARD.check(scope("POST", **{key: value for key, value in good.items() if key != name}))


@pytest.mark.parametrize("path", ["/a/..", "/./a", "/a//b", "a", "", "/a\\b", "/a\x7f", "/a\u202eb", "*"])
def test_paths_that_are_not_plain(path: str) -> None:
    with pytest.raises(Refused):
        GUARD.check(scope(path=path))


@pytest.mark.parametrize("path", ["/", "/runs/one/metrics.json", "/runs/", "/ein lauf/ε=0.8/metrics.json", "/..a/b..c"])
def test_paths_that_are(path: str) -> None:
    GUARD.check(scope(path=path))


def test_sockets_are_closed(awaited: Callable[[Any], Any]) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    awaited(GUARD({"type": "websocket"}, None, send))  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100 and all(len(token) >= 32 for token in tokens)
