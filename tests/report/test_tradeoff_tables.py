"""A measured trade-off for reading: seeds together, families at one utility, and whether ε bought anything."""

from __future__ import annotations

from typing import Any

import pytest

from halfmask.report.audits import audit_section
from halfmask.report.tradeoff_tables import (
    PUBLISHED,
    at_one,
    bought,
    facts,
    families_of,
    gathered,
    heights,
    html_sections,
    markdown,
    matched_table,
    places_table,
    published_table,
)


def accuracy(value: float) -> dict[str, Any]:
    return {"accuracy": {"value": value, "low": value - 0.05, "high": value + 0.05}, "chance": 0.1}


def point(family: str, strength: str, kind: str, action: float | None, raw: float, distance: float = 5.0, **more: Any) -> dict[str, Any]:
    return {
        "family": family,
        "strength": strength,
        "kind": kind,
        "order": 0.0,
        "epsilon": None,
        "method": None,
        "seed": None,
        "run": None,
        "action": None if action is None else accuracy(action),
        "action_on_raw": None if action is None else accuracy(action - 0.1),
        "identity": {"raw": accuracy(raw), "adapted": accuracy(min(0.95, 2 * raw))},
        "quality": {"frechet_distance": distance, "pose_kept": 50.0, "generated_precision": 60.0, "generated_recall": 40.0},
    } | more


POINTS = [
    point("raw pictures", "", "raw", 0.8, 0.9, 1.0),
    point("blur", "σ 1", "baseline", 0.7, 0.8, order=0.0),
    point("blur", "σ 4", "baseline", 0.5, 0.4, order=1.0),
    point("drawn avatars", "", "drawn", 0.7, 0.05, 8.0),
    point("warm start", "ε 0", "start", 0.5, 0.05, 6.0, epsilon=0.0),
    point("ours", "ε 1", "run", 0.55, 0.10, 3.0, order=-1.0, epsilon=1.0, seed=0),
    point("ours", "ε 1", "run", 0.65, 0.10, 5.0, order=-1.0, epsilon=1.0, seed=1),
    point("ours", "ε 20", "run", 0.72, 0.12, 3.0, order=-20.0, epsilon=20.0, seed=0),
    point("as published", "ε 1", "run", 0.3, 0.10, 9.0, order=-1.0, epsilon=1.0, seed=0),
]
BODY: dict[str, Any] = {
    "audit": "tradeoff",
    "dataset": "figures",
    "format": "figures",
    "people": 10,
    "pictures": 60,
    "to_name": 20,
    "like": {"part": "test", "pictures": 10},
    "actions": ["a", "b"],
    "folds": 4,
    "chance": {"identity": 0.1, "utility": 0.3},
    "judge": "blind",
    "seed": 0,
    "points": POINTS,
    "confidence": "sure",
    "cannot_see": ["much"],
    "not_for_release": None,
}


def test_seeds_are_put_together_and_places_in_order() -> None:
    rows = gathered(BODY)
    assert [(row.family, row.strength, row.seeds) for row in rows] == [
        ("raw pictures", "", 1),
        ("blur", "σ 1", 1),
        ("blur", "σ 4", 1),
        ("drawn avatars", "", 1),
        ("warm start", "ε 0", 1),
        ("ours", "ε 20", 1),
        ("ours", "ε 1", 2),
        ("as published", "ε 1", 1),
    ]
    one = at_one(BODY)
    assert one is not None and one.family == "ours" and one.strength == "ε 1"
    assert one.action is not None and one.action.value == pytest.approx(0.6) and one.action.high == pytest.approx(0.6 + 0.0707, abs=1e-4)
    assert one.quality["frechet_distance"] == pytest.approx((4.0, 1.41421), abs=1e-4)
    head, lines = places_table(BODY)
    assert head[:4] == ["way", "actions", "on raw", "identity, raw"] and lines[6][:2] == ["ours ε 1 (2 seeds)", "60.0 ± 7.1"]
    assert lines[0][1] == "80.0 (75.0 to 85.0)" and places_table(BODY, intervals=False)[1][0][1] == "80.0"


