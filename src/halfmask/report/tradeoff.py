"""Utility against identity: how well is told what people do, and who they are, in pictures that hide them, each family of ways a curve.

Up is useful, left is private; identity is on a logarithmic scale, since it is factors that count there. A family (blurs, coarse pixels,
superpixels, generators) has a place for each of its strengths; what has but one (people drawn as avatars, a generator that saw nobody
private) is a mark. There is a panel for each attacker. The table asks the same question at one height: what is left of identity where
families are as useful as each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from halfmask.audit.separation import Measured
from halfmask.errors import HalfmaskError
from halfmask.metrics.names import MetricInfo, declare
from halfmask.report import canvas
from halfmask.report.tradeoff_marks import Box, along_path, draw_mark, free_place, plotly_mark
from halfmask.tasks.base import Figure

ATTACKERS = {"raw": "attacker who knows people from raw pictures", "adapted": "attacker who knows people from hidden pictures"}
METRICS = {
    "action_accuracy": MetricInfo("action accuracy", "%", digits=1),
    "identity_raw": MetricInfo("identity, raw attacker", "%", higher_is_better=False, digits=1),
    "identity_adapted": MetricInfo("identity, adapted attacker", "%", higher_is_better=False, digits=1),
    "matched_identity_raw": MetricInfo("raw attacker, at that utility", "%", higher_is_better=False, digits=1),
    "matched_identity_adapted": MetricInfo("adapted attacker, at that utility", "%", higher_is_better=False, digits=1),
}
declare(METRICS)

_TITLE, _LABEL, _NOTE = 0.66, 0.48, 0.4
_PANEL, _HEIGHT, _LEFT, _TOP, _GAP = 470.0, 430.0, 74.0, 104.0, 74.0
_REFERENCE_COLOUR: canvas.Colour = (90, 90, 90)
_LEVEL: canvas.Colour = (150, 150, 150)


@dataclass(frozen=True)
class Place:
    """One way of hiding people at one strength; numbers go from 0 to 1.

    Attributes:
        strength: as it is written beside the mark: `σ 3.8`, `ε 1`.
        utility: accuracy of recognising actions.
        identity: accuracy of naming people, by attacker.
    """

    strength: str
    utility: Measured
    identity: Mapping[str, Measured]


@dataclass(frozen=True)
class Family:
    """Ways of hiding people that differ in strength alone, from the weakest to the strongest; with one place it is a mark.

    Attributes:
        ours: drawn thicker, and in the colour that no other has.
        reference: drawn in grey: not a way of hiding anybody, but what the others are seen against.
    """

    name: str
    places: tuple[Place, ...]
    ours: bool = False
    reference: bool = False


def over_seeds(found: Sequence[Measured]) -> Measured:
    """The mean of several trainings, give or take one standard deviation; a single one keeps the interval that it has."""
    if len(found) == 1:
        return found[0]
    values = np.array([one.value for one in found])
    spread = float(values.std(ddof=1))
    return Measured(float(values.mean()), float(values.mean()) - spread, float(values.mean()) + spread)


def tradeoff_figure(families: Sequence[Family], chance: Mapping[str, float], title: str, note: str = "", name: str = "tradeoff") -> Figure:
    """The drawing and the chart.

    Args:
        chance: what guessing would give, from 0 to 1: of `utility`, and of `identity`.
        note: what the bars are, below the title.
    """
    return Figure(name, title, tradeoff_picture(families, chance, title, note), tradeoff_chart(families, chance, title))


def matched_rows(families: Sequence[Family], utility: float) -> list[dict[str, Any]]:
    """For each family the strength that is nearest to a wanted utility, and what of identity is left on its curve at just that.

    Between strengths curves are taken as straight. Where a curve passes the wanted utility more than once, the lowest identity counts:
    every family is taken at its best. A family that does not reach it, or never goes down to it, has no number there.

    Args:
        utility: from 0 to 1.
    """
    rows = []
    for family in families:
        nearest = min(family.places, key=lambda place: abs(place.utility.value - utility))
        row: dict[str, Any] = {"method": family.name, "strength": nearest.strength, "action_accuracy": 100 * nearest.utility.value}
        for attacker in _attackers(families):
            if attacker in nearest.identity:
                row[f"identity_{attacker}"] = 100 * nearest.identity[attacker].value
                found = identity_at(family, attacker, utility)
                row[f"matched_identity_{attacker}"] = None if found is None else 100 * found
        rows.append(row)
    return rows


def identity_at(family: Family, attacker: str, utility: float) -> float | None:
    """Identity on a family's curve where it is as useful as wanted; None where it never is."""
    found = [place.identity[attacker].value for place in family.places if place.utility.value == utility and attacker in place.identity]
    for first, second in itertools.pairwise(family.places):
        low, high = first.utility.value, second.utility.value
        if min(low, high) < utility < max(low, high) and attacker in first.identity and attacker in second.identity:
            share = (utility - low) / (high - low)
            found.append(first.identity[attacker].value * (1 - share) + second.identity[attacker].value * share)
    return min(found, default=None)


