"""Who is in a batch: fresh, secret, independent coins. N=1000, 10⁴ steps, rate 0.01; false alarms 1e-6."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from halfmask.errors import HalfmaskError
from halfmask.privacy.noise import RandomStream
from halfmask.privacy.sampling import PoissonSampler, PublicSampler

UNITS, STEPS, RATE = 1000, 10**4, 0.01
Draw = Callable[[], Tensor]


def poisson(seed: int = 0) -> PoissonSampler:
    return PoissonSampler(UNITS, RATE, RandomStream.seeded("coins", seed))


def public(seed: int = 0) -> PublicSampler:
    return PublicSampler(UNITS, round(UNITS * RATE), seed)


def total_is_right(draw: Draw) -> bool:
    return 98465 <= sum(len(draw()) for _ in range(STEPS)) <= 101543


def sizes_vary_right(draw: Draw) -> bool:
    sizes = torch.tensor([len(draw()) for _ in range(STEPS)], dtype=torch.float64)
    return abs(float(sizes.var()) - 9.9) <= 0.07 * 9.9


def every_unit_is_equal(draw: Draw) -> bool:
    """Inclusions of each unit ~ Bin(10⁴, 0.01); a thousand of them, so 1e-9 each: 6.2 standard deviations of ~9.95."""
    counts = torch.bincount(torch.cat([draw() for _ in range(STEPS)]), minlength=UNITS)
    return len(counts) == UNITS and bool(((counts - 100).abs() < 66).all())


def is_independent(pair: Callable[[], tuple[Tensor, Tensor]]) -> bool:
    """The people that a private and a public batch share are as many as chance makes them."""
    shared = 0
    for _ in range(STEPS):
        private, shown = pair()
        shared += int(torch.isin(private, shown).sum())
    return 849 <= shared <= 1158


def steps_are_independent(draw: Draw) -> bool:
    """A batch shares with the one before it as few people as with a stranger's."""
    previous = [draw()]

    def pair() -> tuple[Tensor, Tensor]:
        batch = draw()
        before, previous[0] = previous[0], batch
        return batch, before

    return is_independent(pair)


@pytest.mark.parametrize("check", [total_is_right, sizes_vary_right, every_unit_is_equal, steps_are_independent])
def test_private_batches_are_poisson(check: Callable[[Draw], bool]) -> None:
    assert check(poisson().draw)


def _fixed_size(seed: int = 0) -> Draw:
    generator = torch.Generator().manual_seed(seed)
    return lambda: torch.randperm(UNITS, generator=generator)[:10]


def _clustered() -> Draw:
    """All of a tenth of the units or none: right on average, coins shared."""
    generator = torch.Generator().manual_seed(0)

    def draw() -> Tensor:
        blocks = torch.nonzero(torch.rand(10, generator=generator) < RATE).flatten()
        return (blocks[:, None] * 100 + torch.arange(100)).flatten()

    return draw


def _stuck() -> Draw:
    batch = torch.arange(10)
    return lambda: batch


def _no_empty_batches() -> Draw:
    """Draws again until somebody is in; at a rate where a batch is often empty, that is a higher rate."""
    sampler = PoissonSampler(UNITS, 0.001, RandomStream.seeded("coins", 0))

    def draw() -> Tensor:
        while not len(batch := sampler.draw()):
            pass
        return batch

    return draw


