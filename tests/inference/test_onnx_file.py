"""Exported files are used where there is no torch, and nothing else passes for one. The file here is made by hand, and says little."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import onnx
from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError
from halfmask.inference.onnx_file import FACTS, open_onnx
from onnx import TensorProto, helper, numpy_helper

SKELETON = {"name": "mpii", "joints": MPII.names, "flip_pairs": MPII.flip_pairs, "bones": MPII.edges}
POSE = {"task": "pose", "run": "poses", "input_size": [64, 48], "skeleton": SKELETON, "calibration": {"slope": 1}, "flip_test": False}


def made(path: Path, facts: dict[str, Any] | None) -> Path:
    """All joints on a diagonal, with a score of 0.1, whatever is shown."""
    nodes = [
        helper.make_node("Cast", ["image"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["pixels", "colours"], ["bright"], keepdims=0),
        helper.make_node("Slice", ["bright", "from", "to", "of"], ["corner"]),
        helper.make_node("Mul", ["corner", "nothing"], ["zeros"]),
        helper.make_node("Add", ["zeros", "places"], ["joints"]),
        helper.make_node("ReduceMean", ["zeros", "axes"], ["flat"], keepdims=0),
        helper.make_node("Add", ["flat", "low"], ["scores"]),
    ]
    constants = {
        "colours": np.array([1], np.int64),
        "from": np.zeros(2, np.int64),
        "to": np.array([16, 2], np.int64),
        "of": np.array([1, 2], np.int64),
        "nothing": np.zeros(1, np.float32),
        "places": np.repeat(np.linspace(5, 40, 16, dtype=np.float32)[:, None], 2, 1),
        "axes": np.array([2], np.int64),
        "low": np.full(1, 0.1, np.float32),
    }
    given = helper.make_tensor_value_info("image", TensorProto.UINT8, ["batch", 3, 64, 48])
    told = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("joints", "scores")]
    graph = helper.make_graph(nodes, "made", [given], told, [numpy_helper.from_array(value, name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    if facts is not None:
        model.metadata_props.add(key=FACTS, value=json.dumps(facts))
    onnx.save(model, str(path))
    return path


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    cv2.imwrite(str(tmp_path / "photo.png"), np.full((120, 90, 3), 90, np.uint8))
    return tmp_path / "photo.png"


def test_predicting_needs_no_torch(photo: Path, tmp_path: Path, without_torch: Callable[..., Any]) -> None:
    model = made(tmp_path / "model.onnx", POSE)
    done = without_torch("predict", model, photo, "--out", tmp_path / "out", "--people", "whole", "--json")
    assert "done without torch" in done.stdout, done.stderr
    assert "unsure of everybody" in done.stderr
    (one,) = json.loads((tmp_path / "out/photo.json").read_text())["annotations"]
    assert (
        one["score"] == pytest.approx(0.1)
        and one["keypoints"][2::3] == [1] * 16
        and cv2.imread(str(tmp_path / "out/photo.png")) is not None
    )
    found = without_torch("predict", model, photo, "--out", tmp_path / "found")
    assert "done without torch" in found.stdout and "nobody was found" in found.stderr, "nor does the detector"


def test_the_block_does_block(photo: Path, tmp_path: Path, without_torch: Callable[..., Any]) -> None:
    done = without_torch("predict", tmp_path, photo, "--out", tmp_path / "out")
    assert "done without torch" not in done.stdout and "there is no torch here" in done.stderr


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    network = open_onnx(made(tmp_path / "model.onnx", POSE), threads=1)
    assert network.skeleton.names == MPII.names and network.skeleton.edges == MPII.edges and network.input_size == (64, 48)
    assert network.calibrated and not network.flip_test and network.words == "'poses' as ONNX" and network.certificate is None
    joints, scores = network(np.zeros((5, 3, 64, 48), np.uint8))
    assert joints.shape == (5, 16, 2) and scores.shape == (5, 16)
    with pytest.raises(HalfmaskError, match="onnxruntime cannot run"):
        network(np.zeros((5, 3, 32, 48), np.uint8))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (None, "does not say what it is"),
        ({}, "does not say what it is"),
        ({"task": "pose"}, "does not say what it is"),
        ({"task": "face"}, "a network of the task 'face'"),
    ],
)
def test_other_networks_are_refused(tmp_path: Path, facts: dict[str, Any] | None, words: str) -> None:
    with pytest.raises(HalfmaskError, match=words):
        open_onnx(made(tmp_path / "model.onnx", facts))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match="no model at"):
        open_onnx(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(HalfmaskError, match="cannot be opened by onnxruntime"):
        open_onnx(tmp_path / "text.onnx")
