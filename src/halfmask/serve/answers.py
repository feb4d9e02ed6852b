"""What the server answers with: refusals in a sentence, lines of JSON one after the other, and the headers that every answer carries."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.responses import JSONResponse, Response, StreamingResponse

# Nothing is fetched from anywhere else, framed, or kept. Styles may stand in a page: charts set theirs so.
_PAGE = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A file of a run is shown, and does nothing.
FILE_POLICY = "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
_SCRIPT = re.compile(r"<script(?P<attributes>[^>]*)>(?P<body>.*?)</script\s*>", re.DOTALL | re.IGNORECASE)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _PAGE.format(scripts=""),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A request that is not answered, and why; the reason repeats nothing of what was sent."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status, self.reason = status, reason


def refusal(refused: Refused) -> Response:
    """The answer to a request that is refused. What else it may be about to send is not waited for."""
    return JSONResponse({"error": refused.reason}, refused.status, {"Connection": "close"})


def lines(bodies: AsyncIterator[Mapping[str, Any]]) -> Response:
    """JSON, one object a line, each sent as soon as it is known."""

    async def written() -> AsyncIterator[bytes]:
        async for body in bodies:
            yield json.dumps(_finite(body), ensure_ascii=False, allow_nan=False).encode() + b"\n"

    return StreamingResponse(written(), media_type="application/x-ndjson")


def _finite(value: Any) -> Any:
    """JSON has no NaN, which is what a model that diverged answers with."""
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def policy_for(page: str) -> str:
    """The policy under which a page's own scripts run, each known by its hash, and no other that somebody has slipped in."""
    own = [match["body"] for match in _SCRIPT.finditer(page) if "src=" not in match["attributes"].lower()]
    digests = dict.fromkeys(base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in own)
    return _PAGE.format(scripts="".join(f" 'sha256-{digest}'" for digest in digests))
