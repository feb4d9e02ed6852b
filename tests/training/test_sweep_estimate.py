from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from halfmask.data.export import export_figures
from halfmask.errors import HalfmaskError
from halfmask.privacy.accounting import SampledGaussian, epsilon
from halfmask.training import sweep_estimate
from halfmask.training.config import RunConfig
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare
from halfmask.training.sweep import PlannedRun, expand, plan_sweep
from halfmask.training.sweep_estimate import Measured, estimate, together

RECIPE: dict[str, Any] = {
    "strategy": "top",
    "batch": 8,
    "epochs": 1,
    "delta": 1e-3,
    "accountant": "rdp",
    "even_so": True,
    "data": {"private": 40, "public": 40, "test": 4},
    "model": {"weights": None, "input_size": [64, 48], "size": "nano"},
    "subspace": {"samples": 16, "dim": 8},
}


def planned(out: Path, *methods: str, epsilons: tuple[float, ...] = (2.0,), **changes: Any) -> list[PlannedRun]:
    return plan_sweep(RECIPE | changes, expand(methods, epsilons, [0.1], [0, 1]), [], out)


@pytest.fixture
def here(monkeypatch, quick_accounting) -> list[RunConfig]:
    """Steps are timed in this process, not in one that has to be started; whose settings were timed is told."""
    timed: list[RunConfig] = []

    def measured(config: RunConfig, threads: int | None) -> Any:
        timed.append(config)
        return sweep_estimate._measure(config, None)

    monkeypatch.setattr(sweep_estimate, "_measured", measured)
    return timed


def test_noise_and_steps_are_those_of_the_run(here, fresh_home, tmp_path) -> None:
    runs = planned(tmp_path / "out", "public-only", "dpsgd", "feature-projective", epsilons=(2.0, 4.0))[:5]
    found = estimate(runs, Progress())
    assert not (tmp_path / "out").exists() and not (fresh_home / "ledgers").exists()
    assert [one.run for one in found] == [run.combination.label for run in runs]
    assert sorted(config.method for config in here) == ["dpsgd", "feature-projective", "public-only"], "each kind of step is timed once"
    for run, one in zip(runs, found, strict=True):
        assert one.seconds is not None and one.seconds > 0 and one.memory_bytes is not None and one.memory_bytes > 1e7
        setup = prepare(run.config, Progress(), planning=True)
        assert (one.units, one.steps, one.sampling_rate) == (len(setup.units), setup.steps, setup.sampling_rate)
        assert one.noise_multiplier == pytest.approx(setup.noise_multiplier)
    noised = [SampledGaussian(one.noise_multiplier, one.sampling_rate, one.steps) for one in found if one.epsilon is not None]
    assert together(runs, found) == pytest.approx(epsilon(noised, 1e-3, "rdp"))


def test_nobody_private_is_opened(here, fresh_home, tmp_path) -> None:
    folder = tmp_path / "people"
    export_figures(folder, {"private": 10, "public": 30, "test": 3}, seed=1)
    images = list((folder / "images" / "private").iterdir())
    for path in images:
        path.write_bytes(b"nobody may look at this")
    runs = planned(tmp_path / "out", "dpsgd", data={"name": str(folder)}, batch=4)
    with pytest.raises(HalfmaskError):
        prepare(runs[0].config, Progress(), planning=True)
    shutil.rmtree(fresh_home)
    found = estimate(runs, Progress())
    assert found[0].units == 10 and found[0].steps == 3 and found[0].seconds is not None
    assert estimate(runs, Progress(), size=4000)[0].units == 4000


def test_a_plan_that_cannot_work_is_said_to_be_refused(fresh_home, tmp_path, monkeypatch, quick_accounting) -> None:
    monkeypatch.setattr(sweep_estimate, "_measured", lambda *a: Measured(0.1, 0.1, 0.1, 0.1, 8, 1, 100_000))
    (one, _) = estimate(planned(tmp_path, "dpsgd", epsilons=(0.1,), even_so=False), Progress())
    assert one.remark.startswith("would be refused: at best its signal is")


def test_without_public_people_noise_and_steps_are_told_all_the_same(fresh_home, tmp_path, quick_accounting) -> None:
    def nothing(config: RunConfig, threads: int | None) -> str:
        return "not timed: nobody public"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep_estimate, "_measured", nothing)
        (one, _) = estimate(planned(tmp_path, "dpsgd"), Progress())
    assert one.seconds is None and one.noise_multiplier > 0 and one.remark == "not timed: nobody public"


def test_where_units_cannot_be_counted_they_are_asked_for(tmp_path, monkeypatch) -> None:
    runs = planned(tmp_path, "dpsgd", data={"name": str(tmp_path)})
    monkeypatch.setattr("halfmask.tasks.pose.PoseTask.count_private", lambda self: None)
    with pytest.raises(HalfmaskError, match="say it with --size"):
        sweep_estimate._units(runs[0].config, None)
    assert sweep_estimate._units(runs[0].config, 12) == 12


def test_steps_are_timed_in_a_process_of_their_own(fresh_home, tmp_path) -> None:
    (config, *_) = [run.config for run in planned(tmp_path, "dpsgd", data={"private": 40, "public": 20, "test": 2})]
    found = sweep_estimate._measured(config, 1)
    assert not isinstance(found, str) and found.step > 0 and found.batch == 8 and found.coordinates > 1000
    assert not (fresh_home / "ledgers").exists()
