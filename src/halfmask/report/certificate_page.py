"""A certificate on paper: two pages with a place to sign, for privacy officers.

The page is HTML with a print style, so that any browser prints it. Where a Chromium is installed it prints the PDF itself: no library draws
letters such as ε and ψ without a font of its own, and every browser has one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from halfmask.errors import HalfmaskError
from halfmask.report.gather import ReportRun, gather
from halfmask.report.markup import asset, document, markdown, text

PAGES = 2
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
_QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-pdf-header-footer",
)
# Sizes of letters to try, in points, until all fits on two pages.
_POINTS = (10.0, 9.0, 8.0, 7.0)
_FIELDS = ("Name and function", "Place and date", "Signature")
_PAGE = re.compile(rb"/Type\s*/Page\b")


def certificate_page(folder: Path, points: float = _POINTS[0], apart: bool = False) -> str:
    """A run's certificate as a page to print, with a place to sign.

    Args:
        points: the size of its letters.
        apart: let the place to sign begin a new page.
    """
    run = _certified(folder)
    lines = "".join(f'<div class="field"><span>{text(field)}</span></div>' for field in _FIELDS)
    body = (
        f'<main style="--points: {points:g}pt">{markdown(run.statement)}'
        f'<div class="sign{" apart" if apart else ""}"><h2>Read and taken note of</h2>'
        "<p>I have read this certificate, with what is assumed public, and have had the model's file held against it "
        f"('halfmask certificate verify'; SHA-256 of the weights <code>{text(run.certificate['weights_sha256'])}</code>).</p>"
        f"{lines}</div></main>"
    )
    return document(f"Certificate of {run.name}", asset("certificate.css"), body)


def write_certificate(folder: Path, out: Path) -> tuple[Path, str]:
    """Write the certificate of a run as a PDF of two pages, or, where no browser is installed, as a page to print.

    Returns:
        What was written, and what to say about it.
    """
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        page = out.with_suffix(".html")
        page.write_text(certificate_page(folder, apart=True))
        return page, f"there is no Chromium here to print with: open {page} in a browser and print it"
    body = b""
    for points in _POINTS:
        body = _printed(browser, certificate_page(folder, points))
        if _pages(body) < PAGES:
            body = _printed(browser, certificate_page(folder, points, apart=True))
        if _pages(body) <= PAGES:
            break
    out.write_bytes(body)
    return out, f"{_pages(body)} pages, letters of {points:g} points"


def _pages(body: bytes) -> int:
    return len(_PAGE.findall(body))


def _certified(folder: Path) -> ReportRun:
    if not (folder / "config.yaml").is_file():
        raise HalfmaskError(f"{folder} is not the folder of a run: expected one that 'halfmask train' wrote")
    (run,) = gather([folder])
    if not run.statement or not run.certificate:
        raise HalfmaskError(f"{folder} has no certificate: a run that is going on, or was stopped before its end, has none")
    return run


def _printed(browser: str, page: str) -> bytes:
    """A page as PDF, by a browser that keeps nothing and asks nobody."""
    with tempfile.TemporaryDirectory() as place:
        source, target = Path(place) / "certificate.html", Path(place) / "certificate.pdf"
        source.write_text(page)
        command: list[Any] = [browser, *_QUIET, f"--user-data-dir={place}/profile", f"--print-to-pdf={target}", source.as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            raise HalfmaskError(
                f"{browser} did not print the certificate within two minutes: try again, or print the page by hand"
            ) from None
        if not target.is_file():
            last = (done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
            raise HalfmaskError(f"{browser} printed no PDF ({last}): open the page in a browser and print it by hand")
        return target.read_bytes()
