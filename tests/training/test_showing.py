"""Showing records changed: the same change for an image and its view, and a person's gradient a function of that person alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from halfmask.data.augment import AugmentConfig
from halfmask.data.pose_records import PoseRecords
from halfmask.data.records import PRIVATE, VIEW
from halfmask.errors import HalfmaskError
from halfmask.models.simcc import PoseModel
from halfmask.tasks.pose import PoseTask
from halfmask.tasks.pose_settings import ShowingConfig
from halfmask.training.config import RunConfig, build_config
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.running import run_training
from halfmask.training.setup import prepare
from halfmask.training.showing import Showing
from halfmask.training.strategy import with_lower_features

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread", "fresh_home")
Build = Callable[..., RunConfig]
PLAIN = AugmentConfig(colour=False)
FIRST: dict[str, Any] = {"use": "private", "step": 0}


def pose(config: ShowingConfig) -> PoseTask:
    return PoseTask(replace(build_config({}, {}), augment=config))


def showing_of(config: ShowingConfig, seed: int = 0) -> Showing:
    return Showing(config, pose(config), seed)


def with_views(records: PoseRecords) -> PoseRecords:
    return records.changed(views=255 - records.images)


def with_copies(records: PoseRecords, copies: int, views_too: bool = True) -> PoseRecords:
    torch.manual_seed(0)
    task, model = pose(ShowingConfig(change=PLAIN)), PoseModel("nano", input_size=records.images.shape[2:]).eval()
    known = with_lower_features(records, task, task.lower(model), copies=copies, views_too=views_too)
    assert isinstance(known, PoseRecords)
    return known


def test_nothing_is_changed_unless_asked(tiny_records: PoseRecords) -> None:
    shown = showing_of(ShowingConfig()).show(tiny_records, np.array([3, 1]), PRIVATE, **FIRST)[0]
    assert torch.equal(shown["image"], torch.from_numpy(tiny_records.images[[3, 1]]))


def test_an_image_and_its_view_are_changed_alike(tiny_records: PoseRecords) -> None:
    """The views here are negatives, so a change that differs would show."""
    image, view = showing_of(ShowingConfig(times=1, change=replace(PLAIN, shift=0, scale=0, rotation=0))).show(
        with_views(tiny_records), np.arange(8), PRIVATE, VIEW, **FIRST
    )
    assert torch.allclose(image["image"] + view["image"], torch.full_like(image["image"], 255.0), atol=1e-3)
    assert torch.equal(image["joints"], view["joints"])


def test_the_view_shown_is_the_stored_one_changed(tiny_records: PoseRecords) -> None:
    """ψ was computed once, of the crop as it is. A view made of a changed crop would be a new measurement each time."""
    constant = tiny_records.changed(views=np.full_like(tiny_records.images, 7))
    showing = showing_of(ShowingConfig(times=1, change=replace(PLAIN, rotation=0, scale=0, shift=0)))
    shown = showing.show(constant, np.arange(6), VIEW, **FIRST)[0]
    assert torch.allclose(shown["image"], torch.full_like(shown["image"], 7.0))


def test_each_record_is_shown_so_many_times_one_beside_the_other(tiny_records: PoseRecords) -> None:
    shown = showing_of(ShowingConfig(times=3)).show(tiny_records, np.array([5, 2]), PRIVATE, times=3, **FIRST)[0]
    assert len(shown["image"]) == 6
    assert not torch.equal(shown["image"][0], shown["image"][1])
    likeness = [float(shown["image"][i].mean() - tiny_records.images[j].mean()) for i, j in ((0, 5), (3, 2))]
    assert all(abs(value) < 120 for value in likeness)


def test_cached_copies_are_what_the_network_makes_of_changed_crops(fresh_home: Path, tiny_records: PoseRecords) -> None:
    known = with_copies(with_views(tiny_records), 2)
    assert len(known.copies) == 2
    assert not np.allclose(known.copies[0].joints, known.joints)
    again = with_copies(with_views(tiny_records), 2)
    assert np.array_equal(known.copies[1].features["view"], again.copies[1].features["view"])
    # All showings of a record: itself and both copies, each once, each with its own joints.
    shown = showing_of(ShowingConfig(times=3, copies=2)).show(known, np.array([4, 7]), PRIVATE, times=3, **FIRST)[0]
    for person, record in enumerate((4, 7)):
        found = {round(float(j[0, 0]), 3) for j in shown["joints"][3 * person : 3 * person + 3]}
        assert found == {round(float(kind.joints[record, 0, 0]), 3) for kind in (known, *known.copies)}
    for place in range(6):
        kind = next(k for k in (known, *known.copies) if np.allclose(k.joints[(4, 7)[place // 3]], shown["joints"][place].numpy()))
        assert torch.equal(shown["features"][place], torch.from_numpy(np.array(kind.features["private"][(4, 7)[place // 3]])).float())


def test_copies_do_not_depend_on_other_records_or_on_the_runs_seed(fresh_home: Path, tiny_records: PoseRecords) -> None:
    everyone = with_copies(tiny_records, 1)
    darker = tiny_records.images.copy()
    darker[3] = 0
    others = with_copies(tiny_records.changed(images=darker, key="darker"), 1)
    same = np.delete(np.arange(len(tiny_records)), 3)
    assert np.array_equal(everyone.copies[0].joints, others.copies[0].joints)
    assert np.allclose(everyone.copies[0].features["private"][same], others.copies[0].features["private"][same], atol=2e-3)


@pytest.mark.parametrize("method", ["dpsgd", "feature-projective"])
def test_showing_a_person_often_does_not_raise_their_share(tiny_config: Build, tmp_path: Path, method: str) -> None:
    config = tiny_config("augment.times=3", "augment.copies=2", method=method, clip_norm=1e-4)
    setup = prepare(config, Progress())
    trainer = Trainer(setup, RunFolder.create(tmp_path / "run", config), Progress())
    batch, units = trainer.noised.shown(setup.private, np.array([4]), torch.tensor([4]), torch.ones(1), 0)
    assert len(batch["joints"]) == 3 and units.tolist() == [4, 4, 4]
    clipped = trainer.engine.clipped_sum(trainer.noised.loss, batch, 1e-4, units)
    assert len(clipped.norms) == 1 and clipped.clipped_fraction == 1
    assert 0.99e-4 < float(clipped.flat().norm()) <= 1e-4
    trainer.train()


@pytest.mark.parametrize("cached", [False, True])
def test_views_may_stay_as_they_are(fresh_home: Path, tiny_records: PoseRecords, cached: bool) -> None:
    """Of images there are copies, of views none; and views are shown unchanged."""
    people = with_views(tiny_records)
    if cached:
        people = with_copies(people, 1, views_too=False)
        assert all("view" not in kind.features for kind in people.copies)
    showing = showing_of(ShowingConfig(times=2, copies=1, views=False))
    shown = showing.show(people, np.array([3, 1]), VIEW, **FIRST)[0]
    for name, tensor in people.batch(np.array([3, 1]), VIEW).items():
        assert torch.equal(shown[name], tensor)
    assert len(showing.show(people, np.array([3, 1]), PRIVATE, times=2, **FIRST)[0]["joints"]) == 4


@pytest.mark.parametrize("cached", [False, True])
def test_a_persons_change_depends_on_nobody_else_in_the_batch(fresh_home: Path, tiny_records: PoseRecords, cached: bool) -> None:
    """Otherwise leaving one person out would change everybody after them, and the sum by far more than C."""
    people = with_copies(tiny_records, 3) if cached else tiny_records
    shown = []
    for records in ([2, 5, 7], [5, 7]):
        shown.append(showing_of(ShowingConfig(times=2, copies=3)).show(people, np.array(records), PRIVATE, times=2, **FIRST)[0])
    for name in shown[0]:
        assert torch.equal(shown[0][name][2:], shown[1][name])


@pytest.mark.parametrize("cached", [False, True])
def test_a_persons_change_depends_on_nobody_who_left(fresh_home: Path, tiny_records: PoseRecords, cached: bool) -> None:
    """The same in a dataset without one of them: their place has changed, their id has not."""
    left = np.delete(np.arange(len(tiny_records)), 4)
    several = {"times": 2, "use": "private", "step": 3}
    shown = []
    for people, records in ((tiny_records, left), (tiny_records.take(left), np.arange(len(left)))):
        people = with_copies(people, 3) if cached else people
        shown.append(showing_of(ShowingConfig(times=2, copies=3)).show(people, records, PRIVATE, **several)[0])
    for name in shown[0]:
        assert torch.equal(shown[0][name], shown[1][name])


@pytest.mark.parametrize("cached", [False, True])
def test_a_batch_does_not_tell_who_was_shown_before(fresh_home: Path, tiny_records: PoseRecords, cached: bool) -> None:
    """The exact half comes after the noised one: were there a state, its changes would tell how many were in the private batch."""
    people = with_copies(tiny_records, 1) if cached else tiny_records
    after = []
    for records in ([], [3], [1, 2, 3, 4]):
        showing = showing_of(ShowingConfig(times=1, copies=1))
        before = dict(vars(showing))
        showing.show(people, np.array(records, np.int64), PRIVATE, use="private", step=5)
        assert vars(showing) == before, "nothing is remembered, so that nothing need be in a checkpoint"
        after.append(showing.show(people, np.array([0, 7]), PRIVATE, use="public", step=5)[0])
    for name in after[0]:
        assert torch.equal(after[0][name], after[1][name]) and torch.equal(after[0][name], after[2][name])


@pytest.mark.parametrize("cached", [False, True])
def test_uses_steps_and_seeds_have_changes_of_their_own(fresh_home: Path, tiny_records: PoseRecords, cached: bool) -> None:
    people = with_copies(tiny_records, 3) if cached else tiny_records
    everyone = np.arange(len(people))
    config = ShowingConfig(times=1, copies=3)
    shown = [
        showing_of(config, seed).show(people, everyone, PRIVATE, use=use, step=step)[0]["joints"]
        for seed, use, step in ((0, "private", 0), (0, "public", 0), (0, "private", 1), (1, "private", 0), (0, "public", 1))
    ]
    assert not any(torch.equal(one, other) for place, one in enumerate(shown) for other in shown[:place])


def test_several_showings_of_a_record_differ_and_the_first_is_that_of_one(tiny_records: PoseRecords) -> None:
    showing = showing_of(ShowingConfig(times=3))
    one, three = (showing.show(tiny_records, np.array([5, 2]), PRIVATE, times=times, **FIRST)[0] for times in (1, 3))
    for person in range(2):
        mine = three["joints"][3 * person : 3 * person + 3]
        assert torch.equal(mine[0], one["joints"][person])
        assert not torch.equal(mine[0], mine[1]) and not torch.equal(mine[1], mine[2]) and not torch.equal(mine[0], mine[2])


@pytest.mark.parametrize("strategy", ["top", "full"])
def test_a_run_with_showings_resumes(strategy: str, tiny_config: Build, tmp_path: Path) -> None:
    """Several public batches a step, and some before the first: the resumed run shows each as the unbroken one does."""
    settings = ("augment.times=1", "augment.copies=2", "augment.public=true", "public.steps=2", "public.first=3", "public.raw_share=0.5")
    config = tiny_config(*settings, method="public-only", strategy=strategy, epochs=1)
    whole = trainer_for(config, tmp_path / "whole")
    whole.train()
    assert whole.exact.batches == 3 + 2 * whole.setup.steps

    class Stops(Progress):
        def step(self, step: int, *_: object) -> None:
            if step == 2:
                raise KeyboardInterrupt

    broken = trainer_for(config, tmp_path / "broken", Stops())
    with pytest.raises(KeyboardInterrupt):
        broken.train()
    broken.save_checkpoint()
    resumed = Trainer(prepare(config, Progress()), RunFolder(tmp_path / "broken"), Progress())
    resumed.resume()
    assert (resumed.standing.step, resumed.exact.batches) == (2, 7)
    resumed.train()
    for name, weights in whole.engine.parameters.items():
        assert torch.equal(weights, resumed.engine.parameters[name])


def trainer_for(config: RunConfig, folder: Path, progress: Progress | None = None) -> Trainer:
    return Trainer(prepare(config, Progress()), RunFolder.create(folder, config), progress or Progress())


@pytest.mark.parametrize("setting", ["augment.times=-1", "augment.copies=0", "augment.copies=17"])
def test_impossible_showings_are_refused(setting: str) -> None:
    with pytest.raises(HalfmaskError, match=setting.partition("=")[0]):
        build_config({}, {}, [setting])


def test_more_showings_than_copies_are_refused_for_the_top() -> None:
    with pytest.raises(HalfmaskError, match=r"raise augment\.copies"):
        build_config({"strategy": "top"}, {}, ["augment.times=6"])
    build_config({"strategy": "finetune"}, {}, ["augment.times=6"])


def test_each_half_of_a_step_has_changes_of_its_own(tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of the exact half that went with the private ones would show the same people changed alike in both."""
    asked: list[tuple[str, tuple[str, ...]]] = []
    real = Showing.show

    def spy(self: Showing, people: PoseRecords, records: np.ndarray, *sources: str, use: str, **more: Any) -> Any:
        asked.append((use, sources))
        return real(self, people, records, *sources, use=use, **more)

    monkeypatch.setattr(Showing, "show", spy)
    run_training(tiny_config("augment.times=1", "public.raw_share=0.5", method="feature"), tmp_path / "run")
    assert {("private", (PRIVATE,)), ("public", (VIEW,)), ("public", (PRIVATE,))} == set(asked)
    steps = len([use for use, _ in asked if use == "private"])
    assert steps == 2 and len(asked) == 3 * steps
