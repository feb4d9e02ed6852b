"""Networks that move records about by a tensor go one record at a time; those that look things up by one stay fast."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.picking import Picking, graph_of
from halfmask.models.simcc import PoseModel
from halfmask.tasks.pose import pose_loss

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.networks import TorchViT

Batch = dict[str, Tensor]
Change = Callable[[Tensor, Tensor], Tensor]


@pytest.fixture(autouse=True)
def slow_path_may_warn() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no fast gradient rule")
        yield


def back(order: Tensor) -> Tensor:
    return torch.argsort(order)


def rows(order: Tensor, x: Tensor) -> Tensor:
    return order[:, None].expand_as(x)


def written(target: Tensor, order: Tensor, x: Tensor) -> Tensor:
    target[order] = x
    return target


def through_a_view(order: Tensor, x: Tensor) -> Tensor:
    found = torch.zeros(2 * len(x), x.shape[1], dtype=x.dtype)
    found[: len(x)].copy_(x)
    return found[: len(x)][order]


# Each puts x[order[i]] (or, where it writes, x[i] to order[i]) into place i.
WAYS: dict[str, Change] = {
    "key": lambda x, order: x[order],
    "key of a list": lambda x, order: x[order.tolist()],
    "key of numpy": lambda x, order: x[order.numpy()],
    "key after a new axis": lambda x, order: x[None, order][0],
    "key with an ellipsis": lambda x, order: x[order, ...],
    "index_select": lambda x, order: x.index_select(0, order),
    "index_select by name": lambda x, order: torch.index_select(input=x, dim=0, index=order),
    "gather": lambda x, order: torch.gather(x, 0, rows(order, x)),
    "take_along_dim": lambda x, order: torch.take_along_dim(x, rows(order, x), 0),
    "scatter": lambda x, order: torch.zeros_like(x).scatter(0, rows(order, x), x),
    "scatter into a new tensor": lambda x, order: torch.zeros(x.shape, dtype=x.dtype).scatter_(0, rows(order, x), x),
    "index_add": lambda x, order: torch.zeros(x.shape, dtype=x.dtype).index_add(0, order, x),
    "index_copy": lambda x, order: torch.zeros(x.shape, dtype=x.dtype).index_copy_(0, order, x),
    "written by key": lambda x, order: written(torch.zeros(x.shape, dtype=x.dtype), order, x),
    "through a view": lambda x, order: through_a_view(order, x),
    "a table of records": lambda x, order: F.embedding(order, x),
    "a matrix of ones and zeros": lambda x, order: F.one_hot(order, len(x)).to(x.dtype) @ x,
    "rows put together": lambda x, order: torch.stack([x[int(place)] for place in order]),
    "unbound rows put together": lambda x, order: torch.stack([x.unbind(0)[int(place)] for place in order]),
    "split rows put together": lambda x, order: torch.cat([x.split(1)[int(place)] for place in order]),
    "a mask of each": lambda x, order: torch.cat([x[order == order[place]] for place in range(len(x))])[order] if len(x) > 1 else x,
}


class Sorts(nn.Module):
    """Longest first, as recurrent networks like it, and back."""

    def __init__(self, way: Change):
        super().__init__()
        torch.manual_seed(0)
        self.way, self.inner = way, nn.Linear(4, 4, dtype=torch.float64)

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        order = torch.argsort(length, descending=True, stable=True)
        return self.way(torch.tanh(self.inner(self.way(x, order))), back(order))


def loss(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"], batch["length"]).flatten(1).square().sum(1)


def records(*lengths: int, shape: tuple[int, ...] = (4,)) -> Batch:
    torch.manual_seed(1)
    scale = torch.arange(1.0, len(lengths) + 1, dtype=torch.float64).reshape(-1, *[1] * len(shape))
    return {"x": torch.randn(len(lengths), *shape, dtype=torch.float64) * scale, "length": torch.tensor(lengths)}


def assert_exact(engine: ClippingEngine, loss_fn: Any, batch: Batch) -> None:
    found = engine.per_record_gradients(loss_fn, batch)
    for i in range(len(batch["x"])):
        alone = loss_fn(engine.model, {name: value[i : i + 1] for name, value in batch.items()}).sum()
        expected = torch.autograd.grad(alone, list(engine.parameters.values()))
        assert torch.allclose(found[i], torch.cat([gradient.flatten() for gradient in expected])), i


@pytest.mark.parametrize("way", WAYS)
def test_records_that_are_sorted_are_their_own_all_the_same(way: str) -> None:
    """Even where the first batches, which the self-check looks at, happen to be in order."""
    engine = ClippingEngine(Sorts(WAYS[way]))
    for lengths in ((9, 8, 7, 6, 5, 4), (9, 8, 7, 6, 5, 4), (9, 8, 7, 6, 5, 4), (9, 8, 7, 2, 5, 4)):
        assert_exact(engine, loss, records(*lengths))
    assert engine.path == "slow"


class SortsSometimes(Sorts):
    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        if bool((length[1:] <= length[:-1]).all()):
            return torch.tanh(self.inner(x))
        return super().forward(x, length)


def test_a_pass_that_is_built_in_another_way_is_watched_again() -> None:
    engine = ClippingEngine(SortsSometimes(WAYS["key"]))
    for lengths in ((9, 8, 7, 6, 5, 4),) * 5 + ((9, 8, 7, 2, 5, 4),):
        assert_exact(engine, loss, records(*lengths))
    assert engine.path == "slow"


class WithoutPadding(nn.Module):
    """Takes the words of all records together, without padding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        keep = torch.arange(x.shape[1]) < length[:, None]
        found = torch.zeros_like(x)
        found[keep] = torch.tanh(self.inner(x[keep]))
        return found


