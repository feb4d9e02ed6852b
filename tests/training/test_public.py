"""The exact half: public people and views, by a randomness of its own, and no way to learn who is in a private batch."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from halfmask.data.records import VIEW
from halfmask.privacy.noise import RandomStream
from halfmask.privacy.sampling import PoissonSampler
from halfmask.tasks.pose import PoseTask, pose_loss
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.public import PublicHalf, SharedBatch
from halfmask.training.setup import prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
Build = Callable[..., RunConfig]


def trainer_for(config: RunConfig, folder: Path, kind: type[Trainer] = Trainer) -> Trainer:
    return kind(prepare(config, Progress()), RunFolder.create(folder, config), Progress())


def test_it_is_the_exact_gradient_of_its_batch_weighed(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(tiny_config("public.weight=3", method="feature"), tmp_path / "run")
    gradient = trainer.exact.gradient()
    again = trainer_for(tiny_config(method="feature"), tmp_path / "again")
    expected, loss = again.engine.mean_gradient(pose_loss, again.exact.batch())  # type: ignore[arg-type]
    assert torch.allclose(gradient, 3 * expected, atol=1e-6) and float(gradient.norm()) > 0
    assert trainer.exact.loss == pytest.approx(loss) and trainer.exact.batches == again.exact.batches == 1


def test_a_task_may_have_another_loss_on_what_is_public(tiny_config: Build, tmp_path: Path) -> None:
    """The exact half takes `view_loss`, the noised one `loss`."""

    class Half(PoseTask):
        def view_loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
            return 0.5 * self.loss(model, batch)

    found = []
    config = tiny_config(method="feature")
    for kind in (PoseTask, Half):
        setup = prepare(config, Progress(), task=kind(config))
        trainer = Trainer(setup, RunFolder.create(tmp_path / kind.__name__, config), Progress())
        batch, units = trainer.noised.shown(setup.private, np.arange(3), torch.arange(3), torch.ones(3), 0)
        found.append((trainer.exact.gradient(), trainer.noised.clipped(batch, units).flat()))  # type: ignore[union-attr]
    assert torch.allclose(found[1][0], 0.5 * found[0][0], atol=1e-7) and torch.equal(found[1][1], found[0][1])


# ---- who is in a private batch -------------------------------------------------------------------------------------------


def kinds(kind: type[PublicHalf] = PublicHalf) -> set[type[PublicHalf]]:
    return {kind}.union(*(kinds(one) for one in kind.__subclasses__()))


def test_there_is_no_way_to_tell_it_who_is_in_a_private_batch(tiny_config: Build, tmp_path: Path) -> None:
    """Neither of what makes a batch takes an argument; the published mistake alone can be told, and no other method listens."""
    for call in (PublicHalf.gradient, PublicHalf.batch):
        assert list(signature(call).parameters) == ["self"]
    assert [kind for kind in kinds() if hasattr(kind, "publish")] == [SharedBatch]
    for method in PoseTask.methods:
        trainer = trainer_for(tiny_config(method=method), tmp_path / method)
        assert type(trainer.exact) is PublicHalf and trainer.noised.publish is None


class Follows(PublicHalf):
    """Views of whoever the private half has drawn, found by the back door."""

    drawn: ClassVar[list[int]] = []

    def batch(self) -> dict[str, Tensor]:
        return self.setup.private.batch(np.array(self.drawn), VIEW, self.setup.device)


@pytest.mark.parametrize("kind", [PublicHalf, Follows])
def test_the_exact_half_of_a_step_is_the_same_whoever_was_drawn(
    kind: type[PublicHalf], tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each of three steps; and where it is not, that is seen."""
    batches: list[list[Tensor]] = []
    for drawn in ([0, 1, 2], [30], []):
        trainer = trainer_for(tiny_config(method="feature", strategy="full"), tmp_path / str(len(drawn)))
        trainer.exact = kind(trainer.setup, trainer.engine, trainer.exact.showing)
        monkeypatch.setattr(Follows, "drawn", drawn or [39])
        monkeypatch.setattr(trainer.noised.poisson, "draw", lambda drawn=drawn: torch.tensor(drawn, dtype=torch.long))
        seen: list[Tensor] = []
        real = trainer.engine.mean_gradient
        monkeypatch.setattr(
            trainer.engine, "mean_gradient", lambda loss, batch, real=real, seen=seen: seen.append(batch["image"]) or real(loss, batch)
        )
        for _ in range(3):
            trainer.take_step()
        batches.append(seen)
    alike = all(
        len(other) == 3 and all(one.shape == two.shape and torch.equal(one, two) for one, two in zip(batches[0], other, strict=True))
        for other in batches
    )
    assert alike == (kind is PublicHalf)


