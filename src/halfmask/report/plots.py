"""Charts of a metric against privacy, as a page to explore and as a still picture.

The page carries plotly's script inside, so that it opens without a network. The picture is drawn with the
tools in `halfmask.report.canvas`, because plotly's own export needs a browser.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from halfmask.errors import HalfmaskError
from halfmask.metrics.names import about, printed, with_unit
from halfmask.report import canvas
from halfmask.report.overlay import save_png
from halfmask.report.tables import Row, format_epsilon, format_metric, is_non_private

_WIDTH, _HEIGHT = 900, 600
_TITLE_TEXT, _LABEL_TEXT, _NOTE_TEXT = 0.68, 0.5, 0.45
_DASHES: tuple[canvas.Dash, ...] = ("solid", "dash", "dot", "dashdot")
_NON_PRIVATE_COLOUR: canvas.Colour = (60, 60, 60)
_UNSTATED_COLOUR: canvas.Colour = (135, 135, 135)
_SPREAD_NOTE = "± one sample standard deviation over seeds"


@dataclass(frozen=True)
class _Point:
    mean: float
    spread: float | None
    epsilon: float | None
    text: str

    @property
    def low(self) -> float:
        return self.mean - (self.spread or 0.0)

    @property
    def high(self) -> float:
        return self.mean + (self.spread or 0.0)


@dataclass(frozen=True)
class _Series:
    label: str
    colour: canvas.Colour
    dash: canvas.Dash
    points: list[_Point]

    @property
    def is_baseline(self) -> bool:
        """Baselines state no ε and run across the chart as a level line."""
        return self.points[0].epsilon is None


def accuracy_against_epsilon(
    summary_rows: Sequence[Row],
    path_html: str | Path,
    path_png: str | Path | None = None,
    *,
    metric: str = "pckh@0.5",
    title: str | None = None,
) -> None:
    """Chart what accuracy each method reaches at each privacy loss.

    Methods that state no ε (non-private, public-only) are level lines. With fewer than two values of ε a line
    says nothing, and `method_bars` is drawn instead.

    Args:
        summary_rows: From `halfmask.report.tables.summarise`.
        path_html: Where the page goes.
        path_png: Where the still picture goes, if one is wanted.
        metric: Which metric is the accuracy.
        title: Printed above the chart.
    """
    series = _series(summary_rows, metric)
    if len({point.epsilon for one in series for point in one.points if point.epsilon is not None}) < 2:
        method_bars(summary_rows, path_html, path_png, metric=metric, title=title)
        return
    title = title or f"{printed(metric)} against privacy loss ε"
    _write_html(_lines_figure(series, metric, title), path_html)
    if path_png is not None:
        save_png(path_png, _lines_picture(series, metric, title))


def method_bars(
    summary_rows: Sequence[Row],
    path_html: str | Path,
    path_png: str | Path | None = None,
    *,
    metric: str = "pckh@0.5",
    title: str | None = None,
) -> None:
    """Chart one bar for each row, from zero so that lengths can be compared.

    The arguments are those of `accuracy_against_epsilon`.
    """
    series = _series(summary_rows, metric)
    title = title or f"{printed(metric)} by method"
    _write_html(_bars_figure(series, metric, title), path_html)
    if path_png is not None:
        save_png(path_png, _bars_picture(series, metric, title))


def _series(summary_rows: Sequence[Row], metric: str) -> list[_Series]:
    """Sort rows into lines: one for each method and clip norm, in the order first seen."""
    groups: dict[tuple[str, Any, bool], list[_Point]] = {}
    for row in summary_rows:
        point = _point(row, metric)
        if point is not None:
            key = (str(row.get("method")), row.get("clip_norm"), point.epsilon is None)
            groups.setdefault(key, []).append(point)
    if not groups:
        raise HalfmaskError(
            f"none of the {len(summary_rows)} summary rows has a value for '{metric}'; expected at least "
            "one: evaluate the runs first, or name a metric they have"
        )
    methods = list(dict.fromkeys(method for method, _, is_baseline in groups if not is_baseline))
    clips = list(dict.fromkeys(clip for _, clip, is_baseline in groups if not is_baseline))
    unprotected = [method for method, _, is_baseline in groups if is_baseline and not is_non_private(method)]
    series = []
    for (method, clip, is_baseline), points in groups.items():
        if not is_baseline:
            colour = canvas.PALETTE[methods.index(method) % len(canvas.PALETTE)]
            dash = _DASHES[clips.index(clip) % len(_DASHES)]
        elif is_non_private(method):
            colour, dash = _NON_PRIVATE_COLOUR, "solid"
        else:
            colour, dash = _UNSTATED_COLOUR, _DASHES[1 + unprotected.index(method) % (len(_DASHES) - 1)]
        # The legend explains the dashes, so every line names its clip norm as soon as one needs to.
        names_clip = clip is not None and not is_baseline and len(clips) > 1
        label = f"{method}, clip {clip:g}" if names_clip else method
        series.append(_Series(label, colour, dash, sorted(points, key=lambda p: p.epsilon or 0.0)))
    return series


def _point(row: Row, metric: str) -> _Point | None:
    value = row.get(metric)
    if value is None:
        return None
    mean, spread = (value["mean"], value.get("spread")) if isinstance(value, Mapping) else (value, None)
    if not math.isfinite(mean):
        return None
    epsilon = row.get("epsilon")
    if epsilon is not None and math.isinf(epsilon):
        epsilon = None
    if epsilon is not None and not epsilon > 0:
        raise HalfmaskError(
            f"method '{row.get('method')}' has ε {epsilon}; expected a positive number, or none for a method "
            "without a privacy guarantee: mend the summary row"
        )
    return _Point(float(mean), spread, epsilon, format_metric(value, row.get("seeds"), about(metric).digits))


def _has_spread(series: list[_Series]) -> bool:
    return any(point.spread is not None for one in series for point in one.points)


# --- the page ------------------------------------------------------------------------------------------


def _css(colour: canvas.Colour, opacity: float = 1.0) -> str:
    return f"rgba({colour[0]},{colour[1]},{colour[2]},{opacity})"


def _epsilons(series: list[_Series]) -> list[float]:
    return sorted({point.epsilon for one in series for point in one.points if point.epsilon is not None})


def _x_range(epsilons: list[float]) -> tuple[float, float]:
    """Choose the ends of a logarithmic ε axis, in powers of ten, with room beside the outer points."""
    low, high = math.log10(epsilons[0]), math.log10(epsilons[-1])
    room = 0.06 * (high - low)
    return low - room, high + room


def _lines_figure(series: list[_Series], metric: str, title: str) -> go.Figure:
    figure = go.Figure()
    epsilons = _epsilons(series)
    left, right = _x_range(epsilons)
    for one in series:
        line = {"color": _css(one.colour), "width": 2.5, "dash": one.dash}
        if not one.is_baseline:
            figure.add_trace(
                go.Scatter(
                    x=[point.epsilon for point in one.points],
                    y=[point.mean for point in one.points],
                    error_y={
                        "type": "data",
                        "array": [point.spread or 0.0 for point in one.points],
                        "width": 5,
                    },
                    text=[point.text for point in one.points],
                    hovertemplate="ε = %{x}<br>%{text}<extra>%{fullData.name}</extra>",
                    mode="lines+markers",
                    marker={"size": 9},
                    name=one.label,
                    line=line,
                )
            )
            continue
        for point in one.points:
            if point.spread:
                figure.add_hrect(y0=point.low, y1=point.high, fillcolor=_css(one.colour, 0.14), line_width=0)
            figure.add_trace(
                go.Scatter(
                    x=[10.0**left, 10.0**right],
                    y=[point.mean] * 2,
                    text=[point.text] * 2,
                    hovertemplate="%{text}<extra>%{fullData.name}</extra>",
                    mode="lines",
                    name=one.label,
                    line=line,
                )
            )
    figure.update_xaxes(
        type="log",
        range=[left, right],
        tickvals=epsilons,
        ticktext=[format_epsilon(None, epsilon) for epsilon in epsilons],
        title="privacy loss ε (smaller is more private)",
    )
    figure.update_yaxes(title=with_unit(metric))
    return _styled(figure, series, title)


def _bars_figure(series: list[_Series], metric: str, title: str) -> go.Figure:
    figure = go.Figure()
    for label, one, point in _bars(series):
        figure.add_trace(
            go.Bar(
                y=[label],
                x=[point.mean],
                error_x={"type": "data", "array": [point.spread or 0.0]},
                text=[point.text],
                textposition="inside",
                insidetextanchor="start",
                orientation="h",
                marker={"color": _css(one.colour)},
                hovertemplate="%{text}<extra>%{y}</extra>",
                showlegend=False,
            )
        )
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(title=with_unit(metric), rangemode="tozero")
    return _styled(figure, series, title)


def _styled(figure: go.Figure, series: list[_Series], title: str) -> go.Figure:
    note = f"<br><sup>{_SPREAD_NOTE}</sup>" if _has_spread(series) else ""
    figure.update_layout(template="plotly_white", title=title + note, font={"size": 14})
    return figure


def _write_html(figure: go.Figure, path: str | Path) -> None:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.write_html(path, include_plotlyjs=True)


# --- the still picture ---------------------------------------------------------------------------------


def _titled_picture(series: list[_Series], title: str, height: int = _HEIGHT) -> np.ndarray:
    picture = canvas.blank(_WIDTH, height)
    shrink = min(1.0, (_WIDTH - 48) / canvas.text_size(title, _TITLE_TEXT)[0])
    canvas.draw_text(picture, title, (24, 28), _TITLE_TEXT * shrink)
    if _has_spread(series):
        canvas.draw_text(picture, _SPREAD_NOTE, (24, 54), _NOTE_TEXT, canvas.FAINT_INK)
    return picture


def _lines_picture(series: list[_Series], metric: str, title: str) -> np.ndarray:
    picture = _titled_picture(series, title)
    legend_width = 62 + max(canvas.text_size(one.label, _LABEL_TEXT)[0] for one in series)
    left, right, top, bottom = 70.0, float(_WIDTH - legend_width - 34), 112.0, _HEIGHT - 74.0
    points = [point for one in series for point in one.points]
    ticks = canvas.nice_ticks(min(p.low for p in points), max(p.high for p in points), about=7)
    first, last = _x_range(_epsilons(series))

    def to_x(epsilon: float) -> float:
        return left + (math.log10(epsilon) - first) / (last - first) * (right - left)

    def to_y(value: float) -> float:
        return bottom - (value - ticks[0]) / (ticks[-1] - ticks[0]) * (bottom - top)

    canvas.draw_text(picture, with_unit(metric), (24, top - 24), _LABEL_TEXT, canvas.FAINT_INK)
    for tick in ticks:
        canvas.draw_line(picture, (left, to_y(tick)), (right, to_y(tick)), canvas.GRID)
        canvas.draw_text(picture, f"{tick:g}", (left - 10, to_y(tick)), _LABEL_TEXT, align="right")
    _draw_epsilon_axis(picture, _epsilons(series), to_x, bottom)
    canvas.draw_line(picture, (left, bottom), (right, bottom), canvas.INK)
    centre = (left + right) / 2
    axis_title = "privacy loss ε (smaller is more private)"
    canvas.draw_text(picture, axis_title, (centre, bottom + 52), _LABEL_TEXT, canvas.FAINT_INK, align="centre")

    # Level lines go beneath, so that they never hide a measured point.
    for one in sorted(series, key=lambda s: not s.is_baseline):
        if one.is_baseline:
            _draw_baseline(picture, one, left, right, to_y)
        else:
            _draw_curve(picture, one, to_x, to_y)
    _draw_legend(picture, series, right + 28, top)
    return picture


def _draw_epsilon_axis(picture: np.ndarray, epsilons: list[float], to_x: Callable[[float], float], bottom: float) -> None:
    """Mark every ε, but write only those that have room."""
    free_from = -math.inf
    for epsilon in epsilons:
        x = to_x(epsilon)
        canvas.draw_line(picture, (x, bottom), (x, bottom + 6), canvas.INK)
        label = format_epsilon(None, epsilon)
        half_width = canvas.text_size(label, _LABEL_TEXT)[0] / 2
        if x - half_width >= free_from:
            canvas.draw_text(picture, label, (x, bottom + 21), _LABEL_TEXT, align="centre")
            free_from = x + half_width + 6


def _draw_baseline(picture: np.ndarray, one: _Series, left: float, right: float, to_y: Callable[[float], float]) -> None:
    for point in one.points:
        if point.spread:
            canvas.fill_box(picture, (left, to_y(point.high)), (right, to_y(point.low)), one.colour, opacity=0.14)
        level = to_y(point.mean)
        canvas.draw_line(picture, (left, level), (right, level), one.colour, 2, one.dash)


def _draw_curve(picture: np.ndarray, one: _Series, to_x: Callable[[float], float], to_y: Callable[[float], float]) -> None:
    places = [(to_x(point.epsilon or 1.0), to_y(point.mean)) for point in one.points]
    canvas.draw_path(picture, places, one.colour, 2, one.dash)
    for (x, y), point in zip(places, one.points, strict=True):
        if point.spread:
            canvas.draw_error_bar(picture, (x, to_y(point.low)), (x, to_y(point.high)), one.colour, thickness=2)
        canvas.draw_dot(picture, (x, y), 5.5, canvas.WHITE)
        canvas.draw_dot(picture, (x, y), 4.5, one.colour)


def _draw_legend(picture: np.ndarray, series: list[_Series], left: float, top: float) -> None:
    for index, one in enumerate(series):
        y = top + 10 + index * 27
        canvas.draw_line(picture, (left, y), (left + 40, y), one.colour, 2, one.dash)
        if not one.is_baseline:
            canvas.draw_dot(picture, (left + 20, y), 4.5, one.colour)
        canvas.draw_text(picture, one.label, (left + 50, y), _LABEL_TEXT)


def _bars(series: list[_Series]) -> list[tuple[str, _Series, _Point]]:
    bars = []
    for one in series:
        for point in one.points:
            stated = f", ε = {format_epsilon(None, point.epsilon)}" if point.epsilon is not None else ""
            bars.append((one.label + stated, one, point))
    return bars


def _bars_picture(series: list[_Series], metric: str, title: str) -> np.ndarray:
    bars = _bars(series)
    pitch, bar_height, top = 46, 26, 84.0
    bottom = top + len(bars) * pitch
    picture = _titled_picture(series, title, height=round(bottom) + 78)
    left = 40.0 + max(canvas.text_size(label, _LABEL_TEXT)[0] for label, _, _ in bars)
    right = _WIDTH - 40.0 - max(canvas.text_size(point.text, _LABEL_TEXT)[0] for _, _, point in bars)
    ticks = canvas.nice_ticks(0.0, max(point.high for _, _, point in bars), about=7)

    def to_x(value: float) -> float:
        return left + max(value, 0.0) / ticks[-1] * (right - left)

    for tick in ticks:
        canvas.draw_line(picture, (to_x(tick), top), (to_x(tick), bottom), canvas.GRID)
        canvas.draw_text(picture, f"{tick:g}", (to_x(tick), bottom + 18), _LABEL_TEXT, align="centre")
    for index, (label, one, point) in enumerate(bars):
        y = top + (index + 0.5) * pitch
        canvas.fill_box(picture, (left, y - bar_height / 2), (to_x(point.mean), y + bar_height / 2), one.colour)
        if point.spread:
            low, high = (to_x(point.low), y), (to_x(point.high), y)
            # White beneath the dark line keeps the inner half visible on a dark bar.
            canvas.draw_error_bar(picture, low, high, canvas.WHITE, cap=6, thickness=4)
            canvas.draw_error_bar(picture, low, high, canvas.INK, cap=6, thickness=2)
        canvas.draw_text(picture, label, (left - 12, y), _LABEL_TEXT, align="right")
        canvas.draw_text(picture, point.text, (to_x(point.high) + 12, y), _LABEL_TEXT)
    canvas.draw_line(picture, (left, top), (left, bottom), canvas.INK)
    centre = ((left + right) / 2, bottom + 48)
    canvas.draw_text(picture, with_unit(metric), centre, _LABEL_TEXT, canvas.FAINT_INK, align="centre")
    return picture
