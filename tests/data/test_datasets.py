"""Parts of datasets on disk: what each opens, whom it has, and how two datasets go together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import halfmask.data.crops as crops
from halfmask.data.datasets import DataConfig, load_datasets, load_public, load_test
from halfmask.data.export import export_figures
from halfmask.data.people import MISSING
from halfmask.data.skeleton import COCO, LSP, MPII
from halfmask.data.splits import SplitsConfig
from halfmask.data.viewing import with_view
from halfmask.errors import HalfmaskError
from halfmask.training.config import build_config
from halfmask.views import make_view

SIZE = (64, 48)
PROTOCOL = SplitsConfig(private="4-6", public="3", tuning="1-2", test="7-8")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The images that were opened, as they are."""
    names: list[str] = []
    real = crops.read_image
    monkeypatch.setattr(crops, "read_image", lambda path: names.append(path.name) or real(path))
    return names


@pytest.fixture
def lspet(lsp_folder: Callable[..., Path], fresh_home: Path) -> DataConfig:
    return DataConfig(name=str(lsp_folder(8)), splits=PROTOCOL)


def test_a_protocol_of_ranges(lspet) -> None:
    data = load_datasets(lspet, SIZE)
    assert data.public is not None and data.test is not None
    assert [part.image_ids.tolist() for part in (data.private, data.public, data.test)] == [[4, 5, 6], [3], [7, 8]]
    assert data.private.skeleton is LSP and data.private.joints.shape == (3, 14, 2) and data.left_out == {}
    assert len({part.key for part in (data.private, data.public, data.test)}) == 3
    with pytest.raises(HalfmaskError, match="needs subject ids"):
        data.private.unit_ids("subject")


def test_judging_and_pretraining_open_no_private_image(lspet, opened) -> None:
    test = load_test(lspet, SIZE)
    assert sorted(opened) == ["im00007.jpg", "im00008.jpg"] and len(test) == 2
    opened.clear()
    public, tuning = load_public(lspet, SIZE)
    assert tuning is not None and sorted(opened) == ["im00001.jpg", "im00002.jpg", "im00003.jpg"]
    assert public.image_ids.tolist() == [3] and tuning.image_ids.tolist() == [1, 2]


def test_crops_are_made_once_and_again_when_a_file_changes(lspet, opened, photo) -> None:
    before = load_test(lspet, SIZE)
    opened.clear()
    assert load_test(lspet, SIZE).key == before.key and not opened
    photo(Path(lspet.name) / "images/im00007.jpg", seed=99)
    after = load_test(lspet, SIZE)
    assert after.key != before.key and (after.images[0] != before.images[0]).any()
    np.testing.assert_array_equal(after.images[1], before.images[1])


def test_a_bad_file_is_refused_or_its_people_are_no_record(lspet) -> None:
    (Path(lspet.name) / "images/im00005.jpg").unlink()
    with pytest.raises(HalfmaskError, match=f"an annotation names {MISSING}"):
        load_datasets(lspet, SIZE)
    for _ in range(2):  # the second time from the cache
        data = load_datasets(replace(lspet, on_bad="skip"), SIZE)
        assert data.private.image_ids.tolist() == [4, 6] and len(data.private) == len(data.private.images) == 2
        assert data.left_out == {"private": {MISSING: 1}}
        (remark,) = data.remarks()
        assert f"private: left out 1 × {MISSING}" in remark and "im00005" not in remark
    assert len(load_test(lspet, SIZE)) == 2, "what is wrong with private files is nothing to judging"


def test_a_dataset_without_splits_asks_for_them(lspet) -> None:
    undivided = replace(lspet, splits=SplitsConfig())
    for load in (load_datasets, load_test, load_public):
        with pytest.raises(HalfmaskError, match=r"divided into all \(8 images\): say who is who with data\.splits"):
            load(undivided, SIZE)


def test_official_splits_and_another_datasets_people(coco_folder, lspet) -> None:
    config = DataConfig(name=str(coco_folder()), public_name=lspet.name, splits=SplitsConfig(public="1-5"))
    data = load_datasets(config, SIZE)
    assert data.public is not None and data.test is not None
    assert (len(data.private), len(data.public), len(data.test)) == (4, 5, 2)
    assert data.public.skeleton is COCO and data.public.labelled[:, COCO.index("left_knee")].all()
    assert not data.public.labelled[:, COCO.index("nose")].any()
    assert not set(data.public.image_ids.tolist()) & set(data.private.image_ids.tolist())
    assert data.private.unit_ids("image").tolist() == [11, 11, 12, 13]


def test_joints_as_another_dataset_has_them(lspet) -> None:
    test = load_test(replace(lspet, skeleton="mpii"), SIZE)
    assert test.skeleton is MPII and test.joints.shape == (2, 16, 2) and test.unscored == ("pelvis", "thorax")
    with pytest.raises(HalfmaskError, match="unknown skeleton 'mpi'"):
        load_test(replace(lspet, skeleton="mpi"), SIZE)


def test_detected_boxes_are_for_the_test_people_alone(coco_folder) -> None:
    folder = coco_folder()
    (folder / "boxes.json").write_text('[{"image_id": 21, "bbox": [15, 15, 50, 90], "score": 0.5}]')
    data = load_datasets(DataConfig(name=str(folder), boxes="boxes.json"), SIZE)
    assert data.test is not None and data.test.coco is not None
    assert len(data.private) == 4 and len(data.test) == 1
    assert data.test.coco.detected and data.test.coco.images == (21, 22) and len(data.test.coco.annotations) == 2


def test_settings_reach_the_reader_from_a_recipe(lspet) -> None:
    config = build_config({"data": {"name": lspet.name}}, {}, ["data.splits.private=4-6", "data.splits.test=7-8", "data.on_bad=skip"])
    assert config.data.splits == SplitsConfig(private="4-6", test="7-8") and config.data.on_bad == "skip"
    assert build_config(__import__("yaml").safe_load(config.to_yaml()), {}).data == config.data


def test_views_are_those_of_each_record(lspet) -> None:
    view = make_view("blur", {"kernel": 5, "sigma": 2.0})
    test = with_view(load_test(lspet, SIZE), view)
    assert test.views is not None
    for image, seen in zip(test.images, test.views, strict=True):
        np.testing.assert_array_equal(seen, view(np.ascontiguousarray(image.transpose(1, 2, 0))).transpose(2, 0, 1))


def test_two_datasets_that_number_from_one_are_not_confused(tmp_path) -> None:
    """Image 0 of the one is not image 0 of the other, and neither are their subjects: who is who is for fingerprints to tell."""
    for name, seed in (("mine", 1), ("theirs", 2)):
        export_figures(tmp_path / name, {"private": 4, "public": 4}, seed=seed)
    data = load_datasets(DataConfig(name=str(tmp_path / "mine"), public_name=str(tmp_path / "theirs")), (64, 48))
    assert data.public is not None and data.private.subjects is not None and data.public.subjects is None
    assert not np.intersect1d(data.private.image_ids, data.public.image_ids).size
    assert data.public.prints is not None and data.public.prints.subjects.any(1).all()
