"""`halfmask.train`: a stranger's model, loss and dataset through the same mechanism, ledger and certificate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import halfmask
from halfmask.data.items import form_of, read_items
from halfmask.errors import HalfmaskError
from halfmask.training import own
from halfmask.training.loop import Trainer
from halfmask.training.private import PrivateHalf

pytestmark = pytest.mark.usefixtures("quick_accounting", "fresh_home")


class Visits(torch.utils.data.Dataset):
    """Vectors with a class, three of each patient."""

    def __init__(self, count: int = 60, seed: int = 0, **changes: Callable[[int], Any]):
        random = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 80, generator=random)
        self.label = (self.x[:, 0] > 0).long()
        self.seed, self.changes = seed, changes

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        item = {"x": self.x[index], "label": self.label[index], "patient": f"p{1000 * self.seed + index // 3}"}
        return item | {name: change(index) for name, change in self.changes.items()}


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch["x"]), batch["label"], reduction="none")


def accuracy(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return (model(batch["x"]).argmax(1) == batch["label"]).float()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(80, 2)


def train(out: Path, **changes: Any) -> own.Run:
    plan: dict[str, Any] = {
        "private": Visits(),
        "unit": "patient",
        "epsilon": 3.0,
        "delta": 1e-3,
        "clip_norm": 1.0,
        "batch": 5,
        "epochs": 1,
        "settings": {"even_so": True},
        "out": out,
    }
    plan |= changes
    return halfmask.train(plan.pop("model", None) or network(), plan.pop("loss", loss), **plan)


def test_a_run_of_ones_own(tmp_path: Path) -> None:
    model = network()
    before = model.weight.detach().clone()
    run = train(tmp_path / "run", model=model, test=Visits(30, seed=1), score=accuracy)
    assert run.model is model and not torch.equal(model.weight, before)
    assert run.certificate["unit"] == "patient" and run.certificate["units"] == 20 and run.certificate["steps"] == 4
    assert run.certificate["epsilon"]["zero-out"] == pytest.approx(3.0, abs=0.01)
    assert run.certificate == json.loads((run.folder / "certificate.json").read_text())
    assert set(run.scores) == {"accuracy"} and run.folder == tmp_path / "run"
    assert {path.name for path in run.folder.iterdir()} >= {"config.yaml", "metrics.json", "log.jsonl", "model.safetensors", "checkpoint"}


@pytest.mark.parametrize(
    ("given", "method"),
    [({}, "dpsgd"), ({"public": True}, "projected"), ({"view": True}, "feature"), ({"public": True, "view": True}, "feature-projective")],
)
def test_what_is_public_says_which_method(tmp_path: Path, given: dict[str, bool], method: str) -> None:
    parts: dict[str, Any] = {"public": Visits(24, seed=2)} if "public" in given else {}
    if "view" in given:
        parts["view"] = lambda item: item | {"x": item["x"].round()}
    run = train(tmp_path / "run", **parts)
    assert run.certificate["method"] == method
    assert any("ψ" in line for line in run.certificate["public_assumptions"]) == ("view" in given)


def test_tuples_and_nested_items_reach_the_loss_as_they_are_built(tmp_path: Path) -> None:
    class Pairs(Visits):
        def __getitem__(self, index: int) -> Any:
            return (self.x[index].numpy(), {"label": int(self.label[index]), "far": [float(index), True]}, index // 3)

    seen: list[Any] = []

    def of_pairs(model: nn.Module, batch: Any) -> Tensor:
        seen.append(batch)
        return F.cross_entropy(model(batch[0]), batch[1]["label"], reduction="none")

    run = train(tmp_path / "run", private=Pairs(), loss=of_pairs, unit="2")
    assert run.certificate["units"] == 20
    batch = seen[-1]
    assert isinstance(batch, tuple) and batch[1]["far"][0].dtype == torch.float32 and batch[1]["far"][1].dtype == torch.bool
    assert batch[2].dtype == torch.int64 and len({len(batch[0]), len(batch[1]["label"]), len(batch[2])}) == 1


def test_records_of_one_unit_are_clipped_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also their weights: a unit's gradient is the mean over its records."""
    shown: list[tuple[Tensor, Tensor]] = []
    real = PrivateHalf.shown

    def watched(self: PrivateHalf, *args: Any) -> Any:
        batch, units = real(self, *args)
        shown.append((units, batch["weight in the unit"]))
        return batch, units

    monkeypatch.setattr(PrivateHalf, "shown", watched)
    train(tmp_path / "run", settings={"even_so": True, "records_per_unit": 3})
    units, weights = (torch.cat(parts) for parts in zip(*shown, strict=True))
    assert len(units) and len(units) % 3 == 0 and torch.allclose(weights, torch.full_like(weights, 1 / 3))


