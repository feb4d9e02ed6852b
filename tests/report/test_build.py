"""The report as people see it: in a real browser, by what its switches do, and with what comes from folders as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.report import write_run, write_sweep

from halfmask.errors import HalfmaskError
from halfmask.report.build import report_main, report_page

EVIL = "<img src=x onerror=alert(1)><b>"
# What the trade-off shows: the name, places and heights of every line.
SHOWN = "JSON.stringify(document.getElementById('tradeoff-chart').data.map(line => [line.name, line.x, line.y]))"
DRAWN = "document.querySelectorAll('.chart .main-svg').length > 0"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "sweep"
    methods = ("non-private", "public-only", "dpsgd", "feature-projective")
    write_sweep(out, methods, (0.2, 0.8), (0.1, 1.0), ("finetune", "full"), (0, 1))
    for seed in (0, 1):
        write_run(
            out / "runs" / f"other-view-{seed}",
            ["view.name=downsample"],
            method="feature-projective",
            epsilon=0.2,
            clip_norm=0.1,
            strategy="finetune",
            seed=seed,
        )
    (out / "results.json").write_text(json.dumps({"remark": "Each certificate is for its run alone."}))
    return out


@pytest.fixture(scope="module")
def page(sweep: Path) -> Path:
    path = sweep.parent / "report.html"
    path.write_text(report_page([sweep]))
    return path


def test_each_switch_changes_the_chart(page: Path, open_page: Callable[..., Any]) -> None:
    opened = open_page(page)
    tab = opened.page
    seen = {tab.evaluate(SHOWN)}
    for switch in ("metric", "clip_norm", "strategy", "view", "published"):
        select = tab.locator(f"#switch-{switch}")
        before, value = tab.evaluate(SHOWN), select.input_value()
        other = select.locator("option").nth(1).get_attribute("value")
        # By keyboard: what can be chosen with a mouse alone is not for everybody.
        select.focus()
        tab.keyboard.press("ArrowDown")
        assert select.input_value() == other != value, switch
        assert tab.evaluate(SHOWN) != before, switch
        seen.add(tab.evaluate(SHOWN))
        select.select_option(value)
        assert tab.evaluate(SHOWN) == before, switch
    assert len(seen) == 6
    assert opened.problems == [] and opened.requests == [page.resolve().as_uri()], "nothing is asked of anybody"


def test_published_figures_are_theirs(page: Path, open_page: Callable[..., Any]) -> None:
    tab = open_page(page).page
    names = "document.getElementById('tradeoff-chart').data.map(line => line.name).filter(Boolean)"
    assert not any(name.startswith("theirs") for name in tab.evaluate(names))
    tab.select_option("#switch-published", label="MPII, finetune, C = 0.01 (Table 1, 3, 4, 5, 6)")
    theirs = [name for name in tab.evaluate(names) if name.startswith("theirs: ")]
    assert set(theirs) == {
        f"theirs: {name}" for name in ("non-private", "public-only", "dpsgd", "projected", "feature", "feature-projective")
    }
    assert "theirs and not ours" in tab.inner_text("#tradeoff-notes") and "arXiv:2504.10190" in tab.inner_text("#tradeoff-notes")


def test_tables_and_curves_follow_the_switches(page: Path, open_page: Callable[..., Any]) -> None:
    tab = open_page(page).page
    rows = "[...document.querySelectorAll('#numbers tr[data-group]')].filter(row => !row.hidden).length"
    lines = "document.getElementById('curves-chart').data.length"
    few, curves = tab.evaluate(rows), tab.evaluate(lines)
    for switch in ("clip_norm", "strategy", "view"):
        tab.select_option(f"#switch-{switch}", "*")
    assert tab.evaluate(rows) > 2 * few and tab.evaluate(lines) > 2 * curves
    shown = tab.evaluate("document.getElementById('curves-chart').layout.yaxis.title.text")
    tab.select_option("#switch-curve", "epsilon")
    assert tab.evaluate("document.getElementById('curves-chart').layout.yaxis.title.text") != shown
    assert tab.evaluate("document.getElementById('spectrum-chart').data.length") > 0


def test_one_seed_is_said_beside_the_chart_and_spread_is_drawn(
    sweep: Path, page: Path, tmp_path: Path, open_page: Callable[..., Any]
) -> None:
    tab = open_page(page).page
    assert "standard deviation over seeds" in tab.inner_text("#tradeoff-notes")
    errors = tab.evaluate("document.getElementById('tradeoff-chart').data.filter(line => line.error_y).map(line => line.error_y.array)")
    assert all(spread > 0 for line in errors for spread in line)
    words = tab.evaluate("document.getElementById('tradeoff-chart').data.flatMap(line => line.text || [])")
    assert any("dpsgd-eps0.2-clip0.1-finetune-seed1" in one and "certified" in one for one in words), "pointing at a ring names its run"
    alone = tmp_path / "one.html"
    alone.write_text(report_page([next((sweep / "runs").glob("dpsgd-*seed0"))]))
    opened = open_page(alone, 390)
    assert "One seed each" in opened.page.inner_text("#tradeoff-notes") and opened.sideways == 0 and opened.problems == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_scrolls_sideways_and_the_dark_is_dark(page: Path, open_page: Callable[..., Any], width: int, dark: bool) -> None:
    opened = open_page(page, width, dark)
    opened.page.wait_for_function(DRAWN)
    assert opened.sideways == 0 and opened.problems == []
    paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    chart = opened.page.evaluate("document.getElementById('tradeoff-chart').layout.paper_bgcolor")
    assert (sum(map(int, re.findall(r"\d+", paper))) < 200) == dark
    assert (chart != "#fff") == dark


def test_what_comes_from_folders_is_text(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    folder = write_run(tmp_path / "runs" / EVIL.replace("/", "_"), method="dpsgd")
    for name, change in (
        ("metrics.json", {"dataset": EVIL, "parts": {EVIL: 1.0}, "metrics": {"pckh@0.5": 1.0, EVIL: 2.0}}),
        ("certificate.json", {"public_assumptions": [EVIL], "cautions": [EVIL], "unit": EVIL, "dataset": EVIL}),
    ):
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | change))
    (folder / "certificate.md").write_text(f"# {EVIL}\n\n{EVIL} </script><script>alert(1)</script>\n")
    (folder / "config.yaml").write_text((folder / "config.yaml").read_text().replace("strategy: top", f"strategy: '{EVIL}'"))
    path = tmp_path / "report.html"
    path.write_text(report_page([tmp_path / "runs"]))
    opened = open_page(path)
    assert opened.page.evaluate("document.querySelectorAll('img[onerror], main b, main script:not([type])').length") == 0
    assert opened.problems == [] and len(opened.requests) == 1
    assert EVIL in opened.page.inner_text("h1"), "it is shown for what it is"


def test_a_served_page_takes_newer_content_in_and_keeps_what_was_chosen(sweep: Path, tmp_path: Path, open_page: Callable[..., Any]) -> None:
    path = tmp_path / "live.html"
    path.write_text(report_page([sweep], live=True))
    opened = open_page(path)
    opened.page.select_option("#switch-metric", "pckh@0.1")
    newer = report_main([sweep]).replace("Each certificate is for its run alone", "Something new was said")
    opened.page.evaluate("html => window.halfmaskRefresh(html)", newer)
    assert "Something new was said" in opened.page.inner_text("main")
    assert opened.page.input_value("#switch-metric") == "pckh@0.1"
    assert "PCKh@0.1" in opened.page.evaluate("document.getElementById('tradeoff-chart').layout.yaxis.title.text")
    assert opened.problems == []


def test_the_page_prints_on_white(page: Path, open_page: Callable[..., Any]) -> None:
    tab = open_page(page, dark=True).page
    tab.emulate_media(media="print", color_scheme="dark")
    tab.wait_for_function("document.getElementById('tradeoff-chart').layout.paper_bgcolor === '#fff'")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not tab.is_visible("nav")


def test_a_page_has_what_is_promised_what_it_costs_and_every_certificate(sweep: Path, page: Path) -> None:
    found = page.read_text()
    for word in (
        "What is promised",
        "Each certificate is for its run alone",
        "Score against ε",
        "Joint by joint",
        "spectrum",
        "Take any one crop",
    ):
        assert word in found, word
    assert found.count("<summary>dpsgd-eps") == 16 and len(found) < 3e6
    assert "'self'" not in found.partition("</head>")[0]


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match="there is no run in"):
        report_page([tmp_path])


def test_a_run_that_trains_has_a_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", method="dpsgd")
    for name in ("metrics.json", "certificate.json", "certificate.md"):
        (folder / name).unlink()
    (folder / "log.jsonl").write_text("\n".join((folder / "log.jsonl").read_text().splitlines()[:5]) + "\n")
    found = report_main([folder])
    assert (
        "Still training" in found and "Nothing is promised yet" in found and 'id="curves-chart"' in found and 'id="tradeoff"' not in found
    )
