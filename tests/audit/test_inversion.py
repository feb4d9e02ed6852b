"""Without noise a person comes back byte for byte; with it, no better than without the person."""

from __future__ import annotations

import numpy as np
import pytest

import halfmask.audit.inversion as inversion
from halfmask.audit.likeness import psnr, ssim
from halfmask.gradients.mechanism import Mechanism

pytestmark = pytest.mark.usefixtures("one_thread")


def test_likeness() -> None:
    rng = np.random.default_rng(0)
    one, other = (rng.integers(0, 256, (40, 30, 3), dtype=np.uint8) for _ in range(2))
    assert psnr(one, one) == np.inf and ssim(one, one) == pytest.approx(1)
    assert psnr(np.full_like(one, 10), np.full_like(one, 0)) == pytest.approx(20 * np.log10(25.5))
    assert abs(ssim(one, other)) < 0.1
    near = np.clip(one.astype(int) + rng.integers(-9, 10, one.shape), 0, 255).astype(np.uint8)
    assert ssim(other, one) < ssim(near, one) < 1


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inversion, "SIZE", (48, 32))
    monkeypatch.setattr(inversion.FirstLayerNetwork.__init__, "__defaults__", ((48, 32), 0))
    monkeypatch.setattr(inversion, "_PUBLIC", 6)


@pytest.mark.usefixtures("small")
def test_noise_is_what_protects() -> None:
    body, picture = inversion.audit_inversion([0.8], people=2)
    plain, clipped, private = body["columns"]
    assert plain["ssim"] > 0.99 and clipped["ssim"] > 0.99, "a clip alone hides nothing"
    assert private["noise_multiplier"] > 1 and private["ssim"] < 0.6
    assert abs(private["ssim"] - private["without_the_person"]["ssim"]) < 0.1
    assert picture.dtype == np.uint8 and picture.shape[1] > 4 * 64
    assert inversion.audit_inversion([0.8], people=2)[0] == body


@pytest.mark.usefixtures("small")
def test_missing_noise_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same attack on a mechanism whose noise was left out gives the person back."""
    real = Mechanism.__init__
    monkeypatch.setattr(Mechanism, "__init__", lambda self, sigma, *a: real(self, 0.0, *a))
    private = inversion.audit_inversion([0.8], people=1)[0]["columns"][2]
    assert private["ssim"] > 0.9
