"""A run from beginning to end: prepared, admitted, trained, certified, released, judged."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from halfmask.errors import HalfmaskError
from halfmask.privacy.fingerprints import key
from halfmask.privacy.guest import Host, visiting
from halfmask.training.certify import certificate_of
from halfmask.training.config import RunConfig, build_config, load_recipe
from halfmask.training.course import Diverged
from halfmask.training.distributed import Group, Joining, ProcessLost
from halfmask.training.distributed import group as processes
from halfmask.training.lineage import released_hashes
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder, Unwritten, check_folder, only_one
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
        metrics, certificate = setup.group.from_root(
            lambda: tuple(read_json(folder / f"{name}.json") for name in ("metrics", "certificate"))
        )
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
    with working_on(Path(out), config, resume) as (group, folder):
        progress = group.progress(progress or default_progress())
        setup = prepare(config, progress, group=group)
        train_prepared(setup, folder, progress, resume)
        return Run.of(setup, folder)


def run_training(
    config: RunConfig, out: Path, progress: Progress | None = None, resume: bool = False, joining: Joining | None = None
) -> Path:
    """Train, evaluate and certify; returns the run folder. After Ctrl-C the folder is complete for the steps that were taken."""
    with working_on(out, config, resume, joining) as (group, folder):
        progress = group.progress(progress or Progress())
        train_prepared(prepare(config, progress, group=group), folder, progress, resume)
    return folder


@contextmanager
def working_on(out: Path, config: RunConfig, resume: bool = False, joining: Joining | None = None) -> Iterator[tuple[Group, Path]]:
    """The processes of a run, and its folder, which root alone works on: a second run is kept off it."""
    group = processes(joining)
    with group.together():
        folder = group.from_root(lambda: out)
        # People are named by root's key, on whatever machine, and no other process can open a ledger.
        host = Host(group.from_root(key), _knows_nothing)
        with only_one(folder) if group.root else visiting(host):
            group.from_root(lambda: check_folder(folder, config, resume))
            yield group, folder


def _knows_nothing(question: str, *about: Any) -> dict[str, int]:
    """What a process that is not root learns of the ledgers: root asks them for all."""
    if question == "protected_among":
        return {}
    raise HalfmaskError(f"the ledgers are asked by the first process of a run alone, and another one asked '{question}'")


def train_prepared(setup: Setup, out: Path, progress: Progress, resume: bool = False) -> None:
    """The same for a run that is ready to start, in a folder that is locked."""
    config, group = setup.config, setup.group
    if config.unsafe_diagnostics and group.size > 1:
        raise HalfmaskError("unsafe_diagnostics is for one process: start the run without torchrun, or leave it out")
    folder = group.from_root(lambda: _opened(setup, out, resume))
    folder = folder if group.root else Unwritten(folder.path)
    trainer = Trainer(setup, folder, progress)
    standing = trainer.standing
    if resume:
        trainer.resume()
        # What was certified is about to be no longer so.
        group.from_root(folder.withdraw)
    else:
        # The run's name is on disk before the first step is paid for, so that whatever happens its spending can be found.
        trainer.save_checkpoint()
        group.from_root(lambda: name_run(setup, standing.run, folder.path))
        folder.log(
            "start",
            steps=setup.steps,
            noise_multiplier=setup.noise_multiplier,
            sampling_rate=setup.sampling_rate,
            expected_batch=trainer.noised.poisson.expected_batch,
            trainable_parameters=trainer.engine.size,
            test_records=0 if setup.data.test is None else len(setup.data.test),
        )
    stopped: BaseException | None = None
    came_to_nothing = ""
    try:
        trainer.train()
    except (KeyboardInterrupt, ProcessLost) as stop:
        stopped = stop
        progress.warn(f"stopped after {standing.step} of {setup.steps} steps; writing down what was done")
    except Diverged as error:
        stopped, came_to_nothing = error, str(error)
    if stopped is None:
        group.from_root(lambda: write_down(trainer))
        group.spread(setup.model)
        return
    if group.root:
        # By root alone: of the others nobody may be left.
        with group.undisturbed():
            if isinstance(stopped, Diverged):
                stopped = _given_up(trainer, stopped)
            else:
                trainer.save_checkpoint()
            write_down(trainer, interrupted=True, came_to_nothing=came_to_nothing)
    raise stopped


def _opened(setup: Setup, out: Path, resume: bool) -> RunFolder:
    if resume:
        return RunFolder(out)
    check_admission(setup)
    return RunFolder.create(out, setup.config)


def _given_up(trainer: Trainer, error: Diverged) -> Diverged:
    """What a run that came to nothing leaves: it gives back what it did not spend."""
    setup, run = trainer.setup, trainer.standing.run
    if setup.method.private == "unread" or setup.config.rehearsal:
        left = "nothing private was spent"
    else:
        left = f"{setup.account.release(run)} of {setup.steps} steps were not spent"
    where = trainer.folder.path
    return Diverged(f"{error}: training was stopped, and {left}. {where} holds the certificate of what was. {error.advice}")


def write_down(trainer: Trainer, interrupted: bool = False, came_to_nothing: str = "") -> None:
    """Put the weights that are to be released in place, with their certificate, and end the log."""
    trainer.release()
    finish(trainer.setup, trainer.folder, trainer)
    why = {"came_to_nothing": came_to_nothing} if came_to_nothing else {}
    trainer.folder.log("end", step=trainer.standing.step, interrupted=interrupted, **why)


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
    if setup.watched is not None:
        folder.save_calibration(setup.task.confidence(setup.model, setup.watched, setup.device))
    folder.save_card()


def default_progress() -> Progress:
    """Bars where somebody looks, and nothing where nobody does."""
    if not sys.stderr.isatty():
        return Progress()
    # Only where somebody looks: the bars are those of the command.
    from halfmask.cli.console import TerminalProgress

    return TerminalProgress()
