"""Verdicts about two datasets are remembered for these two and no others, and are not believed if they were changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from halfmask.data.prints import named_prints
from halfmask.privacy.fingerprints import Fingerprints
from halfmask.privacy.relations import related

MINE, THEIRS = (["a", "b"], ["s", "t"]), (["b", "c"], ["u", "v"])


def test_a_verdict_is_remembered(tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert related(named_prints(*MINE), named_prints(*THEIRS), tmp_path) == (True, False)
    monkeypatch.setattr(Fingerprints, "in_pictures_of", lambda *a: pytest.fail("compared again"))
    assert related(named_prints(*MINE), named_prints(*THEIRS), tmp_path) == (True, False)


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ((["a", "x"], ["s", "t"]), THEIRS, (False, False)),
        ((["a", "b"], ["s", "u"]), THEIRS, (True, True)),
        (MINE, (["c"], ["t"]), (False, True)),
    ],
)
def test_other_people_get_a_verdict_of_their_own(mine: tuple, theirs: tuple, expected: tuple, tmp_path: Path, fresh_home: Path) -> None:
    related(named_prints(*MINE), named_prints(*THEIRS), tmp_path)
    assert related(named_prints(*mine), named_prints(*theirs), tmp_path) == expected


def test_a_verdict_that_was_changed_is_not_believed(tmp_path: Path, fresh_home: Path) -> None:
    related(named_prints(*MINE), named_prints(*THEIRS), tmp_path)
    path = tmp_path / "relations"
    assert path.stat().st_mode & 0o077 == 0
    for text in (path.read_text().replace("true", "false"), "{", json.dumps({"known": {}})):
        path.write_text(text)
        assert related(named_prints(*MINE), named_prints(*THEIRS), tmp_path) == (True, False)
