"""The tables of a report."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.report import write_run, write_sweep

from halfmask.report.drawn import summaries
from halfmask.report.gather import gather
from halfmask.report.numbers import numbers, parts


def test_what_never_differs_has_no_column(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("public-only", "dpsgd"), (0.2,), (0.1, 1.0), ("top",), (0, 1))
    words, table = numbers(summaries(gather([tmp_path])))
    assert "percentages" in words and "standard deviation over seeds" in words
    assert ">Strategy<" not in table and ">Clip norm<" in table and ">PCKh@0.5<" in table and "±" in table
    assert table.count("data-clip_norm=") == 3 and 'data-clip_norm="0.1"' in table and 'data-clip_norm="1"' in table
    write_run(tmp_path / "runs" / "other", method="dpsgd", strategy="full")
    assert ">Strategy<" in numbers(summaries(gather([tmp_path])))[1]


def test_parts_have_a_table_for_each_dataset_and_say_what_was_never_measured(tmp_path: Path) -> None:
    for seed, value in ((0, 20.0), (1, 40.0)):
        folder = write_run(tmp_path / f"seed{seed}", method="dpsgd", seed=seed)
        body = json.loads((folder / "metrics.json").read_text())
        (folder / "metrics.json").write_text(json.dumps(body | {"parts": {"elbow": value, "tail": None}}))
    other = write_run(tmp_path / "other", method="dpsgd")
    (other / "metrics.json").write_text(json.dumps(json.loads((other / "metrics.json").read_text()) | {"dataset": "mpii"}))
    _, first, second = parts(gather([tmp_path]))
    assert "30.0 ± 14.1" in first and "<td>–</td>" in first and 'data-shown-for="pose on figures"' in first
    assert 'data-shown-for="pose on mpii"' in second and "Joint by joint" in second
    assert parts([]) == []