# --- the still picture ---------------------------------------------------------------------------------


def tradeoff_picture(families: Sequence[Family], chance: Mapping[str, float], title: str, note: str = "") -> np.ndarray:
    """The drawing; the arguments are those of `tradeoff_figure`."""
    attackers = _attackers(families)
    styles = _styles(families)
    entries = 80 + max(canvas.text_size(family.name, _LABEL)[0] for family in families)
    width = round(_LEFT + len(attackers) * (_PANEL + _GAP) - _GAP + 28 + entries)
    picture = canvas.blank(max(width, canvas.text_size(title, _TITLE)[0] + 48), round(_TOP + _HEIGHT + 82))
    canvas.draw_text(picture, title, (24, 28), _TITLE)
    if note:
        canvas.draw_text(picture, note, (24, 54), _NOTE, canvas.FAINT_INK)
    for number, attacker in enumerate(attackers):
        _draw_panel(picture, families, styles, attacker, chance, _LEFT + number * (_PANEL + _GAP), first=number == 0)
    left = _LEFT + len(attackers) * (_PANEL + _GAP) - _GAP + 28
    for row, family in enumerate(families):
        y = _TOP + 12 + 28 * row
        if len(family.places) > 1:
            canvas.draw_line(picture, (left, y), (left + 40, y), styles[family.name][0], 3 if family.ours else 2)
        draw_mark(picture, styles[family.name][1], (left + 20, y), 6.5 if family.ours else 5.5, styles[family.name][0])
        canvas.draw_text(picture, family.name, (left + 52, y), _LABEL)
    y = _TOP + 12 + 28 * len(families)
    canvas.draw_line(picture, (left, y), (left + 40, y), _LEVEL, 1, "dash")
    canvas.draw_text(picture, "chance", (left + 52, y), _LABEL)
    return picture


