"""The audit of a method's mechanism: canaries through the real training, and the deterministic checks beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from halfmask.audit import checks
from halfmask.audit.canaries import FULL, Plan, Witness, quarantine, ready
from halfmask.audit.findings import Finding
from halfmask.audit.one_run import guess, largest_provable
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import METHODS, Method, method_named
from halfmask.privacy.accounting import check_budget
from halfmask.training.loop import Trainer

CANARIES, GUESSES, DELTA, P_VALUE = 1000, 200, 1e-6, 1e-3
# A second design, in which sampling hides people: at this rate a shared public batch costs the whole amplification.
_SAMPLED_BATCH, _SAMPLED_STEPS = 10, 1000
# A third, for projected methods: how many people there are, and how many of them leave to span the subspace.
_BASIS_UNITS, _BASIS_SAMPLES = 700, 300

CANNOT_SEE = (
    "a factor of two in σ by canaries alone (the noise variance is checked for that)",
    "a leak that only other records than these canaries set off, such as a fault in one layer's gradient rule (the engine's own tests do)",
    "the operating system's randomness: the audit runs the same generator from a seed",
    "directions outside the subspace of a projected method, where nothing is released",
    "what a person who runs the training looks at or keeps beside the released files",
)
# Options of the noised half that claim to leave ε as it is. Canaries need all other settings as the audit has them.
OPTIONS = ("private.residual", "private.follow", "subspace.project_first", "noise_sum_of_four")


@dataclass(frozen=True)
class Attack:
    """One run against canaries."""

    name: str
    canaries: int
    guesses: int
    right: int
    lower_bound: float
    refused: str = ""

    def withstood(self, epsilon: float) -> bool:
        """Whether the claim stands after it."""
        return self.lower_bound <= epsilon and not self.refused


def private_methods() -> list[str]:
    """Every method that promises something by noise, later ones too."""
    return [name for name, method in METHODS.items() if method.private == "noised"]


def audit_mechanism(
    methods: Sequence[str] | None = None,
    epsilon: float = 1.0,
    seed: int = 0,
    tell: Callable[[str], None] = lambda text: None,
    settings: Sequence[str] = (),
) -> dict[str, Any]:
    """Attack the mechanism of each method; the content of the audit's file.

    Args:
        settings: `key=value` of the `OPTIONS` to audit the methods with. By default each method that can have them is.

    Nothing of the user's is read or spent: the people are canaries, and ledgers and caches live in a folder that is thrown away.
    """
    check_budget(epsilon, DELTA)
    _check_settings(settings)
    chosen = [method_named(name) for name in methods or _methods_with(settings)]
    for method in chosen:
        if method.private != "noised":
            raise HalfmaskError(f"method '{method.name}' adds no noise, so there is no mechanism to audit: choose from {private_methods()}")
    plans = [Plan(method.name, epsilon, DELTA, CANARIES, CANARIES, 1, seed, tuple(settings)) for method in chosen]
    for plan in plans:
        plan.config()  # so that an option a method cannot have is refused before any other is audited
    results = []
    for plan in plans:
        tell(" ".join(("auditing", plan.method, *(["with", ", ".join(settings)] if settings else []))))
        with quarantine() as folder:
            results.append(_audit_method(plan, folder))
    ceiling = largest_provable(CANARIES, GUESSES, DELTA, P_VALUE)
    return {
        "audit": "mechanism",
        "epsilon_claimed": epsilon,
        "delta": DELTA,
        "p_value": P_VALUE,
        "largest_provable": round(ceiling, 3),
        "seed": seed,
        "settings": list(settings),
        "passed": all(result["passed"] for result in results),
        "methods": results,
        "confidence": f"a mechanism as private as claimed fails one attack with probability at most {P_VALUE:g}, and one check with about "
        f"{checks.FALSE_ALARM:g}",
        "cannot_see": [
            *CANNOT_SEE,
            *([f"an excess over a claim above {ceiling:.2f}: {GUESSES} guesses prove no more"] if epsilon > ceiling else []),
        ],
    }


def _check_settings(settings: Sequence[str]) -> None:
    for setting in settings:
        name = setting.partition("=")[0].strip()
        if name not in OPTIONS:
            raise HalfmaskError(
                f"--set {setting}: canaries can be sent through {', '.join(OPTIONS)}, and need all else as the audit has it"
            )


def _methods_with(settings: Sequence[str]) -> list[str]:
    """The methods that add noise and have a place for these options."""
    of_views = any(setting.startswith("private.residual") for setting in settings)
    of_subspaces = any(setting.startswith("subspace.") for setting in settings)
    methods = [METHODS[name] for name in private_methods()]
    return [m.name for m in methods if (m.view and not m.rest) >= of_views and m.projected >= of_subspaces]


def _audit_method(once: Plan, folder: Path) -> dict[str, Any]:
    method, epsilon, seed = method_named(once.method), once.epsilon, once.seed
    coins = np.random.default_rng(seed).random(CANARIES) < 0.5
    runs = {
        "once": _Run.of(once, coins, folder),
        "sampled": _Run.of(replace(once, batch=_SAMPLED_BATCH, steps=_SAMPLED_STEPS), coins, folder),
    }
    attacks = [_one_step(runs["once"]), _sampled(runs["sampled"])]
    if method.projected:
        # S_pub comes out of the private set: those who left are public, and no canaries.
        chosen = np.random.default_rng(seed + 1).random(_BASIS_UNITS) < 0.5
        settings = ("subspace.source=private", f"subspace.samples={_BASIS_SAMPLES}", f"subspace.dim={_BASIS_SAMPLES}")
        plan = replace(once, units=_BASIS_UNITS, batch=_BASIS_UNITS - _BASIS_SAMPLES, settings=(*once.settings, *settings))
        runs["basis"] = _Run.of(plan, chosen, folder)
        attacks.append(_basis(runs["basis"]))
    findings = _checks(method, once, runs, folder)
    return {
        "method": method.name,
        "epsilon_claimed": epsilon,
        "lower_bound": round(max(attack.lower_bound for attack in attacks), 3),
        "passed": all(attack.withstood(epsilon) for attack in attacks) and all(finding.passed for finding in findings),
        "attacks": [asdict(a) | {"lower_bound": round(a.lower_bound, 3), "passed": a.withstood(epsilon)} for a in attacks],
        "checks": [finding.to_json() for finding in findings],
    }


@dataclass(frozen=True)
class _Run:
    """A training over canaries, and everything that was released on the way; or why the trainer refused it."""

    trainer: Trainer
    witness: Witness
    coins: np.ndarray
    refused: str

    @classmethod
    def of(cls, plan: Plan, coins: np.ndarray, folder: Path) -> _Run:
        witness = Witness()
        bright = np.where(coins, FULL, 0)
        trainer = ready(plan, plan.canaries(bright, f"canaries/{hashlib.sha256(bright.tobytes()).hexdigest()}"), folder, witness)
        try:
            trainer.train()
        except HalfmaskError as error:
            return cls(trainer, witness, coins, str(error))
        return cls(trainer, witness, coins, "")

    def attack(self, name: str, scores: Callable[[], tuple[np.ndarray, np.ndarray]]) -> Attack:
        """Guess by the scores of the protected; a training that was refused leaves nothing to attack, and proves nothing."""
        if self.refused:
            return Attack(name, 0, 0, 0, 0.0, self.refused)
        score, present = scores()
        guesses = guess(score, present, min(GUESSES, len(score)))
        return Attack(name, guesses.canaries, guesses.made, guesses.right, guesses.lower_bound(DELTA, P_VALUE))


def _one_step(run: _Run) -> Attack:
    """Everyone takes part in one step; the attacker measures each canary's direction in it."""
    return run.attack("one step, everyone in it", lambda: (run.witness.along_canaries()[0], run.coins))


