"""Parts of picture datasets: who is in each, and what each opens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from halfmask.data.picture_sets import PictureDataConfig, load_picture_test, load_pictures, load_public_pictures
from halfmask.errors import HalfmaskError
from halfmask.settings import check_settings

DRAWN = PictureDataConfig(private=10, public=6, test=5, per_subject=4)


def test_drawn_people_are_in_one_part_each() -> None:
    data = load_pictures(DRAWN)
    assert (len(data.private), len(data.public), len(data.test), data.name) == (10, 6, 5, "figures")
    subjects = [set(part.unit_ids("subject").tolist()) for part in (data.private, data.public, data.test)]
    assert not (subjects[0] & subjects[1] or subjects[0] & subjects[2] or subjects[1] & subjects[2])
    assert len(data.fingerprints) == 10
    assert load_pictures(replace(DRAWN, public=0, test=0)).test is None


def test_whoever_judges_pre_training_is_nobody_who_was_learnt_from() -> None:
    learnt, judged = load_public_pictures(replace(DRAWN, public_skip=1))
    assert len(learnt) == 6 and len(judged) > 100
    assert not set(learnt.unit_ids("subject").tolist()) & set(judged.unit_ids("subject").tolist())
    again = load_pictures(replace(DRAWN, public_skip=1)).public
    assert (again.ids == learnt.ids).all() and not np.isin(learnt.ids, load_pictures(DRAWN).public.ids).all()


def test_the_test_is_loaded_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import halfmask.data.picture_sets as sets

    asked, real = [], sets.figures_pictures
    monkeypatch.setattr(sets, "figures_pictures", lambda population, *rest: asked.append(population) or real(population, *rest))
    assert len(load_picture_test(DRAWN)) == 5 and asked == ["test"]
    load_public_pictures(DRAWN)
    assert set(asked[1:]) == {"public"}


def test_nobody_to_learn_from_or_to_judge_by_is_refused() -> None:
    for change, call, told in (
        ({"private": 0}, load_pictures, "data.private is 0"),
        ({"public": 0}, load_public_pictures, "data.public is 0"),
        ({"test": 0}, load_picture_test, "data.test is 0"),
        ({"height": 50}, load_pictures, "multiples of 16"),
    ):
        with pytest.raises(HalfmaskError, match=told):
            call(replace(DRAWN, **change))
    for bad in ({"height": 50}, {"width": 0}, {"per_subject": 0}, {"name": ""}):
        with pytest.raises(HalfmaskError, match=f"data.{next(iter(bad))} is"):
            check_settings(replace(DRAWN, **bad), "data.")
    check_settings(DRAWN, "data.")
