"""Convolutions by every way there is, drawn at random, against autograd of one record at a time.

Nothing here goes by way of the rules: the reference is torch's own gradient of each record's loss, in double precision. Seeds are fixed, so
that what fails once fails again.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.engine import CLIP_MARGIN, ClippingEngine
from halfmask.gradients.rules import convolved
from halfmask.gradients.rules.conv import convolution
from halfmask.gradients.rules.convolved import Convolved, Turned
from halfmask.gradients.terms import Direct, Grouping, Term

KINDS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
# The limits by which a way is chosen, so that small layers go every way: (few pixels, few channels, patches at once, patches of one image).
WAYS = {
    "as it comes": (200, 4, 1 << 18, 1 << 22),
    "patches, all at once": (1 << 30, 4, 1 << 30, 1 << 30),
    "patches, an image at a time": (1 << 30, 4, 1, 1 << 30),
    "patches, a few images at a time": (1 << 30, 4, 600, 1 << 30),
    "few channels": (0, 100, 600, 1 << 30),
    "groups": (0, 0, 600, 1 << 30),
    "too many patches": (1 << 30, 100, 600, 0),
}


def go(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    names = ("_FEW_PIXELS", "_FEW_CHANNELS", "_PATCHES_AT_ONCE", "_PATCHES_OF_ONE")
    for name, value in zip(names, WAYS[way], strict=True):
        monkeypatch.setattr(convolved, name, value)


def some_convolution(draw: random.Random, **given: Any) -> tuple[nn.Module, list[int]]:
    """A layer of random shape, in double precision, and a size of picture that it takes."""
    axes = draw.choice([1, 2, 2, 2, 3])
    groups = draw.choice([1, 1, 1, 2, 3])
    inputs, outputs = groups * draw.randint(1, 3), groups * draw.randint(1, 3)
    if draw.random() < 0.2:
        groups, outputs = inputs, inputs * draw.randint(1, 2)  # depthwise
    wide = draw.random() < 0.3
    if wide:
        groups, inputs, outputs = 1, draw.choice([1, 20, 30]), draw.choice([16, 24, 40])  # wide enough to wait as factors
    kernel, stride, dilation = ([draw.randint(1, 3) for _ in range(axes)] for _ in range(3))
    mode = draw.choice(["zeros", "zeros", "zeros", "reflect", "circular", "replicate"])
    padding: Any = draw.choice(["same", "valid", None, None, None])
    if padding == "same":
        stride = [1] * axes
    padding = padding or tuple(draw.randint(0, 2) for _ in range(axes))
    if wide:
        mode, padding, dilation = "zeros", "valid", [1] * axes
    size = [max(1 if wide else 4, d * (k - 1) + 1) + draw.randint(0, 1 if wide else 3) for d, k in zip(dilation, kernel, strict=True)]
    bias = draw.random() < 0.5
    layer = KINDS[axes](inputs, outputs, kernel, stride, padding, dilation, groups, bias, mode, dtype=torch.float64)
    return layer, size


def laid_out(draw: random.Random, x: Tensor) -> Tensor:
    """The same numbers, differently in memory."""
    how = draw.choice(["as they are", "channels last", "every other", "mirrored order", "part of more"])
    if how == "channels last":
        return x.movedim(1, -1).contiguous().movedim(-1, 1)
    if how == "every other":
        return torch.stack([x, torch.full_like(x, torch.nan)], -1).flatten(-2)[..., ::2]
    if how == "mirrored order":
        return x.permute(*reversed(range(x.dim()))).contiguous().permute(*reversed(range(x.dim())))
    if how == "part of more":
        return torch.cat([torch.full_like(x, torch.nan), x, torch.full_like(x, torch.nan)], 1)[:, x.shape[1] : 2 * x.shape[1]]
    return x


def one_by_one(layer: nn.Module, uses: list[tuple[Tensor, Tensor]], records: int) -> list[Tensor]:
    """The gradient of each parameter for each record, by autograd."""
    rows = []
    for i in range(records):
        total = torch.zeros((), dtype=torch.float64)
        for x, gradient in uses:
            each = len(x) // records
            mine = slice(i * each, (i + 1) * each)
            total = total + (layer(x[mine].contiguous()) * gradient[mine].contiguous()).sum()
        rows.append(torch.autograd.grad(total, list(layer.parameters())))
    return [torch.stack(each) for each in zip(*rows, strict=True)]


def assert_term(term: Term, expected: Tensor, factors: Tensor) -> None:
    """Norms, sums and gradients of a term are those of the expected gradients."""
    rows, scale = expected.flatten(1), float(expected.abs().max()) + 1e-12
    assert torch.allclose(term.squared_norms(), rows.square().sum(1), rtol=1e-9, atol=1e-12 * scale**2)
    total = torch.tensordot(factors, expected, 1)
    assert torch.allclose(term.weighted_sum(factors), total, rtol=1e-9, atol=1e-11 * scale)
    assert torch.allclose(term.direct().gradients, expected, rtol=1e-9, atol=1e-11 * scale)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(12))
def test_any_convolution_by_any_way(way: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    go(monkeypatch, way)
    draw = random.Random(f"{seed} {way}")
    torch.manual_seed(seed)
    for _ in range(4):
        layer, size = some_convolution(draw)
        assert isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
        records = draw.choice([1, 2, 7, 7])
        uses, terms = [], []
        for use in range(draw.choice([1, 1, 2, 3])):
            if use and draw.random() < 0.3:
                size = [side + 1 for side in size]
            x = torch.randn(records * draw.choice([1, 1, 2, 3]), layer.in_channels, *size, dtype=torch.float64)
            gradient = torch.randn_like(layer(x))
            if draw.random() < 0.15:
                gradient = gradient.flatten(2)[..., :1].unflatten(2, [1] * len(size)).expand_as(gradient)  # as a mean's comes back
            x, gradient = laid_out(draw, x), gradient if 0 in gradient.stride() else laid_out(draw, gradient)
            uses.append((x, gradient))
            with torch.no_grad():
                terms.append(convolution(layer, x, gradient, records))
        expected = one_by_one(layer, uses, records)
        # Some of the records are of one unit: evenly, or one with many and others with few.
        units = draw.choice([None, [0, 0, 1, 1, 1, 2, 2], [0, 0, 0, 0, 1, 2, 3], [0, 1, 1, 1, 1, 2, 3]]) if records == 7 else None
        grouping = None if units is None else Grouping.of(torch.tensor(units), max(units) + 1)
        factors = torch.rand(records if grouping is None else grouping.units, dtype=torch.float64)
        mask = torch.arange(len(factors)) != draw.randint(0, 3)
        unfit = ~mask if grouping is None else ~mask[grouping.unit]
        for name, gradients in zip(dict(layer.named_parameters()), expected, strict=True):
            if grouping is not None:
                gradients = gradients.new_zeros(grouping.units, *gradients.shape[1:]).index_add_(0, grouping.unit, gradients)
            assert_term(added_up([found[name] for found in terms], grouping), gradients, factors)
            # Units that are not finite are asked for their norms too, and then leave.
            with torch.no_grad():
                poisoned = [convolution(layer, *(spoilt(x, unfit) for x in use), records)[name] for use in uses]
            term = added_up(poisoned, grouping)
            assert bool(torch.isfinite(term.squared_norms()).eq(mask).all())
            rest = torch.tensordot(factors[mask], gradients[mask], 1)
            assert torch.allclose(term.weighted_sum(factors * mask, mask), rest, rtol=1e-9, atol=1e-11 * float(gradients.abs().max()))


def added_up(terms: list[Term], grouping: Grouping | None) -> Term:
    """As the tape adds up several uses of a parameter."""
    with torch.no_grad():
        whole = (terms[0] if grouping is None else terms[0].by_unit(grouping)).settled()
        for term in terms[1:]:
            whole = whole.joined(term if grouping is None else term.by_unit(grouping)).settled()
    return whole


def spoilt(x: Tensor, unfit: Tensor) -> Tensor:
    return x.masked_fill(unfit.repeat_interleave(len(x) // len(unfit)).view(-1, *[1] * (x.dim() - 1)), torch.nan)


def test_each_way_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits do what the tests above rely on."""
    layer, wide = nn.Conv2d(3, 4, 3), nn.Conv2d(24, 40, 3, padding=1)
    x, y = torch.randn(4, 3, 9, 8), torch.randn(2, 24, 2, 2)
    for way in WAYS:
        go(monkeypatch, way)
        calls: list[int] = []
        product = torch.bmm
        monkeypatch.setattr(torch, "bmm", lambda *args, calls=calls, product=product, **kw: (calls.append(1), product(*args, **kw))[1])
        with torch.no_grad():
            term = convolution(layer, x, layer(x).contiguous(memory_format=torch.channels_last), 4)["weight"].settled()
            ghost = convolution(wide, y, wide(y), 2)["weight"].settled()
        monkeypatch.setattr(torch, "bmm", product)
        assert isinstance(term, Direct if way in ("groups", "too many patches") else Turned)
        expected = {"patches, an image at a time": 4, "patches, all at once": 1, "as it comes": 1, "groups": 0, "too many patches": 0}
        assert len(calls) == expected.get(way, 4)
        assert isinstance(ghost, Convolved) and ghost.ghost


