"""The noise that leaves is the noise that was accounted for. False alarms: 1e-6 each, with fixed streams."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippedSum
from halfmask.gradients.mechanism import METHODS, Mechanism, check_private_ready, method_named
from halfmask.gradients.subspace import Subspace
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.noise import RandomStream

SIGMA, CLIP, BATCH = 1.7, 0.3, 12.5


def clipped(vector: Tensor, units: int = 0, clip_norm: float = CLIP) -> ClippedSum:
    return ClippedSum(sums={"w": vector}, norms=torch.full((units,), clip_norm), clip_norm=clip_norm, nonfinite=0)


def mechanism(kind: type[Mechanism] = Mechanism, seed: int = 0, **changes: float) -> Mechanism:
    settings = {"noise_multiplier": SIGMA, "clip_norm": CLIP, "expected_batch": BATCH} | changes
    return kind(noise=RandomStream.seeded("noise", seed), **settings)  # type: ignore[arg-type]


@cache
def subspace(p: int, k: int) -> Subspace:
    generator = torch.Generator().manual_seed(0)
    return Subspace.from_gradients(torch.randn(k, p, generator=generator, dtype=torch.float64), k)


# ---- checks --------------------------------------------------------------------------------------------------------------


def noise_is_right(tested: Mechanism) -> bool:
    """Σ‖B̄·release‖²/(σC)² over 10⁶ coordinates of empty batches and of full ones, after the sum is taken off."""
    for units, value in ((0, 0.0), (7, 0.01)):
        total = torch.full((500_000,), value, dtype=torch.float64)
        noise = torch.cat([tested.release(clipped(total, units)) * BATCH - total for _ in range(2)])
        if not 0.99310 <= float((noise / (SIGMA * CLIP)).square().mean()) <= 1.00693:
            return False
    return True


def projected_noise_is_right(tested: Mechanism, p: int = 800, k: int = 500) -> bool:
    """E‖B̄·release‖² = k·σ²C²: 10⁶ coordinates in releases of k; and all of it lies in the subspace."""
    space = subspace(p, k)
    total = torch.zeros(p, dtype=torch.float64)
    releases = torch.stack([tested.release(clipped(total, 3), space) for _ in range(2000)]) * BATCH
    outside = releases - releases @ space.rows.T @ space.rows
    energy = float(releases.square().sum()) / (SIGMA * CLIP) ** 2 / (k * len(releases))
    return 0.99310 <= energy <= 1.00693 and float(outside.abs().max()) < 1e-9


def divisor_is_constant(tested: Mechanism) -> bool:
    """Without noise, the release is the sum over B̄ whether anybody was in the batch or not."""
    quiet = replace(tested, noise_multiplier=0.0)
    total = torch.linspace(-1, 1, 11, dtype=torch.float64)
    return all(torch.allclose(quiet.release(clipped(total, n)) * BATCH, total) for n in (0, 1, 5, 12, 13, 40))


def an_empty_batch_is_noise(tested: Mechanism) -> bool:
    release = tested.release(clipped(torch.zeros(1000)))
    spread = float(release.double().std()) * BATCH / (SIGMA * CLIP)
    return 0.85 < spread < 1.15


def no_two_coordinates_share_noise(tested: Mechanism) -> bool:
    """Two releases, each of more coordinates than are noised at once, twice over: no number of them comes again."""
    count = 2**18 + 4099
    released = [tested.release(clipped(torch.zeros(count, dtype=torch.float64))) for _ in range(2)]
    return len(torch.cat(released).unique()) == 2 * count


CHECKS = (noise_is_right, projected_noise_is_right, divisor_is_constant, an_empty_batch_is_noise, no_two_coordinates_share_noise)


@pytest.mark.parametrize("check", CHECKS)
def test_the_mechanism_is_right(check: Callable[[Mechanism], bool]) -> None:
    assert check(mechanism())


def test_the_sum_of_four_is_right_too() -> None:
    tested = replace(mechanism(), sum_of_four=True)
    assert noise_is_right(tested)
    assert not torch.equal(tested.release(clipped(torch.zeros(8))), mechanism().release(clipped(torch.zeros(8))))


# ---- planted faults ------------------------------------------------------------------------------------------------------


class NoNoise(Mechanism):
    def release(self, clipped: ClippedSum, subspace: Subspace | None = None) -> Tensor:
        return replace(self, noise_multiplier=0.0).release_well(clipped, subspace)

    def release_well(self, clipped: ClippedSum, subspace: Subspace | None) -> Tensor:
        return Mechanism.release(self, clipped, subspace)


class HalfTheNoise(Mechanism):
    def release(self, clipped: ClippedSum, subspace: Subspace | None = None) -> Tensor:
        return Mechanism.release(replace(self, noise_multiplier=self.noise_multiplier / 2), clipped, subspace)


class NoiseWithoutClipNorm(Mechanism):
    def release(self, clipped: ClippedSum, subspace: Subspace | None = None) -> Tensor:
        sigma = self.noise_multiplier / self.clip_norm
        return Mechanism.release(replace(self, noise_multiplier=sigma), clipped, subspace)


class RealisedDivisor(Mechanism):
    def release(self, clipped: ClippedSum, subspace: Subspace | None = None) -> Tensor:
        realised = max(1, len(clipped.norms))
        return Mechanism.release(replace(self, expected_batch=realised), clipped, subspace)


class EmptyBatchSkipped(Mechanism):
    def release(self, clipped: ClippedSum, subspace: Subspace | None = None) -> Tensor:
        if not len(clipped.norms):
            return torch.zeros_like(clipped.flat())
        return Mechanism.release(self, clipped, subspace)


class NoiseOutsideTheSubspace(Mechanism):
    def release(self, clipped: ClippedSum, subspace: Subspace | None = None) -> Tensor:
        return Mechanism.release(self, clipped, None)


class NoiseReplayed(Mechanism):
    """Each release draws the same noise: two of them subtract to the private difference."""

    def release(self, clipped: ClippedSum, subspace: Subspace | None = None) -> Tensor:
        return Mechanism.release(replace(self, noise=RandomStream.seeded("noise", 0)), clipped, subspace)


class FirstPieceAgain(Mechanism):
    """What is drawn for the first 2¹⁷ coordinates is used for the rest."""

    def release(self, clipped: ClippedSum, subspace: Subspace | None = None) -> Tensor:
        total = clipped.flat()
        noise = self.noise.gaussian(min(len(total), 2**17)).repeat(len(total) // 2**17 + 1)[: len(total)]
        return (total + self.noise_multiplier * self.clip_norm * noise) / self.expected_batch


def noise_is_fresh(tested: Mechanism) -> bool:
    zeros = clipped(torch.zeros(100, dtype=torch.float64))
    return not torch.isin(tested.release(zeros), tested.release(zeros)).any()


def test_noise_is_fresh_each_time() -> None:
    assert noise_is_fresh(mechanism())


FAULTS: list[tuple[type[Mechanism], Callable[[Mechanism], bool]]] = [
    (NoNoise, noise_is_right),
    (NoNoise, projected_noise_is_right),
    (NoNoise, an_empty_batch_is_noise),
    (HalfTheNoise, noise_is_right),
    (HalfTheNoise, projected_noise_is_right),
    (NoiseWithoutClipNorm, noise_is_right),
    (RealisedDivisor, divisor_is_constant),
    (RealisedDivisor, noise_is_right),
    (EmptyBatchSkipped, an_empty_batch_is_noise),
    (EmptyBatchSkipped, noise_is_right),
    (EmptyBatchSkipped, divisor_is_constant),
    (NoiseOutsideTheSubspace, projected_noise_is_right),
    (NoiseReplayed, noise_is_fresh),
    (NoiseReplayed, no_two_coordinates_share_noise),
    (FirstPieceAgain, no_two_coordinates_share_noise),
]


@pytest.mark.parametrize(("fault", "check"), FAULTS)
def test_the_checks_see_planted_faults(fault: type[Mechanism], check: Callable[[Mechanism], bool]) -> None:
    assert not check(mechanism(fault))


# ---- what a release is ---------------------------------------------------------------------------------------------------


def test_a_release_is_sum_plus_noise_over_the_expected_batch() -> None:
    total = torch.randn(9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    noise = RandomStream.seeded("noise", 0).gaussian(9)
    expected = (total + SIGMA * CLIP * noise) / BATCH
    assert torch.allclose(mechanism().release(clipped(total, 4)), expected, rtol=1e-12)


def test_a_projected_release_draws_as_many_numbers_as_directions() -> None:
    space = subspace(30, 4)
    total = torch.randn(30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    noise = RandomStream.seeded("noise", 0).gaussian(4)
    expected = space.lift((space.coordinates(total) + SIGMA * CLIP * noise) / BATCH)
    assert torch.allclose(mechanism().release(clipped(total, 4), space), expected, rtol=1e-12)


def test_the_precision_of_the_weights_is_kept() -> None:
    assert mechanism().release(clipped(torch.zeros(5))).dtype == torch.float32


def test_noise_is_added_in_double_precision() -> None:
    """In single precision the sum of a large number and small noise would round to a few values."""
    release = mechanism().release(clipped(torch.full((1000,), 1e6, dtype=torch.float64)))
    assert len(release.unique()) == 1000


def test_a_sum_clipped_to_more_than_it_is_noised_for_is_refused() -> None:
    with pytest.raises(HalfmaskError, match="noise would be too small"):
        mechanism().release(clipped(torch.zeros(3), clip_norm=1.01 * CLIP))
    mechanism().release(clipped(torch.zeros(3), clip_norm=0.5 * CLIP))


# ---- methods -------------------------------------------------------------------------------------------------------------

TABLE = {
    "dpsgd": ("noised", False, False),
    "projected": ("noised", False, True),
    "feature": ("noised", True, False),
    "feature-projective": ("noised", True, True),
    "masked": ("noised", True, False),
    "masked-projective": ("noised", True, True),
    "public-only": ("unread", True, False),
    "non-private": ("exact", False, False),
}


def test_the_table_of_methods() -> None:
    assert {name: (m.private, m.view, m.projected) for name, m in METHODS.items()} == TABLE
    assert all(method_named(name).name == name for name in TABLE)
    assert {name for name, m in METHODS.items() if m.rest} == {"masked", "masked-projective"}


@pytest.mark.parametrize("name", TABLE)
def test_adding_and_removing_has_no_meaning_where_a_view_stays(name: str) -> None:
    method = METHODS[name]
    method.check_adjacency(Adjacency.ZERO_OUT)
    method.check_adjacency(Adjacency.REPLACE_ONE)
    if method.view:
        with pytest.raises(HalfmaskError, match="stays in the dataset"):
            method.check_adjacency(Adjacency.ADD_REMOVE)
    else:
        method.check_adjacency(Adjacency.ADD_REMOVE)


def test_an_unknown_method_is_named_with_a_suggestion() -> None:
    with pytest.raises(HalfmaskError, match="did you mean 'projected'"):
        method_named("project")


@pytest.mark.parametrize("batch", [41.0, 0.5, math.inf])
def test_a_batch_that_is_no_sampling_is_refused(batch: float) -> None:
    with pytest.raises(HalfmaskError, match="batch"):
        check_private_ready(METHODS["dpsgd"], 40, batch)
    check_private_ready(METHODS["dpsgd"], 40, 40)
    check_private_ready(METHODS["public-only"], 40, batch)
