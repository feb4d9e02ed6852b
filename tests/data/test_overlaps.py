"""The same people on both sides are found, at every unit, under any name, and told of in numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.data.datasets import DataConfig, load_datasets
from halfmask.data.export import export_figures
from halfmask.data.overlaps import check_overlaps, find_overlaps
from halfmask.data.prints import fingerprints_of, named_prints
from halfmask.errors import HalfmaskError
from halfmask.privacy.fingerprints import Fingerprints
from halfmask.training.config import RunConfig
from halfmask.training.progress import Progress
from halfmask.training.setup import Setup, prepare

Build = Callable[..., RunConfig]
UNITS = ["crop", "image", "subject"]


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clinic") / "people"
    export_figures(folder, {"private": 12, "public": 24, "test": 6}, seed=3)
    return folder


def changed(clinic: Path, folder: Path, change: Callable[[list[dict], Path], None]) -> Path:
    shutil.copytree(clinic, folder)
    body = json.loads((folder / "annotations.json").read_text())
    change(body["records"], folder)
    (folder / "annotations.json").write_text(json.dumps(body))
    return folder


def first_of(records: list[dict], split: str) -> dict:
    return next(record for record in records if record["split"] == split)


def stands_in(part: str, rename: bool = False, store: str | None = None) -> Callable[[list[dict], Path], None]:
    """A private record once more, in another part: as it is, under another name, or stored in another way; as somebody else's."""

    def change(records: list[dict], folder: Path) -> None:
        again = dict(first_of(records, "private")) | {"split": part, "subject": "nobody we know"}
        if rename or store:
            image = cv2.imread(str(folder / again["image"]))
            again["image"] = f"images/another-{part}{store or '.jpg'}"
            if store:
                image = image[:, ::-1] if store == ".png" else image
                cv2.imwrite(str(folder / again["image"]), image)
            else:
                shutil.copy(folder / first_of(records, "private")["image"], folder / again["image"])
        records.append(again)

    return change


