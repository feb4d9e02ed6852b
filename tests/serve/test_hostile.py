"""Requests that mean harm, to a real server on this machine's own address: all are refused, and no answer holds anything private."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halfmask.serve.pictures import LARGEST_BYTES

SECRET = b"nobody may read this 7f3a"


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, *chunks: bytes, rows: bytes = b"") -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def bomb() -> bytes:
    """A small file that would be a huge picture: all of its rows are there."""
    packer, rows = zlib.compressobj(9), io.BytesIO()
    for _ in range(6000):
        rows.write(packer.compress(bytes(1 + 3 * 6000)))
    rows.write(packer.flush())
    header = struct.pack(">IIBBBBB", 6000, 6000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows.getvalue()) + chunk(b"IEND", b"")


@pytest.fixture(scope="module")
def harmful(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a folder of runs may hold that must not be shown, each with the secret in it."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "metrics.json").write_bytes(SECRET)
    (runs.parent / "beside.json").write_bytes(SECRET)
    first = runs / "first"
    (first / "unsafe_diagnostics.jsonl").write_bytes(SECRET)
    (first / "unsafe_diagnostics.json").write_bytes(SECRET)
    (first / "checkpoint").mkdir()
    (first / "checkpoint" / "state.json").write_bytes(SECRET)
    (first / ".hidden.json").write_bytes(SECRET)
    (first / "audit").mkdir()
    (first / "audit" / "model.json").write_bytes(b'{"not_for_release": true, "audit": "model", "found": "' + SECRET + b'"}')
    (first / "page.html").write_bytes(b"<script>" + SECRET + b"</script>")
    (runs / "notes.json").write_bytes(SECRET)
    (runs / "notes").mkdir()
    (runs / "notes" / "people.csv").write_bytes(SECRET)
    linked = runs / "linked"
    linked.mkdir()
    (linked / "config.yaml").write_text("method: dpsgd\ntask: pose\n")
    (linked / "metrics.json").symlink_to(outside / "metrics.json")
    (linked / "log.jsonl").symlink_to(outside / "metrics.json")
    (runs / "away").symlink_to(outside, target_is_directory=True)
    (outside / "config.yaml").write_bytes(SECRET)
    (linked / "round.json").symlink_to(linked / "round.json")
    piped = runs / "piped"
    piped.mkdir()
    (piped / "config.yaml").write_text("method: dpsgd\ntask: pose\n")
    # Whoever opens one to read waits for somebody who writes.
    os.mkfifo(piped / "log.jsonl")
    os.mkfifo(piped / "pipe.json")
    return runs


def head(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def pieces(count: int, size: int = 65536) -> Iterator[bytes]:
    """A body in chunks, whose end is never announced."""
    for _ in range(count):
        yield f"{size:x}\r\n".encode() + bytes(size) + b"\r\n"


PATHS = {
    "dots": "/../beside.json",
    "dots further down": "/first/../../beside.json",
    "dots that stay inside": "/first/../second/metrics.json",
    "dots encoded": "/%2e%2e/beside.json",
    "dots and slash encoded": "/..%2fbeside.json",
    "all encoded": "/%2e%2e%2fbeside.json",
    "encoded twice": "/%252e%252e%252fbeside.json",
    "overlong dots": "/%c0%ae%c0%ae/beside.json",
    "backslashes": "/..%5cbeside.json",
    "absolute": "//etc/passwd",
    "absolute encoded": "/%2fetc%2fpasswd",
    "absolute with a kind that is shown": "/%2fetc%2fpasswd.json",
    "null byte": "/first/metrics.json%00.png",
    "line break": "/first/metrics.json%0d%0aX-Injected:%20yes",
    "link to a file outside": "/linked/metrics.json",
    "link to a folder outside": "/away/metrics.json",
    "link to itself": "/linked/round.json",
    "a pipe": "/piped/pipe.json",
    "a folder": "/first/",
    "unsafe diagnostics": "/first/unsafe_diagnostics.jsonl",
    "unsafe diagnostics under another ending": "/first/unsafe_diagnostics.json",
    "a checkpoint": "/first/checkpoint/state.json",
    "an audit that is not for release": "/first/audit/model.json",
    "a hidden file": "/first/.hidden.json",
    "a page with a script": "/first/page.html",
    "weights": "/first/model.safetensors",
    "a file of no run": "/notes.json",
    "a folder of no run": "/notes/people.csv",
    "static dots": "/static/..%2fapp.py",
    "static source": "/static/app.py",
    "a very long address": "/" + "a" * 5000,
    "a very long query": "/api/live?" + "a" * 5000,
}


@pytest.mark.parametrize("name", PATHS)
def test_no_other_file_can_be_read(client: Any, harmful: Path, name: str) -> None:
    answer = client.get(PATHS[name])
    assert answer.status in (400, 404, 414), answer
    assert SECRET not in answer.body and b"root:" not in answer.body
    assert "x-injected" not in answer.headers


def test_released_files_can_be_read(client: Any, harmful: Path) -> None:
    for name in ("metrics.json", "log.jsonl", "certificate.md", "config.yaml"):
        answer = client.get(f"/first/{name}")
        assert (answer.status, answer.body) == (200, (harmful / "first" / name).read_bytes())
        assert "sandbox" in answer.headers["content-security-policy"]


RAW = {
    "another host": lambda c: head("GET / HTTP/1.1", "Host: evil.example"),
    "a host that only begins so": lambda c: head("GET / HTTP/1.1", f"Host: {c.host}.evil.example"),
    "another port": lambda c: head("GET / HTTP/1.1", "Host: 127.0.0.1:1"),
    "no port": lambda c: head("GET / HTTP/1.1", "Host: 127.0.0.1"),
    "a name with a user": lambda c: head("GET / HTTP/1.1", f"Host: evil@{c.host}"),
    "no host": lambda c: head("GET / HTTP/1.1"),
    "no host in HTTP/1.0": lambda c: head("GET / HTTP/1.0"),
    "two hosts": lambda c: head("GET / HTTP/1.1", f"Host: {c.host}", "Host: evil.example"),
    "a whole address as path": lambda c: head(f"GET http://{c.host}/ HTTP/1.1", f"Host: {c.host}"),
    "another site's address as path": lambda c: head("GET http://evil.example/ HTTP/1.1", f"Host: {c.host}"),
    "a path without a slash": lambda c: head("GET etc/passwd HTTP/1.1", f"Host: {c.host}"),
    "OPTIONS": lambda c: head("OPTIONS /api/look HTTP/1.1", f"Host: {c.host}", "Origin: http://evil.example"),
    "OPTIONS of all": lambda c: head("OPTIONS * HTTP/1.1", f"Host: {c.host}"),
    "TRACE": lambda c: head("TRACE / HTTP/1.1", f"Host: {c.host}"),
    "PUT": lambda c: head("PUT /first/metrics.json HTTP/1.1", f"Host: {c.host}", f"X-Halfmask-Token: {c.token}", "Content-Length: 0"),
    "DELETE": lambda c: head("DELETE /first/metrics.json HTTP/1.1", f"Host: {c.host}", f"X-Halfmask-Token: {c.token}"),
    "CONNECT": lambda c: head("CONNECT evil.example:443 HTTP/1.1", f"Host: {c.host}"),
    "an invented method": lambda c: head("STEAL / HTTP/1.1", f"Host: {c.host}"),
    "a socket": lambda c: head(
        "GET /api/live HTTP/1.1",
        f"Host: {c.host}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
    ),
    "HTTP/2 from the start": lambda c: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "nonsense": lambda c: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n",
    "a header with a line break": lambda c: head("GET / HTTP/1.1", f"Host: {c.host}", "X: a\rInjected: yes"),
    "a header with a null": lambda c: head("GET / HTTP/1.1", f"Host: {c.host}", "X: a\0b"),
    "a folded header": lambda c: head("GET / HTTP/1.1", " Host: evil.example", f"Host: {c.host}"),
    "endless headers": lambda c: head("GET / HTTP/1.1", f"Host: {c.host}", *(f"X-{n}: {'a' * 1000}" for n in range(200))),
    "two lengths": lambda c: head(
        "POST /api/look HTTP/1.1",
        f"Host: {c.host}",
        f"Origin: {c.origin}",
        f"X-Halfmask-Token: {c.token}",
        "Content-Length: 3",
        "Content-Length: 9",
    ),
    "a length below nothing": lambda c: head(
        "POST /api/look HTTP/1.1", f"Host: {c.host}", f"Origin: {c.origin}", f"X-Halfmask-Token: {c.token}", "Content-Length: -1"
    ),
}


@pytest.mark.parametrize("name", RAW)
def test_no_other_kind_of_request_is_answered(client: Any, harmful: Path, name: str) -> None:
    answer = client.raw(RAW[name](client))
    assert answer.status in (400, 403, 405, 431), answer
    assert b"hm-bar" not in answer.body


FOREIGN: dict[str, dict[str, str | None]] = {
    "another site": {"Origin": "http://evil.example"},
    "another port": {"Origin": "http://127.0.0.1:1"},
    "another scheme": {"Origin": "https://127.0.0.1"},
    "a sandboxed frame": {"Origin": "null"},
    "no origin": {"Origin": None},
    "a form of another site": {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"},
    "a page of another port": {"Sec_Fetch_Site": "same-site"},
    "no token": {"X_Halfmask_Token": None},
    "an empty token": {"X_Halfmask_Token": ""},
    "a wrong token": {"X_Halfmask_Token": "x" * 32},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_nobody_else_may_send_a_picture(client: Any, picture: bytes, name: str) -> None:
    changes = {header.replace("_", "-"): value for header, value in FOREIGN[name].items()}
    answer = client.post("/api/look", picture, **changes)
    assert answer.status == (401 if "oken" in name else 403)
    assert b"joints" not in answer.body
    assert "access-control-allow-origin" not in answer.headers


def test_a_token_that_only_begins_so_is_wrong(client: Any, picture: bytes) -> None:
    for wrong in (client.token[:-1], client.token + "a", client.token.swapcase(), "é"):
        assert client.post("/api/look", picture, X_Halfmask_Token=wrong).status == 401
    assert client.post("/api/look", picture).status == 200


def test_another_sites_page_cannot_ask_even_for_a_look(client: Any) -> None:
    assert client.get("/api/live", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="image").status == 403
    assert client.get("/api/live", Origin="http://evil.example").status == 403
    assert client.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe").status == 403
    assert client.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document").status == 200
    assert client.get("/api/live", Sec_Fetch_Site="same-origin").status == 200


def upload_head(client: Any, *more: str) -> bytes:
    known = (f"Host: {client.host}", f"Origin: {client.origin}", f"X-Halfmask-Token: {client.token}")
    return head("POST /api/look HTTP/1.1", *known, *more)


def test_a_huge_upload_is_refused_before_it_is_sent(client: Any) -> None:
    answer = client.raw(upload_head(client, f"Content-Length: {LARGEST_BYTES + 1}"))
    assert answer.status == 413
    assert client.raw(upload_head(client, "Content-Length: 99999999999999999999")).status in (400, 413)


def test_a_huge_upload_that_hides_its_length_is_refused_when_it_gets_too_long(client: Any) -> None:
    many = 4 * LARGEST_BYTES // 65536
    sent = []

    def counted() -> Iterator[bytes]:
        for piece in pieces(many):
            sent.append(len(piece))
            yield piece

    assert client.raw(upload_head(client, "Transfer-Encoding: chunked"), counted()).status == 413
    # It hung up: what it took is what it may hold, and what lay on the way.
    assert sum(sent) < 2 * LARGEST_BYTES


BODIES: dict[str, tuple[Callable[[], bytes], tuple[int, ...]]] = {
    "nothing": (lambda: b"", (415,)),
    "text": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", (415,)),
    "a program": (lambda: b"\x7fELF" + bytes(1000), (415,)),
    "a GIF": (lambda: b"GIF89a" + bytes(100), (415,)),
    "a PDF": (lambda: b"%PDF-1.7\n" + bytes(100), (415,)),
    "PostScript": (lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n", (415,)),
    "a picture cut short": (lambda: png(100, 100, rows=bytes(100 * 301))[:60], (415,)),
    "a JPEG that is only its beginning": (lambda: b"\xff\xd8\xff\xe0" + bytes(20), (415,)),
    "a bomb": (bomb, (413,)),
    "a header that promises a bomb": (lambda: png(2**31 - 1, 2**31 - 1), (413, 415)),
    "a bomb in a comment": (
        lambda: png(50, 50, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2**27), 9)), rows=bytes(50 * 151)),
        (413, 415),
    ),
    "a picture of one pixel": (lambda: png(1, 1, rows=bytes(4)), (422,)),
    "a picture of no pixels": (lambda: png(0, 0), (415, 422)),
}


@pytest.mark.parametrize("name", BODIES)
def test_what_is_no_picture_is_refused(client: Any, name: str) -> None:
    make, allowed = BODIES[name]
    answer = client.post("/api/look", make())
    assert answer.status in allowed, answer
    assert set(answer.json()) == {"error"}


def test_only_runs_that_are_there_look_at_a_picture(client: Any, harmful: Path, picture: bytes) -> None:
    for name in ("../outside", "/etc", "linked", "growing", "first/../second", "%00", ""):
        assert client.post(f"/api/look?run={name}", picture).status == 404


def test_questions_that_would_take_for_ever_are_refused(client: Any) -> None:
    plan = "size={}&batch={}&epochs={}&epsilon={}&delta={}"
    for values in (
        (10**9, 1, 1000, 1, 1e-9),
        ("1e400", 1, 1, 1, 1e-5),
        ("nan", 1, 1, 1, 1e-5),
        (100, 10, "inf", 1, 1e-5),
        (100, 1000, 1, 1, 1e-5),
        (100, 10, 1, -1, 1e-5),
        (100, 10, 1, 1, 2),
        (100, 10, 0, 1, 1e-5),
        ("<script>", 10, 1, 1, 1e-5),
    ):
        answer = client.get("/api/account?" + plan.format(*values).replace("<", "%3C"))
        assert answer.status == 422 and answer.headers["content-type"] == "application/json", values
    known = plan.format(100, 10, 1, 1, 1e-5)
    for more in ("adjacency=none", "accountant=mine"):
        (line,) = client.get(f"/api/account?{known}&{more}").lines()
        assert set(line) == {"error"} and "known: " in line["error"]
    for more in ("size=100", "steps=10", "unit=%3Cscript%3E", "units_per_image=100000"):
        assert client.get(f"/api/account?{known}&{more}").status == 422


def test_every_answer_says_what_a_browser_may_do_with_it(client: Any, harmful: Path) -> None:
    for path in ("/", "/look", "/calculator", "/api/live", "/first/metrics.json", "/static/frame.js", "/nothing", "/../x"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe-inline" not in policy.split("style-src")[0] and "unsafe-eval" not in policy
        assert headers["referrer-policy"] == "no-referrer" and headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers


def test_no_page_shows_what_must_not_leave(client: Any, harmful: Path) -> None:
    for path in ("/", "/look", "/calculator", "/api/live"):
        assert SECRET not in client.get(path).body
    assert client.get("/api/live").json()["left_out"] == ["linked", "piped"]


def test_a_picture_is_stored_nowhere(client: Any, picture: bytes, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins
    import tempfile

    def files() -> set[str]:
        return {str(path) for path in runs.parent.rglob("*")}

    opened: list[Any] = []
    real = builtins.open
    monkeypatch.setattr(builtins, "open", lambda file, mode="r", *a, **k: (opened.append((file, mode)), real(file, mode, *a, **k))[1])
    monkeypatch.setattr(tempfile, "_mkstemp_inner", lambda *a, **k: pytest.fail("a temporary file was made"))
    before = files()
    padded = picture + bytes(3 * 2**20)
    assert client.post("/api/look?run=first", padded).status == 200
    assert files() == before
    assert not [mode for _, mode in opened if set(mode) & set("wax+")]
