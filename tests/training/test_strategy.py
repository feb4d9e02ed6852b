"""Features of the frozen part of a network: computed once, of each record alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from halfmask.data.pose_records import PoseRecords
from halfmask.models.simcc import PoseModel
from halfmask.tasks.pose import PoseTask, pose_loss
from halfmask.training.config import build_config
from halfmask.training.strategy import with_lower_features

SIZE = (64, 48)


def nano(seed: int = 0, norm: str = "batch") -> PoseModel:
    torch.manual_seed(seed)
    return PoseModel("nano", 16, SIZE, norm=norm).eval()


def lowered(records: PoseRecords, model: PoseModel, copies: int = 0) -> PoseRecords:
    task = PoseTask(build_config({}, {}))
    known = with_lower_features(records, task, task.lower(model), copies=copies)
    assert isinstance(known, PoseRecords)
    return known


def test_features_are_those_of_the_lower_part(fresh_home: Path, random_records: object) -> None:
    records: PoseRecords = random_records(5)  # type: ignore[operator]
    records = records.changed(views=255 - records.images)
    model = nano()
    known = lowered(records, model)
    assert known.features.keys() == {"private", "view"}
    with torch.no_grad():
        for source, pixels in (("private", records.images), ("view", records.views)):
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
    first = lowered(records, nano())
    assert len(calls) == 1
    second = lowered(records, nano())
    assert len(calls) == 1 and np.array_equal(first.features["private"], second.features["private"])
    lowered(records, nano(seed=1))
    assert len(calls) == 2, "other weights, other features"
    lowered(replace(records, key="others"), nano())
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
    lowered(records, model)
    with torch.no_grad():
        model.head.conv.bias += 1
        model.backbone.stages[3].blocks[0].mlp.fc1.bias += 1  # type: ignore[index, union-attr]
    lowered(records, model)
    assert len(calls) == 1
    model.backbone.patch_embed.conv1.bn.running_mean += 1  # type: ignore[operator]
    lowered(records, model)
    assert len(calls) == 2


def test_features_of_another_view_are_not_mistaken(fresh_home: Path, random_records: object) -> None:
    """Even if only one person's view differs."""
    records: PoseRecords = random_records(40)  # type: ignore[operator]
    model = nano()
    views = 255 - records.images
    lowered(records.changed(views=views), model)
    changed = views.copy()
    changed[21] = 0
    found = lowered(records.changed(views=changed), model).features["view"]
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
    last = lowered(records, model).features["private"][39]
    bright = records.images.copy()
    bright[38] = 255
    fewer = records.changed(images=bright, key="bright").take(np.arange(39 - others, 40))
    known = lowered(fewer, model).features["private"]
    assert known.dtype == (np.float32 if others else np.float16)
    assert np.array_equal(known[-1], last)


def test_copies_that_were_drawn_otherwise_are_not_found_again(
    fresh_home: Path, random_records: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: PoseRecords = random_records(5)  # type: ignore[operator]
    first = lowered(records, nano(), copies=1).copies[0]
    renamed = lowered(replace(records, ids=records.ids[::-1]), nano(), copies=1).copies[0]
    assert not np.array_equal(first.features["private"], renamed.features["private"]), "other ids, under the same key"
    monkeypatch.setattr("halfmask.training.strategy._COPY_SEED", 1)
    redrawn = lowered(records, nano(), copies=1).copies[0]
    for one, other in ((first, renamed), (first, redrawn)):
        assert not np.array_equal(one.joints, other.joints)
        assert not np.array_equal(one.features["private"], other.features["private"])