def test_which_is_ours_and_what_it_is_seen_against() -> None:
    families = {family.name: family for family in families_of(BODY)}
    assert [name for name, family in families.items() if family.ours] == ["ours"], "one curve stands out"
    assert families["raw pictures"].reference and len(families["blur"].places) == 2
    assert len({family.name: family for family in families_of(BODY, from_raw=True)}["blur"].places) == 3


def test_families_at_one_utility() -> None:
    assert heights(BODY) == [0.65, pytest.approx(0.6)] and heights(BODY | {"matched": [0.5]}) == [0.5]
    few = BODY | {"points": POINTS[5:7]}
    assert heights(few) == [pytest.approx(0.6)] and "No way reaches the 65%" in " ".join(facts(few))
    head, rows = matched_table(BODY, heights(BODY)[1])
    found = {row[0]: row for row in rows}
    assert "raw pictures" not in found and head[3:5] == ["identity, raw attacker", "times ours"]
    # Half way between 0.7 and 0.5; and six times what ours leaves there.
    assert found["blur"][3:5] == ["60.0%", "6.0 ×"] and found["ours"][3:5] == ["10.0%", "—"]
    assert found["drawn avatars"][3:5] == ["≤ 5.0%", "≤ 0.5 ×"], "more useful than that: no more is left at less"
    assert found["warm start"][3:5] == ["—", "—"] and found["as published"][3] == "—"
    # Between the raw picture and the weakest strength.
    assert {row[0]: row for row in matched_table(BODY, 0.75)[1]}["blur"][3] == "85.0%"


def test_what_is_to_be_had_for_free_is_not_bought() -> None:
    first, second, third = bought(BODY)
    assert first.startswith(
        "ours, ε 20: more than what is free. against drawn avatars better in actions 72.0% : 70.0%, on raw 62.0% : 60.0%"
    )
    assert second.startswith(
        "ours, ε 1: ε bought nothing that is not free. against drawn avatars better in distance 4.00 : 8.00, not better in"
    )
    assert second.endswith("against warm start better in actions 60.0% : 50.0%, on raw 50.0% : 40.0%, distance 4.00 : 6.00.")
    assert third.startswith(
        "as published, ε 1: ε bought nothing that is not free. against drawn avatars not better in actions 30.0% : 70.0%"
    )
    alone = [one for one in POINTS if one["kind"] != "drawn"]
    assert [line.split(": ")[1] for line in bought(BODY | {"points": alone})][1].startswith("more than what is free")
    assert bought(BODY | {"points": alone[:3]}) == []


def test_published_numbers_are_theirs() -> None:
    assert list(PUBLISHED["CAD-60"].values()) == [0.2862, 0.8020, 0.8802, 0.9731]
    assert list(PUBLISHED["Market-1501"].values()) == [0.0027, 0.1305, 0.3901, 0.6818]
    head, rows = published_table(BODY)
    assert head[:2] == ["theirs (not measured here)", "theirs, ε 1"] and [row[0] for row in rows] == ["CAD-60", "Market-1501"]
    assert [row[0] for row in published_table(BODY | {"format": "market1501"})[1]] == ["Market-1501"]


def test_the_page_and_the_text_hold_all_of_it() -> None:
    text, page = markdown(BODY), "\n".join(audit_section(BODY))
    for words in (
        "28.62%",
        "Where 60.0% of actions are recognised",
        "ε bought nothing that is not free",
        "20 pictures of 10 private people",
    ):
        assert words in text and words in page
    assert "Sun, Wang and Liu" in text and len(html_sections(BODY)) > 5


def test_identity_alone_has_fewer_columns() -> None:
    points = [one | {"action": None, "action_on_raw": None} for one in POINTS]
    body = BODY | {"points": points, "chance": {"identity": 0.1}, "actions": [], "like": {"part": "none", "pictures": 0}}
    assert places_table(body)[0][:3] == ["way", "identity, raw", "identity, adapted"] and families_of(body) == []
    assert "recognised" not in " ".join(facts(body)) and "held against nobody" in " ".join(facts(body))
    text = markdown(body)
    assert "Where" not in text and "## What ε bought" in text and audit_section(body)
