"""Items of a dataset of the user's own: taken apart into named arrays, read twice, and known again whoever brings them.

An item is a dict or a tuple, nested as one likes, of tensors, arrays and numbers. A batch for the user's loss has the same build, with a
tensor of as many rows in the place of each of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfmask.data.prints import TELLING, print_record
from halfmask.data.records import Records
from halfmask.data.tables import Arrays, FromDataset
from halfmask.errors import HalfmaskError
from halfmask.privacy.fingerprints import Fingerprints, fingerprint_name, key, keyed_hash
from halfmask.privacy.units import told_by_id
from halfmask.words import a_or_an

Report = Callable[[str, int, int], None]

RECORD = "record"


@dataclass(frozen=True)
class Form:
    """How items are built.

    Attributes:
        build: a nested dict or tuple with the name of a field in each place, or None where text stands, which no tensor can hold.
    """

    build: Any

    def apart(self, item: Any) -> dict[str, np.ndarray]:
        """An item's fields by name, as arrays."""
        return {name: array(value, name) for name, value in leaves(item) if not isinstance(value, str)}

    def without(self, field: str) -> Any:
        """The build, but for one field that items may do without."""
        return _without(self.build, field, "")

    def together(self, batch: Mapping[str, Tensor]) -> Any:
        """A batch of fields in the build of an item."""
        return _filled(self.build, batch)


def form_of(item: Any) -> Form:
    """The build of an item."""
    if not isinstance(item, (dict, tuple, list)):
        raise HalfmaskError(
            f"an item of the dataset is {a_or_an(type(item).__name__)}: expected a dict or a tuple of tensors, arrays or numbers"
        )
    form = Form(_named(item, ""))
    form.apart(item)
    return form


def read_items(dataset: Any, unit: str, name: str, most: int | None = None, report: Report | None = None) -> tuple[Records, Form]:
    """The records of a dataset, after every item was fetched twice.

    An item that differs from one reading to the next (a random transform, a dataset that shuffles itself) would be another record in each
    run, with a budget of its own each time; and ψ of it would show something new each time.

    Args:
        unit: the field whose values name the units, or `record`.
        name: what the dataset is called in messages.
        most: the most records that a unit may have.
    """
    count = _length(dataset, name)
    form = form_of(dataset[0])
    if unit != RECORD and not told_by_id(unit):
        raise HalfmaskError(f"a unit called '{unit}' is taken to be told by its content, not by an id: call the field '{unit}_id', say")
    if unit == RECORD and any(field == RECORD for field, _ in leaves(dataset[0])):
        raise HalfmaskError(f"items of {name} have a field '{RECORD}', and the unit of that name is each record alone: rename the field")
    shapes = {field: (value.dtype, value.shape) for field, value in form.apart(dataset[0]).items()}
    digests, prints, owners = [], [], []
    secret = key()
    for row in range(count):
        item = dataset[row]
        fields = _fields(item, form, shapes, row, name)
        owner = _owner(item, unit, row, name)
        digests.append(_digest(fields, owner))
        prints.append(print_record(fields, owner, secret))
        owners.append(owner)
        if report and (row % 200 == 199 or row + 1 == count):
            report(f"reading {name} items", row + 1, 2 * count)
    for row in range(count):
        item = dataset[row]
        if _digest(_fields(item, form, shapes, row, name), _owner(item, unit, row, name)) != digests[row]:
            raise HalfmaskError(
                f"item {row} of {name} was another one when it was fetched again: a dataset that draws or shuffles at random has no fixed "
                "records to account for. Give it without random transforms, in one fixed order"
            )
        if report and (row % 200 == 199 or row + 1 == count):
            report(f"reading {name} items", count + row + 1, 2 * count)

    def check(place: int, item: Any) -> None:
        if _digest(_fields(item, form, shapes, place, name), _owner(item, unit, place, name)) != digests[place]:
            raise HalfmaskError(
                f"item {place} of {name} is no longer what it was when it was accounted for: give a dataset that stays as it is"
            )

    subjects = None if unit == RECORD else [fingerprint_name(unit, owner, secret) for owner in owners]
    found = Fingerprints.stacked(prints, subjects=subjects)
    # The same record twice is one unit: two coins and two clips would be twice what was promised. Not where records are so small that
    # equal ones are no sign of one person.
    telling = max(int(np.prod(shape)) for _, shape in shapes.values()) >= TELLING
    named = np.array(owners) if unit != RECORD else found.exact if telling else np.arange(count)
    ids, sizes = np.unique(named, axis=0, return_inverse=True, return_counts=True)[1:]
    units = {unit: ids.reshape(-1)}
    largest = int(sizes.max())
    if most is not None and largest > most:
        says = f"the same record is {largest} times in {name}" if unit == RECORD else f"one {unit} of {name} has {largest} records"
        raise HalfmaskError(f"{says} and records_per_unit is {most}: raise it, or give a dataset with fewer of each")
    records = Records(
        private=FromDataset(dataset, form.apart, check=check),
        targets=Arrays({}),
        units=units,
        key=f"own/{keyed_hash(hashlib.sha256(b''.join(digests)).digest(), secret).hex()}",
        prints=found,
    )
    return records, form


