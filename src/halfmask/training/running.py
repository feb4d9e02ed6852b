"""A run from beginning to end: prepared, admitted, trained, certified, released, judged."""

from __future__ import annotations

import hashlib
from pathlib import Path

from halfmask.training.certify import certificate_of
from halfmask.training.config import RunConfig
from halfmask.training.course import Diverged
from halfmask.training.lineage import tensor_hashes
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder, check_folder, only_one
from halfmask.training.progress import Progress
from halfmask.training.setup import Setup, prepare
from halfmask.training.spending import check_admission


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
        folder.log(
            "start",
            steps=setup.steps,
            noise_multiplier=setup.noise_multiplier,
            sampling_rate=setup.sampling_rate,
            expected_batch=trainer.noised.poisson.expected_batch,
            trainable_parameters=trainer.engine.size,
        )
    stopped: BaseException | None = None
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
        stopped = Diverged(
            f"{error}: training was stopped, and {left}. {out} holds the certificate of what was. Lower the learning rate, or see "
            "'halfmask plan' for what this number of people can bear"
        )
    if standing.step:
        trainer.optimiser.release_average()
    finish(setup, folder, trainer)
    folder.log("end", step=standing.step, interrupted=stopped is not None)
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
        setup.account.record_model(standing.run, digest, tensor_hashes(trainer.engine.parameters.values()), setup.behind)
    folder.save_certificate(certificate_of(setup, trainer.noised, standing, folder.path.name, digest))
    folder.save_weights(weights)
    if setup.data.test is not None:
        scores = setup.task.score(setup.model, setup.data.test, device=setup.device)
        folder.save_metrics(setup.config.task, setup.data.name, "test", scores)
