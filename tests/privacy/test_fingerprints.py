"""A dataset is recognised under other bytes, and what is kept for it says nothing without the key."""

from __future__ import annotations

import stat
from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.privacy.fingerprints import (
    Fingerprints,
    fingerprint_annotation,
    fingerprint_images,
    fingerprint_name,
    fingerprint_picture,
    key,
)


def people(seed: int = 0, count: int = 10) -> np.ndarray:
    """Pictures with shapes of several sizes: those survive being stored with loss, as photographs do and noise does not."""
    rng = np.random.default_rng(seed)
    images = []
    for _ in range(count):
        total = np.zeros((96, 72, 3), np.float32)
        for cells in (3, 6, 12):
            total += cv2.resize(rng.normal(0, 1, (cells, cells, 3)).astype(np.float32), (72, 96), interpolation=cv2.INTER_CUBIC)
        images.append(np.clip(128 + 30 * total, 0, 255).astype(np.uint8).transpose(2, 0, 1))
    return np.stack(images)


def pose(seed: int = 0, labelled: int = 14) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.uniform(0, 200, (14, 2)), np.arange(14) < labelled])


def with_names(images: np.ndarray, annotations: list[np.ndarray] | None = None, subjects: list[str] | None = None) -> Fingerprints:
    pictures = [fingerprint_picture(image.transpose(1, 2, 0)) for image in images]
    labels = None if annotations is None else [fingerprint_annotation(points) for points in annotations]
    names = None if subjects is None else [fingerprint_name("subject", name) if name else np.zeros(16, np.uint8) for name in subjects]
    return Fingerprints.stacked(pictures, labels, names)


def test_a_copy_is_known_and_strangers_are_not(fresh_home: Path) -> None:
    first = fingerprint_images(people())
    mirrored = fingerprint_images(people()[::2, :, :, ::-1])
    assert first.in_pictures_of(mirrored).tolist() == [True, False] * 5
    assert mirrored.in_pictures_of(first).all()
    assert first.in_pictures_of(first.take(np.array([3]))).tolist() == [number == 3 for number in range(10)]
    assert not first.in_pictures_of(fingerprint_images(people(5))).any()
    nothing = first.take(np.arange(0))
    assert not first.in_pictures_of(nothing).any() and len(nothing.in_pictures_of(first)) == 0


def test_what_has_no_sketch_is_known_by_its_hash(fresh_home: Path) -> None:
    blank = fingerprint_images(np.zeros((1, 3, 40, 40), np.uint8))
    named = Fingerprints.stacked([{"exact": fingerprint_name("figure", name)} for name in ("7", "8")])
    both = Fingerprints.joined([blank, named])
    assert both.in_pictures_of(both.take(np.array([0, 2]))).tolist() == [True, False, True]
    assert not blank.in_pictures_of(fingerprint_images(np.zeros((1, 3, 41, 40), np.uint8))).any(), "no black frame is another"


def test_every_record_of_a_known_photograph_is_known(fresh_home: Path) -> None:
    """Several people stand in one image: each of their records has its fingerprint."""
    brighter = fingerprint_images(np.minimum(255, people(count=2) * 0.9 + 20).astype(np.uint8))
    twice = Fingerprints.joined([fingerprint_images(people(count=2)), fingerprint_images(people(seed=3, count=1))]).take(
        np.array([0, 1, 0, 2])
    )
    assert twice.in_pictures_of(brighter).tolist() == [True, True, True, False]


def test_the_exact_hash_is_of_pixels_and_shape(fresh_home: Path) -> None:
    image = people(count=1)[0].transpose(1, 2, 0)
    exact = fingerprint_picture(image)["exact"]
    assert np.array_equal(exact, fingerprint_picture(image.copy(order="F"))["exact"])
    other = image.copy()
    other[0, 0, 0] ^= 1
    for changed in (other, image.reshape(72, 96, 3)):
        assert not np.array_equal(exact, fingerprint_picture(changed)["exact"])
    assert (
        not fingerprint_images(image.reshape(72, 96, 3).transpose(2, 0, 1)[None]).in_pictures_of(fingerprint_images(people(count=1))).any()
    )


@pytest.mark.parametrize(
    "image", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)]
)
def test_what_is_no_picture_is_refused(image: np.ndarray, fresh_home: Path) -> None:
    with pytest.raises(HalfmaskError, match="expected uint8"):
        fingerprint_picture(image)


