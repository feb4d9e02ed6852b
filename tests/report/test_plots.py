import numpy as np
import pytest

from halfmask.data.images import read_image
from halfmask.errors import HalfmaskError
from halfmask.report import canvas, plots
from halfmask.report.plots import accuracy_against_epsilon, method_bars


def row(method, epsilon, mean, spread=1.0, clip_norm=None):
    return {
        "method": method,
        "epsilon": epsilon,
        "clip_norm": clip_norm,
        "seeds": 3,
        "pckh@0.5": {"mean": mean, "spread": spread, "seeds": 3},
    }


def sweep():
    return [
        row("non-private", None, 90.0),
        row("dpsgd", 8.0, 60.0, clip_norm=0.1),
        row("dpsgd", 2.0, 50.0, clip_norm=0.1),
        row("projective", 2.0, 70.0, clip_norm=0.1),
        row("projective", 8.0, 80.0, None, clip_norm=0.1),
        row("public-only", None, 40.0, None),
    ]


def figure_of(monkeypatch, draw, *arguments, **options):
    """Catch the plotly figure instead of writing four megabytes for each test."""
    caught = []
    monkeypatch.setattr(plots, "_write_html", lambda figure, path: caught.append(figure))
    draw(*arguments, **options)
    return caught[0]


def count_colour(picture, colour):
    return int((picture == np.array(colour)).all(axis=2).sum())


def test_page_is_self_contained(tmp_path):
    path = tmp_path / "new" / "chart.html"
    accuracy_against_epsilon(sweep(), path)
    page = path.read_text(encoding="utf-8")
    assert len(page) > 1_000_000
    assert '<script src="http' not in page and "src='http" not in page
    assert "projective" in page
    assert list(path.parent.iterdir()) == [path]


def test_page_has_a_line_for_each_method_sorted_by_epsilon(monkeypatch):
    figure = figure_of(monkeypatch, accuracy_against_epsilon, sweep(), "x.html")
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces) == ["non-private", "dpsgd", "projective", "public-only"]
    assert list(traces["dpsgd"].x) == [2.0, 8.0]
    assert list(traces["dpsgd"].y) == [50.0, 60.0]
    assert list(traces["projective"].error_y.array) == [1.0, 0.0]
    assert list(traces["non-private"].y) == [90.0, 90.0]
    assert list(traces["public-only"].y) == [40.0, 40.0]
    assert traces["dpsgd"].line.color != traces["projective"].line.color
    assert {traces["dpsgd"].line.dash, traces["projective"].line.dash} == {"solid"}


def test_several_clip_norms_share_a_colour_and_differ_in_dash(monkeypatch):
    rows = [*sweep(), row("dpsgd", 2.0, 45.0, clip_norm=0.5), row("dpsgd", 8.0, 55.0, clip_norm=0.5)]
    figure = figure_of(monkeypatch, accuracy_against_epsilon, rows, "x.html")
    traces = {trace.name: trace for trace in figure.data}
    first, second = traces["dpsgd, clip 0.1"], traces["dpsgd, clip 0.5"]
    assert first.line.color == second.line.color
    assert first.line.dash != second.line.dash
    assert "projective, clip 0.1" in traces


def test_single_epsilon_becomes_bars(monkeypatch):
    rows = [one for one in sweep() if one["epsilon"] in (None, 8.0)]
    figure = figure_of(monkeypatch, accuracy_against_epsilon, rows, "x.html")
    assert [trace.type for trace in figure.data] == ["bar"] * 4
    assert [trace.y[0] for trace in figure.data] == [
        "non-private",
        "dpsgd, ε = 8",
        "projective, ε = 8",
        "public-only",
    ]
    assert [trace.x[0] for trace in figure.data] == [90.0, 60.0, 80.0, 40.0]
    assert figure.data[0].error_x.array[0] == 1.0


def test_picture_shows_lines_levels_and_error_bars(monkeypatch, tmp_path):
    monkeypatch.setattr(plots, "_write_html", lambda *_: None)
    accuracy_against_epsilon(sweep(), "x.html", tmp_path / "chart.png")
    picture = read_image(tmp_path / "chart.png")
    assert picture.shape == (600, 900, 3)
    for colour in canvas.PALETTE[:2]:
        assert count_colour(picture, colour) > 300
    assert (picture[[0, -1]] == 255).all() and (picture[:, [0, -1]] == 255).all(), "nothing touches the edge"

    wide = [{**one, "pckh@0.5": {**one["pckh@0.5"], "spread": 3.0}} for one in sweep()]
    none = [{**one, "pckh@0.5": {**one["pckh@0.5"], "spread": None}} for one in sweep()]
    accuracy_against_epsilon(wide, "x.html", tmp_path / "wide.png")
    accuracy_against_epsilon(none, "x.html", tmp_path / "none.png")
    orange = canvas.PALETTE[1]
    assert count_colour(read_image(tmp_path / "wide.png"), orange) > count_colour(read_image(tmp_path / "none.png"), orange)


