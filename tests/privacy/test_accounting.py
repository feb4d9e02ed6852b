"""ε and σ against the numbers of the privacy page, and the plans that are refused."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

import pytest

import halfmask.privacy.accounting as accounting
from halfmask.errors import HalfmaskError
from halfmask.privacy.accounting import SampledGaussian, calibrate, check_budget, epsilon, steps_within
from halfmask.privacy.adjacency import Adjacency

MPII, MPII_DELTA = 22146, 4e-5
STEPS = {32: 17302, 256: 2163}
EPSILONS = (0.2, 0.4, 0.6, 0.8)
ZERO, REPLACE = Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE
MPII_TABLE = {
    (32, "pld", ZERO): (2.8621, 1.6417, 1.2365, 1.0384),
    (32, "rdp", ZERO): (3.1649, 1.7855, 1.3309, 1.1235),
    (32, "pld", REPLACE): (5.5285, 2.9611, 2.0609, 1.6032),
    (256, "pld", ZERO): (7.8792, 4.2733, 3.0168, 2.3773),
    (256, "rdp", ZERO): (8.7557, 4.7084, 3.3041, 2.5906),
    (256, "pld", REPLACE): (15.637, 8.3675, 5.8030, 4.4790),
}
MPII_ROWS = [
    (target, sigma, batch, accountant, adjacency)
    for (batch, accountant, adjacency), sigmas in MPII_TABLE.items()
    for target, sigma in zip(EPSILONS, sigmas, strict=True)
]
MASKED = ((0.1, 21.278), (0.25, 9.0598), (0.5, 4.7789), (0.75, 3.3155), (1, 2.5780), (5, 0.8569))
FACE = ((0.7, 3.9714), (5, 0.9303), (10, 0.6970))


def mpii(sigma: float, batch: int, adjacency: Adjacency = ZERO, visible: bool = False) -> SampledGaussian:
    return SampledGaussian(sigma, batch / MPII, STEPS[batch], adjacency, visible)


def sigma_is_right(plan: SampledGaussian, target: float, delta: float, accountant: str = "pld", tolerance: float = 0.005) -> bool:
    """The σ that costs exactly `target` lies within `tolerance` of the plan's: ε falls with σ, so look at both ends.

    The fine grid is dear where σ is small, and there a coarser one is as good.
    """
    grid = 2e-6 if target <= 0.1 else 1e-5 if plan.noise_multiplier > 1.3 else 1e-4

    def cost(factor: float) -> float:
        scaled = replace(plan, noise_multiplier=plan.noise_multiplier * factor)
        return epsilon([scaled], delta, accountant, grid)

    return cost(1 + tolerance) <= target <= cost(1 - tolerance)


@pytest.mark.parametrize(("target", "sigma", "batch", "accountant", "adjacency"), MPII_ROWS)
def test_noise_of_mpii(target: float, sigma: float, batch: int, accountant: str, adjacency: Adjacency) -> None:
    assert sigma_is_right(mpii(sigma, batch, adjacency), target, MPII_DELTA, accountant)


@pytest.mark.parametrize(("target", "sigma"), MASKED)
def test_noise_of_masked(target: float, sigma: float) -> None:
    assert sigma_is_right(SampledGaussian(sigma, 128 / 56000, 65625), target, 1e-6)


@pytest.mark.parametrize(("target", "sigma"), FACE)
def test_noise_of_face(target: float, sigma: float) -> None:
    assert sigma_is_right(SampledGaussian(sigma, 32 / 28000, 437500), target, 1e-5)


@pytest.mark.parametrize(("quoted", "true"), [(0.7, 0.78), (5, 5.70), (10, 11.5)])
def test_a_rate_of_more_regions_than_were_trained_on_hides_what_was_spent(quoted: float, true: float) -> None:
    """The face paper's q counts 40,000 regions, of which 28,000 were trained on."""
    sigma = calibrate(quoted, 1e-5, 32 / 40_000, 625_000, accountant="rdp")
    assert epsilon([SampledGaussian(sigma, 32 / 28_000, 437_500)], 1e-5, "pld", 1e-4) == pytest.approx(true, rel=0.005)


