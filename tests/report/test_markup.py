"""Pieces of pages: whatever comes from a folder is text, and a page runs its own scripts alone."""

from __future__ import annotations

import base64
import hashlib

from halfmask.report.markup import document, listed, markdown, table, text

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def test_nothing_from_a_folder_is_markup() -> None:
    for found in (
        text(EVIL),
        table([EVIL], [[EVIL, EVIL]], EVIL, [{"view": EVIL}]),
        listed([EVIL]),
        markdown(f"# {EVIL}\n\n| a |\n|---|\n| {EVIL} |"),
    ):
        assert "<script" not in found and "<img" not in found
        assert "&lt;script" in found or "script" not in found


def test_a_certificate_has_tables_and_strong_words_and_neither_links_nor_pictures() -> None:
    found = markdown("**no** [x](http://a.example) ![y](http://a.example)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert "<strong>no</strong>" in found and "<td>2</td>" in found
    assert "<a " not in found and "<img" not in found


def test_strong_words_of_lists() -> None:
    assert "they are <strong>not</strong> protected" in listed(["they are **not** protected"])


def test_a_page_may_run_its_own_scripts_and_talk_to_nobody() -> None:
    script = "console.log(1)"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = document(EVIL, "", "", [script])
    assert f"script-src 'sha256-{digest}';" in page and "connect-src 'none'" in page and "default-src 'none'" in page
    assert "<title>&quot;" in page
    assert "script-src 'none'" in document("", "", "") and "'self'" not in page
    assert "connect-src 'self'" in document("", "", "", [script], live=True)
