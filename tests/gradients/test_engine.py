"""Clipped sums against one record at a time by hand, and the one promise: no unit moves the sum by more than C."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippingEngine
from halfmask.models.pose import choose_parameters
from halfmask.models.simcc import PoseModel
from halfmask.models.tinyvit import PublicBatchNorm2d
from halfmask.tasks.pose import pose_loss

Batch = dict[str, Tensor]
LossFn = Callable[[nn.Module, Batch], Tensor]
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
SIZE = (64, 48)


@pytest.fixture(autouse=True)
def slow_path_may_warn() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no fast gradient rule")
        yield


# ---- by hand -------------------------------------------------------------------------------------------------------------


def one_at_a_time(model: nn.Module, loss_fn: LossFn, batch: Batch) -> list[dict[str, Tensor]]:
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(len(next(iter(batch.values())))):
        loss = loss_fn(model, {key: value[i : i + 1] for key, value in batch.items()})
        gradients = torch.autograd.grad(loss.sum(), parameters, materialize_grads=True)
        rows.append({name: g.double() for name, g in zip(names, gradients, strict=True)})
    return rows


def by_hand(rows: list[dict[str, Tensor]], clip_norm: float, units: list[int] | None = None) -> dict[str, Tensor]:
    units = list(range(len(rows))) if units is None else units
    total = {name: torch.zeros_like(g) for name, g in rows[0].items()}
    for unit in sorted(set(units)):
        own = [row for row, u in zip(rows, units, strict=True) if u == unit]
        gradient = {name: sum(row[name] for row in own) for name in total}
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradient.values()))
        for name in total:
            total[name] += gradient[name] * min(1.0, clip_norm / norm if norm else 1.0)
    return total


def worst_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """max|Δ| / max|reference| over tensors; a reference of zeros must be met exactly."""
    assert list(found) == list(expected)
    worst = 0.0
    for name, reference in expected.items():
        difference = float((found[name].double() - reference).abs().max())
        scale = float(reference.abs().max())
        worst = max(worst, difference / scale if scale else (math.inf if difference else 0.0))
    return worst


def lengths(rows: list[dict[str, Tensor]]) -> Tensor:
    return torch.stack([torch.cat([g.flatten() for g in row.values()]).norm() for row in rows])


# ---- models --------------------------------------------------------------------------------------------------------------


class Tokens(nn.Module):
    """Linear layers that see several tokens of a record, and LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8)
        self.outer = nn.Linear(8, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(torch.tanh(self.norm(self.inner(x)))).flatten(1)


class Own(nn.Module):
    """A parameter used outside any layer that a rule could know."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(5))
        self.linear = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.sin(x * self.scale) + self.scale.square())


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        PublicBatchNorm2d(4),
        nn.GELU(),
        nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=4, bias=False),
        nn.GroupNorm(2, 8),
        nn.GELU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Conv2d(8, 3, 1),
        nn.Flatten(),
        nn.Linear(48, 4),
    )


def _twice() -> nn.Module:
    """One layer used twice: its gradient is the sum of both uses."""
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer)


SMALL: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3)), (7,)),
    "convolutions": (_convolutions, (2, 8, 8)),
    "tokens": (Tokens, (9, 6)),
    "own parameter": (Own, (5,)),
    "shared layer": (_twice, (6,)),
    "batch norm at rest": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten()).eval(),
        (2, 5, 5),
    ),
}


def square_loss(model: nn.Module, batch: Batch) -> Tensor:
    return (model(batch["x"]) - batch["y"]).square().flatten(1).sum(1)


def small(name: str, dtype: torch.dtype, records: int = 7) -> tuple[nn.Module, LossFn, Batch]:
    torch.manual_seed(3)
    make, shape = SMALL[name]
    model = make().to(dtype)
    x = torch.randn(records, *shape, dtype=dtype) * torch.logspace(-1, 1, records, dtype=dtype).view(-1, *[1] * len(shape))
    with torch.no_grad():
        y = torch.randn_like(model(x))
    return model, square_loss, {"x": x, "y": y}


def raw_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The pose loss on floats of any precision."""
    assert isinstance(model, PoseModel)
    features = model.backbone.lower(batch["pixels"])
    return pose_loss(model, {key: batch[key] for key in ("joints", "labelled")} | {"features": features})


def pose(strategy: str, dtype: torch.dtype, records: int = 4) -> tuple[nn.Module, LossFn, Batch]:
    torch.manual_seed(5)
    model = PoseModel("nano", 16, SIZE).to(dtype).eval()
    choose_parameters(model, strategy)
    batch = {
        "joints": torch.rand(records, 16, 2, dtype=dtype) * 40,
        "labelled": torch.rand(records, 16) < 0.8,
    }
    if strategy == "top":
        with torch.no_grad():
            pixels = torch.randn(records, 3, *SIZE, dtype=dtype)
            return model, pose_loss, batch | {"features": model.backbone.lower(pixels)}
    if dtype == torch.float32:
        return (
            model,
            pose_loss,
            batch | {"image": torch.randint(0, 256, (records, 3, *SIZE), dtype=torch.uint8)},
        )
    return model, raw_loss, batch | {"pixels": torch.randn(records, 3, *SIZE, dtype=dtype)}


CASES = [(name, lambda dtype, n=name: small(n, dtype)) for name in SMALL] + [
    (f"nano {strategy}", lambda dtype, s=strategy: pose(s, dtype)) for strategy in ("top", "finetune", "full")
]
EVERY_MODEL = pytest.mark.parametrize("case", [case for _, case in CASES], ids=[name for name, _ in CASES])
EVERY_DTYPE = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])


