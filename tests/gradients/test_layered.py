"""The subspace with two bases a layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.layered import LayeredSubspace
from halfmask.gradients.mechanism import Mechanism
from halfmask.privacy.noise import open_stream


class Network(nn.Module):
    """A convolution, a norm, tokens through a linear layer used twice, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.mix = nn.Linear(8, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.norm(self.conv(images).flatten(2).transpose(1, 2))
        return self.head(self.mix(torch.tanh(self.mix(tokens))).mean(1))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch["image"]), batch["label"], reduction="none")


def people(count: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {"image": torch.randn(count, 3, 4, 4, generator=generator), "label": torch.randint(5, (count,), generator=generator)}


@pytest.fixture
def engine() -> ClippingEngine:
    torch.manual_seed(0)
    return ClippingEngine(Network())


def dense(subspace: LayeredSubspace) -> Tensor:
    """The basis as it is never formed: one row a direction."""
    return torch.stack([subspace.lift(row) for row in torch.eye(subspace.dimension)])


def test_the_basis_is_orthonormal_and_never_longer_than_one(engine: ClippingEngine) -> None:
    subspace = engine.layered_subspace(loss, people(30), 60)
    rows = dense(subspace).double()
    assert torch.linalg.matrix_norm(rows, 2) <= subspace.norm() <= 1
    assert torch.allclose(rows @ rows.T, torch.eye(60, dtype=torch.float64), atol=1e-5)
    assert torch.linalg.matrix_norm(rows, 2) <= 1


def test_three_roads_to_the_same_coordinates(engine: ClippingEngine) -> None:
    """From a layer's inputs and output gradients, from the long vector, and from the basis itself."""
    subspace = engine.layered_subspace(loss, people(30), 60)
    gradients = engine.per_record_gradients(loss, people(7, seed=1))
    each = engine.coordinates(loss, people(7, seed=1), subspace, chunk=3)
    rows = dense(subspace)
    assert each.shape == (7, 60)
    assert torch.allclose(each.float(), gradients @ rows.T, atol=1e-6)
    assert torch.allclose(subspace.coordinates(gradients[0]), gradients[0] @ rows.T, atol=1e-6)


def test_all_coordinates_hold_all_of_a_gradient(engine: ClippingEngine) -> None:
    subspace = engine.layered_subspace(loss, people(30), 10**6)
    assert subspace.dimension <= engine.size
    gradient = engine.per_record_gradients(loss, people(1))[0]
    assert torch.allclose(subspace.lift(subspace.coordinates(gradient)), gradient, atol=1e-5)


def test_coordinates_come_in_order_of_energy(engine: ClippingEngine) -> None:
    subspace = engine.layered_subspace(loss, people(30), 40)
    gradients = engine.per_record_gradients(loss, people(30))
    scaled = gradients / gradients.norm(dim=1, keepdim=True)
    energies = (scaled @ dense(subspace).T).square().mean(0)
    assert torch.allclose(energies.double(), subspace.energies, atol=1e-5)
    assert (subspace.energies.diff() <= 0).all()
    first = subspace.first(10)
    assert first.dimension == 10 and torch.allclose(dense(first), dense(subspace)[:10])


def test_it_finds_directions_that_a_few_whole_gradients_do_not(engine: ClippingEngine) -> None:
    """Public people as few as the whole-gradient basis has directions; others' gradients, as many coordinates as are worth it."""
    few, others = people(10), people(200, seed=2)
    gradients = engine.per_record_gradients(loss, others)
    whole = engine.subspace(loss, few, 10)
    layered = engine.layered_subspace(loss, few, 150)
    total = gradients.square().sum()
    kept_whole = torch.stack([whole.coordinates(g) for g in gradients]).square().sum() / total
    kept_layered = engine.coordinates(loss, others, layered).square().sum() / total
    assert kept_layered > kept_whole + 0.1


def test_clipped_coordinates_are_bounded_whatever_a_person_holds(engine: ClippingEngine) -> None:
    subspace = engine.layered_subspace(loss, people(30), 60)
    for size in (0.0, 1.0, 1e6, float("inf"), float("nan")):
        batch = people(1) | {"image": people(1)["image"] * size}
        found = engine.clipped_coordinates(loss, batch, 0.5, subspace)
        assert torch.isfinite(found.coordinates).all()
        assert found.coordinates.norm() <= 0.5


def test_removing_a_unit_moves_the_sum_by_at_most_c(engine: ClippingEngine) -> None:
    subspace = engine.layered_subspace(loss, people(30), 60)
    batch, units = people(12, seed=3), torch.arange(12) // 2
    everyone = engine.clipped_coordinates(loss, batch, 0.01, subspace, units).coordinates
    others = {name: tensor[2:] for name, tensor in batch.items()}
    without = engine.clipped_coordinates(loss, others, 0.01, subspace, units[2:]).coordinates
    assert 0.0099 < (everyone - without).norm() <= 0.01


def test_released_noise_lies_in_the_subspace_and_has_its_variance(engine: ClippingEngine) -> None:
    subspace = engine.layered_subspace(loss, people(30), 60)
    empty = {name: tensor[:0] for name, tensor in people(1).items()}
    mechanism = Mechanism(2.0, 0.5, 4.0, open_stream("noise", 1))
    nothing = engine.clipped_coordinates(loss, empty, 0.5, subspace)
    released = torch.stack([mechanism.release(nothing, subspace) for _ in range(300)])
    inside = torch.stack([subspace.lift(subspace.coordinates(one)) for one in released])
    assert torch.allclose(inside, released, atol=1e-5)
    spread = torch.stack([subspace.coordinates(one) for one in released]).std()
    assert float(spread) == pytest.approx(2.0 * 0.5 / 4.0, rel=0.02)


def test_state_is_carried_to_another_basis(engine: ClippingEngine) -> None:
    old, new = engine.layered_subspace(loss, people(30), 80), engine.layered_subspace(loss, people(30, seed=5), 60)
    values = torch.randn(80)
    assert torch.allclose(old.carry(new, values), new.coordinates(old.lift(values)), atol=1e-5)
    squares = torch.rand(80)
    turn = dense(new) @ dense(old).T
    assert torch.allclose(old.carry(new, squares, squares=True), turn.square() @ squares, atol=1e-5)


def test_whitened_coordinates_vary_alike_and_are_lifted_twice_scaled(engine: ClippingEngine) -> None:
    plain = engine.layered_subspace(loss, people(30), 60)
    white = plain.whitened()
    gradients = engine.per_record_gradients(loss, people(30))
    scaled = gradients / gradients.norm(dim=1, keepdim=True)
    spread = torch.stack([white.coordinates(one) for one in scaled]).square().mean(0)
    assert torch.allclose(spread, spread.mean().expand(60), rtol=1e-3)
    assert white.scales is not None and float(white.scales.reciprocal().square().mean()) == pytest.approx(1.0)
    each = engine.coordinates(loss, people(7, seed=1), white)
    assert torch.allclose(each, engine.coordinates(loss, people(7, seed=1), plain) / white.scales, rtol=1e-4, atol=1e-7)
    assert torch.allclose(white.lift(each[0].float()), plain.lift((each[0] / white.scales).float()), atol=1e-6)
    assert torch.allclose(white.first(10).lift(torch.ones(10)), white.lift(torch.cat([torch.ones(10), torch.zeros(50)])), atol=1e-6)


def test_whitened_coordinates_are_bounded_by_the_clip_alone(engine: ClippingEngine) -> None:
    """They may be longer than the gradient, so the clip has to bound them; a sum clipped before is refused."""
    white = engine.layered_subspace(loss, people(30), 60).whitened()
    assert white.norm() > 1.5
    batch, units = people(12, seed=3), torch.arange(12) // 2
    everyone = engine.clipped_coordinates(loss, batch, 0.01, white, units).coordinates
    without = engine.clipped_coordinates(loss, {name: tensor[2:] for name, tensor in batch.items()}, 0.01, white, units[2:]).coordinates
    assert 0.0099 < (everyone - without).norm() <= 0.01
    mechanism = Mechanism(2.0, 0.01, 4.0, open_stream("noise", 1))
    with pytest.raises(HalfmaskError, match="clip them"):
        mechanism.release(engine.clipped_sum(loss, batch, 0.01, units), white)


def test_noise_is_alike_in_all_whitened_coordinates(engine: ClippingEngine) -> None:
    white = engine.layered_subspace(loss, people(30), 60).whitened()
    empty = {name: tensor[:0] for name, tensor in people(1).items()}
    mechanism = Mechanism(2.0, 0.5, 4.0, open_stream("noise", 1))
    nothing = engine.clipped_coordinates(loss, empty, 0.5, white)
    spread = torch.stack([mechanism.release_coordinates(nothing, white) for _ in range(400)]).std(0)
    assert torch.allclose(spread, torch.full((60,), 2.0 * 0.5 / 4.0), rtol=0.2)
    assert float(spread.mean()) == pytest.approx(2.0 * 0.5 / 4.0, rel=0.02)


def test_whitened_state_is_carried_as_a_gradient(engine: ClippingEngine) -> None:
    old, new = (engine.layered_subspace(loss, people(30, seed=seed), 80) for seed in (0, 5))
    gradient = old.lift(torch.randn(80))
    carried = old.whitened().carry(new.whitened(), old.whitened().coordinates(gradient))
    assert torch.allclose(carried, new.whitened().coordinates(gradient), rtol=1e-3, atol=1e-4)
    white = new.whitened()
    assert white.scales is not None
    squares = new.carry(white, torch.rand(80), squares=True)
    assert torch.allclose(
        white.carry(new, squares, squares=True), new.carry(new, squares * white.scales.square().float(), squares=True), atol=1e-5
    )


def test_nothing_to_find_is_said(engine: ClippingEngine) -> None:
    with pytest.raises(HalfmaskError, match="at least 1"):
        engine.layered_subspace(loss, people(3), 0)
    with pytest.raises(HalfmaskError, match="no public record has a finite gradient"):
        engine.layered_subspace(loss, people(3) | {"image": torch.full((3, 3, 4, 4), float("nan"))}, 5)
