from __future__ import annotations

import base64
import hashlib

from halfmask.serve.answers import policy_for


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_a_pages_own_scripts_are_known_by_their_hashes() -> None:
    page = '<head><script>a < "ε"\n</script></head><script type="x" SRC="/static/live.js"></script><SCRIPT id=b>two()</SCRIPT >'
    policy = policy_for(page)
    scripts = policy.split("script-src ")[1].split(";")[0]
    assert scripts == f"""'self' 'sha256-{digest('a < "ε"' + chr(10))}' 'sha256-{digest("two()")}'"""


def test_a_page_without_scripts_has_none_of_its_own() -> None:
    assert "script-src 'self';" in policy_for("<p>nothing</p>")