DETOURS: dict[str, Callable[[list[dict], Path], None]] = {
    "the same image in public": stands_in("public"),
    "the same image in test": stands_in("test"),
    "the same bytes under another name": stands_in("public", rename=True),
    "a mirror image in another format": stands_in("public", store=".png"),
    "stored again": stands_in("test", store=".webp"),
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("detour", DETOURS)
def test_people_on_both_sides_are_refused_at_every_unit(
    detour: str, unit: str, clinic: Path, tiny_config: Build, tmp_path: Path, quick_accounting: None
) -> None:
    folder = changed(clinic, tmp_path / "data", DETOURS[detour])
    config = tiny_config(f"data.name={folder}", unit=unit, batch=2)
    with pytest.raises(HalfmaskError, match=r"private records recur in '(public|test)': [1-9]\d* by their photograph") as refused:
        prepare(config, Progress())
    assert "another-" not in str(refused.value) and ".jpg" not in str(refused.value), "numbers, not names"


@pytest.mark.parametrize("part", ["basis", "tuning"])
def test_people_on_both_sides_are_refused_in_every_part(
    part: str, clinic: Path, tiny_config: Build, tmp_path: Path, quick_accounting: None
) -> None:
    """A copy of a private photograph among the public ones, of which some span the subspace or are watched."""
    folder = changed(clinic, tmp_path / "data", stands_in("public", rename=True))
    names = sorted({record["image"] for record in json.loads((folder / "annotations.json").read_text())["records"]})
    assert names[0] == "images/another-public.jpg", "the copy is the first of the part"
    config = tiny_config(f"data.name={folder}", f"data.splits.{part}=public:1-2", "subspace.samples=1", batch=2)
    with pytest.raises(HalfmaskError, match=rf"private records recur in '{part}': [1-9]\d* by their photograph"):
        prepare(config, Progress())


@pytest.mark.parametrize("unit", UNITS)
def test_strangers_are_not_refused(unit: str, clinic: Path, tiny_config: Build, quick_accounting: None) -> None:
    prepare(tiny_config(f"data.name={clinic}", unit=unit, batch=2), Progress())


@pytest.mark.parametrize("name", ["itself", "a copy"])
def test_public_people_from_the_same_folder_are_refused(
    name: str, clinic: Path, tiny_config: Build, tmp_path: Path, quick_accounting: None
) -> None:
    elsewhere = clinic
    if name == "a copy":
        shutil.copytree(clinic, tmp_path / "copy")
        elsewhere = tmp_path / "copy"
    config = tiny_config(f"data.name={clinic}", f"data.public_name={elsewhere}", "data.splits.public=private", batch=2)
    with pytest.raises(HalfmaskError, match="recur in 'public'"):
        prepare(config, Progress())


def test_a_dataset_without_public_people_offers_none(clinic: Path, tmp_path: Path) -> None:
    """It used to fall back to those it calls private."""
    only = changed(
        clinic, tmp_path / "data", lambda records, _: records.__setitem__(slice(None), [r for r in records if r["split"] == "private"])
    )
    with pytest.raises(HalfmaskError, match="none that is public"):
        load_datasets(DataConfig(name=str(clinic), public_name=str(only)), (64, 48))


@pytest.mark.parametrize("part", ["private", "public", "test"])
def test_missing_ids_are_refused_where_subjects_are_protected(
    part: str, clinic: Path, tiny_config: Build, tmp_path: Path, quick_accounting: None
) -> None:
    """One record without an id used to switch the check off for its whole part."""
    folder = changed(clinic, tmp_path / "data", lambda records, _: first_of(records, part).pop("subject"))
    with pytest.raises(HalfmaskError, match=rf"1 of .* records of '{part}' have no subject id"):
        prepare(tiny_config(f"data.name={folder}", unit="subject", batch=2), Progress())
    prepare(tiny_config(f"data.name={folder}", unit="image", batch=2), Progress())


def test_a_subject_with_other_pictures_in_another_part_is_refused(
    clinic: Path, tiny_config: Build, tmp_path: Path, quick_accounting: None
) -> None:
    def change(records: list[dict], _: Path) -> None:
        first_of(records, "test")["subject"] = first_of(records, "private")["subject"]

    folder = changed(clinic, tmp_path / "data", change)
    with pytest.raises(HalfmaskError, match=r"recur in .test.: .* by their subject"):
        prepare(tiny_config(f"data.name={folder}", unit="subject", batch=2), Progress())

    class Listener(Progress):
        heard: list[str] = []  # noqa: RUF012

        def warn(self, text: str) -> None:
            self.heard.append(text)

    prepare(tiny_config(f"data.name={folder}", unit="image", batch=2), Listener())
    assert any("by their subject" in line for line in Listener.heard)


def test_strangers_can_be_declared_and_the_certificate_says_so(
    clinic: Path, tiny_config: Build, tmp_path: Path, quick_accounting: None
) -> None:
    def change(records: list[dict], _: Path) -> None:
        for record in records:
            if record["split"] == "public":
                record.pop("subject")

    from halfmask.training.assumptions import public_assumptions

    folder = changed(clinic, tmp_path / "data", change)
    with pytest.raises(HalfmaskError, match=r"data\.strangers"):
        prepare(tiny_config(f"data.name={folder}", unit="subject", batch=2), Progress())
    setup = prepare(tiny_config(f"data.name={folder}", "data.strangers=[public]", unit="subject", batch=2), Progress())
    assert any("declared" in line and "public" in line for line in public_assumptions(setup))


def test_only_a_part_without_any_ids_can_be_declared_to_show_strangers() -> None:
    """Where some have ids, those without are records that somebody forgot, not strangers; and nobody private is a stranger."""
    private, known, unknown = named_prints(["p0"], ["s0"]), named_prints(["x"], ["s1"]), named_prints(["y"])
    some = Fingerprints.joined([known, unknown])
    assert check_overlaps(private, {"public": unknown}, "subject", ["public"]) == []
    with pytest.raises(HalfmaskError, match="1 of 2 records of 'public' have no subject id"):
        check_overlaps(private, {"public": some}, "subject", ["public"])
    with pytest.raises(HalfmaskError, match="records of 'test' have no subject id"):
        check_overlaps(private, {"test": unknown}, "subject", ["public"])
    for part in (unknown, some):
        with pytest.raises(HalfmaskError, match="records of 'private' have no subject id"):
            check_overlaps(part, {"public": known}, "subject", ["public"])


def test_counts_are_of_private_records() -> None:
    private = named_prints([f"p{i}" for i in range(10)], [f"s{i // 2}" for i in range(10)])
    public = named_prints(["p1", "p2", "x", "x"], ["s4", "a", "b", "c"])
    (found,) = find_overlaps(private, {"public": public, "test": named_prints(["y"])})
    assert (found.part, found.pictures, found.subjects) == ("public", 2, 2)
    with pytest.raises(HalfmaskError, match="2 by their photograph, 2 by their subject"):
        check_overlaps(private, {"public": public}, "crop")


# ---- the same account ----------------------------------------------------------------------------------------------------


def _wider(records: list[dict], _: Path) -> None:
    for record in records:
        x, y, width, height = record["box"]
        record["box"] = [x - 0.025 * width, y - 0.025 * height, 1.05 * width, 1.05 * height]


def _shifted(records: list[dict], _: Path) -> None:
    for record in records:
        record["box"] = [record["box"][0] + 4, *record["box"][1:]]


def _mirrored(records: list[dict], folder: Path) -> None:
    for name in {record["image"] for record in records}:
        image = cv2.imread(str(folder / name))
        cv2.imwrite(str(folder / name), image[:, ::-1])
    for record in records:
        width = 2 * 320
        record["joints"] = [[width - x, y, v] for x, y, v in record["joints"]]
        x, y, w, h = record["box"]
        record["box"] = [max(0.0, width - x - w), y, w, h]


def _stored_again(records: list[dict], folder: Path) -> None:
    for name in {record["image"] for record in records}:
        image = cv2.imread(str(folder / name))
        cv2.imwrite(str(folder / name), cv2.resize(image, None, fx=0.75, fy=0.75), [cv2.IMWRITE_JPEG_QUALITY, 70])
    for record in records:
        record["joints"] = [[0.75 * x, 0.75 * y, v] for x, y, v in record["joints"]]
        record["box"] = [0.75 * value for value in record["box"]]


@pytest.mark.parametrize("size", [(64, 48), (64, 64)])
@pytest.mark.parametrize("change", [_wider, _shifted, _mirrored, _stored_again])
def test_another_crop_or_copy_is_the_same_account(
    change: Callable[[list[dict], Path], None], size: tuple[int, int], clinic: Path, tmp_path: Path
) -> None:
    """Each of these got a fresh budget when crops at network size were what was recognised."""
    before = load_datasets(DataConfig(name=str(clinic)), (64, 48)).fingerprints
    after = load_datasets(DataConfig(name=str(changed(clinic, tmp_path / "data", change))), size).fingerprints
    assert before.in_pictures_of(after).all() and after.in_pictures_of(before).all()
    if change in (_wider, _shifted):
        assert before.dataset == after.dataset


def test_figures_are_the_same_at_every_size(tiny_config: Build) -> None:
    sizes = [load_datasets(replace(DataConfig(), private=8, public=0, test=0), size).fingerprints.dataset for size in ((64, 48), (64, 64))]
    assert sizes[0] == sizes[1]
    other = load_datasets(replace(DataConfig(), private=8, public=8, test=8, seed=1), (64, 48))
    assert other.fingerprints.dataset != sizes[0]
    assert other.public is not None and not np.any(fingerprints_of(other.private).in_pictures_of(fingerprints_of(other.public)))


def test_inspect_counts_people_who_recur(clinic: Path, tmp_path: Path) -> None:
    from halfmask.data.formats import read_annotations
    from halfmask.data.inspect import inspect_dataset
    from halfmask.data.skeleton import MPII

    assert inspect_dataset(read_annotations(clinic), MPII).overlaps == {}
    folder = changed(clinic, tmp_path / "data", stands_in("public", rename=True))
    found = inspect_dataset(read_annotations(folder), MPII)
    assert list(found.overlaps) == ["private / public"] and found.overlaps["private / public"].pictures >= 1
    assert found.to_json()["overlaps"]["private / public"]["pictures"] >= 1


# ---- pre-training --------------------------------------------------------------------------------------------------------


def test_people_that_weights_were_trained_on_are_public_for_good(
    clinic: Path, tiny_config: Build, tmp_path: Path, fresh_home: Path, quick_accounting: None
) -> None:
    """Pre-training without noise and then protecting the same people would promise what was already given away."""
    from halfmask.training.pretrain import pretrain

    folder = f"data.name={clinic}"
    pretrain(tiny_config(folder, "data.splits.public=private", "data.splits.private=test", epochs=0.5, batch=4), tmp_path / "weights")
    with pytest.raises(HalfmaskError, match="all 12 private records"):
        prepare(tiny_config(folder, batch=2), Progress())


def test_people_that_weights_were_chosen_on_are_public_too(clinic: Path, tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    from halfmask.privacy.account import Account
    from halfmask.training.pretrain import pretrain

    splits = ("data.splits.tuning=private:1-3", "data.splits.private=test")
    pretrain(tiny_config(f"data.name={clinic}", *splits, epochs=0.5, batch=4), tmp_path / "weights")
    private = load_datasets(DataConfig(name=str(clinic)), (64, 48)).fingerprints
    assert Account(private).given_up(private).sum() >= 3


def test_nobody_whom_an_account_protects_is_pretrained_on(
    clinic: Path, tiny_config: Build, tmp_path: Path, fresh_home: Path, quick_accounting: None
) -> None:
    from halfmask.training.pretrain import pretrain
    from halfmask.training.running import run_training

    folder = f"data.name={clinic}"
    run_training(tiny_config(folder, batch=2), tmp_path / "run")
    with pytest.raises(HalfmaskError, match="12 of 12 records to pre-train on"):
        pretrain(tiny_config(folder, "data.splits.public=private", "data.splits.private=test", epochs=0.5, batch=4), tmp_path / "weights")
    pretrain(tiny_config(folder, epochs=0.5, batch=4), tmp_path / "others")


@pytest.mark.parametrize("unit", UNITS)
def test_people_who_recur_can_be_left_out_unprotected(
    unit: str, clinic: Path, tiny_config: Build, tmp_path: Path, fresh_home: Path, quick_accounting: None
) -> None:
    """Whether somebody is left out depends on them and on public people alone: whoever stays, stays as they were."""
    from halfmask.training.assumptions import public_assumptions

    def whole(settings: tuple[str, ...], folder: Path) -> Setup:
        return prepare(tiny_config(f"data.name={folder}", *settings, unit=unit, batch=1), Progress())

    folder = changed(clinic, tmp_path / "data", DETOURS["stored again"])
    before, after = whole((), clinic), whole(("data.recurring=leave-out",), folder)
    assert 0 < after.data.recurring == len(before.private) - len(after.private)
    gone = set(before.private.ids.tolist()) - set(after.private.ids.tolist())
    kept = np.flatnonzero(~np.isin(before.private.ids, list(gone)))
    assert np.array_equal(before.private.images[kept], after.private.images) and len(after.units) < len(before.units)
    assert any("not protected" in line and str(after.data.recurring) in line for line in public_assumptions(after))
    assert not fingerprints_of(after.private).in_pictures_of(fingerprints_of(after.data.test)).any()  # type: ignore[arg-type]


def test_what_was_compared_is_kept_by_content(monkeypatch: pytest.MonkeyPatch, fresh_home: Path) -> None:
    from halfmask.data import overlaps

    monkeypatch.setattr(overlaps, "_WORTH_KEEPING", 0)
    private, public = named_prints(["a", "b"]), named_prints(["b", "c"])
    assert overlaps.in_pictures(private, public).tolist() == [False, True]
    assert overlaps.in_pictures(named_prints(["b", "a"]), public).tolist() == [True, False], "other people, or others in this place"
    assert overlaps.in_pictures(private, named_prints(["a", "c"])).tolist() == [True, False]
    monkeypatch.setattr(Fingerprints, "in_pictures_of", lambda *a: pytest.fail("compared again"))
    assert overlaps.in_pictures(private, public).tolist() == [False, True]