def leaves(item: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of an item with their names: keys and places, with dots between."""
    if isinstance(item, dict):
        for key_, value in item.items():
            yield from leaves(value, f"{path}.{key_}" if path else str(key_))
    elif isinstance(item, (tuple, list)):
        for place, value in enumerate(item):
            yield from leaves(value, f"{path}.{place}" if path else str(place))
    else:
        yield path, item


def array(value: Any, name: str) -> np.ndarray:
    """A field as an array; numbers become single precision or whole numbers."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, bool):
        return np.asarray(value)
    if isinstance(value, (int, float)):
        return np.asarray(value, np.int64 if isinstance(value, int) else np.float32)
    found = np.asarray(value) if hasattr(value, "__array__") else None
    if found is None or found.dtype.kind not in "biuf":
        raise HalfmaskError(f"the field '{name}' of an item is {a_or_an(type(value).__name__)}: expected a tensor, an array or a number")
    return found


def _length(dataset: Any, name: str) -> int:
    try:
        count = len(dataset)
    except TypeError:
        raise HalfmaskError(f"{name} has no length: expected a map-style dataset, with len() and an item for each index") from None
    if not count:
        raise HalfmaskError(f"{name} is empty: there is nobody to learn from")
    return int(count)


def _fields(item: Any, form: Form, shapes: Mapping[str, tuple[np.dtype, tuple[int, ...]]], row: int, name: str) -> dict[str, np.ndarray]:
    fields = form.apart(item)
    if fields.keys() != shapes.keys():
        raise HalfmaskError(f"item {row} of {name} has the fields {', '.join(fields)}: expected those of item 0, {', '.join(shapes)}")
    for field, value in fields.items():
        if (value.dtype, value.shape) != shapes[field]:
            kind, shape = shapes[field]
            raise HalfmaskError(
                f"the field '{field}' of item {row} of {name} is {value.dtype} {value.shape}, and of item 0 {kind} {shape}: items of one "
                "dataset need one shape. Resize or pad them"
            )
    return fields


def _owner(item: Any, unit: str, row: int, name: str) -> str:
    """Whom an item belongs to; nobody in particular where each record is a unit."""
    if unit == RECORD:
        return ""
    for field, value in leaves(item):
        if field == unit:
            if isinstance(value, str) and value:
                return value
            found = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
            if found.size == 1 and found.dtype.kind in "biu":
                return str(int(found))
            raise HalfmaskError(
                f"the field '{unit}' of item {row} of {name} is {found.dtype} of shape {found.shape}: expected a whole number or a name, "
                "to say whose it is"
            )
    known = ", ".join(f"'{field}'" for field, _ in leaves(item))
    raise HalfmaskError(
        f"item {row} of {name} has no field '{unit}', only {known}: name the field that says whose a record is, or protect each 'record'"
    )


def _digest(fields: Mapping[str, np.ndarray], owner: str) -> bytes:
    digest = hashlib.sha256(owner.encode())
    for name, value in fields.items():
        digest.update(f"{name} {value.dtype} {value.shape} ".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.digest()


def _named(item: Any, path: str) -> Any:
    if isinstance(item, dict):
        return {name: _named(value, f"{path}.{name}" if path else str(name)) for name, value in item.items()}
    if isinstance(item, (tuple, list)):
        return tuple(_named(value, f"{path}.{place}" if path else str(place)) for place, value in enumerate(item))
    return None if isinstance(item, str) else path


def _without(build: Any, field: str, path: str) -> Any:
    if isinstance(build, dict):
        inner = {name: (part, f"{path}.{name}" if path else str(name)) for name, part in build.items()}
        return {name: _without(part, field, way) for name, (part, way) in inner.items() if way != field}
    if isinstance(build, tuple):
        ways = [f"{path}.{place}" if path else str(place) for place in range(len(build))]
        return tuple(_without(part, field, way) for part, way in zip(build, ways, strict=True) if way != field)
    return build


def _filled(build: Any, batch: Mapping[str, Any]) -> Any:
    if isinstance(build, dict):
        return {name: _filled(part, batch) for name, part in build.items()}
    if isinstance(build, tuple):
        return tuple(_filled(part, batch) for part in build)
    # A part without ids is built without them.
    return None if build is None else batch.get(build)


def some_items(dataset: Any, form: Form, count: int) -> dict[str, Tensor]:
    """The fields of a dataset's first items as a batch."""
    items = [form.apart(dataset[row]) for row in range(min(count, len(dataset)))]
    return {name: torch.from_numpy(np.stack([item[name] for item in items])) for name in items[0]}
