"""A sum answers for its own sensitivity."""

from __future__ import annotations

import pytest
import torch

from halfmask.gradients.clipped import ClippedCoordinates, ClippedSum
from halfmask.privacy.adjacency import Adjacency


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_sum_answers_for_its_sensitivity(adjacency: Adjacency) -> None:
    expected = 0.5 if adjacency is Adjacency.REPLACE_ONE else 0.25
    assert ClippedSum(torch.ones(1), 0.25, 0, {"w": torch.ones(2)}).sensitivity(adjacency) == expected
    assert ClippedCoordinates(torch.ones(1), 0.25, 0, torch.ones(2)).sensitivity(adjacency) == expected


def test_the_share_clipped_counts_units_longer_than_the_clip_norm() -> None:
    assert ClippedSum(torch.tensor([0.5, 1.0, 1.5, 2.0]), 1.0, 0, {}).clipped_fraction == 0.5
    assert ClippedSum(torch.zeros(0), 1.0, 0, {}).clipped_fraction == 0


def test_flat_is_all_sums_in_order() -> None:
    sums = {"b": torch.tensor([[1.0, 2.0]]), "a": torch.tensor([3.0])}
    assert ClippedSum(torch.ones(1), 1.0, 0, sums).flat().tolist() == [1, 2, 3]
