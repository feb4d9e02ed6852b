"""A pose network as a recipe asks for it: which weights it starts with, which of them train, and what an untrained one learns first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from halfmask.data.pose_records import PoseRecords
from halfmask.errors import HalfmaskError
from halfmask.models.pose import build_model, choose_parameters, learn_statistics
from halfmask.models.simcc import PoseModel, normalise
from halfmask.training.config import ModelConfig

SIZE = (64, 48)


def nano(seed: int = 0, norm: str = "batch") -> PoseModel:
    torch.manual_seed(seed)
    return PoseModel("nano", 16, SIZE, norm=norm).eval()


# ---- weights -------------------------------------------------------------------------------------------------------------


def test_weights_of_a_whole_model_or_a_backbone(tmp_path: Path) -> None:
    config = ModelConfig(input_size=(64, 48))
    torch.manual_seed(9)
    model = PoseModel("nano", 16, (64, 48))
    save_file(model.state_dict(), tmp_path / "whole.safetensors")
    save_file(model.backbone.state_dict(), tmp_path / "backbone.safetensors")
    whole = build_model(replace(config, weights=str(tmp_path / "whole.safetensors")))
    assert all(torch.equal(t, model.state_dict()[n]) for n, t in whole.state_dict().items())
    part = build_model(replace(config, weights=str(tmp_path / "backbone.safetensors")))
    assert all(torch.equal(t, model.backbone.state_dict()[n]) for n, t in part.backbone.state_dict().items())
    fresh = build_model(replace(config, weights=str(tmp_path / "whole.safetensors")), untrained=True)
    assert not torch.equal(fresh.head.conv.weight, model.head.conv.weight)


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    save_file(PoseModel("nano", 16, (64, 48)).state_dict(), tmp_path / "whole.safetensors")
    path = str(tmp_path / "whole.safetensors")
    for config, joints in (
        (ModelConfig(input_size=(96, 48), weights=path), 16),
        (ModelConfig(input_size=(64, 48), weights=path), 14),
    ):
        with pytest.raises(HalfmaskError, match="another architecture"):
            build_model(config, joints)
    with pytest.raises(HalfmaskError, match="no weight file"):
        build_model(ModelConfig(weights=str(tmp_path / "absent.pt")))
    with pytest.raises(HalfmaskError, match="no embedded weights"):
        build_model(ModelConfig(size="5m", weights="embedded"))


# ---- what trains ---------------------------------------------------------------------------------------------------------


def trainable(strategy: str) -> set[str]:
    model = nano()
    choose_parameters(model, strategy)
    return {name for name, p in model.named_parameters() if p.requires_grad}


EVERYTHING = {name for name, _ in nano().named_parameters()}
UPPER = {name for name in EVERYTHING if name.startswith(("backbone.stages.3.", "head."))}
LAYER_NORMS = {
    f"{name}.{kind}" for name, module in nano().named_modules() if isinstance(module, nn.LayerNorm) for kind in ("weight", "bias")
}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("full", EVERYTHING), ("scratch", EVERYTHING), ("top", UPPER), ("finetune", UPPER | LAYER_NORMS)],
)
def test_trainable_weights(strategy: str, expected: set[str]) -> None:
    assert trainable(strategy) == expected
    assert LAYER_NORMS - UPPER and UPPER < UPPER | LAYER_NORMS < EVERYTHING


def test_a_strategy_undoes_the_one_before_it() -> None:
    model = nano()
    for strategy in ("top", "full", "top"):
        choose_parameters(model, strategy)
    assert {name for name, p in model.named_parameters() if p.requires_grad} == UPPER


# ---- statistics ----------------------------------------------------------------------------------------------------------


def test_statistics_come_from_public_people(tiny_records: PoseRecords) -> None:
    model = nano()
    learn_statistics(model, [torch.from_numpy(np.array(tiny_records.images))])
    first = model.backbone.patch_embed.conv1
    with torch.no_grad():
        seen = first.conv(normalise(torch.from_numpy(np.array(tiny_records.images))))
    assert torch.allclose(first.bn.running_mean, seen.mean((0, 2, 3)), atol=1e-4)
    assert torch.allclose(first.bn.running_var, seen.var((0, 2, 3)), rtol=1e-3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model(torch.from_numpy(np.array(tiny_records.images)))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items()), "learning has ended"


def test_statistics_average_over_batches(random_records: object) -> None:
    """128 people in two batches count alike."""
    records: PoseRecords = random_records(128)  # type: ignore[operator]
    images = records.images.copy()
    images[64:] //= 8
    model = nano()
    learn_statistics(model, torch.from_numpy(images).split(64))
    first = model.backbone.patch_embed.conv1
    with torch.no_grad():
        means = [first.conv(normalise(torch.from_numpy(part))).mean((0, 2, 3)) for part in (images[:64], images[64:])]
    assert torch.allclose(first.bn.running_mean, (means[0] + means[1]) / 2, atol=1e-4)
    assert not torch.allclose(means[0], means[1], atol=0.1)