@pytest.mark.parametrize("factor", [0.5, 0.99, 1.01, 2.0])
def test_the_check_sees_a_wrong_sigma(factor: float) -> None:
    assert sigma_is_right(mpii(4.2733, 256), 0.4, MPII_DELTA)
    assert not sigma_is_right(mpii(4.2733 * factor, 256), 0.4, MPII_DELTA)


def test_the_check_sees_the_sensitivity_of_zero_out_used_for_replacement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = mpii(8.3675, 256, REPLACE)
    assert sigma_is_right(plan, 0.4, MPII_DELTA)
    assert not sigma_is_right(replace(plan, adjacency=ZERO), 0.4, MPII_DELTA)


def test_add_remove_costs_what_zero_out_costs() -> None:
    plan = mpii(4.2733, 256)
    added = replace(plan, adjacency=Adjacency.ADD_REMOVE)
    assert epsilon([added], MPII_DELTA, grid=1e-4) == epsilon([plan], MPII_DELTA, grid=1e-4)


@pytest.mark.parametrize(("adjacency", "expected"), [(ZERO, 35.1), (REPLACE, 107.0)])
def test_visible_batches_lose_the_amplification(adjacency: Adjacency, expected: float) -> None:
    seen = epsilon([mpii(1.0384, 32, adjacency, visible=True)], MPII_DELTA)
    assert seen == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("people", "expected"), [(1, 0.8), (2, 1.74), (3, 2.76)])
def test_what_a_promise_about_crops_is_worth_to_an_image(people: int, expected: float) -> None:
    plan = replace(mpii(1.0384, 32), group_size=people)
    assert epsilon([plan], MPII_DELTA, grid=5e-4) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(
    ("change", "accountant"),
    [({"adjacency": REPLACE}, "pld"), ({"visible_batches": True}, "pld"), ({"visible_batches": True}, "rdp")],
)
def test_groups_without_a_bound_are_refused(change: dict, accountant: str) -> None:
    with pytest.raises(HalfmaskError, match="groups"):
        epsilon([replace(mpii(2.0, 256), group_size=2, **change)], MPII_DELTA, accountant)
    with pytest.raises(HalfmaskError, match="group size"):
        replace(mpii(2.0, 256), group_size=0)


@pytest.mark.parametrize(("noise", "rate", "steps"), [(2.3773, 256 / 22146, 2163), (3.0, 0.2, 50)])
@pytest.mark.parametrize("people", [1, 2, 5])
def test_groups_by_renyi_divergence(noise: float, rate: float, steps: int, people: int) -> None:
    """A valid bound lies above the tight one, and not far; a group of one is what dp-accounting says of it."""
    plan = SampledGaussian(noise, rate, steps, group_size=people)
    found = accounting._epsilon_of_groups([plan], 1e-5)
    tight = epsilon([plan], 1e-5, grid=1e-3)
    assert 0.98 * tight < found < 1.3 * tight
    if people == 1:
        assert found == pytest.approx(epsilon([plan], 1e-5, "rdp"), rel=0.02)
    else:
        assert found == epsilon([plan], 1e-5, "rdp") > epsilon([replace(plan, group_size=people - 1)], 1e-5, "rdp")


def test_visible_batches_with_everyone_in_each_are_plain_gaussians() -> None:
    """With rate 1 sampling hides nothing anyway, so both accounts must agree."""
    plan = SampledGaussian(8.0, 1.0, 16)
    visible = epsilon([replace(plan, visible_batches=True)], 1e-5)
    assert visible == pytest.approx(epsilon([plan], 1e-5, grid=1e-4), rel=1e-3)


