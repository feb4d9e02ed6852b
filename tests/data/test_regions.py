"""Regions of photographs: which are kept, by whose numbers, and where their landmarks lie."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.data.face_files import ImageFile
from halfmask.data.faces import Face, Layout, Photograph
from halfmask.data.people import MISSING, NO_AREA, OUTSIDE, UNREADABLE
from halfmask.data.region_records import NOTHING, region_records
from halfmask.data.regions import BEYOND, SMALL, RegionSettings, choose, cut, into_region, out_of_region, propose, shared
from halfmask.errors import HalfmaskError

LAYOUT = Layout("three", (1, 0, 2))
SIZE = 24


def draw(seed: int, centre: tuple[int, int] = (60, 55), radius: int = 25, shape: tuple[int, int] = (120, 140)) -> np.ndarray:
    """An ellipse with eyes on coarse noise."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 7, 3), dtype=np.uint8)
    image = cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_NEAREST)
    cv2.ellipse(image, centre, (radius, round(1.2 * radius)), 0, 0, 360, (230, 180, 150), -1)
    for side in (-1, 1):
        cv2.circle(image, (centre[0] + side * radius // 2, centre[1] - radius // 3), max(1, radius // 8), (20, 20, 20), -1)
    return image


def face_at(centre: tuple[int, int] = (60, 55), radius: int = 25, **changes) -> Face:
    x, y = centre
    points = np.array([[x - radius / 2, y - radius / 3], [x + radius / 2, y - radius / 3], [x, y + radius / 2]])
    given = {"landmarks": points, "visible": np.ones(3, bool), "pose": np.array([0.0, 90.0, -180.0]), "attribute": 1.0, "subject": None}
    return Face((x - radius, y - 1.2 * radius, 2 * radius, 2.4 * radius), **(given | changes))


def photograph(number: int, *faces: Face, image: np.ndarray | None = None) -> Photograph:
    pixels = draw(number) if image is None else image
    return Photograph(f"{number}.png", lambda: pixels, faces or (face_at(),))


@pytest.fixture
def photographs() -> list[Photograph]:
    return [photograph(number) for number in range(4)]


def make(photographs: list[Photograph], **changes):
    return region_records(photographs, LAYOUT, **({"attribute": "glad", "size": SIZE, "name": "tiny", "workers": 2} | changes))


def test_proposals_are_the_same_each_time_and_in_the_pixels_of_the_photograph() -> None:
    image = draw(3)
    boxes = propose(image)
    assert len(boxes) > 20 and (np.diff(boxes[:, 0]) >= 0).all()
    np.testing.assert_array_equal(boxes, propose(image))
    assert shared(boxes, np.array([[35, 25, 50, 60]])).max() > 0.7, "the drawn face is among them"
    large = cv2.resize(image, None, fx=4, fy=4, interpolation=cv2.INTER_NEAREST)
    found = propose(large)
    assert shared(found, 4 * np.array([[35, 25, 50, 60]])).max() > 0.7
    assert (found[:, :2] >= 0).all() and (found[:, :2] + found[:, 2:] <= [560, 480]).all()
    assert propose(np.zeros((10, 300, 3), np.uint8)).shape == (0, 4)


def test_without_contributed_modules_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(cv2, "ximgproc", None)
    with pytest.raises(HalfmaskError, match="install opencv-contrib-python-headless instead of opencv-python-headless"):
        propose(draw(0))


def test_regions_share_enough_with_their_face_or_little_with_any() -> None:
    image = draw(1, centre=(40, 50), radius=20)
    faces = (face_at((40, 50), 20), face_at((110, 60), 18))
    regions, left_out = choose(propose(image), faces, image.shape[:2], "one", RegionSettings(5, 4))
    boxes = np.array([region.box for region in regions])
    overlaps = shared(boxes, np.array([face.box for face in faces]))
    positive = np.array([region.face >= 0 for region in regions])
    assert (overlaps[positive].max(1) > 0.5).all() and (overlaps[~positive].max(1) < 0.35).all() and not left_out
    assert [region.face for region in regions if region.face >= 0] == overlaps[positive].argmax(1).tolist()
    assert {0, 1} == {region.face for region in regions if region.face >= 0} and (~positive).sum() == 4
    np.testing.assert_allclose([region.overlap for region in regions if region.face >= 0], overlaps[positive].max(1))
    assert all(region.overlap == 0 and np.isnan(region.face_box).all() for region in regions if region.face < 0)


@pytest.mark.parametrize("side", [16, 17.3, 40, 99])
def test_every_face_that_is_large_enough_has_a_region_whatever_is_proposed(side: float) -> None:
    for number in range(60):
        face = Face((number * 3 - 20 + 0.4, 0.6 * number - 5, side + 20.2, side + 5.2), np.zeros((3, 2)), np.zeros(3, bool), np.zeros(3))
        nothing = np.zeros((0, 4), np.int64)
        regions, left_out = choose(nothing, [face], (120, 180), f"{number}", RegionSettings(1, 0))
        assert [region.face for region in regions] == [0] or left_out in ({SMALL: 1}, {OUTSIDE: 1})
        assert all(region.overlap > 0.5 for region in regions)


def test_faces_without_a_region_are_counted_by_reason() -> None:
    faces = [
        face_at((40, 50), 20),
        face_at((100, 30), 6),
        face_at((300, 50), 20),
        Face((10.0, 10.0, -3.0, 20.0), np.zeros((3, 2)), np.zeros(3, bool), np.zeros(3)),
        Face((np.nan, 10.0, 30.0, 20.0), np.zeros((3, 2)), np.zeros(3, bool), np.zeros(3)),
        face_at((135, 90), 20),
    ]
    image = draw(5)
    regions, left_out = choose(propose(image), faces, image.shape[:2], "one", RegionSettings(4, 4))
    assert left_out == {SMALL: 1, OUTSIDE: 1, NO_AREA: 2}
    assert {region.face for region in regions} == {-1, 0, 5}
    clipped = next(region for region in regions if region.face == 5)
    assert clipped.face_box == (115, 66, 25, 48)
    _, left_out = choose(propose(image), faces, image.shape[:2], "one", RegionSettings(1, 0))
    assert left_out[BEYOND] == 1


def test_nobody_is_an_example_of_no_face() -> None:
    """A face that is too small to learn from is no negative, either."""
    small = face_at((60, 55), 7)
    exactly = np.array([[53, 47, 14, 16], [50, 45, 20, 20]])
    regions, _ = choose(exactly, [small], (120, 140), "one", RegionSettings(3, 3))
    assert regions == []


def test_a_point_finds_its_way_back_to_the_photograph() -> None:
    face, box = face_at(), (33, 20, 50, 64)
    taught = into_region(face, box)
    np.testing.assert_allclose(out_of_region(taught["landmarks"], np.array(box)), face.landmarks, atol=1e-5)
    assert taught["visible"].tolist() == [1, 1, 1]
    np.testing.assert_allclose(taught["pose"], [0, np.pi / 2, -np.pi])
    middle = into_region(face_at(landmarks=np.array([[4.5, 4.5], [-0.5, 9.5], [9.6, 3]])), (0, 0, 10, 10))
    assert middle["landmarks"].tolist() == [[0, 0], [-0.5, 0.5], [0, 0]] and middle["visible"].tolist() == [1, 1, 0]
    many = out_of_region(np.stack([taught["landmarks"]] * 2), np.array([box, box]))
    np.testing.assert_allclose(many[1], face.landmarks, atol=1e-5)


def test_a_landmark_lies_on_its_pixel_in_the_cut() -> None:
    image = np.zeros((100, 100, 3), np.uint8)
    image[40:44, 60:64] = 255
    box = (40, 20, 48, 48)
    region = cut(image, box, SIZE)
    assert region.shape == (3, SIZE, SIZE)
    y, x = np.argwhere(region[0] > 128).mean(0)
    placed = into_region(face_at(landmarks=np.tile([61.5, 41.5], (3, 1))), box)["landmarks"][0]
    np.testing.assert_allclose((placed + 0.5) * SIZE - 0.5, [x, y], atol=1e-6)
    assert cut(image, (0, 0, 20, 90), SIZE).shape == (3, SIZE, SIZE)


def test_what_is_not_known_is_zero() -> None:
    nan = float("nan")
    points = np.array([[60.0, 55.0], [nan, nan], [61.0, 55.0]])
    face = face_at(landmarks=points, visible=np.array([True, True, False]), pose=np.array([1.0, nan, 0.0]), attribute=nan)
    taught = into_region(face, (40, 40, 40, 40))
    assert taught["visible"].tolist() == [1, 0, 0] and (taught["landmarks"][1:] == 0).all()
    assert taught["pose"].tolist() == [0, 0, 0] and taught["posed"] == 0 and taught["attribute"] == taught["attributed"] == 0


def test_records_of_photographs(photographs, fresh_home) -> None:
    told: list[tuple[str, int, int]] = []
    records, left_out = make(photographs, report=lambda *step: told.append(step))
    targets = records.targets.columns
    face = np.asarray(targets["face"])
    assert not left_out and len(records) == len(face) <= 24 and records.layout == LAYOUT and records.attribute == "glad"
    assert records.private.columns["image"].shape == (len(face), 3, SIZE, SIZE)
    assert len(set(records.units["image"].tolist())) == 4 and "subject" not in records.units
    for name, column in targets.items():
        assert column.dtype == np.float32 and not np.asarray(column)[face == 0].any(), name
    assert (np.asarray(targets["attributed"]) == face).all() and (np.asarray(targets["posed"]) == face).all()
    assert len(set(records.ids.tolist())) == len(records)
    assert told[-1] == ("cutting regions", 4, 4) and ("finding regions", 4, 4) in told
    assert records.prints is not None and len({row.tobytes() for row in records.prints.exact}) == 4
    told.clear()
    again, _ = make(photographs, report=lambda *step: told.append(step))
    assert again.key == records.key and not told, "found once, cut once"
    smaller, _ = make(photographs, report=lambda *step: told.append(step), size=16)
    assert {stage for stage, *_ in told} == {"cutting regions"}, "another size needs no other search"
    np.testing.assert_array_equal(smaller.ids, records.ids)


def by_id(records) -> dict[int, bytes]:
    return {int(one): records.private.columns["image"][row].tobytes() for row, one in enumerate(records.ids)}


def test_somebody_who_leaves_changes_nothing_of_anybody_else(photographs) -> None:
    whole, _ = make(photographs)
    fewer, _ = make(photographs[:1] + photographs[2:])
    backwards, _ = make(photographs[::-1], workers=1)
    assert by_id(backwards) == by_id(whole)
    assert by_id(fewer).items() <= by_id(whole).items()
    gone = {int(one) for one, image in zip(whole.ids, whole.units["image"], strict=True) if image not in fewer.units["image"]}
    assert by_id(whole).keys() - by_id(fewer).keys() == gone
    other, _ = make(photographs, seed=1)
    assert by_id(other).keys() != by_id(whole).keys()


def test_an_attribute_that_was_not_asked_for_is_nowhere(photographs) -> None:
    records, _ = make(photographs, attribute="")
    assert records.attribute == ""
    assert not np.asarray(records.targets.columns["attribute"]).any() and not np.asarray(records.targets.columns["attributed"]).any()


def test_regions_belong_to_the_subject_of_their_photograph() -> None:
    photographs = [photograph(number, face_at(subject="ann" if number < 2 else "bob")) for number in range(3)]
    records, _ = make(photographs)
    subjects, images = records.units["subject"], records.units["image"]
    assert len(set(subjects.tolist())) == 2 and len(set(zip(subjects.tolist(), images.tolist(), strict=True))) == 3
    assert records.prints is not None and len({row.tobytes() for row in records.prints.subjects}) == 2
    alone, _ = make(photographs[2:])
    assert set(alone.units["subject"].tolist()) < set(subjects.tolist())
    both = photograph(9, face_at((40, 50), 18, subject="ann"), face_at((100, 60), 18, subject="bob"))
    with pytest.raises(HalfmaskError, match="1 photographs of 'tiny' show two subjects or more") as refused:
        make([*photographs, both])
    assert "ann" not in str(refused.value) and "9.png" not in str(refused.value)
    empty = Photograph("nobody.png", lambda: draw(8), ())
    records, _ = make([*photographs, empty])
    assert len(set(records.units["subject"].tolist())) == 3
    assert records.prints is not None and (~records.prints.subjects.any(1)).sum() == 3


def test_a_photograph_of_nobody_gives_regions_without_a_face() -> None:
    records, left_out = make([Photograph("nobody.png", lambda: draw(8), ())])
    assert len(records) == 3 and not np.asarray(records.targets.columns["face"]).any() and not left_out
    assert np.isnan(records.truth.columns["face_boxes"]).all()
    tiny = Photograph("tiny.png", lambda: np.zeros((5, 5, 3), np.uint8), ())
    assert make([Photograph("nobody.png", lambda: draw(8), ()), tiny])[1] == {NOTHING: 1}
    with pytest.raises(HalfmaskError, match="no region was found in the 1 photographs"):
        make([tiny])


def test_bad_files_are_refused_or_counted_and_never_named(tmp_path: Path, photo) -> None:
    for name in ("ann.png", "bob.png"):
        photo(tmp_path / name, 100, 90)
    (tmp_path / "bob.png").write_bytes(b"no picture")
    photographs = [Photograph(name, ImageFile(tmp_path / name), (face_at((45, 50), 20),)) for name in ("ann.png", "bob.png", "cy.png")]
    for some, damage in ((photographs[:2], UNREADABLE), (photographs[::2], MISSING)):
        with pytest.raises(HalfmaskError, match=f"an annotation names {damage}") as refused:
            make(some)
        assert "bob" not in str(refused.value) and "cy" not in str(refused.value)
    for _ in range(2):
        records, left_out = make(photographs, on_bad="skip")
        assert left_out == {UNREADABLE: 1, MISSING: 1} and len(set(records.units["image"].tolist())) == 1
    before, _ = make(photographs[:1])
    photo(tmp_path / "ann.png", 100, 90, seed=7)
    assert make(photographs[:1])[0].key != before.key
    with pytest.raises(HalfmaskError, match=r"data\.on_bad"):
        make(photographs, on_bad="ignore")


def test_what_would_pass_for_something_else_is_refused(photographs) -> None:
    with pytest.raises(HalfmaskError, match="1 photographs of 'tiny' have the name of another one"):
        make([*photographs, photographs[0]])
    with pytest.raises(HalfmaskError, match="1 faces of 'tiny' do not have the 3 landmarks"):
        make([photograph(0, face_at(landmarks=np.zeros((2, 2))))])


def test_drawn_photographs_are_known_by_name_at_every_size(photographs) -> None:
    one, _ = make(photographs, drawn=True)
    other, _ = make(photographs, drawn=True, size=16)
    assert one.prints is not None and other.prints is not None
    np.testing.assert_array_equal(one.prints.exact, other.prints.exact)
    assert not one.prints.bands.any() and one.prints.in_pictures_of(other.prints).all()


def test_another_cut_of_a_photograph_is_the_same_account(photographs) -> None:
    one, _ = make(photographs)
    other, _ = make(photographs[:2], seed=5, name="renamed")
    assert one.prints is not None and other.prints is not None
    assert other.prints.in_pictures_of(one.prints).all()
    assert one.prints.in_pictures_of(other.prints).sum() == np.isin(one.units["image"], one.units["image"][one_rows(one, 2)]).sum()


def one_rows(records, count: int) -> np.ndarray:
    """The rows of the first photographs."""
    images = list(dict.fromkeys(records.units["image"].tolist()))[:count]
    return np.flatnonzero(np.isin(records.units["image"], images))


def test_each_photograph_is_opened_once_in_each_pass(fresh_home) -> None:
    opened: list[str] = []
    made = [Photograph(f"{number}", lambda number=number: opened.append(str(number)) or draw(number), (face_at(),)) for number in range(3)]
    make(made)
    assert sorted(opened) == ["0", "0", "1", "1", "2", "2"]
