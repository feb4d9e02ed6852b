"""Recognising the people of a dataset, also under other bytes.

Each record keeps what its source image can be known again by: a keyed hash of its exact pixels, and an encrypted sketch that survives
re-encoding, resizing, mirroring and moderate cuts (`sketches` and `alignment` say how). They are kept beside the ledger, in private
storage. A dataset that shares a photograph with another one shares its spending, too: a copy, a re-export, another crop or a subset does
not get a fresh budget.

Without the key a fingerprint tells nothing about a picture. Sketches are sealed with a fresh nonce each, so that not even two sketches of
one picture show that they belong together; only equal pictures, annotations and subjects have equal hashes.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from filelock import FileLock

from halfmask.errors import HalfmaskError
from halfmask.privacy.alignment import same_pictures
from halfmask.privacy.guest import host
from halfmask.privacy.home import home
from halfmask.privacy.sketches import THUMBNAIL, WORDS, Sketches, sketch

_HASH = 16
_NONCE, _TAG = 12, 16
_BANDS = 2 * WORDS
_SEALED = _NONCE + 3 * WORDS + 2 + THUMBNAIL + _TAG
# Also what the key for sealing is derived from: sketches of another kind are never unsealed as these.
_MAGIC = b"halfmask records"
_VERSION = 2
# A pose of fewer points recurs by chance: a face of two eyes and a nose is like any other.
_FEWEST_POINTS = 6
# A synthetic world may give two people the same annotation. Copies share many: at least this many, and this share of the smaller dataset.
_FEWEST_ANNOTATIONS, _ANNOTATION_SHARE = 2, 0.05


def key() -> bytes:
    """This home's secret key, made on first use. Without it a fingerprint says nothing about a record.

    A guest of another home has that one's, in memory alone: by a key of its own it would name the same people differently.
    """
    visited = host()
    if visited is not None:
        return visited.key
    path = home() / "fingerprint.key"
    if not path.exists():
        # Written beside its place and linked there whole: a reader never sees a key that is not all there.
        draft = path.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}")
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(os.urandom(32))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    secret = path.read_bytes()
    if len(secret) != 32:
        raise HalfmaskError(
            f"the key {path} is damaged ({len(secret)} bytes, expected 32): restore it from a backup, or the ledgers are lost"
        )
    return secret


def keyed_hash(data: bytes, secret: bytes | None = None) -> bytes:
    """16 bytes that name `data` to whoever has the key."""
    return hmac.new(secret or key(), data, hashlib.sha256).digest()[:16]


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """One row per record: the source image it was cut from, its annotation, its subject. Bytes, so that they can be memory-mapped.

    Attributes:
        exact: N×16: keyed hash of the decoded image, or of a name where there is no image; never zero.
        bands: N×K: the sketch's words, which find candidates; encrypted, together with `sealed`. Zero where a record has no picture.
        sealed: N×S: the rest of the sketch, for the finer comparison, with the nonce before it. Zero where a record has no picture.
        annotations: N×16: keyed hash of the annotation; zero where there is none or it is too common to tell anyone by.
        subjects: N×16: keyed hash of the subject's id; zero where it is unknown.
    """

    exact: np.ndarray
    bands: np.ndarray
    sealed: np.ndarray
    annotations: np.ndarray
    subjects: np.ndarray

    def __post_init__(self) -> None:
        for name, width in _WIDTHS.items():
            found, expected = getattr(self, name), (len(self.exact), width)
            if found.shape != expected or found.dtype != np.uint8:
                raise HalfmaskError(f"the fingerprints' {name} are {found.dtype} {found.shape}, expected uint8 {expected}: make them anew")

    def __len__(self) -> int:
        return len(self.exact)

    def take(self, rows: np.ndarray) -> Fingerprints:
        """Those of some records."""
        return Fingerprints(**{name: array[rows] for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, np.ndarray]:
        """By name, for storing."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Fingerprints:
        """What `arrays` gave."""
        return cls(**{name: arrays[name] for name in _WIDTHS})

    @classmethod
    def stacked(
        cls,
        pictures: Sequence[dict[str, np.ndarray]],
        annotations: Sequence[np.ndarray] | None = None,
        subjects: Sequence[np.ndarray] | None = None,
    ) -> Fingerprints:
        """Of one row per record: what `fingerprint_picture` gave (or `exact` alone, for records known by name), and names."""
        columns: dict[str, Sequence[np.ndarray] | None] = {"annotations": annotations, "subjects": subjects}
        for name in ("exact", "bands", "sealed"):
            nothing = np.zeros(_WIDTHS[name], np.uint8)
            # Where nobody has a picture there is nothing to fill in, and zeros that nobody wrote take no memory.
            some = any(name in picture for picture in pictures)
            columns[name] = [picture.get(name, nothing) for picture in pictures] if some else None
        shapes = {name: (len(pictures), width) for name, width in _WIDTHS.items()}
        return cls(
            **{
                name: np.zeros(shape, np.uint8) if columns[name] is None else np.array(columns[name], np.uint8).reshape(shape)
                for name, shape in shapes.items()
            }
        )

    @classmethod
    def joined(cls, parts: Sequence[Fingerprints]) -> Fingerprints:
        """The records of all parts, one after the other."""
        nothing = {name: np.zeros((0, width), np.uint8) for name, width in _WIDTHS.items()}
        return cls(**{name: np.concatenate([nothing[name], *(part.arrays()[name] for part in parts)]) for name in _WIDTHS})

    @property
    def dataset(self) -> str:
        """A name for the set of source images, whatever their order, and however many records were cut from each."""
        return keyed_hash(hashlib.sha256(np.unique(_as_items(self.exact)).tobytes()).digest()).hex()

    def telling(self) -> Fingerprints:
        """Without annotations that occur on more than one picture: those tell nobody from anybody."""
        labels, which = np.unique(_as_items(self.annotations), return_inverse=True)
        pictures = np.unique(_as_items(self.exact), return_inverse=True)[1]
        occurrences = np.unique(np.column_stack([which, pictures]), axis=0)[:, 0]
        common = np.bincount(occurrences, minlength=len(labels))[which] > 1
        return replace(self, annotations=np.where(common[:, None], np.uint8(0), self.annotations))

    def in_pictures_of(self, other: Fingerprints) -> np.ndarray:
        """Which records show a photograph that `other` has, in whatever size, cut, encoding or mirror image, or have its annotation.

        One photograph is enough. Annotations count only if the two datasets share several, and not only by chance.
        """
        known = np.isin(_as_items(self.exact), _as_items(other.exact))
        unknown = self.take(np.flatnonzero(~known & self.bands.any(1)))._pictures()
        theirs = other.take(np.flatnonzero(other.bands.any(1)))._pictures()
        if len(unknown) and len(theirs):
            again = same_pictures(unknown._unsealed(), theirs._unsealed())[:, 0]
            known |= np.isin(_as_items(self.exact), _as_items(unknown.exact[again]))
        return known | self._in_annotations_of(other)

    def in_subjects_of(self, other: Fingerprints) -> np.ndarray:
        """Which records are of a subject that `other` has records of."""
        return _shared(self.subjects, other.subjects)

    def save(self, folder: Path) -> None:
        """Keep them beside the dataset's ledger: each record once, added to those that are there under the same name."""
        path = folder / f"{self.dataset}.records"
        # The same images may come with other annotations or subjects, and two runs may say so at once.
        with FileLock(f"{path}.lock", mode=0o600):
            known = [Fingerprints.load(path)] if path.exists() else []
            every = Fingerprints.joined([*known, self])._each_once()
            if known and len(every) == len(known[0]):
                return
            body = every._body()
            draft = path.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}.draft")
            try:
                with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                    file.write(body + _mac(body))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, path)
            finally:
                draft.unlink(missing_ok=True)
            _sync_folder(folder)

    @classmethod
    def load(cls, path: Path) -> Fingerprints:
        """Read what `save` wrote; whatever is not that, whole and unchanged, is refused, because it would hide what was spent."""
        whole = path.read_bytes()
        start, size = len(_MAGIC), hashlib.sha256().digest_size
        version = int.from_bytes(whole[start : start + 4], "big")
        if not whole.startswith(_MAGIC) or version != _VERSION:
            found = f"version {version}" if whole.startswith(_MAGIC) else "no version of it"
            raise HalfmaskError(
                f"{path} is {found} of Halfmask's records, expected version {_VERSION}: whether its people are yours cannot be told. "
                "Use the release that wrote it, or move it and its ledger away if nothing was spent there"
            )
        body, mac = whole[:-size], whole[-size:]
        count = int.from_bytes(whole[start + 4 : start + 12], "big")
        expected = start + 12 + count * sum(_WIDTHS.values())
        if len(body) != expected or not hmac.compare_digest(mac, _mac(body)):
            raise HalfmaskError(
                f"{path} was changed, cut or made with another key ({len(whole)} bytes, expected {expected + size} and a matching seal): "
                "restore it and fingerprint.key from a backup"
            )
        arrays, position = {}, start + 12
        for name, width in _WIDTHS.items():
            arrays[name] = np.frombuffer(body, np.uint8, count * width, position).reshape(count, width)
            position += count * width
        prints = cls(**arrays)
        if prints.dataset != path.stem:
            raise HalfmaskError(f"{path} holds the records of {prints.dataset}: it was renamed; give it that name again")
        return prints

    def _body(self) -> bytes:
        header = _MAGIC + _VERSION.to_bytes(4, "big") + len(self).to_bytes(8, "big")
        return header + b"".join(np.ascontiguousarray(array).tobytes() for array in self.arrays().values())

    def _each_once(self) -> Fingerprints:
        names = np.concatenate([self.exact, self.annotations, self.subjects], 1)
        return self.take(np.unique(_as_items(names), return_index=True)[1])

    def _pictures(self) -> Fingerprints:
        """One row per source image."""
        return self.take(np.unique(_as_items(self.exact), return_index=True)[1])

    def _in_annotations_of(self, other: Fingerprints) -> np.ndarray:
        mine, theirs = self.telling().annotations, other.telling().annotations
        shared = _shared(mine, theirs)
        alike = len(np.unique(_as_items(mine[shared])))
        enough = max(_FEWEST_ANNOTATIONS, _ANNOTATION_SHARE * min(len(self._each_once()), len(other._each_once())))
        return shared if alike >= enough else np.zeros(len(self), bool)

    def _unsealed(self) -> Sketches:
        cipher = _cipher(key())
        plain = np.empty((len(self), _BANDS + _SEALED - _NONCE - _TAG), np.uint8)
        for row, bands, sealed in zip(plain, self.bands, self.sealed, strict=True):
            try:
                body = cipher.decrypt(sealed[:_NONCE].tobytes(), bands.tobytes() + sealed[_NONCE:].tobytes(), None)
            except InvalidTag:
                raise HalfmaskError(
                    "a record's sketch was changed or sealed with another key: restore fingerprint.key, or remove the cached fingerprints"
                ) from None
            row[:] = np.frombuffer(body, np.uint8)
        places, sizes = plain[:, _BANDS : _BANDS + 3 * WORDS], plain[:, _BANDS + 3 * WORDS : -THUMBNAIL]
        words = np.ascontiguousarray(plain[:, :_BANDS]).view("<u2")
        return Sketches(words, places.reshape(-1, WORDS, 3), sizes, plain[:, -THUMBNAIL:])


