"""Class by class: what privacy loses of what is recognised without it, and what a method with a public half regains of that.

One panel for each method. A bar goes up to the accuracy of its class; what the method has more than plain private training is drawn in
another colour, what is missing to training without privacy is faint above, and the dark bar within is the class's share of the dataset.
Classes are sorted by that share, because it is rare ones that noise hides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from halfmask.report import canvas

REFERENCE, BASELINE = "non-private", "dpsgd"
KEPT, REGAINED, LOST, SHARE = canvas.PALETTE[5], canvas.PALETTE[2], (244, 214, 196), (70, 70, 70)
_LABEL, _NOTE, _PANEL = 0.45, 0.4, 190


@dataclass(frozen=True)
class Bar:
    """One class under one method, in %; `reference` is None where nothing was trained without privacy.

    Attributes:
        kept: up to where it is coloured as plain private training has it.
        accuracy: up to where it is coloured at all: the rest is regained.
    """

    label: str
    share: float
    accuracy: float
    kept: float
    reference: float | None

    @property
    def measured(self) -> bool:
        """Whether there were clips to judge by."""
        return math.isfinite(self.accuracy)

    @property
    def difference(self) -> str:
        """What is missing to training without privacy, as it is written above the bar."""
        if not self.measured:
            return "no clips"
        if self.reference is None or not math.isfinite(self.reference):
            return f"{self.accuracy:.0f}"
        change = round(self.accuracy - self.reference)
        return f"{change:+d}".replace("-", "−") if change else "0"


def panels(accuracies: Mapping[str, Mapping[str, float]], shares: Mapping[str, float]) -> dict[str, list[Bar]]:
    """The bars of each method but the one without privacy, the largest class first.

    Args:
        accuracies: by method, of each class in %. `non-private` is what the others are held against; what others have more than `dpsgd`
            is called regained.
        shares: of each class among the records, from 0 to 1.
    """
    order = sorted(shares, key=lambda name: -shares[name])
    reference, baseline = accuracies.get(REFERENCE), accuracies.get(BASELINE)
    found: dict[str, list[Bar]] = {}
    for method, values in accuracies.items():
        if method == REFERENCE:
            continue
        bars = []
        for name in order:
            accuracy = values.get(name, math.nan)
            plain = accuracy if baseline is None or method == BASELINE else baseline.get(name, math.nan)
            kept = min(accuracy, plain) if math.isfinite(plain) else accuracy
            bars.append(Bar(name, 100 * shares[name], accuracy, kept, None if reference is None else reference.get(name, math.nan)))
        found[method] = bars
    return found


def class_picture(accuracies: Mapping[str, Mapping[str, float]], shares: Mapping[str, float], title: str) -> np.ndarray:
    """The drawing; the arguments are those of `panels`."""
    drawn = panels(accuracies, shares)
    pitch = max(18, min(64, 1080 // max(1, len(shares))))
    left, top, gap = 64, 112, 58
    names = max((canvas.text_size(name, _NOTE)[0] for name in shares), default=0)
    width = max(left + pitch * len(shares) + 30, 760, canvas.text_size(title, 0.6)[0] + 48)
    height = top + len(drawn) * (_PANEL + gap) - gap + names + 28
    picture = canvas.blank(width, height)
    canvas.draw_text(picture, title, (24, 26), 0.6)
    _legend(picture, REFERENCE in accuracies, BASELINE in drawn and len(drawn) > 1)
    right = left + pitch * len(shares)
    for row, (method, bars) in enumerate(drawn.items()):
        bottom = top + row * (_PANEL + gap) + _PANEL
        canvas.draw_text(picture, f"{method}: accuracy of each class (%)", (left, bottom - _PANEL - 30), _LABEL)
        for tick in range(0, 101, 25):
            y = bottom - _PANEL * tick / 100
            canvas.draw_line(picture, (left, y), (right, y), canvas.GRID)
            canvas.draw_text(picture, str(tick), (left - 8, y), _NOTE, align="right")
        for place, bar in enumerate(bars):
            _draw_bar(picture, bar, left + place * pitch, pitch, bottom)
        canvas.draw_line(picture, (left, bottom), (right, bottom), canvas.INK)
    for place, name in enumerate(sorted(shares, key=lambda name: -shares[name])):
        canvas.draw_upright(picture, name, (left + (place + 0.5) * pitch, height - names - 18), _NOTE)
    return picture


def _draw_bar(picture: np.ndarray, bar: Bar, x: float, pitch: int, bottom: float) -> None:
    start, end = x + 0.12 * pitch, x + 0.88 * pitch

    def at(value: float) -> float:
        return bottom - _PANEL * value / 100

    reference = bar.reference if bar.reference is not None and math.isfinite(bar.reference) else None
    top = max(bar.accuracy, reference or 0.0) if bar.measured else 0.0
    if bar.measured:
        if reference is not None and reference > bar.accuracy:
            canvas.fill_box(picture, (start, at(reference)), (end, at(bar.accuracy)), LOST)
        canvas.fill_box(picture, (start, at(bar.accuracy)), (end, at(bar.kept)), REGAINED)
        canvas.fill_box(picture, (start, at(bar.kept)), (end, bottom), KEPT)
        if reference is not None:
            canvas.draw_line(picture, (start, at(reference)), (end, at(reference)), canvas.INK, 2)
    middle = x + pitch / 2
    canvas.fill_box(picture, (middle - 0.12 * pitch, at(bar.share)), (middle + 0.12 * pitch, bottom), SHARE)
    size = _NOTE if pitch >= 30 else 0.3
    if canvas.text_size(bar.difference, size)[0] <= pitch:
        canvas.draw_text(picture, bar.difference, (middle, at(max(top, bar.share)) - 9), size, align="centre")
    elif not bar.measured:
        canvas.draw_text(picture, "?", (middle, at(bar.share) - 9), size, align="centre")


def _legend(picture: np.ndarray, compared: bool, regained: bool) -> None:
    entries = [(KEPT, "recognised")]
    entries += [(REGAINED, f"regained over {BASELINE}")] * regained
    entries += [(LOST, f"lost against {REFERENCE} (line)")] * compared
    x = 24.0
    for colour, words in [*entries, (SHARE, "share of the class in the dataset")]:
        canvas.fill_box(picture, (x, 47), (x + 14, 59), colour)
        canvas.draw_text(picture, words, (x + 20, 53), _NOTE, canvas.FAINT_INK)
        x += 20 + canvas.text_size(words, _NOTE)[0] + 24


def class_chart(accuracies: Mapping[str, Mapping[str, float]], shares: Mapping[str, float], title: str) -> go.Figure:
    """The same to be explored."""
    drawn = panels(accuracies, shares)
    figure = make_subplots(rows=len(drawn), shared_xaxes=True, subplot_titles=list(drawn), vertical_spacing=0.08)
    for row, bars in enumerate(drawn.values(), 1):
        names = [bar.label for bar in bars]
        kept = [bar.kept if bar.measured else 0.0 for bar in bars]
        gained = [bar.accuracy - bar.kept if bar.measured else 0.0 for bar in bars]
        lost = [max(0.0, (bar.reference or 0.0) - bar.accuracy) if bar.measured else 0.0 for bar in bars]
        words = [f"{bar.accuracy:.1f} % ({bar.difference})" if bar.measured else "no clips" for bar in bars]
        layers: list[tuple[str, Sequence[float], canvas.Colour]] = [("recognised", kept, KEPT)]
        layers += [(f"regained over {BASELINE}", gained, REGAINED)] * any(gained)
        layers += [(f"lost against {REFERENCE}", lost, LOST)] * (REFERENCE in accuracies)
        for name, values, colour in layers:
            bar_of = go.Bar(
                x=names, y=values, name=name, legendgroup=name, showlegend=row == 1, customdata=words, marker={"color": _css(colour)}
            )
            bar_of.hovertemplate = "%{x}: %{customdata}<extra></extra>"
            figure.add_trace(bar_of, row, 1)
        share = go.Scatter(
            x=names, y=[bar.share for bar in bars], mode="markers", name="share of the class in the dataset", showlegend=row == 1
        )
        share.update(marker={"color": _css(SHARE), "symbol": "line-ew-open", "size": 14, "line": {"width": 3}}, legendgroup="share")
        figure.add_trace(share, row, 1)
    figure.update_yaxes(range=[0, 105], title="%")
    figure.update_layout(template="plotly_white", title=title, font={"size": 14}, barmode="stack", height=200 + 260 * len(drawn))
    return figure


def _css(colour: canvas.Colour) -> str:
    return f"rgb({colour[0]},{colour[1]},{colour[2]})"
