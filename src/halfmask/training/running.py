"""A run from beginning to end: prepared, admitted, trained, certified, released, judged."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from halfmask.training.certify import certificate_of
from halfmask.training.config import RunConfig, build_config, load_recipe
from halfmask.training.course import Diverged
from halfmask.training.lineage import released_hashes
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder, check_folder, only_one
from halfmask.training.progress import Progress
from halfmask.training.runs import read_json
from halfmask.training.setup import Setup, prepare
from halfmask.training.spending import check_admission, name_run


@dataclass(frozen=True)
class Run:
    """A run that ended.

    Attributes:
        model: trained, in evaluation mode.
        scores: on the test set, by name; empty where there was none.
        certificate: the content of `certificate.json`.
        folder: where everything lies that may leave.
    """

    model: nn.Module
    scores: dict[str, float]
    certificate: dict[str, Any]
    folder: Path
    setup: Setup

    @classmethod
    def of(cls, setup: Setup, folder: Path) -> Run:
        """What a run left in its folder."""
        metrics, certificate = read_json(folder / "metrics.json"), read_json(folder / "certificate.json")
        assert certificate is not None
        return cls(setup.model, {} if metrics is None else metrics["metrics"], certificate, folder, setup)

    def audit(self, seed: int = 0) -> dict[str, Any]:
        """Try the mechanism on this model and loss: the same checks as `halfmask audit mechanism`, on noise in the shape of the items.

        Nothing private is read and nothing is spent. What is found is also written to the run's folder.
        """
        from halfmask.audit.own import audit_own

        return audit_own(self.setup, self.folder, seed)


def run(
    recipe: str, out: str | Path, *, settings: Mapping[str, Any] | None = None, resume: bool = False, progress: Progress | None = None
) -> Run:
    """Run a recipe, as `halfmask train` does.

    Args:
        recipe: the name of one inside the package (`pose/figures`), or the path of a file.
        settings: any setting by its key, in place of the recipe's: `{"method": "dpsgd", "epsilon": 0.8, "data.name": "my-data"}`; those of
            a group also as a mapping, `{"data": {"name": "my-data"}}`.
        resume: go on with the run in `out`, which was stopped.
    """
    config = build_config(load_recipe(recipe), {}, settings=settings)
    folder, progress = Path(out), progress or default_progress()
    with only_one(folder):
        check_folder(folder, config, resume)
        setup = prepare(config, progress)
        train_prepared(setup, folder, progress, resume)
    return Run.of(setup, folder)


def run_training(config: RunConfig, out: Path, progress: Progress | None = None, resume: bool = False) -> Path:
    """Train, evaluate and certify; returns the run folder. After Ctrl-C the folder is complete for the steps that were taken."""
    progress = progress or Progress()
    with only_one(out):
        check_folder(out, config, resume)
        train_prepared(prepare(config, progress), out, progress, resume)
    return out


def train_prepared(setup: Setup, out: Path, progress: Progress, resume: bool = False) -> None:
    """The same for a run that is ready to start, in a folder that is locked."""
    config = setup.config
    if not resume:
        check_admission(setup)
    folder = RunFolder(out) if resume else RunFolder.create(out, config)
    trainer = Trainer(setup, folder, progress)
    standing = trainer.standing
    if resume:
        trainer.resume()
        # What was certified is about to be no longer so.
        folder.withdraw()
    else:
        # The run's name is on disk before the first step is paid for, so that whatever happens its spending can be found.
        trainer.save_checkpoint()
        name_run(setup, standing.run, folder.path)
        folder.log(
            "start",
            steps=setup.steps,
            noise_multiplier=setup.noise_multiplier,
            sampling_rate=setup.sampling_rate,
            expected_batch=trainer.noised.poisson.expected_batch,
            trainable_parameters=trainer.engine.size,
        )
    stopped: BaseException | None = None
    came_to_nothing = ""
    try:
        trainer.train()
    except KeyboardInterrupt as interrupt:
        stopped = interrupt
        progress.warn(f"stopped after {standing.step} of {setup.steps} steps; writing down what was done")
        trainer.save_checkpoint()
    except Diverged as error:
        if setup.method.private == "unread" or config.rehearsal:
            left = "nothing private was spent"
        else:
            left = f"{setup.account.release(standing.run)} of {setup.steps} steps were not spent"
        stopped = Diverged(f"{error}: training was stopped, and {left}. {out} holds the certificate of what was. {error.advice}")
        came_to_nothing = str(error)
    trainer.release()
    finish(trainer.setup, folder, trainer)
    folder.log(
        "end", step=standing.step, interrupted=stopped is not None, **({"came_to_nothing": came_to_nothing} if came_to_nothing else {})
    )
    if stopped is not None:
        raise stopped


def finish(setup: Setup, folder: RunFolder, trainer: Trainer) -> None:
    """Certify the weights and release them, in this order, and judge them on the public test set."""
    standing = trainer.standing
    weights = folder.packed(setup.model)
    digest = hashlib.sha256(weights).hexdigest()
    spent = setup.method.private != "unread" and not setup.config.rehearsal and standing.paid
    # A run that spends nothing may still go on from weights that cost something, and hands that on.
    if spent or setup.behind:
        moved = [*trainer.engine.parameters.values(), *(() if trainer.post is None else trainer.post.moved())]
        setup.account.record_model(standing.run, digest, released_hashes(moved), setup.behind)
    folder.save_certificate(certificate_of(setup, trainer.noised, standing, folder.path.name, digest))
    folder.save_weights(weights)
    if setup.data.test is not None:
        scores = setup.task.score(setup.model, setup.data.test, device=setup.device)
        folder.save_metrics(setup.config.task, setup.data.name, "test", scores)


def default_progress() -> Progress:
    """Bars where somebody looks, and nothing where nobody does."""
    if not sys.stderr.isatty():
        return Progress()
    # Only where somebody looks: the bars are those of the command.
    from halfmask.cli.console import TerminalProgress

    return TerminalProgress()
