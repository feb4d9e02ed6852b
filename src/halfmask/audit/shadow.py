"""Models that an audit trains for itself, by the real training."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import nn

from halfmask.audit.canaries import quarantine
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import Datasets, Records
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare


@dataclass(frozen=True)
class Shadow:
    """A model before and after its training.

    Attributes:
        noise: variance of the noise along a direction, in units of the variance of a record that is in by a fair coin and then adds C in
            each of the steps that draw it: σ²T / (Tq/2)². Nothing where there is no noise.
    """

    initial: nn.Module
    model: nn.Module
    steps: int
    noise: float = 0.0


def train_shadow(config: RunConfig, private: Records, public: Records | None) -> nn.Module:
    """A model by this recipe on these people. It is nobody's release: no ledger hears of it, no budget binds it."""
    return trace_shadow(config, private, public).model


def trace_shadow(
    config: RunConfig, private: Records, public: Records | None, absent: np.ndarray | None = None, paid: bool = False
) -> Shadow:
    """A shadow model with the weights it began with.

    Args:
        absent: records whose private part is nothing: they are counted and drawn like any other, their views and labels stay, and they
            add no gradient. This is the zero-out relation that the accountant speaks of.
        paid: train with the dataset's own ledger, whose budget binds, instead of one that is thrown away.
    """
    # Someone who left for S_pub in the run that is audited must not leave again here.
    config = replace(config, budget=None, subspace=replace(config.subspace, source="public"))
    with _own_home() if paid else quarantine() as folder:
        data = Datasets(private, public, None, config.data.name, fingerprints_of(private))
        setup = prepare(config, Progress(), data)
        if absent is not None:
            setup.units.members = [records[~np.isin(records, absent)] for records in setup.units.members]
        initial = copy.deepcopy(setup.model).cpu()
        trainer = Trainer(setup, RunFolder.create(folder, config), Progress())
        trainer.train()
        trainer.release()
    return Shadow(initial, setup.model.cpu(), setup.steps, (2 * setup.noise_multiplier / setup.sampling_rate) ** 2 / setup.steps)


@contextmanager
def _own_home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="halfmask-audit-") as folder:
        yield Path(folder) / "run"