class Twice(nn.Module):
    """Several pictures a record, a layer below (or none), in-place changes, and the same weights used again or backwards."""

    def __init__(self, layer: nn.Conv2d, below: bool, again: str, slope: float):
        super().__init__()
        self.layer, self.again, self.slope = layer, again, slope
        self.below = nn.Conv2d(layer.in_channels, layer.in_channels, 3, padding=1, dtype=layer.weight.dtype) if below else nn.Identity()
        if again == "shared":
            self.other = nn.Conv2d(layer.in_channels, layer.out_channels, 3, 2, bias=False, dtype=layer.weight.dtype)
            self.other.weight = layer.weight

    def forward(self, x: Tensor) -> Tensor:
        pictures = x.shape[1]
        x = self.below(x.flatten(0, 1))
        y = F.leaky_relu(self.layer(x), self.slope, inplace=True)
        score = y.mean((1, 2, 3))  # what comes back is one number, expanded
        if self.again == "twice":
            score = score + F.relu_(self.layer(x.flip(2) * 2)).square().flatten(1).sum(1)
        elif self.again == "smaller":
            score = score + F.relu_(self.layer(x[:, :, 1:])).square().flatten(1).sum(1)
        elif self.again == "shared":
            score = score + F.relu_(self.other(x)).square().flatten(1).sum(1)
        elif self.again == "backwards":
            score = score + F.conv_transpose2d(y, self.layer.weight, None, 2, 1).tanh().flatten(1).sum(1)
        return score.view(-1, pictures).sum(1)


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return model(batch["x"]) * batch["scale"]


