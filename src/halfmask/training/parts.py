"""Who is who in a run: private people apart from everybody else, and public people divided among their uses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from halfmask.data.keyed import uniforms
from halfmask.data.overlaps import check_overlaps, recurring
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import Datasets, Records
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import Method, method_named
from halfmask.privacy.remote import protected_among
from halfmask.training.config import RunConfig
from halfmask.training.progress import Progress

# How many public people are kept aside to show how training goes. They are in no batch and in no basis.
WATCHED = 64


def parted(config: RunConfig, data: Datasets, progress: Progress) -> Datasets:
    """Someone cannot be both protected and public, or protected and scored openly: refuse such people, or leave them out."""
    parts = {"public": data.public, "basis": data.basis, "tuning": data.tuning, "test": data.test}
    others = {part: fingerprints_of(records) for part, records in parts.items() if records is not None and len(records)}
    if config.data.recurring == "leave-out":
        units = data.private.unit_ids(config.unit)
        again = np.isin(units, units[recurring(fingerprints_of(data.private), others, config.unit)])
        if again.any():
            progress.warn(f"{again.sum():,} private records recur in another part: they are left out, and not protected")
            data = replace(data, private=data.private.take(np.flatnonzero(~again)), recurring=int(again.sum()))
    for line in check_overlaps(fingerprints_of(data.private), others, config.unit, config.data.strangers):
        progress.warn(line)
    if "test" in others:
        elsewhere = sum(protected_among(others["test"]).values())
        if elsewhere:
            progress.warn(
                f"{elsewhere:,} of the test records show people whom another account here protects: their scores are not covered by any ε"
            )
    return data


def divide_public(config: RunConfig, data: Datasets, basis: Records | None) -> tuple[Records | None, Records | None, Records | None]:
    """Public people are divided into S_pub, the watched, and the rest: a person trained on gives no honest gradient or loss."""
    method = method_named(config.method)
    public = data.public
    if basis is None and data.basis is not None:
        if method.projected and len(data.basis) < config.subspace.samples:
            raise HalfmaskError(
                f"the subspace needs {config.subspace.samples} public people and data.splits.basis has {len(data.basis)}: lower "
                "subspace.samples"
            )
        basis = data.basis.take(np.arange(min(config.subspace.samples, len(data.basis)))) if config.subspace.samples else data.basis
    if public is None or not len(public):
        if method.projected and basis is None and config.subspace.samples:
            raise HalfmaskError(
                f"method '{config.method}' needs public people for its subspace and the dataset has none: add records with split 'public', "
                "or give some private ones up with subspace.source=private"
            )
        return basis, None, data.tuning
    wanted = config.subspace.samples if basis is None else 0
    if method.projected and len(public) < wanted:
        raise HalfmaskError(
            f"the subspace needs {wanted} public people and the dataset has {len(public)}: lower subspace.samples or add public records"
        )
    wanted = min(wanted, len(public))
    watched = 0 if data.tuning is not None else min(WATCHED, (len(public) - wanted) // 2)
    everyone = np.arange(len(public))
    if basis is None and wanted:
        basis = public.take(everyone[:wanted])
    return (
        basis,
        _after(public, wanted + watched),
        public.take(everyone[wanted : wanted + watched]) if watched else data.tuning,
    )


def _after(people: Records, start: int) -> Records | None:
    if not start:
        return people
    return people.take(np.arange(start, len(people))) if len(people) > start else None


def set_basis_apart(
    config: RunConfig, method: Method, data: Datasets, given_up: np.ndarray | None = None, of_public_people: np.ndarray | None = None
) -> tuple[Records, Records | None]:
    """With `subspace.source: private`, whole units leave the private set, become public, and span the subspace.

    Whoever is on their photographs leaves with them. Units that left in an earlier run are public for good: they leave again, whatever the
    method, and are the first to be used. The others are those for whose ids a public seed draws the smallest numbers: the choice looks at
    nobody, and whoever stays has no part in it.

    Args:
        given_up: which private records are public already, one flag each.
        of_public_people: which are of somebody who is, in this picture or in another.
    """
    private, wanted = data.private, config.subspace.samples
    known = np.zeros(len(private), bool) if given_up is None else given_up
    units, unit_of, sizes = np.unique(private.unit_ids(config.unit), return_inverse=True, return_counts=True)
    leave = known if of_public_people is None else known | of_public_people
    public = np.isin(np.arange(len(units)), unit_of[leave])
    leaving = public.copy()
    basis = np.flatnonzero(known)[:wanted]
    if method.projected and config.subspace.source == "private":
        names = np.full(len(units), np.iinfo(np.uint64).max, np.uint64)
        np.minimum.at(names, unit_of, private.ids)
        draws = uniforms(config.seed, "units of S_pub", 0, names)[:, 0]
        order = np.array([unit for unit in np.argsort(draws, kind="stable") if not public[unit]], np.int64)
        # A unit leaves whole, and as long as those before it are too few.
        before = len(basis) + np.cumsum(sizes[order]) - sizes[order]
        leaving[order[before < wanted]] = True
        fresh = np.flatnonzero(leaving[unit_of] & ~public[unit_of])
        basis = np.sort(np.concatenate([basis, fresh[: wanted - len(basis)]]))
        # A photograph that is public shows whoever else is on it.
        for kind in private.shown_together:
            ids = private.unit_ids(kind)
            leaving[unit_of[np.isin(ids, ids[basis])]] = True
    gone = leaving[unit_of]
    if gone.all():
        raise HalfmaskError(
            f"S_pub would take all {len(private)} private records, with those that earlier runs gave up: lower subspace.samples "
            f"({wanted}) or "
            "use public people"
        )
    stay = private.take(np.flatnonzero(~gone)) if gone.any() else private
    return stay, private.take(basis) if method.projected and config.subspace.source == "private" else None
