"""What a certificate says is assumed public."""

from __future__ import annotations

from halfmask.privacy.units import told_by_id
from halfmask.training.setup import Setup


def public_assumptions(setup: Setup) -> list[str]:
    """What the certificate says is assumed public."""
    config, weights = setup.config, getattr(setup.config.model, "weights", None)
    lines = [
        f"the number of private units ({len(setup.units):,}), the sampling rate and every hyper-parameter",
        "the initial weights and the data they were pre-trained on"
        + (f" (model weights: {weights})" if weights and config.strategy != "scratch" else ""),
    ]
    if config.rehearsal:
        lines.insert(
            0,
            "this was a **rehearsal**: the views of private people, which are public, took the place of their images, and one in nine "
            "of them was the test set. No private image was read; nothing here speaks of a model that was trained on images",
        )
    if setup.method.view:
        lines += [
            f"ψ of every private record: {setup.view.describe()}",
            f"the labels of every private record: {setup.task.labels} (they are **not** protected by this method)",
        ]
    elif setup.task.stays:
        lines.append(f"of every private record: {setup.task.stays} (they are **not** protected)")
    if setup.method.projected and setup.basis is not None:
        source = "taken out of the private set and not protected" if config.subspace.source == "private" else "public people"
        lines.append(f"S_pub: {len(setup.basis)} records with their labels, {source}")
    chosen_on_watched = (setup.method.projected and not config.subspace.dim) or config.private.follow > 0 or config.private.calibrate
    if setup.watched is not None and setup.method.private == "noised" and chosen_on_watched:
        lines.append(f"{len(setup.watched)} public people on whom settings were chosen along the way")
    if setup.method.view and setup.raw_public is not None and config.public.raw_share > 0:
        lines.append(f"{len(setup.raw_public)} raw images of public people with their labels")
    if setup.data.recurring:
        lines.append(
            f"{setup.data.recurring} private records whose photograph or subject another part has too: they were left out, and are not "
            "protected"
        )
    if told_by_id(config.unit) and config.data.strangers:
        parts = " and ".join(f"'{part}'" for part in config.data.strangers)
        lines.append(f"that nobody in {parts} is a protected {config.unit}: declared by the data holder, and not checked, for want of ids")
    if setup.method.private == "noised":
        lines.append(setup.group.wire)
    lines += setup.task.public_facts(setup.data)
    lines.append("the test set on which the metrics were measured")
    return lines