_WIDTHS = {"exact": _HASH, "bands": _BANDS, "sealed": _SEALED, "annotations": _HASH, "subjects": _HASH}


def fingerprint_picture(image: np.ndarray, secret: bytes | None = None) -> dict[str, np.ndarray]:
    """One row (`exact`, `bands`, `sealed`) of a decoded source image, H×W×3 bytes in RGB."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise HalfmaskError(f"a picture to recognise is {image.dtype} {image.shape}, expected uint8 (height, width, 3): decode it as RGB")
    secret, image = secret or key(), np.ascontiguousarray(image)
    exact = hmac.new(secret, f"picture {image.shape}".encode(), hashlib.sha256)
    exact.update(image.data)
    seen = sketch(image)
    plain = b"".join(part.tobytes() for part in (seen.words.astype("<u2"), seen.places, seen.sizes, seen.thumbnails))
    nonce = os.urandom(_NONCE)
    sealed = np.frombuffer(_cipher(secret).encrypt(nonce, plain, None), np.uint8)
    return {
        "exact": _bytes(exact.digest()[:_HASH]),
        "bands": sealed[:_BANDS].copy(),
        "sealed": np.concatenate([_bytes(nonce), sealed[_BANDS:]]),
    }


def fingerprint_name(kind: str, name: str, secret: bytes | None = None) -> np.ndarray:
    """16 bytes for what is known by name (a subject, a synthetic person); names of different kinds never meet."""
    return _bytes(keyed_hash(f"name {len(kind)} {kind} {name}".encode(), secret))


def fingerprint_annotation(points: np.ndarray, secret: bytes | None = None) -> np.ndarray:
    """16 bytes of a pose (J×3: x, y, visibility), for equal annotations of a picture that was itself made unrecognisable.

    Zero if fewer than 6 points are labelled. Coordinates must be equal: a hash that forgave a little would be cut somewhere between two
    values that are nearly the same, and a resized picture's annotation would be lost to it as often as not.
    """
    points = np.asarray(points, np.float32)
    labelled = points[:, 2] > 0
    if labelled.sum() < _FEWEST_POINTS:
        return np.zeros(_HASH, np.uint8)
    # Where a point is not labelled its coordinates are whatever the file says; + 0 makes one zero of the two.
    where = np.where(labelled[:, None], points[:, :2], 0).astype("<f4") + np.float32(0)
    return _bytes(keyed_hash(b"annotation" + labelled.tobytes() + where.tobytes(), secret))


def fingerprint_images(images: Iterable[np.ndarray]) -> Fingerprints:
    """Of pictures one after the other, 3×H×W bytes each; without annotations and subjects."""
    secret = key()
    return Fingerprints.stacked([fingerprint_picture(image.transpose(1, 2, 0), secret) for image in images])


def _cipher(secret: bytes) -> AESGCM:
    return AESGCM(hmac.digest(secret, _MAGIC + b" sketch %d" % _VERSION, "sha256"))


def _mac(body: bytes) -> bytes:
    return hmac.digest(hmac.digest(key(), _MAGIC + b" seal", "sha256"), body, "sha256")


def _bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8).copy()


def _as_items(rows: np.ndarray) -> np.ndarray:
    """Each row as one thing, to be sorted and looked up."""
    rows = np.ascontiguousarray(rows)
    return rows.view(f"V{rows.shape[1]}").ravel()


def _shared(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Which of my names are among theirs; no name (zero) is not."""
    return np.asarray(mine.any(1) & np.isin(_as_items(mine), _as_items(theirs)))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