def test_records_without_their_padding() -> None:
    """Two words of each at first; then as many in all, of some one and of others three."""
    engine = ClippingEngine(WithoutPadding())
    for lengths in ((2, 2, 2, 2), (2, 2, 2, 2), (2, 2, 2, 2), (1, 3, 1, 3)):
        assert_exact(engine, loss, records(*lengths, shape=(3, 3)))
    assert engine.path == "slow"


class Packed(nn.Module):
    def __init__(self, ordered: bool, batch_first: bool):
        super().__init__()
        torch.manual_seed(0)
        self.ordered, self.batch_first = ordered, batch_first
        self.words = nn.Linear(3, 3, dtype=torch.float64)
        self.network = nn.LSTM(3, 3, batch_first=batch_first, dtype=torch.float64)

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        packed = nn.utils.rnn.pack_padded_sequence(x, length, self.batch_first, enforce_sorted=self.ordered)
        packed = packed._replace(data=torch.tanh(self.words(packed.data)))
        return self.network(packed)[1][0][-1]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("ordered", [True, False])
def test_packed_sequences(ordered: bool, batch_first: bool) -> None:
    engine = ClippingEngine(Packed(ordered, batch_first))
    for lengths in ((1, 1, 1, 1), (1, 1, 1, 1), (3, 3, 1, 1) if ordered else (1, 3, 3, 1)):
        assert_exact(engine, loss, records(*lengths, shape=(3, 3)))
    assert engine.path == "slow"


class TimeFirst(nn.Module):
    """Has its records in the second dimension, and sorts them there."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        order = torch.argsort(length, descending=True, stable=True)
        return torch.tanh(self.inner(x.transpose(0, 1)[:, order]))[:, back(order)].transpose(0, 1)


def test_records_that_come_second() -> None:
    engine = ClippingEngine(TimeFirst())
    for lengths in ((9, 8, 7, 6), (9, 8, 7, 6), (9, 8, 2, 6)):
        assert_exact(engine, loss, records(*lengths, shape=(5, 3)))
    assert engine.path == "slow"


class Looks(nn.Module):
    """Looks up tables of its own, takes one word of each record, writes over words, and puts records together in order."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(6, 6, dtype=torch.float64)
        self.table = nn.Parameter(torch.randn(4, 6, dtype=torch.float64))
        self.positions = nn.Linear(2, 6, dtype=torch.float64)
        self.register_buffer("where", torch.tensor([3, 1, 0, 2]))
        self.register_buffer("grid", torch.rand(4, 2, dtype=torch.float64))

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        x = x + self.table[self.where] + self.positions(self.grid)[self.where]
        x = x.masked_fill((torch.arange(4) >= length[:, None])[..., None], 0.0)
        x = self.inner(x)[:, self.where]
        halves = x.chunk(2, -1)
        x = torch.cat([-halves[1], halves[0]], -1)
        q, k, v = x.reshape(len(x), 4, 3, 2).permute(2, 0, 1, 3).unbind(0)
        last = x[torch.arange(len(x)), length - 1]
        x = torch.gather(x, 1, length[:, None, None].expand(-1, -1, 6) - 1)[:, 0]
        return x + last + (q * k * v).sum((1, 2))[:, None]