FAULTS: dict[str, tuple[Callable[[Draw], bool], Callable[[], Draw]]] = {
    "fixed size": (sizes_vary_right, _fixed_size),
    "public sampler": (sizes_vary_right, lambda: public().draw),
    "clustered": (sizes_vary_right, _clustered),
    "twice the rate": (
        total_is_right,
        lambda: PoissonSampler(UNITS, 2 * RATE, RandomStream.seeded("coins", 0)).draw,
    ),
    "two per cent more": (
        total_is_right,
        lambda: PoissonSampler(UNITS, 1.02 * RATE, RandomStream.seeded("coins", 0)).draw,
    ),
    "stuck": (every_unit_is_equal, _stuck),
    "the same coins each step": (steps_are_independent, lambda: lambda: poisson().draw()),
    "an epoch's shuffle": (steps_are_independent, lambda: public().draw),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checks_see_planted_faults(fault: str) -> None:
    check, faulty = FAULTS[fault]
    assert not check(faulty())


@pytest.mark.parametrize("seed", [0, 7])
def test_the_public_batch_is_independent_of_the_private_one(seed: int) -> None:
    """Even when both are given the same number for a seed."""
    private, shown = poisson(seed), public(seed)
    assert is_independent(lambda: (private.draw(), shown.draw()))


def test_the_check_sees_a_shared_batch() -> None:
    private = poisson()

    def shared() -> tuple[Tensor, Tensor]:
        batch = private.draw()
        return batch, batch

    assert not is_independent(shared)


def test_the_check_sees_a_public_sampler_with_the_private_coins() -> None:
    private, shown = poisson(), poisson()
    assert not is_independent(lambda: (private.draw(), shown.draw()))


def test_empty_batches_occur() -> None:
    """At one unit expected, a batch is empty with probability e⁻¹; n=10⁴, six standard deviations."""

    def are_as_many_as_expected(draw: Draw) -> bool:
        empty = sum(not len(draw()) for _ in range(STEPS))
        return abs(empty - STEPS * (1 - 0.001) ** UNITS) < 6 * (STEPS * 0.37 * 0.63) ** 0.5

    assert are_as_many_as_expected(PoissonSampler(UNITS, 0.001, RandomStream.seeded("coins", 0)).draw)
    assert not are_as_many_as_expected(_no_empty_batches())


def test_indices_increase_and_are_units() -> None:
    sampler = poisson()
    for _ in range(50):
        batch = sampler.draw()
        assert batch.dtype == torch.long and (batch.diff() > 0).all()
        assert not len(batch) or (batch[0] >= 0 and batch[-1] < UNITS)


def test_everyone_enters_at_rate_one() -> None:
    sampler = PoissonSampler(5, 1.0, RandomStream.secure())
    assert all(sampler.draw().tolist() == [0, 1, 2, 3, 4] for _ in range(100))


def test_the_expected_batch_is_a_constant() -> None:
    sampler = poisson()
    values = set()
    for _ in range(20):
        sampler.draw()
        values.add(sampler.expected_batch)
    assert values == {UNITS * RATE}


@pytest.mark.parametrize(("units", "rate"), [(0, 0.5), (-1, 0.5), (10, 0.0), (10, -0.1), (10, 1.1), (10, float("nan"))])
def test_impossible_samplers_are_refused(units: int, rate: float) -> None:
    with pytest.raises(HalfmaskError):
        PoissonSampler(units, rate, RandomStream.seeded("coins", 0))


def test_nobody_public_is_refused() -> None:
    with pytest.raises(HalfmaskError, match="public"):
        PublicSampler(0, 4, 0)


def test_the_public_sampler_shows_everyone_once_an_epoch() -> None:
    sampler = PublicSampler(12, 4, seed=3)
    for _ in range(3):
        epoch = torch.cat([sampler.draw() for _ in range(3)])
        assert sorted(epoch.tolist()) == list(range(12))


def test_the_public_sampler_fills_a_batch_larger_than_the_dataset() -> None:
    batch = PublicSampler(3, 8, seed=0).draw()
    assert len(batch) == 8 and set(batch.tolist()) == {0, 1, 2}


def test_the_public_sampler_goes_on_from_its_state() -> None:
    first, second = PublicSampler(10, 3, seed=0), PublicSampler(10, 3, seed=99)
    for _ in range(4):
        first.draw()
    state = first.state()
    expected = [first.draw().tolist() for _ in range(8)]
    second.restore(state)
    assert [second.draw().tolist() for _ in range(8)] == expected


def test_the_public_sampler_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    PublicSampler(10, 3, seed=0).draw()
    assert torch.equal(before, torch.get_rng_state())
