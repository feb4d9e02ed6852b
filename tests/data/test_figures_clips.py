"""Drawn clips: exact masks, known by name, and told by place where they are public."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.data.clip_sets import ClipDataConfig, load_clips, load_public_clips
from halfmask.data.figures.clips import CARE_ACTIONS, MOVEMENTS, PLACES, Clips
from halfmask.data.figures_clips import figures_clips
from halfmask.data.overlaps import check_overlaps
from halfmask.errors import HalfmaskError

SIZE = 48


def test_nothing_is_drawn_before_it_is_asked_for_and_then_as_the_world_draws_it(monkeypatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Clips, "clip", lambda *_: pytest.fail("drawn"))
        clips = figures_clips("private", 6, 4, SIZE, skip=3)
    world = Clips("private", size=(SIZE, SIZE), frames=4)
    assert clips.classes == CARE_ACTIONS and "exact" in clips.masks
    for number, take in enumerate(clips.takes, start=3):
        assert take.label == world.action_of(number) and take.name == f"figures-clips/private/0/{number}"
    film, drawn = clips.takes[2].read(), world.clip(5)
    np.testing.assert_array_equal(film.frames, drawn.frames)
    np.testing.assert_array_equal(film.person, drawn.person)
    assert film.blended == 1 and film.protected is None


def test_a_room_changes_nothing_that_is_public() -> None:
    """What the record's guarantee rests on: inside the mask, less a pixel, nothing of the room is drawn."""
    from halfmask.data.clip_frames import protected_pixels
    from halfmask.data.clips import Film

    world = Clips("private", size=(SIZE, SIZE), frames=3)
    for number in range(4):
        here, there = world.clip(number), world.clip(number, room=(world.room_of(number) + 7) % 48)
        public = ~protected_pixels(Film(here.frames, person=here.person, blended=1), "background")
        assert public.any()
        np.testing.assert_array_equal(here.frames[public], there.frames[public])


def test_public_clips_are_told_by_their_action_or_by_movement_and_place() -> None:
    beside = figures_clips("public", 30, 4, SIZE)
    assert {take.label for take in beside.takes} <= set(CARE_ACTIONS) and beside.classes == CARE_ACTIONS
    placed = figures_clips("public", 60, 4, SIZE, labels="action-and-place")
    assert len(placed.classes) == len(MOVEMENTS) * len(PLACES["public"]) and {take.label for take in placed.takes} <= set(placed.classes)
    assert not {take.name for take in placed.takes} & {take.name for take in beside.takes}, "other clips under the same numbers"
    with pytest.raises(HalfmaskError, match="only public ones are told by place"):
        figures_clips("private", 2, 4, SIZE, labels="action-and-place")
    with pytest.raises(HalfmaskError, match="unknown kind of labels"):
        figures_clips("public", 2, 4, SIZE, labels="place")
    with pytest.raises(HalfmaskError, match="unknown population"):
        figures_clips("secret", 2, 4, SIZE)


def test_parts_of_the_world_share_nobody_and_are_known_at_every_size() -> None:
    config = ClipDataConfig(private=6, public=4, test=4, workers=2, missing_classes="allow")
    data = load_clips(config, 2, 32)
    assert (len(data.private), len(data.public), len(data.test)) == (6, 4, 4)
    others = {"public": data.public.prints, "test": data.test.prints}
    assert check_overlaps(data.fingerprints, others, "subject") == []
    assert data.private.unit_names() == ["clip", "video", "subject"]
    larger = load_clips(config, 3, 40)
    assert data.fingerprints.in_pictures_of(larger.fingerprints).all() and data.fingerprints.dataset == larger.fingerprints.dataset
    np.testing.assert_array_equal(data.private.ids, larger.private.ids)


def test_those_that_judge_pre_training_come_after_those_that_are_learnt_from(monkeypatch) -> None:
    monkeypatch.setattr("halfmask.data.clip_sets._JUDGED", 3)
    public, judged = load_public_clips(ClipDataConfig(public=4, labels="action-and-place"), 2, 32)
    assert (len(public), len(judged)) == (4, 3) and not set(public.ids.tolist()) & set(judged.ids.tolist())
    assert public.classes == judged.classes and len(public.classes) > 100
    skipped, _ = load_public_clips(ClipDataConfig(public=3, public_skip=4, labels="action-and-place"), 2, 32)
    assert skipped.ids.tolist() == judged.ids.tolist()


def test_avatars_take_the_place_of_people_where_a_model_is_trained_and_never_where_it_is_judged() -> None:
    pytest.importorskip("halfmask.data.anonymise")
    real = load_clips(ClipDataConfig(private=4, public=0, test=2, missing_classes="allow"), 3, SIZE)
    data = load_clips(ClipDataConfig(private=4, public=0, test=2, anonymised=True, missing_classes="allow"), 3, SIZE)
    rows = np.arange(2)
    np.testing.assert_array_equal(data.test.batch(rows)["clip"], real.test.batch(rows)["clip"])
    assert (data.private.batch(rows)["clip"] != real.private.batch(rows)["clip"]).any()
    assert "avatar" in data.private.masks and "avatar" not in data.test.masks
    # Another person before the same protected room: what was spent on the one counts for the other.
    assert data.fingerprints.in_pictures_of(real.fingerprints).all()
