"""Sums of many units: what leaves when one unit leaves is that unit, not the rounding of all the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.engine import CLIP_MARGIN, ClippingEngine
from halfmask.gradients.mechanism import Mechanism
from halfmask.gradients.subspace import Subspace
from halfmask.gradients.terms import Direct, Outer
from halfmask.models.pose import choose_parameters
from halfmask.models.simcc import PoseModel
from halfmask.tasks.pose import pose_loss

Batch = dict[str, Tensor]
UNITS, CLIP = 4096, 0.7
MARGIN = CLIP_MARGIN[torch.float32]


class Tokens(nn.Module):
    """A linear map of some tokens: its gradient for a record is Σ_t w_t x_tᵀ, whatever its weights."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 64, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x.unflatten(1, (16, 3, 3)))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 24)

    def forward(self, x: Tensor) -> Tensor:
        return self.table((x[:, :5] * 7).abs().long() % 50)


def weighed(model: nn.Module, batch: Batch) -> Tensor:
    """Linear in the weights, so that a record's gradient is exactly what `x` and `w` say, however many others there are."""
    return (model(batch["x"]).flatten(1) * batch["w"].flatten(1)).sum(1)


# What is summed: gradients as they are; one token a unit; tokens enough for a product of each unit; patches; rows looked up.
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[int, ...]]] = {
    "direct": (lambda: Tokens(512, 1), (512,), (1,)),
    "one token": (lambda: Tokens(32, 32), (32,), (32,)),
    "many tokens": (lambda: Tokens(160, 160), (36, 160), (36, 160)),
    "patches": (Pictures, (144,), (64, 3, 3)),
    "rows": (Words, (30,), (5, 24)),
}


def aligned(name: str, units: int) -> tuple[nn.Module, Batch]:
    """Units that all but agree on a direction, all many times longer than the clip norm: sums as long as can be."""
    make, inputs, outputs = MODELS[name]
    torch.manual_seed(11)
    x = torch.randn(1, *inputs).expand(units, *inputs).contiguous()
    lengths = torch.logspace(1, 3, units)[torch.randperm(units)].view(-1, *[1] * len(outputs))
    w = (torch.randn(1, *outputs) + 1e-3 * torch.randn(units, *outputs)) * lengths
    return make(), {"x": x, "w": w}


def without(batch: Batch, unit: int) -> Batch:
    return {key: torch.cat([value[:unit], value[unit + 1 :]]) for key, value in batch.items()}


