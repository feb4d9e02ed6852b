"""A certificate on paper: two pages and a place to sign, whatever it says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from benchmarks.report import write_run

from halfmask.errors import HalfmaskError
from halfmask.report import certificate_page as room
from halfmask.report.certificate_page import certificate_page, write_certificate


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", method="dpsgd")


def test_it_says_what_the_certificate_says_and_has_a_place_to_sign(run: Path) -> None:
    (run / "certificate.md").write_text((run / "certificate.md").read_text() + "\n- <script>alert(1)</script> and **strong**\n")
    page = certificate_page(run)
    for word in (
        "Privacy certificate",
        "Take any one crop",
        "What is not protected",
        "Signature",
        "Place and date",
        "0" * 64,
        "<strong>strong",
    ):
        assert word in page, word
    assert "<script" not in page and "script-src 'none'" in page


@pytest.mark.parametrize("lines", [0, 40])
def test_it_has_two_pages_whether_it_is_short_or_long(run: Path, tmp_path: Path, chromium: str, lines: int) -> None:
    if lines:
        body = (run / "certificate.md").read_text()
        (run / "certificate.md").write_text(body + "".join(f"- public thing number {number}\n" for number in range(lines)))
    written, words = write_certificate(run, tmp_path / "paper.pdf")
    assert written.read_bytes().startswith(b"%PDF") and words.startswith("2 pages")
    assert ("10 points" in words) == (not lines)


def test_where_there_is_no_browser_a_page_to_print_is_written(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.shutil, "which", lambda name: None)
    written, words = write_certificate(run, tmp_path / "paper.pdf")
    assert written == tmp_path / "paper.html" and "Signature" in written.read_text() and "print it" in words


def test_a_browser_that_prints_nothing_is_an_error_for_people(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.shutil, "which", lambda name: os.path.realpath("/bin/false"))
    with pytest.raises(HalfmaskError, match="printed no PDF"):
        write_certificate(run, tmp_path / "paper.pdf")
    assert not (tmp_path / "paper.pdf").exists()


def test_what_is_no_certified_run_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match="is not the folder of a run"):
        certificate_page(tmp_path)
    (run / "certificate.json").write_text(json.dumps({}))
    with pytest.raises(HalfmaskError, match="has no certificate"):
        certificate_page(run)
