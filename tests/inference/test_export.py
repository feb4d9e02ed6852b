"""What is exported answers as torch does, or is not there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import onnx
from halfmask.data.images import read_image
from halfmask.errors import HalfmaskError
from halfmask.inference import export as exporting
from halfmask.inference.export import compare, export
from halfmask.inference.onnx_file import FACTS, open_onnx, open_session
from halfmask.inference.poses import coco_body, place_people
from halfmask.inference.torch_pose import pose_of_run
from halfmask.models.mvit import MViT
from halfmask.tasks.graphs import action_graph, pose_graph
from halfmask.training.runs import open_run

pytestmark = pytest.mark.usefixtures("one_thread")


def notes_of(path: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(str(path)).metadata_props}


def test_one_file_with_everything_in_it(exported: Path, pose_run: Path) -> None:
    notes = notes_of(exported)
    facts, certificate = json.loads(notes[FACTS]), json.loads(notes["certificate"])
    assert facts["task"] == "pose" and len(facts["skeleton"]["joints"]) == 16 and facts["calibration"]["joints"] > 50
    assert certificate == json.loads((pose_run / "certificate.json").read_text())
    assert notes["model_card"] == (pose_run / "model_card.md").read_text()
    session = open_session(exported, threads=1)
    (given,) = session.get_inputs()
    assert given.type == "tensor(uint8)" and given.shape[1:] == [3, 64, 48] and isinstance(given.shape[0], str), "batches of any size"
    assert sorted(path.name for path in exported.parent.iterdir()) == ["model.onnx"], "weights inside, and no draft"


def test_it_answers_as_torch_does_whatever_the_batch(exported: Path, pose_run: Path) -> None:
    network, trained = open_onnx(exported, threads=1), open_run(pose_run, "cpu")
    graph = pose_graph(trained.model, json.loads((pose_run / "calibration.json").read_text()), False)
    for count in (1, 3, 40):
        crops = graph.draw(count, 7)["image"]
        with torch.no_grad():
            joints, scores = (part.numpy() for part in graph.module(crops))
        found = network(crops.numpy())
        assert found[0].shape == (count, 16, 2)
        np.testing.assert_allclose(found[1], scores, atol=1e-4)
        assert (np.abs(found[0] - joints) <= 1e-3).mean() > 0.99


def test_it_is_used_without_torch(exported: Path, pose_run: Path, tmp_path: Path, without_torch: Callable[..., Any]) -> None:
    pixels = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 255, (120, 90, 3)).astype(np.uint8), (0, 0), 5)
    cv2.imwrite(str(tmp_path / "photo.png"), pixels)
    (tmp_path / "boxes.csv").write_text("file,x,y,w,h\nphoto.png,10,10,60,100\nphoto.png,5,5,40,80\n")
    done = without_torch("predict", exported, tmp_path / "photo.png", "--boxes", tmp_path / "boxes.csv", "--out", tmp_path / "out")
    assert "done without torch" in done.stdout, done.stderr
    found = json.loads((tmp_path / "out/photo.json").read_text())["annotations"]
    network = pose_of_run(open_run(pose_run, "cpu"), flip_test=False)
    people = place_people(network, read_image(tmp_path / "photo.png"), [(10, 10, 60, 100), (5, 5, 40, 80)])
    expected = coco_body("photo.png", (90, 120), people, network)["annotations"]
    for one, other in zip(found, expected, strict=True):
        assert np.isclose(one["keypoints"], other["keypoints"], atol=0.02).mean() > 0.95, "and says what torch says"


def test_where_the_answers_differ_nothing_is_written(
    exported: Path, pose_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of other weights stands in for a runtime that goes wrong."""
    trained = open_run(pose_run, "cpu")
    with torch.no_grad():
        trained.model.head.conv.weight.mul_(-1)
    with pytest.raises(HalfmaskError, match=r"does not answer as torch does.*Nothing was written"):
        compare(pose_graph(trained.model, {}, False), exported)

    def other(graph: object, path: Path, notes: object) -> None:
        body = onnx.load(str(exported))
        largest = max(body.graph.initializer, key=lambda tensor: len(tensor.raw_data))
        largest.raw_data = bytes(len(largest.raw_data))
        onnx.save(body, str(path))

    monkeypatch.setattr(exporting, "_write", other)
    with pytest.raises(HalfmaskError, match="does not answer as torch does"):
        export(pose_run, tmp_path / "new" / "model.onnx")
    assert not (tmp_path / "new").exists()


def test_what_is_there_is_not_overwritten(exported: Path, pose_run: Path) -> None:
    before = exported.read_bytes()
    with pytest.raises(HalfmaskError, match=r"exists already.*--overwrite"):
        export(pose_run, exported)
    assert exported.read_bytes() == before


def test_what_cannot_be_exported_is_refused(pose_run: Path, tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match=r"ending in \.onnx"):
        export(pose_run, tmp_path / "model.pt")
    with pytest.raises(HalfmaskError, match=r"format.*torchscript"):
        export(pose_run, tmp_path / "model.onnx", "torchscript")
    other = Path(shutil.copytree(pose_run, tmp_path / "other"))
    state = load_file(other / "model.safetensors")
    state["head.conv.bias"] += 1
    save_file(state, other / "model.safetensors")
    with pytest.raises(HalfmaskError, match="about other weights"):
        export(other, tmp_path / "model.onnx")
    state["head.conv.bias"] *= float("nan")
    save_file(state, other / "model.safetensors")
    with pytest.raises(HalfmaskError, match="its training diverged"):
        export(other, tmp_path / "model.onnx")
    unfinished = Path(shutil.copytree(pose_run, tmp_path / "unfinished"))
    (unfinished / "certificate.json").unlink()
    with pytest.raises(HalfmaskError, match="is unfinished"):
        export(unfinished, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_without_the_packages_it_says_what_to_install(pose_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(HalfmaskError, match=r"onnxscript is not installed: pip install 'halfmask\[onnx\]'"):
        export(pose_run, tmp_path / "model.onnx")


def test_a_network_for_video(tiny_mvit: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pooled attention with relative positions, and batches of another size than the graph was traced with."""
    torch.manual_seed(0)
    monkeypatch.setattr(exporting, "_TRIED", 10)
    monkeypatch.setattr(exporting, "_AT_ONCE", 5)
    network = MViT("tiny", 3).eval()
    for parameter in network.parameters():
        parameter.requires_grad = False
    graph = action_graph(network, ["a", "b", "c"])
    exporting._write(graph, tmp_path / "model.onnx", {FACTS: json.dumps({"task": "action"})})
    worst, undecided = compare(graph, tmp_path / "model.onnx")
    assert worst["chances"] < 1e-5 and undecided == 0
    with pytest.raises(HalfmaskError, match="a network of the task 'action'"):
        open_onnx(tmp_path / "model.onnx")
