"""The training loop: one for all methods and all tasks.

private = noised.release(step)        # coins → units → records → clip → sum → noise → ÷ B̄ → lift
public  = exact.gradient()            # knows no private rows
optimiser.apply(step, public, private); post.step(step)

Where a run has several processes all of them take these steps; what only one of them may do is asked of `setup.group`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from halfmask.gradients.apart import state_kept
from halfmask.gradients.engine import ClippingEngine, check_records_apart
from halfmask.privacy.sampling import PublicSampler
from halfmask.tasks.base import PostProcessing
from halfmask.training.checkpoint import Standing, restore, state_of
from halfmask.training.course import check_course
from halfmask.training.first import take_public_steps_first
from halfmask.training.influence import Influence
from halfmask.training.optimise import Optimiser
from halfmask.training.outputs import RunFolder
from halfmask.training.private import OpenHalf, PrivateHalf, Released, diagnostics
from halfmask.training.progress import Progress
from halfmask.training.public import PublicHalf, SharedBatch
from halfmask.training.refresh import calibrated, refreshed
from halfmask.training.setup import Setup, public_samples
from halfmask.training.showing import Showing
from halfmask.training.spending import Payments

# Steps whose cost is written down at once, ahead of taking them, as a share of the run and at most: what a crash can cost.
_LEDGER_SHARE, _LEDGER_BLOCK = 0.01, 50
# ε shown along the way is computed on a coarse grid: still an upper bound, and it costs milliseconds.
_COARSE_GRID = 1e-3


class Trainer:
    """Takes the steps of one run."""

    def __init__(self, setup: Setup, folder: RunFolder, progress: Progress):
        config = setup.config
        self.setup, self.folder, self.progress, self.group = setup, folder, progress, setup.group
        self.standing = self.group.from_root(Standing)
        self.payments = Payments(setup, self.standing, progress)
        self.public_loss: float | None = None
        # Where it began: a loss far above that is a run that came to nothing.
        self.first_loss: float | None = None
        self.epsilon: float | None = None
        self.influence = Influence()
        self.engine = ClippingEngine(setup.model)
        self.optimiser = Optimiser(config.optimiser, self.engine.parameters, setup.steps, setup.task.optimiser)
        showing = Showing(config.augment, setup.task, config.seed + 4, setup.device)
        self.noised = PrivateHalf.of(setup, self.engine, showing, self.influence)
        self.open = OpenHalf(setup, self.engine, showing)
        own = setup.task.exact_half(setup, self.engine)
        self.exact = own or PublicHalf(setup, self.engine, showing)
        self.has_exact = setup.method.view or own is not None
        if setup.visible_batches:
            shared = SharedBatch(setup, self.engine, showing)
            self.exact, self.noised = shared, replace(self.noised, publish=shared.publish)
        if config.unsafe_diagnostics:
            self.noised = replace(self.noised, unsafe=diagnostics(setup, folder))
        self.basis_sampler = PublicSampler(len(setup.private), max(1, config.subspace.views), config.seed + 5)
        self.post = setup.task.post_processing(setup)

    @property
    def remaining(self) -> int:
        """Steps still to take. Steps paid for and lost to a crash are not paid for again out of the same budget."""
        return self.setup.steps - max(self.standing.step, self.standing.paid)

    def train(self) -> None:
        """Take all remaining steps; on Ctrl-C stop between two steps with everything on record."""
        setup, standing = self.setup, self.standing
        self.begin()
        stop_at = standing.step + self.remaining
        while standing.step < stop_at:
            self.make_ready(stop_at)
            self.take_step()
            standing.step += 1
            self._look_at_what_follows(lambda post: post.check(standing.step))
            if standing.step % setup.steps_per_epoch == 0 or standing.step == stop_at:
                self._end_epoch()
            self.progress.step(standing.step, setup.steps, self.public_loss, self.epsilon)
        self._look_at_what_follows(lambda post: post.complete())

    def release(self) -> None:
        """Put in their place the weights that are to be released: averages, where some were asked for."""
        if self.standing.step:
            self.optimiser.release_average()
        if self.post is not None:
            self.post.release()

    def begin(self) -> None:
        """What comes before the first step: the loss is tried, the whole plan admitted, and public steps are taken."""
        setup, standing = self.setup, self.standing
        # A loss that couples people is refused before any private record is read.
        samples = public_samples(setup)
        # Once without a look at the model's state: some networks make tables of theirs when they are first used.
        with torch.no_grad():
            setup.task.loss(setup.model, samples[0])
        with state_kept(setup.model):
            for sample in samples:
                check_records_apart(setup.model, setup.task.loss, sample)
        self.payments.begin(self.noised)
        self.first_loss = self._watched_loss()
        if not standing.begun:
            steps = setup.config.public.first if setup.method.view else 0
            if take_public_steps_first(steps, setup, self.engine, self.exact, self.influence, self.progress):
                self.optimiser = Optimiser(setup.config.optimiser, self.engine.parameters, setup.steps, setup.task.optimiser)
            standing.begun = True
        self._paid_until, self._fresh = standing.step, False

    def make_ready(self, stop_at: int) -> None:
        """Refresh what is due, and pay for the next steps before the first of them draws a batch."""
        step, period = self.standing.step, self.setup.config.subspace.refresh or self.setup.steps_per_epoch
        if not self._fresh or step % period == 0:
            self._fresh = True
            self.refresh()
        if step == self._paid_until:
            block = max(1, min(_LEDGER_BLOCK, round(_LEDGER_SHARE * self.setup.steps)))
            # A refresh may move the clip norm, so no block of the ledger reaches across one.
            self._paid_until = min(step + block, stop_at, step - step % period + period)
            self.payments.ahead(self._paid_until - step, self.noised)

    def refresh(self) -> None:
        """Take anew what comes from public people: the subspace, the clip norm."""
        self.noised = refreshed(self.noised, self.setup, self.basis_sampler, self.standing.step, self.folder.log)

    def take_step(self) -> None:
        """update = λ · public gradient + lift(Σ clip(private) + noise) / B̄."""
        method, step = self.setup.method, self.standing.step
        released = Released()
        if method.private == "noised":
            self.noised = calibrated(self.noised, self.setup)
            released = self.noised.release(step)
        elif method.private == "exact":
            released = self.open.release(step)
        public_steps = self.setup.config.public.steps if self.has_exact else 0
        public = self._public_gradient() if public_steps else None
        if public is not None and released.gradient is not None:
            self.influence.halves(float(public.norm()), float(released.gradient.norm()))
        halves = [half for half in (released.gradient, public) if half is not None]
        self._apply(sum(halves[1:], halves[0]) if halves else None, released.move)
        for _ in range(1, public_steps):
            self._apply(self._public_gradient())
        if self.post is not None:
            self._look_at_what_follows(lambda post: post.step(step))
            self.group.spread(self.setup.model)

    def _look_at_what_follows(self, ask: Callable[[PostProcessing], None]) -> None:
        """Ask the steps that follow those of the mechanism, where a task has some: they are root's, who hands on what they moved."""
        post = self.post
        if post is not None:
            self.group.from_root(lambda: ask(post))

    def _public_gradient(self) -> Tensor:
        gradient = self.exact.gradient()
        self.public_loss = self.exact.loss if self.exact.loss is not None else self.public_loss
        return gradient

    def _apply(self, update: Tensor | None, move: Tensor | None = None) -> None:
        public, private = self.optimiser.apply(
            self.standing.step, *(None if part is None else self.engine.unflatten(part) for part in (update, move))
        )
        if self.noised.own_coordinates:
            self.influence.halves(public, private)

    def _end_epoch(self) -> None:
        setup, step = self.setup, self.standing.step
        watched = self._watched_loss()
        self.public_loss = self.public_loss if watched is None else watched
        self.epsilon = setup.spent(step, _COARSE_GRID)
        self.group.agree("the weights", self._weights)
        self.folder.log(
            "epoch",
            step=step,
            epoch=round(step / setup.steps_per_epoch, 3),
            public_loss=self.public_loss,
            epsilon=self.epsilon if math.isfinite(self.epsilon) else "infinity",
            learning_rate=self.optimiser.learning_rate,
            **self.influence.summary(),
        )
        self.save_checkpoint()
        check_course(step, self.engine.parameters.values(), self.first_loss, self.public_loss)

    def _watched_loss(self) -> float | None:
        """The loss of public people whom nothing is trained on."""
        setup, watched = self.setup, self.setup.watched
        if watched is None:
            return None
        return self.group.from_root(lambda: setup.task.watched_loss(setup.model, watched, setup.device))

    def _weights(self) -> bytes:
        return b"".join(weight.detach().cpu().contiguous().numpy().tobytes() for weight in self.engine.parameters.values())

    def save_checkpoint(self) -> None:
        """Everything needed to go on, all of it public or post-processing. Root's alone, who needs nobody else for it."""
        if self.group.root:
            state = state_of(self.standing, self.setup, self.optimiser, self.exact.batches, self.noised.clip_norms, self.samplers)
            self.folder.save_checkpoint(state if self.post is None else state | {"post": self.post.state()})

    def resume(self) -> None:
        """Go on from the folder's checkpoint, with fresh coins and noise; what the ledger says was paid stays paid."""
        state = self.group.from_root(self.folder.load_checkpoint)
        restore(state, self.folder.path, self.standing, self.setup, self.optimiser, self.samplers)
        self.exact.batches = state["public_batches"]
        if self.post is not None:
            self.post.restore(state["post"])
        # Weights that a run went on from are behind it however it is taken up again.
        self.setup = replace(self.setup, behind=tuple(dict.fromkeys((*self.setup.behind, *state.get("behind", ())))))
        self.noised = self.noised.resumed(self.setup, self.standing.paid, tuple(state["clip_norms"]))

    @property
    def samplers(self) -> dict[str, PublicSampler]:
        """Every sampler of public randomness, by name."""
        return self.exact.samplers | {"shuffle": self.open.sampler, "basis": self.basis_sampler}
