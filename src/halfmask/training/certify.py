"""The certificate of a run, written from what the trainer did."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from halfmask.data.records import PoseRecords
from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.mechanism import Mechanism
from halfmask.privacy.accounting import epsilon
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.certificate import Certificate
from halfmask.privacy.fingerprints import fingerprint_images
from halfmask.privacy.sampling import PoissonSampler
from halfmask.training.setup import public_assumptions

if TYPE_CHECKING:
    from halfmask.training.loop import Trainer


def certificate_of(trainer: Trainer) -> Certificate:
    """The statement about what this run has paid for so far."""
    setup, config = trainer.setup, trainer.setup.config
    plan = setup.plan
    by_adjacency = {}
    for adjacency in Adjacency if plan is None else setup.method.adjacencies:
        if plan is None:
            by_adjacency[adjacency.value] = 0.0
        elif adjacency is not Adjacency.REPLACE_ONE or config.accountant == "pld":
            by_adjacency[adjacency.value] = epsilon(
                [replace(plan, steps=trainer.paid, adjacency=adjacency)], config.delta, config.accountant
            )
    return Certificate(
        method=setup.method.name,
        unit=config.unit,
        units=len(setup.units),
        adjacency=config.adjacency,
        epsilon=by_adjacency,
        delta=config.delta,
        accountant=config.accountant,
        noise_multiplier=setup.noise_multiplier,
        sampling_rate=setup.sampling_rate,
        steps=trainer.paid if plan is not None else trainer.step,
        planned_steps=setup.steps,
        clip_norm=trainer.mechanism.clip_norm,
        expected_batch=trainer.poisson.expected_batch,
        public_assumptions=public_assumptions(setup) + _moving_clip_norm(trainer),
        noise_source=trainer.mechanism.noise.source if setup.method.private == "noised" else "none",
        ledger_total=trainer.account.total(config.delta, Adjacency.parse(config.adjacency)),
        dataset_fingerprint=setup.data.fingerprints.dataset,
        related_datasets=trainer.account.related_names,
        public_record_hashes=_hashes(setup.basis) if setup.method.projected and config.subspace.source == "private" else [],
        unaccounted_reads=open_reads(trainer),
    )


def _moving_clip_norm(trainer: Trainer) -> list[str]:
    followed = trainer.clip_norms[1:]
    if not followed:
        return []
    span = f"from {min(followed):.4g} to {max(followed):.4g}"
    return [f"that the clip norm moved {span} with gradient norms of public people, and the noise, in proportion to it, with it"]


def open_reads(trainer: Trainer) -> list[str]:
    """Reads of private data that the mechanism does not cover: each of them voids the promise."""
    setup, config = trainer.setup, trainer.setup.config
    reads = list(config.declared_reads)
    if setup.method.private == "exact":
        reads.append("every training step read private records without clipping or noise")
    if config.unsafe_diagnostics and setup.method.private != "unread":
        reads.append("private losses and gradient norms were written down (unsafe_diagnostics)")
    for part, expected in ((trainer.mechanism, Mechanism), (trainer.poisson, PoissonSampler), (trainer.engine, ClippingEngine)):
        if type(part) is not expected:
            reads.append(f"the steps were taken with {type(part).__name__} in place of {expected.__name__}, whose promise is not known")
    if trainer.mechanism.expected_batch != trainer.poisson.expected_batch:
        reads.append("the divisor of the private sum was not the expected batch size")
    return reads


def _hashes(records: PoseRecords | None) -> list[str]:
    return [] if records is None else sorted(record.hex() for record in fingerprint_images(records.images).exact)