@pytest.mark.parametrize("plan", [SampledGaussian(3.0, 0.01, 1), SampledGaussian(3.0, 1e-7, 3)])
def test_visible_batches_never_cost_less_than_secret_ones(plan: SampledGaussian) -> None:
    visible = epsilon([replace(plan, visible_batches=True)], 1e-5)
    assert visible >= epsilon([plan], 1e-5, grid=1e-4) - 1e-4


def test_runs_compose_to_less_than_their_sum() -> None:
    plans = [mpii(sigma, 256) for sigma in MPII_TABLE[256, "pld", ZERO]]
    assert epsilon(plans, MPII_DELTA, grid=1e-4) == pytest.approx(1.16, abs=0.006)


@pytest.mark.parametrize(
    ("target", "batch", "accountant", "adjacency", "visible"),
    [
        (0.2, 256, "pld", ZERO, False),
        (0.4, 256, "pld", REPLACE, False),
        (0.8, 256, "rdp", ZERO, False),
        (8.0, 256, "pld", ZERO, True),
        (8.0, 256, "pld", REPLACE, True),
    ],
)
def test_calibration(target: float, batch: int, accountant: str, adjacency: Adjacency, visible: bool) -> None:
    """The returned σ never costs more than the target, and 0.5 % less noise would."""
    sigma = calibrate(target, MPII_DELTA, batch / MPII, STEPS[batch], adjacency, accountant, visible)
    plan = mpii(sigma, batch, adjacency, visible)
    assert epsilon([plan], MPII_DELTA, accountant) <= target
    assert epsilon([replace(plan, noise_multiplier=0.995 * sigma)], MPII_DELTA, accountant) > target
    if not visible:
        table = dict(zip(EPSILONS, MPII_TABLE[batch, accountant, adjacency], strict=True))
        assert sigma == pytest.approx(table[target], rel=0.005)


def test_calibration_ends_when_there_is_nothing_to_pay_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step costs nothing whatever the noise: the search for the smallest must stop, by refusing or with any σ."""
    real, calls = accounting.epsilon, []

    def counted(*arguments: object) -> float:
        calls.append(arguments)
        if len(calls) > 300:
            pytest.fail("calibrate searches for ever")
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(accounting, "epsilon", counted)
    with contextlib.suppress(HalfmaskError):
        assert calibrate(0.8, 1e-5, 0.1, steps=0) >= 0


def test_calibration_ends_when_delta_alone_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit drawn with a probability below δ needs no noise at all; the search must not follow σ to nothing and out of memory."""
    real = accounting.epsilon

    def watched(plans: list[SampledGaussian], *arguments: object) -> float:
        if plans[0].noise_multiplier < 0.005:
            pytest.fail("calibrate follows the noise to nothing")
        return real(plans, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(accounting, "epsilon", watched)
    with contextlib.suppress(HalfmaskError):
        assert calibrate(1.0, 1e-2, 0.001, steps=1) > 0


def test_no_steps_cost_nothing() -> None:
    assert epsilon([], 1e-5) == 0
    assert epsilon([SampledGaussian(1.0, 0.1, 0)], 1e-5) == 0
    assert epsilon([SampledGaussian(0.0, 0.1, 0)], 1e-5) == 0


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize("visible", [False, True])
def test_no_noise_is_no_privacy(accountant: str, visible: bool) -> None:
    bare = SampledGaussian(0.0, 0.01, 1, visible_batches=visible)
    assert epsilon([bare], 1e-5, accountant) == math.inf
    assert epsilon([SampledGaussian(5.0, 0.01, 10), replace(bare, visible_batches=False)], 1e-5) == math.inf


def test_more_of_anything_costs_more() -> None:
    plan = SampledGaussian(2.0, 0.01, 100)
    base = epsilon([plan], 1e-5, grid=1e-4)
    dearer = [
        replace(plan, steps=200),
        replace(plan, sampling_rate=0.02),
        replace(plan, noise_multiplier=1.0),
    ]
    assert all(epsilon([other], 1e-5, grid=1e-4) > base > 0 for other in dearer)
    assert epsilon([plan], 1e-6, grid=1e-4) > base


def test_rdp_has_no_account_of_replacement() -> None:
    with pytest.raises(HalfmaskError, match="replace-one"):
        epsilon([mpii(4.0, 256, REPLACE)], MPII_DELTA, "rdp")
    with pytest.raises(HalfmaskError, match="replace-one"):
        calibrate(0.8, MPII_DELTA, 0.01, 100, REPLACE, "rdp")


def test_mixed_adjacencies_do_not_compose() -> None:
    with pytest.raises(HalfmaskError, match="compose"):
        epsilon([mpii(4.0, 256), mpii(4.0, 256, REPLACE)], MPII_DELTA)


def test_several_visible_runs_are_refused() -> None:
    with pytest.raises(HalfmaskError, match="visible"):
        epsilon([mpii(4.0, 256, visible=True)] * 2, MPII_DELTA)


def test_unknown_accountant_is_named_with_a_suggestion() -> None:
    with pytest.raises(HalfmaskError, match="did you mean 'pld'"):
        epsilon([mpii(4.0, 256)], MPII_DELTA, "plds")


@pytest.mark.parametrize("target", [0.0, -1.0, math.nan, math.inf])
def test_a_budget_that_means_nothing_is_refused(target: float) -> None:
    with pytest.raises(HalfmaskError, match="epsilon"):
        check_budget(target, 1e-5)
    with pytest.raises(HalfmaskError, match="epsilon"):
        calibrate(target, 1e-5, 0.1, 10)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan])
