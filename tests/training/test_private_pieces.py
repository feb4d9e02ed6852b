"""A batch that is fetched piece by piece: the same sum, bit for bit, and never more than a chunk of records at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from halfmask.data.figures_records import figures_records
from halfmask.data.records import Records
from halfmask.data.tables import Column
from halfmask.tasks.pose import best_sharpness, predict
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.private import PrivateHalf
from halfmask.training.progress import Progress
from halfmask.training.refresh import calibrated
from halfmask.training.setup import prepare
from halfmask.training.showing import Showing

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread", "fresh_home")
Build = Callable[..., RunConfig]

CONFIGS = {
    "crops": ("dpsgd", ["strategy=top"], 5),
    "images": ("dpsgd", ["strategy=full"], 5),
    "showings": ("dpsgd", ["strategy=full", "augment.times=2"], 2),
    "copies": ("feature", ["strategy=top", "augment.times=2", "augment.copies=2"], 2),
    "residuals": ("feature", ["strategy=top", "private.residual=true"], 2),
    "subjects": ("dpsgd", ["strategy=top", "unit=subject", "records_per_unit=3"], 5),
    "coordinates": ("projected", ["subspace.project_first=true"], 5),
}


def _half(config: RunConfig, folder: Path) -> PrivateHalf:
    trainer = Trainer(prepare(config, Progress()), RunFolder.create(folder, config), Progress())
    trainer.refresh()
    return trainer.noised


@pytest.mark.parametrize("name", CONFIGS)
def test_the_pieces_add_up_to_the_batch_bit_for_bit(tiny_config: Build, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, settings, most = CONFIGS[name]
    half = _half(tiny_config("chunk=5", *settings, method=method), tmp_path / "run")
    half = replace(half, mechanism=replace(half.mechanism, clip_norm=0.01))
    rows, units, weight = half.units.records_of(torch.arange(1, min(24, len(half.units))))
    whole = half.clipped(*half.shown(half.records, rows, units, weight, step=3))
    fetched = []
    real = Showing.show

    def show(self: Showing, people: Records, records: np.ndarray, *sources: str, **named: int) -> object:
        fetched.append(len(records))
        return real(self, people, records, *sources, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Showing, "show", show)
    found = half.summed(half.pieces(half.records, rows, units, weight, step=3))
    assert sum(fetched) == len(rows) and len(fetched) > 2 and max(fetched) <= most
    assert torch.equal(found.norms, whole.norms) and found.clip_norm == 0.01
    assert found.clipped_fraction > 0
    for mine, theirs in zip(found.tensors(), whole.tensors(), strict=True):
        assert mine.dtype == torch.float64 and torch.equal(mine, theirs)


def test_a_step_fetches_no_more_than_a_chunk_and_an_empty_one_nothing(
    tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = _half(tiny_config("chunk=3", "batch=20", method="dpsgd"), tmp_path / "run")
    fetched = []
    real = Showing.show
    monkeypatch.setattr(Showing, "show", lambda self, people, rows, *a, **b: fetched.append(len(rows)) or real(self, people, rows, *a, **b))
    half.release(0)
    assert len(fetched) > 3 and max(fetched) == 3
    fetched.clear()
    monkeypatch.setattr(type(half.poisson), "draw", lambda self: torch.zeros(0, dtype=torch.long))
    released = half.release(1)
    assert fetched == [0] and released.gradient is not None and float(released.gradient.norm()) > 0, "noise is released all the same"


def test_a_unit_that_is_not_finite_leaves_alone(tiny_config: Build, tmp_path: Path) -> None:
    half = _half(tiny_config("chunk=4", method="dpsgd"), tmp_path / "run")
    features = {source: np.array(column) for source, column in half.records.features.items()}
    features["private"][6] = np.nan
    half = replace(half, records=replace(half.records, features=features))
    rows, units, weight = half.units.records_of(torch.arange(12))
    found = half.summed(half.pieces(half.records, rows, units, weight, step=0))
    without = half.units.records_of(torch.tensor([unit for unit in range(12) if unit != 6]))
    others = half.summed(half.pieces(half.records, *without, step=0))
    assert found.nonfinite == 1 and len(found.norms) == 12
    for mine, theirs in zip(found.tensors(), others.tensors(), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(not Path("/proc/self/smaps").is_file(), reason="only Linux says what is resident")
def test_what_a_batch_was_read_from_is_let_go(tiny_config: Build, tmp_path: Path) -> None:
    half = _half(tiny_config("augment.times=2", "augment.copies=1", method="feature"), tmp_path / "run")
    columns = [column for people in (half.records, *half.records.copies) for column in people.features.values()]
    assert len(columns) == 4 and all(isinstance(column, np.memmap) for column in columns)
    before = [float(np.asarray(column, np.float64).sum()) for column in columns]
    assert _resident(columns) > 0
    half.release(0)
    assert _resident(columns) == 0
    assert before == [float(np.asarray(column, np.float64).sum()) for column in columns]
    for _ in half.records.batches("view"):
        pass
    assert _resident([half.records.features["view"]]) == 0 < _resident([half.records.features["private"]])


def _resident(columns: Sequence[Column]) -> int:
    """Kilobytes of the files behind these that count as this process's memory."""
    names, found, inside = {str(column.filename) for column in columns}, 0, False  # type: ignore[attr-defined]
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            inside = bool(rest) and rest[-1] in names
        elif inside and first == "Rss:":
            found += int(rest[0])
    return found