@pytest.mark.parametrize("again", ["once", "twice", "smaller", "shared", "backwards"])
@pytest.mark.parametrize("shape", [(2, 5, 9), (6, 3, 9), (3, 40, 40), (20, 40, 3), (5, 4, 32)])
def test_sums_and_norms_of_whole_models(again: str, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(f"{again} {shape}")
    for way in ("as it comes", draw.choice(list(WAYS)), draw.choice(list(WAYS))):
        go(monkeypatch, way)
        torch.manual_seed(draw.randint(0, 99))
        inputs, outputs, side = shape
        records, pictures = draw.choice([1, 6, 7]), draw.choice([1, 2])
        model = Twice(nn.Conv2d(inputs, outputs, 3, 2, 1, dtype=torch.float64), draw.random() < 0.5, again, 0.2)
        if draw.random() < 0.5:
            model = model.to(memory_format=torch.channels_last)
        x = torch.randn(records, pictures, inputs, side, side + 1, dtype=torch.float64)
        batch = {"x": x, "scale": torch.logspace(-2, 1, records, dtype=torch.float64)}
        parameters = list({id(p): p for p in model.parameters()}.values())
        rows = []
        for i in range(records):
            alone = loss(model, {key: value[i : i + 1] for key, value in batch.items()}).sum()
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(alone, parameters, materialize_grads=True)]))
        each = torch.stack(rows)
        units = torch.tensor([draw.randint(0, 3) for _ in range(records)]) if draw.random() < 0.5 else torch.arange(records)
        whole = torch.stack([each[units == unit].sum(0) for unit in sorted(set(units.tolist()))])
        norms = whole.norm(dim=1)
        clip = float(norms.median())
        factors = clip / norms.clamp(min=clip)
        engine = ClippingEngine(model)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = engine.clipped_sum(loss, batch, clip, units, chunk=draw.choice([1, 2, 3, 64]))
        assert torch.allclose(found.norms, norms, rtol=1e-9)
        assert torch.allclose(found.flat(), (factors[:, None] * whole).sum(0), rtol=1e-7, atol=1e-9 * clip)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(2, 5, 9), (6, 3, 9), (3, 40, 40), (20, 40, 3), (5, 4, 32)])
