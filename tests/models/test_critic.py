"""The critic: each picture's gradient is its own, exactly clipped; and what bounds its weights does so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippingEngine, check_records_apart
from halfmask.models.critic import Critic, bound_weights, gradient_penalty, pair_losses, spectral_bound, spectral_norms

Batch = dict[str, Tensor]
SIDES = (32, 16)


def make(heatmaps: int = 0, dropout: float = 0.0, widths: tuple[int, ...] = (8, 12, 16, 24)) -> Critic:
    torch.manual_seed(0)
    return Critic(widths, *SIDES, heatmaps, dropout).double()


def some(records: int = 6, heatmaps: int = 0) -> Batch:
    torch.manual_seed(1)
    batch = {name: torch.rand(records, 3, *SIDES, dtype=torch.float64) * 2 - 1 for name in ("real", "fake")}
    # People of very different contrast, so that some are clipped and some are not.
    batch["real"] *= torch.linspace(0.2, 3, records, dtype=torch.float64).view(-1, 1, 1, 1)
    if heatmaps:
        batch |= {f"{name} pose": torch.rand(records, heatmaps, *SIDES, dtype=torch.float64) for name in ("real", "fake")}
    return batch


def real_loss(critic: nn.Module, batch: Batch) -> Tensor:
    loss: Tensor = -critic(batch["real"], batch.get("real pose"))
    return loss


def pair_loss(critic: nn.Module, batch: Batch) -> Tensor:
    return pair_losses(critic, batch["real"], batch["fake"], batch.get("real pose"), batch.get("fake pose"))


def pair_in_two_passes(critic: nn.Module, batch: Batch) -> Tensor:
    loss: Tensor = critic(batch["fake"], batch.get("fake pose")) - critic(batch["real"], batch.get("real pose"))
    return loss


def penalised(critic: nn.Module, batch: Batch) -> Tensor:
    assert isinstance(critic, Critic)
    return pair_loss(critic, batch) + 10 * gradient_penalty(critic, batch["real"], batch.get("real pose"), steepest=0.1)


def one_at_a_time(critic: nn.Module, loss: Callable[..., Tensor], batch: Batch, clip: float) -> tuple[dict[str, Tensor], list[float]]:
    parameters = dict(critic.named_parameters())
    sums, norms = {name: torch.zeros_like(p) for name, p in parameters.items()}, []
    for row in range(len(batch["real"])):
        one = {name: value[row : row + 1] for name, value in batch.items()}
        gradients = torch.autograd.grad(loss(critic, one).sum(), list(parameters.values()), materialize_grads=True)
        norms.append(float(torch.cat([g.flatten() for g in gradients]).norm()))
        for name, gradient in zip(parameters, gradients, strict=True):
            sums[name] += min(1.0, clip / norms[-1]) * gradient
    return sums, norms


@pytest.mark.parametrize("heatmaps", [0, 4])
@pytest.mark.parametrize("loss", [real_loss, pair_loss, pair_in_two_passes, penalised])
@pytest.mark.parametrize("widths", [(8, 12, 16, 24), (4, 6, 40, 48)])
def test_clipped_sums_are_those_of_one_record_at_a_time(heatmaps: int, loss: Callable[..., Tensor], widths: tuple[int, ...]) -> None:
    critic, batch = make(heatmaps, widths=widths), some(6, heatmaps)
    _, norms = one_at_a_time(critic, loss, batch, 1.0)
    clip = sorted(norms)[2]
    expected, _ = one_at_a_time(critic, loss, batch, clip)
    engine = ClippingEngine(critic)
    clipped = engine.clipped_sum(loss, batch, clip)
    assert engine.path == "fast"
    for name, value in expected.items():
        # What every picture has in common cancels in a pair: the last bias.
        scale = max(float(value.abs().max()), 1e-6)
        assert float((clipped.sums[name] - value).abs().max()) <= 1e-9 * scale, name
    assert torch.allclose(clipped.norms, torch.tensor(norms, dtype=torch.float64), rtol=1e-9)


@pytest.mark.parametrize("loss", [real_loss, pair_loss])
def test_people_with_several_pictures_are_clipped_as_one(loss: Callable[..., Tensor]) -> None:
    critic, batch = make(widths=(4, 6, 40, 48)), some(6)
    people = torch.tensor([0, 1, 1, 2, 0, 0])
    engine = ClippingEngine(critic)
    found = engine.clipped_sum(loss, batch, 0.05, unit_index=people)
    parameters = list(critic.parameters())
    expected = 0.0
    for person in range(3):
        theirs = {name: value[people == person] for name, value in batch.items()}
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss(critic, theirs).sum(), parameters, materialize_grads=True)])
        expected = expected + gradient * min(1.0, 0.05 / float(gradient.norm()))
    assert isinstance(expected, Tensor)
    assert float((found.flat() - expected).abs().max()) <= 1e-9 * float(expected.abs().max())


@pytest.mark.parametrize("loss", [real_loss, pair_loss])
def test_dropout_leaves_each_record_its_own_gradient(loss: Callable[..., Tensor]) -> None:
    """With masks drawn alike, the sum is that of each record's own loss; and the masks of two records are not the same."""
    critic, batch = make(dropout=0.25), some()

    def seeded(network: nn.Module, some: Batch) -> Tensor:
        torch.manual_seed(7)
        return loss(network, some)

    engine = ClippingEngine(critic)
    found = engine.clipped_sum(seeded, batch, 0.1).flat()
    parameters = list(critic.parameters())
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(each, parameters, retain_graph=True, materialize_grads=True)])
        for each in seeded(critic, batch)
    ]
    expected = torch.stack([row * min(1.0, 0.1 / float(row.norm())) for row in rows]).sum(0)
    assert float((found - expected).abs().max()) <= 1e-9 * float(expected.abs().max())
    twin = batch["real"][:1].expand(2, -1, -1, -1)
    first, second = critic(twin)
    assert float((first - second).detach().abs()) > 1e-6
    critic.eval()
    first, second = critic(twin)
    assert torch.allclose(first, second, atol=1e-12)


