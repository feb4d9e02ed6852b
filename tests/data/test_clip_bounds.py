"""Bounds on the clips of a video or a person: from settings and from how the world is drawn, and kept to."""

from __future__ import annotations

from collections import Counter

import pytest

from halfmask.data.clip_bounds import bounds_in, refuse_more
from halfmask.data.clip_sets import ClipDataConfig, load_clips
from halfmask.data.clips import Film, Take
from halfmask.data.figures_clips import MOST_CLIPS, MOST_VIDEOS_OF_A_SUBJECT, figures_clips
from halfmask.errors import HalfmaskError


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("balance", [0.0, 0.3])
def test_nobody_of_the_drawn_world_has_more(seed: int, balance: float) -> None:
    """Blocks of 64 clips are laid out alike: many of them, and where they meet."""
    for skip in (0, 37):
        takes = figures_clips("private", 2000, 4, 32, seed, skip, balance).takes
        videos, subjects = Counter(take.video for take in takes), Counter(take.subject for take in takes)
        appearances = Counter(subject for _, subject in {(take.video, take.subject) for take in takes})
        assert max(videos.values()) == MOST_CLIPS["video"]
        # Four long videos of one person are rare, and what is rare is bounded too.
        assert MOST_CLIPS["subject"] - 1 <= max(subjects.values()) <= MOST_CLIPS["subject"]
        assert max(appearances.values()) == MOST_VIDEOS_OF_A_SUBJECT
        assert MOST_CLIPS["subject"] == MOST_CLIPS["video"] * MOST_VIDEOS_OF_A_SUBJECT


NOTHING = {"video": None, "subject": None}


@pytest.mark.parametrize(
    ("unit", "drawn", "said", "expected"),
    [
        ("clip", True, NOTHING, {"video": 3, "subject": 12}),
        ("video", True, NOTHING, {"subject": 4}),
        ("subject", True, NOTHING, {}),
        ("clip", True, {"video": 2, "subject": 50}, {"video": 2, "subject": 12}),
        ("video", True, {"video": 2, "subject": 3}, {"subject": 3}),
        ("clip", False, NOTHING, {}),
        ("clip", False, {"video": 5, "subject": None}, {"video": 5}),
        ("clip", False, {"video": 5, "subject": 9}, {"video": 5, "subject": 9}),
        ("video", False, {"video": 5, "subject": None}, {}),
        ("video", False, {"video": 5, "subject": 9}, {"subject": 9}),
        ("subject", False, {"video": 5, "subject": 9}, {}),
    ],
)
def test_what_bounds_a_unit(unit: str, drawn: bool, said: dict[str, int | None], expected: dict[str, int]) -> None:
    assert bounds_in(unit, drawn, said) == expected
    config = ClipDataConfig("figures" if drawn else "mine", clips_per_video=said["video"], clips_per_subject=said["subject"])
    assert config.most_in(unit) == expected


def nothing() -> Film:
    raise AssertionError("no film is opened")


def takes(*videos: str, subject: str | None = "ann") -> list[Take]:
    return [Take(f"{number}", "run", nothing, video, subject) for number, video in enumerate(videos)]


def test_more_than_was_said_is_refused_in_numbers() -> None:
    some = takes("a", "a", "a", "b", "b", "")
    refuse_more(some, {"video": 3, "subject": 6}, "mine")
    with pytest.raises(HalfmaskError, match="clips_per_video is 1 and 2 private videos have more clips, up to 3: raise it"):
        refuse_more(some, {"video": 1, "subject": None}, "mine")
    with pytest.raises(HalfmaskError, match="clips_per_subject is 5 and 1 private subjects have more clips, up to 6") as refused:
        refuse_more(some, {"video": None, "subject": 5}, "mine")
    assert "ann" not in str(refused.value)
    # A clip that names no video is one of its own.
    refuse_more(takes("", "", ""), {"video": 1, "subject": None}, "mine")


def test_people_whom_nobody_names_are_not_bounded() -> None:
    with pytest.raises(HalfmaskError, match="2 clips of 'mine' do not say whom they show"):
        refuse_more(takes("a", "b", subject=None), {"video": None, "subject": 5}, "mine")


def test_a_bound_is_kept_before_any_clip_is_opened() -> None:
    config = ClipDataConfig(private=12, public=0, test=0, clips_per_video=2)
    with pytest.raises(HalfmaskError, match="clips_per_video is 2 and 2 private videos have more clips, up to 3"):
        load_clips(config, 4, 32)
