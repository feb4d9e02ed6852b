"""Where masks come from, and that whatever is in doubt is protected."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.data.clip_frames import protected_pixels
from halfmask.data.clip_masks import MASKS, BoxMasks, FileMasks, NoMasks, OwnMasks, mask_source, mask_stamp, read_boxes
from halfmask.data.clips import Film, Take
from halfmask.errors import HalfmaskError

FILM = Film(np.random.default_rng(0).integers(0, 256, (3, 20, 30, 3), dtype=np.uint8))
TAKE = Take("run/ira_run.avi", "run", lambda: FILM)
MASK = np.zeros((3, 20, 30), bool)
MASK[:, 5:15, 8:20] = True


def write_masks(folder: Path, name: str, mask: np.ndarray) -> None:
    (folder / name).mkdir(parents=True)
    for number, one in enumerate(mask):
        cv2.imwrite(str(folder / name / f"{number:03d}.png"), one if one.dtype == np.uint8 else 255 * one.astype(np.uint8))


@pytest.mark.parametrize("name", ["run/ira_run.avi", "run/ira_run"])
@pytest.mark.parametrize("kind", ["png", "npz"])
def test_masks_from_files_named_after_the_take(tmp_path, name, kind) -> None:
    if kind == "png":
        write_masks(tmp_path, name, MASK)
    else:
        (tmp_path / "run").mkdir()
        np.savez_compressed(tmp_path / f"{name}.npz", mask=MASK)
    before = mask_stamp(tmp_path, TAKE.name)
    film = FileMasks(tmp_path, "background", blended=2)(TAKE, FILM)
    np.testing.assert_array_equal(film.person, MASK)
    assert film.blended == 2 and film.protected is None and before
    protected = FileMasks(tmp_path, "mask")(TAKE, FILM)
    np.testing.assert_array_equal(protected.protected, MASK)
    assert protected.person is None
    if kind == "npz":
        np.savez_compressed(tmp_path / f"{name}.npz", mask=~MASK & (np.arange(30) > 3))
        assert mask_stamp(tmp_path, TAKE.name) != before


def test_a_take_without_a_mask_file_has_no_mask(tmp_path) -> None:
    assert FileMasks(tmp_path, "person")(TAKE, FILM).person is None and mask_stamp(tmp_path, TAKE.name) == ""


def test_grey_is_protected_whatever_is(tmp_path) -> None:
    grey = np.where(MASK, np.uint8(255), np.uint8(0))
    grey[:, 5] = np.where(MASK[:, 5], 128, 0)
    write_masks(tmp_path, TAKE.name, grey)
    for protect, shown in (("background", False), ("person", True), ("mask", True)):
        film = FileMasks(tmp_path, protect, blended=0)(TAKE, FILM)
        found = film.protected if protect == "mask" else film.person
        assert found is not None and (found[:, 5, 8:20] == shown).all() and found[:, 6, 8:20].all()
        assert protected_pixels(film, protect)[:, 5, 8:20].all()


def test_masks_that_cannot_be_read_are_refused_without_a_name(tmp_path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ira_run.npz").write_bytes(b"nothing of use")
    with pytest.raises(HalfmaskError, match=r"a mask below .* cannot be read: expected an NPZ archive") as refused:
        FileMasks(tmp_path, "person")(TAKE, FILM)
    assert "ira" not in str(refused.value)
    np.savez(tmp_path / "run" / "ira_run.npz", other=MASK)
    with pytest.raises(HalfmaskError, match="the key 'mask'"):
        FileMasks(tmp_path, "person")(TAKE, FILM)
    with pytest.raises(HalfmaskError, match="leads out of the folder of masks"):
        FileMasks(tmp_path, "person")(Take("../run", "run", lambda: FILM), FILM)
    write_masks(tmp_path, "jump/ira", MASK)
    cv2.imwrite(str(tmp_path / "jump" / "ira" / "001.png"), np.zeros((9, 9), np.uint8))
    odd = FileMasks(tmp_path, "person")(Take("jump/ira", "jump", lambda: FILM), FILM)
    assert odd.person is not None and odd.person.shape != FILM.frames.shape[:3], "told by its size, with all others"


def test_boxes_from_csv_and_json_say_the_same(tmp_path) -> None:
    (tmp_path / "boxes.csv").write_text("clip,frame,left,top,width,height\nrun/ira_run,0,8,5,12,10\nrun/ira_run,1,8.5,5.5,11,9\n")
    (tmp_path / "boxes.json").write_text(json.dumps({"run/ira_run": {"0": [8, 5, 12, 10], "1": [[8.5, 5.5, 11, 9]]}}))
    found = [BoxMasks(tmp_path / name, "background")(TAKE, FILM).person for name in ("boxes.csv", "boxes.json")]
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(found[0][0], MASK[0])
    assert BoxMasks(tmp_path / "boxes.csv", "background")(Take("other", "run", lambda: FILM), FILM).person is None


@pytest.mark.parametrize("protect", ["background", "person", "mask"])
def test_a_pixel_that_a_box_cuts_and_a_frame_without_a_box_are_protected(tmp_path, protect) -> None:
    (tmp_path / "boxes.csv").write_text("clip,frame,left,top,width,height\nrun/ira_run,0,8.5,5.5,11,9\n")
    film = BoxMasks(tmp_path / "boxes.csv", protect)(TAKE, FILM)
    protected = protected_pixels(film, protect)
    assert protected[1:].all()
    outline = np.zeros((20, 30), bool)
    outline[5:15, 8:20], outline[6:14, 9:19] = True, False
    assert protected[0][outline].all() and not protected[0].all()


def test_boxes_of_another_cut_of_the_film_are_of_no_use(tmp_path) -> None:
    (tmp_path / "boxes.csv").write_text("clip,frame,left,top,width,height\nrun/ira_run,7,8,5,11,9\n")
    person = BoxMasks(tmp_path / "boxes.csv", "person")(TAKE, FILM).person
    assert person is not None and len(person) != len(FILM.frames)


@pytest.mark.parametrize("row", ["a,0,1,2,3", "a,0,1,2,3,0", "a,-1,1,2,3,4", "a,x,1,2,3,4", "a,0.5,1,2,3,4", "a,0,nan,2,3,4"])
def test_boxes_that_are_none_are_refused_in_numbers(tmp_path, row) -> None:
    (tmp_path / "boxes.csv").write_text(f"clip,frame,left,top,width,height\n{row}\n")
    with pytest.raises(HalfmaskError, match="1 boxes cannot be used: expected a frame, counted from 0"):
        read_boxes(tmp_path / "boxes.csv")


def test_files_of_boxes_that_are_none(tmp_path) -> None:
    with pytest.raises(HalfmaskError, match=r"no boxes at .*data\.masks_path"):
        read_boxes(tmp_path / "none.csv")
    (tmp_path / "boxes.csv").write_text("clip,frame,x,y\n")
    with pytest.raises(HalfmaskError, match="lacks the columns left, top, width, height"):
        read_boxes(tmp_path / "boxes.csv")
    (tmp_path / "boxes.json").write_text("[1, 2]")
    with pytest.raises(HalfmaskError, match="holds a list of 2 numbers: expected"):
        read_boxes(tmp_path / "boxes.json")


def test_sources_by_name(tmp_path) -> None:
    assert isinstance(mask_source("none", "person"), NoMasks) and mask_source("own", "person", own="drawn").words == "drawn"
    assert OwnMasks()(TAKE, FILM) is FILM and NoMasks()(TAKE, FILM).person is None
    sources = [mask_source(kind, "background", tmp_path) for kind in MASKS]
    assert [source.kind for source in sources] == list(MASKS)
    assert "background inside a box is public" in sources[2].words and "estimate" in sources[3].words
    with pytest.raises(HalfmaskError, match=r"data\.masks is files: say with data\.masks_path"):
        mask_source("files", "background")
    with pytest.raises(HalfmaskError, match="no folder of masks at"):
        mask_source("files", "background", tmp_path / "none")
    with pytest.raises(HalfmaskError, match="unknown source of masks"):
        mask_source("magic", "background")
    with pytest.raises(HalfmaskError, match="unknown part to protect"):
        mask_source("own", "face")