def test_equal_annotations_count_when_there_are_several(fresh_home: Path) -> None:
    poses = [pose(seed) for seed in range(10)]
    mine = with_names(people(), poses)
    assert mine.in_pictures_of(with_names(people(7), poses)).all(), "redrawn pictures, the same poses"
    two = with_names(people(7), [*poses[:2], *(pose(50 + seed) for seed in range(8))])
    assert mine.in_pictures_of(two).tolist() == [True] * 2 + [False] * 8
    one = with_names(people(7), [*poses[:1], *(pose(50 + seed) for seed in range(9))])
    assert not mine.in_pictures_of(one).any(), "one may be chance"


def test_few_annotations_of_a_large_dataset_are_chance(fresh_home: Path) -> None:
    def named(seeds: range) -> Fingerprints:
        return Fingerprints.stacked(
            [{"exact": fingerprint_name("person", f"{seeds}{seed}")} for seed in seeds],
            [fingerprint_annotation(pose(seed)) for seed in seeds],
        )

    assert not named(range(60)).in_pictures_of(named(range(58, 118))).any(), "2 of 60 are less than 5 %"
    assert named(range(60)).in_pictures_of(named(range(57, 117))).sum() == 3


def test_common_annotations_tell_nobody_apart(fresh_home: Path) -> None:
    usual = [pose(1)] * 5 + [pose(2)] * 5
    mine, theirs = with_names(people(), usual), with_names(people(7), usual)
    assert not mine.telling().annotations.any() and not mine.in_pictures_of(theirs).any()
    # Two people of one image may well be annotated twice: it is on more pictures that an annotation is common.
    again = Fingerprints.joined([with_names(people(), [pose(seed) for seed in range(10)])] * 2)
    assert np.array_equal(again.telling().annotations, again.annotations)


def test_an_annotation_is_its_labelled_points(fresh_home: Path) -> None:
    some = pose(labelled=8)
    garbage = some.copy()
    garbage[8:, :2] = np.nan
    moved = some.copy()
    moved[0, 0] += 0.5
    fewer = some.copy()
    fewer[7, 2] = 0
    name = fingerprint_annotation(some)
    assert (
        name.any()
        and np.array_equal(name, fingerprint_annotation(garbage))
        and np.array_equal(name, fingerprint_annotation(some.astype(np.float32)))
    )
    for other in (moved, fewer):
        assert not np.array_equal(name, fingerprint_annotation(other))
    assert fingerprint_annotation(pose(labelled=6)).any() and not fingerprint_annotation(pose(labelled=5)).any()


def test_subjects_are_known_by_their_ids(fresh_home: Path) -> None:
    mine = with_names(people(count=3), subjects=["ann", "bob", ""])
    theirs = with_names(people(4, 3), subjects=["bob", "", "eve"])
    assert mine.in_subjects_of(theirs).tolist() == [False, True, False], "an unknown subject is not another unknown one"
    assert not mine.in_pictures_of(theirs).any()
    assert not np.array_equal(fingerprint_name("subject", "ann"), fingerprint_name("figure", "ann"))
    assert not np.array_equal(fingerprint_name("a", "b c"), fingerprint_name("a b", "c"))


def test_a_dataset_is_named_after_the_set_of_its_images(fresh_home: Path) -> None:
    prints = fingerprint_images(people())
    order = np.random.default_rng(1).permutation(10)
    assert prints.dataset == prints.take(order).dataset == Fingerprints.joined([prints, prints.take(order[:3])]).dataset
    assert prints.dataset == fingerprint_images(people()).dataset
    assert prints.dataset != prints.take(order[:9]).dataset


def test_arrays_go_and_come_back(fresh_home: Path) -> None:
    prints = with_names(people(count=3), [pose(seed) for seed in range(3)], ["a", "b", "c"])
    again = Fingerprints.from_arrays(prints.arrays())
    assert all(np.array_equal(array, again.arrays()[name]) for name, array in prints.arrays().items())
    assert sum(array.nbytes for array in prints.arrays().values()) / 3 <= 2048
    with pytest.raises(HalfmaskError, match="expected uint8"):
        Fingerprints.from_arrays(prints.arrays() | {"sealed": prints.sealed[:, :-1]})


