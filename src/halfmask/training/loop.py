"""The training loop: one for all methods."""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from halfmask.data.records import PoseRecords
from halfmask.gradients.engine import Batch, ClippedCoordinates, ClippedSum, ClippingEngine, check_records_apart
from halfmask.gradients.layered import LayeredSubspace
from halfmask.gradients.mechanism import Mechanism
from halfmask.gradients.subspace import Subspace
from halfmask.privacy.accounting import epsilon
from halfmask.privacy.certificate import Certificate
from halfmask.privacy.noise import open_stream
from halfmask.privacy.sampling import PoissonSampler, PublicSampler
from halfmask.privacy.spends import Spend
from halfmask.tasks.pose import evaluate, pose_loss
from halfmask.training.certify import certificate_of, open_reads
from halfmask.training.checkpoint import restore, state_of
from halfmask.training.config import RunConfig
from halfmask.training.course import Diverged, check_course
from halfmask.training.first import take_public_steps_first
from halfmask.training.influence import Influence
from halfmask.training.lineage import tensor_hashes
from halfmask.training.optimise import CoordinateOptimiser, Optimiser
from halfmask.training.outputs import RunFolder, check_folder, only_one
from halfmask.training.progress import Progress
from halfmask.training.refresh import calibrate, refresh
from halfmask.training.setup import Setup, prepare, public_sample
from halfmask.training.showing import Showing
from halfmask.training.spending import begin_run, check_admission, spend_of

# Steps whose cost is written down at once, ahead of taking them, as a share of the run and at most: what a crash can cost.
_LEDGER_SHARE, _LEDGER_BLOCK = 0.01, 50
# ε shown along the way is computed on a coarse grid: still an upper bound, and it costs milliseconds.
_COARSE_GRID = 1e-3