@EVERY_MODEL
@EVERY_DTYPE
def test_equals_one_record_at_a_time(case: Callable, dtype: torch.dtype) -> None:
    model, loss_fn, batch = case(dtype)
    rows = one_at_a_time(model, loss_fn, batch)
    norms = lengths(rows)
    middle = float(norms.median())
    engine = ClippingEngine(model)
    for clip_norm in (middle, 1e3 * float(norms.max())):
        clipped = engine.clipped_sum(loss_fn, batch, clip_norm)
        assert worst_error(clipped.sums, by_hand(rows, clip_norm)) < TOLERANCE[dtype]
        assert torch.allclose(clipped.norms.double(), norms, rtol=TOLERANCE[dtype])
        assert clipped.clip_norm == clip_norm and clipped.nonfinite == 0
        assert clipped.clipped_fraction == pytest.approx(float((norms > clip_norm).double().mean()), abs=1 / len(rows))
    flat = torch.stack([torch.cat([g.flatten() for g in row.values()]) for row in rows])
    found = engine.per_record_gradients(loss_fn, batch, chunk=3)
    assert found.shape == flat.shape and found.dtype == dtype
    assert float((found - flat).abs().max() / flat.abs().max()) < TOLERANCE[dtype]
    mean, loss = engine.mean_gradient(loss_fn, batch)
    assert float((mean - flat.mean(0)).abs().max() / flat.mean(0).abs().max()) < TOLERANCE[dtype]
    with torch.no_grad():
        assert loss == pytest.approx(float(loss_fn(model, batch).mean()), rel=1e-5)


@EVERY_MODEL
def test_units_are_summed_before_they_are_clipped(case: Callable) -> None:
    model, loss_fn, batch = case(torch.float64)
    records = len(next(iter(batch.values())))
    units = [9, -2, 9, 4, -2, 9, 7][:records]
    rows = one_at_a_time(model, loss_fn, batch)
    clip_norm = float(lengths(rows).median())
    clipped = ClippingEngine(model).clipped_sum(loss_fn, batch, clip_norm, torch.tensor(units))
    assert worst_error(clipped.sums, by_hand(rows, clip_norm, units)) < 1e-9
    assert len(clipped.norms) == len(set(units))
    apart = by_hand(rows, clip_norm)
    assert worst_error(clipped.sums, apart) > 1e-3, "clipping records apart would have passed"


@EVERY_MODEL
@pytest.mark.parametrize("with_units", [False, True])
def test_the_chunk_changes_nothing(case: Callable, with_units: bool) -> None:
    """Chunks smaller than a unit included: a unit is never split, or it would be clipped twice."""
    model, loss_fn, batch = case(torch.float64)
    records = len(next(iter(batch.values())))
    units = torch.tensor([3, 1, 3, 3, 1, 2, 3][:records]) if with_units else None
    engine = ClippingEngine(model)
    clip_norm = float(engine.clipped_sum(loss_fn, batch, 1.0, units).norms.median())
    whole = engine.clipped_sum(loss_fn, batch, clip_norm, units, chunk=100)
    for chunk in (1, 2, 3, records):
        cut = engine.clipped_sum(loss_fn, batch, clip_norm, units, chunk)
        assert worst_error(cut.sums, whole.sums) < 1e-6
        assert torch.allclose(cut.norms, whole.norms, rtol=1e-6)


