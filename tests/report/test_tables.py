import csv
import io
import math

import pytest
from rich.console import Console

from halfmask.errors import HalfmaskError
from halfmask.metrics import names
from halfmask.metrics.names import MetricInfo
from halfmask.report.tables import (
    format_epsilon,
    format_metric,
    heading,
    markdown_table,
    method_table,
    method_tables,
    score_line,
    summarise,
    write_csv,
)


def run(method, epsilon, seed, half, tenth=10.0, clip_norm=None):
    return {
        "method": method,
        "epsilon": epsilon,
        "clip_norm": clip_norm,
        "seed": seed,
        "pckh@0.5": half,
        "pckh@0.1": tenth,
    }


def sample_rows():
    return summarise(
        [
            run("non-private", None, 0, 90.0),
            run("dpsgd", 8.0, 0, 60.0, clip_norm=0.1),
            run("public-only", None, 0, 50.0),
            run("dpsgd", 8.0, 1, 62.0, clip_norm=0.1),
        ]
    )


def printed(table):
    console = Console(width=200, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


def test_seeds_are_gathered_in_first_seen_order_with_sample_spread():
    rows = sample_rows()
    assert [row["method"] for row in rows] == ["non-private", "dpsgd", "public-only"]
    dpsgd = rows[1]
    assert dpsgd["seeds"] == 2
    assert dpsgd["pckh@0.5"] == {"mean": 61.0, "spread": pytest.approx(math.sqrt(2)), "seeds": 2}
    assert dpsgd["pckh@0.1"]["spread"] == 0.0


def test_single_seed_has_no_spread():
    assert sample_rows()[0]["pckh@0.5"] == {"mean": 90.0, "spread": None, "seeds": 1}


def test_epsilon_and_clip_norm_keep_runs_apart():
    runs = [
        run("dpsgd", 1.0, 0, 1),
        run("dpsgd", 2.0, 0, 2),
        run("dpsgd", 2.0, 0, 3, clip_norm=0.1),
    ]
    assert [row["pckh@0.5"]["mean"] for row in summarise(runs)] == [1.0, 2.0, 3.0]
    assert [row["pckh@0.5"]["mean"] for row in summarise(runs[:2], by=("epsilon",))] == [1.0, 2.0]


def test_fields_a_run_lacks_count_as_none():
    (row,) = summarise([{"method": "public-only", "seed": 0, "pckh@0.5": 50}])
    assert row == {
        "method": "public-only",
        "epsilon": None,
        "clip_norm": None,
        "seeds": 1,
        "pckh@0.5": {"mean": 50.0, "spread": None, "seeds": 1},
    }


def test_repeated_seed_is_refused_because_it_shrinks_the_spread():
    with pytest.raises(HalfmaskError, match=r"seed 3 occurs 2 times .*method dpsgd, epsilon 8.0"):
        summarise([run("dpsgd", 8.0, 3, 60.0), run("dpsgd", 8.0, 3, 60.0)])


def test_other_metrics_can_be_summarised():
    (row,) = summarise([{"method": "a", "seed": s, "loss": s} for s in (1, 3)], metrics=("loss",))
    assert row["loss"]["mean"] == 2.0


@pytest.mark.parametrize(
    ("method", "epsilon", "text"),
    [
        ("non-private", None, "∞"),
        ("non_private", None, "∞"),
        ("nonprivate", None, "∞"),
        ("public-only", None, "—"),
        ("dpsgd", math.inf, "∞"),
        ("dpsgd", 8.0, "8"),
        ("dpsgd", 0.5, "0.5"),
        ("dpsgd", 7.99812, "7.998"),
    ],
)
def test_epsilon_is_written_honestly(method, epsilon, text):
    assert format_epsilon(method, epsilon) == text


@pytest.mark.parametrize(
    ("value", "seeds", "text"),
    [
        ({"mean": 84.23, "spread": 0.58, "seeds": 3}, 3, "84.2 ± 0.6"),
        ({"mean": 84.23, "spread": None, "seeds": 1}, 1, "84.2"),
        ({"mean": 84.23, "spread": 0.58, "seeds": 2}, 3, "84.2 ± 0.6 (2 of 3 seeds)"),
        ({"mean": math.nan, "spread": None, "seeds": 1}, 1, "—"),
        (84.23, None, "84.2"),
        (None, None, "—"),
    ],
)
def test_metric_is_written_with_its_spread(value, seeds, text):
    assert format_metric(value, seeds) == text


def test_mean_over_part_of_the_seeds_says_so_in_the_table():
    runs = [run("dpsgd", 8.0, 0, 60.0), run("dpsgd", 8.0, 1, None)]
    assert "60.0 (1 of 2 seeds)" in markdown_table(summarise(runs))


def test_headings_read_like_published_tables():
    assert [heading(c) for c in ("epsilon", "pckh@0.5", "pckh@0.5/head", "clip_norm")] == [
        "ε",
        "PCKh@0.5",
        "Head",
        "Clip norm",
    ]


def test_markdown_shows_the_columns_asked_for():
    text = markdown_table(sample_rows(), ["method", "epsilon", "pckh@0.5"])
    assert text == (
        "| Method | ε | PCKh@0.5 |\n"
        "| :--- | ---: | ---: |\n"
        "| non-private | ∞ | 90.0 |\n"
        "| dpsgd | 8 | 61.0 ± 1.4 |\n"
        "| public-only | — | 50.0 |\n"
    )


def test_markdown_escapes_bars():
    assert r"a\|b" in markdown_table([{"method": "a|b"}], ["method"])


def test_misspelt_column_gets_a_suggestion():
    with pytest.raises(HalfmaskError, match=r"did you mean 'pckh@0\.5'"):
        markdown_table(sample_rows(), ["method", "pck@0.5"])


def test_terminal_table_shows_methods_and_drops_columns_that_are_empty_throughout():
    text = printed(method_table(sample_rows(), title="Validation"))
    assert "Validation" in text
    assert "61.0 ± 1.4" in text
    assert "Clip norm" in text
    without_clipping = [row for row in sample_rows() if row["method"] != "dpsgd"]
    text = printed(method_table(without_clipping))
    assert "Clip norm" not in text
    assert "ε" in text


def test_terminal_table_takes_group_columns_of_a_single_run_and_odd_names():
    row = {"method": "mine [bold]", "epsilon": 2.0, "pckh@0.5/head": 91.27, "pckh@0.5/wrist": math.nan}
    text = printed(method_table([row]))
    assert "mine [bold]" in text
    assert "Head" in text and "91.3" in text


def test_csv_keeps_full_numbers_and_every_column(tmp_path):
    path = tmp_path / "deep" / "results.csv"
    rows = [*sample_rows(), {"method": "late", "note": "naïve, plain"}]
    write_csv(path, rows)
    with path.open(newline="", encoding="utf-8") as file:
        back = list(csv.DictReader(file))
    assert back[1]["pckh@0.5 mean"] == "61.0"
    assert float(back[1]["pckh@0.5 spread"]) == math.sqrt(2)
    assert back[1]["pckh@0.5 seeds"] == "2"
    assert back[0]["epsilon"] == back[0]["pckh@0.5 spread"] == ""
    assert back[3]["note"] == "naïve, plain"


@pytest.fixture
def declared(monkeypatch):
    metrics = {
        "accuracy": MetricInfo("Accuracy", "%", digits=1),
        "landmarks": MetricInfo("Landmarks", "% of face size", higher_is_better=False, digits=2),
    }
    monkeypatch.setattr(names, "_DECLARED", metrics)


def test_every_metric_has_its_unit_digits_and_direction(declared):
    runs = [{"method": "dpsgd", "epsilon": 1.0, "seed": seed, "accuracy": 80 + seed, "landmarks": 3.0 + seed / 10} for seed in (0, 1)]
    text = markdown_table(summarise(runs, metrics=("accuracy", "landmarks")))
    assert "| Accuracy | Landmarks (% of face size) ↓ |" in text
    assert "80.5 ± 0.7" in text and "3.05 ± 0.07" in text
    assert score_line({"accuracy": 80.0, "landmarks": 3.0}) == "Accuracy 80.0   Landmarks 3.00 % of face size"
    assert score_line({"accuracy": 80.0, "landmarks": None}) == "Accuracy 80.0"


def test_many_metrics_go_into_several_narrow_tables():
    metrics = [f"m{number}" for number in range(7)]
    rows = summarise([{"method": "dpsgd", "epsilon": 1.0, "seed": 0} | dict.fromkeys(metrics, 0.5)], metrics=metrics)
    tables = method_tables(rows, metrics)
    assert [sum(name in printed(table) for name in metrics) for table in tables] == [3, 3, 1]
    assert all("dpsgd" in printed(table) and "ε" in printed(table) for table in tables)
    assert printed(method_tables(sample_rows(), ["pckh@0.5", "pckh@0.1"])[0]) == printed(method_table(sample_rows()))