def _sampled(run: _Run) -> Attack:
    """Many steps over small secret batches.

    Where there is a public half, the attacker reads off it who is in the public batch, and listens for a canary in those steps alone:
    useless if the batches are independent, devastating if they are one.
    """
    setup = run.trainer.setup
    name = f"{setup.steps} sampled steps" + (", heard when the public half shows the canary" if setup.method.view else "")

    def scores() -> tuple[np.ndarray, np.ndarray]:
        heard = run.witness.along_canaries()
        if setup.method.view:
            noise = setup.noise_multiplier * run.trainer.noised.mechanism.clip_norm / setup.config.batch
            heard = heard * (run.witness.along_canaries(public=True) > 4 * noise)
        return heard.sum(0), run.coins

    return run.attack(name, scores)


def _basis(run: _Run) -> Attack:
    """The attacker knows who spans the subspace and looks for their directions: any who stayed protected are there for all to see."""

    def scores() -> tuple[np.ndarray, np.ndarray]:
        setup = run.trainer.setup
        assert setup.basis is not None
        protected = setup.private.units["image"]
        moves = np.abs(run.witness.along_canaries()[0][protected])
        # A direction of the basis moves by noise; any other does not move at all.
        moved = np.where(moves > 1e-3 * max(float(moves.max()), 1e-30), 1.0, -1.0)
        return np.where(np.isin(protected, setup.basis.units["image"]), moved, 0.0), run.coins[protected]

    return run.attack("S_pub from the private set", scores)


def _checks(method: Method, once: Plan, runs: dict[str, _Run], folder: Path) -> list[Finding]:
    # λ = 0 leaves the private half alone, so that a step can be measured.
    small = replace(once, units=12, batch=12, settings=(*once.settings, "public.weight=0"))
    trainer = ready(small, small.canaries(np.zeros(12, int), "canaries/step", np.zeros(12, int)), folder)
    trainer.refresh()
    findings = [
        checks.noise_variance(trainer),
        checks.extreme_gradients(trainer),
        checks.step_sensitivity(trainer, 12),
        checks.records_apart(trainer),
    ]
    quiet = replace(small, units=10, batch=2, steps=60)
    findings.append(checks.coupled_loss_refused(lambda: ready(small, small.canaries(np.full(12, 1), "canaries/coupled"), folder)))
    silent = _Run.of(quiet, np.zeros(10, bool), folder)
    findings += checks.constant_divisor(silent.witness, silent.trainer)
    findings.append(checks.poisson_coins(runs["sampled"].trainer))
    without, with_spot = (ready(small, small.canaries(np.full(12, bright), f"canaries/{bright}"), folder) for bright in (0, FULL))
    if method.view:
        findings.append(checks.public_batch_independent(runs["sampled"].trainer))
        findings.append(checks.public_half_fixed(without, with_spot))
    if small.config().private.follow > 0:
        without.refresh()
        with_spot.refresh()
        findings.append(checks.clip_norm_public(without, with_spot))
    if method.projected:
        findings.append(checks.basis_does_not_stretch(trainer))
        findings.append(checks.basis_apart(runs["basis"].trainer))
    return findings