class Trainer:
    """Takes the steps of one run."""

    def __init__(self, setup: Setup, folder: RunFolder, progress: Progress):
        config = setup.config
        self.setup, self.folder, self.progress = setup, folder, progress
        self.run = secrets.token_hex(8)
        # Whether the public steps that come first have been taken.
        self.begun = False
        self.step = 0
        self.paid = 0
        self.public_loss: float | None = None
        # Where it began: a loss far above that is a run that came to nothing.
        self.first_loss: float | None = None
        self.epsilon: float | None = None
        self.subspace: Subspace | LayeredSubspace | None = None
        self.engine = ClippingEngine(setup.model)
        self.optimiser = Optimiser(config.optimiser, self.engine.parameters, setup.steps)
        self.in_subspace = CoordinateOptimiser(config.private.optimiser, config.private.momentum)
        self.showing = Showing(config.augment, config.seed + 4, setup.device)
        self.account = setup.account
        # Batches of the exact half so far, of which a step may take several: each shows people changed differently.
        self.public_batches = 0
        self.public_batch = config.public.batch or config.batch
        raw = config.public.raw_share if setup.raw_public is not None else 0.0
        self.raw_count = round(self.public_batch * raw)
        self.view_sampler = PublicSampler(len(setup.private), max(1, self.public_batch - self.raw_count), config.seed + 1)
        self.raw_sampler = (
            PublicSampler(len(setup.raw_public), max(1, self.raw_count), config.seed + 2) if setup.raw_public is not None else None
        )
        self.shuffler = PublicSampler(len(setup.private), config.batch, config.seed + 3)
        self.basis_sampler = PublicSampler(len(setup.private), max(1, config.subspace.views), config.seed + 5)
        # Every clip norm of the run: one, unless it follows public people.
        self.clip_norms = [config.clip_norm]
        self.sharpness = 1.0
        self.influence = Influence()
        self._open_private_streams()

    def _open_private_streams(self) -> None:
        setup, config = self.setup, self.setup.config
        coins = open_stream("coins", config.insecure_seed, self.paid)
        noise = open_stream("noise", config.insecure_seed, self.paid)
        self.poisson = PoissonSampler(len(setup.units), setup.sampling_rate, coins)
        self.mechanism = Mechanism(
            setup.noise_multiplier,
            config.clip_norm,
            self.poisson.expected_batch,
            noise,
            config.noise_sum_of_four,
        )

    @property
    def remaining(self) -> int:
        """Steps still to take. Steps paid for and lost to a crash are not paid for again out of the same budget."""
        return self.setup.steps - max(self.step, self.paid)

    def train(self) -> None:
        """Take all remaining steps; on Ctrl-C stop between two steps with everything on record."""
        setup = self.setup
        # A loss that couples people is refused before any private record is read.
        check_records_apart(setup.model, pose_loss, public_sample(setup))
        self._begin()
        self.first_loss = self._watched_loss()
        if not self.begun:
            take_public_steps_first(self)
        per_epoch = setup.steps_per_epoch
        stop_at = self.step + self.remaining
        block = max(1, min(_LEDGER_BLOCK, round(_LEDGER_SHARE * setup.steps)))
        block_end = self.step
        refreshed, period = False, setup.config.subspace.refresh or per_epoch
        while self.step < stop_at:
            if not refreshed or self.step % period == 0:
                refreshed = True
                self._refresh()
            if self.step == block_end:
                # A refresh may move the clip norm, so no block of the ledger reaches across one.
                block_end = min(self.step + block, stop_at, self.step - self.step % period + period)
                self._pay_ahead(block_end - self.step)
            self._take_step()
            self.step += 1
            if self.step % per_epoch == 0 or self.step == stop_at:
                self._end_epoch()
            self.progress.step(self.step, setup.steps, self.public_loss, self.epsilon)

    def _take_step(self) -> None:
        """update = λ · public gradient + lift(Σ clip(private) + noise) / B̄."""
        setup, method = self.setup, self.setup.method
        halves: list[Tensor] = []
        move = None
        records = np.zeros(0, np.int64)
        if method.private == "noised":
            calibrate(self)
            records, unit_index, weight = setup.units.records_of(self.poisson.draw())
            batch, unit_index = self._shown(setup.private, records, unit_index, weight)
            clipped = self.clipped(batch, unit_index)
            if self._own_coordinates:
                released = self.mechanism.release_coordinates(clipped, self.subspace)
                move = self._move(released)
            else:
                released = self.mechanism.release(clipped, self.subspace)
                halves.append(setup.config.private.weight * released)
            # A lifted vector is as long as its coordinates.
            numbers = len(released) if self.subspace is None else self.subspace.dimension
            self.influence.released(released, self.mechanism.noise_in_mean, numbers)
            if setup.config.unsafe_diagnostics:
                self._write_unsafe(batch, clipped)
        elif method.private == "exact":
            everybody = self.showing.show(setup.private, self.shuffler.draw().numpy(), "image", use="private", step=self.step)[0]
            halves.append(self.engine.mean_gradient(pose_loss, everybody)[0])
        if method.view and setup.config.public.steps:
            halves.append(self.public_gradient(records))
            if move is None and method.private == "noised":
                self.influence.halves(float(halves[1].norm()), float(halves[0].norm()))
        self._apply(sum(halves[1:], halves[0]) if halves else None, move)
        for _ in range(1, setup.config.public.steps if method.view else 1):
            self._apply(self.public_gradient(records))

    def public_gradient(self, private_batch: np.ndarray) -> Tensor:
        """λ times the exact mean gradient of a public batch."""
        public = self._public_records(private_batch)
        if public is None:
            return torch.zeros(self.engine.size, device=self.setup.device)
        gradient, self.public_loss = self.engine.mean_gradient(pose_loss, public)
        return self.setup.config.public.weight * gradient

    def _apply(self, update: Tensor | None, move: Tensor | None = None) -> None:
        public, private = self.optimiser.apply(
            self.step, *(None if part is None else self.engine.unflatten(part) for part in (update, move))
        )
        if self._own_coordinates:
            self.influence.halves(public, private)

    @property
    def _own_coordinates(self) -> bool:
        """Whether the noised half has an optimiser of its own, in the coordinates of the subspace."""
        return self.subspace is not None and self.setup.config.private.optimiser != "shared"

    def _move(self, coordinates: Tensor) -> Tensor:
        assert self.subspace is not None
        way = self.in_subspace.direction(coordinates, self.mechanism.noise_in_mean)
        private = self.setup.config.private
        scale = private.learning_rate / (self.mechanism.clip_norm if private.optimiser == "sgd" else 1.0)
        return self.subspace.lift(scale * way)

    def _shown(self, people: PoseRecords, records: np.ndarray, unit_index: Tensor, weight: Tensor) -> tuple[Batch, Tensor]:
        """The records, and the unit of each: several showings of each, where asked; for residuals, each one's view, with the opposite sign.

        A unit's gradient is the weighted sum over all that belongs to it, and the clip bounds that: whatever is shown of a unit,
        and however often, it adds at most C.
        """
        residual, times = self.setup.config.private.residual, self.setup.config.augment.times
        sources = ("image", "view") if residual else ("image",)
        shown = self.showing.show(people, records, *sources, use="private", step=self.step, times=times)
        repeats = max(1, times)
        unit_index, weight = unit_index.repeat_interleave(repeats), (weight / repeats).repeat_interleave(repeats).to(self.setup.device)
        batch = shown[0] | {"weight": weight}
        if self.setup.config.private.calibrate:
            batch["sharpness"] = torch.full_like(weight, self.sharpness)
        if not residual:
            return batch, unit_index
        views = batch | shown[1] | {"weight": -weight}
        return {name: torch.cat([tensor, views[name]]) for name, tensor in batch.items()}, torch.cat([unit_index, unit_index])

    def public_units(self, people: PoseRecords) -> tuple[Batch, Tensor]:
        """Public people as private ones are shown."""
        everyone = torch.arange(len(people))
        return self._shown(people, everyone.numpy(), everyone, torch.ones(len(people)))

    def clipped(self, batch: Batch, unit_index: Tensor) -> ClippedSum | ClippedCoordinates:
        """What of some units' gradients goes into the sum: the clip norm at most of each, projected first where the recipe says so."""
        config, clip_norm = self.setup.config, self.mechanism.clip_norm
        if self.subspace is not None and config.subspace.project_first:
            return self.engine.clipped_coordinates(pose_loss, batch, clip_norm, self.subspace, unit_index, config.chunk)
        return self.engine.clipped_sum(pose_loss, batch, clip_norm, unit_index, config.chunk)

    def _public_records(self, private_batch: np.ndarray) -> Batch | None:
        """A public batch by its own randomness: views of the private set, and raw public people in the declared share.

        Only where the published mistake is asked for are the views those of the private batch; the accountant was told.
        """
        setup = self.setup
        parts = []
        if setup.visible_batches:
            return setup.private.batch(private_batch, "view", setup.device) if len(private_batch) else None
        number, self.public_batches = self.public_batches, self.public_batches + 1
        if self.public_batch > self.raw_count:
            parts += self.showing.show(setup.private, self.view_sampler.draw().numpy(), "view", use="public", step=number)
        if self.raw_count and self.raw_sampler is not None and setup.raw_public is not None:
            changed = 1 if setup.config.augment.public else None
            raw = self.raw_sampler.draw().numpy()
            parts += self.showing.show(setup.raw_public, raw, "image", use="public", step=number, times=changed)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _refresh(self) -> None:
        refresh(self)

    def _end_epoch(self) -> None:
        setup = self.setup
        watched = self._watched_loss()
        self.public_loss = self.public_loss if watched is None else watched
        self.epsilon = self.spent(self.step, _COARSE_GRID)
        self.folder.log(
            "epoch",
            step=self.step,
            epoch=round(self.step / setup.steps_per_epoch, 3),
            public_loss=self.public_loss,
            epsilon=_or_word(self.epsilon),
            learning_rate=self.optimiser.learning_rate,
            **self.influence.told(),
        )
        self.save_checkpoint()
        check_course(self.step, self.engine.parameters.values(), self.first_loss, self.public_loss)

    def _watched_loss(self) -> float | None:
        """The loss of public people whom nothing is trained on."""
        watched = self.setup.watched
        if watched is None:
            return None
        with torch.no_grad():
            return float(pose_loss(self.setup.model, watched.batch(torch.arange(len(watched)), "image", self.setup.device)).mean())

    def _pay_ahead(self, steps: int) -> None:
        """Write the cost of the next steps down before the first of them draws a batch."""
        if self.setup.method.private != "unread":
            if not self.setup.config.rehearsal:
                self.account.pay(self._spend(self.paid, steps))
            self.paid += steps

    def _spend(self, first: int, steps: int) -> Spend:
        return spend_of(self.setup, self.run, first, steps, self.mechanism.clip_norm, self.mechanism.noise.source, open_reads(self))

    def _begin(self) -> None:
        """Have the whole plan admitted before the first step, not refused when the budget runs out in the middle."""
        if self.paid and self.account.ledger.reserved(self.run) >= self.setup.steps:
            return
        reads_private = self.setup.method.private != "unread" and not self.setup.config.rehearsal
        begin_run(self.setup, self._spend(0, self.setup.steps) if reads_private else None, self.progress)
        declared = "; ".join(self.setup.config.declared_reads)
        if declared and not reads_private:
            # No step of such a run carries them into the ledger.
            self.account.record_read(f"{self.run} (declared)", declared)

    def _write_unsafe(self, batch: Batch, clipped: ClippedSum | ClippedCoordinates) -> None:
        with torch.no_grad():
            loss = pose_loss(self.setup.model, batch) if len(batch["joints"]) else torch.zeros(0)
        self.folder.log_unsafe(
            step=self.step,
            private_losses=loss.tolist(),
            gradient_norms=clipped.norms.tolist(),
            clipped_fraction=clipped.clipped_fraction,
            nonfinite=clipped.nonfinite,
            batch=len(clipped.norms),
        )

    def spent(self, steps: int, grid: float | None = None) -> float:
        """ε of `steps` steps of this run; never more than was planned for all of them."""
        plan = self.setup.plan
        if plan is None or steps == 0:
            return 0.0
        cost = epsilon([replace(plan, steps=steps)], self.setup.config.delta, self.setup.config.accountant, grid)
        return min(cost, self.setup.config.epsilon) if plan.noise_multiplier > 0 else cost

    def certificate(self, weights_sha256: str = "") -> Certificate:
        """The statement about what this run has paid for so far, and about these weights."""
        return certificate_of(self, weights_sha256)

    def save_checkpoint(self) -> None:
        """Everything needed to go on, all of it public or post-processing."""
        self.folder.save_checkpoint(state_of(self))

    def resume(self) -> None:
        """Go on from the folder's checkpoint, with fresh coins and noise; what the ledger says was paid stays paid."""
        restore(self, self.folder.load_checkpoint())
        self._open_private_streams()
        self.mechanism = replace(self.mechanism, clip_norm=self.clip_norms[-1])

    @property
    def samplers(self) -> dict[str, PublicSampler]:
        """Every sampler of public randomness, by name."""
        samplers = {"view": self.view_sampler, "shuffle": self.shuffler, "basis": self.basis_sampler}
        return samplers | ({"raw": self.raw_sampler} if self.raw_sampler is not None else {})


