"""The face network: its shapes, what trains, and that the engine is exact and fast on it."""

from __future__ import annotations

import pytest
import torch

from halfmask.gradients.engine import ClippingEngine
from halfmask.models.hyperface import SHAPES, SUBTASKS, HyperFace, parts_by_depth


def test_both_sizes_have_the_shape_of_the_paper() -> None:
    with torch.device("meta"):
        paper = HyperFace("paper")
    assert paper.shape.input_size == 227 and paper.vector.out_features == 3072
    assert [head[0].out_features for head in paper.heads.values()] == [512] * 5
    # The first pooling (27×27×96) and the third convolution (13×13×384) come to the size of the last pooling, 6×6×256.
    assert paper.vector.in_features == 6 * 6 * 192 and paper.mix.in_channels == 3 * 256
    pixels = torch.zeros(2, 3, 227, 227, dtype=torch.uint8, device="meta")
    assert {name: tuple(said.shape) for name, said in paper(pixels).items()} == {
        "detection": (2,),
        "landmarks": (2, 21, 2),
        "visibility": (2, 21),
        "pose": (2, 3),
        "attribute": (2,),
    }
    small = HyperFace("small")
    assert small.lower(torch.zeros(1, 3, 64, 64, dtype=torch.uint8)).shape == (1, small.vector.in_features)
    assert not any("norm" in type(module).__name__.lower() for module in small.modules())


def test_heads_are_those_asked_for() -> None:
    model = HyperFace("small", landmarks=68, subtasks=("detection", "landmarks"))
    said = model(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))
    assert set(said) == {"detection", "landmarks"} and said["landmarks"].shape == (1, 68, 2)
    assert model.log_variances.shape == (2,)


def test_what_lies_below_can_be_computed_once() -> None:
    model = HyperFace("small").eval()
    pixels = torch.randint(0, 256, (3, 3, 64, 64), dtype=torch.uint8)
    whole, parts = model(pixels), model.upper(model.lower(pixels))
    assert all(torch.equal(whole[name], parts[name]) for name in SUBTASKS)
    top = {id(one) for one in parts_by_depth(model)["top"]}
    assert id(model.log_variances) in top and id(model.conv5.weight) not in top
    assert top < {id(one) for one in parts_by_depth(model)["finetune"]}


def test_a_log_variance_has_a_say_within_bounds() -> None:
    model = HyperFace("small")
    with torch.no_grad():
        model.log_variances.fill_(1e4)
    precisions = model.precisions().detach()
    assert bool(torch.isfinite(precisions).all()) and float(precisions.min()) > 0


@pytest.mark.parametrize("shape", ["small"])
def test_the_engine_is_exact_and_fast_on_it(shape: str) -> None:
    torch.manual_seed(0)
    model = HyperFace(shape, landmarks=4).double().eval()
    with torch.no_grad():
        model.log_variances.uniform_(-0.5, 0.5)
    side = SHAPES[shape].input_size
    batch = {"image": torch.randint(0, 256, (4, 3, side, side), dtype=torch.uint8), "goal": torch.rand(4, 4, 2, dtype=torch.float64)}

    def loss(network: torch.nn.Module, some: dict[str, torch.Tensor]) -> torch.Tensor:
        said = network(some["image"])
        errors = (said["landmarks"] - some["goal"]).square().sum((1, 2)) + said["detection"] ** 2 + said["pose"].square().sum(1)
        errors = errors + said["visibility"].square().sum(1) + said["attribute"] ** 2
        return errors * network.precisions()[1] + network.bounded_log_variances().sum()

    engine = ClippingEngine(model)
    expected = engine.per_record_gradients(loss, batch)
    clip = float(expected.norm(dim=1).median())
    summed = (expected * (clip / expected.norm(dim=1)).clamp(max=1)[:, None]).sum(0)
    found = engine.clipped_sum(loss, batch, clip).flat()
    assert float((found - summed).abs().max() / summed.abs().max()) < 1e-9
    assert engine.path == "fast"
