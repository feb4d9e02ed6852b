"""Project-then-clip: the clip bounds the coordinates, whatever the basis is."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.mechanism import Mechanism
from halfmask.gradients.subspace import Subspace
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.noise import RandomStream

Batch = dict[str, Tensor]


def loss(model: nn.Module, batch: Batch) -> Tensor:
    return (torch.tanh(model(batch["x"])) * batch["w"]).sum(1)


def setting(records: int = 7) -> tuple[ClippingEngine, Batch, Subspace, Tensor]:
    """A small model, its per-record gradients, and a subspace of five directions."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 4)).double()
    batch = {"x": torch.randn(records, 6, dtype=torch.float64), "w": torch.randn(records, 4, dtype=torch.float64)}
    engine = ClippingEngine(model)
    each = engine.per_record_gradients(loss, batch)
    public = {"x": torch.randn(20, 6, dtype=torch.float64), "w": torch.randn(20, 4, dtype=torch.float64)}
    return engine, batch, engine.subspace(loss, public, 5), each


@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_equals_projecting_and_clipping_by_hand(chunk: int) -> None:
    engine, batch, subspace, each = setting()
    coordinates = each @ subspace.rows.T
    norms = coordinates.norm(dim=1)
    clip = float(norms.median())
    found = engine.clipped_coordinates(loss, batch, clip, subspace, chunk=chunk)
    expected = (coordinates * (clip / norms.clamp(min=clip))[:, None]).sum(0)
    assert torch.allclose(found.coordinates, expected, rtol=1e-9) and torch.allclose(found.norms, norms, rtol=1e-9)
    assert found.sensitivity(Adjacency.ZERO_OUT) == clip and found.sensitivity(Adjacency.REPLACE_ONE) == 2 * clip


def test_units_are_projected_whole() -> None:
    engine, batch, subspace, each = setting()
    units = torch.tensor([1, 0, 1, 1, 2, 0, 2])
    coordinates = torch.stack([(each @ subspace.rows.T)[units == u].sum(0) for u in range(3)])
    norms = coordinates.norm(dim=1)
    clip = float(norms.median())
    found = engine.clipped_coordinates(loss, batch, clip, subspace, units, chunk=2)
    assert torch.allclose(found.coordinates, (coordinates * (clip / norms.clamp(min=clip))[:, None]).sum(0), rtol=1e-9)


def test_one_unit_never_exceeds_the_clip_norm_even_with_a_basis_too_long() -> None:
    engine, batch, subspace, _ = setting()
    long = Subspace(subspace.rows * 50, subspace.spectrum)
    for i in range(7):
        one = {key: value[i : i + 1] * 1e6 for key, value in batch.items()}
        assert float(engine.clipped_coordinates(loss, one, 0.3, long).coordinates.norm()) <= 0.3


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_unit_that_is_not_finite_adds_nothing(bad: float) -> None:
    engine, batch, subspace, _ = setting()
    poisoned = {"x": batch["x"].clone(), "w": batch["w"].clone()}
    poisoned["w"][2, 1] = bad
    found = engine.clipped_coordinates(loss, poisoned, 0.5, subspace)
    rest = {key: value[[0, 1, 3, 4, 5, 6]] for key, value in batch.items()}
    assert found.nonfinite == 1
    assert torch.allclose(found.coordinates, engine.clipped_coordinates(loss, rest, 0.5, subspace).coordinates)


def test_released_coordinates_carry_the_noise_of_k_dimensions() -> None:
    engine, batch, subspace, _ = setting()
    clipped = engine.clipped_coordinates(loss, batch, 0.5, subspace)
    mechanism = Mechanism(2.0, 0.5, 10, RandomStream.seeded("noise", 1))
    draws = torch.stack([mechanism.release(clipped, subspace) for _ in range(4000)])
    noise = draws - subspace.lift(clipped.coordinates / 10)
    # E‖noise‖² = k·σ²C²/B̄²; over 4,000 draws of 5 numbers the mean of squares is within 5 % (five standard deviations).
    assert float(noise.square().sum(1).mean()) == pytest.approx(5 * (2.0 * 0.5 / 10) ** 2, rel=0.05)


def test_coordinates_need_their_subspace_and_enough_noise() -> None:
    engine, batch, subspace, _ = setting()
    clipped = engine.clipped_coordinates(loss, batch, 0.5, subspace)
    with pytest.raises(HalfmaskError, match="with the subspace they were taken in"):
        Mechanism(1.0, 0.5, 10, RandomStream.seeded("noise", 1)).release(clipped)
    with pytest.raises(HalfmaskError, match="too small"):
        Mechanism(1.0, 0.1, 10, RandomStream.seeded("noise", 1)).release(clipped, subspace)


@pytest.mark.parametrize("memory", [1 << 30, 30_000, 5_000])
def test_a_subspace_within_a_memory_limit(memory: int) -> None:
    engine, _, _, _ = setting()
    torch.manual_seed(4)
    public = {"x": torch.randn(20, 6, dtype=torch.float64), "w": torch.randn(20, 4, dtype=torch.float64)}
    found = engine.subspace(loss, public, 4, memory=memory)
    whole = engine.subspace(loss, public, 4)
    assert torch.linalg.svdvals(found.rows.double() @ whole.rows.double().T).min() > 0.99
    assert torch.linalg.matrix_norm(found.rows.double(), 2) <= 1 + 1e-6
    assert (found.rows.dtype == torch.bfloat16) == (memory < 1 << 30)
