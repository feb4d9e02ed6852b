"""What charts are drawn from."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from benchmarks.report import write_run, write_sweep

from halfmask.report.drawn import as_script, chart_data, summaries
from halfmask.report.gather import gather


def test_seeds_are_averaged_and_nothing_else_is(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("public-only", "dpsgd"), (0.2, 0.8), (0.1, 1.0), ("top", "full"), (0, 1, 2))
    runs = gather([tmp_path])
    summary = summaries(runs)
    assert len(summary) == 2 + 2 * 2 * 2 and {row["seeds"] for row in summary} == {3}
    data = chart_data(runs, summary)
    point = next(one for one in data["points"] if one["epsilon"] == 0.8 and one["clip_norm"] == "0.1" and one["strategy"] == "top")
    own = [run.metrics["pckh@0.5"] for run in runs if run.name in point["runs"]]
    assert len(own) == 3 and point["values"]["pckh@0.5"]["mean"] == statistics.fmean(own)
    assert point["values"]["pckh@0.5"]["spread"] == statistics.stdev(own)
    assert {switch["name"]: switch["values"] for switch in data["switches"]} == {
        "group": ["pose on figures"],
        "strategy": ["full", "top"],
        "clip_norm": ["0.1", "1"],
        "view": ["blur"],
    }


def test_two_runs_of_one_seed_are_both_kept_and_unfinished_ones_are_not_counted(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_run(tmp_path / name, method="dpsgd")
    log = tmp_path / "c" / "log.jsonl"
    log.write_text("\n".join(log.read_text().splitlines()[:-1]) + "\n")
    runs = gather([tmp_path])
    (row,) = summaries(runs)
    assert row["seeds"] == 2
    assert [bool(run["values"]) for run in chart_data(runs, [row])["runs"]] == [True, True, False]


def test_curves_and_spectra_come_from_the_log(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", method="projected", epochs=3)
    with (folder / "log.jsonl").open("a") as file:
        file.write(json.dumps({"event": "epoch", "epoch": 4.0, "public_loss": None, "epsilon": "infinity", "private_share": 0.5}) + "\n")
    (run,) = chart_data(gather([folder]), [])["runs"]
    assert run["epochs"] == [1.0, 2.0, 3.0, 4.0] and run["curves"]["public_loss"][3] is None and run["curves"]["epsilon"][3] is None
    assert run["curves"]["private_share"] == [None, None, None, 0.5]
    assert len(run["spectrum"]) == 100 and run["dimension"] == 50 and run["captured"] == 0.93


def test_data_cannot_end_the_element_that_holds_it() -> None:
    words = "</script><!--&\u2028"
    body = as_script({"a": words})
    assert not set("<>&\u2028") & set(body) and json.loads(body) == {"a": words}
