from __future__ import annotations

import json

import cv2
import numpy as np
import pytest

from halfmask.data.export import export_figures
from halfmask.data.figures import World
from halfmask.data.folder import folder_records
from halfmask.errors import HalfmaskError

COUNTS = {"private": 9, "public": 5, "test": 3}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "people"
    told = []
    pictures = export_figures(folder, COUNTS, seed=2, report=lambda *line: told.append(line))
    return folder, pictures, told


def test_counts_people_and_shares_pictures(exported) -> None:
    folder, pictures, told = exported
    records = json.loads((folder / "annotations.json").read_text())["records"]
    assert {split: sum(r["split"] == split for r in records) for split in COUNTS} == COUNTS
    named = {record["image"] for record in records}
    assert len(named) == pictures == len(list((folder / "images").rglob("*.jpg")))
    assert told[-1] == ("drawing test people", 3, 3)


def test_people_of_one_picture_share_its_file(tmp_path) -> None:
    world = World("private", seed=0)
    crowd = next(image for image in range(64) if world.people(image) > 1)
    export_figures(tmp_path, {"private": sum(world.people(image) for image in range(crowd + 1))})
    records = json.loads((tmp_path / "annotations.json").read_text())["records"]
    names = [record["image"] for record in records]
    assert max(names.count(name) for name in names) > 1
    private = folder_records(tmp_path)["private"]
    assert len(set(private.image_ids.tolist())) == len(set(names)) < len(names)


def test_annotations_lie_on_the_people(exported) -> None:
    folder, _, _ = exported
    records = json.loads((folder / "annotations.json").read_text())["records"]
    picture, figures = World("private", seed=2).picture(0)
    read = cv2.cvtColor(cv2.imread(str(folder / records[0]["image"])), cv2.COLOR_BGR2RGB)
    assert np.abs(read.astype(int) - picture.astype(int)).mean() < 8, "only JPEG lies between them"
    np.testing.assert_allclose(np.array(records[0]["joints"])[:, :2], figures[0].joints, atol=0.01)
    for record in records:
        x, y, width, height = record["box"]
        seen = np.array([joint[:2] for joint in record["joints"] if joint[2] > 0])
        assert ((seen >= [x - 0.02, y - 0.02]) & (seen <= [x + width + 0.02, y + height + 0.02])).all()


def test_reads_back_as_records(exported) -> None:
    parts = folder_records(exported[0], (128, 96))
    assert {split: len(part) for split, part in parts.items()} == COUNTS
    for part in parts.values():
        assert part.subjects is not None and part.labelled.sum(1).min() >= 4
        heads = part.head_boxes[:, 2:] - part.head_boxes[:, :2]
        assert (heads > 1).all()
    together = np.concatenate([part.subjects for part in parts.values()])
    assert len(set(together.tolist())) == sum(len(set(part.subjects.tolist())) for part in parts.values()), "nobody is in two splits"


def test_the_same_seed_gives_the_same_dataset(exported, tmp_path) -> None:
    export_figures(tmp_path, COUNTS, seed=2)
    assert (tmp_path / "annotations.json").read_text() == (exported[0] / "annotations.json").read_text()


def test_refusals(exported, tmp_path) -> None:
    with pytest.raises(HalfmaskError, match="already holds a dataset"):
        export_figures(exported[0], COUNTS)
    with pytest.raises(HalfmaskError, match="nothing to export"):
        export_figures(tmp_path, {"private": 0})
    with pytest.raises(HalfmaskError, match="0 or more"):
        export_figures(tmp_path, {"private": -1})
