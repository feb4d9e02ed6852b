"""Which weights train, and features that are computed once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from halfmask.data.pose_records import PoseRecords
from halfmask.models.simcc import PoseModel
from halfmask.tasks.pose import pose_loss
from halfmask.training.strategy import choose_parameters, learn_public_statistics, with_lower_features

SIZE = (64, 48)


def nano(seed: int = 0, norm: str = "batch") -> PoseModel:
    torch.manual_seed(seed)
    return PoseModel("nano", 16, SIZE, norm=norm).eval()


def trainable(strategy: str) -> set[str]:
    model = nano()
    choose_parameters(model, strategy)
    return {name for name, p in model.named_parameters() if p.requires_grad}


EVERYTHING = {name for name, _ in nano().named_parameters()}
UPPER = {name for name in EVERYTHING if name.startswith(("backbone.stages.3.", "head."))}
LAYER_NORMS = {
    f"{name}.{kind}" for name, module in nano().named_modules() if isinstance(module, nn.LayerNorm) for kind in ("weight", "bias")
}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("full", EVERYTHING), ("scratch", EVERYTHING), ("top", UPPER), ("finetune", UPPER | LAYER_NORMS)],
)
def test_trainable_weights(strategy: str, expected: set[str]) -> None:
    assert trainable(strategy) == expected
    assert LAYER_NORMS - UPPER and UPPER < UPPER | LAYER_NORMS < EVERYTHING


def test_a_strategy_undoes_the_one_before_it() -> None:
    model = nano()
    for strategy in ("top", "full", "top"):
        choose_parameters(model, strategy)
    assert {name for name, p in model.named_parameters() if p.requires_grad} == UPPER


def test_features_are_those_of_the_lower_part(fresh_home: Path, random_records: object) -> None:
    records: PoseRecords = random_records(5)  # type: ignore[operator]
    records = replace(records, views=255 - records.images)
    model = nano()
    known = with_lower_features(records, model)
    assert known.features.keys() == {"image", "view"}
    with torch.no_grad():
        for source, pixels in (("image", records.images), ("view", records.views)):
            expected = model.lower(torch.from_numpy(pixels))
            assert known.features[source].dtype == np.float16
            assert torch.allclose(torch.from_numpy(np.array(known.features[source])).float(), expected, rtol=1e-3, atol=1e-3)
            batch = known.batch(np.array([3, 1]), source)
            assert "image" not in batch
            plain = records.batch(np.array([3, 1]), source)
            assert torch.allclose(pose_loss(model, batch), pose_loss(model, plain), rtol=1e-3)


def test_features_are_computed_once(fresh_home: Path, random_records: object, monkeypatch: pytest.MonkeyPatch) -> None:
    records: PoseRecords = random_records(5)  # type: ignore[operator]
    calls = []
    real = PoseModel.lower
    monkeypatch.setattr(PoseModel, "lower", lambda self, images: calls.append(len(images)) or real(self, images))
    first = with_lower_features(records, nano())
    assert len(calls) == 1
    second = with_lower_features(records, nano())
    assert len(calls) == 1 and np.array_equal(first.features["image"], second.features["image"])
    with_lower_features(records, nano(seed=1))
    assert len(calls) == 2, "other weights, other features"
    with_lower_features(replace(records, key="others"), nano())
    assert len(calls) == 3, "other records, other features"
    assert len(set(calls)) == 1, "always as many at once, so that nobody's features are rounded by how many others there are"


def test_features_follow_the_statistics_and_ignore_what_trains(
    fresh_home: Path, random_records: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: PoseRecords = random_records(5)  # type: ignore[operator]
    calls = []
    real = PoseModel.lower
    monkeypatch.setattr(PoseModel, "lower", lambda self, images: calls.append(1) or real(self, images))
    model = nano()
    with_lower_features(records, model)
    with torch.no_grad():
        model.head.conv.bias += 1
        model.backbone.stages[3].blocks[0].mlp.fc1.bias += 1  # type: ignore[index, union-attr]
    with_lower_features(records, model)
    assert len(calls) == 1
    model.backbone.patch_embed.conv1.bn.running_mean += 1  # type: ignore[operator]
    with_lower_features(records, model)
    assert len(calls) == 2


def test_features_of_another_view_are_not_mistaken(fresh_home: Path, random_records: object) -> None:
    """Even if only one person's view differs."""
    records: PoseRecords = random_records(40)  # type: ignore[operator]
    model = nano()
    views = 255 - records.images
    with_lower_features(replace(records, views=views), model)
    changed = views.copy()
    changed[21] = 0
    found = with_lower_features(replace(records, views=changed), model).features["view"]
    with torch.no_grad():
        expected = model.lower(torch.from_numpy(changed[21:22]))[0]
    assert torch.allclose(torch.from_numpy(np.array(found[21])).float(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("others", [0, 1, 31, 32, 39])
def test_features_of_a_person_do_not_depend_on_others(
    fresh_home: Path, random_records: object, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """However many there are, and also where one of them has features too large for half precision."""
    records: PoseRecords = random_records(40)  # type: ignore[operator]
    model = nano(norm="group")
    real = PoseModel.lower

    def lower(self: PoseModel, images: torch.Tensor) -> torch.Tensor:
        found = real(self, images)
        return torch.where((images.float().mean((1, 2, 3)) > 254)[:, None, None, None], 1e6 * found, found)

    monkeypatch.setattr(PoseModel, "lower", lower)
    last = with_lower_features(records, model).features["image"][39]
    bright = records.images.copy()
    bright[38] = 255
    fewer = replace(records, images=bright, key="bright").take(np.arange(39 - others, 40))
    known = with_lower_features(fewer, model).features["image"]
    assert known.dtype == (np.float32 if others else np.float16)
    assert np.array_equal(known[-1], last)


def test_copies_that_were_drawn_otherwise_are_not_found_again(
    fresh_home: Path, random_records: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: PoseRecords = random_records(5)  # type: ignore[operator]
    first = with_lower_features(records, nano(), copies=1).copies[0]
    renamed = with_lower_features(replace(records, ids=records.ids[::-1]), nano(), copies=1).copies[0]
    assert not np.array_equal(first.features["image"], renamed.features["image"]), "other ids, under the same key"
    monkeypatch.setattr("halfmask.training.strategy._COPY_SEED", 1)
    redrawn = with_lower_features(records, nano(), copies=1).copies[0]
    for one, other in ((first, renamed), (first, redrawn)):
        assert not np.array_equal(one.joints, other.joints)
        assert not np.array_equal(one.features["image"], other.features["image"])


def test_statistics_come_from_public_people(tiny_records: PoseRecords) -> None:
    model = nano()
    learn_public_statistics(model, tiny_records)
    first = model.backbone.patch_embed.conv1
    from halfmask.models.simcc import normalise

    with torch.no_grad():
        seen = first.conv(normalise(torch.from_numpy(np.array(tiny_records.images))))
    assert torch.allclose(first.bn.running_mean, seen.mean((0, 2, 3)), atol=1e-4)
    assert torch.allclose(first.bn.running_var, seen.var((0, 2, 3)), rtol=1e-3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model(torch.from_numpy(np.array(tiny_records.images)))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items()), "learning has ended"


def test_statistics_average_over_batches(random_records: object) -> None:
    """128 people in two batches count alike."""
    records: PoseRecords = random_records(128)  # type: ignore[operator]
    images = records.images.copy()
    images[64:] //= 8
    model = nano()
    learn_public_statistics(model, replace(records, images=images))
    from halfmask.models.simcc import normalise

    first = model.backbone.patch_embed.conv1
    with torch.no_grad():
        means = [first.conv(normalise(torch.from_numpy(part))).mean((0, 2, 3)) for part in (images[:64], images[64:])]
    assert torch.allclose(first.bn.running_mean, (means[0] + means[1]) / 2, atol=1e-4)
    assert not torch.allclose(means[0], means[1], atol=0.1)
