from __future__ import annotations

import csv
import json
import sys

import cv2
import pytest

from halfmask.tasks.base import task_named
from halfmask.training import running, sweep, sweep_estimate

GRID = ("--methods", "public-only,dpsgd", "--epsilons", "0.5,2", "--clips", "0.1", "--seeds", "0", "--overlays", 2)


def test_stops_goes_on_and_leaves_everything(halfmask, recipe, tmp_path, monkeypatch) -> None:
    out = tmp_path / "table"
    real, started = running.run_training, []

    def stop_at_the_third(config, folder, progress=None, resume=False):
        started.append(folder.name)
        if len(started) == 3:
            raise KeyboardInterrupt
        return real(config, folder, progress, resume)

    monkeypatch.setattr("halfmask.training.sweep.run_training", stop_at_the_third)
    result = halfmask("compare", recipe, *GRID, "--out", out)
    assert result.code == 130 and "goes on where" in result.err
    result = halfmask("compare", recipe, *GRID, "--out", out)
    assert result.code == 0, result.err
    assert started == [
        "public-only-seed0",
        "dpsgd-eps0.5-clip0.1-seed0",
        "dpsgd-eps2-clip0.1-seed0",
        "dpsgd-eps2-clip0.1-seed0",
    ]
    assert "run 2/3: dpsgd ε=0.5 C=0.1 seed 0 (done before)" in result.err
    assert "run 3/3: dpsgd ε=2 C=0.1 seed 0" in result.err

    for word in ("public-only", "dpsgd", "PCKh@0.5", "optimiser: sgd", "Each certificate is for its run alone"):
        assert word in result.out
    table = [line for line in result.out.splitlines() if line.startswith(("│", "┃"))]
    assert len(table) == 4 and max(map(len, table)) <= 80

    rows = list(csv.DictReader((out / "results.csv").open()))
    assert [(row["method"], row["epsilon"]) for row in rows] == [("public-only", ""), ("dpsgd", "0.5"), ("dpsgd", "2.0")]
    assert all(row["pckh@0.5"] and row["noise_source"] for row in rows)
    body = json.loads((out / "results.json").read_text())
    assert len(body["runs"]) == len(body["summary"]) == 3
    assert (out / "accuracy.html").is_file() and cv2.imread(str(out / "accuracy.png")) is not None
    sheet = cv2.imread(str(out / "overlays.png"))
    assert sheet.shape[0] > 2 * 128 and sheet.shape[1] > 4 * 96

    page = (out / "index.html").read_text()
    for word in ("Take any one crop", "without reading the private part", "Optimiser: sgd", "dpsgd-eps2-clip0.1-seed0", "truth"):
        assert word in page
    # Two people: raw, what is public, the truth, and three models.
    assert page.count("data:image/webp;base64,") == 2 * 6 and "connect-src 'none'" in page
    assert "Each certificate is for its run alone" in page

    again = halfmask("compare", recipe, *GRID, "--out", out, "--json")
    assert json.loads(again.out)["summary"] == body["summary"] and len(started) == 4


def test_mistakes_show_before_anything_runs(halfmask, recipe, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("halfmask.training.sweep.do_run", lambda *a: pytest.fail("a run was started"))
    out = tmp_path / "table"
    for extra, message in (
        (("--methods", "dpsgd,feture"), "unknown method 'feture': did you mean 'feature'?"),
        (("--methods", "dpsgd,feature", "--set", "adjacency=add-remove"), "has no meaning for method 'feature'"),
        (("--epsilons", "0.2,-1"), "epsilon is -1.0"),
        (("--epsilons", "0.2,much"), "--epsilons is '0.2,much': expected numbers"),
        (("--seeds", "0,0"), "0 is given twice"),
        (("--seeds", "0,,1"), "none of them empty"),
        (("--set", "seed=4"), "would override what is compared"),
        (("--set", "data.test=0"), "nobody to judge the model on"),
    ):
        assert message in halfmask("compare", recipe, "--methods", "dpsgd", *extra, "--out", out).error
        assert not out.exists()


@pytest.mark.parametrize(
    "real, methods, without_noise", [(False, None, True), (True, None, False), (True, "dpsgd,non-private", True)], ids=str
)
def test_nobody_real_gets_a_run_without_noise_unasked(
    halfmask, recipe, folder, tmp_path, monkeypatch, real: bool, methods: str | None, without_noise: bool
) -> None:
    planned: list[str] = []

    def plan(body, grid, changes, out):
        planned.extend(one.method for one in grid)
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "plan_sweep", plan)
    monkeypatch.setattr("halfmask.training.sweep.do_run", lambda *a: pytest.fail("a run was started"))
    data = ("--set", f"data.name={folder}") if real else ()
    chosen = ("--methods", methods) if methods else ()
    assert halfmask("compare", recipe, *data, *chosen, "--out", tmp_path / "table").code != 0
    assert ("non-private" in planned) == without_noise
    assert set(planned) >= (set(task_named("pose").methods) - {"non-private"} if methods is None else {"dpsgd"})


