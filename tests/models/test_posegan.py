"""The generator and its critic: shapes, who is touched by which step, and what is saved."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippingEngine
from halfmask.models.posegan import AveragedGenerator, PoseGAN, load_start, pair_losses


def poses(model: PoseGAN, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    noise = torch.randn(count, model.generator.latent, generator=generator)
    return noise, torch.rand(count, model.joints, model.height, model.width, generator=generator)


@pytest.mark.parametrize("size", ["small", "paper"])
@pytest.mark.parametrize("sides", [(64, 48), (128, 64)])
def test_pictures_have_the_size_of_the_pose(size: str, sides: tuple[int, int]) -> None:
    with torch.device("meta"):
        model = PoseGAN(size, 18, *sides)
        drawn = model.generate(torch.zeros(2, model.generator.latent), torch.zeros(2, 18, *sides))
        assert drawn.shape == (2, 3, *sides) and model.critic(drawn).shape == (2,)


def test_the_paper_s_widths() -> None:
    with torch.device("meta"):
        model = PoseGAN("paper", 18)
    mapping, decoder, critic = model.generator.mapping, model.generator.decoder, model.critic
    assert [mapping.first.out_features, len(mapping.blocks), mapping.last.out_features] == [512, 4, 128]
    assert [(layer.in_channels, layer.out_channels) for layer in decoder.down] == [
        (18 + 128, 128),
        (128, 256),
        (256, 384),
        (384, 512),
        (512, 640),
    ]
    assert [layer.out_channels for layer in decoder.narrow] == [512, 384, 256, 128]
    assert len(decoder.blocks) + len(decoder.raised) == 8 and len(decoder.bottom) == 4
    assert [(layer.out_channels, layer.stride, layer.kernel_size) for layer in critic.layers] == [
        (width, (2, 2), (3, 3)) for width in (64, 128, 256, 512)
    ]
    assert critic.head.in_features == 512 * 4 * 3 and critic.head.out_features == 1


def test_one_step_of_the_paper_s_networks() -> None:
    torch.manual_seed(0)
    model = PoseGAN("paper", 18, 32, 16)
    drawn = model(*poses(model, 1))
    real = torch.rand_like(drawn)
    loss = pair_losses(model.critic, real, drawn.detach()).sum()
    assert all(g.abs().sum() > 0 for g in torch.autograd.grad(loss, [layer.weight for layer in model.critic.layers]))
    gradients = torch.autograd.grad(-model.critic(drawn).sum(), list(model.generator.parameters()))
    assert all(torch.isfinite(g).all() and g.abs().sum() > 0 for g in gradients)


@pytest.mark.parametrize("size", ["small", "paper"])
def test_nothing_normalises(size: str) -> None:
    with torch.device("meta"):
        assert not any("norm" in type(module).__name__.lower() for module in PoseGAN(size).modules())


def test_a_picture_follows_the_pose_and_the_noise_and_nobody_else() -> None:
    torch.manual_seed(0)
    model = PoseGAN("small", 4, 32, 16).double()
    nn.init.normal_(model.generator.decoder.out.weight)
    noise, heatmaps = poses(model, 3)
    drawn = model(noise, heatmaps)
    assert float(drawn.detach().abs().max()) <= 1 and drawn.dtype == torch.float64
    alone = model(noise[1:2], heatmaps[1:2])
    assert torch.allclose(drawn[1:2], alone, atol=1e-12)
    assert not torch.allclose(alone, model(noise[:1], heatmaps[1:2]), atol=1e-3)
    assert not torch.allclose(alone, model(noise[1:2], heatmaps[:1]), atol=1e-3)


@pytest.mark.parametrize("size", ["small", "paper"])
def test_the_way_up_is_that_of_the_joined_map(size: str) -> None:
    """What comes from below is narrowed before it is upsampled; the paper does it the other way round, and gets the same."""
    torch.manual_seed(0)
    decoder = PoseGAN(size, 3, 16, 16).generator.decoder.double()
    narrow = decoder.narrow[-1]
    width = narrow.out_channels
    below, skip = torch.randn(2, narrow.in_channels - width, 4, 4).double(), torch.randn(2, width, 8, 8).double()
    joined = narrow(torch.cat([nn.functional.interpolate(below, scale_factor=2.0), skip], 1))
    first, second = narrow.weight.split([below.shape[1], width], 1)
    split = nn.functional.interpolate(nn.functional.conv2d(below, first, narrow.bias), scale_factor=2.0)
    assert torch.allclose(joined, split + nn.functional.conv2d(skip, second))


def test_a_step_of_the_critic_leaves_the_generator_alone() -> None:
    torch.manual_seed(0)
    model = PoseGAN("small", 4, 32, 16)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        fake = model(*poses(model, 4))
    engine = ClippingEngine(model.critic)
    batch = {"real": torch.rand(4, 3, 32, 16), "fake": fake}
    clipped = engine.clipped_sum(lambda critic, some: pair_losses(critic, some["real"], some["fake"]), batch, 1.0)
    with torch.no_grad():
        for name, total in clipped.sums.items():
            engine.parameters[name].sub_(total.float(), alpha=0.1)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed and all(name.startswith("critic.") for name in changed)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_both_parts_are_saved_and_loaded(tmp_path: Path) -> None:
    model, other = PoseGAN("small", 4, 32, 16), PoseGAN("small", 4, 32, 16)
    state = model.state_dict()
    assert {name.split(".")[0] for name in state} == {"generator", "critic"}
    save_file(state, tmp_path / "whole.safetensors")
    assert load_start(other, tmp_path / "whole.safetensors") == ("generator", "critic")
    assert all(torch.equal(value, state[name]) for name, value in other.state_dict().items())
    with pytest.raises(HalfmaskError, match="another shape"):
        load_start(PoseGAN("small", 5, 32, 16), tmp_path / "whole.safetensors")


def test_the_generator_alone_may_be_what_a_file_holds(tmp_path: Path) -> None:
    model, other = PoseGAN("small", 4, 32, 16), PoseGAN("small", 4, 32, 16, conditional=True)
    critic = {name: value.clone() for name, value in other.critic.state_dict().items()}
    held = {name: value for name, value in model.state_dict().items() if name.startswith("generator.")}
    save_file(held, tmp_path / "part.safetensors")
    assert load_start(other, tmp_path / "part.safetensors") == ("generator",)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in held.items())
    assert all(torch.equal(value, critic[name]) for name, value in other.critic.state_dict().items())
    save_file(dict(list(held.items())[1:]), tmp_path / "short.safetensors")
    with pytest.raises(HalfmaskError, match="1 weights missing"):
        load_start(other, tmp_path / "short.safetensors")
    save_file(held | {"stranger.weight": torch.zeros(1)}, tmp_path / "long.safetensors")
    with pytest.raises(HalfmaskError, match="1 unknown"):
        load_start(other, tmp_path / "long.safetensors")


@pytest.mark.parametrize(("sides", "conditional"), [((32, 32), False), ((32, 16), True)])
def test_a_critic_of_other_pictures_is_left_out(tmp_path: Path, sides: tuple[int, int], conditional: bool) -> None:
    model, other = PoseGAN("small", 4, 32, 16), PoseGAN("small", 4, *sides, conditional=conditional)
    save_file(model.state_dict(), tmp_path / "whole.safetensors")
    before = {name: value.clone() for name, value in other.critic.state_dict().items()}
    assert load_start(other, tmp_path / "whole.safetensors") == ("generator",)
    assert all(torch.equal(value, before[name]) for name, value in other.critic.state_dict().items())
    assert all(torch.equal(value, other.generator.state_dict()[name]) for name, value in model.generator.state_dict().items())


def test_embedded_weights_that_are_not_there_are_said_to_be_missing() -> None:
    with torch.device("meta"):
        model = PoseGAN("paper", 4, 32, 16)
    with pytest.raises(HalfmaskError, match="no embedded weights"):
        load_start(model, "embedded")


def test_the_average_follows_the_weights_and_goes_on_from_a_checkpoint() -> None:
    torch.manual_seed(0)
    model = PoseGAN("small", 4, 32, 16)
    average = AveragedGenerator(model.generator, keep=0.5)
    weight, mean = model.generator.decoder.out.bias, average.generator.decoder.out.bias
    assert not any(parameter.requires_grad for parameter in average.generator.parameters())
    values = []
    for step in range(40):
        with torch.no_grad():
            weight.fill_(float(step))
        average.update(model.generator)
        values.append(float(mean[0]))
    # The first step counts in full; then more and more of the average is kept, up to half.
    assert values[0] == 0 and abs(values[1] - 10 / 11) < 1e-6 and abs(values[39] - (values[38] + 39) / 2) < 1e-5
    other = AveragedGenerator(PoseGAN("small", 4, 32, 16).generator, keep=0.5)
    other.restore(average.state())
    other.update(model.generator)
    average.update(model.generator)
    average.release(model.generator)
    assert torch.equal(other.generator.decoder.out.bias, weight) and other.steps == 41
    with pytest.raises(HalfmaskError, match="less than 1"):
        AveragedGenerator(model.generator, 1.0)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(HalfmaskError, match="multiples of 16"):
        PoseGAN("small", height=60)
    with pytest.raises(HalfmaskError, match="did you mean 'small'"):
        PoseGAN("smal")
    model = PoseGAN("small", 4, 32, 16)
    with pytest.raises(HalfmaskError, match="N×4×H×W"):
        model(torch.zeros(2, 32), torch.zeros(2, 5, 32, 16))
    with pytest.raises(HalfmaskError, match=r"expected N×3×32×16"):
        model.critic(torch.zeros(2, 3, 16, 32))
