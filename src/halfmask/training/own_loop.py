"""`halfmask.Private`: for people who keep their own loop and their own optimiser.

private = halfmask.Private(model, loss, private=dataset, unit="patient", epsilon=3.0, delta=1e-6, clip_norm=1.0, batch=64, epochs=5,
                           out="runs/mine")
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(private.steps):
    private.step()
    optimiser.step()
certificate = private.finish()
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import nn

from halfmask.errors import HalfmaskError
from halfmask.tasks.own import LossOfItems
from halfmask.training.distributed import refuse_several
from halfmask.training.lineage import runs_behind
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder, check_folder, only_one
from halfmask.training.own import own_config, own_setup
from halfmask.training.progress import Progress
from halfmask.training.running import finish
from halfmask.training.runs import read_json
from halfmask.training.spending import check_admission, name_run

READ_NOWHERE_ELSE = (
    "that the program which took the steps read private records nowhere else, and changed the weights by released gradients and public "
    "data alone: declared by whoever wrote it, and not checked"
)


class Private:
    """Gives the noised mean gradients of a planned number of steps, each paid for before its batch is drawn.

    `step` returns nothing about its batch. It leaves in `.grad` of each trainable parameter what was released, in place of whatever was
    there, so that any optimiser and any schedule goes on from that. The arguments are those of `halfmask.train`; there is no view, because
    the public half of a step is the caller's.

    Attributes:
        steps: how many the plan has. Fewer may be taken: the certificate tells what was paid.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: LossOfItems,
        *,
        private: Any,
        unit: str,
        epsilon: float,
        delta: float,
        clip_norm: float,
        batch: int,
        epochs: float,
        out: str | Path,
        test: Any = None,
        score: Any = None,
        public: Any = None,
        sample: Any = None,
        seed: int = 0,
        insecure_seed: int | None = None,
        records_per_unit: int = 8,
        adjacency: str = "zero-out",
        budget: float | None = None,
        name: str = "own",
        strangers: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ):
        recipe = {
            "method": "dpsgd" if public is None else "projected",
            "epsilon": epsilon,
            "delta": delta,
            "clip_norm": clip_norm,
            "batch": batch,
            "epochs": epochs,
            "unit": unit,
            "records_per_unit": records_per_unit,
            "adjacency": adjacency,
            "budget": budget,
            "seed": seed,
            "insecure_seed": insecure_seed,
            "data": {"name": name, "strangers": list(strangers)},
        }
        config = own_config(recipe, public, None, settings)
        if config.private.optimiser != "shared":
            raise HalfmaskError("private.optimiser is for halfmask.train: here the optimiser is the caller's")
        # Whose optimiser it is decides what each process makes of a gradient: not for several of them to agree on.
        refuse_several("a loop of your own (halfmask.Private)")
        self._path, progress = Path(out), progress or Progress()
        self._lock = only_one(self._path)
        self._lock.__enter__()
        try:
            check_folder(self._path, config, resume=False)
            self._setup = own_setup(config, model, loss, private, progress, test, score, public, sample=sample, facts=[READ_NOWHERE_ELSE])
            check_admission(self._setup)
            self._folder = RunFolder.create(self._path, config)
            self._trainer = Trainer(self._setup, self._folder, progress)
            self._trainer.save_checkpoint()
            name_run(self._setup, self._trainer.standing.run, self._path)
            self._trainer.begin()
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        self._buffers = _digest(model)
        self._certificate: dict[str, Any] | None = None

    @property
    def steps(self) -> int:
        """How many steps are planned."""
        return self._setup.steps

    @property
    def epsilon(self) -> float:
        """ε of the steps taken so far."""
        return self._setup.spent(self._trainer.standing.step)

    def step(self) -> None:
        """Pay for a step, draw its units, and leave the noised mean gradient in `.grad` of each trainable parameter."""
        trainer, standing = self._trainer, self._trainer.standing
        if self._certificate is not None:
            raise HalfmaskError("this run is finished and certified: begin another one")
        if standing.step >= self.steps:
            raise HalfmaskError(f"all {self.steps} planned steps were taken: finish, and plan more epochs next time")
        if _digest(self._setup.model) != self._buffers:
            raise HalfmaskError(
                "a buffer of the model changed between two steps: it would carry what was seen of private records past the noise. Keep "
                "layers that gather statistics in evaluation mode"
            )
        if standing.step == 0:
            self._look_behind()
        trainer.make_ready(self.steps)
        # Counted before it is taken: a step that fails half-way was paid for, and its payment serves no other.
        step, standing.step = standing.step, standing.step + 1
        modes = {module: module.training for module in self._setup.model.modules()}
        try:
            # As it is accounted for: dropout would draw masks by the place in the batch.
            self._setup.model.eval()
            released = trainer.noised.release(step).gradient
        finally:
            for module, mode in modes.items():
                module.training = mode
        assert released is not None
        for name, gradient in trainer.engine.unflatten(released).items():
            weight = trainer.engine.parameters[name]
            weight.grad = gradient.to(weight.dtype).clone()
        trainer.progress.step(standing.step, self.steps, None, None)

    def _look_behind(self) -> None:
        """Weights may have been loaded since the run was prepared."""
        behind = runs_behind(None, self._setup.account, self._setup.model)
        self._setup = replace(self._setup, behind=tuple(dict.fromkeys((*self._setup.behind, *behind))))
        self._trainer.setup = self._setup

    def finish(self) -> dict[str, Any]:
        """Certify and release the weights as they are now, for the steps that were paid; returns the certificate."""
        if self._certificate is None:
            if _digest(self._setup.model) != self._buffers:
                raise HalfmaskError("a buffer of the model changed since the run began: put it back, and then finish")
            self._look_behind()
            try:
                finish(self._setup, self._folder, self._trainer)
                self._folder.log("end", step=self._trainer.standing.step, interrupted=self._trainer.standing.step < self.steps)
                self._certificate = read_json(self._path / "certificate.json")
            finally:
                self._lock.__exit__(None, None, None)
        assert self._certificate is not None
        return self._certificate

    def __enter__(self) -> Private:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.finish()


def _digest(model: nn.Module) -> bytes:
    digest = hashlib.sha256()
    for name, buffer in model.named_buffers():
        digest.update(name.encode() + buffer.detach().cpu().contiguous().numpy().tobytes())
    return digest.digest()
