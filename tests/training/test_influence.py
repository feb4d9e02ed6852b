"""How much private people move a model, told from what was released."""

from __future__ import annotations

import pytest
import torch

from halfmask.training.influence import Influence


def test_signal_is_heard_through_noise_of_known_size() -> None:
    generator = torch.Generator().manual_seed(0)
    signal = torch.zeros(4000)
    signal[:100] = 0.2
    influence = Influence()
    for _ in range(50):
        influence.released(signal + 0.05 * torch.randn(4000, generator=generator), 0.05, 4000)
    expected = float(signal.norm()) / (0.05 * 4000**0.5)
    assert influence.summary()["private_signal"] == pytest.approx(expected, rel=0.05)


def test_noise_alone_tells_of_no_signal() -> None:
    generator = torch.Generator().manual_seed(1)
    influence = Influence()
    for _ in range(50):
        influence.released(0.05 * torch.randn(4000, generator=generator), 0.05, 4000)
    assert influence.summary()["private_signal"] < 0.15


def test_the_share_is_of_lengths_and_starts_anew() -> None:
    influence = Influence()
    influence.halves(3.0, 1.0)
    assert influence.summary() == {"private_share": 0.25}
    assert influence.summary() == {}
