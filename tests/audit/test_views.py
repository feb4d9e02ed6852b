"""What a view gives away: a lot, if it is the image; nothing, if it is constant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import halfmask.audit.views as views
from halfmask.audit.networks import fit_restorer, restored
from halfmask.errors import HalfmaskError

pytestmark = pytest.mark.usefixtures("one_thread")
SHORT = replace(views.QUICK, crops=90, subjects=6, restorer_steps=2)


def coloured(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Four people, told apart by the colour of their clothes."""
    rng = np.random.default_rng(seed)
    who = np.arange(count) % 4
    colours = np.array([[220, 40, 40], [40, 220, 40], [40, 40, 220], [200, 200, 40]])
    images = rng.integers(60, 120, (count, 3, 64, 48))
    images[:, :, 20:50, 12:36] = colours[who][:, :, None, None] + rng.integers(-20, 20, (count, 3, 30, 24))
    return images.clip(0, 255).astype(np.uint8), who


def test_the_restorer_beats_the_view() -> None:
    truth, _ = coloured(60, 0)
    dark = (truth * 0.5).astype(np.uint8)
    network = fit_restorer(dark[:40], truth[:40], 50, 0)

    def error(found: np.ndarray) -> float:
        return float(np.mean((found.astype(float) - truth[40:]) ** 2))

    assert error(restored(network, dark[40:])) < 0.5 * error(dark[40:])


def test_constant_is_at_chance() -> None:
    body = views.audit_views(["constant"], SHORT)
    image, constant = body["rows"]
    assert body["subjects"] == 6 and body["pictures_to_name"] == 12
    assert constant["identity"]["value"] == pytest.approx(1 / 6, abs=1e-4), "everyone gets the same name"
    assert constant["identity"]["low"] <= body["chance"] <= constant["identity"]["high"]
    assert "restored" not in image and "restored" in constant and "pose" not in constant


def test_several_trainings_have_a_mean_and_a_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    real = views.fit_recogniser
    monkeypatch.setattr(views, "fit_recogniser", lambda *a: seeds.append(a[-1]) or real(*a))
    body = views.audit_views(["blur"], SHORT, seed=3, runs=2)
    assert seeds == [3, 4] * 5 and body["runs"] == 2 and "mean of 2" in body["confidence"]
    blur = body["rows"][1]
    each = [one["value"] for one in blur["identity"]["each"]]
    assert blur["identity"]["value"] == pytest.approx(np.mean(each), abs=1e-4)
    assert blur["identity"]["spread"]["value"] == pytest.approx(np.std(each, ddof=1), abs=1e-4)
    assert blur["restored"]["spread"].keys() == {"psnr", "ssim"}
    once = views.audit_views(["blur"], SHORT, seed=3)
    assert once["rows"][1]["identity"]["value"] == pytest.approx(each[0], abs=1e-4), "the first is the one that a single training gives"
    assert "spread" not in once["rows"][1]["identity"]


def test_nobody_is_both_learnt_from_and_named() -> None:
    people = views.figures_records("private", 90, 0)
    album = views._Album.of(people, 6)
    assert not set(album.learn) & set(album.test) and not set(album.others) & (set(album.learn) | set(album.test))
    assert set(album.who[album.test]) == set(album.who[album.learn]) == set(range(6))
    images = people.image_ids
    for person in range(6):
        mine = np.flatnonzero(album.who == person)
        assert len(set(images[mine])) == len(mine), "a person is in a picture once, so no room gives them away"


def test_shares_have_exact_intervals() -> None:
    assert views.share(0, 20).low == 0 and views.share(0, 20).high == pytest.approx(0.168, abs=1e-3)
    assert views.share(10, 20).holds(0.5)


def test_an_unknown_view_is_refused() -> None:
    with pytest.raises(HalfmaskError, match="blur"):
        views.audit_views(["blurr"], SHORT)
