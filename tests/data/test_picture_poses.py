"""Poses by a network: of drawn people they are near the truth, in the picture's own pixels, whatever file the network is in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from halfmask.data.figures_pictures import figures_pictures
from halfmask.data.picture_poses import EMBEDDED, pose_network
from halfmask.data.skeleton import LSP, MPII
from halfmask.errors import HalfmaskError
from halfmask.models.simcc import PoseModel

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def people():
    return figures_pictures("public", 6, size=(128, 96))


def pixels(records) -> list[np.ndarray]:
    return [np.ascontiguousarray(image.transpose(1, 2, 0)) for image in records.private.columns["image"]]


def test_the_embedded_network_finds_drawn_people(people) -> None:
    network = pose_network(EMBEDDED)
    found, truth = network(pixels(people)), people.targets.columns["joints"]
    assert found.shape == (6, 16, 3) and found.dtype == np.float32 and (found[:, :, 2] > 0).all() and "drawn people alone" in network.words
    known = truth[:, :, 2] > 0
    off = np.linalg.norm(found[:, :, :2] - truth[:, :, :2], axis=2)[known]
    assert np.median(off) < 5, "of 128 pixels"
    # In the pixels of a picture of another size and shape, too.
    wider = [np.pad(image, ((0, 0), (40, 0), (0, 0)), mode="edge") for image in pixels(people)[:2]]
    moved = network(wider)[:, :, 0] - truth[:2, :, 0]
    assert abs(np.median(moved[known[:2]]) - 40) < 5


def test_a_run_or_a_weight_file_of_any_shape_is_opened(tmp_path) -> None:
    torch.manual_seed(0)
    model = PoseModel("nano", len(LSP), (128, 64), stage4_stride=1, norm="group", bins_per_pixel=3)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.yaml").write_text("model: {stage4_stride: 1}\n")
    for named in (tmp_path, tmp_path / "model.safetensors"):
        opened = pose_network(str(named)).model
        assert (opened.joints, opened.input_size, opened.bins_per_pixel) == (14, (128, 64), 3) and not opened.training
        images = torch.randint(0, 256, (1, 3, 128, 64), dtype=torch.uint8)
        assert torch.equal(opened(images)[0], model.eval()(images)[0]), "with its stride"
    found = pose_network(str(tmp_path))([np.zeros((60, 40, 3), np.uint8)])
    assert found.shape == (1, len(MPII), 3)
    assert (found[:, :, 2] > 0).all(), "MPII's other joints follow from LSP's"


def test_networks_that_are_none_are_refused(tmp_path) -> None:
    with pytest.raises(HalfmaskError, match="no weight file"):
        pose_network(str(tmp_path))
    save_file({"backbone": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(HalfmaskError, match="holds no pose network"):
        pose_network(str(tmp_path))
    save_file(PoseModel().state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.yaml").write_text("{")
    with pytest.raises(HalfmaskError, match="cannot be read as settings"):
        pose_network(str(tmp_path))


def test_other_weights_have_another_stamp(tmp_path) -> None:
    save_file(PoseModel().state_dict(), tmp_path / "model.safetensors")
    assert pose_network(str(tmp_path)).stamp != pose_network(EMBEDDED).stamp