@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_what_picks_nobody_stays_fast(count: int) -> None:
    engine = ClippingEngine(Looks())
    for _ in range(3):
        assert_exact(engine, loss, records(*range(1, 5), shape=(4, 6)) if count == 4 else records(*[2] * count, shape=(4, 6)))
    assert engine.path == "fast"


def watched_passes(engine: ClippingEngine, loss_fn: Any, batches: list[Any], monkeypatch: pytest.MonkeyPatch) -> int:
    watched: list[Picking] = []
    enter = Picking.__enter__
    monkeypatch.setattr(Picking, "__enter__", lambda self: watched.append(self) or enter(self))
    for batch in batches:
        engine.clipped_sum(loss_fn, batch, 1.0)
    monkeypatch.setattr(Picking, "__enter__", enter)
    return len(watched)


def test_ordinary_networks_are_watched_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of batches of several lengths too; and none of them is sent one record at a time."""
    torch.manual_seed(0)
    pose, vit = PoseModel("nano", input_size=(64, 48)).eval(), TorchViT(size=16, patch=8, width=12, depth=1, heads=2)
    people = [
        {
            "image": torch.randint(0, 256, (n, 3, 64, 48), dtype=torch.uint8),
            "joints": torch.rand(n, 16, 2),
            "labelled": torch.ones(n, 16) > 0,
        }
        for n in (2, 3, 5, 2, 3)
    ]
    engine = ClippingEngine(pose)
    assert watched_passes(engine, pose_loss, people, monkeypatch) <= 4 and engine.path == "fast"
    engine = ClippingEngine(vit)
    pictures = [torch.rand(n, 3, 16, 16) for n in (4, 3, 6, 2, 8, 5, 4, 3, 1, 1, 1)]
    assert watched_passes(engine, lambda m, b: m(b).sum(1), pictures, monkeypatch) <= 6 and engine.path == "fast"


def test_a_network_that_may_pick_is_watched_always(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ClippingEngine(Sorts(WAYS["key"]))
    assert watched_passes(engine, loss, [records(4, 3, 2, 1)] * 9, monkeypatch) >= 9


def test_what_a_pass_was_built_of() -> None:
    weight = torch.ones(3, requires_grad=True)
    first, second = weight * 2, weight.tanh() * 2
    assert graph_of(first) == graph_of(weight * 3) and graph_of(first)[0] != graph_of(second)[0]
    assert graph_of(second)[1] == {id(weight)} and graph_of(torch.ones(2)) == (frozenset(), set())


def test_orders_that_come_by_chance_or_from_nowhere_are_not_trusted() -> None:
    x = torch.randn(4, 3)
    with Picking(nn.Linear(3, 3), x, 4) as picking:
        x[torch.randperm(4) * 0 + torch.arange(4)]
    assert picking.may and not picking.seen
    with Picking(nn.Linear(3, 3), x, 4) as picking:
        torch.flip(x, (0,))
    assert picking.seen == "flip"
    with Picking(nn.Linear(3, 3), x, 4) as picking:
        x.roll(1, 0)
    assert picking.seen == "roll"
    with Picking(nn.Linear(3, 3), x, 4) as picking:
        x.flip(1), x.roll(1, 1), x[torch.arange(4).repeat_interleave(2)]
    assert not picking.seen and not picking.may
    with Picking(nn.Linear(3, 3), x, 4) as picking:
        x[np.array([0, 1, 2, 3])]
    assert picking.may and not picking.seen, "numbers that left torch"


@pytest.mark.parametrize("view", [False, True])
def test_a_tensor_that_records_were_written_to_carries_them(view: bool) -> None:
    x, order = torch.randn(4, 3), torch.tensor([1, 0, 2, 3])
    with Picking(nn.Linear(3, 3), x, 4) as picking:
        table = torch.zeros(4, 3)
        table[order]
        assert not picking.seen, "nobody is in it yet"
        if view:
            table[:, :2].copy_(x[:, :2])
        else:
            table[:, :] = x
        torch.flip(table, (0,))
    assert picking.seen == "flip"