def test_a_budget_binds_however_the_people_come(tmp_path: Path) -> None:
    """Another label, another order, another precision, a subset: the same people have one account."""
    train(tmp_path / "first", budget=4.0)
    for number, other in enumerate(
        (
            Visits(label=lambda index: 1 - index % 2),
            torch.utils.data.Subset(Visits(), list(range(59, -1, -1))),
            Visits(x=lambda index: Visits().x[index].double().numpy().astype(np.float32)),
            torch.utils.data.Subset(Visits(), list(range(40))),
        )
    ):
        with pytest.raises(HalfmaskError, match="budget"):
            train(tmp_path / f"again{number}", private=other, epsilon=3.5)


def test_weights_of_an_earlier_run_carry_its_cost(tmp_path: Path) -> None:
    first = train(tmp_path / "first")
    second = train(tmp_path / "second", model=first.model)
    assert second.certificate["own_epsilon"]["zero-out"] == pytest.approx(3.0, abs=0.01)
    assert second.certificate["epsilon"]["zero-out"] > 3.5, "of both together"


def test_the_same_people_stand_on_one_side(tmp_path: Path) -> None:
    for part in ("test", "public"):
        with pytest.raises(HalfmaskError, match="recur"):
            train(tmp_path / part, **{part: Visits(24, seed=0)})
    again = Visits(24, seed=1, patient=lambda index: f"p{index}")
    with pytest.raises(HalfmaskError, match="by their subject"):
        train(tmp_path / "same patients", test=again)