def public_batches_are_independent(trainer: Trainer) -> bool:
    """N=40, B̄=8, 2000 steps: 3200 shared people expected, standard deviation 51; ±4.9 of them."""
    shared = sum(int(torch.isin(trainer.noised.poisson.draw(), trainer.exact.samplers["view"].draw()).sum()) for _ in range(2000))
    return abs(shared - 3200) < 248


def test_public_batches_are_independent_of_private_coins(tiny_config: Build, tmp_path: Path) -> None:
    for number, seeds in enumerate(({}, {"seed": 7, "insecure_seed": 7}, {"seed": 6, "insecure_seed": 7})):
        trainer = trainer_for(tiny_config("public.raw_share=0", method="feature", **seeds), tmp_path / str(number))
        assert public_batches_are_independent(trainer)


def test_the_check_sees_shared_coins(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(tiny_config(method="feature"), tmp_path / "run")
    trainer.exact.samplers["view"] = PoissonSampler(40, 0.2, RandomStream.seeded("coins", 1))  # type: ignore[assignment]
    assert not public_batches_are_independent(trainer)


def test_public_batches_do_not_move_with_the_private_coins(tiny_config: Build, tmp_path: Path) -> None:
    batches = []
    for insecure_seed in (1, 2):
        trainer = trainer_for(tiny_config(method="feature", insecure_seed=insecure_seed), tmp_path / str(insecure_seed))
        trainer.train()
        batches.append(trainer.exact.samplers["view"].draw().tolist())
    assert batches[0] == batches[1]


@pytest.mark.parametrize(("share", "views", "raw"), [(0.0, 8, 0), (0.5, 4, 4), (1.0, 0, 8)])
def test_public_batches_hold_views_and_raw_people_in_the_declared_share(
    share: float, views: int, raw: int, tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(f"public.raw_share={share}", method="public-only", strategy="full")
    trainer = trainer_for(config, tmp_path / "run")
    batch = trainer.exact.batch()["image"].numpy()  # type: ignore[index]
    setup = trainer.setup
    assert setup.private.views is not None and setup.raw_public is not None
    known = {np.array(v).tobytes(): "view" for v in setup.private.views}
    known |= {np.array(i).tobytes(): "raw" for i in setup.raw_public.images}
    kinds = [known[np.ascontiguousarray(image).tobytes()] for image in batch]
    assert (kinds.count("view"), kinds.count("raw")) == (views, raw)


def test_a_shared_batch_is_accounted_as_visible(tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    """The published mistake can be repeated, at its true price: more noise, and views of the very people in the batch."""
    apart = prepare(tiny_config(method="feature"), Progress())
    trainer = trainer_for(tiny_config("public.shared_batch=true", method="feature", strategy="full"), tmp_path / "run")
    setup = trainer.setup
    assert setup.plan is not None and setup.plan.visible_batches and not apart.plan.visible_batches  # type: ignore[union-attr]
    assert setup.noise_multiplier > 1.2 * apart.noise_multiplier
    assert isinstance(trainer.exact, SharedBatch) and trainer.noised.publish == trainer.exact.publish
    assert trainer.exact.batch() is None, "nobody was drawn yet"
    trainer.noised.publish(np.array([3, 5]))
    batch = trainer.exact.batch()
    assert batch is not None and setup.private.views is not None
    assert np.array_equal(batch["image"].numpy(), setup.private.views[[3, 5]])
    trainer.noised.publish(np.zeros(0, np.int64))
    assert trainer.exact.batch() is None and not trainer.exact.gradient().any()
    trainer.train()
    assert {spend.visible_batches for spend in trainer.setup.account.ledger.spends()} == {True}
