"""What may be computed once because it does not change: the output of the frozen part of a network."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from halfmask.data.keyed import uniforms
from halfmask.data.records import PRIVATE, REST, VIEW, Records
from halfmask.data.store import Draft, cached_by_row, let_go, rows_to_let_go_after
from halfmask.data.tables import Arrays
from halfmask.tasks.base import MIRROR, Batch, Lower, Task
from halfmask.tasks.groups import ShowingSettings

Progress = Callable[[int, int], None]
# What is done to some of the records before the network sees them.
Change = Callable[[Batch, np.ndarray], Batch]

# Records go through the network by as many at a time as this, never fewer: a matrix product of other dimensions may round differently,
# and what is computed for a person would depend on how many others there are.
_AT_ONCE = 32
# Copies are the same for every run, whatever its seed, so that they are made once.
_COPY_SEED = 0x5EED
# Part of every copy's key: copies that were drawn otherwise are not found again.
_COPY_VERSION = 3


@torch.no_grad()
def with_lower_features(
    records: Records,
    task: Task,
    lower: Lower,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
    copies: int = 0,
    mirrored: bool = False,
    views_too: bool = True,
    whole: bool = False,
) -> Records:
    """The records with the frozen lower part's output for every private part and view, computed once and kept in private storage.

    Keyed by the weights that made them and the data they were made from, and kept in half precision.

    Args:
        copies: of each record also as many copies, after fixed random changes (the same for a record and its view).
        mirrored: of each record also its mirror image, for scoring.
        views_too: make copies of views as well.
        whole: of the whole private part too, where the private half is shown what a view leaves of it: a loss is watched on that.
    """
    mirror = lower.mirror if mirrored else None
    sources = list(dict.fromkeys([records.shown] + [PRIVATE] * whole)) + [VIEW] * (records.public is not None)
    copied = [source for source in sources if source != VIEW or views_too]
    total = len(records) * (len(sources) + (mirror is not None) + copies * len(copied))
    done = 0

    def report(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(done, total)

    features = {source: _features(records, source, lower, device, _content(records, source), report) for source in sources}
    if mirror is not None:
        seen = mirror
        content = f"{records.key}/{MIRROR}"
        features[MIRROR] = _features(records, records.shown, lower, device, content, report, lambda batch, _: seen(batch))
    made = tuple(_copy(records, task, lower, device, number, copied, report) for number in range(copies))
    return replace(records, features=features, copies=made)


def _features(
    records: Records,
    source: str,
    lower: Lower,
    device: torch.device | str,
    content: str,
    report: Callable[[int], None],
    change: Change | None = None,
) -> np.ndarray:
    """The lower part's output for every record after a change; `content` names records and change."""

    def write(draft: Draft) -> None:
        field = None
        for rows in _pass_over(records, source):
            batch = _seen(records, rows, source)
            batch = batch if change is None else change(batch, rows)
            full = {name: torch.cat([value, value.new_zeros(_AT_ONCE - len(rows), *value.shape[1:])]) for name, value in batch.items()}
            found = _halved(lower.features({name: value.to(device) for name, value in full.items()})[: len(rows)].cpu())
            if field is None:
                field = draft.fields({"features": (found.dtype, found.shape[1:])}, len(records))["features"]
            if found.dtype.itemsize > field.kind.itemsize:
                # Somebody's do not fit into what was enough for those before, who keep theirs as they are.
                field.widen(found.dtype)
            field[int(rows[0]) : int(rows[-1]) + 1] = found
            report(len(rows))

    return cached_by_row("features", f"{content}/{_way(lower)}", write)["features"]


def features_key(records: Records, source: str, lower: Lower) -> str:
    """What the features of a source are kept under, of records as they are."""
    return f"{_content(records, source)}/{_way(lower)}"


def _way(lower: Lower) -> str:
    return f"{lower.key}/half/{_AT_ONCE}"


def _pass_over(records: Records, source: str) -> Iterator[np.ndarray]:
    """All rows, some at a time; what was read of them on the way is let go."""
    read = (records.part(source), records.targets)
    every = rows_to_let_go_after(*read)
    for start in range(0, len(records), _AT_ONCE):
        yield np.arange(start, min(start + _AT_ONCE, len(records)))
        if start // every != (start + _AT_ONCE) // every or start + _AT_ONCE >= len(records):
            let_go(*read)


def _seen(records: Records, rows: np.ndarray, source: str) -> Batch:
    """A batch of the fields themselves: never of features that are known already."""
    fields = records.targets.rows(rows) | records.part(source).rows(rows)
    return {name: torch.from_numpy(value) for name, value in fields.items()}


def _copy(
    records: Records,
    task: Task,
    lower: Lower,
    device: torch.device | str,
    number: int,
    sources: list[str],
    report: Callable[[int], None],
) -> Records:
    """The records after random changes, each drawn by the record's own id."""
    numbers = uniforms(_COPY_SEED, "copies", number, records.ids, count=task.numbers)

    def change(batch: Batch, rows: np.ndarray) -> Batch:
        return task.change(records, batch, torch.from_numpy(numbers[rows]))

    kind = f"copy{number}/{_COPY_VERSION}/{_digest(numbers)}/{_how_changed(task)}"
    features = {
        source: _features(records, source, lower, device, f"{_content(records, source)}/{kind}", report, change) for source in sources
    }
    return replace(records, features=features, targets=_changed_targets(records, change), copies=())


def _how_changed(task: Task) -> str:
    """What a task itself can be told about its changes: copies that were lit or mirrored otherwise are other copies."""
    known = {one.name for one in dataclasses.fields(ShowingSettings)}
    return repr(
        {one.name: getattr(task.config.augment, one.name) for one in dataclasses.fields(task.config.augment) if one.name not in known}
    )


def _changed_targets(records: Records, change: Change) -> Arrays:
    """What the losses of changed records compare with. They are small, and so kept in memory."""
    names, parts = records.targets.shapes(), []
    for start in range(0, len(records), _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, len(records)))
        fields = {name: torch.from_numpy(value) for name, value in records.targets.rows(rows).items()}
        # Only the shapes of the private part are looked at: where a label goes does not depend on what is seen.
        shapes = records.part(records.shown).shapes()
        fields |= {name: torch.zeros(len(rows), *shape) for name, (_, shape) in shapes.items()}
        parts.append({name: value.numpy() for name, value in change(fields, rows).items() if name in names})
    return Arrays({name: np.concatenate([part[name] for part in parts]) for name in names})


def _halved(features: Tensor) -> np.ndarray:
    """Each record's in half precision, unless that would not hold the largest of its own: nobody is rounded by what others need."""
    short = features.half()
    fits = torch.isfinite(short).flatten(1).all(1)
    if bool(fits.all()):
        return short.numpy()
    return torch.where(fits.view(-1, *[1] * (features.dim() - 1)), short.float(), features).numpy()


def _content(records: Records, source: str) -> str:
    if source not in (VIEW, REST):
        return f"{records.key}/{source}"
    return f"{records.key}/{records.view_key or _digest_of(records, source)}/{source}"


def _digest_of(records: Records, source: str) -> str:
    digest = hashlib.sha256()
    for rows in _pass_over(records, source):
        for row in rows:
            for value in records.part(source).rows(np.array([row])).values():
                digest.update(value.tobytes())
    return digest.hexdigest()[:16]


def _digest(rows: np.ndarray) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(row.tobytes())
    return digest.hexdigest()[:16]