@pytest.mark.parametrize("chunk", [64, 5000])
@pytest.mark.parametrize("name", MODELS)
def test_leaving_out_one_of_thousands_moves_the_sum_by_no_more_than_the_clip_norm(name: str, chunk: int) -> None:
    units = 512 if name in ("many tokens", "patches") else UNITS
    model, batch = aligned(name, units)
    engine = ClippingEngine(model)
    whole = engine.clipped_sum(weighed, batch, CLIP, chunk=chunk)
    assert bool((whole.norms > 2 * CLIP).all()) and float(whole.flat().norm()) > 0.99 * units * CLIP * (1 - MARGIN)
    for unit in (0, units // 2 + 1):
        moved = whole.flat() - engine.clipped_sum(weighed, without(batch, unit), CLIP, chunk=chunk).flat()
        alone = engine.clipped_sum(weighed, {key: value[unit : unit + 1] for key, value in batch.items()}, CLIP).flat()
        assert float(moved.norm()) <= CLIP * (1 + 1e-6)
        # The length alone would let errors across the unit's direction pass.
        assert float((moved - alone).norm()) <= 0.02 * MARGIN * CLIP


@pytest.mark.parametrize("name", MODELS)
def test_the_sum_does_not_depend_on_chunks(name: str) -> None:
    model, batch = aligned(name, 300)
    engine = ClippingEngine(model)
    whole = engine.clipped_sum(weighed, batch, CLIP, chunk=300).flat()
    for chunk in (7, 64):
        assert float((engine.clipped_sum(weighed, batch, CLIP, chunk=chunk).flat() - whole).norm()) <= 0.02 * MARGIN * CLIP


def in_single(factors: Tensor, rows: Tensor) -> Tensor:
    return factors.float() @ rows


def in_single_by_chunks(factors: Tensor, rows: Tensor) -> Tensor:
    total = torch.zeros(rows.shape[1])
    for f, some in zip(factors.split(64), rows.split(64), strict=True):
        total += f.float() @ some
    return total


def rounded_at_last(factors: Tensor, rows: Tensor) -> Tensor:
    return (factors @ rows.double()).float()


@pytest.mark.parametrize("faulty", [in_single, in_single_by_chunks, rounded_at_last])
def test_sums_in_single_precision_would_break_it(faulty: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Even a sum that is exact but for its last rounding."""
    _, batch = aligned("direct", UNITS)
    rows = batch["x"] * batch["w"]
    factors = CLIP * (1 - MARGIN) / rows.double().norm(dim=1)
    moved = faulty(factors, rows).double() - faulty(factors[1:], rows[1:]).double()
    assert float((moved - factors[0] * rows[0].double()).norm()) > MARGIN * CLIP
    exact = Direct(rows).weighted_sum(factors) - Direct(rows[1:]).weighted_sum(factors[1:])
    assert float((exact - factors[0] * rows[0].double()).norm()) < 1e-9


@pytest.mark.parametrize("tokens", [1, 31, 32, 50])
def test_what_a_unit_adds_is_its_own(tokens: int) -> None:
    """To the last bit of single precision: a product of each unit's tokens, then a sum in double."""
    torch.manual_seed(2)
    a, b, factors = torch.randn(40, tokens, 64), torch.randn(40, tokens, 48), torch.rand(40, dtype=torch.float64)
    each = [Outer(a[i : i + 1], b[i : i + 1], torch.Size((48, 64))).weighted_sum(factors[i : i + 1]) for i in range(40)]
    total = Outer(a, b, torch.Size((48, 64))).weighted_sum(factors)
    assert total.dtype == torch.float64
    assert float((total - torch.stack(each).sum(0)).norm()) <= 1e-12 * float(total.norm())
    exact = (b.double() * factors[:, None, None]).flatten(0, 1).T @ a.double().flatten(0, 1)
    assert float((total - exact).norm()) <= 1e-6 * float(exact.norm())


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_a_unit_of_many_records_that_cancel_stays_within_the_clip_norm(scale: float) -> None:
    """The product of its tokens is rounded in single precision, in proportion to what cancels; the norm allows for it."""
    torch.manual_seed(0)
    model = Tokens(200, 200)
    x = torch.randn(1, 200).expand(40, 200) * scale * (1 + 1e-7 * torch.arange(40)[:, None])
    w = torch.randn(1, 200).expand(40, 200) * torch.tensor([1 / 3, 1 / 3, -2 / 3, 0.7, -0.7] * 8)[:, None]
    clipped = ClippingEngine(model).clipped_sum(weighed, {"x": x, "w": w}, 1e-3, torch.zeros(40, dtype=torch.long))
    assert float(clipped.flat().norm()) <= 1e-3


@dataclass
class Opposite:
    """Noise that happens to be the neighbour's sum with the opposite sign: the release is then what one unit makes of a difference."""

    other: Tensor
    drawn: int = 0

    def gaussian(self, count: int, _sum_of_four: bool) -> Tensor:
        self.drawn += count
        return -self.other[self.drawn - count : self.drawn] / CLIP


@pytest.mark.parametrize("projected", [False, True])
def test_noise_is_added_before_anything_is_rounded(projected: bool) -> None:
    model, batch = aligned("direct", UNITS)
    engine = ClippingEngine(model)
    subspace = Subspace(F.normalize(batch["x"][:1].double(), dim=1).float() * (1 - 1e-6), torch.ones(1)) if projected else None
    whole, less = (engine.clipped_sum(weighed, some, CLIP) for some in (batch, without(batch, 3)))
    other = less.flat() if subspace is None else less.flat() @ subspace.rows[0].double()[:, None]
    released = Mechanism(1.0, CLIP, 1.0, Opposite(other)).release(whole, subspace)  # type: ignore[arg-type]
    alone = engine.clipped_sum(weighed, {key: value[3:4] for key, value in batch.items()}, CLIP).flat()
    assert released.dtype == torch.float32
    assert float((released - alone).norm()) <= 0.3 * MARGIN * CLIP and float(released.double().norm()) <= CLIP * (1 + 1e-6)


def test_through_a_network_too() -> None:
    """Here every unit's own gradient is rounded a little otherwise when the batch is a unit shorter; see docs/engine.md."""
    torch.manual_seed(5)
    model = PoseModel("nano", 16, (64, 48)).eval()
    choose_parameters(model, "finetune")
    images = torch.randint(0, 256, (30, 3, 64, 48), dtype=torch.uint8)
    batch = {"image": images, "joints": torch.rand(30, 16, 2) * 40, "labelled": torch.rand(30, 16) < 0.8}
    engine = ClippingEngine(model)
    clip = 0.1 * float(engine.clipped_sum(pose_loss, batch, 1.0).norms.min())
    moved = (engine.clipped_sum(pose_loss, batch, clip).flat() - engine.clipped_sum(pose_loss, without(batch, 0), clip).flat()).norm()
    assert clip * (1 - 2 * MARGIN) <= float(moved) <= clip
