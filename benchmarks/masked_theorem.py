"""What the masked paper's Theorem 4.1 says beside this library's accountants: `python -m benchmarks.masked_theorem`.

The theorem bounds one step by the Rényi divergence of the Poisson-sampled Gaussian at whole orders α, adds the steps up, and turns the sum
into ε. Its braces are one binomial sum, written in three pieces: the terms of l = 0 and 1 together, that of l = 2, and the rest. It is
about independent draws; a step in which the public half reads the people of the private batch is not covered by it (see `--shared-batch`
of `halfmask account`).

The RDP accountant here looks at the orders that dp-accounting does: between whole numbers below 11, which is why it is a little below the
theorem at large ε, and at none between 63 and 128 or 128 and 256, which is why it is a few percent above it at ε of 0.25 and less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy.special import gammaln, logsumexp

from halfmask.privacy.accounting import SampledGaussian, calibrate, epsilon

UNITS, BATCH, EPOCHS, DELTA = 56_000, 128, 150, 1e-6
EPSILONS = (0.1, 0.25, 0.5, 0.75, 1.0, 5.0)
ORDERS = range(2, 513)


def step_divergence(rate: float, noise_multiplier: float, order: int) -> float:
    """ε_t(α): a bound on the Rényi divergence of one step, with C = 1."""
    terms = np.arange(order + 1)
    binomial = gammaln(order + 1) - gammaln(terms + 1) - gammaln(order - terms + 1)
    draws = binomial + terms * math.log(rate) + (order - terms) * math.log1p(-rate)
    # l(l − 1)/2σ² is 0 for l = 0 and 1, and 1/σ² for l = 2: the three pieces of the theorem.
    return float(logsumexp(draws + terms * (terms - 1) / (2 * noise_multiplier**2))) / (order - 1)


def theorem_bound(units: int, batch: float, epochs: float, noise_multiplier: float, delta: float, orders: Iterable[int] = ORDERS) -> float:
    """ε by Theorem 4.1, over whole orders: the theorem's sum is defined for no others."""
    steps, rate = epochs * units / batch, batch / units

    def at(order: int) -> float:
        turned = math.log((order - 1) / order) - (math.log(delta) + math.log(order)) / (order - 1)
        return steps * step_divergence(rate, noise_multiplier, order) + turned

    return min(map(at, orders))


def main() -> None:
    steps, rate = math.ceil(EPOCHS * UNITS / BATCH), BATCH / UNITS
    print(f"N = {UNITS:,}, B = {BATCH}, {EPOCHS} epochs ({steps:,} steps), δ = {DELTA:g}; σ from --accountant rdp")
    print("| ε asked for | σ | Theorem 4.1 | --accountant rdp | --accountant pld | its σ by pld |\n|---|---|---|---|---|---|")
    for target in EPSILONS:
        sigma = calibrate(target, DELTA, rate, steps, accountant="rdp")
        plan = SampledGaussian(sigma, rate, steps)
        theirs, ours, tight = theorem_bound(UNITS, BATCH, EPOCHS, sigma, DELTA), epsilon([plan], DELTA, "rdp"), epsilon([plan], DELTA)
        print(
            f"| {target:g} | {sigma:.4f} | {theirs:.4f} | {ours:.4f} | {tight:.4f} | {calibrate(target, DELTA, rate, steps):.4f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
