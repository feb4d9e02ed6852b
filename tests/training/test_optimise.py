"""Optimisers, above all in the coordinates of a subspace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from halfmask.data.pose_records import PoseRecords
from halfmask.data.records import PRIVATE, VIEW
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import Mechanism
from halfmask.gradients.subspace import Subspace, best_dimension
from halfmask.training.config import RunConfig, build_config
from halfmask.training.first import take_public_steps_first
from halfmask.training.loop import Trainer
from halfmask.training.optimise import CoordinateOptimiser, Optimiser, OptimiserConfig
from halfmask.training.outputs import RunFolder
from halfmask.training.private import PrivateHalf
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread", "fresh_home")
Build = Callable[..., RunConfig]


def trainer_for(config: RunConfig, folder: Path) -> Trainer:
    return Trainer(prepare(config, Progress()), RunFolder.create(folder, config), Progress())


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.engine.parameters.values()])


def in_coordinates(kind: str) -> tuple[str, ...]:
    """Settings of a private half with an optimiser of its own: plain descent, so that a move is what was released."""
    settings = ("private.optimiser=sgd", "private.momentum=0", f"subspace.kind={kind.split()[-1]}", "subspace.dim=16")
    return (*settings, "subspace.project_first=true", f"subspace.whiten={str(kind.startswith('whitened')).lower()}")


def unlifted(trainer: Trainer, move: torch.Tensor) -> torch.Tensor:
    """What was lifted to a move."""
    found = trainer.noised.subspace.coordinates(move)  # type: ignore[union-attr]
    scales = getattr(trainer.noised.subspace, "scales", None)
    return found if scales is None else found * scales.to(found.dtype) ** 2


def test_the_rate_rises_then_falls() -> None:
    optimiser = Optimiser(OptimiserConfig(), {"w": nn.Parameter(torch.zeros(1))}, steps=100)
    shares = [optimiser.share(step) for step in range(100)]
    assert shares[0] == pytest.approx(0.1, rel=0.01) and max(shares) > 0.9 and shares[-1] < 0.01
    assert shares.index(max(shares)) < 15


def test_a_move_goes_past_the_optimiser() -> None:
    weight = nn.Parameter(torch.zeros(2))
    optimiser = Optimiser(OptimiserConfig("adamw", learning_rate=0.1, schedule="constant"), {"w": weight}, steps=1)
    optimiser.apply(0, {"w": torch.tensor([5.0, 0.0])}, {"w": torch.tensor([0.0, 3.0])})
    assert weight.tolist() == pytest.approx([-0.1, -3.0], rel=1e-5), "Adam takes steps of its rate; the move is what it is"


def test_momentum_in_coordinates_is_momentum() -> None:
    mine = CoordinateOptimiser("sgd", momentum=0.5)
    assert mine.direction(torch.tensor([1.0, 0.0]), 0.1).tolist() == [1, 0]
    assert mine.direction(torch.tensor([1.0, 2.0]), 0.1).tolist() == [1.5, 2]


def test_adam_is_told_of_the_noise() -> None:
    """Coordinates of signal take steps of length 1, as without noise (0.78 if the noise's square were taken for signal)."""
    generator = torch.Generator().manual_seed(0)
    adam = CoordinateOptimiser("adam", second=0.99)
    gradient = torch.zeros(400)
    gradient[:200] = 0.5
    steps = [adam.direction(gradient + 0.4 * torch.randn(400, generator=generator), 0.4) for _ in range(400)]
    settled = torch.stack(steps[200:])
    assert float(settled[:, :200].mean()) == pytest.approx(1.0, abs=0.06)
    assert float(settled[:, 200:].abs().mean()) < 0.3, "noise alone is not stretched to steps of length 1"


def test_the_state_follows_the_basis() -> None:
    rows = torch.linalg.qr(torch.randn(6, 4, generator=torch.Generator().manual_seed(1)))[0].T.contiguous()
    old, new = Subspace(rows, torch.ones(4)), Subspace(rows.flip(0), torch.ones(4))
    adam = CoordinateOptimiser("adam")
    adam.rebase(old)
    adam.direction(torch.tensor([1.0, 2.0, 3.0, 4.0]), 0.0)
    assert adam.mean is not None and adam.square is not None
    mean, square = adam.mean.clone(), adam.square.clone()
    adam.rebase(new)
    assert torch.allclose(adam.mean, mean.flip(0), atol=1e-6) and torch.allclose(adam.square, square.flip(0), atol=1e-6)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("kind", ["gradients", "layers"])
def test_the_noised_half_stays_in_its_subspace(tiny_config: Build, tmp_path: Path, optimiser: str, kind: str) -> None:
    """Adam on the lifted gradient would not."""
    settings = (f"private.optimiser={optimiser}", f"subspace.kind={kind}", "optimiser.schedule=constant", "optimiser.momentum=0")
    trainer = trainer_for(tiny_config(*settings, method="projected"), tmp_path / "run")
    trainer.refresh()
    before = torch.cat([p.detach().flatten().clone() for p in trainer.engine.parameters.values()])
    trainer.standing.step = 5
    trainer.take_step()
    moved = torch.cat([p.detach().flatten() for p in trainer.engine.parameters.values()]) - before
    assert trainer.noised.subspace is not None and moved.norm() > 0
    inside = trainer.noised.subspace.lift(trainer.noised.subspace.coordinates(moved))
    assert torch.allclose(inside, moved, atol=1e-3 * float(moved.abs().max()))


def test_the_step_of_a_coordinate_does_not_depend_on_the_units_of_c(tiny_config: Build, tmp_path: Path) -> None:
    """Everyone is clipped at both, so a smaller C changes nothing but the scale, and `sgd` takes that out."""
    moves = []
    for clip_norm in (1e-4, 1e-6):
        config = tiny_config("private.optimiser=sgd", "subspace.project_first=true", method="projected", clip_norm=clip_norm)
        trainer = trainer_for(config, tmp_path / f"run{clip_norm}")
        trainer.refresh()
        seen: list[torch.Tensor] = []
        trainer._apply = lambda update, move=None, seen=seen: seen.append(move)  # type: ignore[method-assign, misc]
        trainer.take_step()
        moves.append(seen[0])
    assert torch.allclose(moves[0], moves[1], rtol=1e-3, atol=1e-6)


def test_the_dimension_is_where_signal_outweighs_noise() -> None:
    """Ten coordinates of signal, ninety of nothing: however few the people, noise is not mistaken for signal."""
    generator = torch.Generator().manual_seed(0)
    people = 0.05 * torch.randn(50, 100, generator=generator)
    people[:, :10] += 0.3
    assert 10 <= best_dimension(people, 0.01) <= 14
    assert best_dimension(people, 1.0) == 1, "with noise beyond all signal the fewest are kept"
    with pytest.raises(HalfmaskError, match="at least 2 held-out"):
        best_dimension(people[:1], 0.1)


@pytest.mark.parametrize("kind", ["gradients", "layers"])
def test_a_run_chooses_its_dimension_on_watched_people(tiny_config: Build, tmp_path: Path, kind: str) -> None:
    settings = (f"subspace.kind={kind}", "subspace.dim=0", "subspace.most=30", "subspace.views=10", "subspace.project_first=true")
    trainer = trainer_for(tiny_config(*settings, method="feature-projective"), tmp_path / "run")
    assert trainer.setup.watched is not None
    trainer.refresh()
    assert trainer.noised.subspace is not None and 1 <= trainer.noised.subspace.dimension <= 30
    before = trainer.noised.subspace.dimension
    trainer.noised = replace(trainer.noised, mechanism=Mechanism(1e9, 1.0, 8.0, trainer.noised.mechanism.noise))
    trainer.refresh()
    assert trainer.noised.subspace.dimension == 1 <= before


@pytest.mark.parametrize(
    "settings",
    [
        ("subspace.views=12", "subspace.samples=0", "subspace.kind=layers"),
        ("subspace.dim=0", "subspace.most=30", "subspace.kind=layers"),
        in_coordinates("whitened layers"),
    ],
)
def test_the_subspace_does_not_look_at_private_images(
    tiny_config: Build, tmp_path: Path, settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directions, how many of them, and their scales. Views and labels of private people are public; their images are not."""
    trainer = trainer_for(tiny_config(*settings, method="feature-projective"), tmp_path / "run")
    real = PoseRecords.batch

    def watched(people: PoseRecords, records: object, source: str = PRIVATE, device: object = "cpu") -> object:
        assert people is not trainer.setup.private or source == VIEW, "a private image was read"
        return real(people, records, source, device)  # type: ignore[arg-type]

    monkeypatch.setattr(PoseRecords, "batch", watched)
    trainer.refresh()
    assert trainer.noised.subspace is not None
    with pytest.raises(AssertionError, match="a private image was read"):
        trainer.noised.shown(trainer.setup.private, np.arange(2), torch.arange(2), torch.ones(2), 0)


def test_public_steps_are_taken_besides(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(tiny_config("public.steps=3", method="feature"), tmp_path / "run")
    moves: list[torch.Tensor] = []
    trainer._apply = lambda update, move=None: moves.append(update)  # type: ignore[method-assign, misc]
    released: list[int] = []
    real = trainer.noised.mechanism.release_coordinates
    object.__setattr__(trainer.noised.mechanism, "release_coordinates", lambda *a: released.append(1) or real(*a))
    trainer.take_step()
    assert len(moves) == 3 and len(released) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("private.optimiser=adam", "method=dpsgd"), "has none"),
        (("subspace.views=5", "method=projected"), "has none"),
        (("subspace.views=5", "private.residual=true", "method=feature-projective"), "needs raw people"),
        (("subspace.kind=leaves",), "subspace kind"),
        (("private.optimiser=lion",), "optimiser of the private half"),
        (("public.steps=-1",), "public.steps"),
        (("public.first=-1",), "public.first"),
        (("public.first=5", "public.shared_batch=true"), "public.first"),
        (("subspace.whiten=true", "subspace.kind=layers", "private.optimiser=sgd", "method=projected"), "project_first"),
        (("subspace.whiten=true", "subspace.project_first=true", "private.optimiser=sgd", "method=projected"), "kind=layers"),
        (("subspace.whiten=true", "subspace.kind=layers", "subspace.project_first=true", "method=projected"), "private.optimiser"),
        (("subspace.samples=0", "method=projected"), "subspace.samples"),
    ],
)
def test_what_does_not_fit_is_refused(settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(HalfmaskError, match=message):
        build_config({}, {}, list(settings))


def noise_in_moves(config: RunConfig, folder: Path, fault: str = "") -> float:
    """The mean square of a coordinate of empty batches' moves, in units of what the accountant was told."""
    trainer = trainer_for(config, folder)
    trainer.refresh()
    trainer.noised.poisson.draw = lambda: torch.zeros(0, dtype=torch.long)  # type: ignore[method-assign]
    if fault == "noise off":
        trainer.noised = replace(trainer.noised, mechanism=replace(trainer.noised.mechanism, noise_multiplier=1e-9))
    elif fault == "noise/4":
        quarter = trainer.noised.mechanism.noise_multiplier / 4
        trainer.noised = replace(trainer.noised, mechanism=replace(trainer.noised.mechanism, noise_multiplier=quarter))
    moves: list[torch.Tensor] = []
    trainer._apply = lambda update, move=None: moves.append(move)  # type: ignore[method-assign, misc]
    for _ in range(120):
        trainer.take_step()
    assert trainer.noised.subspace is not None
    told = trainer.setup.noise_multiplier * config.clip_norm / trainer.noised.poisson.expected_batch
    scale = config.private.learning_rate / config.clip_norm * told
    seen = torch.stack([unlifted(trainer, move) for move in moves]) / scale
    return float(seen.square().mean())


def first_steps(trainer: Trainer, steps: int) -> bool:
    return take_public_steps_first(steps, trainer.setup, trainer.engine, trainer.exact, trainer.influence, trainer.progress)


def test_public_steps_come_first(tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No private image is read in them, no coin tossed, nothing paid; then private steps alone, and weights do not decay in them."""
    ends = []
    for number in range(2):
        settings = ("public.first=4", "public.steps=0", "optimiser.name=adamw", "optimiser.weight_decay=0.5", "private.optimiser=sgd")
        trainer = trainer_for(tiny_config(*settings, method="feature-projective"), tmp_path / f"run{number}")
        before = weights(trainer)
        if number:
            trainer.setup.private.features["private"] = trainer.setup.private.features["private"] * 0 + 1  # type: ignore[index]
        monkeypatch.setattr(trainer.noised.poisson, "draw", lambda: pytest.fail("a coin was tossed"))
        assert first_steps(trainer, 4)
        ends.append(weights(trainer))
        assert trainer.setup.account.ledger.spends() == [] and trainer.standing.paid == 0 and not torch.equal(ends[-1], before)
    assert torch.equal(*ends)
    trainer.refresh()
    monkeypatch.undo()
    monkeypatch.setattr(PrivateHalf, "_move", lambda half, released: torch.zeros(trainer.engine.size))
    trainer.take_step()
    assert torch.equal(weights(trainer), ends[-1])
    monkeypatch.undo()
    trainer.take_step()
    assert not torch.equal(weights(trainer), ends[-1])


def test_a_run_of_public_steps_alone(tiny_config: Build, tmp_path: Path) -> None:
    """`public-only` takes those that come first, and no others."""
    trainer = trainer_for(tiny_config("public.first=4", "public.steps=0", method="public-only"), tmp_path / "run")
    other = trainer_for(tiny_config("public.first=4", "public.steps=0", method="public-only"), tmp_path / "other")
    before = weights(other)
    assert first_steps(other, 4) and not first_steps(other, 0)
    trainer.train()
    assert trainer.standing.begun and trainer.standing.step == trainer.setup.steps
    assert torch.equal(weights(trainer), weights(other)) and not torch.equal(weights(trainer), before)


@pytest.mark.parametrize("kind", ["gradients", "layers", "whitened layers"])
def test_an_empty_batch_is_a_move_of_noise(tiny_config: Build, tmp_path: Path, kind: str) -> None:
    settings = in_coordinates(kind)
    config = tiny_config(*settings, method="projected")
    assert noise_in_moves(config, tmp_path / "run") == pytest.approx(1.0, abs=0.15)
    for fault in ("noise off", "noise/4"):
        assert noise_in_moves(config, tmp_path / fault, fault) != pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("kind", ["gradients", "layers", "whitened layers"])
def test_one_person_moves_the_weights_by_no_more_than_their_share(tiny_config: Build, tmp_path: Path, kind: str) -> None:
    """With the same noise, a batch with a person and one without them: C / B̄ in the coordinates, whatever the person's gradient."""
    settings = in_coordinates(kind)
    config = tiny_config(*settings, method="projected", clip_norm=1e-3, insecure_seed=7)
    moves = []
    for drawn in ([3, 5], [5]):
        trainer = trainer_for(config, tmp_path / f"run{len(drawn)}")
        trainer.refresh()
        trainer.noised.poisson.draw = lambda drawn=drawn: torch.tensor(drawn)  # type: ignore[method-assign, misc]
        seen: list[torch.Tensor] = []
        trainer._apply = lambda update, move=None, seen=seen: seen.append(move)  # type: ignore[method-assign, misc]
        trainer.take_step()
        moves.append(unlifted(trainer, seen[0]))
    share = config.private.learning_rate / config.batch
    assert 0.98 * share < float((moves[0] - moves[1]).norm()) <= share * (1 + 1e-4)