def test_fingerprints_are_kept_and_closed_to_others(fresh_home: Path) -> None:
    prints = with_names(people(), [pose(seed) for seed in range(10)])
    Fingerprints.joined([prints, prints]).save(fresh_home)
    (path,) = fresh_home.glob("*.records")
    again = Fingerprints.load(path)
    assert len(again) == 10 and again.dataset == prints.dataset == path.stem
    assert again.in_pictures_of(fingerprint_images(people()[:, :, :, ::-1])).all(), "sketches came through"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 == stat.S_IMODE((fresh_home / "fingerprint.key").stat().st_mode)
    assert not list(fresh_home.glob("*.draft"))


def test_what_is_learnt_of_the_same_images_is_added(fresh_home: Path) -> None:
    fingerprint_images(people()).save(fresh_home)
    named = with_names(people(), subjects=[f"p{number}" for number in range(10)])
    named.save(fresh_home)
    (path,) = fresh_home.glob("*.records")
    before = path.read_bytes()
    assert named.in_subjects_of(Fingerprints.load(path)).all()
    fingerprint_images(people()[::-1]).save(fresh_home)
    assert path.read_bytes() == before, "nothing new, nothing written"


def test_damaged_and_older_records_are_refused(fresh_home: Path) -> None:
    prints = fingerprint_images(people(count=2))
    prints.save(fresh_home)
    (path,) = fresh_home.glob("*.records")
    whole = path.read_bytes()
    for position in (25, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(HalfmaskError, match="changed, cut"):
            Fingerprints.load(path)
        with pytest.raises(HalfmaskError, match="changed, cut"):
            prints.save(fresh_home)
    for short in (whole[:-1], whole[:40], whole + b"x"):
        path.write_bytes(short)
        with pytest.raises(HalfmaskError, match="changed, cut"):
            Fingerprints.load(path)
    # As they were before sketches were sealed: a count, then hashes.
    for old in ((2).to_bytes(8, "big") + bytes(64), whole[:19] + b"\x01" + whole[20:], b""):
        path.write_bytes(old)
        with pytest.raises(HalfmaskError, match="expected version 2"):
            Fingerprints.load(path)
    path.write_bytes(whole)
    renamed = path.rename(path.with_stem("f" * 32))
    with pytest.raises(HalfmaskError, match="renamed"):
        Fingerprints.load(renamed)


def test_fingerprints_mean_nothing_without_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints, keys = [], []
    for name in ("one", "two"):
        monkeypatch.setenv("HALFMASK_HOME", str(tmp_path / name))
        keys.append(key())
        assert key() == keys[-1] and len(keys[-1]) == 32
        prints.append(with_names(people(count=4), [pose(seed) for seed in range(4)], list("abcd")))
    assert keys[0] != keys[1] and prints[0].dataset != prints[1].dataset
    for name, array in prints[0].arrays().items():
        runs = [{row[at : at + 8].tobytes() for row in every for at in range(len(row) - 7)} for every in (array, prints[1].arrays()[name])]
        assert not runs[0] & runs[1], f"{name} are the same under another key"
    with pytest.raises(HalfmaskError, match="another key"):
        prints[0].in_pictures_of(prints[1])


def test_a_sealed_sketch_shows_nothing(fresh_home: Path) -> None:
    """Neither the picture, nor that two sketches are of one picture: bytes that are as good as random."""
    image = people(count=1)[0].transpose(1, 2, 0)
    rows = [fingerprint_picture(image) for _ in range(60)]
    for name in ("bands", "sealed"):
        table = np.stack([row[name] for row in rows])
        assert (np.ptp(table.astype(int), axis=0) > 100).all(), f"a byte of {name} is the picture's, whatever the nonce"
        counts = np.bincount(table.ravel(), minlength=256)
        expected = table.size / 256
        # Chi-square with 255 degrees of freedom: above 400 with probability 1e-8.
        assert ((counts - expected) ** 2 / expected).sum() < 400


def test_a_sketch_that_was_changed_is_refused(fresh_home: Path) -> None:
    prints = fingerprint_images(people(count=2))
    for name in ("bands", "sealed"):
        array = prints.arrays()[name].copy()
        array[0, 50] ^= 1
        with pytest.raises(HalfmaskError, match="changed or sealed"):
            Fingerprints.from_arrays(prints.arrays() | {name: array}).in_pictures_of(fingerprint_images(people(7, 2)))


def test_a_key_that_was_never_written_is_not_used(fresh_home: Path) -> None:
    """A process that dies, or is overtaken, between making the file and filling it must not leave an empty key in use."""
    fresh_home.mkdir()
    (fresh_home / "fingerprint.key").touch(mode=0o600)
    try:
        found = key()
    except HalfmaskError:
        return
    assert len(found) == 32
