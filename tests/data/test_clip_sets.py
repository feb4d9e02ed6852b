"""Clips by recipe: parts, masks and classes as the settings say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halfmask.data.clip_folder import ClipFolderWriter
from halfmask.data.clip_sets import (
    ClipDataConfig,
    ClipSplitsConfig,
    clip_formats,
    load_clip_test,
    load_clips,
    load_public_clips,
    read_clips,
)
from halfmask.data.clips import Film, Take
from halfmask.data.overlaps import check_overlaps
from halfmask.errors import HalfmaskError
from halfmask.settings import check_settings, declared_in

PEOPLE = ("ann", "ben", "cem", "dia")
ACTIONS = ("jump", "run", "wave")


def film_of(seed: int, masked: bool = True) -> Film:
    rng = np.random.default_rng(seed)
    mask = np.zeros((6, 30, 40), bool)
    mask[:, 4:26, 10 + seed % 7 : 24 + seed % 7] = True
    return Film(rng.integers(0, 256, (6, 30, 40, 3), dtype=np.uint8), person=mask if masked else None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build(tmp_path)


def build(place: Path, masked: bool = True, splits: dict[str, str] | None = None) -> Path:
    writer = ClipFolderWriter(place / "clips of ours", masks="by hand")
    for number, (one, action) in enumerate((one, action) for one in PEOPLE for action in ACTIONS):
        take = Take(f"{one}-{action}", action, film_of, f"{one} {action}", one)
        writer.add(take, film_of(number, masked), (splits or {}).get(one, ""))
    return writer.finish()


def config_of(folder: Path, **changes) -> ClipDataConfig:
    return replace(ClipDataConfig(name=str(folder), splits=ClipSplitsConfig(test="dia", public="ann")), **changes)


def test_all_parts_of_a_folder_count_their_labels_alike(folder) -> None:
    told = []
    data = load_clips(config_of(folder), 4, (24, 24), lambda *words: told.append(words))
    assert (len(data.private), len(data.public), len(data.test)) == (6, 3, 3) and data.basis is None
    assert {part.classes for part in (data.private, data.public, data.test)} == {ACTIONS}
    assert data.private.masks == "by hand" and data.private.protect == "background" and data.private.unit_names()[-1] == "subject"
    assert ("reading clips of private", 6, 6) in told
    assert check_overlaps(data.fingerprints, {"public": data.public.prints, "test": data.test.prints}, "subject") == []
    test = load_clip_test(config_of(folder), 4, 24)
    np.testing.assert_array_equal(test.ids, data.test.ids)
    public, tuning = load_public_clips(config_of(folder), 4, 24)
    assert len(public) == 3 and tuning is None


def test_the_folders_own_splits(tmp_path) -> None:
    folder = build(tmp_path, splits={"ann": "public", "ben": "private", "cem": "private", "dia": "test"})
    data = load_clips(ClipDataConfig(name=str(folder)), 4, 24)
    assert (len(data.private), len(data.public), len(data.test)) == (6, 3, 3)


def test_judging_opens_no_private_video(folder) -> None:
    for path in (folder / "frames").glob("ben-*/*.png"):
        path.write_bytes(b"")
    assert len(load_clip_test(config_of(folder), 4, 24)) == 3
    with pytest.raises(HalfmaskError, match="3 videos are missing or cannot be read") as refused:
        load_clips(config_of(folder), 4, 24)
    assert "ben" not in str(refused.value)
    data = load_clips(config_of(folder, on_bad="skip"), 4, 24)
    assert len(data.private) == 3 and data.remarks() and "private: left out 3 ×" in data.remarks()[0]


def test_a_class_missing_from_the_private_part_is_refused_unless_allowed(folder) -> None:
    table = folder / "clips.csv"
    table.write_text(
        "\n".join(line for line in table.read_text().splitlines() if line.split(",")[0] not in ("ben-wave", "cem-wave")) + "\n"
    )
    with pytest.raises(HalfmaskError, match=r"no private clip shows wave, which the test asks for.*data\.missing_classes=allow"):
        load_clips(config_of(folder), 4, 24)
    data = load_clips(config_of(folder, missing_classes="allow"), 4, 24)
    assert data.private.classes == ACTIONS and set(data.private.targets.rows(np.arange(4))["label"]) == {0, 1}
    data = load_clips(config_of(folder, classes=["run", "jump"]), 4, 24)
    assert data.test.classes == ("run", "jump") and len(data.test) == 2
    with pytest.raises(HalfmaskError, match=r"unknown class of 'clips of ours' \(data.classes\) 'jmp': did you mean 'jump'"):
        load_clips(config_of(folder, classes=["jmp"]), 4, 24)


def test_a_class_missing_from_drawn_private_clips_is_refused_alike() -> None:
    """Twelve clips do not show all that six others ask for; refused before anything is drawn."""
    config = ClipDataConfig(private=12, public=0, test=6)
    with pytest.raises(HalfmaskError, match=r"shows brush_teeth, drink, reach, which the test asks for: draw more.*missing_classes=allow"):
        load_clips(config, 4, 32)
    data = load_clips(replace(config, missing_classes="allow"), 4, 32)
    assert (len(data.private), len(data.test)) == (12, 6)
    seen = [set(part.targets.rows(np.arange(len(part)))["label"].tolist()) for part in (data.private, data.test)]
    assert seen[1] - seen[0] == {data.private.classes.index(label) for label in ("brush_teeth", "drink", "reach")}
    # Without a test nobody asks, and whoever is judged on alone is not compared with anybody.
    assert len(load_clips(replace(config, test=0), 4, 32).private) == 12 and len(load_clip_test(config, 4, 32)) == 6


def test_masks_from_elsewhere(tmp_path) -> None:
    folder = build(tmp_path, masked=False)
    with pytest.raises(HalfmaskError, match=r"videos have no mask: say with data\.masks"):
        load_clips(config_of(folder), 4, 24)
    bare = load_clips(config_of(folder, masks="none"), 4, 24)
    assert not len(bare.private.truth)
    (folder / "boxes.csv").write_text(
        "clip,frame,left,top,width,height\n"
        + "".join(f"{one}-{action},{f},10,5,20,20\n" for one in PEOPLE for action in ACTIONS for f in range(6))
    )
    boxed = load_clips(config_of(folder, masks="boxes", masks_path="boxes.csv"), 4, 30)
    hidden = boxed.private.truth.rows(np.arange(6))["hidden"]
    assert (~hidden).sum(axis=(2, 3)).tolist() == [[400] * 4] * 6, "the box, and nothing was resampled"
    wider = load_clips(config_of(folder, masks="boxes", masks_path="boxes.csv", mask_margin=2), 4, 30)
    assert (~wider.private.truth.rows(np.arange(6))["hidden"]).sum(axis=(2, 3)).tolist() == [[256] * 4] * 6
    moving = load_clips(config_of(folder, masks="motion"), 4, 24)
    assert "estimate by motion" in moving.private.masks
    assert (config_of(folder, masks="motion").margin, config_of(folder).margin) == (1, 0)


def test_what_cannot_be_loaded_says_what_to_do(folder, tmp_path) -> None:
    with pytest.raises(HalfmaskError, match="clips are square, and 24×32 was asked for"):
        load_clips(config_of(folder), 4, (24, 32))
    with pytest.raises(HalfmaskError, match=r"has nobody in its part 'test'.*It is divided into train \(4 subjects\)"):
        load_clip_test(config_of(folder, splits=ClipSplitsConfig()), 4, 24)
    with pytest.raises(HalfmaskError, match="those are classes for pre-training"):
        load_clips(config_of(folder, labels="action-and-place"), 4, 24)
    with pytest.raises(HalfmaskError, match="is in no known format of clips: expected"):
        read_clips(tmp_path)
    with pytest.raises(HalfmaskError, match=r"data\.private is 0"):
        load_clips(ClipDataConfig(private=0), 4, 24)
    with pytest.raises(HalfmaskError, match=r"data\.test is 0"):
        load_clip_test(ClipDataConfig(test=0), 4, 24)
    with pytest.raises(HalfmaskError, match=r"data\.public is 0"):
        load_public_clips(ClipDataConfig(public=0), 4, 24)


def test_settings_are_declared_and_checked() -> None:
    check_settings(ClipDataConfig(format="clips"), "data.")
    assert "weizmann" in clip_formats() and "clips" in clip_formats()
    assert all(declared is not None and declared.meaning for _, _, declared in declared_in(ClipDataConfig()))
    for wrong in (
        {"masks": "magic"},
        {"protect": "face"},
        {"test_share": 1.0},
        {"format": "zip"},
        {"balance": 1.0},
        {"strangers": ["private"]},
    ):
        with pytest.raises(HalfmaskError):
            check_settings(ClipDataConfig(**wrong), "data.")


def test_one_real_person_left_out(shared_data) -> None:
    config = ClipDataConfig(
        name=str(shared_data("weizmann")), splits=ClipSplitsConfig(test="daria"), masks="motion", fit="person", classes=["run"]
    )
    data = load_clips(config, 8, 48)
    assert (len(data.private), len(data.test)) == (8, 1)
    assert check_overlaps(data.fingerprints, {"test": data.test.prints}, "clip") == []
