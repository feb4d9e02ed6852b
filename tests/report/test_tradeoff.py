"""Utility against identity: what is drawn where, and the table at one utility."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.audit.separation import Measured
from halfmask.errors import HalfmaskError
from halfmask.report import canvas
from halfmask.report.tables import markdown_table
from halfmask.report.tradeoff import Family, Place, identity_at, matched_rows, over_seeds, tradeoff_chart, tradeoff_figure

CHANCE = {"utility": 0.2, "identity": 0.01}


def place(strength: str, utility: float, raw: float, adapted: float | None = None) -> Place:
    who = {"raw": Measured(raw, raw, raw)} | ({} if adapted is None else {"adapted": Measured(adapted, adapted, adapted)})
    return Place(strength, Measured(utility, utility - 0.02, utility + 0.02), who)


OURS = Family("ours", (place("ε 20", 0.7, 0.03, 0.05), place("ε 1", 0.6, 0.02, 0.03)), ours=True)
BLUR = Family("blur", (place("σ 1", 0.8, 0.9, 0.9), place("σ 4", 0.4, 0.1, 0.5), place("σ 10", 0.2, 0.01, 0.1)))
AVATARS = Family("drawn avatars", (place("", 0.75, 0.01, 0.01),))


def test_the_table_is_read_off_the_curves() -> None:
    rows = {row["method"]: row for row in matched_rows([OURS, BLUR, AVATARS], 0.65)}
    assert rows["ours"]["strength"] in ("ε 20", "ε 1") and rows["ours"]["matched_identity_raw"] == pytest.approx(2.5)
    assert rows["blur"]["strength"] == "σ 1" and rows["blur"]["identity_raw"] == 90
    # Five eighths of the way from 0.4 up to 0.8.
    assert rows["blur"]["matched_identity_raw"] == pytest.approx(100 * (0.1 + 0.625 * 0.8))
    assert rows["blur"]["matched_identity_adapted"] == pytest.approx(100 * (0.5 + 0.625 * 0.4))
    assert rows["drawn avatars"]["matched_identity_raw"] is None and rows["drawn avatars"]["action_accuracy"] == 75
    text = markdown_table(list(rows.values()))
    assert "identity, raw attacker ↓" in text and "| 60.0 |" in text and "—" in text


def test_a_curve_that_turns_is_taken_at_its_best_and_one_that_ends_is_not_drawn_on() -> None:
    turning = Family("turning", (place("1", 0.8, 0.9), place("2", 0.4, 0.5), place("3", 0.8, 0.1)))
    assert identity_at(turning, "raw", 0.6) == pytest.approx(0.3)
    assert identity_at(turning, "raw", 0.4) == 0.5, "a strength that is just as useful"
    assert identity_at(turning, "raw", 0.9) is None and identity_at(turning, "raw", 0.3) is None
    assert identity_at(turning, "adapted", 0.6) is None


def test_seeds_have_a_mean_and_a_spread() -> None:
    found = over_seeds([Measured(value, 0, 1) for value in (0.1, 0.2, 0.3)])
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.1, 0.3))
    assert over_seeds([Measured(0.1, 0.05, 0.2)]).high == 0.2


def middle(picture: np.ndarray, colour: canvas.Colour, columns: slice) -> tuple[float, float]:
    rows, across = np.nonzero((picture[110:520, columns] == colour).all(-1))
    return float(across.mean()), float(rows.mean())


def test_up_is_useful_left_is_private_and_attackers_have_panels() -> None:
    figure = tradeoff_figure([OURS, BLUR, AVATARS], CHANCE, "title", "note")
    first, second = slice(80, 540), slice(624, 1080)
    blue, vermilion = canvas.PALETTE[0], canvas.PALETTE[1]
    ours, blur = middle(figure.picture, blue, first), middle(figure.picture, vermilion, first)
    assert ours[0] < blur[0] and ours[1] < blur[1], "left of the blurs, and above their mean"
    assert middle(figure.picture, vermilion, second)[0] > blur[0] + 20, "the stronger attacker names more"
    assert middle(figure.picture, blue, second)[0] > ours[0], "of ours as well"
    one = tradeoff_figure([Family("ours", (place("ε 1", 0.5, 0.1),), ours=True)], CHANCE, "title")
    assert one.picture.shape[1] < figure.picture.shape[1] - 400, "one attacker, one panel"
    assert figure.name == "tradeoff" and figure.chart is not None


def test_nought_is_at_the_edge_and_not_lost() -> None:
    none = Family("ours", (place("ε 1", 0.9, 0.0), place("ε 20", 0.8, 0.0)), ours=True)
    picture = tradeoff_figure([none], CHANCE, "title").picture
    across, _ = middle(picture, canvas.PALETTE[0], slice(76, 540))
    assert across < 30
    trace = tradeoff_chart([none], CHANCE, "title").data[0]
    assert min(trace.x) > 0 and list(trace.customdata) == [0, 0]


def test_the_chart_has_every_place() -> None:
    chart = tradeoff_chart([OURS, BLUR, AVATARS], CHANCE, "title")
    assert len(chart.data) == 6 and [trace.name for trace in chart.data[:3]] == ["ours", "blur", "drawn avatars"]
    blur = chart.data[1]
    assert (
        list(blur.text) == ["σ 1", "σ 4", "σ 10"]
        and list(blur.y) == pytest.approx([80, 40, 20])
        and list(blur.x) == pytest.approx([90, 10, 1])
    )
    assert [trace.showlegend for trace in chart.data] == [True] * 3 + [False] * 3
    assert chart.data[2].mode == "markers"


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(HalfmaskError, match="no family"):
        tradeoff_chart([], CHANCE, "title")
    with pytest.raises(HalfmaskError, match="attacker"):
        matched_rows([Family("x", (Place("1", Measured(0.5, 0.5, 0.5), {}),))], 0.5)
