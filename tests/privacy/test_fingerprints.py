"""A dataset is recognised under another name, and its people's spending with it."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.privacy.account import Account
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.fingerprints import Fingerprints, fingerprint_images, key, overlapping
from halfmask.privacy.spends import Spend

SPEND = Spend("aa", "dpsgd", "zero-out", "crop", 40, 0, 9, 0.2, 3.0, 0.1, 8.0, "test")


def people(seed: int = 0, count: int = 40) -> np.ndarray:
    """Smooth pictures: those survive being stored with loss, as photographs do and noise does not."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (count, 9, 7, 3), dtype=np.uint8)
    return np.stack([cv2.resize(image, (48, 64), interpolation=cv2.INTER_CUBIC).transpose(2, 0, 1) for image in small])


def stored_with_loss(images: np.ndarray) -> np.ndarray:
    out = []
    for image in images:
        body = cv2.imencode(".jpg", image.transpose(1, 2, 0), [cv2.IMWRITE_JPEG_QUALITY, 85])[1]
        out.append(cv2.imdecode(body, cv2.IMREAD_COLOR).transpose(2, 0, 1))
    return np.stack(out)


COPIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "shuffled": lambda images: images[np.random.default_rng(1).permutation(len(images))],
    "a subset": lambda images: images[:5],
    "one of them": lambda images: np.concatenate([people(9), images[:1]]),
    "stored with loss": stored_with_loss,
    "brighter": lambda images: np.minimum(255, images * 0.9 + 20).astype(np.uint8),
}


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_gets_no_fresh_budget(copy: str, fresh_home: Path) -> None:
    first = Account(fingerprint_images(people()))
    first.pay(SPEND)
    second = Account(fingerprint_images(COPIES[copy](people())))
    assert second.spends() == [SPEND]
    assert second.total(1e-5, Adjacency.ZERO_OUT) == first.total(1e-5, Adjacency.ZERO_OUT) > 0
    assert (second.ledger.dataset == first.ledger.dataset) == (copy == "shuffled")


def test_strangers_share_nothing(fresh_home: Path) -> None:
    first = Account(fingerprint_images(people()))
    first.pay(SPEND)
    other = Account(fingerprint_images(people(seed=5)))
    assert other.related_names == [] and other.spends() == []
    assert other.total(1e-5, Adjacency.ZERO_OUT) == 0


def test_a_budget_holds_for_copies_too(fresh_home: Path) -> None:
    first = Account(fingerprint_images(people()))
    first.set_budget(4.0, 1e-5)
    first.pay(SPEND)
    copy = Account(fingerprint_images(people()[::2]))
    left = copy.check(SPEND)
    assert left is not None and 0 < left < 4.0
    much = replace(SPEND, first_step=0, last_step=999)
    for account in (first, copy):
        with pytest.raises(HalfmaskError, match="budget"):
            account.pay(much)
        with pytest.raises(HalfmaskError, match="without noise"):
            account.pay(replace(SPEND, noise_multiplier=0.0))
    assert first.spends() == [SPEND] == copy.spends(), "what was refused was not written down"


def test_fingerprints_are_kept_and_closed_to_others(fresh_home: Path) -> None:
    prints = fingerprint_images(people())
    prints.save(fresh_home)
    (path,) = fresh_home.glob("*.records")
    assert Fingerprints.load(path) == prints
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 == stat.S_IMODE((fresh_home / "fingerprint.key").stat().st_mode)
    assert overlapping(prints, fresh_home) == [], "a dataset is not its own relative"


def test_fingerprints_mean_nothing_without_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints, keys = [], []
    for name in ("one", "two"):
        monkeypatch.setenv("HALFMASK_HOME", str(tmp_path / name))
        keys.append(key())
        assert key() == keys[-1] and len(keys[-1]) == 32
        prints.append(fingerprint_images(people()))
    assert keys[0] != keys[1]
    assert not prints[0].exact & prints[1].exact and not prints[0].sketches & prints[1].sketches
    assert prints[0].dataset != prints[1].dataset


def test_a_key_that_was_never_written_is_not_used(fresh_home: Path) -> None:
    """A process that dies, or is overtaken, between making the file and filling it must not leave an empty key in use."""
    fresh_home.mkdir()
    (fresh_home / "fingerprint.key").touch(mode=0o600)
    try:
        found = key()
    except HalfmaskError:
        return
    assert len(found) == 32
