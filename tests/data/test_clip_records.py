"""Takes as records: what is kept of each, who is refused, and that what is public owes nothing to a protected stored pixel."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.data.clip_frames import fitted, pick, protected_pixels, windows_of
from halfmask.data.clip_masks import NoMasks, OwnMasks
from halfmask.data.clip_records import TOO_SHORT, UNREADABLE, clip_records
from halfmask.data.clips import Film, Take
from halfmask.data.keyed import record_id
from halfmask.errors import HalfmaskError

CLASSES = ("jump", "run", "wave")


def film_of(seed: int = 0, shape: tuple[int, int] = (60, 80), frames: int = 10) -> Film:
    """Coarse noise with somebody walking through it, and noise of the camera."""
    rng = np.random.default_rng(seed)
    room = cv2.resize(rng.integers(0, 256, (6, 7, 3), dtype=np.uint8), shape[::-1], interpolation=cv2.INTER_CUBIC)
    stored = np.clip(room + rng.integers(-9, 10, (frames, *shape, 3)), 0, 255).astype(np.uint8)
    person = np.zeros((frames, *shape), bool)
    for number in range(frames):
        person[number, 12:52, 20 + 2 * number : 38 + 2 * number] = True
    stored[person] = np.clip(stored[person] // 4 + 30 * (seed % 5), 0, 255)
    return Film(stored, person=person, blended=1)


def take_of(number: int, film: Film | None = None, **changes) -> Take:
    kept = film_of(number) if film is None else film
    given = {"name": f"clip {number}", "label": CLASSES[number % 3], "read": lambda: kept, "video": f"video {number // 2}"}
    return Take(**(given | changes))


@pytest.fixture
def takes() -> list[Take]:
    return [take_of(number, subject=f"person {number % 2}") for number in range(4)]


def make(takes: list[Take], **changes):
    settings = {"frames": 4, "size": 32, "name": "tiny", "masks": OwnMasks("drawn"), "workers": 2}
    return clip_records(takes, CLASSES, **(settings | changes))


def test_records_hold_clips_labels_units_and_what_is_hidden(takes) -> None:
    told = []
    records, left_out = make(takes, report=lambda *words: told.append(words))
    assert len(records) == 4 and not left_out and told == [("reading clips", 4, 4)]
    batch = records.batch(np.arange(4))
    assert batch["clip"].shape == (4, 4, 3, 32, 32) and batch["label"].tolist() == [0, 1, 2, 0]
    hidden = records.truth.rows(np.arange(4))["hidden"]
    assert hidden.shape == (4, 4, 32, 32) and hidden.dtype == bool and 0.5 < hidden.mean() < 1
    assert records.unit_names() == ["clip", "video", "subject"] and records.own_unit == "clip"
    assert len(set(records.unit_ids("video"))) == 2 and len(set(records.unit_ids("subject"))) == 2
    assert (records.classes, records.masks, records.protect) == (CLASSES, "drawn", "background")
    # Named in public and for good: neither by place nor by pixels.
    assert records.ids.tolist() == [record_id("tiny", take.name) for take in takes]
    fewer, _ = make(takes[1:])
    assert fewer.ids.tolist() == records.ids.tolist()[1:]
    assert fewer.unit_ids("video").tolist() == records.unit_ids("video").tolist()[1:]


def test_frames_are_picked_and_never_blended(takes) -> None:
    records, _ = make(takes, size=60, masks=None)
    film = takes[2].read()
    shown = records.batch(np.array([2]))["clip"][0].numpy().transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(shown, film.frames[pick(10, 4), :, 10:70])


@pytest.mark.parametrize("protect", ["background", "person", "mask"])
@pytest.mark.parametrize(("fit", "size"), [("crop", 32), ("squeeze", 24), ("crop", 60), ("crop", 80), ("person", 32)])
def test_what_is_public_owes_nothing_to_a_protected_stored_pixel(protect, fit, size) -> None:
    film = film_of(3)
    if protect == "mask":
        film = replace(film, protected=np.roll(film.person, 7, 2))
    protected = protected_pixels(film, protect)
    noise = np.random.default_rng(9).integers(0, 256, film.frames.shape, dtype=np.uint8)
    other = replace(film, frames=np.where(protected[..., None], noise, film.frames))
    found = []
    for number, one in enumerate((film, other)):
        records, _ = make([take_of(0, one, name=f"{protect} {fit} {size} {number}")], protect=protect, fit=fit, size=size)
        found.append((records.batch(np.array([0]))["clip"][0].numpy(), records.truth.rows(np.array([0]))["hidden"][0]))
    (clip, hidden), (again, hidden_again) = found
    np.testing.assert_array_equal(hidden, hidden_again)
    shown = np.broadcast_to(~hidden[:, None], clip.shape)
    assert shown.any() and hidden.any()
    np.testing.assert_array_equal(clip[shown], again[shown])
    assert (clip[~shown] != again[~shown]).any()
    # Resampled first and masked after, what is shown would not be the same.
    if fit == "crop" and size == 32:
        windows = windows_of((4, 60, 80))
        late = [fitted(one.frames[pick(10, 4)], size, windows).transpose(0, 3, 1, 2) for one in (film, other)]
        nearest = np.stack([cv2.resize(one[:, 10:70].astype(np.uint8), (32, 32)) for one in protected[pick(10, 4)]]) > 0
        public = np.broadcast_to(~nearest[:, None], clip.shape)
        assert (late[0][public] != late[1][public]).any()


def test_without_masks_nothing_is_hidden_and_nothing_is_said_to_be_protected(takes) -> None:
    for masks in (None, NoMasks()):
        records, _ = make(takes, masks=masks)
        assert not len(records.truth) and records.masks == "" and records.protect == ""
    with pytest.raises(HalfmaskError, match=r"data\.fit is person and there are no masks"):
        make(takes, masks=None, fit="person")


def test_subjects_are_units_only_where_every_take_tells(takes) -> None:
    records, _ = make([*takes, take_of(5)])
    assert records.unit_names() == ["clip", "video"]
    assert records.prints is not None and records.prints.subjects.any(1).tolist() == [True] * 4 + [False]


def test_videos_that_cannot_be_read_are_refused_or_left_out_and_never_named(takes) -> None:
    def damaged() -> Film:
        raise HalfmaskError("Jane Doe's file is damaged")

    empty = Film(np.zeros((0, 60, 80, 3), np.uint8))
    some = [*takes, take_of(7, name="Jane Doe", read=damaged), take_of(8, empty, name="John Doe")]
    with pytest.raises(HalfmaskError, match=r"2 videos are missing or cannot be read.*data\.on_bad=skip") as refused:
        make(some)
    assert "Doe" not in str(refused.value)
    records, left_out = make(some, on_bad="skip")
    assert len(records) == 4 and left_out == {UNREADABLE: 2}
    whole, _ = make(takes)
    np.testing.assert_array_equal(records.batch(np.arange(4))["clip"], whole.batch(np.arange(4))["clip"])
    with pytest.raises(HalfmaskError, match=f"none of the 2 videos.*2 × {UNREADABLE}"):
        make(some[4:], on_bad="skip")


def test_short_videos_are_refused_shown_again_or_left_out(takes) -> None:
    short = film_of(6, frames=3)
    some = [*takes, take_of(6, short)]
    with pytest.raises(HalfmaskError, match=r"1 videos have fewer than the 4 frames.*data\.short=repeat.*data\.short=skip"):
        make(some)
    records, left_out = make(some, short="repeat", size=60, masks=None)
    shown = records.batch(np.array([4]))["clip"][0].numpy().transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(shown, short.frames[[0, 1, 1, 2], :, 10:70])
    assert not left_out
    records, left_out = make(some, short="skip")
    assert len(records) == 4 and left_out == {TOO_SHORT: 1}


def test_masks_that_do_not_fit_or_are_not_there_are_refused_in_numbers(takes) -> None:
    film = film_of(1)
    assert film.person is not None
    for mask in (film.person[:9], film.person[:, :50], film.person[:, :, :-1]):
        with pytest.raises(HalfmaskError, match="1 masks have another size or another number of frames"):
            make([*takes, take_of(9, replace(film, person=mask))], on_bad="skip")
    with pytest.raises(HalfmaskError, match=r"data\.protect is background and 1 videos have no mask: say with data\.masks"):
        make([*takes, take_of(9, Film(film.frames))])
    with pytest.raises(HalfmaskError, match=r"data\.protect is mask and 4 videos have no mask"):
        make(takes, protect="mask")


def test_what_would_pass_for_something_else_is_refused(takes) -> None:
    with pytest.raises(HalfmaskError, match="frames of 15×15 pixels were asked for: expected at least 16×16"):
        make(takes, size=15)
    with pytest.raises(HalfmaskError, match="clips of 0 frames"):
        make(takes, frames=0)
    with pytest.raises(HalfmaskError, match="1 clips of 'tiny' have the name of another one"):
        make([*takes, take_of(0)])
    with pytest.raises(HalfmaskError, match="1 clips of 'tiny' have a label that is none of its 3 classes"):
        make([*takes, take_of(9, label="Jane Doe")])
    with pytest.raises(HalfmaskError, match="1 clips of 'tiny' have no label"):
        make([*takes, take_of(9, label="")])
    for wrong in ({"short": "loop"}, {"fit": "stretch"}, {"protect": "face"}, {"on_bad": "ignore"}):
        with pytest.raises(HalfmaskError, match=f"{next(iter(wrong))}"):
            make(takes, **wrong)


def test_clips_are_made_once_and_again_when_a_file_changes(takes) -> None:
    opened = []

    class File:
        stamp = "first"

        def __call__(self) -> Film:
            opened.append(self.stamp)
            return film_of(11)

    file = File()
    some = [take_of(11, read=file)]
    for _ in range(2):
        make(some)
    assert opened == ["first"]
    file.stamp = "second"
    make(some)
    make(some, protect="person")
    make(some, margin=1)
    assert opened == ["first", "second", "second", "second"]


def test_a_disk_that_fills_up_is_no_video_that_cannot_be_read(takes, fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told in a line, also where bad videos are skipped, and where there is room again soon: a clip that found none must not be missing."""
    real, clips = os.pwrite, []

    def full(file: int, body: memoryview, offset: int) -> int:
        if len(body) == 4 * 3 * 32 * 32:
            clips.append(offset)
            if len(clips) == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, body, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(HalfmaskError, match="could not be written: no space is left on the disk"):
            make(takes, on_bad="skip", short="skip")
    assert len(clips) > 1 and not list((fresh_home / "cache" / "records").iterdir()), "nothing half-written is found again"
    records, left_out = make(takes, on_bad="skip", short="skip")
    assert len(records) == 4 and not left_out