@pytest.mark.parametrize("right", [range(64), range(86, 150)], ids=["the first", "the last"])
def test_the_watched_are_looked_at_some_at_a_time(
    tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: range
) -> None:
    config = tiny_config("private.calibrate=true", "strategy=full", method="dpsgd")
    setup, watched = prepare(config, Progress()), figures_records("public", 150, skip=60, size=(64, 48))
    # The model is right about some, and of what one sees of those alone it should be surer than of the others.
    joints, placed = np.array(watched.joints), predict(setup.model, watched.images, flip_test=False)[0]  # type: ignore[arg-type]
    joints[right] = placed[right]
    watched = watched.changed(joints=joints, labelled=np.ones((150, 16), bool))
    setup = replace(setup, watched=watched)
    trainer = Trainer(setup, RunFolder.create(tmp_path / "run", config), Progress())
    everybody = watched.batch(np.arange(150))
    with torch.no_grad():
        loss = float(setup.task.loss(setup.model, everybody).mean())
    each = {best_sharpness(setup.model, batch) for batch in watched.batches()}  # type: ignore[arg-type]
    assert len(each) == 2
    sizes = []
    real = Records.batch
    monkeypatch.setattr(Records, "batch", lambda self, rows, *a: sizes.append(len(rows)) or real(self, rows, *a))
    assert calibrated(trainer.noised, setup).sharpness == best_sharpness(setup.model, everybody)  # type: ignore[arg-type]
    assert trainer._watched_loss() == pytest.approx(loss, rel=1e-5)
    assert sizes == [64, 64, 22] * 2


def test_public_people_whom_settings_come_from_are_shown_in_pieces_too(
    tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clip norm that follows the watched, and the dimension that is chosen on them, are the same at any chunk."""
    found = []
    for chunk in (4, 64):
        config = tiny_config(
            f"chunk={chunk}", "private.follow=0.5", "subspace.project_first=true", "subspace.dim=0", "subspace.most=6", method="projected"
        )
        with monkeypatch.context() as patch:
            most: list[int] = []
            real = PrivateHalf.shown
            patch.setattr(PrivateHalf, "shown", lambda *a, real=real, most=most: most.append(len(a[2])) or real(*a))
            half = _half(config, tmp_path / f"{chunk}")
        # All of S_pub at once, which is as large as the recipe says; the watched in pieces.
        assert most[0] == 16 and (max(most[1:]) == 4 if chunk == 4 else max(most[1:]) > 4)
        assert half.subspace is not None
        found.append((half.subspace.dimension, half.clip_norms))
    assert found[0][0] == found[1][0] and found[0][1] == pytest.approx(found[1][1], rel=1e-6)
