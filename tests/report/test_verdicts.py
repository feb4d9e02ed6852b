"""Audits in a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from halfmask.report.verdicts import FAILED, MEASURED, PASSED, audits_in, given_away, verdict

NOTES = {"confidence": "95 % intervals", "seed": 0, "cannot_see": []}
RATE = {"value": 0.5, "low": 0.4, "high": 0.6}
GOOD, BAD = {"check": "noise", "passed": True}, {"check": "clip", "passed": False}


@pytest.mark.parametrize(
    "body, word, words",
    [
        ({"audit": "loss", "checks": [GOOD]}, PASSED, "all 1 checks"),
        ({"audit": "masks", "checks": [GOOD, BAD]}, FAILED, "1 of 2 checks failed: clip"),
        ({"audit": "mechanism", "methods": [{"attacks": [{"name": "one step", "passed": False}], "checks": [GOOD]}]}, FAILED, "one step"),
        ({"audit": "model", "at_chance": True}, PASSED, "could not be told from strangers"),
        ({"audit": "model", "at_chance": False}, FAILED, "told apart"),
        ({"audit": "identity", "memory": {"value": 0.01, "low": -0.02, "high": 0.04}}, PASSED, "+1.0 points"),
        ({"audit": "identity", "memory": {"value": 0.1, "low": 0.02, "high": 0.2}}, FAILED, "better than strangers"),
        ({"audit": "planted", "planted": 100, "results": [{"withstood": True}]}, PASSED, "100 planted people"),
        ({"audit": "inversion", "columns": [], "network": "n", "delta": 1e-5}, MEASURED, "no promise to refute"),
    ],
    ids=lambda value: value["audit"] if isinstance(value, dict) else None,
)
def test_the_line_says_what_was_found(body: dict, word: str, words: str) -> None:
    found = verdict(NOTES | body | {"run": "runs/first", "date": "2026-01-01"})
    assert (found.word, found.sure, found.run, found.date) == (word, "95 % intervals", "runs/first", "2026-01-01")
    assert words in found.line


def test_what_is_not_for_release_is_not_read_for_a_page(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    for name, more in (("loss", {}), ("model", {"not_for_release": "about private people"})):
        (tmp_path / "audit" / f"{name}.json").write_text(json.dumps(NOTES | {"audit": name, "checks": []} | more))
    assert [body["audit"] for body in audits_in([tmp_path, tmp_path])] == ["loss"]


def test_a_view_of_another_strength_stands_in_where_this_one_was_not_tried() -> None:
    rows = [{"view": "blur", "strength": f"kernel {kernel}", "identity": RATE} for kernel in (9, 25)]
    body = NOTES | {"audit": "view", "rows": rows, "pictures_to_name": 20, "subjects": 10, "chance": 0.1}
    assert len(given_away([body], "blur", "kernel 25")) == 1 and len(given_away([body], "blur", "kernel 49")) == 2
    assert given_away([body], "downsample", "") == []
