"""Networks with what comes before and after them: the same answers as the task gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError
from halfmask.metrics.calibration import Calibration
from halfmask.models.hyperface import HyperFace
from halfmask.models.mvit import MViT
from halfmask.models.posegan import PoseGAN
from halfmask.models.simcc import PoseModel
from halfmask.tasks.action import action_logits
from halfmask.tasks.generate import GenerateTask
from halfmask.tasks.graphs import PoseGraph, action_graph, face_graph, generator_graph, pose_graph
from halfmask.tasks.own import OwnTask
from halfmask.tasks.pose import predict
from halfmask.training.config import build_config, load_recipe

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model() -> PoseModel:
    torch.manual_seed(0)
    return PoseModel("nano", 16, (64, 48)).eval()


@pytest.mark.parametrize("flip_test", [False, True])
def test_poses_are_those_that_are_predicted(model: PoseModel, flip_test: bool) -> None:
    curve = Calibration(2.0, 9.0, 100, 0.5, 0.0)
    graph = pose_graph(model, {"flip" if flip_test else "plain": curve.to_json()}, flip_test)
    given = graph.draw(3, 0)
    assert given["image"].dtype == torch.uint8 and given["image"].shape == (3, 3, 64, 48)
    with torch.no_grad():
        joints, scores = graph.module(given["image"])
    expected, raw = predict(model, given["image"].numpy(), flip_test)
    np.testing.assert_allclose(joints.numpy(), expected)
    np.testing.assert_allclose(scores.numpy(), curve(raw), rtol=1e-4)
    assert graph.facts["flip_test"] is flip_test and graph.facts["skeleton"]["joints"] == MPII.names and "chance" in graph.facts["scores"]


def test_without_a_curve_scores_are_the_networks_own(model: PoseModel) -> None:
    graph = pose_graph(model, {"flip": Calibration(1, 1, 100, 0.5, 0).to_json()}, flip_test=False)
    with torch.no_grad():
        _, scores = graph.module(graph.draw(2, 1)["image"])
    np.testing.assert_allclose(scores.numpy(), predict(model, graph.draw(2, 1)["image"].numpy(), False)[1], rtol=1e-5)
    assert graph.facts["scores"] == "uncalibrated" and graph.facts["calibration"] is None


def test_a_bin_that_is_as_likely_is_as_good_and_any_other_is_not(model: PoseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = PoseGraph(model)
    logits = torch.zeros(1, 16, 96)
    logits[:, :, 10], logits[:, :, 11], logits[:, :, 40] = 5.0, 5.0 - 1e-6, 4.9
    monkeypatch.setattr(graph, "logits", lambda image: (logits, logits))
    image = torch.zeros(1, 3, 64, 48, dtype=torch.uint8)
    for place, good in ((5.0, True), (5.5, True), (20.0, False), (0.0, False)):
        assert bool(graph.undecided(image, torch.full((1, 16, 2), place)).all()) is good, place


def test_faces_in_pixels_chances_and_degrees(tiny_hyperface: None) -> None:
    torch.manual_seed(0)
    network = HyperFace("tiny", 5).eval()
    graph = face_graph(network)
    regions = graph.draw(2, 0)["region"]
    with torch.no_grad():
        found = dict(zip(graph.outputs, graph.module(regions), strict=True))
        said = network(regions)
    side = network.shape.input_size
    torch.testing.assert_close(found["landmarks"], (said["landmarks"] + 0.5) * side - 0.5)
    torch.testing.assert_close(found["detection"], said["detection"].sigmoid())
    torch.testing.assert_close(found["pose"], said["pose"].rad2deg())
    assert found["visibility"].min() >= 0


def test_actions_as_the_task_tells_them(tiny_mvit: None) -> None:
    torch.manual_seed(0)
    network = MViT("tiny", 3).eval()
    graph = action_graph(network, ["a", "b", "c"])
    clips = graph.draw(2, 0)["clip"]
    with torch.no_grad():
        chances = graph.module(clips)
        expected = action_logits(network, {"clip": clips, "tokens": torch.ones(2, *network.grid, dtype=torch.bool)}).softmax(-1)
    torch.testing.assert_close(chances, expected)
    assert graph.facts["classes"] == ["a", "b", "c"]


def test_pictures_as_the_task_draws_them(tiny_posegan: None) -> None:
    torch.manual_seed(0)
    network = PoseGAN("tiny", 16, 32, 32).eval()
    task = GenerateTask(build_config(load_recipe("generate/critic"), {}, ["data.height=32", "data.width=32", "model.weights=null"]))
    graph = generator_graph(network, task.config.model.spread * network.height)
    given = graph.draw(3, 0)
    with torch.no_grad():
        drawn = graph.module(given["joints"], given["noise"]).numpy()
        np.testing.assert_array_equal(drawn, task.generated(network, given["joints"], noise=given["noise"]))


def test_other_tasks_are_refused() -> None:
    with pytest.raises(HalfmaskError, match="cannot be exported"):
        OwnTask.graph(OwnTask.__new__(OwnTask), torch.nn.Linear(1, 1), {})
