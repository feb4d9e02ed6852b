from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from halfmask.serve.answers import lines, policy_for


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_a_pages_own_scripts_are_known_by_their_hashes() -> None:
    page = '<head><script>a < "ε"\n</script></head><script type="x" SRC="/static/live.js"></script><SCRIPT id=b>two()</SCRIPT >'
    policy = policy_for(page)
    scripts = policy.split("script-src ")[1].split(";")[0]
    assert scripts == f"""'self' 'sha256-{digest('a < "ε"' + chr(10))}' 'sha256-{digest("two()")}'"""


def test_a_page_without_scripts_has_none_of_its_own() -> None:
    assert "script-src 'self';" in policy_for("<p>nothing</p>")


def test_numbers_that_json_does_not_know_are_nothing(awaited: Callable[[Any], Any]) -> None:
    async def bodies() -> AsyncIterator[dict[str, Any]]:
        yield {"joints": [{"x": float("nan")}, {"x": 1.5}], "score": float("inf")}
        yield {"run": "ε"}

    async def read() -> bytes:
        return b"".join([piece async for piece in lines(bodies()).body_iterator])  # type: ignore[attr-defined]

    first, second = awaited(read()).splitlines()
    assert json.loads(first) == {"joints": [{"x": None}, {"x": 1.5}], "score": None} and second == '{"run": "ε"}'.encode()
