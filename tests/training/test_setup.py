"""From a config to a run: who is private, who is public, how many steps, how much noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from halfmask.data.pose_records import PoseRecords
from halfmask.data.prints import named_prints
from halfmask.data.records import Datasets
from halfmask.errors import HalfmaskError
from halfmask.privacy.accounting import epsilon
from halfmask.tasks.pose import PoseTask
from halfmask.training.assumptions import public_assumptions
from halfmask.training.config import RunConfig
from halfmask.training.progress import Progress
from halfmask.training.setup import Setup, prepare

pytestmark = pytest.mark.usefixtures("quick_accounting")
Build = Callable[..., RunConfig]


class Listener(Progress):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def ready(config: RunConfig) -> Setup:
    return prepare(config, Progress())


def pictures(records: PoseRecords | None) -> set[bytes]:
    return set() if records is None else {np.array(image).tobytes() for image in records.images}


@pytest.fixture
def without_public(monkeypatch: pytest.MonkeyPatch) -> None:
    real = PoseTask.load
    monkeypatch.setattr(PoseTask, "load", lambda self, report=None: replace(real(self, report), public=None))


# ---- steps, rate, noise --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["crop", "image", "subject"])
@pytest.mark.parametrize(("batch", "epochs"), [(3, 2.5), (4, 0.1), (5, 1)])
def test_steps_and_rate_count_units(tiny_config: Build, unit: str, batch: int, epochs: float) -> None:
    setup = ready(tiny_config(unit=unit, batch=batch, epochs=epochs))
    units = len(np.unique(setup.private.unit_ids(unit)))
    assert len(setup.units) == units and (unit == "crop") == (units == 40)
    assert setup.steps == math.ceil(epochs * units / batch)
    assert setup.sampling_rate == pytest.approx(batch / units)
    assert setup.steps_per_epoch == math.ceil(units / batch)


def test_the_noise_costs_what_was_asked(tiny_config: Build) -> None:
    setup = ready(tiny_config())
    assert setup.plan is not None and setup.plan.steps == setup.steps and setup.noise_multiplier > 0
    cost = epsilon([setup.plan], setup.config.delta, grid=1e-3)
    assert 0.97 * setup.config.epsilon <= cost <= setup.config.epsilon


def test_replacement_needs_more_noise(tiny_config: Build) -> None:
    assert ready(tiny_config(adjacency="replace-one")).noise_multiplier > 1.2 * ready(tiny_config()).noise_multiplier


def test_plans_of_methods_without_noise(tiny_config: Build) -> None:
    assert ready(tiny_config(method="public-only")).plan is None
    plan = ready(tiny_config(method="non-private")).plan
    assert plan is not None and plan.noise_multiplier == 0 and epsilon([plan], 1e-5) == math.inf


def test_a_delta_that_protects_nobody_is_warned_of(tiny_config: Build) -> None:
    for delta, warned in ((0.03, True), (0.02, False)):
        listener = Listener()
        prepare(tiny_config(delta=delta), listener)
        assert any("delta" in text for text in listener.warnings) == warned


@pytest.mark.parametrize("method", ["dpsgd", "feature", "non-private"])
def test_a_batch_larger_than_the_dataset_is_refused(tiny_config: Build, method: str) -> None:
    with pytest.raises(HalfmaskError, match="the batch is 41"):
        ready(tiny_config(method=method, batch=41))


def test_an_empty_dataset_is_refused(tiny_config: Build) -> None:
    with pytest.raises(HalfmaskError, match="nobody to learn from"):
        ready(tiny_config("data.private=0"))


# ---- who is public -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["crop", "image", "subject"])
@pytest.mark.parametrize("method", ["projected", "feature-projective"])
def test_units_that_span_the_subspace_leave_the_private_set_whole(tiny_config: Build, unit: str, method: str) -> None:
    config = tiny_config("subspace.source=private", method=method, unit=unit, batch=2)
    setup = ready(config)
    everyone = setup.data.private
    assert setup.basis is not None and len(setup.basis) == 16
    if unit == "crop":
        assert not pictures(setup.private) & pictures(setup.basis)
        beside = np.isin(everyone.image_ids, setup.basis.image_ids)
        assert len(setup.private) == 40 - beside.sum() <= 24, "whoever is on a photograph that became public leaves with it"
    else:
        column = "image_ids" if unit == "image" else "subjects"
        left, gone = set(getattr(setup.private, column).tolist()), set(getattr(setup.basis, column).tolist())
        assert left and gone and not left & gone
        kept = np.isin(getattr(everyone, column), list(left))
        assert kept.sum() == len(setup.private), "nobody else has left"
    units = len(np.unique(setup.private.unit_ids(unit)))
    assert len(setup.units) == units
    assert setup.steps == math.ceil(config.epochs * units / 2) and setup.sampling_rate == pytest.approx(2 / units)
    assert any("not protected" in line for line in public_assumptions(setup))


def test_the_choice_of_who_leaves_follows_the_public_seed(tiny_config: Build) -> None:
    chosen = [pictures(ready(tiny_config("subspace.source=private", method="projected", seed=s)).basis) for s in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]


def test_nobody_leaves_for_a_method_without_a_subspace(tiny_config: Build) -> None:
    assert len(ready(tiny_config("subspace.source=private", method="dpsgd")).private) == 40


def test_the_private_set_is_never_used_up(tiny_config: Build) -> None:
    with pytest.raises(HalfmaskError, match="all 40 private records"):
        ready(tiny_config("subspace.source=private", "subspace.samples=40", method="projected"))


@pytest.mark.parametrize("source", ["public", "private"])
def test_public_people_have_one_part_each(tiny_config: Build, source: str) -> None:
    setup = ready(tiny_config(f"subspace.source={source}", method="projected"))
    parts = [pictures(part) for part in (setup.private, setup.basis, setup.raw_public, setup.watched)]
    assert all(parts)
    assert sum(map(len, parts)) == len(set().union(*parts)) <= 100
    assert source == "private" or len(set().union(*parts)) == 100
    assert setup.basis is not None and len(setup.basis) == 16


def test_methods_that_need_public_people_say_so(tiny_config: Build, without_public: None) -> None:
    with pytest.raises(HalfmaskError, match="needs public people"):
        ready(tiny_config(method="projected"))
    with pytest.raises(HalfmaskError, match="normalisation statistics"):
        ready(tiny_config(strategy="scratch"))
    ready(tiny_config("subspace.source=private", method="projected"))
    ready(tiny_config("model.norm=group", strategy="scratch"))
    ready(tiny_config(method="feature"))


def test_too_few_public_people_are_said_so(tiny_config: Build) -> None:
    with pytest.raises(HalfmaskError, match="needs 61 public people and the dataset has 60"):
        ready(tiny_config("subspace.samples=61", method="projected"))


# ---- views and features --------------------------------------------------------------------------------------------------


def test_views_are_made_once_from_whole_crops(tiny_config: Build) -> None:
    setup = ready(tiny_config(method="feature"))
    assert setup.private.views is not None
    for i in (0, 7):
        expected = setup.view.of({"image": setup.private.images[i]}).public["image"]
        assert np.array_equal(setup.private.views[i], expected)
    assert ready(tiny_config(method="dpsgd")).private.views is None


def test_features_belong_to_the_records_they_stand_for(tiny_config: Build) -> None:
    setup = ready(tiny_config("subspace.source=private", method="feature-projective", strategy="top"))
    for records in (setup.private, setup.basis, setup.raw_public, setup.watched):
        assert records is not None
        with torch.no_grad():
            expected = setup.model.lower(torch.from_numpy(np.array(records.images[3:5])))
        assert torch.allclose(torch.from_numpy(np.array(records.features["private"][3:5])).float(), expected, rtol=1e-3, atol=1e-3)
    assert setup.private.features.keys() == {"private", "view"}


def test_no_features_where_everything_trains(tiny_config: Build) -> None:
    assert ready(tiny_config(strategy="full")).private.features == {}


def test_scratch_learns_its_statistics_from_public_people_alone(tiny_config: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ready(tiny_config(strategy="scratch")).model.state_dict()
    real = PoseTask.load

    def black(self: PoseTask, report: object = None) -> Datasets:
        data = real(self)
        private = data.private.changed(images=np.zeros_like(data.private.images), key="black")  # type: ignore[attr-defined]
        return replace(data, private=private)

    monkeypatch.setattr(PoseTask, "load", black)
    setup = ready(tiny_config(strategy="scratch"))
    after = setup.model.state_dict()
    assert not setup.private.images.any()  # type: ignore[attr-defined]
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert before["backbone.patch_embed.conv1.bn.running_mean"].abs().sum() > 0


def test_the_model_starts_from_the_public_seed(tiny_config: Build) -> None:
    weights = [ready(tiny_config(seed=s, insecure_seed=i)).model.head.conv.weight for s, i in ((0, 1), (0, 2), (1, 1))]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_frozen_network_without_weights_is_remarked_on(tiny_config: Build) -> None:
    for strategy, remarked in (("top", True), ("full", False)):
        listener = Listener()
        prepare(tiny_config(strategy=strategy), listener)
        assert any("the frozen part is random" in line for line in listener.warnings) is remarked


def test_named_public_parts_are_kept_to_their_use(tiny_config: Build, tiny_records: PoseRecords) -> None:
    """`basis` spans the subspace, `tuning` is watched, and neither is trained on."""
    everyone = np.arange(12)
    drawn = prepare(tiny_config(method="feature-projective"), Progress()).data
    data = replace(
        drawn, public=tiny_records.take(everyone[:6]), basis=tiny_records.take(everyone[6:9]), tuning=tiny_records.take(everyone[9:])
    )
    setup = prepare(tiny_config("subspace.samples=3", "subspace.dim=2", method="feature-projective"), Progress(), data=data)
    assert setup.basis is not None and setup.watched is not None and setup.raw_public is not None
    assert np.array_equal(setup.basis.joints, tiny_records.joints[6:9])
    assert np.array_equal(setup.watched.joints, tiny_records.joints[9:])
    assert np.array_equal(setup.raw_public.joints, tiny_records.joints[:6])
    with pytest.raises(HalfmaskError, match=r"data\.splits\.basis has 3"):
        prepare(tiny_config("subspace.samples=4", "subspace.dim=2", method="feature-projective"), Progress(), data=data)


@pytest.mark.parametrize("part", ["public", "basis", "tuning"])
def test_nobody_is_protected_and_public_at_once(tiny_config: Build, tiny_records: PoseRecords, part: str) -> None:
    """Images are kept apart by the splits; a subject may have images on both sides."""
    drawn = prepare(tiny_config(), Progress()).data

    def named(records: PoseRecords, subjects: list[int]) -> PoseRecords:
        names = [f"picture {part} {subjects[0]} {i}" for i in range(len(subjects))]
        return records.changed(subjects=np.array(subjects), prints=named_prints(names, [str(subject) for subject in subjects]))

    private, others = named(drawn.private, [*range(40)]), named(tiny_records, [*range(100, 112)])
    apart = replace(drawn, name="photographs", private=private, test=None, public=others)
    prepare(tiny_config(unit="subject"), Progress(), data=apart)
    shared = replace(apart, **{part: named(tiny_records, [7, *range(101, 112)])})
    with pytest.raises(HalfmaskError, match=f"recur in '{part}': 1 by their subject"):
        prepare(tiny_config(unit="subject"), Progress(), data=shared)