def _draw_panel(
    picture: np.ndarray,
    families: Sequence[Family],
    styles: Mapping[str, tuple[canvas.Colour, str]],
    attacker: str,
    chance: Mapping[str, float],
    left: float,
    first: bool,
) -> None:
    right, bottom = left + _PANEL, _TOP + _HEIGHT

    least = _least(families, chance)

    def at(identity: float, utility: float) -> canvas.Point:
        along = 1 - math.log(min(1.0, max(least, identity))) / math.log(least)
        return left + 10 + along * (_PANEL - 20), bottom - 8 - min(1.0, max(0.0, utility)) * (_HEIGHT - 16)

    canvas.draw_text(picture, ATTACKERS.get(attacker, attacker), (left, _TOP - 20), _LABEL)
    for tick in range(0, 101, 20):
        y = at(1, tick / 100)[1]
        canvas.draw_line(picture, (left, y), (right, y), canvas.GRID)
        canvas.draw_text(picture, str(tick), (left - 10, y), _LABEL, align="right")
    for share in _shares(least):
        x = at(share, 0)[0]
        canvas.draw_line(picture, (x, _TOP), (x, bottom), canvas.GRID)
        canvas.draw_text(picture, f"{100 * share:g}", (x, bottom + 18), _LABEL, align="centre")
    canvas.draw_path(picture, [(left, _TOP), (left, bottom), (right, bottom)], canvas.INK)
    words = "identity attack: people named right (%)"
    canvas.draw_text(picture, words, ((left + right) / 2, bottom + 50), _LABEL, canvas.FAINT_INK, align="centre")
    if first:
        words = "actions recognised (%)"
        canvas.draw_upright(picture, words, (left - 54, (_TOP + bottom - canvas.text_size(words, _LABEL)[0]) / 2), _LABEL, canvas.FAINT_INK)
    if "utility" in chance:
        y = at(0, chance["utility"])[1]
        canvas.draw_line(picture, (left, y), (right, y), _LEVEL, 1, "dash")
    if "identity" in chance:
        x = at(chance["identity"], 0)[0]
        canvas.draw_line(picture, (x, _TOP), (x, bottom), _LEVEL, 1, "dash")

    taken: list[Box] = []
    shown = [(family, [place for place in family.places if attacker in place.identity]) for family in families]
    # Single marks lie on top, and of the curves ours.
    shown.sort(key=lambda one: (len(one[1]) == 1, one[0].ours, not one[0].reference))
    for family, places in shown:
        colour = styles[family.name][0]
        for place in places:
            who = place.identity[attacker]
            middle = at(who.value, place.utility.value)
            canvas.draw_line(picture, at(who.low, place.utility.value), at(who.high, place.utility.value), _paler(colour))
            canvas.draw_line(picture, at(who.value, place.utility.low), at(who.value, place.utility.high), _paler(colour))
            taken.append((middle[0] - 7, middle[1] - 7, middle[0] + 7, middle[1] + 7))
    for family, places in shown:
        path = [at(place.identity[attacker].value, place.utility.value) for place in places]
        canvas.draw_path(picture, path, styles[family.name][0], 3 if family.ours else 2)
        taken += along_path(path)
    for family, places in shown:
        colour, mark = styles[family.name]
        for place in places:
            middle = at(place.identity[attacker].value, place.utility.value)
            draw_mark(picture, mark, middle, 6.5 if family.ours else 5.5, colour)
    inside = (left + 2, _TOP - 4, right + 14, bottom - 2)
    for family, places in reversed(shown):
        for place in places:
            if place.strength:
                middle = at(place.identity[attacker].value, place.utility.value)
                corner = free_place(middle, canvas.text_size(place.strength, _NOTE), inside, taken)
                if corner is not None:
                    canvas.draw_text(picture, place.strength, corner, _NOTE, _darker(styles[family.name][0]))


def _least(families: Sequence[Family], chance: Mapping[str, float]) -> float:
    """Where the axis of identity begins, on a logarithmic scale, because factors count: below everything, and what is nought is there."""
    values = [who.value for family in families for place in family.places for who in place.identity.values()]
    known = [value for value in (*values, chance.get("identity", 0.0)) if value > 0]
    return min(0.5, 0.5 * min(known, default=0.01))


def _shares(least: float) -> list[float]:
    """Round numbers on that axis."""
    decades = range(math.floor(math.log10(least)), 1)
    return [share for power in decades for share in (10.0**power, 2 * 10.0**power, 5 * 10.0**power) if least <= share <= 1]


def _paler(colour: canvas.Colour) -> canvas.Colour:
    red, green, blue = (round(255 - 0.45 * (255 - part)) for part in colour)
    return red, green, blue


def _darker(colour: canvas.Colour) -> canvas.Colour:
    red, green, blue = (round(0.75 * part) for part in colour)
    return red, green, blue


