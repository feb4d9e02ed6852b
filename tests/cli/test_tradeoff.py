"""`halfmask audit tradeoff`: drawn people unasked, real ones only if asked for, and never beside what is released."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import pytest

from halfmask.audit import tradeoff_ways

pytestmark = pytest.mark.usefixtures("quick_accounting")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few strengths of baselines: each is some seconds of the judge's time."""
    monkeypatch.setattr(tradeoff_ways, "BASELINES", {"blur": (3.8, 15), "downsample": (8,)})


def test_everything_is_written_and_the_run_is_left_alone(halfmask: Callable[..., Any], generate_run, tmp_path: Path) -> None:
    runs = [generate_run(tmp_path / "a", epsilon=1), generate_run(tmp_path / "b", epsilon=1, seed=1)]
    before = {path: path.read_bytes() for run in runs for path in run.rglob("*")}
    out = tmp_path / "out"
    result = halfmask("audit", "tradeoff", runs[0], f"ours={runs[1]}", "--out", out, "--matched", "30", "--shown", 2, "--folds", 2)
    assert result.code == 0, result.err
    for words in ("ours ε 1 (2 seeds)", "Where 30.0% of actions are recognised", "ε bought nothing", "28.62%", "6 private people"):
        assert words in result.out
    assert "8/8: ours ε 1 seed 1: actions" in result.err and " s)" in result.err
    assert {path: path.read_bytes() for run in runs for path in run.rglob("*")} == before
    body = json.loads((out / "tradeoff.json").read_text())
    assert len(body["points"]) == 8 and body["matched"] == [0.3]
    pictures = ("tradeoff.png", "tradeoff-people.png", "tradeoff-nearest.png")
    assert all(cv2.imread(str(out / name)) is not None for name in pictures)
    page = (out / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 3 and "Utility against identity" in page and (out / "tradeoff.html").is_file()
    assert "| ours ε 1 (2 seeds) |" in (out / "tradeoff.md").read_text()
    again = halfmask("audit", "tradeoff", *runs, "--out", out, "--shown", 0, "--folds", 2, "--json")
    assert again.err.count("(measured before)") == 8 and json.loads(again.out)["points"] == body["points"]
    (out / "tradeoff.json").write_text("[]")
    assert "is no file of a trade-off" in halfmask("audit", "tradeoff", *runs, "--out", out).error


def test_mistakes_are_told(halfmask: Callable[..., Any], generate_run, trained, tmp_path: Path) -> None:
    run = generate_run(tmp_path / "a")
    assert "no run at" in halfmask("audit", "tradeoff", tmp_path / "nowhere").error
    assert "a run of the task 'pose'" in halfmask("audit", "tradeoff", trained[0]).error
    assert "expected percentages" in halfmask("audit", "tradeoff", run, "--matched", "0.65,165").error
    assert "unknown action 'flying'" in halfmask("audit", "tradeoff", run, "--actions", "flying", "--out", tmp_path / "o").error


def test_real_people_only_if_asked_for_and_never_into_a_run(
    halfmask: Callable[..., Any], generate_run, photo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for person in range(1, 7):
        for frame in range(3):
            photo(tmp_path / "market" / "bounding_box_train" / f"{person:04}_c1s1_{frame:06}_01.jpg", seed=10 * person + frame)
    splits = ("data.splits.public=1-2", "data.splits.private=3-6")
    run = generate_run(tmp_path / "run", f"data.name={tmp_path / 'market'}", *splits, "data.workers=1")
    with monkeypatch.context() as patch:
        patch.setattr("halfmask.audit.tradeoff.identity_pictures", lambda *a: pytest.fail("private people were read"))
        assert "--read-private" in halfmask("audit", "tradeoff", run).error
        inside = halfmask("audit", "tradeoff", run, "--read-private", "--out", run / "audit")
        assert "is inside a run's folder, which is released" in inside.error and not (run / "audit").exists()
    before = sorted(run.rglob("*"))
    result = halfmask("audit", "tradeoff", run, "--read-private")
    assert result.code == 0, result.err
    assert "warning: this audit reads private people" in result.err and "not for release" in result.out
    assert sorted(run.rglob("*")) == before
    place = Path(result.out.split("page: ")[1].strip()).parent
    assert not place.is_relative_to(tmp_path) and all(path.stat().st_mode & 0o077 == 0 for path in place.iterdir())
    assert (place / "tradeoff-people.png").is_file() and not (place / "tradeoff-nearest.png").exists(), "nobody private is shown"
    body = json.loads((place / "tradeoff.json").read_text())
    assert body["not_for_release"] and body["chance"] == {"identity": 0.25} and body["like"]["part"] == "public"
    # The published strengths, and nothing about actions.
    assert [point["family"] for point in body["points"]][:4] == ["raw pictures", "blur", "downsampling", "superpixels"]
    assert "actions" not in result.out.split("Published")[0].split("Every way")[1] and not (place / "tradeoff.png").exists()
    assert "Market-1501" in result.out and "CAD-60 " not in result.out


def test_a_comparison_measures_it_too(halfmask: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tradeoff_ways, "BASELINES", {"blur": (3.8,)})
    small = {"data.private": 36, "data.public": 8, "data.public_skip": 0, "data.test": 10, "data.per_subject": 6, "data.height": 32}
    small |= {"data.width": 32, "model.generator_batch": 4, "batch": 8, "epochs": 0.3, "even_so": "true", "model.weights": "null"}
    settings = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    out = tmp_path / "table"
    result = halfmask("compare", "generate/critic", "--methods", "dpsgd", "--epsilons", "1", "--people", 4, *settings, "--out", out)
    assert result.code == 0, result.err
    assert "ours ε 1" in result.out and "drawn avatars" in result.out
    body = json.loads((out / "audit" / "tradeoff.json").read_text())
    assert body["people"] == 4 and body["points"][-1]["run"] == "dpsgd-eps1-clip1-seed0"
    assert "What ε bought" in (out / "index.html").read_text(), "on the comparison's own page"
    left = halfmask("compare", "generate/critic", "--methods", "dpsgd", "--no-tradeoff", *settings, "--out", out)
    assert left.code == 0 and "drawn avatars" not in left.out
    refused = halfmask("compare", "pose/figures", "--tradeoff", "--out", tmp_path / "p")
    assert "measures pictures of the task generate" in refused.error
