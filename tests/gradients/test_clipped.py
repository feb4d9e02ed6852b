"""A sum answers for its own sensitivity."""

from __future__ import annotations

import pytest
import torch

from halfmask.errors import HalfmaskError
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


def test_sums_over_different_units_add_up() -> None:
    first = ClippedSum(torch.ones(2), 1.0, 1, {"w": torch.ones(2), "b": torch.zeros(1)}, torch.float32)
    both = first.plus(ClippedSum(torch.zeros(1), 1.0, 2, {"w": torch.tensor([1.0, 2.0]), "b": torch.ones(1)}, torch.float32))
    assert both.norms.tolist() == [1, 1, 0] and both.nonfinite == 3 and both.dtype == torch.float32
    assert both.flat().tolist() == [2, 3, 1]
    assert both.flat().tolist() == first.flat().tolist(), "in the first one's own tensors: a sum is as large as the network"
    coordinates = ClippedCoordinates(torch.ones(1), 1.0, 0, torch.ones(2))
    assert coordinates.plus(ClippedCoordinates(torch.ones(1), 1.0, 0, torch.ones(2))).coordinates.tolist() == [2, 2]
    with pytest.raises(HalfmaskError, match=r"clipped at 1\.0 and at 0\.5 are added up"):
        first.plus(ClippedSum(torch.ones(1), 0.5, 0, {"w": torch.ones(2), "b": torch.ones(1)}))


def test_parts_of_the_same_units_answer_for_both_clips() -> None:
    def part(value: float, clip_norm: float) -> ClippedSum:
        return ClippedSum(torch.tensor([value]), clip_norm, 0, {"w": torch.full((2,), value, dtype=torch.float64)})

    found = part(1.0, 0.2).besides(part(2.0, 0.3), 0.5)
    assert found.flat().tolist() == [3.0, 3.0] and found.norms.tolist() == [3.0]
    assert found.sensitivity(Adjacency.ZERO_OUT) == 0.5 and found.sensitivity(Adjacency.REPLACE_ONE) == 1.0
    with pytest.raises(HalfmaskError, match="as much as both"):
        part(1.0, 0.2).besides(part(2.0, 0.3), 0.3)
