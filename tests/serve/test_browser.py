"""The served pages in a real browser."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def until(page: Any, expression: str) -> None:
    """Wait for something to come true; what the page may run is its own scripts, so it cannot be asked to wait itself."""
    for _ in range(600):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    pytest.fail(f"never came true: {expression}")


PAGES = {"report": "/", "calculator": "/calculator", "look": "/look"}


@pytest.fixture(autouse=True)
def quick(quick_accounting: None) -> None:
    """Coarse accountants: what is looked at is the page."""


@pytest.mark.parametrize(("name", "width", "dark"), [*itertools.product(PAGES, (1400, 390), (False, True))])
def test_pages_say_no_error_and_fit(client: Any, open_page: Callable[..., Any], name: str, width: int, dark: bool, tmp_path: Path) -> None:
    opened = open_page(f"http://{client.host}{PAGES[name]}#token={client.token}", width, dark)
    if name == "calculator":
        opened.page.wait_for_selector("#noise[data-whole]", timeout=60_000)
    elif name == "report":
        opened.page.wait_for_selector(".hm-live:not([hidden]) .hm-card", timeout=60_000)
    picture = tmp_path / f"{name}-{width}-{'dark' if dark else 'light'}.png"
    opened.page.screenshot(path=picture, full_page=True)
    assert opened.problems == []
    assert opened.sideways == 0
    assert all(request.startswith((client.origin, "data:", "blob:")) for request in opened.requests)
    assert picture.stat().st_size > 10_000
    shade = opened.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)")
    assert (sum(shade) < 200) == dark


def test_the_token_is_taken_out_of_the_address(client: Any, open_page: Callable[..., Any]) -> None:
    opened = open_page(client.serving.address_with_token)
    assert client.token not in opened.page.url
    assert opened.page.evaluate("sessionStorage.getItem('halfmask-token')") == client.token
    assert not any(client.token in request for request in opened.requests[1:])


def test_a_run_is_seen_to_grow(
    serve: Callable[..., Any], make_run: Callable[..., Any], open_page: Callable[..., Any], tmp_path: Path
) -> None:
    make_run(tmp_path / "runs" / "first")
    run = make_run(tmp_path / "runs" / "growing", ended=False)
    with serve(tmp_path / "runs") as client:
        opened = open_page(f"http://{client.host}/")
        page = opened.page
        page.wait_for_selector('[data-run="growing"][data-step="4"]')
        assert page.locator(".hm-live polyline").count() == 0
        assert page.evaluate("document.querySelector('.hm-live').getBoundingClientRect().height") > 50
        run.log("epoch", step=8, epoch=2.0, public_loss=5.1, epsilon=0.5, learning_rate=0.1)
        page.wait_for_selector('[data-run="growing"][data-step="8"]')
        assert page.locator(".hm-live polyline").count() == 1
        assert "ε so far 0.5, public loss 5.1" in page.inner_text(".hm-live")
        # The report follows: its curves grow, and a run that ends is in its numbers, without the page being opened again.
        page.evaluate("window.stillTheSame = true")
        make_run(tmp_path / "runs" / "later", seed=4)
        until(page, "document.querySelector('main').innerText.includes('3 runs')")
        steps = "JSON.parse(document.getElementById('report-data').textContent).runs.length"
        assert page.evaluate(steps) == 3 and page.evaluate("window.stillTheSame")
        assert opened.problems == []


def test_a_page_whose_server_was_stopped_says_so(
    serve: Callable[..., Any], make_run: Callable[..., Any], open_page: Callable[..., Any], tmp_path: Path
) -> None:
    make_run(tmp_path / "runs" / "first")
    with serve(tmp_path / "runs") as client:
        page = open_page(f"http://{client.host}/").page
        until(page, "performance.getEntriesByType('resource').some((one) => one.name.endsWith('/api/live'))")
        assert not page.is_visible(".hm-new")
    page.wait_for_selector(".hm-new:not([hidden])")
    assert "was stopped" in page.inner_text(".hm-new")


def test_the_calculator_changes_its_chart(client: Any, open_page: Callable[..., Any]) -> None:
    opened = open_page(f"http://{client.host}/calculator")
    page = opened.page
    page.wait_for_selector("#noise[data-whole]", timeout=60_000)

    def drawn() -> tuple[str, str, str]:
        paths = [
            page.evaluate(f"document.querySelector('#{name} .scatterlayer path.js-line').getAttribute('d')") for name in ("noise", "course")
        ]
        return page.inner_text("#sigma"), *paths

    before = drawn()
    page.fill("[name=epsilon]", "4")
    page.select_option("[name=adjacency]", "replace-one")
    page.click("button")
    until(page, "document.getElementById('noise').dataset.whole?.includes('epsilon=4')")
    after = drawn()
    assert all(one != other for one, other in zip(before, after, strict=True))
    answer = page.evaluate("JSON.parse(document.querySelector('.hm-answer').dataset.answer)")
    assert after[0] == f"{answer['noise_multiplier']:.5g}" and answer["adjacency"] == "replace-one"
    assert "halfmask account --size 3000 --batch 100 --epochs 3 --epsilon 4" in page.inner_text(".hm-more")
    page.fill("[name=batch]", "5000")
    page.click("button")
    page.wait_for_selector(".hm-error")
    assert "expected between 1 and the 3000 units there are" in page.inner_text(".hm-answer")


DROP = """([data, name]) => {
  const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
  const carried = new DataTransfer();
  carried.items.add(new File([bytes], name, { type: "image/png" }));
  for (const kind of ["dragenter", "dragover", "drop"]) {
    document.querySelector(".hm-drop").dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: carried }));
  }
}"""


def test_a_picture_that_is_dropped_gets_skeletons(client: Any, open_page: Callable[..., Any], picture: bytes) -> None:
    opened = open_page(f"http://{client.host}/look#token={client.token}")
    page = opened.page
    page.evaluate(DROP, [base64.b64encode(picture).decode(), "photo.png"])
    page.wait_for_selector(".hm-runs[data-done]", timeout=60_000)
    assert page.locator(".hm-card h3").all_inner_texts() == ["first", "second"]
    sizes = page.evaluate("[...document.querySelectorAll('.hm-card img')].map((one) => [one.naturalWidth, one.naturalHeight])")
    assert sizes == [[90, 120], [90, 120]]
    assert "mean score" in page.inner_text(".hm-card") and "was not kept" in page.inner_text(".hm-answer")
    page.uncheck("[value=first]")
    page.set_input_files("input[type=file]", {"name": "a.png", "mimeType": "image/png", "buffer": picture})
    until(page, "document.querySelectorAll('.hm-card').length === 1 && 'done' in document.querySelector('.hm-runs').dataset")
    assert opened.problems == []


def test_what_is_no_picture_is_told(client: Any, open_page: Callable[..., Any]) -> None:
    page = open_page(f"http://{client.host}/look#token={client.token}").page
    page.evaluate(DROP, [base64.b64encode(b"nothing").decode(), "notes.txt"])
    page.wait_for_selector(".hm-error")
    assert "no picture that can be read" in page.inner_text(".hm-answer")


def test_without_a_token_it_is_asked_for(client: Any, open_page: Callable[..., Any], picture: bytes) -> None:
    page = open_page(f"http://{client.host}/look").page
    page.evaluate(DROP, [base64.b64encode(picture).decode(), "photo.png"])
    page.wait_for_selector(".hm-error")
    assert "token is missing or wrong" in page.inner_text(".hm-answer")
    page.fill(".hm-token input", client.token)
    page.press(".hm-token input", "Enter")
    page.evaluate(DROP, [base64.b64encode(picture).decode(), "photo.png"])
    page.wait_for_selector(".hm-runs[data-done]", timeout=60_000)


def test_names_of_runs_are_text(
    serve: Callable[..., Any], make_run: Callable[..., Any], open_page: Callable[..., Any], tmp_path: Path
) -> None:
    name = '<img src=x onerror="window.hurt=1">'
    make_run(tmp_path / "runs" / name)
    make_run(tmp_path / "runs" / f"{name} grows", ended=False)
    with serve(tmp_path / "runs") as client:
        for path in ("/", "/look"):
            opened = open_page(f"http://{client.host}{path}")
            if path == "/":
                opened.page.wait_for_selector(".hm-card")
            opened.page.wait_for_timeout(200)
            assert opened.page.evaluate("window.hurt") is None and opened.problems == []