def test_two_runs_at_once_read_the_same_clips_and_one_of_them_is_kept(takes, fresh_home: Path) -> None:
    """The other run begins while this one reads its second film, and is done before it."""
    others = []

    def read() -> Film:
        if not others:
            others.append(None)
            others[0] = make(takes)[0]
        return film_of(1)

    takes[1] = replace(takes[1], read=read)
    records, _ = make(takes, workers=1)
    (other,) = others
    for name, mine in records.batch(np.arange(4)).items():
        assert mine.equal(other.batch(np.arange(4))[name])
    assert records.key == other.key and len(list((fresh_home / "cache" / "records").iterdir())) == 1


def test_drawn_clips_are_known_by_name_at_every_size_and_filmed_ones_by_their_pixels(takes) -> None:
    drawn = [make(takes, drawn=True, size=size)[0].prints for size in (32, 48)]
    assert drawn[0].in_pictures_of(drawn[1]).all() and not drawn[0].bands.any()
    filmed, _ = make(takes)
    renamed = [replace(take, name=f"other {take.name}") for take in takes]
    again, _ = make(renamed, name="copy", size=48, masks=None)
    assert filmed.prints.in_pictures_of(again.prints).all()
    strangers, _ = make([take_of(number) for number in range(20, 24)])
    assert not filmed.prints.in_pictures_of(strangers.prints).any()


def test_a_copy_with_another_person_on_every_frame_is_known_by_its_clips_names(takes) -> None:
    replaced = [replace(take, read=lambda number=number: film_of(40 + number)) for number, take in enumerate(takes)]
    (mine, _), (theirs, _), (other, _) = make(takes), make(replaced), make(replaced, name="another dataset")
    assert mine.prints.in_pictures_of(theirs.prints).all()
    assert not mine.prints.in_pictures_of(other.prints).any()