def _attackers(families: Sequence[Family]) -> list[str]:
    if not families or not all(family.places for family in families):
        raise HalfmaskError("a trade-off was asked for of no family, or of one without places: expected at least one place in each")
    named = list(dict.fromkeys(attacker for family in families for place in family.places for attacker in place.identity))
    if not named:
        raise HalfmaskError("no place of a trade-off says how well people are named: expected at least one attacker")
    return [one for one in ATTACKERS if one in named] + [one for one in named if one not in ATTACKERS]


def _styles(families: Sequence[Family]) -> dict[str, tuple[canvas.Colour, str]]:
    """A colour and a mark for each: what is ours in the house's blue, references in grey."""
    colours = itertools.cycle(canvas.PALETTE[1:])
    marks = {True: itertools.cycle(("square", "triangle", "diamond", "down")), False: itertools.cycle(("star", "cross", "plus"))}
    styles: dict[str, tuple[canvas.Colour, str]] = {}
    for family in families:
        colour = canvas.PALETTE[0] if family.ours else _REFERENCE_COLOUR if family.reference else next(colours)
        styles[family.name] = (colour, "dot" if family.ours else next(marks[len(family.places) > 1]))
    return styles


# --- the page ------------------------------------------------------------------------------------------


def tradeoff_chart(families: Sequence[Family], chance: Mapping[str, float], title: str) -> go.Figure:
    """The same to be explored."""
    attackers, styles = _attackers(families), _styles(families)
    titles = [ATTACKERS.get(one, one) for one in attackers]
    figure = make_subplots(cols=len(attackers), shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.05)
    for column, attacker in enumerate(attackers, 1):
        for family in families:
            places = [place for place in family.places if attacker in place.identity]
            if places:
                figure.add_trace(_trace(family, places, attacker, styles[family.name], column == 1, _least(families, chance)), 1, column)
        if "utility" in chance:
            figure.add_hline(100 * chance["utility"], line={"dash": "dash", "color": "#999", "width": 1}, row=1, col=column)
        if "identity" in chance:
            figure.add_vline(100 * chance["identity"], line={"dash": "dash", "color": "#999", "width": 1}, row=1, col=column)
    least = _least(families, chance)
    ticks = [100 * share for share in _shares(least)]
    figure.update_xaxes(type="log", range=[math.log10(100 * least), 2.05], tickvals=ticks, title="identity attack: people named right (%)")
    figure.update_yaxes(range=[-2, 102])
    figure.update_yaxes(title="actions recognised (%)", col=1)
    figure.update_layout(template="plotly_white", title=title, font={"size": 14}, height=560)
    return figure


def _trace(
    family: Family, places: Sequence[Place], attacker: str, style: tuple[canvas.Colour, str], named: bool, least: float
) -> go.Scatter:
    who = [place.identity[attacker] for place in places]
    what = [place.utility for place in places]
    colour = f"rgb({style[0][0]},{style[0][1]},{style[0][2]})"
    trace = go.Scatter(
        x=[100 * max(least, one.value) for one in who],
        customdata=[100 * one.value for one in who],
        y=[100 * one.value for one in what],
        text=[place.strength for place in places],
        mode="lines+markers" if len(places) > 1 else "markers",
        name=family.name,
        legendgroup=family.name,
        showlegend=named,
        line={"color": colour, "width": 3.5 if family.ours else 2},
        marker={"color": colour, "symbol": plotly_mark(style[1]), "size": 11 if family.ours else 9},
    )
    for axis, found in (("error_x", who), ("error_y", what)):
        above, below = [100 * (one.high - one.value) for one in found], [100 * (one.value - one.low) for one in found]
        if axis == "error_x":
            below = [min(number, 100 * max(0.0, one.value - least)) for number, one in zip(below, found, strict=True)]
        if all(math.isfinite(number) for number in above + below):
            trace[axis] = {"type": "data", "array": above, "arrayminus": below, "thickness": 1, "width": 0}
    trace.hovertemplate = "%{text}<br>identity %{customdata:.1f} %<br>action %{y:.1f} %<extra>%{fullData.name}</extra>"
    return trace
