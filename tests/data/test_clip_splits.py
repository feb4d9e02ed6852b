"""Who of a dataset of clips is on which side."""

from __future__ import annotations

import pytest

from halfmask.data.clip_splits import ClipSplitsConfig, divide_clips, missing_classes, natural, sizes, split_by
from halfmask.data.clips import ClipSet, Film, Take
from halfmask.errors import HalfmaskError

PEOPLE = ("daria", "denis", "eli", "ira")
ACTIONS = ("bend", "run")


def never() -> Film:
    raise AssertionError("dividing opens no video")


def people() -> ClipSet:
    takes = tuple(Take(f"{action}/{one}", action, never, f"{one} {action}", subject=one) for action in ACTIONS for one in PEOPLE)
    return ClipSet("people", takes, ACTIONS)


def scenes(counts: dict[str, int] | None = None, clips: int = 2) -> ClipSet:
    counts = counts or {"run": 11, "sit": 5}
    takes = [
        Take(f"{label}_{group}_{clip}", label, never, f"{label}_{group}", group=f"{label}_{group}")
        for label, groups in counts.items()
        for group in range(1, groups + 1)
        for clip in range(clips)
    ]
    return ClipSet("scenes", tuple(takes), tuple(counts))


def names(parts: dict[str, list[Take]], what: str = "subject") -> dict[str, set[str]]:
    return {part: {str(getattr(take, what)) for take in takes} for part, takes in parts.items()}


def test_one_person_left_out_by_name_leaves_the_others_private() -> None:
    for person in PEOPLE:
        parts = divide_clips(people(), ClipSplitsConfig(test=person))
        assert names(parts) == {"test": {person}, "private": set(PEOPLE) - {person}}


def test_people_by_number_by_name_and_by_split() -> None:
    parts = divide_clips(people(), ClipSplitsConfig(test="1", public="ira", basis="train:eli"))
    assert names(parts) == {"test": {"daria"}, "public": {"ira"}, "basis": {"eli"}, "private": {"denis"}}
    assert names(divide_clips(people(), ClipSplitsConfig(private="1-2,eli"))) == {"private": {"daria", "denis", "eli"}}
    with pytest.raises(HalfmaskError, match="gives 1 subjects to both 'public' and 'test'"):
        divide_clips(people(), ClipSplitsConfig(test="daria", public="1"))
    with pytest.raises(HalfmaskError, match=r"data\.splits\.test is 'nobody'"):
        divide_clips(people(), ClipSplitsConfig(test="nobody"))


def test_the_datasets_own_splits() -> None:
    clips = people()
    own = {"train": frozenset(take.name for take in clips.takes if take.subject != "ira"), "test": frozenset({"run/ira"})}
    divided = ClipSet(clips.name, clips.takes, clips.classes, own)
    parts = divide_clips(divided, ClipSplitsConfig())
    assert names(parts, "name") == {"private": set(own["train"]), "test": {"run/ira"}}
    parts = divide_clips(divided, ClipSplitsConfig(public="train:1"))
    assert names(parts) == {"private": {"denis", "eli"}, "test": {"ira"}, "public": {"daria"}}
    assert sizes(divided) == "train (3 subjects), test (1 subjects)"


def test_the_last_share_of_each_classs_groups_is_the_test() -> None:
    parts = divide_clips(scenes(), ClipSplitsConfig(), test_share=0.2)
    assert names(parts, "group")["test"] == {"run_10", "run_11", "sit_5"}
    assert len(parts["private"]) + len(parts["test"]) == 32
    parts = divide_clips(scenes(), ClipSplitsConfig(public="train:run_1,train:2"), test_share=0.2)
    assert names(parts, "group")["public"] == {"run_1", "run_2"} and "run_1" not in names(parts, "group")["private"]


def test_what_is_divided_is_what_every_clip_tells() -> None:
    assert split_by(people(), None) == "subject" and split_by(scenes(), None) == "group"
    bare = ClipSet("bare", tuple(Take(f"{n}", "run", never, f"video {n // 2}") for n in range(6)), ("run",))
    assert split_by(bare, None) == "video"
    assert names(divide_clips(bare, ClipSplitsConfig(test="3")), "video") == {"private": {"video 0", "video 1"}, "test": {"video 2"}}
    with pytest.raises(
        HalfmaskError, match=r"data\.split_by is subject, and 32 clips of 'scenes' do not say theirs: expected group or video"
    ):
        divide_clips(scenes(), ClipSplitsConfig(), "subject")


def test_a_video_on_two_sides_is_refused() -> None:
    takes = tuple(Take(f"{one} {part}", "run", never, f"video {part}", subject=one) for one in PEOPLE for part in range(2))
    with pytest.raises(HalfmaskError, match="2 videos have clips in two parts"):
        divide_clips(ClipSet("together", takes, ("run",)), ClipSplitsConfig(test="ira"))


def test_missing_classes_and_counting() -> None:
    parts = divide_clips(scenes({"run": 3, "sit": 1}), ClipSplitsConfig(), test_share=0.2)
    assert missing_classes(parts) == ["sit"]
    assert sorted(["10", "9", "a10", "a9"], key=natural) == ["9", "10", "a9", "a10"]
