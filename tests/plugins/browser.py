"""A real headless browser for tests that look at pages: Debian's Chromium, driven by Playwright.

Tests that ask for it are skipped, and say so, only where there is no Chromium.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@dataclass
class Opened:
    """A page in the browser, and what it said, asked for, and went wrong with since it was opened."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def sideways(self) -> int:
        """By how many pixels the page can be scrolled sideways."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where the browser is."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("there is no Chromium here: install it (Debian: apt-get install chromium) to look at pages in a browser")
    return found


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Any]:
    """One browser for all tests of a process."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=_ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens a file, or an address, at a width and in light or dark."""
    contexts: list[Any] = []

    def open_at(where: Path | str, width: int = 1400, dark: bool = False, height: int = 1000) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light")
        contexts.append(context)
        opened = Opened(context.new_page())
        opened.page.on("console", lambda message: opened.problems.append(message.text) if message.type in ("error", "warning") else None)
        opened.page.on("pageerror", lambda error: opened.problems.append(str(error)))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.goto(where.resolve().as_uri() if isinstance(where, Path) else where, wait_until="load")
        return opened

    yield open_at
    for context in contexts:
        context.close()
