"""The tables of the pose paper, each run from its recipe on a tiny tree in the dataset's official format."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import scipy.io
import torch
from safetensors.torch import save_file

from halfmask.data.skeleton import COCO
from halfmask.models.simcc import PoseModel
from halfmask.report.published import rows as published

# Each table with one of its strategies, one of them with all: with every ε and clip norm they would be 234 runs.
TABLES = {
    1: "finetune",
    3: "finetune",
    4: "full",
    5: "scratch",
    6: "finetune,full,scratch",
    7: "finetune",
    8: "scratch",
    9: "full",
    10: "finetune",
}
SMALL = {
    "epochs": 0.3,
    "batch": 4,
    "subspace.samples": 4,
    "subspace.dim": 2,
    # Noise that is given need not be found.
    "noise_multiplier": 4,
    "model.input_size": "[64,48]",
}


def photograph(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    cv2.imwrite(str(path), cv2.resize(coarse, (90, 120), interpolation=cv2.INTER_CUBIC))


def points(joints: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform([20, 20], [60, 100], (joints, 2))


@pytest.fixture(scope="module")
def mpii(tmp_path_factory) -> Path:
    """MPII's JSON, with the head boxes of its validation people."""
    folder = tmp_path_factory.mktemp("tables") / "mpii"
    (folder / "annot").mkdir(parents=True)
    for split, numbers in (("train", range(20)), ("valid", range(20, 24))):
        people = []
        for number in numbers:
            photograph(folder / "images" / f"{number:09d}.jpg", number)
            entry = {"image": f"{number:09d}.jpg", "center": [41.0, 61.0], "scale": 0.5, "joints_vis": [1] * 16}
            people.append(entry | {"joints": points(16, number).tolist()})
        (folder / "annot" / f"{split}.json").write_text(json.dumps(people))
    boxes = np.repeat(np.array([[31.0, 21.0], [43.0, 37.0]])[..., None], 4, -1)
    scipy.io.savemat(folder / "annot" / "mpii_gt_val.mat", {"headboxes_src": boxes})
    return folder


@pytest.fixture(scope="module")
def humanart(tmp_path_factory) -> Path:
    """Human-Art's JSON, which is COCO's with 21 further keypoints, its images by scene."""
    folder = tmp_path_factory.mktemp("tables") / "HumanArt"
    (folder / "annotations").mkdir(parents=True)
    for split, numbers in (("training", range(1, 21)), ("validation", range(21, 25))):
        images, people = [], []
        for number in numbers:
            name = f"HumanArt/images/2D_virtual_human/digital_art/{number:012d}.jpg"
            photograph(folder / name.removeprefix("HumanArt/"), 100 + number)
            images.append({"id": number, "file_name": name, "height": 120, "width": 90})
            keypoints = np.column_stack([points(17, number), np.full(17, 2)]).ravel().tolist()
            person = {"id": number, "image_id": number, "category_id": 1, "iscrowd": 0, "num_keypoints": 17, "area": 3000.0}
            people.append(person | {"bbox": [15.0, 15.0, 50.0, 90.0], "keypoints": keypoints, "keypoints_21": [0] * 63})
        categories = [{"id": 1, "name": "person", "keypoints": list(COCO.names)}]
        body = {"images": images, "annotations": people, "categories": categories}
        (folder / "annotations" / f"{split}_humanart.json").write_text(json.dumps(body))
    return folder


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Path:
    """A network that was trained on nobody, for 16 joints: of Human-Art's 17 it knows those that both have."""
    path = tmp_path_factory.mktemp("start") / "start.safetensors"
    torch.manual_seed(0)
    save_file(PoseModel("nano", 16, (64, 48)).state_dict(), path)
    return path


@pytest.mark.parametrize("number", TABLES)
def test_each_table_runs_and_is_printed_beside_the_published_one(halfmask, mpii, humanart, start, tmp_path, monkeypatch, number) -> None:
    monkeypatch.setenv("HALFMASK_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    folder, file = (mpii, "pose_mpii.csv") if number < 7 else (humanart, "pose_humanart.csv")
    settings = [part for name, value in (SMALL | {"model.weights": start}).items() for part in ("--set", f"{name}={value}")]
    chosen = ("--strategies", TABLES[number], *(() if number == 1 else ("--epsilons", "0.8", "--clips", "0.01")))
    result = halfmask("compare", f"pose/paper/table{number}", "--data", folder, *chosen, *settings, "--overlays", 0)
    assert result.code == 0, result.err
    body = json.loads((tmp_path / f"runs/pose-paper-table{number}/table.json").read_text())
    cells = [row for row in published(file) if row["table"] == str(number) and row["strategy"] in TABLES[number].split(",")]
    printed = [row for row in cells if (row["epsilon"], row["clip_norm"]) in (("0.8", "0.01"), ("", ""))]
    assert len(body["rows"]) == len(printed) and body["title"].startswith(f"Table {number}: ")
    for row, theirs in zip(body["rows"], printed, strict=True):
        assert row["method"] == theirs["method"]
        (cells,) = row["published"].values()
        assert {name: f"{value:g}" for name, value in cells.items()} == {name: f"{float(theirs[name]):g}" for name in body["columns"]}
        # Nobody in the tiny Human-Art is of COCO's large size.
        assert row["ours"].keys() == body["columns"].keys() - ({"ap_l", "ar_l"} if number > 6 else set())
        assert all(0 <= cell["mean"] <= 100 for cell in row["ours"].values())
        assert theirs["mean" if number < 7 else "ap"] in result.out
    assert "theirs: Sivangi" in result.out and body["rows"][0]["block"] in result.out
    runs = sorted((tmp_path / f"runs/pose-paper-table{number}").glob("*/runs/*/certificate.json"))
    promised = [json.loads(path.read_text())["epsilon"]["zero-out"] for path in runs]
    assert len(runs) == len(printed) and all(value in (0, "infinity") if number == 1 else 0 < value <= 0.8 for value in promised)
    assert ("ends the account" in result.err) is (number == 1)
