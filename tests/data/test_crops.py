"""Cutting people out: the same from any number of threads, each image opened once, and nothing bad passes unnoticed."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

import halfmask.data.crops as module
from halfmask.data.crops import crop_fields, crop_into, crop_people, joints_box
from halfmask.data.people import MISSING, NO_AREA, NO_JOINT, OUTSIDE, UNREADABLE, Person
from halfmask.data.store import Draft, cached_by_row
from halfmask.errors import HalfmaskError

SIZE = (64, 48)


@pytest.fixture
def people(tmp_path: Path, photo, person) -> list[Person]:
    """Two people on the first image, one on each of three others."""
    joints = np.column_stack([person(14), np.full(14, 2)])
    made = []
    for number in (0, 0, 1, 2, 3):
        path = tmp_path / f"{number}.jpg"
        photo(path, seed=number)
        made.append(Person(path.name, path, number, (20.0, 20.0, 40.0, 80.0), joints + np.array([len(made), 0, 0])))
    return made


def test_threads_change_nothing(people) -> None:
    alone, _ = crop_people(people, SIZE, workers=1)
    together, _ = crop_people(people, SIZE, workers=4)
    assert alone.keys() == together.keys()
    # Sketches are sealed with a fresh nonce each time.
    for name in alone.keys() - {"print_bands", "print_sealed"}:
        np.testing.assert_array_equal(alone[name], together[name])
    assert len({crop.tobytes() for crop in alone["images"]}) == 4


def test_an_image_is_opened_once_for_all_its_people(people, monkeypatch) -> None:
    opened = []
    real = module.read_image
    monkeypatch.setattr(module, "read_image", lambda path: opened.append(path.name) or real(path))
    crop_people(people, SIZE)
    assert sorted(opened) == ["0.jpg", "1.jpg", "2.jpg", "3.jpg"]


def test_joints_lie_on_their_pixels_and_find_their_way_back(people, tmp_path) -> None:
    picture = np.zeros((120, 90, 3), np.uint8)
    cv2.circle(picture, (40, 70), 2, (255, 255, 255), -1)
    cv2.imwrite(str(tmp_path / "dot.png"), picture)
    joints = np.full((14, 3), np.nan)
    joints[:, 2], joints[5] = 0, (40, 70, 2)
    one = Person("dot.png", tmp_path / "dot.png", 0, (20.0, 20.0, 40.0, 80.0), joints, head_box=(30.0, 20.0, 50.0, 44.0))
    arrays, _ = crop_people([one], SIZE)
    y, x = np.argwhere(arrays["images"][0, 0] > 150).mean(0)
    np.testing.assert_allclose(arrays["joints"][0, 5], [x, y], atol=0.5)
    assert np.isfinite(arrays["joints"]).all() and arrays["labelled"][0].sum() == 1
    turn, move = arrays["transforms"][0, :, :2], arrays["transforms"][0, :, 2]
    np.testing.assert_allclose(np.linalg.solve(turn, arrays["joints"][0, 5] - move), [40, 70], atol=1e-4)
    width, height = arrays["head_boxes"][0, 2:] - arrays["head_boxes"][0, :2]
    assert height / width == pytest.approx(24 / 20) and width == pytest.approx(20 * turn[0, 0])


def test_a_joint_outside_the_crop_is_annotated_but_not_labelled(people) -> None:
    joints = people[0].joints.copy()
    joints[3, :2] = (89, 119)
    one = Person("0.jpg", people[0].path, 0, (20.0, 20.0, 20.0, 20.0), joints)
    arrays, _ = crop_people([one], SIZE)
    assert arrays["annotated"][0, 3] and not arrays["labelled"][0, 3]
    assert (arrays["joints"][0, 3] > [SIZE[1], SIZE[0]]).all(), "its place is kept, for scoring"


def test_bad_files_are_refused_without_a_name_or_skipped_and_counted(people) -> None:
    people[2].path.unlink()
    people[3].path.write_bytes(people[3].path.read_bytes()[:200])
    with pytest.raises(HalfmaskError, match=r"names an image file that is missing: .*'halfmask data inspect PATH'.*data\.on_bad=skip"):
        crop_people(people, SIZE)
    with pytest.raises(HalfmaskError, match=r"names an image file that cannot be read: .*data\.on_bad=skip"):
        crop_people(people[3:], SIZE)
    arrays, left_out = crop_people(people, SIZE, on_bad="skip")
    assert arrays["kept"].tolist() == [0, 1, 4] and all(len(array) == 3 for array in arrays.values())
    assert [(one.image, one.reason) for one in left_out] == [("1.jpg", MISSING), ("2.jpg", UNREADABLE)]
    whole, _ = crop_people([people[i] for i in (0, 1, 4)], SIZE)
    np.testing.assert_array_equal(whole["images"], arrays["images"])
    with pytest.raises(HalfmaskError, match=r"data\.on_bad.*'ignore'"):
        crop_people(people, SIZE, on_bad="ignore")


@pytest.mark.parametrize(
    "box, reason",
    [
        ((500.0, 20.0, 40.0, 40.0), OUTSIDE),
        ((-80.0, 20.0, 40.0, 40.0), OUTSIDE),
        ((20.0, 20.0, 0.0, 0.0), NO_AREA),
        ((20.0, 20.0, float("nan"), 5.0), NO_AREA),
        ((80.0, 110.0, 5.0, 5.0), NO_JOINT),
        ((20.0, 20.0, 0.0, 40.0), None),
    ],
)
def test_boxes_that_show_nobody(people, box, reason) -> None:
    one = Person("0.jpg", people[0].path, 0, box, people[0].joints)
    _, left_out = crop_people([one, people[1]], SIZE)
    assert [found.reason for found in left_out] == ([reason] if reason else [])


def test_progress_ends_with_everyone(people) -> None:
    heard: list[tuple[int, int]] = []
    crop_people(people, SIZE, progress=lambda done, total: heard.append((done, total)))
    assert heard[-1] == (5, 5)


def test_the_box_of_labelled_joints() -> None:
    joints = np.array([[5.0, 9.0], [-1000.0, 0.0], [15.0, 3.0]])
    assert joints_box(joints, np.array([True, False, True])) == (5.0, 3.0, 10.0, 6.0)


def test_into_a_store_as_into_memory(people, fresh_home) -> None:
    people[2].path.unlink()
    in_memory, _ = crop_people(people, SIZE, on_bad="skip")

    def write(draft: Draft) -> None:
        kept, left_out = crop_into(draft.fields(crop_fields(people, SIZE), len(people)), people, SIZE, on_bad="skip")
        assert kept.tolist() == [0, 1, 3, 4] and [one.reason for one in left_out] == [MISSING]
        draft.keep(kept)

    stored = cached_by_row("records", "key", write)
    assert stored.keys() | {"kept"} == in_memory.keys()
    # Sketches are sealed with a fresh nonce each time.
    for name in stored.keys() - {"print_bands", "print_sealed"}:
        assert stored[name].dtype == in_memory[name].dtype
        np.testing.assert_array_equal(stored[name], in_memory[name])
    assert np.isnan(stored["head_boxes"]).all(), "nobody here has a head box"


def test_many_people_are_cut_out_in_as_little_memory_as_few(people, fresh_home) -> None:
    peaks = []
    for count in (4, 16, 64):
        many = [replace(people[1 + number % 4], image=f"{number}") for number in range(count)]

        def write(draft: Draft, many: list[Person] = many) -> None:
            crop_into(draft.fields(crop_fields(many, SIZE), len(many)), many, SIZE, workers=1)

        tracemalloc.start()
        cached_by_row("records", f"{count}", write)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # A crop is 9 KiB: 48 more of them would be 442,368 bytes.
    assert peaks[2] < peaks[1] + 100_000, peaks