def run_training(config: RunConfig, out: Path, progress: Progress | None = None, resume: bool = False) -> Path:
    """Train, evaluate and certify; returns the run folder. After Ctrl-C the folder is complete for the steps that were taken."""
    progress = progress or Progress()
    with only_one(out):
        check_folder(out, config, resume)
        setup = prepare(config, progress)
        if not resume:
            check_admission(setup)
        folder = RunFolder(out) if resume else RunFolder.create(out, config)
        trainer = Trainer(setup, folder, progress)
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
                expected_batch=trainer.poisson.expected_batch,
                trainable_parameters=trainer.engine.size,
            )
        stopped: BaseException | None = None
        try:
            trainer.train()
        except KeyboardInterrupt as interrupt:
            stopped = interrupt
            progress.warn(f"stopped after {trainer.step} of {setup.steps} steps; writing down what was done")
            trainer.save_checkpoint()
        except Diverged as error:
            if setup.method.private == "unread" or config.rehearsal:
                left = "nothing private was spent"
            else:
                left = f"{setup.account.release(trainer.run)} of {setup.steps} steps were not spent"
            stopped = Diverged(
                f"{error}: training was stopped, and {left}. {out} holds the certificate of what was. Lower the learning rate, or see "
                "'halfmask plan' for what this number of people can bear"
            )
        finish(trainer)
        folder.log("end", step=trainer.step, interrupted=stopped is not None)
        if stopped is not None:
            raise stopped
    return out


def finish(trainer: Trainer) -> None:
    """Certify the weights and release them, in this order, and judge them on the public test set."""
    setup, folder = trainer.setup, trainer.folder
    if trainer.step:
        trainer.optimiser.release_average()
    weights = folder.packed(setup.model)
    digest = hashlib.sha256(weights).hexdigest()
    spent = setup.method.private != "unread" and not setup.config.rehearsal and trainer.paid
    # A run that spends nothing may still go on from weights that cost something, and hands that on.
    if spent or setup.behind:
        setup.account.record_model(trainer.run, digest, tensor_hashes(trainer.engine.parameters.values()), setup.behind)
    folder.save_certificate(trainer.certificate(digest))
    folder.save_weights(weights)
    if setup.data.test is not None:
        metrics, per_joint = evaluate(setup.model, setup.data.test, device=setup.device)
        folder.save_metrics(setup.config.task, setup.data.name, "test", metrics, per_joint)


def _or_word(value: float) -> float | str:
    return value if math.isfinite(value) else "infinity"