def test_a_unit_adds_exactly_what_its_norm_says(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    """The norm is that of the very numbers that are summed, in the working precision too: clipped, a unit has the clip norm's length."""
    torch.manual_seed(0)
    inputs, outputs, side = shape
    model = Twice(nn.Conv2d(inputs, outputs, 3, 2, 1, dtype=dtype), True, "twice", 0.2).to(memory_format=torch.channels_last)
    batch = {"x": torch.randn(5, 2, inputs, side, side, dtype=dtype), "scale": torch.logspace(0, 4, 5, dtype=dtype)}
    engine = ClippingEngine(model)
    clip = 1e-3 * float(engine.clipped_sum(loss, batch, 1.0).norms.min())
    for autocast in (False, True):
        for i in range(5):
            alone = {key: value[i : i + 1] for key, value in batch.items()}
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                length = float(engine.clipped_sum(loss, alone, clip).flat().norm()) / clip
            assert 1 - 2 * CLIP_MARGIN[dtype] <= length <= 1


# One large picture, many of one record (with few pixels each, or with few channels), and one that is not unfolded at all.
LARGE = {"large": (3, 2, 128, 11, 1), "many": (64, 2, 14, 3, 40), "many large": (4, 8, 64, 5, 12), "huge": (3, 2, 400, 7, 1)}


@pytest.mark.parametrize("case", LARGE)
def test_patches_are_never_all_in_memory(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    channels, outputs, side, kernel, pictures = LARGE[case]
    layer = nn.Conv2d(channels, outputs, kernel, padding=kernel // 2)
    x = torch.randn(2 * pictures, channels, side, side).contiguous(memory_format=torch.channels_last)
    sizes, unfold = [0], convolved._patches

    def spied(*args: Any) -> Tensor:
        patches = unfold(*args)
        sizes.append(patches.numel())
        return patches

    monkeypatch.setattr(convolved, "_patches", spied)
    with torch.no_grad():
        gradient = torch.randn_like(layer(x))
        found = convolution(layer, x, gradient, 2)["weight"].settled().direct().gradients
    of_one = side**2 * channels * kernel**2
    assert max(sizes) <= max(of_one if of_one <= 1 << 22 else 0, 1 << 18) < pictures * of_one * 2
    for mine, theirs, each in zip(x.chunk(2), gradient.chunk(2), found, strict=True):
        expected = torch.nn.grad.conv2d_weight(mine, layer.weight.shape, theirs, padding=kernel // 2)
        assert torch.allclose(each, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


class Alone(nn.Module):
    """Pictures one after the other, without a leading dimension; torch takes those too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.conv(picture) for picture in x])


class Nobody(nn.Module):
    """A layer that is also shown no picture at all, as where nobody has a second one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) + self.conv(x[:0]).sum()


@pytest.mark.parametrize("model", [Alone(), Nobody()])
@pytest.mark.parametrize("records", [1, 4])
def test_channels_do_not_pass_for_records(model: nn.Module, records: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(records, 2, 6, 6, dtype=torch.float64)

    def squares(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).square().flatten(1).sum(1)

    rows = [torch.autograd.grad(squares(model, x[i : i + 1]).sum(), list(model.parameters())) for i in range(records)]
    expected = torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the slow way is right here
        found = ClippingEngine(model).per_record_gradients(squares, x)
    assert torch.allclose(found, expected, rtol=1e-9)