def test_a_delta_that_means_nothing_is_refused(delta: float) -> None:
    with pytest.raises(HalfmaskError, match="delta"):
        calibrate(0.8, delta, 0.1, 10)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0001, math.nan])
def test_a_rate_that_is_no_probability_is_refused(rate: float) -> None:
    with pytest.raises(HalfmaskError, match="sampling rate"):
        calibrate(0.8, 1e-5, rate, 10)


@pytest.mark.parametrize("sigma", [-1.0, math.nan, math.inf])
def test_noise_that_is_no_number_is_refused(sigma: float) -> None:
    with pytest.raises(HalfmaskError, match="noise multiplier"):
        SampledGaussian(sigma, 0.1, 10)


def test_negative_steps_are_refused() -> None:
    with pytest.raises(HalfmaskError, match="steps"):
        SampledGaussian(1.0, 0.1, -1)


@pytest.mark.parametrize("word", ["add-remove", "zero-out", "replace-one"])
def test_sensitivity_by_adjacency(word: str) -> None:
    adjacency = Adjacency.parse(word)
    assert adjacency.sensitivity(0.3) == pytest.approx(0.6 if word == "replace-one" else 0.3)


def test_unknown_adjacency_is_named_with_a_suggestion() -> None:
    with pytest.raises(HalfmaskError, match="did you mean 'zero-out'"):
        Adjacency.parse("zeroout")


def test_fixed_noise_lasts_for_as_many_steps_as_the_budget_allows() -> None:
    plan = SampledGaussian(noise_multiplier=2.0, sampling_rate=0.02, steps=4000)
    allowed = steps_within(1.0, 1e-5, plan)
    assert 0 < allowed < 4000
    assert epsilon([replace(plan, steps=allowed)], 1e-5) <= 1.0 < epsilon([replace(plan, steps=allowed + 1)], 1e-5)
    # Where the budget is larger than the plan, the plan is what is taken; where one step is too dear, none is.
    assert steps_within(20.0, 1e-5, plan) == 4000
    assert steps_within(0.1, 1e-5, SampledGaussian(noise_multiplier=0.2, sampling_rate=0.5, steps=10)) == 0