@pytest.mark.parametrize("heatmaps", [0, 4])
@pytest.mark.parametrize("loss", [real_loss, pair_loss, penalised])
def test_records_are_apart(heatmaps: int, loss: Callable[..., Tensor]) -> None:
    check_records_apart(make(heatmaps), loss, some(4, heatmaps), tolerance=1e-9)


def test_thrift_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    critic, batch = make(4), some(5, 4)
    thrifty = torch.autograd.grad(pair_loss(critic, batch).sum(), [layer.weight for layer in critic.layers])
    monkeypatch.setattr(Critic, "thrifty", False)
    plain = torch.autograd.grad(pair_loss(critic, batch).sum(), [layer.weight for layer in critic.layers])
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(thrifty, plain, strict=True))


def test_a_pair_is_real_and_fake_of_one_record() -> None:
    critic, batch = make(4), some(5, 4)
    assert torch.allclose(pair_loss(critic, batch), pair_in_two_passes(critic, batch))


def test_bytes_are_pictures_too() -> None:
    critic = make()
    pixels = torch.randint(0, 256, (2, 3, *SIDES), dtype=torch.uint8)
    floats = pixels.double() / 127.5 - 1
    assert torch.allclose(critic(pixels), critic(floats))
    assert torch.allclose(pair_losses(critic, pixels, floats.flip(0)), critic(floats.flip(0)) - critic(floats))


def test_a_critic_that_sees_the_pose_asks_for_it() -> None:
    critic, batch = make(4), some(3, 4)
    with pytest.raises(HalfmaskError, match="sees the pose"):
        critic(batch["real"])
    turned = critic(batch["real"], batch["fake pose"])
    assert not torch.allclose(critic(batch["real"], batch["real pose"]), turned)


@pytest.mark.parametrize("heatmaps", [0, 4])
@pytest.mark.parametrize("sides", [(32, 16), (18, 10)])
def test_slopes_and_penalty_are_those_of_autograd(heatmaps: int, sides: tuple[int, int]) -> None:
    torch.manual_seed(0)
    critic = Critic((4, 6, 8, 10), *sides, heatmaps).double()
    images, poses = torch.rand(3, 3, *sides).double().requires_grad_(), torch.rand(3, heatmaps, *sides).double()
    (expected,) = torch.autograd.grad(critic(images, poses).sum(), images, create_graph=True)
    assert torch.allclose(critic.slopes(images, poses), expected, atol=1e-12)
    lengths = expected.flatten(1).norm(dim=1)
    middle = float(lengths.detach().median())
    penalty = gradient_penalty(critic, images, poses, steepest=middle)
    assert torch.allclose(penalty, (lengths - middle).square(), atol=1e-10)
    one_sided = gradient_penalty(critic, images, poses, one_sided=True, steepest=middle)
    assert torch.allclose(one_sided, (lengths - middle).clamp(min=0).square(), atol=1e-10) and float(one_sided.detach().min()) == 0
    # Its gradient, by which a critic is trained, is that of the gradient of a gradient.
    parameters = list(critic.parameters())
    by_autograd = torch.autograd.grad((lengths - middle).square().sum(), parameters, allow_unused=True, materialize_grads=True)
    ours = torch.autograd.grad(penalty.sum(), parameters, allow_unused=True, materialize_grads=True)
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(by_autograd, ours, strict=True))


def test_weights_are_cut_to_the_bound() -> None:
    critic = make()
    before = critic.layers[0].weight.detach().clone()
    bound_weights(critic, 0.01)
    assert max(float(p.detach().abs().max()) for p in critic.parameters()) == 0.01
    assert torch.equal(critic.layers[0].weight, before.clamp(-0.01, 0.01))
    with pytest.raises(HalfmaskError, match="greater than 0"):
        bound_weights(critic, 0)


def test_no_layer_stretches_by_more_than_the_spectral_bound() -> None:
    critic = make()
    with torch.no_grad():
        critic.layers[2].weight.mul_(0.01)
    small = critic.layers[2].weight.detach().clone()
    spectral_bound(critic, 0.8)
    assert torch.equal(critic.layers[2].weight, small)  # below the bound already
    size = SIDES
    for layer in critic.layers:
        assert isinstance(layer, nn.Conv2d)
        width = layer.in_channels
        units = torch.eye(width * size[0] * size[1], dtype=torch.float64).view(-1, width, *size)
        exact = float(torch.linalg.matrix_norm(nn.functional.conv2d(units, layer.weight.detach(), None, 2, 1).flatten(1), 2))
        assert exact <= 0.8 * 1.03
        size = (size[0] // 2, size[1] // 2)
    assert float(critic.head.weight.norm()) <= 0.8 * (1 + 1e-9)
    assert max(spectral_norms(critic)) <= 0.8 * (1 + 1e-6)
