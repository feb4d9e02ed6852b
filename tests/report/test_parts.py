"""What a task shows of its parts on the page of a comparison."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from benchmarks.report import write_run

from halfmask.report.gather import gather
from halfmask.report.parts import class_figures, figure_sections, judged_runs, mean_parts, write_figures
from halfmask.tasks.base import Figure, Judged, Scores, Task


def scores(walk: float, wave: float) -> Scores:
    confusion = [[round(6 * walk), 6 - round(6 * walk)], [2 - round(2 * wave), round(2 * wave)]]
    parts = {"walk": 100 * walk, "wave": 100 * wave}
    return Scores({"accuracy": 50.0}, parts, tables={"classes": ["walk", "wave"], "confusion": confusion})


JUDGED = [
    Judged("public-only", None, None, (scores(0.5, 0.5),)),
    Judged("masked", 1.0, 0.1, (scores(1.0, 0.5), scores(0.5, 0.5))),
    Judged("masked", 5.0, 0.1, (scores(1.0, 1.0),)),
    Judged("masked", 5.0, 0.2, (scores(0.0, 0.0),)),
    Judged("dpsgd", 1.0, 0.1, (scores(0.5, 0.0),)),
    Judged("non-private", None, None, (scores(1.0, 1.0),)),
]


def test_seeds_of_a_combination_are_read_together_and_strategies_are_not(tmp_path: Path) -> None:
    for seed, value in ((0, 20.0), (1, None), (2, 40.0)):
        folder = write_run(tmp_path / f"seed{seed}", method="dpsgd", epsilon=1.0, clip_norm=0.1, seed=seed)
        body = {"task": "t", "dataset": "d", "split": "test", "metrics": {"accuracy": 1.0}, "parts": {"walk": value}}
        (folder / "metrics.json").write_text(json.dumps(body | {"per_class": {"walk": value}, "confusion": [[seed]]}))
    other = write_run(tmp_path / "other", method="dpsgd", epsilon=1.0, clip_norm=0.1, strategy="full", seed=4)
    runs = gather([tmp_path])
    (found,) = judged_runs([*(run for run in runs if run.folder != other), *(run for run in runs if run.folder == other)])
    assert (found.method, found.epsilon, found.clip_norm, len(found.scores)) == ("dpsgd", 1.0, 0.1, 3)
    assert found.scores[2].tables == {"confusion": [[2]]}, "lists alone are tables"
    assert mean_parts(found) == {"walk": 30.0}, "a seed in which it was not measured does not count"


def test_classes_have_a_drawing_for_each_epsilon_and_one_confusion_for_each_method() -> None:
    figures = {figure.name: figure for figure in class_figures(JUDGED)}
    methods = ("public-only", "masked", "dpsgd", "non-private")
    assert set(figures) == {"classes-eps1", "classes-eps5", *(f"confusion-{method}" for method in methods)}
    titles = [note.text for note in figures["classes-eps1"].chart.layout.annotations]
    assert titles == ["dpsgd", "public-only", "masked"], "plain privacy above all that regains something"
    assert [note.text for note in figures["classes-eps5"].chart.layout.annotations] == ["public-only", "masked"]
    # At the largest ε and the clip norm given first.
    assert np.array(figures["confusion-masked"].chart.data[0].customdata).tolist() == [[6, 0], [0, 2]]
    assert "ε=5" in figures["confusion-masked"].title
    assert class_figures([Judged("dpsgd", 1.0, 0.1, (Scores({"loss": 1.0}),))]) == []


def test_shares_are_the_test_sets_unless_the_task_knows_better() -> None:
    def shares_of(**given: dict[str, float]) -> list[float]:
        chart = class_figures([JUDGED[1]], **given)[0].chart
        return next(list(trace.y) for trace in chart.data if trace.name.startswith("share"))

    assert shares_of() == [75, 25]
    assert shares_of(shares={"walk": 0.9, "wave": 0.1}) == [90, 10]


def test_a_page_has_the_first_drawing_open_and_nothing_of_a_task_without_any(tmp_path: Path) -> None:
    class Drawing(Task):
        name = "drawing"

        def loss(self, model, batch):
            raise NotImplementedError

        def figures(self, judged):
            return [Figure(f"figure-{one.method}", f"{one.method} & others", np.zeros((4, 5, 3), np.uint8)) for one in judged[:2]]

    figures = write_figures(tmp_path, Drawing(None), JUDGED)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure-masked.png", "figure-public-only.png"]
    first, second = figure_sections(figures).splitlines()
    assert first.startswith("<img") and "public-only &amp; others" in first
    assert second.startswith("<details><summary>masked &amp; others")
    assert figure_sections([]) == ""