def test_higher_accuracy_is_drawn_higher():
    series = plots._series(sweep(), "pckh@0.5")
    picture = plots._lines_picture(series, "pckh@0.5", "t")[112:530, 70:640]
    dpsgd, projective = (np.argwhere((picture == np.array(colour)).all(axis=2))[:, 0].mean() for colour in canvas.PALETTE[:2])
    assert projective < dpsgd


def test_bars_are_as_long_as_their_values():
    rows = [row("a", 8.0, 80.0, None), row("b", 8.0, 40.0, None)]
    picture = plots._bars_picture(plots._series(rows, "pckh@0.5"), "pckh@0.5", "t")
    lengths = [(picture == np.array(colour)).all(axis=2).sum(axis=1).max() for colour in canvas.PALETTE[:2]]
    assert lengths[0] == pytest.approx(2 * lengths[1], abs=4)


def test_long_texts_stay_inside_the_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "_write_html", lambda *_: None)
    rows = [row("a method with quite a long name", 8.0, 99.0, 1.0), row("b", 8.0, 40.0, None)]
    method_bars(rows, "x.html", tmp_path / "bars.png", title="a title that goes on and on " * 8)
    picture = read_image(tmp_path / "bars.png")
    assert (picture[[0, -1]] == 255).all() and (picture[:, [0, -1]] == 255).all()


def test_plain_numbers_and_missing_metrics_are_understood(monkeypatch):
    rows = [
        {"method": "dpsgd", "epsilon": 1.0, "pckh@0.5": 50.0},
        {"method": "dpsgd", "epsilon": 2.0, "pckh@0.5": 60.0},
        {"method": "dpsgd", "epsilon": 4.0},
        {"method": "dpsgd", "epsilon": 8.0, "pckh@0.5": float("nan")},
    ]
    figure = figure_of(monkeypatch, accuracy_against_epsilon, rows, "x.html")
    assert list(figure.data[0].x) == [1.0, 2.0]


def test_nothing_to_draw_is_said(tmp_path):
    with pytest.raises(HalfmaskError, match="none of the 6 summary rows has a value for 'accuracy'"):
        accuracy_against_epsilon(sweep(), tmp_path / "x.html", metric="accuracy")


def test_epsilon_must_be_positive(tmp_path):
    with pytest.raises(HalfmaskError, match="'dpsgd' has ε 0"):
        accuracy_against_epsilon([row("dpsgd", 0.0, 50.0)], tmp_path / "x.html")


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (41.0, 88.0, [40, 50, 60, 70, 80, 90]),
        (0.0, 100.0, [0, 20, 40, 60, 80, 100]),
        (84.1, 84.9, [84.0, 84.2, 84.4, 84.6, 84.8, 85.0]),
    ],
)
def test_ticks_are_round_and_enclose_the_data(low, high, ticks):
    assert canvas.nice_ticks(low, high) == ticks


def test_ticks_of_a_single_value_still_span_a_range():
    ticks = canvas.nice_ticks(50.0, 50.0)
    assert ticks[0] < ticks[-1]
    assert ticks[0] <= 50.0 <= ticks[-1]


def test_dashes_leave_gaps_and_run_on_around_corners():
    pieces = canvas._dashes([(0, 0), (12, 0), (12, 20)], (10.0, 6.0))
    assert pieces == [((0, 0), (10, 0)), ((12, 4), (12, 14))]


def test_symbols_have_stand_ins_where_the_font_lacks_them(monkeypatch):
    monkeypatch.setattr(canvas, "_FONT_HAS_SYMBOLS", False)
    assert canvas._drawable("ε = ∞ ± 1 — x").isascii()


def test_axes_say_units_and_which_way_is_better(monkeypatch):
    rows = [{"method": method, "epsilon": None, "seeds": 1, "mask_mse": {"mean": 0.0123, "spread": None}} for method in ("a", "b")]
    figure = figure_of(monkeypatch, method_bars, rows, "x.html", metric="mask_mse")
    assert figure.layout.xaxis.title.text == "mask_mse (lower is better)" and figure.data[0].text[0] == "0.0123"
    assert figure_of(monkeypatch, method_bars, sweep(), "x.html").layout.xaxis.title.text == "PCKh@0.5 (%)"
