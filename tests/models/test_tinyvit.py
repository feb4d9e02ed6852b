"""TinyViT: the published numbers, the public statistics, and records that never meet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from halfmask.errors import HalfmaskError
from halfmask.models.checkpoints import load_into, read_state, weights_digest
from halfmask.models.tinyvit import SHAPES, PublicBatchNorm2d, TinyViT, learning_statistics

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
WEIGHTS = SHARED / "weights" / "tinyvit5m_mobilesam.safetensors"
REFERENCE = SHARED / "fixtures" / "tinyvit5m_reference.npz"


def nano(**options: object) -> TinyViT:
    torch.manual_seed(0)
    return TinyViT("nano", **options)  # type: ignore[arg-type]


def statistics(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers() if "running" in name}


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


@pytest.mark.skipif(not (WEIGHTS.is_file() and REFERENCE.is_file()), reason="the public checkpoint is not at hand")
def test_equals_the_reference_implementation() -> None:
    reference = np.load(REFERENCE)
    image = torch.from_numpy(reference["input"])
    for stride, names in (
        (2, ("stage1", "stage2", "stage3", "stage4")),
        (1, (None, None, None, "stage4_stride1")),
    ):
        model = TinyViT("5m", stage4_stride=stride).eval()
        model.load_weights(WEIGHTS)
        with torch.no_grad():
            outputs = model.stages_forward(image)
        for output, name in zip(outputs, names, strict=True):
            if name:
                expected = torch.from_numpy(reference[name])
                assert float((output - expected).abs().max() / expected.abs().max()) < 1e-4, name


# Backbones without their classifier; published models of 5.4, 11 and 21 million include it.
@pytest.mark.parametrize(("size", "millions"), [("nano", 0.346), ("5m", 5.07), ("11m", 10.55), ("21m", 20.62)])
def test_parameter_counts(size: str, millions: float) -> None:
    with torch.device("meta"):
        model = TinyViT(size)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.01 if size != "nano" else 5e-4)


@pytest.mark.parametrize("size", [(256, 192), (64, 48), (70, 50), (33, 97)])
@pytest.mark.parametrize("stride", [1, 2])
def test_any_input_size_and_the_strides_of_the_stages(size: tuple[int, int], stride: int) -> None:
    model = nano(stage4_stride=stride).eval()
    with torch.no_grad():
        outputs = model.stages_forward(torch.randn(2, 3, *size))
    for output, width, factor in zip(outputs, SHAPES["nano"].widths, (4, 8, 16, 16 * stride), strict=True):
        assert output.shape == (2, width, -(-size[0] // factor), -(-size[1] // factor))
        assert torch.isfinite(output).all()


def test_lower_and_upper_make_the_whole() -> None:
    model = nano().eval()
    image = torch.randn(2, 3, 64, 48)
    with torch.no_grad():
        stages = model.stages_forward(image)
        assert torch.equal(model.lower(image), stages[2])
        assert torch.equal(model.upper(stages[2]), stages[3])
        assert torch.equal(model(image), stages[3])


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("training", [False, True])
def test_records_never_mix(norm: str, training: bool) -> None:
    model = nano(norm=norm).train(training)
    first, second = torch.randn(3, 3, 64, 48), 50 * torch.randn(3, 3, 64, 48)
    second[1] = first[1]
    with torch.no_grad():
        one, other = model(first), model(second)
        alone = model(first[1:2])[0]
    assert difference(one[1], other[1]) < 1e-4 and difference(one[1], alone) < 1e-4
    assert difference(one[0], other[0]) > 0.1


def test_records_do_mix_while_statistics_are_learnt() -> None:
    """The check above can fail."""
    model = nano()
    first, second = torch.randn(3, 3, 64, 48), 50 * torch.randn(3, 3, 64, 48)
    second[1] = first[1]
    with torch.no_grad(), learning_statistics(model):
        assert difference(model(first)[1], model(second)[1]) > 0.1


def test_training_mode_leaves_the_statistics_alone() -> None:
    model = nano().train()
    before = statistics(model)
    assert before
    model(torch.randn(4, 3, 64, 48)).sum().backward()
    after = statistics(model)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_statistics_are_learnt_only_when_asked() -> None:
    model = nano()
    before = statistics(model)
    with learning_statistics(model), torch.no_grad():
        model(torch.randn(4, 3, 64, 48))
    learnt = statistics(model)
    assert all(not torch.equal(before[name], learnt[name]) for name in before)
    with torch.no_grad():
        model(torch.randn(4, 3, 64, 48))
    assert all(torch.equal(learnt[name], tensor) for name, tensor in statistics(model).items())


def test_learning_ends_even_by_an_error() -> None:
    model = nano()
    with pytest.raises(RuntimeError), learning_statistics(model):
        raise RuntimeError
    assert not any(module.sees_batches for module in model.modules() if isinstance(module, PublicBatchNorm2d))


def test_the_momentum_is_used() -> None:
    norm = PublicBatchNorm2d(2)
    images = torch.randn(8, 2, 4, 4) * 3 + 5
    with learning_statistics(norm, momentum=1.0):
        norm(images)
    assert torch.allclose(norm.running_mean, images.mean((0, 2, 3)), atol=1e-5)
    assert torch.allclose(norm.running_var, images.var((0, 2, 3)), atol=1e-4)
    rest = norm(images)
    assert torch.allclose(rest.mean((0, 2, 3)), torch.zeros(2), atol=1e-5)


def test_group_norm_has_no_statistics() -> None:
    model = nano(norm="group")
    assert not statistics(model)
    assert not any(isinstance(module, PublicBatchNorm2d) for module in model.modules())
    assert any(isinstance(module, nn.GroupNorm) for module in model.modules())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": "nanu"}, "did you mean 'nano'"),
        ({"size": "nano", "stage4_stride": 3}, "expected 1 or 2"),
        ({"size": "nano", "norm": "layer"}, "normalisation"),
    ],
)
def test_models_that_do_not_exist_are_refused(options: dict, words: str) -> None:
    with pytest.raises(HalfmaskError, match=words):
        TinyViT(**options)


# ---- checkpoints ---------------------------------------------------------------------------------------------------------


def other_weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    model = TinyViT("nano")
    return {name: torch.randn_like(tensor) for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("suffix", ["safetensors", "pt", "pth"])
@pytest.mark.parametrize("prefix", ["", "module.", "backbone."])
def test_weights_load_from_files(tmp_path: Path, suffix: str, prefix: str) -> None:
    state = other_weights()
    path = tmp_path / f"weights.{suffix}"
    saved = {prefix + name: tensor for name, tensor in state.items()}
    if suffix == "safetensors":
        save_file(saved, path)
    else:
        torch.save({"model": saved, "epoch": 3} if suffix == "pth" else saved, path)
    model = nano()
    model.load_weights(path)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_classifiers_and_counters_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    extra = {"head.fc.weight": torch.ones(3), "patch_embed.conv1.bn.num_batches_tracked": torch.tensor(3)}
    save_file(other_weights() | extra, path)
    nano().load_weights(path)


def _without_one(state: dict) -> dict:
    return {name: tensor for name, tensor in state.items() if name != "stages.3.downsample.conv1.bn.bias"}


@pytest.mark.parametrize(
    "change",
    [
        _without_one,
        lambda state: state | {"stages.9.weight": torch.ones(2)},
        lambda state: state | {"patch_embed.conv1.bn.bias": torch.ones(99)},
        lambda state: TinyViT("5m").state_dict(),
    ],
    ids=["missing", "unknown", "shape", "another size"],
)
def test_another_architecture_is_refused_and_nothing_is_loaded(change: object, tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(change(other_weights()), path)  # type: ignore[operator]
    model = nano()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(HalfmaskError, match="another architecture"):
        model.load_weights(path)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


class Malicious:
    def __reduce__(self) -> tuple:
        return (Path.touch, (Path("/tmp/halfmask-was-here"),))


def test_a_pickle_with_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"w": Malicious()}, path)
    with pytest.raises(HalfmaskError, match="not a readable weight file"):
        read_state(path)
    assert not Path("/tmp/halfmask-was-here").exists()


@pytest.mark.parametrize("content", [b"", b"hello"])
@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_a_file_that_holds_no_weights_is_refused(content: bytes, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"weights.{suffix}"
    path.write_bytes(content)
    with pytest.raises(HalfmaskError, match="not a readable weight file"):
        read_state(path)


def test_odd_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match="no weight file"):
        read_state(tmp_path / "absent.pt")
    for body in ({"epoch": 3}, {}, {"model": {}}, [1, 2], {"model": [1]}):
        path = tmp_path / "odd.pt"
        torch.save(body, path)
        with pytest.raises(HalfmaskError):
            load_into(nano(), read_state(path), str(path))


def test_the_digest_sees_every_weight_and_statistic() -> None:
    model = nano()
    first = weights_digest(model)
    assert first == weights_digest(model)
    for tensor in (model.patch_embed.conv1.bn.running_mean, model.stages[3].blocks[0].mlp.fc2.bias):
        with torch.no_grad():
            tensor[0] += 1
        assert weights_digest(model) != first
        first = weights_digest(model)
