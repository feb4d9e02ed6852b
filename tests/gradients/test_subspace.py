"""The public directions: orthonormal whatever the gradients are, and the right ones."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from halfmask.errors import HalfmaskError
from halfmask.gradients.subspace import Subspace, spectral_norm


def gradients(kind: str, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(40, 3000, generator=generator, dtype=torch.float64)
    if kind == "nearly dependent":
        rows = rows[:1] + 1e-4 * rows
    elif kind == "close":
        # Eigenvalues just above those dropped: rounding in a single-precision Gram matrix would be per cents of them.
        rows = rows[:1] + 1e-2 * rows
    elif kind == "steep":
        rows = rows * torch.logspace(0, -8, 40, dtype=torch.float64)[:, None]
    elif kind == "low rank":
        rows = torch.randn(40, 3, generator=generator, dtype=torch.float64) @ rows[:3]
    elif kind == "repeated":
        rows = rows[:2].repeat(20, 1)
    elif kind == "huge":
        rows = rows * 1e15
    elif kind == "tiny":
        rows = rows * 1e-15
    return rows.to(dtype)


KINDS = ("plain", "nearly dependent", "close", "steep", "low rank", "repeated", "huge", "tiny")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dimension", [1, 10, 40, 100])
def test_projection_never_lengthens(kind: str, dtype: torch.dtype, dimension: int) -> None:
    subspace = Subspace.from_gradients(gradients(kind, dtype), dimension)
    rows = subspace.rows.double()
    assert float(torch.linalg.matrix_norm(rows, 2)) <= 1 + 1e-6
    overlap = rows @ rows.T
    assert torch.allclose(overlap, torch.eye(len(rows), dtype=torch.float64), atol=1e-4 if dtype == torch.float32 else 1e-7)
    assert 1 <= subspace.dimension <= min(dimension, 40)
    assert subspace.dimension == {"low rank": min(dimension, 3), "repeated": min(dimension, 2)}.get(kind, subspace.dimension)
    assert subspace.rows.dtype == dtype


def test_plain_gradients_keep_all_dimensions_asked_for() -> None:
    assert Subspace.from_gradients(gradients("plain"), 25).dimension == 25


def test_the_spectral_norm_sees_a_basis_that_is_not_orthonormal() -> None:
    rows = Subspace.from_gradients(gradients("plain"), 10).rows
    assert spectral_norm(rows) == pytest.approx(1, abs=1e-5)
    assert spectral_norm(torch.cat([rows, rows[:1]])) == pytest.approx(2**0.5, abs=1e-5)
    assert spectral_norm(3.2 * rows) == pytest.approx(3.2, abs=1e-5)


def test_the_span_is_that_of_the_singular_vectors() -> None:
    rows = gradients("plain", torch.float64)[:12, :60] * torch.logspace(0, -2, 12, dtype=torch.float64)[:, None]
    subspace = Subspace.from_gradients(rows, 5)
    _, singular, vectors = torch.linalg.svd(rows, full_matrices=False)
    ours = subspace.rows.T @ subspace.rows
    theirs = vectors[:5].T @ vectors[:5]
    assert torch.allclose(ours, theirs, atol=1e-9)
    assert torch.allclose(subspace.spectrum, singular.square() / 12, rtol=1e-8)
    other = vectors[1:6].T @ vectors[1:6]
    assert not torch.allclose(ours, other, atol=1e-2)


def test_many_columns_are_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = gradients("plain", torch.float64)
    whole = Subspace.from_gradients(rows, 7)
    monkeypatch.setattr("halfmask.gradients.subspace._COLUMNS_AT_ONCE", 17)
    cut = Subspace.from_gradients(rows, 7)
    assert torch.allclose(whole.rows.T @ whole.rows, cut.rows.T @ cut.rows, atol=1e-12)
    assert torch.allclose(whole.spectrum, cut.spectrum)


def test_lifted_coordinates_are_the_projection() -> None:
    rows = gradients("plain", torch.float64)
    subspace = Subspace.from_gradients(rows, 40)
    inside = rows.sum(0)
    assert torch.allclose(subspace.lift(subspace.coordinates(inside)), inside, atol=1e-9)
    vector = torch.randn(3000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    once = subspace.lift(subspace.coordinates(vector))
    assert subspace.coordinates(vector).shape == (40,) and once.shape == (3000,)
    assert torch.allclose(subspace.lift(subspace.coordinates(once)), once, atol=1e-9)
    assert float((vector - once) @ once) == pytest.approx(0, abs=1e-8)
    assert 0 < once.norm() < vector.norm()


def test_diagnostics_tell_the_public_spectrum() -> None:
    rows = torch.diag(torch.tensor([4.0, 2.0, 1.0])).double()
    told = Subspace.from_gradients(rows, 2).diagnostics()
    assert told["subspace_dim"] == 2
    assert told["spectrum"] == pytest.approx([16 / 3, 4 / 3, 1 / 3], rel=1e-5)
    assert told["eigengap"] == pytest.approx(1.0)
    assert told["captured_energy"] == pytest.approx(20 / 21)
    full = Subspace.from_gradients(rows, 3).diagnostics()
    assert full["eigengap"] == pytest.approx(1 / 3) and full["captured_energy"] == pytest.approx(1)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_gradients_that_are_not_finite_are_left_out(poison: float) -> None:
    rows = gradients("plain", torch.float64)
    poisoned = torch.cat([rows, rows[:2]])
    poisoned[-2:, 5] = poison
    expected, found = Subspace.from_gradients(rows, 6), Subspace.from_gradients(poisoned, 6)
    assert torch.allclose(found.rows.T @ found.rows, expected.rows.T @ expected.rows, atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "dimension", "words"),
    [
        (torch.full((3, 4), float("nan")), 2, "finite"),
        (torch.zeros(3, 4), 2, "zero"),
        (torch.zeros(0, 4), 2, "finite"),
        (torch.ones(3, 4), 0, "at least 1"),
    ],
)
def test_no_subspace_is_said_so(rows: Tensor, dimension: int, words: str) -> None:
    with pytest.raises(HalfmaskError, match=words):
        Subspace.from_gradients(rows, dimension)


# ---- more gradients than fit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 7, 100, 300])
def test_columns_may_come_a_few_at_a_time(at_once: int) -> None:
    torch.manual_seed(0)
    rows = torch.randn(12, 300, dtype=torch.float64)
    asked: list[slice] = []

    def some(columns: slice) -> torch.Tensor:
        asked.append(columns)
        return rows[:, columns]

    whole = Subspace.from_gradients(rows, 6)
    cut = Subspace.from_columns(some, 300, at_once, 6)
    assert torch.allclose(whole.rows.abs(), cut.rows.abs(), atol=1e-9) and torch.allclose(whole.spectrum, cut.spectrum)
    groups = -(-300 // at_once)
    assert len(asked) == 2 * groups - 1 and max(s.stop - s.start for s in asked) <= at_once


def test_a_record_that_is_not_finite_in_one_group_is_left_out_of_all() -> None:
    torch.manual_seed(0)
    rows = torch.randn(9, 60, dtype=torch.float64)
    broken = rows.clone()
    broken[4, 50] = math.inf
    found = Subspace.from_columns(lambda columns: broken[:, columns], 60, 25, 5)
    expected = Subspace.from_gradients(rows[[0, 1, 2, 3, 5, 6, 7, 8]], 5)
    assert torch.allclose(found.rows.abs(), expected.rows.abs(), atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_a_basis_in_bfloat16_still_has_norm_at_most_one(seed: int) -> None:
    torch.manual_seed(seed)
    rows = torch.randn(40, 3000) * torch.logspace(0, -3, 40)[:, None]
    subspace = Subspace.from_gradients(rows, 30, torch.bfloat16)
    assert subspace.rows.dtype == torch.bfloat16
    assert torch.linalg.matrix_norm(subspace.rows.double(), 2) <= 1 + 1e-6
    vector = torch.randn(3000)
    assert subspace.coordinates(vector).dtype == torch.float32
    assert torch.allclose(subspace.coordinates(vector), (subspace.rows.double() @ vector.double()).float(), atol=1e-4)
    assert subspace.lift(subspace.coordinates(vector)).dtype == torch.float32


def test_gradients_in_bfloat16_give_an_orthonormal_basis_of_nearly_the_same_space() -> None:
    torch.manual_seed(1)
    rows = torch.randn(30, 2000) * torch.logspace(1, -1, 30)[:, None]
    rough = Subspace.from_gradients(rows.bfloat16(), 8, torch.float32)
    fine = Subspace.from_gradients(rows, 8)
    assert torch.allclose(rough.rows @ rough.rows.T, torch.eye(8), atol=1e-5)
    overlap = torch.linalg.svdvals(rough.rows @ fine.rows.T)
    assert overlap.min() > 0.99