def test_parts_without_ids_are_declared(tmp_path: Path) -> None:
    class Nameless(Visits):
        def __getitem__(self, index: int) -> dict[str, Any]:
            return {name: value for name, value in super().__getitem__(index).items() if name != "patient"}

    with pytest.raises(HalfmaskError, match="no field 'patient'"):
        train(tmp_path / "refused", test=Nameless(20, seed=3))
    whose = {"private": Visits(patient=lambda index: index // 3)}
    run = train(tmp_path / "declared", test=Nameless(20, seed=3), public=Nameless(24, seed=2), strangers=["test", "public"], **whose)
    assert "loss" in run.scores


def test_ids_that_are_there_are_compared_whatever_was_declared(tmp_path: Path) -> None:
    """A declaration is for those of whom nothing is known."""
    with pytest.raises(HalfmaskError, match="by their subject"):
        train(tmp_path / "run", test=Visits(24, seed=1, patient=lambda index: f"p{index}"), strangers=["test"])
    with pytest.raises(HalfmaskError, match="expected a map-style dataset"):
        train(tmp_path / "run", test=iter([]), strangers=["test"])


def test_what_nobody_can_check_of_a_strangers_code_is_in_the_certificate(tmp_path: Path) -> None:
    assert any("keep nothing of private records" in line for line in train(tmp_path / "run").certificate["public_assumptions"])


def test_an_item_that_changes_after_it_was_accounted_for_is_never_trained_on(tmp_path: Path) -> None:
    data = Visits()
    steps: list[int] = []

    def spoiling(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        steps.append(len(batch["x"]))
        if len(steps) > 30:
            data.x = data.x + 1
        return loss(model, batch)

    with pytest.raises(HalfmaskError, match="no longer what it was when it was accounted for"):
        train(tmp_path / "run", private=data, loss=spoiling, epochs=20, batch=15)


def test_a_loss_that_counts_the_classes_of_its_batch_is_refused(tmp_path: Path) -> None:
    """It weighs every record by how many others are of its class: apart, if the labels it is tried on are all the same."""

    def balanced(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        counts = torch.bincount(batch["label"], minlength=2).clamp(min=1)
        return loss(model, batch) * len(batch["label"]) / counts[batch["label"]]

    with pytest.raises(HalfmaskError, match="people are coupled"):
        train(tmp_path / "run", loss=balanced)
    with pytest.raises(HalfmaskError, match="people are coupled"):
        train(tmp_path / "again", loss=balanced, sample=[Visits()[0]] * 4 + [Visits()[index] for index in range(8)])


class Table(nn.Linear):
    """Makes a table when it is first used, and keeps no record in it; or it keeps the last record it saw."""

    def __init__(self, keeps: bool):
        super().__init__(80, 2)
        self.keeps = keeps
        self.register_buffer("table", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None or self.keeps:
            self.table = x[0].detach().clone() if self.keeps else torch.ones(80)
        return super().forward(x * self.table.clamp(1, 1))


def test_a_model_that_keeps_records_is_refused_before_anything_is_paid(tmp_path: Path, fresh_home: Path) -> None:
    with pytest.raises(HalfmaskError, match="'table' of the model changed while a loss was taken"):
        train(tmp_path / "run", model=Table(keeps=True))
    assert not any('"spend"' in path.read_text() for path in fresh_home.rglob("*.jsonl"))
    train(tmp_path / "other", model=Table(keeps=False))


def test_a_model_that_begins_to_keep_records_is_refused_before_its_gradient_is_released(tmp_path: Path) -> None:
    class Later(Table):
        def forward(self, x: Tensor) -> Tensor:
            # Noise to try a loss on is between zero and one.
            self.keeps = bool((x < 0).any())
            return super().forward(x)

    model = Later(keeps=False)
    before = model.weight.detach().clone()
    with pytest.raises(HalfmaskError, match="'table' of the model changed while a loss was taken"):
        train(tmp_path / "run", model=model, epochs=4)
    assert torch.equal(model.weight, before)


def test_weights_that_a_run_went_on_from_are_behind_it_when_it_is_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped half-way, its weights are nobody's released ones any more."""
    first = train(tmp_path / "first")
    real, taken = Trainer.take_step, []

    def stopped(self: Trainer) -> None:
        if len(taken) == 2:
            raise KeyboardInterrupt
        taken.append(1)
        real(self)

    monkeypatch.setattr(Trainer, "take_step", stopped)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "second", model=first.model)
    monkeypatch.setattr(Trainer, "take_step", real)
    again = train(tmp_path / "second", resume=True)
    assert again.certificate["steps"] == 4 and again.certificate["own_epsilon"]["zero-out"] < 3.5
    assert again.certificate["epsilon"]["zero-out"] > 3.5, "of both runs together"


def test_going_on_and_other_settings(tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match=r"no config\.yaml"):
        train(tmp_path / "run", resume=True)
    run = train(tmp_path / "run")
    with pytest.raises(HalfmaskError, match="already holds a run"):
        train(tmp_path / "run")
    assert train(tmp_path / "run", resume=True).certificate["steps"] == run.certificate["steps"], "all of it was paid"


def test_any_optimiser_and_the_weights_that_train(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(80, 8), nn.Linear(8, 2))
    model[0].requires_grad_(False)
    frozen, before = model[0].weight.clone(), model[1].weight.detach().clone()
    made: list[torch.optim.Optimizer] = []
    train(tmp_path / "run", model=model, optimiser=lambda weights: made.append(torch.optim.Adam(weights, lr=0.01)) or made[-1])
    assert torch.equal(model[0].weight, frozen) and not torch.equal(model[1].weight, before)
    assert len(made) == 1 and made[0].state, "it was the one that took the steps"


def coupled(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    losses = loss(model, batch)
    return losses - 0.5 * losses.mean()


def unsteady() -> Callable[[int], Tensor]:
    random = torch.Generator().manual_seed(3)
    return lambda index: torch.randn(80, generator=random)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unit": "doctor"}, "item 0 of the private dataset has no field 'doctor', only 'x', 'label', 'patient'"),
        ({"private": Visits(patient=lambda i: 1.5)}, "expected a whole number or a name"),
        ({"private": Visits(x=lambda i: torch.zeros(80 + i % 2))}, "items of one dataset need one shape"),
        ({"private": Visits(**{"extra": lambda i: 1.0 if i else "a"})}, "expected those of item 0"),
        ({"private": Visits(x=lambda i: object())}, "expected a tensor, an array or a number"),
        ({"private": Visits(x=unsteady())}, "was another one when it was fetched again"),
        ({"private": []}, "the private dataset is empty"),
        ({"private": iter([])}, "expected a map-style dataset"),
        ({"private": [torch.zeros(3)]}, "expected a dict or a tuple"),
        ({"records_per_unit": 2}, "one patient of the private dataset has 3 records and records_per_unit is 2"),
        ({"loss": lambda model, batch: loss(model, batch).mean()}, "it must return one value per record"),
        ({"loss": lambda model, batch: 1.0}, "the loss is a float"),
        ({"loss": coupled}, "people are coupled"),
        ({"model": nn.Sequential(nn.Linear(80, 2), nn.BatchNorm1d(2))}, "the layer '1' normalises by statistics of the batch"),
        ({"model": nn.Linear(80, 2).requires_grad_(False)}, "no trainable parameters"),
        ({"test": Visits(9, seed=4), "score": lambda model, batch: accuracy(model, batch).mean()}, "expected one value per record"),
        ({"test": Visits(9, seed=4, label=lambda i: (i, i))}, "are built as"),
        ({"view": lambda item: {"x": torch.rand(3)}}, "each would show something new"),
        ({"view": lambda item: item}, "all that is private would be public"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"settings": {"subspace.dimm": 3}}, "dimm"),
        ({"method": "feature"}, "no view= says what that is"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path: Path, changes: dict[str, Any], words: str, fresh_home: Path) -> None:
    with pytest.raises(HalfmaskError, match=words) as refused:
        train(tmp_path / "run", **changes)
    assert "\n" not in str(refused.value)
    if "score" not in changes:
        assert not any('"spend"' in path.read_text() for path in fresh_home.rglob("*.jsonl")), "nothing was paid"


def test_a_dataset_that_shuffles_itself_between_reads_is_refused() -> None:
    class Shuffling(Visits):
        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == len(self) - 1:
                self.x = self.x.flip(0)
            return super().__getitem__(index)

    with pytest.raises(HalfmaskError, match="fetched again"):
        read_items(Shuffling(), "patient", "the private dataset")


def test_pictures_are_known_again_in_another_size() -> None:
    """The sketches that datasets of photographs have, for a stranger's pictures too."""
    smooth = F.interpolate(torch.rand(4, 3, 6, 6, generator=torch.Generator().manual_seed(1)), (96, 72), mode="bicubic").clamp(0, 1)
    larger = F.interpolate(smooth, (144, 108), mode="bilinear")
    first, _ = read_items([{"image": one} for one in smooth], "record", "a")
    second, _ = read_items([{"image": (255 * one).byte()} for one in larger], "record", "b")
    assert first.prints is not None and second.prints is not None
    assert second.prints.in_pictures_of(first.prints).all()


def test_the_form_of_an_item_puts_batches_together() -> None:
    form = form_of({"a": torch.zeros(2), "b": (np.ones(3), "text", 4)})
    assert form.build == {"a": "a", "b": ("b.0", None, "b.2")}
    batch = form.together({"a": torch.zeros(5, 2), "b.0": torch.ones(5, 3), "b.2": torch.zeros(5)})
    assert batch["b"][1] is None and batch["b"][0].shape == (5, 3)


def test_a_field_called_weight_is_the_users_own(tmp_path: Path) -> None:
    seen: list[Tensor] = []

    def weighted(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        seen.append(batch["weight"])
        return loss(model, batch)

    train(tmp_path / "run", private=Visits(weight=lambda i: 7.0), loss=weighted)
    assert all((one == 7).all() or (one < 1).all() for one in seen), "theirs, or the noise of the first trial"
    assert any((one == 7).all() for one in seen)
