"""Who may ask, and how: the door every request goes through before anything looks at it.

The server listens on this machine alone, but every page that its user has open can send requests there. So a request must name this
server as its host (a name that was pointed at 127.0.0.1 is not it), must not come from another site's page, and must be plain: one path
without dots, backslashes or control characters. Whatever is more than a look (a POST) needs the token that the terminal shows.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from halfmask.serve.answers import HEADERS, Refused, refusal

TOKEN_HEADER = "x-halfmask-token"
_LONGEST = 2048
_LOOKS = ("GET", "HEAD")


def new_token() -> str:
    """A token that nobody guesses; another one each time the server starts."""
    return secrets.token_urlsafe(24)


def hosts_of(port: int) -> frozenset[str]:
    """The names under which a browser on this machine reaches the server."""
    names = ("127.0.0.1", "localhost")
    return frozenset(f"{name}:{port}" for name in names) | (frozenset(names) if port == 80 else frozenset())


class Guard:
    """Lets through what may be asked, and puts the headers on every answer, refusals too."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], token: str):
        self.app, self.hosts, self.token = app, hosts, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self.check(scope)
        except Refused as refused:
            await refusal(refused)(scope, receive, sealed)
            return
        await self.app(scope, receive, sealed)

    def check(self, scope: Scope) -> None:
        """Refuse what may not be asked."""
        headers = Headers(scope=scope)
        if len(scope.get("raw_path", b"")) + len(scope["query_string"]) > _LONGEST:
            raise Refused(414, f"the address is longer than {_LONGEST} characters")
        if scope["method"] not in (*_LOOKS, "POST"):
            raise Refused(405, "only GET, HEAD and POST are answered")
        if "upgrade" in headers:
            raise Refused(400, "this server speaks HTTP and nothing else")
        named = headers.getlist("host")
        if len(named) != 1 or named[0].lower() not in self.hosts:
            raise Refused(403, "the Host header does not name this server: open the address that the terminal shows")
        _check_path(scope["path"])
        self._check_origin(headers, scope["method"])
        given = headers.get(TOKEN_HEADER, "")
        if scope["method"] not in _LOOKS and not secrets.compare_digest(given.encode(), self.token.encode()):
            raise Refused(401, "the token is missing or wrong: open the address that the terminal shows, or type the token in")

    def _check_origin(self, headers: Headers, method: str) -> None:
        foreign = Refused(403, "the request comes from a page of another site")
        # Browsers say so themselves, and no page can make them say otherwise. To follow a link here is no more than to open the address.
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _is_link(headers, method):
            raise foreign
        origins = headers.getlist("origin")
        if any(origin.lower() not in {f"http://{host}" for host in self.hosts} for origin in origins):
            raise foreign
        if method not in _LOOKS and len(origins) != 1:
            raise Refused(403, "the Origin header is missing: expected that of this server's own page")


def _is_link(headers: Mapping[str, str], method: str) -> bool:
    return method == "GET" and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def _check_path(path: str) -> None:
    parts = path.split("/")
    if len(parts) < 2 or parts[0] or any(part in (".", "..") for part in parts) or "" in parts[1:-1]:
        raise Refused(400, "the path is not plain: expected /a/b without dots or empty parts")
    if "\\" in path or not path.isprintable():
        raise Refused(400, "the path holds characters that no file of a run has")