# ---- the promise ---------------------------------------------------------------------------------------------------------


class Dot(nn.Module):
    """A model whose gradient on a record is the record itself, so that a test can choose it."""

    def __init__(self, width: int, dtype: torch.dtype):
        super().__init__()
        self.linear = nn.Linear(width, 1, bias=False, dtype=dtype)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class SlowDot(nn.Module):
    """The same by way of a bare parameter."""

    def __init__(self, width: int, dtype: torch.dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.weight).sum(-1, keepdim=True)


def dot_loss(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"]).squeeze(-1)


Clip = Callable[[Tensor, float, Tensor | None], Tensor]


def engine_clip(kind: type[nn.Module]) -> Clip:
    def clip(rows: Tensor, clip_norm: float, units: Tensor | None) -> Tensor:
        engine = ClippingEngine(kind(rows.shape[1], rows.dtype))
        return engine.clipped_sum(dot_loss, {"x": rows}, clip_norm, units).flat()

    return clip


def adversarial(dtype: torch.dtype, clip_norm: float, width: int = 16) -> Tensor:
    """Records with gradients of norm 0, C, 10⁶C, inf, NaN, and some that look ordinary."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(9, width, dtype=torch.float64, generator=generator)
    directions /= directions.norm(dim=1, keepdim=True)
    norms = torch.tensor([0.0, 1.0, 1.000001, 1e6, 1e12, 0.5, 3.0, 1.0, 1.0], dtype=torch.float64)
    rows = (directions * (norms * clip_norm)[:, None]).to(dtype)
    rows[7, 2], rows[8, 3] = math.inf, math.nan
    return rows


def sensitivity_is_bounded(clip: Clip, dtype: torch.dtype, clip_norm: float = 0.1) -> bool:
    """Leaving any record or unit out moves the sum by at most C, exchanging any two by at most 2C, and sums stay finite."""
    rows = adversarial(dtype, clip_norm)
    limit = clip_norm * (1 + 1e-6)
    unit_of = torch.tensor([0, 1, 2, 2, 2, 3, 3, 4, 5])
    for units in (None, unit_of):
        groups = torch.arange(len(rows)) if units is None else units
        whole = clip(rows, clip_norm, units).double()
        if not torch.isfinite(whole).all():
            return False
        alone = []
        for unit in groups.unique():
            kept = groups != unit
            without = clip(rows[kept], clip_norm, None if units is None else units[kept]).double()
            single = clip(rows[~kept], clip_norm, None if units is None else units[~kept]).double()
            if not ((whole - without).norm() <= limit and single.norm() <= limit):
                return False
            alone.append(single)
        if any((a - b).norm() > 2 * limit for a in alone for b in alone):
            return False
    return True


@pytest.mark.parametrize("kind", [Dot, SlowDot])
@EVERY_DTYPE
@pytest.mark.parametrize("clip_norm", [0.1, 1e-3, 50.0])
def test_no_unit_moves_the_sum_by_more_than_the_clip_norm(kind: type[nn.Module], dtype: torch.dtype, clip_norm: float) -> None:
    assert sensitivity_is_bounded(engine_clip(kind), dtype, clip_norm)


def _grouped(rows: Tensor, units: Tensor | None) -> Tensor:
    if units is None:
        return rows
    return torch.stack([rows[units == unit].sum(0) for unit in units.unique()])


def _factors(rows: Tensor, clip_norm: float) -> Tensor:
    return (clip_norm / rows.double().norm(dim=1).clamp(min=1e-30)).clamp(max=1).nan_to_num(0)


def _finite(rows: Tensor) -> Tensor:
    return rows[torch.isfinite(rows).all(1)]


FAULTS: dict[str, Clip] = {
    "no clip": lambda rows, c, units: _finite(_grouped(rows, units)).sum(0),
    "clip at 2C": lambda rows, c, units: (_finite(_grouped(rows, units)) * _factors(_finite(_grouped(rows, units)), 2 * c)[:, None]).sum(0),
    "records clipped, not units": lambda rows, c, units: (_finite(rows) * _factors(_finite(rows), c)[:, None]).sum(0),
    "inf times nothing": lambda rows, c, units: (_grouped(rows, units) * _factors(_grouped(rows, units), c)[:, None]).sum(0),
    "coordinates clipped": lambda rows, c, units: _finite(_grouped(rows, units)).clamp(-c, c).sum(0),
    "clip the sum": lambda rows, c, units: (lambda s: s * min(1.0, len(rows) * c / max(1e-30, float(s.norm()))))(_finite(rows).sum(0)),
    "factor inverted": lambda rows, c, units: (_finite(rows) / _factors(_finite(rows), c)[:, None]).sum(0),
    "shared factor": lambda rows, c, units: (_finite(rows) * _factors(_finite(rows), c).mean()).sum(0),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_check_sees_planted_faults(fault: str) -> None:
    assert not sensitivity_is_bounded(FAULTS[fault], torch.float64)


def test_an_uncut_loss_that_couples_people_fails_the_check() -> None:
    """Not by the engine's fault: the gradient of one record then holds others', and no clip bounds one person."""

    def coupled(rows: Tensor, clip_norm: float, units: Tensor | None) -> Tensor:
        finite = _finite(rows)
        mixed = finite * finite.abs().sum()
        return (mixed * _factors(mixed, clip_norm)[:, None] * len(finite)).sum(0)

    assert not sensitivity_is_bounded(coupled, torch.float64)


def test_units_that_are_not_finite_are_counted_and_left_out() -> None:
    rows = adversarial(torch.float64, 0.1)
    engine = ClippingEngine(Dot(16, torch.float64))
    clipped = engine.clipped_sum(dot_loss, {"x": rows}, 0.1)
    assert clipped.nonfinite == 2
    kept = engine.clipped_sum(dot_loss, {"x": rows[:7]}, 0.1)
    assert torch.allclose(clipped.flat(), kept.flat(), rtol=1e-12)


@EVERY_DTYPE
def test_a_record_that_is_not_finite_does_not_touch_the_others(dtype: torch.dtype) -> None:
    """Through a whole network, where a value that is not finite spreads through all that it meets."""
    model, loss_fn, batch = small("convolutions", dtype)
    engine = ClippingEngine(model)
    kept = {key: value[1:] for key, value in batch.items()}
    expected = engine.clipped_sum(loss_fn, kept, 0.5)
    for poison in (math.nan, math.inf, -math.inf):
        batch["x"][0, 0, 3, 3] = poison
        clipped = engine.clipped_sum(loss_fn, batch, 0.5)
        assert clipped.nonfinite == 1
        assert worst_error(clipped.sums, {n: t.double() for n, t in expected.sums.items()}) < TOLERANCE[dtype]


def check_single(values: list[float], clip_norm: float, dtype: torch.dtype) -> None:
    rows = torch.tensor([values], dtype=torch.float64).to(dtype)
    clipped = ClippingEngine(Dot(len(values), dtype)).clipped_sum(dot_loss, {"x": rows}, clip_norm)
    assert float(clipped.flat().double().norm()) <= clip_norm * (1 + 1e-6)
    norm = float(rows.double().norm())
    if norm <= 0.999 * clip_norm:
        assert torch.allclose(clipped.flat(), rows[0].double(), rtol=1e-4)
    elif math.isfinite(norm) and norm < 1e18:
        assert float(clipped.flat().double().norm()) >= 0.999 * clip_norm


HARD = settings(max_examples=150, deadline=None, derandomize=True, database=None)
CLIPS = st.floats(1e-4, 1e4)


@HARD
@given(st.lists(st.floats(width=32), min_size=1, max_size=8), CLIPS)
@example([3.4e38] * 8, 1e-3)
@example([1.2345e38, 2.1e37], 1e-4)
@example([1e-45, 1e-40], 0.1)
@example([0.0], 0.1)
def test_one_unit_never_exceeds_the_clip_norm_in_single_precision(values: list[float], clip_norm: float) -> None:
    check_single(values, clip_norm, torch.float32)


@HARD
@given(st.lists(st.floats(), min_size=1, max_size=8), CLIPS)
@example([1e200, 1e200], 0.1)
@example([1.7e308] * 4, 0.1)
@example([5e-324], 0.1)
def test_one_unit_never_exceeds_the_clip_norm_in_double_precision(values: list[float], clip_norm: float) -> None:
    check_single(values, clip_norm, torch.float64)


# ---- edges ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("units", [None, torch.zeros(0, dtype=torch.long)])
def test_an_empty_batch_is_a_sum_of_zeros(units: Tensor | None) -> None:
    model, loss_fn, batch = pose("top", torch.float32, records=1)
    empty = {key: value[:0] for key, value in batch.items()}
    engine = ClippingEngine(model)
    clipped = engine.clipped_sum(loss_fn, empty, 0.1, units)
    assert clipped.flat().shape == (engine.size,) and not clipped.flat().any()
    assert len(clipped.norms) == 0 and clipped.clipped_fraction == 0 and clipped.nonfinite == 0


def test_flat_and_unflatten_keep_the_order_of_the_parameters() -> None:
    model, loss_fn, batch = small("tokens", torch.float64)
    engine = ClippingEngine(model)
    clipped = engine.clipped_sum(loss_fn, batch, 1.0)
    assert engine.size == sum(p.numel() for p in model.parameters()) == len(clipped.flat())
    pieces = engine.unflatten(clipped.flat())
    assert list(pieces) == [name for name, _ in model.named_parameters()] == list(clipped.sums)
    assert all(torch.equal(pieces[name], clipped.sums[name]) for name in pieces)


def test_only_trainable_parameters_have_gradients() -> None:
    model, loss_fn, batch = small("linear", torch.float64)
    for p in model[0].parameters():  # type: ignore[index]
        p.requires_grad = False
    engine = ClippingEngine(model)
    clipped = engine.clipped_sum(loss_fn, batch, 0.5)
    assert set(clipped.sums) == {"2.weight", "2.bias"}
    assert worst_error(clipped.sums, by_hand(one_at_a_time(model, loss_fn, batch), 0.5)) < 1e-9


def test_a_parameter_the_loss_does_not_use_gets_zeros() -> None:
    model, _, batch = small("linear", torch.float64)

    def first_layer(model: nn.Module, batch: Batch) -> Tensor:
        return model[0](batch["x"]).square().sum(1)  # type: ignore[index]

    engine = ClippingEngine(model)
    clipped = engine.clipped_sum(first_layer, batch, 0.5)
    assert worst_error(clipped.sums, by_hand(one_at_a_time(model, first_layer, batch), 0.5)) < 1e-9
    assert engine.per_record_gradients(first_layer, batch).shape == (7, engine.size)


def test_gradients_leave_the_model_as_it_was() -> None:
    model, loss_fn, batch = pose("full", torch.float32)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ClippingEngine(model).clipped_sum(loss_fn, batch, 0.1)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules() if not list(m.parameters()))
    with torch.no_grad():
        loss_fn(model, batch)


def test_a_failed_step_does_not_disturb_the_next() -> None:
    model, loss_fn, batch = small("convolutions", torch.float64)
    engine = ClippingEngine(model)
    expected = engine.clipped_sum(loss_fn, batch, 0.5).flat()

    def broken(model: nn.Module, batch: Batch) -> Tensor:
        model(batch["x"])
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        engine.clipped_sum(broken, batch, 0.5)
    assert torch.equal(engine.clipped_sum(loss_fn, batch, 0.5).flat(), expected)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0])
def test_a_clip_norm_that_clips_nothing_is_refused(clip_norm: float) -> None:
    with pytest.raises(HalfmaskError, match="clip norm"):
        ClippingEngine(Dot(2, torch.float32)).clipped_sum(dot_loss, {"x": torch.ones(1, 2)}, clip_norm)


def test_a_frozen_model_is_refused() -> None:
    model = Dot(2, torch.float32).requires_grad_(False)
    with pytest.raises(HalfmaskError, match="no trainable parameters"):
        ClippingEngine(model)


def test_the_norms_of_a_clipped_sum_are_of_whole_units() -> None:
    rows = torch.tensor([[3.0, 0.0], [0.0, 4.0], [6.0, 8.0]], dtype=torch.float64)
    clipped = ClippingEngine(Dot(2, torch.float64)).clipped_sum(dot_loss, {"x": rows}, 6.0, torch.tensor([0, 0, 1]))
    assert clipped.norms.tolist() == pytest.approx([5.0, 10.0])
    assert clipped.clipped_fraction == 0.5
    assert clipped.flat().tolist() == pytest.approx([3 + 3.6, 4 + 4.8])