def test_a_budget_that_ends_in_the_middle_is_told_in_the_table(halfmask, recipe, tmp_path, fresh_home) -> None:
    out = tmp_path / "table"
    grid = ("--methods", "dpsgd", "--epsilons", "9", "--seeds", "0,1", "--overlays", 0)
    settings = [part for one in ("budget=0.3", "noise_multiplier=4", "accountant=rdp", "delta=1e-3") for part in ("--set", one)]
    result = halfmask("compare", recipe, *grid, *settings, "--out", out)
    assert result.code == 2 and "warning: run 2/2: dpsgd ε=9 C=0.1 seed 1 was refused: the dataset's budget is ε = 0.3" in result.err
    assert "Not in the table: dpsgd ε=9 C=0.1 seed 1 (refused: the dataset's budget" in " ".join(result.out.split())
    body = json.loads((out / "results.json").read_text())
    assert len(body["runs"]) == 1 and list(body["absent"]) == ["dpsgd ε=9 C=0.1 seed 1"]
    assert "Not in the table" in (out / "index.html").read_text()
    nobody = halfmask("compare", recipe, *grid, *settings, "--seeds", 2, "--out", tmp_path / "other")
    assert "none of the 1 runs came to its end; the first: the dataset's budget" in nobody.error


def test_a_dry_run_leaves_nothing_behind(halfmask, recipe, tmp_path, fresh_home, monkeypatch, quick_accounting) -> None:
    monkeypatch.setattr(sweep_estimate, "_measured", lambda *a: sweep_estimate.Measured(0.5, 1.0, 0.01, 0.01, 8, 2_000_000_000, 500))
    monkeypatch.setattr("halfmask.training.sweep.do_run", lambda *a: pytest.fail("a run was started"))
    out = tmp_path / "table"
    grid = ("--methods", "public-only,dpsgd", "--epsilons", "2,4", "--set", "accountant=rdp", "--out", out, "--dry-run", "--workers", 2)
    shown = halfmask("compare", recipe, *grid)
    assert shown.code == 0 and not out.exists() and not (fresh_home / "ledgers").exists()
    for words in ("dpsgd ε=4 C=0.1 seed 0", "2.0 GB", "together would cost ε =", "2 at once", "nothing private was opened"):
        assert words in " ".join(shown.out.split())
    body = json.loads(halfmask("compare", recipe, *grid, "--json").out)
    assert [run["steps"] for run in body["runs"]] == [3, 3, 3] and body["epsilon_together"] > 4
    assert body["runs"][1]["noise_multiplier"] > body["runs"][2]["noise_multiplier"] > 0 and body["seconds_one_after_another"] > 4


def test_who_does_the_work_is_checked_first(halfmask, recipe, tmp_path, monkeypatch) -> None:
    out = tmp_path / "table"
    assert "what a run asks Ray for" in halfmask("compare", recipe, "--methods", "dpsgd", "--gpus", 1, "--out", out).error
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'halfmask[ray]'" in halfmask("compare", recipe, "--methods", "dpsgd", "--ray", "auto", "--out", out).error
    assert not out.exists()
