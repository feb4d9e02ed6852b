from __future__ import annotations

import json

import numpy as np
import pytest

from halfmask.audit.own_people import own_people
from halfmask.data.export import export_figures
from halfmask.errors import HalfmaskError


@pytest.fixture
def people(tmp_path, fresh_home):
    """Ten private records of which the first eight are of two subjects, and the last two of one each."""
    export_figures(tmp_path / "people", {"private": 10, "test": 2}, seed=1)
    path = tmp_path / "people/annotations.json"

    def named(subjects) -> str:
        body = json.loads(path.read_text())
        private = [one for one in body["records"] if one["split"] == "private"]
        for record, subject in zip(private, subjects, strict=True):
            record["subject"] = subject
            if subject is None:
                del record["subject"]
        path.write_text(json.dumps(body))
        return str(path.parent)

    return named


def test_those_with_several_pictures_are_named_and_the_others_are_strangers(people) -> None:
    folder = people([*"aabbabab", "c", "d"])
    found = own_people(folder, subjects=60, crops=9)
    # A ninth picture is of one of those who have no other.
    assert sorted(np.unique(found.subjects, return_counts=True)[1].tolist()) == [1, 4, 4]
    fewer = own_people(folder, subjects=2, crops=8)
    assert np.unique(fewer.subjects, return_counts=True)[1].tolist() == [4, 4]


def test_what_cannot_be_attacked(people) -> None:
    with pytest.raises(HalfmaskError, match="1 of 8 private subjects have 3 pictures or more: expected 2 at least"):
        own_people(people([*"aaabcdefgh"]), 60, 100)
    with pytest.raises(HalfmaskError, match="does not say who is who"):
        own_people(people([None, *"aaabbbccc"]), 60, 100)
