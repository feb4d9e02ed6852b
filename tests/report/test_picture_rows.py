"""Rows of pictures: who stands for a method, and what a row shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.report import write_sweep

from halfmask.report.gather import gather
from halfmask.report.picture_rows import Column, representatives, rows_of_pictures, sheet


def pictures(shade: int) -> list[np.ndarray]:
    return [np.full((400, 300, 3), shade, np.uint8)] * 2


def test_pictures_are_not_chosen_by_score(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("public-only", "dpsgd"), (0.2, 0.8), (0.1, 1.0), ("full", "top"), (0, 4))
    runs = gather([tmp_path])
    assert representatives(runs) == [], "what has no weights draws nothing"
    for run in runs:
        (run.folder / "model.safetensors").touch()
    chosen = [(run.method, run.epsilon, run.clip_norm, run.strategy, run.seed) for run in representatives(runs)]
    assert chosen == [("public-only", None, None, "full", 0), ("dpsgd", 0.2, 0.1, "full", 0), ("dpsgd", 0.8, 0.1, "full", 0)]


def test_of_too_many_models_those_of_the_largest_epsilon_are_asked(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("dpsgd", "feature"), [0.1 * number for number in range(1, 14)], (1.0,), ("top",))
    runs = gather([tmp_path])
    for run in runs:
        (run.folder / "model.safetensors").touch()
    assert [(run.method, round(run.epsilon or 0, 3)) for run in representatives(runs)] == [("dpsgd", 1.3), ("feature", 1.3)]


def test_a_row_for_each_record_with_all_columns_and_a_sheet_with_the_first() -> None:
    columns = [Column("raw", pictures(0), first=False), Column("truth", pictures(9)), Column("dpsgd ε=<1>", pictures(99))]
    rows = rows_of_pictures(columns, "Skeletons")
    assert rows.count('<div class="people">') == 2 and rows.count("data:image/webp") == 6
    assert "dpsgd ε=&lt;1&gt;" in rows and "no promise was made" in rows and "Skeletons." in rows
    drawn = sheet(columns)
    assert drawn is not None and drawn.shape[1] < 3 * 300 + 40, "the raw pictures are not on the narrow sheet"
    assert rows_of_pictures([]) == "" and sheet([]) is None
